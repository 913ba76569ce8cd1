/* base/clock: time. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

double clock_seconds(void); /* monotonic */
double clock_wall(void);    /* seconds since 1970 */
double clock_thread(void);  /* processor time of the calling thread */
double clock_process(void); /* processor time of all threads */

#endif
