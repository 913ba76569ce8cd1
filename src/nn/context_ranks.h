/*
 * nn/context_ranks: ranks that have different tokens of one micro-batch (context parallelism). All layers but attention
 * compute each token by itself. Around attention the ranks exchange (Jacobs et al. 2023): of all heads of its own tokens
 * each gets its own heads of all tokens, and back. So causal work is the same on every rank, documents, windows and
 * positions are those of the whole, and attention and its gradients are one rank's, bit for bit.
 *
 * Rank r of C has rows [r T/C, (r+1) T/C) of the T tokens, and heads [r H/C, (r+1) H/C).
 */
#ifndef NN_CONTEXT_RANKS_H
#define NN_CONTEXT_RANKS_H

#include "tensor/exec.h"

/* heads[T, W/C] from each rank's tokens[T/C, W]. */
ott_status context_ranks_gather(exec *cx, group *g, const tensor *tokens, const tensor *heads);
/* And back. */
ott_status context_ranks_scatter(exec *cx, group *g, const tensor *heads, const tensor *tokens);

#endif
