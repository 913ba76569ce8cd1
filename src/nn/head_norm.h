/*
 * nn/head_norm: norms of the heads of q or k. Three kinds: each head with shared weights, each head with its
 * own weights (nn/norm.h, part), or one norm over all heads. Then a rank may hold only some heads.
 */
#ifndef NN_HEAD_NORM_H
#define NN_HEAD_NORM_H

#include "nn/norm.h"
#include "nn/tensor_ranks.h"

/* What forward saves: the projection before its norm, and the norm's statistics. All zero: no norm. */
typedef struct head_norm_saved {
    tensor raw, rstd;
    plan_buffer raw_buffer, rstd_buffer;
} head_norm_saved;

/* Replaces the projection x[T, heads * head_dim] by its norm and keeps the projection in s; n->weight NULL:
   does nothing. r: ranks of other heads. */
ott_status head_norm_forward(exec *cx, const norm *n, const tensor_ranks *r, tensor *x, plan_buffer *x_buffer,
                             head_norm_saved *s);
/* Computes dx, the gradient of the projection, from dy, the gradient of the norm's output. */
ott_status head_norm_backward(exec *cx, const norm *n, const tensor_ranks *r, const head_norm_saved *s,
                              const tensor *dy, const tensor *dx);
ott_status head_norm_close(exec *cx, head_norm_saved *s);

#endif
