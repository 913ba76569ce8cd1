/*
 * nn/attention/head_norm: norms of the heads of q or k. There are three kinds: each head has a norm, and all
 * heads share its weights; each head has a norm with its own weights (norm.part); or one norm is over all
 * heads. In the last case, each tensor-parallel rank gathers the heads of all ranks.
 */
#ifndef NN_ATTENTION_HEAD_NORM_H
#define NN_ATTENTION_HEAD_NORM_H

#include "nn/norm.h"
#include "nn/tensor_ranks.h"

/* What forward saves: the norm's input and statistics. All zero: no norm. */
typedef struct head_norm_saved {
    tensor raw, rstd;
    plan_buffer raw_buffer, rstd_buffer;
} head_norm_saved;

/* Replaces *x[T, heads * head_dim], the output of the projection of q or k, by its norm. *s keeps the old *x
   for backward. n->weight NULL: does nothing. r: the tensor-parallel ranks. */
ott_status head_norm_forward(exec *cx, const norm *n, const tensor_ranks *r, tensor *x, plan_buffer *x_buffer,
                             head_norm_saved *s);
/* Computes dx, the gradient of the norm's input, from dy, the gradient of the norm's output. */
ott_status head_norm_backward(exec *cx, const norm *n, const tensor_ranks *r, const head_norm_saved *s,
                              const tensor *dy, const tensor *dx);
ott_status head_norm_close(exec *cx, head_norm_saved *s);

#endif
