/* nn/norm: RMSNorm (Zhang and Sennrich 2019), with the residual addition before it. */
#ifndef NN_NORM_H
#define NN_NORM_H

#include "nn/activation.h"
#include "nn/parameter.h"

typedef struct norm {
    const char *name;
    parameter *weight; /* [D] */
    float epsilon;
    group *ranks; /* run it on other rows, and the weight's gradient is of all; borrowed; NULL: none do */
} norm;

/* h = x + delta (delta and h may be NULL: h = x); y = rmsnorm(h) with all its forms; rstd[T] is kept for
 * backward. */
ott_status norm_forward(exec *cx, const norm *n, const tensor *x, const tensor *delta, const tensor *h,
                        const activation *y, const tensor *rstd);
/* dx = dresidual + the gradient through the norm (dresidual may be NULL, dx->t may alias it), with all its
   forms; weight.grad accumulates. */
ott_status norm_backward(exec *cx, const norm *n, const tensor *dy, const tensor *h, const tensor *rstd,
                         const tensor *dresidual, const activation *dx);

#endif
