/* nn/norm: RMSNorm (Zhang and Sennrich 2019) and LayerNorm (Ba et al. 2016), with a residual addition. */
#ifndef NN_NORM_H
#define NN_NORM_H

#include "nn/activation.h"
#include "nn/parameter.h"

typedef struct norm {
    const char *name;
    parameter *weight; /* weight [D] */
    float epsilon;
    bool one_plus;   /* RMSNorm that multiplies by 1 + weight (Gemma) */
    bool centered;   /* true: LayerNorm; false: RMSNorm */
    parameter *bias; /* bias [D], LayerNorm only; NULL: none */
    int64_t part;    /* LayerNorm only: parts of this many columns are normalized separately; 0: one part */
    group *ranks;    /* ranks that normalize other rows or heads; their gradients are summed; NULL: none */
} norm;

/* Number of separately normalized parts on this rank. */
static inline int64_t norm_parts(const norm *n) {
    return n->part > 0 ? n->weight->value.columns / n->part : 1;
}
/* Rows of the saved rstd[norm_kept, T]. RMSNorm: 1 / RMS; LayerNorm: mean, 1 / deviation of each part. */
static inline int64_t norm_kept(const norm *n) {
    return (n->centered ? 2 : 1) * norm_parts(n);
}

/* Computes h = x + delta (delta and h NULL: h is x), y = norm(h) with quantized copies, and rstd (fp32). */
ott_status norm_forward(exec *cx, const norm *n, const tensor *x, const tensor *delta, const tensor *h,
                        const activation *y, const tensor *rstd);
/* dx = dresidual + the gradient of h through the norm, with dx's quantized copies. dresidual may be NULL.
   dx->t may alias dresidual. Accumulates the gradients of weight and bias. */
ott_status norm_backward(exec *cx, const norm *n, const tensor *dy, const tensor *h, const tensor *rstd,
                         const tensor *dresidual, const activation *dx);

#endif
