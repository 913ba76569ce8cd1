/*
 * nn/loss: the output head fused with cross-entropy. Both run on chunks of tokens, so the logits of a full
 * micro-batch are never stored. The gradient of a chunk's logits overwrites the logits. With tensorwise
 * scaling, an FP8 head has one grad_output scale per chunk, so the chunk size changes results. With tensor
 * parallelism, each rank has the logits of a part of the vocabulary. For each token, the ranks exchange the
 * maximum of these logits, the sum of their exponentials, and the target's logit.
 */
#ifndef NN_LOSS_H
#define NN_LOSS_H

#include "nn/linear/linear.h"

typedef struct loss_head {
    linear head;      /* weight [V,D] */
    int64_t chunk;    /* number of tokens of a chunk, at least 1 */
    float multiplier; /* factor of the logits; 0: no factor */
    float softcap;    /* cap of the multiplied logits; 0: no cap */
    float z_weight;   /* weight of the z-loss, logsumexp(logits)^2, which is added to the trained loss */
    tensor z;         /* fp32[1]: sum of logsumexp(logits)^2 over training passes; data NULL: not recorded */
    activation_specs input_specs; /* specs of the head's input, all ranks' rows */
    activation_specs grad_specs;  /* specs of the gradient of the logits */
} loss_head;

/* Connects the head. *input: the specs of x, which is this rank's rows of the head's input. */
ott_status loss_connect(loss_head *h, activation_specs *input);
/* Computes logits[T,V], multiplied and capped, from x[T,D]. */
ott_status loss_logits(exec *cx, loss_head *h, const activation *x, const tensor *logits);
/* Computes losses[T] (fp32) for targets i32[T]. A negative target is ignored: its loss is 0. In training,
   grad_scale (fp32[1]) is a factor of every token's gradient; then it also computes dx[T,D] and accumulates
   the head's weight gradient. In evaluation grad_scale and dx are NULL. With sequence parallelism, x and dx
   have only this rank's rows (nn/tensor_ranks.h), but targets and losses have all T entries. */
ott_status loss_forward(exec *cx, loss_head *h, const activation *x, const tensor *target,
                        const tensor *grad_scale, const tensor *losses, const tensor *dx);
/* Computes dx[T,D] and accumulates the head's weight gradient. g, the gradient of logits[T,V], is changed in
   place and quantized (grad_specs). `logits` (loss_logits) is read only if there is a softcap. */
ott_status loss_backward(exec *cx, loss_head *h, const activation *x, const tensor *logits,
                         const activation *g, const tensor *dx);

#endif
