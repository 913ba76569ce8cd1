/* base/clock: the system's clocks as seconds and as a log stamp. */
#include "base/clock.h"
#include <stdio.h>
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
double clock_thread(void) {
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

const char *clock_stamp(char out[32]) {
    struct timespec now;
    struct tm local;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    size_t length = strftime(out, 32, "%Y-%m-%d %H:%M:%S", &local);
    snprintf(out + length, 32 - length, ",%03d", (int)(now.tv_nsec / 1000000));
    return out;
}
