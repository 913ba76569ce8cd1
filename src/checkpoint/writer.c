/*
 * checkpoint/writer: writes each checkpoint on its own thread. Before this thread sets `done`, no other
 * thread may use the members snapshot, result, written and reason.
 */
#include "checkpoint/writer.h"
#include "checkpoint/snapshot.h"
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { LONG_WAIT_SECONDS = 2, REASON_SIZE = 4096 };

struct checkpoint_writer {
    mem *account;
    const model *m;
    const logger *log;
    const config *cfg;
    const char *folder;
    group *ranks;        /* ranks that write; NULL: one rank */
    const char *sources; /* text of sources.json, borrowed; NULL: none */
    void *staging;       /* staging_bytes bytes; NULL: nothing is staged */
    int64_t staging_bytes;
    /* The write in flight. */
    bool in_flight, on_thread; /* in_flight: started, and finish_write was not called yet */
    pthread_t thread;
    checkpoint_snapshot snapshot;
    ott_status result;
    checkpoint_written written;
    char reason[REASON_SIZE]; /* error text of a failed write */
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool done;
};

static void *write_snapshot(void *argument) {
    checkpoint_writer *w = argument;
    w->result =
        checkpoint_snapshot_write(&w->snapshot, w->folder, w->cfg->checkpoint.keep_last_n, &w->written);
    if (w->result != OTT_OK) snprintf(w->reason, sizeof w->reason, "%s", status_text());
    pthread_mutex_lock(&w->lock);
    w->done = true;
    pthread_cond_signal(&w->ended);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Starts the thread with all signals blocked, so that signal handlers run on the program's other threads. */
static void start_thread(checkpoint_writer *w) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&w->thread, NULL, write_snapshot, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    w->on_thread = failure == 0;
    if (!w->on_thread)
        log_warning(w->log,
                    "Cannot start the thread that writes checkpoints: %s; training waits for this checkpoint",
                    strerror(failure));
}

/* ---- waiting ---- */

/* Returns false if the write still runs after LONG_WAIT_SECONDS. */
static bool wait_a_while(checkpoint_writer *w) {
    struct timespec until;
    int reason = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LONG_WAIT_SECONDS;
    pthread_mutex_lock(&w->lock);
    while (!w->done && reason != ETIMEDOUT) reason = pthread_cond_timedwait(&w->ended, &w->lock, &until);
    bool done = w->done;
    pthread_mutex_unlock(&w->lock);
    return done;
}

/* Waits for the write, logs its result and returns it. The error text stays in w->reason. */
static ott_status finish_write(checkpoint_writer *w) {
    if (!w->in_flight) return OTT_OK;
    if (!wait_a_while(w))
        log_info(w->log, "Waiting for the checkpoint of step %" PRId64 ", which is still being written",
                 w->snapshot.state.run.step);
    if (w->on_thread) pthread_join(w->thread, NULL);
    w->in_flight = false;
    checkpoint_snapshot_close(&w->snapshot);
    if (w->result == OTT_OK) checkpoint_written_log(&w->written, w->log);
    checkpoint_written_free(&w->written);
    return w->result;
}

ott_status checkpoint_writer_wait(checkpoint_writer *w) {
    ott_status status = finish_write(w);
    return status == OTT_OK ? OTT_OK : status_fail(status, "%s", w->reason);
}

ott_status checkpoint_writer_poll(checkpoint_writer *w) {
    pthread_mutex_lock(&w->lock);
    bool done = w->in_flight && w->done;
    pthread_mutex_unlock(&w->lock);
    if (!done || (w->ranks && w->ranks->size > 1 && w->result != OTT_OK)) return OTT_OK;
    return checkpoint_writer_wait(w);
}

/* ---- saving ---- */

/* Grows the staging buffer if needed: another FP8 recipe may have more state (amax histories). */
static ott_status grow_staging(checkpoint_writer *w, int64_t bytes) {
    if (bytes <= w->staging_bytes) return OTT_OK;
    device *d = w->m->device;
    device_release_host(d, w->staging);
    w->staging_bytes = 0;
    ott_status status = device_allocate_host(d, MEM_STAGING, bytes, "copy for a checkpoint", &w->staging);
    if (status != OTT_OK)
        return status_fail(status,
                           "checkpoint.async_mode = \"%s\" needs a copy of the training state of %.1f MiB in "
                           "host memory (%s): set checkpoint.async_mode = \"disabled\"",
                           config_word(w->cfg, "checkpoint.async_mode"), (double)bytes / 1048576.0,
                           status_text());
    w->staging_bytes = bytes;
    return OTT_OK;
}

static ott_status take_run_snapshot(checkpoint_writer *w, const char *recipe_name, const run_state *run,
                                    const run_history *history) {
    TRY(checkpoint_snapshot_take(w->m, w->cfg, recipe_name, run, w->ranks, &w->snapshot));
    w->snapshot.sources = w->sources;
    return ranks_agree(&w->snapshot.ranks,
                       history ? run_history_text(history, &w->snapshot.history) : OTT_OK);
}

/* With checkpoint.interval = 0 a run saves only at its end, when there is no training to overlap with. */
static bool writes_on_thread(const config *cfg) {
    return cfg->checkpoint.async_mode != ASYNC_DISABLED && cfg->checkpoint.interval > 0;
}

ott_status checkpoint_writer_save(checkpoint_writer *w, const char *recipe_name, const run_state *run,
                                  const run_history *history) {
    bool overlaps = writes_on_thread(w->cfg);
    TRY(checkpoint_writer_wait(w));
    ott_status status = take_run_snapshot(w, recipe_name, run, history);
    if (status == OTT_OK && overlaps) {
        status = grow_staging(w, checkpoint_snapshot_bytes(&w->snapshot));
        if (status == OTT_OK) status = checkpoint_snapshot_stage(&w->snapshot, w->staging);
        status = ranks_agree(&w->snapshot.ranks, status);
    }
    if (status != OTT_OK) {
        checkpoint_snapshot_close(&w->snapshot);
        return status;
    }
    w->in_flight = true;
    w->done = w->on_thread = false;
    if (overlaps) start_thread(w);
    if (!w->on_thread) write_snapshot(w); /* also if no thread could be started */
    return overlaps ? OTT_OK : checkpoint_writer_wait(w);
}

void checkpoint_writer_keep_sources(checkpoint_writer *w, const char *text) {
    w->sources = text;
}

ott_status checkpoint_writer_staging(const model *m, const config *cfg, group *ranks, int64_t *bytes) {
    checkpoint_snapshot snapshot;
    *bytes = 0;
    if (!writes_on_thread(cfg)) return OTT_OK;
    ott_status status = checkpoint_snapshot_take(m, cfg, "", &(run_state){0}, ranks, &snapshot);
    if (status == OTT_OK) *bytes = checkpoint_snapshot_bytes(&snapshot);
    checkpoint_snapshot_close(&snapshot);
    return status;
}

ott_status checkpoint_writer_open(const model *m, const logger *log, const config *cfg, const char *folder,
                                  group *ranks, checkpoint_writer **out) {
    mem *account = m->device->account;
    checkpoint_writer *w;
    *out = NULL;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(checkpoint_writer), "a checkpoint writer", &w));
    *w = (checkpoint_writer){
        .account = account, .m = m, .log = log, .cfg = cfg, .folder = folder, .ranks = ranks};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->ended, NULL);
    int64_t bytes;
    ott_status status = checkpoint_writer_staging(m, cfg, ranks, &bytes);
    if (status == OTT_OK) status = grow_staging(w, bytes);
    if (status == OTT_OK)
        *out = w;
    else
        checkpoint_writer_close(w);
    return status;
}

void checkpoint_writer_close(checkpoint_writer *w) {
    if (!w) return;
    if (finish_write(w) != OTT_OK) log_error(w->log, "%s", w->reason);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->ended);
    device_release_host(w->m->device, w->staging);
    mem_free(w->account, w);
}
