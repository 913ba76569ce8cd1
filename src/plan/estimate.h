/*
 * plan/estimate: what a run would need and how long its steps would take: the counts of a rank (plan/count.h), of a pipeline
 * those of its first stage, of one between and of its last, put together.
 */
#ifndef PLAN_ESTIMATE_H
#define PLAN_ESTIMATE_H

#include "plan/count.h"

typedef struct estimate {
    rank_count rank;          /* of the stage whose step is the longest */
    memory_need need;         /* of the stage that needs most */
    int64_t shortfall;        /* bytes it needs beside what the device has: above 0 it does not fit */
    int64_t slowest, fullest; /* stages, from 0 */
    int64_t ranks, micro_batches, tokens;    /* of all ranks, of a step */
    double compute_seconds, waiting_seconds; /* of a step: at work, and waiting for ranks of the same stage */
    double bubble_seconds;                   /* waiting for other stages */
    double step_seconds, tokens_per_second;  /* tokens of all ranks */
    double mfu;                              /* of estimate_peak */
} estimate;

ott_status estimate_run(const count_request *r, estimate *out);
/* The peak behind mfu: dense bf16 products, as torchtitan counts. A run in fp32 on this machine has the peak of fp32 products. */
double estimate_peak(const machine *m, const config *cfg);

#endif
