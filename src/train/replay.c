/* train/replay: records and launches graphs. */
#include "train/replay.h"
#include <string.h>

/* Hooks and timers need the ops to execute, so graphs are off while a hook or a timer is set. */
static bool may_replay(const replay *r, const exec *cx) {
    return r->enabled && !cx->hook && !cx->times && device_has_graphs(cx->device);
}

/* Recording executes no GEMM, so cx's GEMM counts are restored afterwards. */
static ott_status record_graph(replay_graph *g, exec *cx, ott_status (*run)(void *user), void *user) {
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

ott_status replay_run(replay *r, exec *cx, replay_part part, ott_status (*run)(void *user), void *user,
                      bool *was_replayed) {
    replay_graph *g = &r->graphs[part];
    *was_replayed = false;
    if (!may_replay(r, cx)) return run(user);
    if (!g->has_run) {
        g->has_run = true;
        return run(user);
    }
    *was_replayed = g->graph != NULL;
    if (!g->graph) TRY(record_graph(g, cx, run, user));
    TRY(device_graph_run(cx->device, g->graph));
    for (int i = 0; i < GEMM_COUNT; i++)
        for (int k = 0; k < 2; k++) cx->gemms[i][k] += g->gemms[i][k];
    r->replayed++;
    return OTT_OK;
}

void replay_forget(replay *r, device *d) {
    for (int i = 0; i < REPLAY_PARTS; i++) {
        device_graph_close(d, r->graphs[i].graph);
        r->graphs[i] = (replay_graph){0};
    }
}
