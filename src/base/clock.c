/* base/clock: the system's clocks, in seconds. */
#include "base/clock.h"
#include <time.h>

static double timespec_seconds(clockid_t id) {
    struct timespec now;
    clock_gettime(id, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double clock_seconds(void) {
    return timespec_seconds(CLOCK_MONOTONIC);
}

double clock_wall(void) {
    return timespec_seconds(CLOCK_REALTIME);
}

double clock_process(void) {
    return timespec_seconds(CLOCK_PROCESS_CPUTIME_ID);
}

double clock_thread(void) {
    return timespec_seconds(CLOCK_THREAD_CPUTIME_ID);
}
