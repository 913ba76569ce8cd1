/*
 * nn/loss: the output head and cross-entropy together, in chunks of tokens, so that the logits of a whole
 * batch never exist. A chunk's logits become its gradients in place; an FP8 head therefore has one
 * grad_output scale a chunk, and the chunk size is part of what a run computes. Where ranks have other rows of the
 * head, each has the logits of its part of the vocabulary, and they exchange three numbers a token.
 */
#ifndef NN_LOSS_H
#define NN_LOSS_H

#include "nn/linear.h"

typedef struct loss_head {
    linear head;      /* [V,D] */
    int64_t chunk;    /* tokens, >= 1 */
    float multiplier; /* of the logits; 0: as they are */
    float softcap;    /* their cap after that; 0: none */
    float z_weight;   /* of a token's squared log-partition, which is added to what is trained */
    tensor z;         /* fp32[1]: adds up those squares of training passes; data NULL: nobody asks */
    activation_specs input_specs; /* of the input's whole rows */
    activation_specs grad_specs;  /* of the logits' gradient */
} loss_head;

ott_status loss_connect(loss_head *h, activation_specs *input);
/* logits[T,V] of x[T,D]. */
ott_status loss_logits(exec *cx, loss_head *h, const activation *x, const tensor *logits);
/* x and dx: the rows that are here between layers; all else is of all T tokens. losses[T] (fp32) of targets i32[T] (< 0: ignored). With grad_scale (fp32[1], what each token's gradient is
   multiplied by) it is a training pass: dx[T,D] and the head's weight gradient as well; both are NULL in
   evaluation. */
ott_status loss_forward(exec *cx, loss_head *h, const activation *x, const tensor *target,
                        const tensor *grad_scale, const tensor *losses, const tensor *dx);
/* From g, the gradient of logits[T,V] without forms yet (grad_specs), and those logits themselves, read where they have a
   cap: dx[T,D] and the head's weight gradient. */
ott_status loss_backward(exec *cx, loss_head *h, const activation *x, const tensor *logits,
                         const activation *g, const tensor *dx);

#endif
