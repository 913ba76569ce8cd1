/*
 * nn/moe/expert_ranks: expert parallelism (Lepikhin et al. 2020). Each rank holds an equal number of experts,
 * in rank order, and its own tokens. An all-to-all sends rows, sorted by expert, to the experts' ranks
 * (dispatch); another returns the outputs (combine).
 *
 * Received rows are ordered by sending rank, then by expert. Each GEMM runs once for each sending rank. So
 * the weight gradients have the same bits as on one rank that runs the micro-batches of all ranks in order.
 *
 * The numbers of rows are known only after routing. Ranks exchange these counts, and the host reads them,
 * before rows are sent. Buffers are large enough for the case that all tokens choose experts of one rank.
 * Only actual rows are sent.
 */
#ifndef NN_MOE_EXPERT_RANKS_H
#define NN_MOE_EXPERT_RANKS_H

#include "base/arena.h"
#include "tensor/exec.h"

typedef struct expert_ranks {
    group *group;    /* expert-parallel ranks; borrowed */
    int64_t experts; /* number of experts on all ranks */
    /* Row counts of the layer that is running, in memory that expert_ranks_open allocates: */
    int64_t *sent, *received; /* [ranks] number of rows sent to, and received from, each rank */
    /* copies of `all`[ranks, experts] and `own`[ranks, own experts] of expert_ranks_exchange_counts */
    int32_t *end, *own_end;
} expert_ranks;

/* `experts` must be divisible by the number of ranks. The arrays are allocated in `memory`. */
ott_status expert_ranks_open(expert_ranks *r, arena *memory, group *g, int64_t experts);

/* Number of experts on each rank. */
static inline int64_t expert_ranks_own(const expert_ranks *r) {
    return r->experts / r->group->size;
}
/* Maximum number of rows that this rank can receive if each rank has `tokens` tokens that choose `choices`
   experts. From each rank, an expert takes at most `capacity` rows for each choice (0: no limit). */
int64_t expert_ranks_max_rows(const expert_ranks *r, int64_t tokens, int64_t choices, int64_t capacity);
/* Rows that this rank receives in the running layer; while the plan is recorded, an assumed number. */
int64_t expert_ranks_received_rows(const expert_ranks *r);

/* Exchanges the row counts after routing. This rank's rows are sorted by expert. end: i32[experts]: end of
   each expert's rows. all[ranks, experts] gets every rank's `end`. own[r, e] gets the end of the rows of this
   rank's expert e among the rows that rank r sends to this rank. rows: the number of received rows that the
   memory plan assumes, because no token is routed while it is recorded. The host waits for the device. */
ott_status expert_ranks_exchange_counts(exec *cx, expert_ranks *r, int64_t rows, const tensor *end,
                                        const tensor *all, const tensor *own);
/* Loads the row counts again, from the `all` that the layer's forward filled. Call it before its backward. */
ott_status expert_ranks_reload_counts(exec *cx, expert_ranks *r, int64_t rows, const tensor *all);

/* Sends the rows x of this rank's tokens, which are sorted by expert, to the experts' ranks. y gets the rows
   that this rank receives. With a capacity, the last rows of x have no expert and are not sent. */
ott_status expert_ranks_dispatch(exec *cx, const expert_ranks *r, const tensor *x, const tensor *y);
/* Sends the rows y back to the ranks of their tokens. x gets the rows of this rank's tokens. */
ott_status expert_ranks_combine(exec *cx, const expert_ranks *r, const tensor *y, const tensor *x);

#endif
