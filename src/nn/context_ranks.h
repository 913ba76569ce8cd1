/*
 * nn/context_ranks: ranks that have different tokens of one micro-batch (context parallelism). All layers but attention
 * compute each token by itself. Around attention the ranks exchange (Jacobs et al. 2023): of all heads of its own tokens
 * each gets its own heads of all tokens, and back. So causal work is the same on every rank, documents, windows and
 * positions are those of the whole, and attention and its gradients are one rank's, bit for bit, but where copies are added up.
 *
 * Rank r of C has rows [r T/C, (r+1) T/C) of the T tokens, and query heads [r H/C, (r+1) H/C). Keys and values go with the
 * query heads that read them: where these are on several ranks, each gets a copy, and the copies' gradients are added up.
 */
#ifndef NN_CONTEXT_RANKS_H
#define NN_CONTEXT_RANKS_H

#include "tensor/exec.h"

/* Of a vector with an element for each token those of the tokens that are here; g NULL: all. */
tensor context_ranks_own(const group *g, tensor of_all);

/* How the columns of a tensor are dealt out: in pieces of `width`, each as often as the query heads that it serves are more
   than those that one copy serves. Pieces and copies in order, every rank gets as many. */
typedef struct context_split {
    int64_t width;
    int64_t queries,
        all_queries; /* query heads that a copy serves, and that all copies do; 1, 1: there is one */
} context_split;

/* Of q and what is shaped like it, and of k and v, of this many heads. */
context_split context_split_queries(int ranks, int64_t heads, int64_t head_dim);
context_split context_split_keys(int ranks, int64_t heads, int64_t kv_heads, int64_t head_dim);
/* Columns that a rank gets of a tensor of so many. */
int64_t context_split_columns(const context_split *d, int ranks, int64_t columns);

/* heads[T, columns] from each rank's tokens[T/C, W]. */
ott_status context_ranks_gather(exec *cx, group *g, const context_split *d, const tensor *tokens,
                                const tensor *heads);
/* And back: of copies the sum, in fp32 in the order of the ranks, rounded once. */
ott_status context_ranks_scatter(exec *cx, group *g, const context_split *d, const tensor *heads,
                                 const tensor *tokens);

#endif
