/* base/clock: the system's clocks, in seconds. */
#include "base/clock.h"
#include <time.h>

static double seconds_of(clockid_t id) {
    struct timespec now;
    clock_gettime(id, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double clock_seconds(void) {
    return seconds_of(CLOCK_MONOTONIC);
}

double clock_wall(void) {
    return seconds_of(CLOCK_REALTIME);
}

double clock_process(void) {
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

double clock_thread(void) {
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}
