/*
 * nn/loss: output head and cross-entropy in one, in chunks of tokens, so that the logits of a full batch are
 * never stored. Each chunk's logits are replaced by their gradient in place. An FP8 head therefore has one
 * grad_output scale per chunk, so the chunk size changes results. With tensor parallelism each rank has the
 * logits of its part of the vocabulary, and the ranks exchange three numbers per token.
 */
#ifndef NN_LOSS_H
#define NN_LOSS_H

#include "nn/linear.h"

typedef struct loss_head {
    linear head;      /* [V,D] */
    int64_t chunk;    /* tokens, >= 1 */
    float multiplier; /* factor of the logits; 0: none */
    float softcap;    /* cap of the multiplied logits; 0: none */
    float z_weight;   /* weight of the z-loss, logsumexp(logits)^2, which is added to the trained loss */
    tensor z;         /* fp32[1]: accumulates those squares over training passes; data NULL: not recorded */
    activation_specs input_specs; /* of all rows of the input */
    activation_specs grad_specs;  /* of the gradient of the logits */
} loss_head;

/* Connects the head; writes the specs of the input x. */
ott_status loss_connect(loss_head *h, activation_specs *input);
/* Computes logits[T,V], multiplied and capped, from x[T,D]. */
ott_status loss_logits(exec *cx, loss_head *h, const activation *x, const tensor *logits);
/* Computes losses[T] (fp32) for targets i32[T]; negative targets are ignored, with loss 0. With grad_scale
   (fp32[1], factor of every token's gradient) it is a training pass that also computes dx[T,D] and
   accumulates the head's weight gradient. In evaluation grad_scale and dx are NULL. x and dx have this rank's
   rows (nn/tensor_ranks.h); targets and losses have all T. */
ott_status loss_forward(exec *cx, loss_head *h, const activation *x, const tensor *target,
                        const tensor *grad_scale, const tensor *losses, const tensor *dx);
/* Computes dx[T,D] and accumulates the head's weight gradient from g, the gradient of logits[T,V]; makes g's
   quantized copies (grad_specs). `logits`, from loss_logits, are read only with a softcap. */
ott_status loss_backward(exec *cx, loss_head *h, const activation *x, const tensor *logits,
                         const activation *g, const tensor *dx);

#endif
