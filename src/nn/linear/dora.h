/*
 * nn/linear/dora: DoRA (Liu et al. 2024), a LoRA adapter that replaces a layer's weight W[out, in]:
 *
 *     W' = m u,  u = V / |V|,  V = W + scale B A
 *
 * |V|[out] are the norms of V's rows, and m[out] is the trained magnitude. Each GEMM computes W' again in
 * fp32 and converts or quantizes W' to the format it reads. Backward treats |V| as a constant, as the paper
 * and PEFT do. With dropout, only the change W' - W multiplies dropout(x), as in PEFT:
 * y = W x + (W' - W) dropout(x). The second product is never FP8.
 *
 * If tensor parallelism splits the weight by rows, each rank has full rows of V. If it splits the weight by
 * columns, the ranks sum the squares of each row.
 */
#ifndef NN_LINEAR_DORA_H
#define NN_LINEAR_DORA_H

#include "nn/linear/lora.h"

/* Constants on the device for row operations, large enough for every layer with a DoRA adapter. */
struct dora_tables { /* nn/linear/lora.h has the typedef */
    void *block;     /* device memory of `ones` and `order`; owned by the model */
    tensor ones;     /* f32[maximum in]: 1, 1, 1, ... */
    tensor order;    /* i32[maximum out]: 0, 1, 2, ... */
};

/* outputs, inputs: the largest out and in of layers with an adapter. The caller releases out->block. */
ott_status dora_tables_open(device *d, int64_t outputs, int64_t inputs, dora_tables *out);

/* Replaces W by W' in w[out,in], fp32. */
ott_status dora_compose(exec *cx, const lora *l, const tensor *w);
/* Accumulates the gradients of A, B and m from x[T,in] and g[T,out], the gradient of the layer's output. w
   holds W in fp32 and is overwritten. */
ott_status dora_grad_weight(exec *cx, const lora *l, const tensor *w, const tensor *x, const tensor *g);
/* change = W' - W. With dropout: y[T,out] += dropout(x) change^T. For dx: lora_add_input_gradient. */
ott_status dora_forward(exec *cx, const lora *l, const tensor *change, const tensor *x, const tensor *y);
/* norms[rows] on the host = L2 norms of rows: dora_norms of W + scale B A, dora_base_norms of W. w[rows,in]
   has W in fp32 and is overwritten. dora_norms needs all rows of W; dora_base_norms accepts any rows. */
ott_status dora_norms(exec *cx, const lora *l, const tensor *w, float *norms);
ott_status dora_base_norms(exec *cx, const lora *l, const tensor *w, float *norms);

#endif
