/*
 * nn/loss: the output head fused with the loss. A loss_kind computes the losses and the gradient of the
 * logits. Cross-entropy runs on chunks of tokens, so the logits of a full micro-batch are never stored. The
 * gradient of a chunk's logits overwrites the logits. With tensorwise scaling, an FP8 head has one
 * grad_output scale per chunk, so the chunk size changes results.
 *
 * | kind                   | logits               | computed by                                            |
 * |------------------------|----------------------|--------------------------------------------------------|
 * | cross-entropy          | of a chunk           | one op                                                 |
 * | cross-entropy of parts | of a chunk, this     | two ops. For each token, ranks exchange the maximum of |
 * |                        | rank's part of the   | these logits, the sum of their exponentials, and the   |
 * |                        | vocabulary           | target's logit                                         |
 * | caller's function      | of all tokens        | the caller, in fp32 and on the host                    |
 */
#ifndef NN_LOSS_H
#define NN_LOSS_H

#include "nn/linear/linear.h"

/* A caller's loss function. function NULL: cross-entropy. */
typedef struct caller_loss {
    ott_loss_fn function;
    void *user; /* passed to the function */
} caller_loss;

typedef struct loss_head {
    linear head;        /* weight [V,D] */
    int64_t chunk;      /* number of tokens of a chunk, at least 1 */
    caller_loss caller; /* not with tensor or context parallelism: it reads all tokens and logits */
    float multiplier;   /* factor of the logits; 0: no factor */
    float softcap;      /* cap of the multiplied logits; 0: no cap */
    float z_weight;     /* weight of the z-loss, logsumexp(logits)^2, which is added to the trained loss */
    tensor z; /* fp32[1]: sum of logsumexp(logits)^2 over training passes; data NULL: not recorded */
    activation_specs input_specs; /* specs of the head's input, all ranks' rows */
    activation_specs grad_specs;  /* specs of the gradient of the logits */
    void *staging;                /* host memory of ott_loss_batch; NULL if device memory is host memory */
    int64_t staging_bytes;
} loss_head;

/* The tokens of a micro-batch, i32[T] each. Cross-entropy reads only `target`. */
typedef struct loss_input {
    tensor target; /* cross-entropy ignores a negative target: its loss is 0 */
    tensor token, position;
    int64_t length; /* number of tokens in a sequence */
} loss_input;

typedef struct loss_kind {
    /* Computes a->loss[T] and a->z[T] from a->logits. With a->grad_scale it also replaces the logits by their
       gradient. */
    ott_status (*run)(exec *cx, loss_head *h, const loss_input *in, const cross_entropy_args *a);
    bool quantizes; /* `run` also makes the quantized copies a->q of the gradient */
    bool takes_all; /* all tokens of the micro-batch are one chunk */
} loss_kind;

/* Connects the head. *input: the specs of x, which is this rank's rows of the head's input. */
ott_status loss_connect(loss_head *h, activation_specs *input);
/* Computes logits[T,V], multiplied and capped, from x[T,D]. */
ott_status loss_logits(exec *cx, loss_head *h, const activation *x, const tensor *logits);
/* Computes losses[T] (fp32). In training, grad_scale (fp32[1]) is a factor of every token's gradient; then it
   also computes dx[T,D] and accumulates the head's weight gradient. In evaluation grad_scale and dx are NULL.
   With sequence parallelism, x and dx have only this rank's rows (nn/tensor_ranks.h), but the input and the
   losses have all T entries. */
ott_status loss_forward(exec *cx, loss_head *h, const activation *x, const loss_input *in,
                        const tensor *grad_scale, const tensor *losses, const tensor *dx);
/* Computes dx[T,D] and accumulates the head's weight gradient. g, the gradient of logits[T,V], is changed in
   place and quantized (grad_specs). `logits` (loss_logits) is read only if there is a softcap. */
ott_status loss_backward(exec *cx, loss_head *h, const activation *x, const tensor *logits,
                         const activation *g, const tensor *dx);
void loss_release(loss_head *h, device *d); /* frees the staging memory */

/* ---- internal to nn/loss ---- */

/* The kind of a caller's function (nn/loss_caller.c). */
extern const loss_kind loss_of_caller;

#endif
