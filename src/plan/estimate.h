/* plan/estimate: estimates memory and step time of a run from the counts of one rank (plan/count.h). With a
   pipeline it counts the first, a middle and the last stage. */
#ifndef PLAN_ESTIMATE_H
#define PLAN_ESTIMATE_H

#include "plan/count.h"

typedef struct estimate {
    rank_count rank;          /* counts of the slowest stage's first rank */
    memory_need need;         /* memory of the stage that needs most */
    int64_t shortfall;        /* needed minus available bytes (0 or less: it fits); -INT64_MAX: no limit */
    int64_t slowest, fullest; /* index of the slowest stage and of the fullest stage, from 0 */
    int64_t ranks, micro_batches;
    int64_t tokens;                          /* tokens of a step on all ranks */
    double compute_seconds, waiting_seconds; /* per step: computing; waiting for ranks of the stage */
    double bubble_seconds;                   /* per step: waiting for other stages */
    double step_seconds, tokens_per_second;  /* tokens of all ranks */
    double mfu;                              /* relative to estimate_peak, 0 to 1 */
} estimate;

/* Returns the dry run's error if the configuration is not possible. Too little memory is not an error. */
ott_status estimate_run(const count_request *r, estimate *out);
/* Peak FLOP/s used for MFU: dense bf16, as in torchtitan; measured fp32 for an fp32 run on this machine. */
double estimate_peak(const machine *m, const config *cfg);

/* Suggested settings for a run that does not fit in memory or needs more in FP8 than in bf16. */
typedef struct advice {
    str suggestions; /* text of memory_check_suggest; empty if the run fits */
    memory_check_fp8 fp8;
} advice;

/* Fills in advice for the pipeline stage that needs most memory. Set suggestions.account before. */
ott_status estimate_advise(const count_request *r, const estimate *e, advice *out);

#endif
