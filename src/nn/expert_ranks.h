/*
 * nn/expert_ranks: ranks that divide the experts of mixtures among them (expert parallelism, Lepikhin et al. 2020): each has
 * as many, in rank order, and other tokens. The rows of a rank's tokens, sorted by expert, go to the ranks that have these by
 * an all-to-all; what the experts make of them comes back by another.
 *
 * The rows that arrive lie rank by rank, those of one rank by expert. Products run over one rank's rows after the other's: so
 * an expert adds up what one rank with as many micro-batches adds up, in the same order, bit for bit.
 *
 * How many rows go where is known when a layer has routed: the ranks tell each other, and the host reads it, before any goes.
 * Buffers have room for the worst, every token on one rank; only rows that are there travel and are multiplied.
 */
#ifndef NN_EXPERT_RANKS_H
#define NN_EXPERT_RANKS_H

#include "base/arena.h"
#include "tensor/exec.h"

typedef struct expert_ranks {
    group *group;             /* borrowed */
    int64_t experts;          /* of all ranks */
    int64_t *sent, *received; /* [ranks] rows of the layer whose pass runs */
    int32_t *end, *own_end;   /* [ranks, experts], [ranks, experts of this rank], on the host, likewise */
} expert_ranks;

/* Experts are divided evenly. */
ott_status expert_ranks_open(expert_ranks *r, arena *memory, group *g, int64_t experts);

static inline int64_t expert_ranks_own(const expert_ranks *r) {
    return r->experts / r->group->size;
}
/* The most rows that can arrive of `tokens` tokens on each rank with so many choices each, of which an expert takes at most
   `capacity` from a rank (0: all); and those that do, in a recording the mean. */
int64_t expert_ranks_max_rows(const expert_ranks *r, int64_t tokens, int64_t choices, int64_t capacity);
int64_t expert_ranks_received_rows(const expert_ranks *r);

/* end: where each expert's of this rank's rows end, i32[experts], of which a recording expects `rows`; all[ranks, experts] gets every rank's, own[ranks,
   experts of this rank] where the experts' rows end among those that come from each. From here on rows travel as these say. */
ott_status expert_ranks_exchange_counts(exec *cx, expert_ranks *r, int64_t rows, const tensor *end,
                                        const tensor *all, const tensor *own);
/* The same once more, for backward. */
ott_status expert_ranks_reload_counts(exec *cx, expert_ranks *r, int64_t rows, const tensor *all);

/* Rows of this rank's tokens by expert, x, to the ranks that have the experts: what arrives, y. And back. x has more rows
   where experts have a capacity. */
ott_status expert_ranks_dispatch(exec *cx, const expert_ranks *r, const tensor *x, const tensor *y);
ott_status expert_ranks_combine(exec *cx, const expert_ranks *r, const tensor *y, const tensor *x);

#endif
