/* base/pool: threads with a fixed split of the work. Task t of n always does the same share, whatever thread
   runs it, so results cannot depend on timing. Workers spin briefly, then sleep on a futex: an OpenMP runtime
   that spins freely costs 29x when two processes share the cores. */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include "base/mem.h"

typedef struct pool pool;
typedef void (*pool_task)(void *argument, int thread, int threads);

/* Cores that this process may run on. */
int pool_cores(void);
/* OTT_ERR_ARGUMENT if pool_open would refuse so many threads. */
ott_status pool_check_threads(int threads);
/* threads >= 1, the caller's included. 0: pool_cores. */
ott_status pool_open(mem *account, int threads, pool **out);
void pool_close(pool *p); /* joins the workers; NULL is allowed */
int pool_threads(const pool *p);
/* Runs task(argument, t, threads) once for every t in [0, threads), the caller doing t = 0; returns when all
 * are done. Not reentrant. */
void pool_run(pool *p, pool_task task, void *argument);
/* The half-open share [*begin, *end) of `count` items that thread t of n takes, in multiples of `grain`. */
void pool_share(int64_t count, int64_t grain, int thread, int threads, int64_t *begin, int64_t *end);

#endif
