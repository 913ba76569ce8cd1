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
    int64_t part;    /* LayerNorm only: normalizes parts of this many columns separately; 0: all together */
    group *ranks;    /* ranks that normalize other rows or heads and sum the gradients; NULL: none */
} norm;

/* Number of separately normalized parts on this rank. */
static inline int64_t norm_parts(const norm *n) {
    return n->part > 0 ? n->weight->value.columns / n->part : 1;
}
/* Number of rows of rstd. RMSNorm: 1 / RMS. LayerNorm: mean and 1 / deviation of each of norm_parts parts. */
static inline int64_t norm_kept(const norm *n) {
    return (n->centered ? 2 : 1) * norm_parts(n);
}

/* Computes h = x + delta, y = norm(h) with quantized copies, and rstd (fp32). delta and h NULL: h is x. */
ott_status norm_forward(exec *cx, const norm *n, const tensor *x, const tensor *delta, const tensor *h,
                        const activation *y, const tensor *rstd);
/* Computes dx, the gradient of h, from dy, the gradient of y, plus dresidual (unless NULL), with dx's
   quantized copies. dx->t may alias dresidual. Accumulates the gradients of weight and bias. */
ott_status norm_backward(exec *cx, const norm *n, const tensor *dy, const tensor *h, const tensor *rstd,
                         const tensor *dresidual, const activation *dx);

#endif
