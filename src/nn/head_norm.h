/*
 * nn/head_norm: norms of the heads of q or k: of each head with weights that all heads share, of each head with weights of its
 * own (nn/norm.h, part), or over all heads together, of which a rank may have some.
 */
#ifndef NN_HEAD_NORM_H
#define NN_HEAD_NORM_H

#include "nn/norm.h"
#include "nn/tensor_ranks.h"

/* What forward leaves for backward: the projection before its norm, and what the norm kept. All zero: there is no norm. */
typedef struct head_norm_saved {
    tensor raw, rstd;
    plan_buffer raw_buffer, rstd_buffer;
} head_norm_saved;

/* Puts the norm of the projection x[T, heads * head_dim] in its place and moves x to s; nothing where n has no weight. `r`: ranks
   that have the other heads. */
ott_status head_norm_forward(exec *cx, const norm *n, const tensor_ranks *r, tensor *x, plan_buffer *x_buffer,
                             head_norm_saved *s);
/* dx, the gradient of the projection, from dy, that of its norm. */
ott_status head_norm_backward(exec *cx, const norm *n, const tensor_ranks *r, const head_norm_saved *s,
                              const tensor *dy, const tensor *dx);
ott_status head_norm_close(exec *cx, head_norm_saved *s);

#endif
