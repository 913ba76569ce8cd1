/*
 * plan/count: what one rank does in a step. The trainer is opened on a dry run, as it is before a run starts
 * (train/memory_check.h), as a rank of a mesh of ranks that are not there; what its first step records is counted, operation by
 * operation and collective by collective, and timed by a machine's rates.
 */
#ifndef PLAN_COUNT_H
#define PLAN_COUNT_H

#include "parallel/mesh.h"
#include "plan/machine.h"
#include "train/memory_check.h"
#include "train/op_kinds.h"

/* What is planned for. The configuration is resolved; all are borrowed. */
typedef struct count_request {
    mem *account;
    const machine *machine;
    const config *cfg, *asked;  /* as in admission */
    const model_options *shape; /* of one rank */
    const mesh *mesh;
    /* Looks at the trainer of the dry run; NULL: nobody. */
    ott_status (*inspect)(void *user, trainer *t);
    void *user;
} count_request;

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
    X(COPIES, "between_copies", "gradients between copies (formula)")                                        \
    X(OTHER, "exchanged", "amaxes and sums")

typedef enum traffic_kind {
#define X(constant, name, text) TRAFFIC_##constant,
    TRAFFIC_MAP(X)
#undef X
        TRAFFIC_KINDS
} traffic_kind;

const char *count_traffic_name(traffic_kind k);
const char *count_traffic_text(traffic_kind k);

/* Bytes are those that the rank receives. */
typedef struct count_traffic {
    int64_t calls;
    double bytes, seconds;
} count_traffic;

/* Sums are of a step. */
typedef struct rank_count {
    memory_need need;
    int64_t parameters, frozen,
        on_rank;            /* elements: of the model, of them not trained; of the rank's share */
    double flops_per_token; /* model_flops_per_token */
    count_part kinds[OP_KINDS];
    count_traffic traffic[TRAFFIC_KINDS];
    double forward, backward,
        waiting;               /* seconds of a micro-batch; of both those that it waits for other ranks */
    double once, once_waiting; /* of what a step does once */
    double message;            /* seconds until the next stage has what this one sends */
} rank_count;

/* Of the first rank of a stage. */
ott_status count_run(const count_request *r, int64_t at, rank_count *out);
/* Calls ask with the dry run of that rank, to try other settings of it. */
typedef ott_status count_memory_check_fn(void *user, const memory_check *a);
ott_status count_with_memory_check(const count_request *r, int64_t at, count_memory_check_fn *ask,
                                   void *user);
/* Seconds of a step's micro-batches, and of the step, if no other stage kept it waiting. */
double count_busy(const rank_count *c, int64_t micro_batches);
double count_step(const rank_count *c, int64_t micro_batches);

#endif
