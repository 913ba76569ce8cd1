/*
 * nn/head_norm: norms of the heads of q or k, of three kinds: each head separately, with weights that all
 * heads share; each head separately, with its own weights (norm.part); or one norm over all heads. For the
 * last kind, tensor-parallel ranks gather the heads of all ranks.
 */
#ifndef NN_HEAD_NORM_H
#define NN_HEAD_NORM_H

#include "nn/norm.h"
#include "nn/tensor_ranks.h"

/* What forward saves: the norm's input and statistics. All zero: no norm. */
typedef struct head_norm_saved {
    tensor raw, rstd;
    plan_buffer raw_buffer, rstd_buffer;
} head_norm_saved;

/* Replaces *x[T, heads * head_dim], the output of q's or k's projection, by its norm, and moves the output to
   s. n->weight NULL: does nothing. r: the tensor-parallel ranks. */
ott_status head_norm_forward(exec *cx, const norm *n, const tensor_ranks *r, tensor *x, plan_buffer *x_buffer,
                             head_norm_saved *s);
/* Computes dx, the gradient of the norm's input, from dy, the gradient of the norm's output. */
ott_status head_norm_backward(exec *cx, const norm *n, const tensor_ranks *r, const head_norm_saved *s,
                              const tensor *dy, const tensor *dx);
ott_status head_norm_close(exec *cx, head_norm_saved *s);

#endif
