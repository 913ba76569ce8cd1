/*
 * plan/estimate: what a run would need and how long its steps would take. The trainer is opened on a dry run, as it is before
 * a run starts (train/admission.h); what its first step records is counted, operation by operation and collective by collective,
 * and timed by a machine's rates.
 */
#ifndef PLAN_ESTIMATE_H
#define PLAN_ESTIMATE_H

#include "parallel/mesh.h"
#include "parallel/mesh.h"
#include "plan/machine.h"
#include "train/admission.h"
#include "train/op_kinds.h"

/* What is planned for. The configuration is resolved; all are borrowed. */
typedef struct estimate_request {
    mem *account;
    const machine *machine;
    const config *cfg, *asked;  /* as in admission */
    const model_options *shape; /* shard_ranks: of a dry run */
    const mesh *mesh;
    /* Looks at the trainer of the dry run; NULL: nobody. */
    ott_status (*look)(void *user, trainer *t);
    void *user;
} estimate_request;

/* Of one rank and one step. */
typedef struct estimate_part {
    int64_t calls;
    double flops, bytes, seconds;
} estimate_part;

/* Bytes are those that a rank receives. */
typedef struct estimate_traffic {
    int64_t calls;
    double bytes, seconds;
} estimate_traffic;

typedef struct estimate {
    admission_need need;
    int64_t lack;                /* bytes it needs beside what the device has: above 0 it does not fit */
    int64_t parameters, on_rank; /* elements, of the model and of a rank's share of it */
    int64_t ranks, micro_batches, tokens; /* of all ranks, of a step */
    double flops_per_token;               /* model_flops_per_token */
    estimate_part kinds[OP_KINDS];
    estimate_traffic gather, reduce, other; /* of parameters, of gradients, the rest */
    estimate_traffic replicas; /* of gradients between copies of the model; by formula, not by the dry run */
    double compute_seconds, waiting_seconds; /* of a step: at work, and waiting for other ranks */
    double step_seconds, tokens_per_second;  /* tokens of all ranks */
    double mfu;                              /* of machine_mfu_peak */
} estimate;

ott_status estimate_run(const estimate_request *r, estimate *out);
/* The peak that utilization is told of: dense bf16 where the machine is of the table, as torchtitan counts, else measured fp32. */
double estimate_peak(const machine *m);

#endif
