/*
 * nn/expert_ranks: expert parallelism (Lepikhin et al. 2020). Each rank holds an equal number of experts, in
 * rank order, and its own tokens. An all-to-all sends rows, sorted by expert, to the experts' ranks
 * (dispatch); another returns the outputs (combine).
 *
 * Received rows are ordered by sending rank, then by expert. GEMMs run over one sending rank's rows after the
 * other's. So an expert's sums equal, bit for bit, one rank's that runs as many micro-batches.
 *
 * Row counts are known after routing. Ranks exchange them, and the host reads them, before rows are sent.
 * Buffers have room for the worst case (all tokens on one rank); only actual rows are sent.
 */
#ifndef NN_EXPERT_RANKS_H
#define NN_EXPERT_RANKS_H

#include "base/arena.h"
#include "tensor/exec.h"

typedef struct expert_ranks {
    group *group;    /* borrowed */
    int64_t experts; /* of all ranks */
    /* Counts of the layer that runs at present, on the host: */
    int64_t *sent, *received; /* [ranks] rows to and from each rank */
    int32_t *end, *own_end;   /* ends of experts' rows: [ranks, experts], [ranks, experts of this rank] */
} expert_ranks;

/* experts must be divisible by the number of ranks. The arrays come from `memory`. */
ott_status expert_ranks_open(expert_ranks *r, arena *memory, group *g, int64_t experts);

/* Number of experts on each rank. */
static inline int64_t expert_ranks_own(const expert_ranks *r) {
    return r->experts / r->group->size;
}
/* Maximum number of rows that this rank can receive. Each rank has `tokens` tokens with `choices` experts
   each. An expert takes at most `capacity` rows of each choice from a rank; 0: no limit. */
int64_t expert_ranks_max_rows(const expert_ranks *r, int64_t tokens, int64_t choices, int64_t capacity);
/* Number of rows that this rank receives; while the plan is being recorded, the mean. */
int64_t expert_ranks_received_rows(const expert_ranks *r);

/* Exchanges the row counts after routing. end: i32[experts], the end of each expert's rows among this rank's
   tokens. Fills all[ranks, experts] with every rank's `end`. Fills own[ranks, experts of this rank] with the
   end of each expert's rows among those from each rank. rows: count to assume in a recording. Blocks. */
ott_status expert_ranks_exchange_counts(exec *cx, expert_ranks *r, int64_t rows, const tensor *end,
                                        const tensor *all, const tensor *own);
/* Loads the counts of a layer again from `all`, for its backward. */
ott_status expert_ranks_reload_counts(exec *cx, expert_ranks *r, int64_t rows, const tensor *all);

/* Sends rows x of this rank's tokens, sorted by expert, to the experts' ranks; y gets the received rows. With
   a capacity, x also has rows that are not sent. */
ott_status expert_ranks_dispatch(exec *cx, const expert_ranks *r, const tensor *x, const tensor *y);
/* The reverse: sends rows y back to the tokens' ranks; x gets the rows of this rank's tokens. */
ott_status expert_ranks_combine(exec *cx, const expert_ranks *r, const tensor *y, const tensor *x);

#endif
