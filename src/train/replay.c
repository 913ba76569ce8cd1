/* train/replay: records and launches graphs. */
#include "train/replay.h"
#include <string.h>

/* Hooks and timers need the ops to execute, so graphs are off while a hook or a timer is set. */
static bool may_replay(const replay *r, const exec *cx) {
    return r->enabled && !cx->hook && !cx->times && device_has_graphs(cx->device);
}

static ott_status launch_graph(replay *r, exec *cx, const replay_graph *g) {
    TRY(device_graph_run(cx->device, g->graph));
    for (int i = 0; i < GEMM_COUNT; i++)
        for (int k = 0; k < 2; k++) cx->gemms[i][k] += g->gemms[i][k];
    r->replayed++;
    return OTT_OK;
}

ott_status replay_begin(replay *r, exec *cx, replay_part part, bool *must_run) {
    replay_graph *g = &r->graphs[part];
    *must_run = true;
    r->recording = false;
    if (!may_replay(r, cx)) return OTT_OK;
    if (g->graph) return *must_run = false, launch_graph(r, cx, g);
    if (!g->has_run) return g->has_run = true, OTT_OK;
    memcpy(r->before, cx->gemms, sizeof r->before);
    r->recording = true;
    return device_capture_begin(cx->device);
}

/* Recording executes no GEMM, so cx's GEMM counts are restored before the graph is launched. */
ott_status replay_end(replay *r, exec *cx, replay_part part, ott_status status) {
    replay_graph *g = &r->graphs[part];
    if (!r->recording) return status;
    r->recording = false;
    ott_status ended = device_capture_end(cx->device, status == OTT_OK ? &g->graph : NULL);
    for (int i = 0; i < GEMM_COUNT; i++)
        for (int k = 0; k < 2; k++) g->gemms[i][k] = cx->gemms[i][k] - r->before[i][k];
    memcpy(cx->gemms, r->before, sizeof r->before);
    TRY(status);
    TRY(ended);
    return launch_graph(r, cx, g);
}

void replay_forget(replay *r, device *d) {
    for (int i = 0; i < REPLAY_PARTS; i++) {
        device_graph_close(d, r->graphs[i].graph);
        r->graphs[i] = (replay_graph){0};
    }
}
