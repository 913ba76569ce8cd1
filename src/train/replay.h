/*
 * train/replay: the parts of a step that a device can record as graphs, and then queue as a whole: one launch in place of those
 * of all their kernels. A part runs as it is when it first comes (what libraries plan, they plan then), is recorded when it comes
 * again, and is replayed from then on. The kernels and where they read and write are the same, and so are the bits: whatever
 * changes from step to step lies on the device.
 */
#ifndef TRAIN_REPLAY_H
#define TRAIN_REPLAY_H

#include "tensor/exec.h"

typedef enum replay_part {
    REPLAY_FIRST,  /* a step's first micro-batch, which casts the weights */
    REPLAY_LATER,  /* any other */
    REPLAY_UPDATE, /* the optimizer's part */
    REPLAY_PARTS
} replay_part;

typedef struct replay_graph {
    bool has_run;                 /* since what is recorded was forgotten */
    device_graph *graph;          /* NULL: not recorded */
    int64_t gemms[GEMM_COUNT][2]; /* as exec counts them */
} replay_graph;

typedef struct replay {
    bool enabled;
    replay_graph graphs[REPLAY_PARTS];
    int64_t replayed; /* parts that were queued as graphs */
} replay;

/* Runs a part: what run(user) queues, or has queued when it was recorded. *was_replayed: run was not called. With a hook or times
   in cx, or on a device without graphs, it runs as it is. OTT_ERR_STOPPED when the watch says so. */
ott_status replay_run(replay *r, exec *cx, replay_part part, ott_status (*run)(void *user), void *user,
                      bool *was_replayed);
/* What is recorded holds no longer: addresses, layers or shapes have changed. */
void replay_forget(replay *r, device *d);

#endif
