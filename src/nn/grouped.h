/*
 * nn/grouped: products of a stack of matrices, each with its rows. In FP8 each matrix and its rows are quantized and multiplied as
 * a linear layer of its own would do it, so that codes, scales and sums are those of single products, bit for bit. A use of
 * the matrices is cast from their masters for each product.
 *
 * Where each matrix' rows end stands on the device, and is not waited for; buffers have room for the most.
 */
#ifndef NN_GROUPED_H
#define NN_GROUPED_H

#include "tensor/exec.h"

/* The rows of each matrix of a stack (tensor/ops.def: grouped_gemm). */
typedef struct grouped_rows {
    tensor end;       /* i32[matrices] */
    int64_t max_rows; /* rows that there may be */
} grouped_rows;

/* What the weight gradients of a stack are balanced by: where in each part of all rows those of all stacks' matrices end, and which of
   these is its first (tensor/ops.def: grouped_gemm_weight). */
typedef struct grouped_balance {
    tensor end; /* i32[parts, matrices of all] */
    int64_t first;
} grouped_balance;

/* Can stacks have this spec in FP8? *why says why not. */
bool grouped_supports(const linear_spec *s, const char **why);

/* y = x W^T; dx = g W, or more; dw += g^T x: w[matrices][out of each, in], dw the same. Each counts as one product. balance
   NULL: gradients are not balanced. */
ott_status grouped_output(exec *cx, const linear_spec *s, const tensor *w, const tensor *x,
                          const grouped_rows *r, const tensor *y);
ott_status grouped_grad_input(exec *cx, const linear_spec *s, const tensor *w, const tensor *g,
                              const grouped_rows *r, const tensor *dx, bool accumulate);
ott_status grouped_grad_weight(exec *cx, const linear_spec *s, const tensor *x, const tensor *g,
                               const grouped_rows *r, const grouped_balance *balance, const tensor *dw);

#endif
