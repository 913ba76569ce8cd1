/*
 * nn/expert_ranks: expert parallelism (Lepikhin et al. 2020). Each rank holds an equal number of experts, in
 * rank order, and its own tokens. An all-to-all sends rows, sorted by expert, to the experts' ranks
 * (dispatch); another returns the outputs (combine).
 *
 * Received rows are ordered by sending rank, then by expert. Each GEMM runs once for each sending rank. So an
 * expert's weight gradient has the bits of one rank that runs the ranks' micro-batches in order.
 *
 * Row counts are known after routing. Ranks exchange the counts, and the host reads them, before rows are
 * sent. Buffers hold the worst case: all tokens choose one rank's experts. Only actual rows are sent.
 */
#ifndef NN_EXPERT_RANKS_H
#define NN_EXPERT_RANKS_H

#include "base/arena.h"
#include "tensor/exec.h"

typedef struct expert_ranks {
    group *group;    /* expert-parallel ranks; borrowed */
    int64_t experts; /* number of experts on all ranks */
    /* Row counts of the layer that runs now, in host memory of expert_ranks_open: */
    int64_t *sent, *received; /* [ranks] number of rows sent to, and received from, each rank */
    /* `all` and `own` of expert_ranks_exchange_counts: [ranks, experts] and [ranks, experts of this rank] */
    int32_t *end, *own_end;
} expert_ranks;

/* `experts` must be divisible by the number of ranks. The arrays come from `memory`. */
ott_status expert_ranks_open(expert_ranks *r, arena *memory, group *g, int64_t experts);

/* Number of experts on each rank. */
static inline int64_t expert_ranks_own(const expert_ranks *r) {
    return r->experts / r->group->size;
}
/* Maximum number of rows that this rank can receive. Each rank has `tokens` tokens with `choices` experts
   each. An expert takes at most `capacity` rows of each choice from a rank; 0: no limit. */
int64_t expert_ranks_max_rows(const expert_ranks *r, int64_t tokens, int64_t choices, int64_t capacity);
/* Rows that this rank receives in the layer that runs; while the plan is recorded, an assumed number. */
int64_t expert_ranks_received_rows(const expert_ranks *r);

/* Exchanges the row counts after routing. end: i32[experts], the end of each expert's rows among this rank's
   sorted rows. Fills all[ranks, experts] with every rank's `end`, and own[ranks, experts of this rank] with
   the end of each expert's rows among the rows from each rank. rows: number of rows that a recording of the
   plan assumes. The host waits for the device. */
ott_status expert_ranks_exchange_counts(exec *cx, expert_ranks *r, int64_t rows, const tensor *end,
                                        const tensor *all, const tensor *own);
/* Loads a layer's row counts from `all` of expert_ranks_exchange_counts. Call it before the backward. */
ott_status expert_ranks_reload_counts(exec *cx, expert_ranks *r, int64_t rows, const tensor *all);

/* Sends rows x of this rank's tokens, sorted by expert, to the experts' ranks; y gets the received rows. With
   a capacity, the last rows of x belong to no expert and are not sent. */
ott_status expert_ranks_dispatch(exec *cx, const expert_ranks *r, const tensor *x, const tensor *y);
/* Sends rows y back to the tokens' ranks; x gets the rows of this rank's tokens. */
ott_status expert_ranks_combine(exec *cx, const expert_ranks *r, const tensor *y, const tensor *x);

#endif
