/* train/replay: finding, recording and queueing graphs. */
#include "train/replay.h"
#include <string.h>

/* Whoever looks on sees only what runs. */
static bool may_replay(const replay *r, const exec *cx) {
    return r->wanted && !cx->hook && !cx->times && device_has_graphs(cx->device);
}

static replay_graph *find(replay *r, replay_part part, int64_t documents) {
    for (int i = 0; i < r->count; i++)
        if (r->graphs[i].part == part && r->graphs[i].documents == documents) return &r->graphs[i];
    return NULL;
}

static void note_first(replay *r, replay_part part, int64_t documents) {
    if (r->count == REPLAY_GRAPHS) return;
    r->graphs[r->count++] = (replay_graph){.part = part, .documents = documents};
}

/* Nothing of it runs now. */
static ott_status record(replay_graph *g, exec *cx, ott_status (*run)(void *user), void *user) {
    int64_t before[GEMM_COUNT][2];
    memcpy(before, cx->gemms, sizeof before);
    TRY(device_capture_begin(cx->device));
    ott_status status = run(user),
               ended = device_capture_end(cx->device, status == OTT_OK ? &g->graph : NULL);
    for (int i = 0; i < GEMM_COUNT; i++)
        for (int k = 0; k < 2; k++) g->gemms[i][k] = cx->gemms[i][k] - before[i][k];
    memcpy(cx->gemms, before, sizeof before);
    return status == OTT_OK ? ended : status;
}

ott_status replay_run(replay *r, exec *cx, replay_part part, int64_t documents, ott_status (*run)(void *user),
                      void *user, bool *was_replayed) {
    *was_replayed = false;
    if (!may_replay(r, cx)) return run(user);
    replay_graph *g = find(r, part, documents);
    if (!g) {
        note_first(r, part, documents);
        return run(user);
    }
    *was_replayed = g->graph != NULL;
    if (!g->graph) TRY(record(g, cx, run, user));
    TRY(watch_check(cx->watch));
    TRY(device_graph_run(cx->device, g->graph));
    for (int i = 0; i < GEMM_COUNT; i++)
        for (int k = 0; k < 2; k++) cx->gemms[i][k] += g->gemms[i][k];
    r->replayed++;
    return OTT_OK;
}

void replay_forget(replay *r, device *d) {
    for (int i = 0; i < r->count; i++) device_graph_close(d, r->graphs[i].graph);
    r->count = 0;
}
