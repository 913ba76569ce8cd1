/* plan/count: counts the work of one rank in a step. Opens the trainer on a dry run (run/memory/check.h),
   as one rank of a simulated mesh. Counts every operation and collective that the first step records, and
   times them with a machine's rates. */
#ifndef PLAN_COUNT_H
#define PLAN_COUNT_H

#include "parallel/mesh.h"
#include "monitor/op_kinds.h"
#include "plan/machine.h"
#include "run/memory/check.h"
#include "run/process_group.h"

/* The run to plan; all pointers are borrowed. */
typedef struct count_request {
    mem *account;
    const machine *machine;
    const config *cfg, *asked;  /* see memory_check (run/memory/check.h) */
    const model_options *shape; /* the model of one rank */
    const mesh *mesh;
    /* Called with the trainer of the dry run; may be NULL. */
    ott_status (*inspect)(void *user, trainer *t);
    void *user;
} count_request;

/* Operations of one kind in a step. */
typedef struct count_part {
    int64_t calls;
    double flops, bytes, seconds;
} count_part;

/* X(constant, name in JSON, text in tables) */
#define TRAFFIC_MAP(X)                                                                                       \
    X(GATHER, "gathered", "gathered parameters")                                                             \
    X(REDUCE, "reduced", "reduced gradients")                                                                \
    X(TENSOR, "tensor", "inside of layers (tp)")                                                             \
    X(CONTEXT, "context", "heads and tokens (cp)")                                                           \
    X(EXPERTS, "experts", "rows for experts (ep)")                                                           \
    X(STAGES, "stages", "between stages (pp)")                                                               \
    X(COPIES, "between_copies", "gradients of replicas (formula)")                                           \
    X(OTHER, "exchanged", "amaxes and sums")

typedef enum traffic_kind {
#define X(constant, name, text) TRAFFIC_##constant,
    TRAFFIC_MAP(X)
#undef X
        TRAFFIC_KINDS
} traffic_kind;

const char *count_traffic_name(traffic_kind k);
const char *count_traffic_text(traffic_kind k);

/* Collectives of one kind in a step. bytes: bytes that the rank receives. */
typedef struct count_traffic {
    int64_t calls;
    double bytes, seconds;
} count_traffic;

/* Totals of a step, unless another unit is given. */
typedef struct rank_count {
    memory_need need;
    int64_t parameters, frozen; /* elements of all parameters; of the frozen parameters */
    int64_t on_rank;            /* elements of this rank's parameter shards */
    double flops_per_token;     /* result of model_flops_per_token */
    count_part kinds[OP_KINDS];
    count_traffic traffic[TRAFFIC_KINDS];
    double forward, backward;  /* seconds of a micro-batch */
    double waiting;            /* part of forward and backward spent waiting for other ranks */
    double once, once_waiting; /* seconds of work that runs once per step; seconds that this work waits */
    double message;            /* seconds to send a message to the next stage */
} rank_count;

/* Counts the first rank of pipeline stage `stage_index`. */
ott_status count_run(const count_request *r, int64_t stage_index, rank_count *out);
/* Prepares the dry run of a stage's first rank, and the memory check with which other settings can be tried.
   In a plan for this machine's CPU, adds the memory of the process groups; on a GPU they take no host memory.
   Close *pg with process_group_close, even after an error; it must be zeroed. */
ott_status count_open_rank(const count_request *r, int64_t stage_index, process_group *pg,
                           model_options *shape, memory_check *out);
/* Seconds of all micro-batches, and of the full step, without waiting for other stages. */
double count_busy(const rank_count *c, int64_t micro_batches);
double count_step(const rank_count *c, int64_t micro_batches);

#endif
