/* nn/norm: RMSNorm (Zhang and Sennrich 2019) and layer normalization (Ba et al. 2016), with the residual addition before. */
#ifndef NN_NORM_H
#define NN_NORM_H

#include "nn/activation.h"
#include "nn/parameter.h"

typedef struct norm {
    const char *name;
    parameter *weight; /* [D] */
    float epsilon;
    bool one_plus;   /* RMSNorm with 1 + weight */
    bool centered;   /* layer normalization */
    parameter *bias; /* [D], of layer normalization; NULL: none */
    int64_t
        part; /* columns of each part, which is normalized separately; 0: one part. Layer normalization only */
    group *ranks; /* run it on other rows, and the weight's gradient is of all; borrowed; NULL: none do */
} norm;

/* Number of parts on this rank. */
static inline int64_t norm_parts(const norm *n) {
    return n->part > 0 ? n->weight->value.columns / n->part : 1;
}
/* Rows of what a norm keeps of each token, in a tensor[rows, T] of fp32: rstd, or mean and rstd, of each part. */
static inline int64_t norm_kept(const norm *n) {
    return (n->centered ? 2 : 1) * norm_parts(n);
}

/* h = x + delta (delta and h may be NULL: h = x); y = norm(h) with all its forms; rstd[norm_kept, T] is
 * kept for backward. */
ott_status norm_forward(exec *cx, const norm *n, const tensor *x, const tensor *delta, const tensor *h,
                        const activation *y, const tensor *rstd);
/* dx = dresidual + the gradient through the norm (dresidual may be NULL, dx->t may alias it), with all its
   forms; the gradients of weight and bias accumulate. */
ott_status norm_backward(exec *cx, const norm *n, const tensor *dy, const tensor *h, const tensor *rstd,
                         const tensor *dresidual, const activation *dx);

#endif
