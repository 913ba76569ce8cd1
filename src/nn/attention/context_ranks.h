/*
 * nn/attention/context_ranks: context parallelism: each rank has a slice of a micro-batch's tokens. Only
 * attention reads other ranks' tokens. Before attention, an all-to-all gives each rank some heads of all
 * tokens, instead of all heads of its own tokens (DeepSpeed-Ulysses, Jacobs et al. 2023). A second all-to-all
 * after attention reverses this. As a rank has all tokens of its heads, a causal mask gives all ranks the
 * same amount of work, and documents, windows and positions need no adjustment. Results equal one rank's, bit
 * for bit, except for sums of the gradients of copied keys and values.
 *
 * Rank r of C has rows [r T/C, (r+1) T/C) of the T tokens, and query heads [r H/C, (r+1) H/C). Each rank gets
 * the key and value heads that its query heads read. If query heads on several ranks read the same key head,
 * each rank gets a copy, and the copies' gradients are summed.
 */
#ifndef NN_ATTENTION_CONTEXT_RANKS_H
#define NN_ATTENTION_CONTEXT_RANKS_H

#include "tensor/exec.h"

/* Returns this rank's tokens, columns of of_all (one column per token). If g is NULL, returns of_all. */
tensor context_ranks_own(const group *g, tensor of_all);

/* How the columns of q, k or v are split over the ranks: into pieces of `width` columns, the same number for
   each rank. all_queries: query heads that read one key head. The key head is copied all_queries / queries
   times, so `queries` of them read each copy. Without copies, queries and all_queries are 1. */
typedef struct context_split {
    int64_t width;
    int64_t queries, all_queries;
} context_split;

/* Returns the split of the columns of q and of the attention output. */
context_split context_split_queries(int ranks, int64_t heads, int64_t head_dim);
/* Returns the split of the columns of k and v. */
context_split context_split_keys(int ranks, int64_t heads, int64_t kv_heads, int64_t head_dim);
/* Number of columns that each rank gets, copies included, from a tensor with `columns` columns. */
int64_t context_split_columns(const context_split *d, int ranks, int64_t columns);

/* Fills this rank's heads[T, context_split_columns] from every rank's tokens[T/C, columns]. */
ott_status context_ranks_gather(exec *cx, group *g, const context_split *d, const tensor *tokens,
                                const tensor *heads);
/* Reverses context_ranks_gather. Copies are summed in fp32, in rank order, and the sum is rounded once. */
ott_status context_ranks_scatter(exec *cx, group *g, const context_split *d, const tensor *heads,
                                 const tensor *tokens);

#endif
