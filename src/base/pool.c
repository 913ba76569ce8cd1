/* base/pool: each call of pool_run is a round. Counters `start` and `finish` count started and finished
   rounds. A thread that waits for a counter to change polls it for a short time, then sleeps. */
#include "base/pool.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

enum {
    SPINS = 2000, /* polls before a sleep: more slow down other processes, fewer cost 70 us per wake-up */
    MOST_THREADS = 4096
};

/* A counter that threads wait for. It has its own cache line, because threads spin on it. */
typedef struct gate {
    _Alignas(MEM_ALIGNMENT) _Atomic uint32_t count;
    atomic_int sleepers;
#ifndef __linux__
    pthread_mutex_t lock;
    pthread_cond_t moved;
#endif
} gate;

typedef struct worker {
    pool *owner;
    pthread_t handle;
    int index;
} worker;

struct pool {
    gate start, finish; /* started rounds; finished rounds */
    atomic_int busy;    /* workers that have not finished this round */
    pool_task task;     /* pool_run sets task and argument before it moves `start`; workers read them later */
    void *argument;
    bool closing;
    mem *account;
    worker *workers; /* [threads - 1] all threads except the caller */
    int threads, spins;
};

static void pause_processor(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#ifdef __linux__
static void gate_init(gate *g) {
    (void)g;
}
static void gate_destroy(gate *g) {
    (void)g;
}

/* Sleeps while the count is `old`. May return earlier. */
static void gate_sleep(gate *g, uint32_t old) {
    syscall(SYS_futex, &g->count, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
}
static void gate_wake(gate *g) {
    syscall(SYS_futex, &g->count, FUTEX_WAKE_PRIVATE, MOST_THREADS, NULL, NULL, 0);
}
#else
static void gate_init(gate *g) {
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->moved, NULL);
}

static void gate_destroy(gate *g) {
    pthread_cond_destroy(&g->moved);
    pthread_mutex_destroy(&g->lock);
}

static void gate_sleep(gate *g, uint32_t old) {
    pthread_mutex_lock(&g->lock);
    while (atomic_load(&g->count) == old) pthread_cond_wait(&g->moved, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void gate_wake(gate *g) {
    pthread_mutex_lock(&g->lock);
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&g->lock);
}
#endif

/* Returns when the count is no longer `old`. */
static void gate_wait(gate *g, uint32_t old, int spins) {
    for (; spins > 0; spins--) {
        if (atomic_load_explicit(&g->count, memory_order_acquire) != old) return;
        pause_processor();
    }
    /* no wake-up is lost: either gate_move sees this sleeper, or this thread sees the new count */
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->count) == old) gate_sleep(g, old);
    atomic_fetch_sub(&g->sleepers, 1);
}

static void gate_move(gate *g) {
    atomic_fetch_add(&g->count, 1);
    if (atomic_load(&g->sleepers) > 0) gate_wake(g);
}

static void *run_worker(void *argument) {
    const worker *w = argument;
    pool *p = w->owner;
    for (uint32_t round = 0;; round++) {
        gate_wait(&p->start, round, p->spins);
        if (p->closing) return NULL;
        p->task(p->argument, w->index, p->threads);
        if (atomic_fetch_sub(&p->busy, 1) == 1) gate_move(&p->finish);
    }
}

void pool_run(pool *p, pool_task task, void *argument) {
    if (p->threads == 1) {
        task(argument, 0, 1);
        return;
    }
    uint32_t finished = atomic_load(&p->finish.count);
    p->task = task;
    p->argument = argument;
    atomic_store(&p->busy, p->threads - 1);
    gate_move(&p->start);
    task(argument, 0, p->threads);
    gate_wait(&p->finish, finished, p->spins);
}

int pool_cores(void) {
#ifdef __linux__
    cpu_set_t set; /* a bit for each of 1024 cores; if there are more, the call fails and sysconf is used */
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > MOST_THREADS ? MOST_THREADS : (int)cores;
}

/* Starts worker i with all signals blocked, so that signal handlers run on the program's own threads. */
static ott_status start_worker(pool *p, int i) {
    sigset_t all, before;
    worker *w = &p->workers[i];
    *w = (worker){.owner = p, .index = i + 1};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&w->handle, NULL, run_worker, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure)
        return status_fail(OTT_ERR_MEMORY, "cannot start thread %d of %d: %s; ask for fewer threads", i + 2,
                           p->threads, strerror(failure));
    return OTT_OK;
}

/* Stops the first `started` workers and frees the pool. */
static void close_pool(pool *p, int started) {
    p->closing = true;
    gate_move(&p->start);
    for (int i = 0; i < started; i++) pthread_join(p->workers[i].handle, NULL);
    gate_destroy(&p->start);
    gate_destroy(&p->finish);
    mem_free(p->account, p->workers);
    mem_free(p->account, p);
}

ott_status pool_check_threads(int threads) {
    if (threads >= 0 && threads <= MOST_THREADS) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "threads = %d: give 1 to %d, or 0 for all cores (%d)", threads,
                       MOST_THREADS, pool_cores());
}

ott_status pool_open(mem *account, int threads, pool **out) {
    *out = NULL;
    int cores = pool_cores();
    TRY(pool_check_threads(threads));
    if (threads == 0) threads = cores;
    pool *p;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(pool), "a thread pool", &p));
    ott_status status = mem_alloc_array(account, MEM_OTHER, threads - 1, sizeof(worker),
                                        "a thread pool's workers", &p->workers);
    if (status != OTT_OK) return mem_free(account, p), status;
    p->account = account;
    p->threads = threads;
    p->spins = threads > cores ? 0 : SPINS; /* a spinning thread would take a core from a working thread */
    gate_init(&p->start);
    gate_init(&p->finish);
    for (int i = 0; i < threads - 1; i++) {
        status = start_worker(p, i);
        if (status != OTT_OK) return close_pool(p, i), status;
    }
    return *out = p, OTT_OK;
}

void pool_close(pool *p) {
    if (p) close_pool(p, p->threads - 1);
}

int pool_threads(const pool *p) {
    return p->threads;
}

void pool_share(int64_t count, int64_t grain, int thread, int threads, int64_t *begin, int64_t *end) {
    if (grain < 1) grain = 1;
    int64_t grains = count / grain + (count % grain != 0);
    /* the first `extra` threads get one grain more */
    int64_t each = grains / threads, extra = grains % threads;
    int64_t first = thread * each + (thread < extra ? thread : extra);
    int64_t last = first + each + (thread < extra);
    *begin = first * grain < count ? first * grain : count;
    *end = last * grain < count ? last * grain : count;
}
