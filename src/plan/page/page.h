/* plan/page/page: writes a plan as text or JSON. */
#ifndef PLAN_PAGE_PAGE_H
#define PLAN_PAGE_PAGE_H

#include "plan/layers.h"
#include "plan/plan.h"
#include "plan/sweep.h"

/* A plan that is being made. */
typedef struct planner {
    mem *account;
    const logger *log;
    const plan_options *options;
    config *cfg, asked; /* asked: cfg before model_options_resolve */
    model_options shape;
    precision_plan precision;
    device *cpu;
    mesh mesh;
    machine machine;
    layer_rows layers;
    estimate estimate, other; /* other: the run in bf16 if it is in FP8, else in FP8 */
    bool has_other;           /* false: the other precision is not possible */
    advice advice;
    sweep sweep;
    int64_t largest_batch; /* largest train.batch_size that fits; 0: none */
    char names[2][64];     /* precisions of `estimate` and `other`, "fp8 tensorwise" */
} planner;

/* Both functions append to `out`. */
ott_status page_write(const planner *p, str *out);
ott_status page_write_json(const planner *p, str *out);

#endif
