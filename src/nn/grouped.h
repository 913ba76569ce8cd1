/*
 * nn/grouped: products of a stack of matrices in FP8: each matrix with its rows is quantized and multiplied as a linear layer
 * of its own would be, one after the other, so that codes, scales and sums are those of single products, bit for bit. A use of
 * a matrix is cast from its master for each product.
 *
 * The host must know where each matrix' rows end; buffers have room for the most.
 */
#ifndef NN_GROUPED_H
#define NN_GROUPED_H

#include "tensor/exec.h"

/* The rows of each matrix of a stack (tensor/ops.def: grouped_gemm). */
typedef struct grouped_rows {
    tensor end;           /* i32[matrices] */
    const int32_t *known; /* the same on the host; NULL: nobody has read it, and nothing is in FP8 */
    int64_t most;         /* rows that there may be */
} grouped_rows;

/* Can stacks have this spec? *why says why not. */
bool grouped_takes(const linear_spec *s, const char **why);

/* y = x W^T; dx = g W, or more; dw += g^T x: w[matrices][out of each, in], dw the same. Each counts as one product. */
ott_status grouped_output(exec *cx, const linear_spec *s, const tensor *w, const tensor *x,
                          const grouped_rows *r, const tensor *y);
ott_status grouped_grad_input(exec *cx, const linear_spec *s, const tensor *w, const tensor *g,
                              const grouped_rows *r, const tensor *dx, bool accumulate);
ott_status grouped_grad_weight(exec *cx, const linear_spec *s, const tensor *x, const tensor *g,
                               const grouped_rows *r, const tensor *dw);

#endif
