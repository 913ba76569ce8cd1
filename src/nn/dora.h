/*
 * nn/dora: a decomposed adapter (DoRA; Liu et al. 2024) in place of the weight W[out, in] beside it:
 *
 *     W' = m u,  u = V / |V|,  V = W + scale B A
 *
 * with |V| the norm of each row, and a magnitude m[out] that trains. Each product makes W' anew, in fp32, and then in the
 * format that it reads. Backward takes the norm for a constant, as the paper and PEFT do. With dropout W reads all of x,
 * and only what W' adds to it reads what is left, as in PEFT: y = W x + (W' - W) dropped(x), the second product never FP8.
 *
 * Ranks that share the weight by rows have whole rows of V, and its magnitudes; by columns they add up the rows' squares.
 */
#ifndef NN_DORA_H
#define NN_DORA_H

#include "nn/lora.h"

/* What the operations on rows read, on the device; of the widest layer. */
struct dora_tables { /* lora.h */
    void *block;     /* device memory behind both; owned by the model */
    tensor ones;     /* f32[widest input] */
    tensor order;    /* i32[most outputs]: 0, 1, 2, ... */
};

/* Of layers with at most so many outputs and inputs. */
ott_status dora_tables_open(device *d, int64_t outputs, int64_t inputs, dora_tables *out);

/* w[out,in] in fp32: W before; W' after. */
ott_status dora_compose(exec *cx, const lora *l, const tensor *w);
/* a.grad, b.grad and magnitude.grad +=; w: W before, overwritten. x and g as lora_grad_weight has them. */
ott_status dora_grad_weight(exec *cx, const lora *l, const tensor *w, const tensor *x, const tensor *g);
/* With dropout. change[out,in]: W' - W in the activation format. y[T,out] += change dropped(x); dx[T,in] += dropped(g change). */
ott_status dora_forward(exec *cx, const lora *l, const tensor *change, const tensor *x, const tensor *y);
ott_status dora_grad_input(exec *cx, const lora *l, const tensor *change, const tensor *g, const tensor *dx);
/* Fills the host's norms[rows] with the norms of rows of W + scale B A, or of some rows of W alone; w[rows,in]: W before,
   overwritten. */
ott_status dora_norms(exec *cx, const lora *l, const tensor *w, float *norms);
ott_status dora_base_norms(exec *cx, const lora *l, const tensor *w, float *norms);

#endif
