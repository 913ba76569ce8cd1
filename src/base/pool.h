/* base/pool: a thread pool with a fixed split of the work. Task t of n always gets the same share, so results
   do not depend on timing. Workers spin briefly, then sleep on a futex. (An OpenMP runtime that spins without
   limit was 29 times slower with two processes on the same cores.) */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include "base/mem.h"

typedef struct pool pool;
typedef void (*pool_task)(void *argument, int thread, int threads);

/* Returns the number of cores that this process may run on. */
int pool_cores(void);
/* OTT_ERR_ARGUMENT if pool_open would refuse this number of threads. */
ott_status pool_check_threads(int threads);
/* Opens a pool of `threads` threads, the calling thread included; 0: pool_cores() threads. */
ott_status pool_open(mem *account, int threads, pool **out);
void pool_close(pool *p); /* joins the workers; NULL is allowed */
int pool_threads(const pool *p);
/* Runs task(argument, t, threads) once for each t in [0, threads); t = 0 runs on the calling thread. Returns
   when all tasks are done. A task must not call pool_run. */
void pool_run(pool *p, pool_task task, void *argument);
/* Sets [*begin, *end) to the thread's share of `count` items. Shares begin at multiples of `grain`. */
void pool_share(int64_t count, int64_t grain, int thread, int threads, int64_t *begin, int64_t *end);

#endif
