/* base/pool: a thread pool with a fixed split of the work. Task t of n always processes the same share, so
   results do not depend on timing. Workers spin briefly, then sleep on a futex: an OpenMP runtime that spins
   without limit was 29 times slower with two processes on the same cores. */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include "base/mem.h"

typedef struct pool pool;
typedef void (*pool_task)(void *argument, int thread, int threads);

/* Returns the number of cores that this process may run on. */
int pool_cores(void);
/* OTT_ERR_ARGUMENT if pool_open would refuse this number of threads. */
ott_status pool_check_threads(int threads);
/* threads >= 1 includes the caller; 0: pool_cores(). */
ott_status pool_open(mem *account, int threads, pool **out);
void pool_close(pool *p); /* joins the workers; NULL is allowed */
int pool_threads(const pool *p);
/* Runs task(argument, t, threads) once for each t in [0, threads), with t = 0 on the calling thread. Returns
   when all are done. Not reentrant. */
void pool_run(pool *p, pool_task task, void *argument);
/* Thread t's share [*begin, *end) of `count` items, split at multiples of `grain`. */
void pool_share(int64_t count, int64_t grain, int thread, int threads, int64_t *begin, int64_t *end);

#endif
