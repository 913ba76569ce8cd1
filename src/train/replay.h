/* train/replay: CUDA graphs. Records the parts of a step that repeat as device graphs. One launch of a graph
   replaces the launches of all its kernels. The first call of a part executes it normally, because libraries
   prepare their work then. The second call records the part and launches the graph; later calls only launch
   it. Kernels and addresses are the same, so results are bit-identical. Values that change from step to step
   must be in device memory. */
#ifndef TRAIN_REPLAY_H
#define TRAIN_REPLAY_H

#include "tensor/exec.h"

typedef enum replay_part {
    REPLAY_FIRST,  /* the first micro-batch of a step; it also quantizes the weights */
    REPLAY_LATER,  /* the other micro-batches of a step */
    REPLAY_UPDATE, /* the optimizer update */
    REPLAY_PARTS
} replay_part;

typedef struct replay_graph {
    bool has_run;                 /* the part has run since replay_forget */
    device_graph *graph;          /* NULL: the part was not recorded yet */
    int64_t gemms[GEMM_COUNT][2]; /* GEMMs in the graph, counted as in exec.gemms */
} replay_graph;

typedef struct replay {
    bool enabled;
    replay_graph graphs[REPLAY_PARTS];
    bool recording;                /* between replay_begin and replay_end: the part is recorded */
    int64_t before[GEMM_COUNT][2]; /* exec.gemms when the recording began */
    int64_t replayed;              /* number of graph launches so far */
} replay;

/* Begins a part of a step. If an earlier call recorded the part's graph, launches the graph and sets
   *must_run = false. Otherwise sets *must_run = true: the caller runs the part, and then calls replay_end.
   The part always runs if cx has a hook or times, or if the device has no graphs. Does not check
   cx->cancellation, because only the caller knows which parts can be undone. */
ott_status replay_begin(replay *r, exec *cx, replay_part part, bool *must_run);
/* Ends a part that the caller has run, with the run's status. If the part was recorded, launches its graph.
   Returns the first error. */
ott_status replay_end(replay *r, exec *cx, replay_part part, ott_status status);
/* Drops all graphs. Call when addresses, layers or shapes have changed. */
void replay_forget(replay *r, device *d);

#endif
