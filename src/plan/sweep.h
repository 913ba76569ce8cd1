/*
 * plan/sweep: the same training, spread and computed in other ways: meshes of the same ranks, what backward recomputes, and the
 * step's sequences in other micro-batches. What cannot fit, or cannot be among the fastest, by arithmetic, is left out; of the
 * rest those that promise most are estimated, and of those that fit the fastest are proposed.
 */
#ifndef PLAN_SWEEP_H
#define PLAN_SWEEP_H

#include "plan/estimate.h"

typedef struct sweep_row {
    mesh mesh;
    config_checkpointing checkpointing;
    int64_t batch_size, grad_accum;
    bool fp8_tensor; /* needs float8.tensor_parallel */
    int64_t bytes;   /* of a rank */
    double step_seconds, tokens_per_second, mfu;
} sweep_row;

enum { SWEEP_SHOWN = 8, SWEEP_TEXT = 320 };

typedef struct sweep {
    sweep_row best[SWEEP_SHOWN]; /* [count] that fit, the fastest first */
    int count, tried, fitting;
} sweep;

/* What `r` asks for, whose estimate is `asked`, and its neighbours. */
ott_status sweep_run(const count_request *r, const estimate *asked, sweep *out);
/* The options that make a run of the row: "--distributed.dp_shard=8 --train.batch_size=2 ...". */
void sweep_show(const sweep_row *row, char text[SWEEP_TEXT]);

#endif
