/*
 * nn/dora: DoRA (Liu et al. 2024), a LoRA adapter that replaces a layer's weight W[out, in]:
 *
 *     W' = m u,  u = V / |V|,  V = W + scale B A
 *
 * |V| is the norm of each row and m[out] a trained magnitude. Each GEMM computes W' again in fp32 and
 * converts or quantizes it to the format it needs. Backward treats |V| as a constant, as the paper and PEFT
 * do. With dropout, W multiplies x and only the change W' - W multiplies the dropped x, as in PEFT: y = W x +
 * (W' - W) dropout(x). The second product is never FP8.
 *
 * If the weight is split by rows, ranks hold full rows of V. If by columns, they sum the rows' squares.
 */
#ifndef NN_DORA_H
#define NN_DORA_H

#include "nn/lora.h"

/* Constant device tables for row operations, large enough for the largest layer. */
struct dora_tables { /* typedef in nn/lora.h */
    void *block;     /* device memory of both; owned by the model */
    tensor ones;     /* f32[widest input] */
    tensor order;    /* i32[most outputs]: 0, 1, 2, ... */
};

/* outputs, inputs: maximum over the layers. The caller releases out->block. */
ott_status dora_tables_open(device *d, int64_t outputs, int64_t inputs, dora_tables *out);

/* Replaces W by W' in w[out,in], fp32. */
ott_status dora_compose(exec *cx, const lora *l, const tensor *w);
/* Accumulates a.grad, b.grad and magnitude.grad. w holds W and is overwritten. x, g: as in nn/lora.h. */
ott_status dora_grad_weight(exec *cx, const lora *l, const tensor *w, const tensor *x, const tensor *g);
/* With dropout: y[T,out] += dropout(x) change^T; dx[T,in] += dropout(g change). change = W' - W. */
ott_status dora_forward(exec *cx, const lora *l, const tensor *change, const tensor *x, const tensor *y);
ott_status dora_grad_input(exec *cx, const lora *l, const tensor *change, const tensor *g, const tensor *dx);
/* Writes the norms of the rows of W + scale B A (dora_norms) or of W (dora_base_norms) to norms[rows] on the
   host. w[rows,in] holds W and is overwritten. dora_base_norms accepts any rows of W. */
ott_status dora_norms(exec *cx, const lora *l, const tensor *w, float *norms);
ott_status dora_base_norms(exec *cx, const lora *l, const tensor *w, float *norms);

#endif
