/* plan/sweep: tries other settings for the same training: meshes of the same ranks, activation checkpointing,
   and micro-batch sizes. Simple lower bounds of memory and time exclude candidates that cannot fit or cannot
   be among the fastest. The most promising candidates are estimated, and the fastest that fit are listed. */
#ifndef PLAN_SWEEP_H
#define PLAN_SWEEP_H

#include "plan/estimate.h"

typedef struct sweep_row {
    mesh mesh;
    config_checkpointing checkpointing;
    int64_t batch_size, grad_accum;
    bool fp8_tensor; /* requires float8.tensor_parallel */
    int64_t bytes;   /* memory that a rank needs */
    double step_seconds, tokens_per_second, mfu;
} sweep_row;

enum { SWEEP_SHOWN = 8, SWEEP_TEXT = 320 };

typedef struct sweep {
    sweep_row best[SWEEP_SHOWN]; /* [count] settings that fit, fastest first */
    int count, tried, fitting;
} sweep;

/* Tries other settings for run r. asked: the estimate of r with its own settings. */
ott_status sweep_run(const count_request *r, const estimate *asked, sweep *out);
/* Writes the row as options: "--distributed.dp_shard=8 --train.batch_size=2 ...". */
void sweep_show(const sweep_row *row, char text[SWEEP_TEXT]);

#endif
