/* cuda/nccl/watchdog: the thread that detects failed groups and then aborts all groups of the device. */
#include "base/clock.h"
#include "cuda/nccl/group.h"
#include <stdio.h>
#include <time.h>

enum { TICK = 20 }; /* milliseconds between two checks */

/* ---- completed operations ---- */

static void take_first(nccl_group *g, nccl_channel *at) {
    nccl_operation *f = at->first;
    at->first = f->next;
    at->since = 0;
    f->completed = true;
    if (!f->waited) return;
    f->next = g->idle;
    g->idle = f;
}

void nccl_watchdog_sweep(nccl_group *g, nccl_channel *at) {
    while (at->first && cudaEventQuery(at->first->ended) == cudaSuccess) take_first(g, at);
}

/* ---- failing ---- */

/* Aborts all channels in one NCCL group call. Each abort frees GPU memory, and so waits for the GPU. Separate
   aborts would wait for collectives of the channels that are not aborted yet, which may never end. */
void nccl_end_group(nccl_group *g) {
    const nccl_calls *nccl = g->device->watchdog->calls;
    nccl->begin();
    for (int i = 0; i < CHANNELS; i++) {
        if (g->channels[i].comm) nccl->abort(g->channels[i].comm);
        g->channels[i].comm = NULL;
    }
    nccl->end();
}

void nccl_fail(cuda_device *c, const char *text) {
    nccl_watchdog *w = c->watchdog;
    if (w->failed) return;
    w->failed = true;
    snprintf(w->text, sizeof w->text, "%s", text);
    w->calls->begin();
    for (nccl_group *g = w->groups; g; g = g->next) nccl_end_group(g);
    w->calls->end();
}

ott_status nccl_watchdog_check(const cuda_device *c) {
    nccl_watchdog *w = c->watchdog;
    if (!w) return OTT_OK;
    pthread_mutex_lock(&w->lock);
    bool failed = w->failed;
    pthread_mutex_unlock(&w->lock);
    return failed ? status_fail(OTT_ERR_RANK, "%s", w->text) : OTT_OK;
}

static void fail_channel(const nccl_group *g, const nccl_channel *at, const char *reason) {
    char text[NCCL_TEXT];
    const nccl_operation *f = at->first;
    if (f)
        snprintf(text, sizeof text, "%s, collective number %lld%s%s, on rank %d: %s",
                 group_collective_name(f->kind), (long long)f->number, g->name[0] ? " of " : "", g->name,
                 g->group.rank, reason);
    else
        snprintf(text, sizeof text, "group %s of %d ranks, on rank %d: %s", g->name, g->group.size,
                 g->group.rank, reason);
    nccl_fail(g->device, text);
}

static void look_at_channel(nccl_group *g, nccl_channel *at) {
    const nccl_calls *nccl = g->device->watchdog->calls;
    int state = NCCL_SUCCESS;
    if (!at->comm) return;
    nccl_watchdog_sweep(g, at);
    if (nccl->state(at->comm, &state) != NCCL_SUCCESS ||
        (state != NCCL_SUCCESS && state != NCCL_IN_PROGRESS)) {
        char text[NCCL_TEXT];
        snprintf(text, sizeof text, "NCCL: %s (NCCL_DEBUG=WARN prints details)", nccl->error_text(state));
        fail_channel(g, at, text);
        return;
    }
    if (!at->first || g->timeout <= 0) return;
    if (at->since == 0) at->since = clock_seconds();
    if (clock_seconds() - at->since > g->timeout) fail_channel(g, at, "another rank did not join in time");
}

/* ---- the thread ---- */

static void wait_tick(nccl_watchdog *w) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += TICK * 1000000L;
    t.tv_sec += t.tv_nsec / 1000000000L;
    t.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&w->changed, &w->lock, &t);
}

static void *run_watchdog_thread(void *argument) {
    cuda_device *c = argument;
    nccl_watchdog *w = c->watchdog;
    cudaSetDevice(c->index);
    pthread_mutex_lock(&w->lock);
    while (!w->stops) {
        for (nccl_group *g = w->groups; g && !w->failed; g = g->next)
            for (int i = 0; i < CHANNELS && !w->failed; i++) look_at_channel(g, &g->channels[i]);
        wait_tick(w);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

ott_status nccl_watchdog_open(cuda_device *c, const nccl_calls *calls) {
    if (c->watchdog) return OTT_OK;
    TRY(mem_alloc(c->base.account, MEM_OTHER, sizeof(nccl_watchdog), "the NCCL watchdog", &c->watchdog));
    nccl_watchdog *w = c->watchdog;
    w->calls = calls;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    if (pthread_create(&w->thread, NULL, run_watchdog_thread, c) == 0) return OTT_OK;
    mem_free(c->base.account, w);
    c->watchdog = NULL;
    return status_fail(OTT_ERR_MEMORY, "the thread of the NCCL watchdog cannot be started");
}

void nccl_watchdog_close(cuda_device *c) {
    nccl_watchdog *w = c->watchdog;
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->stops = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    mem_free(c->base.account, w);
    c->watchdog = NULL;
}
