/* base/clock: the system's clocks, in seconds. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

double clock_seconds(void); /* seconds since an arbitrary time; never goes back */
double clock_wall(void);    /* seconds since 1970 */
double clock_thread(void);  /* CPU time of the calling thread */
double clock_process(void); /* CPU time of all threads of the process */

#endif
