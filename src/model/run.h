/*
 * model/run: the full pass over a micro-batch, and its parts: forward and backward over a range of layers
 * (with the embedding), and the head with the loss. Each pass gathers a layer's parameters before the layer
 * runs, and reduces the layer's gradients after its backward.
 */
#ifndef MODEL_RUN_H
#define MODEL_RUN_H

#include "model/model.h"

/* A micro-batch: `count` sequences of `length` tokens. T = count * length. All tensors are on the device. */
typedef struct batch {
    int64_t count, length;
    tensor token, target; /* i32[T]; tokens with target < 0 are ignored in the loss */
    sequence_metadata at; /* positions and documents; at.cache is not read */
    tensor number; /* i32[2]: the first token's index in the run (exec.token), 64 bits; data NULL: unknown */
    const sequence_cache *cache; /* [layers] earlier tokens (model/cache.h); for model_logits; NULL: none */
} batch;

/* The tensors that forward keeps for backward: one slot for each in-flight micro-batch. */
typedef struct model_slot model_slot;
ott_status model_slot_open(const model *m, model_slot **out);
void model_slot_close(const device *d, model_slot *slot); /* d: the model's device; slot may be NULL */

/* Returns the elements of a micro-batch's vector[T] that are of this rank's tokens (context parallelism). */
tensor model_own_tokens(const model *m, tensor of_all);

/* Writes losses[T], only for this rank's tokens. grad_scale is fp32[1] on the device, a factor of all
   gradients: the pass runs backward and accumulates the gradients of parameters. If it is NULL, the pass is
   an evaluation. cx->plan must be recording, or have been recorded by a call with the same arguments. */
ott_status model_run(exec *cx, model *m, model_slot *slot, const batch *b, const tensor *grad_scale,
                     const tensor *losses);
/* Writes the logits[1,V] (activation format) of the batch's last token. */
ott_status model_logits(exec *cx, model *m, model_slot *slot, const batch *b, const tensor *logits);

/* ---- the parts of model_run ---- */

/* The residual stream between blocks, x + delta (model/block.h). model_forward sets it at layer 0. */
typedef struct model_stream {
    tensor x, delta; /* [T,D] */
    plan_buffer x_buffer, delta_buffer;
    /* true: the stream is x + delta; x is h2 in the slot of the block that computed delta. false: it is x */
    bool has_delta;
} model_stream;

/* Sets *rows to the number of this rank's rows of the stream: T / (number of context-parallel ranks x number
   of sequence-parallel ranks). OTT_ERR_CONFIG if this is not an integer. */
ott_status model_stream_rows(const model *m, const batch *b, int64_t *rows);

/* Runs layers [first, end). If first is 0, starts with the embedding; if not, with *stream. If end is the
   number of layers, ends with the final norm, with its output in `slot`; if not, writes *stream. */
ott_status model_forward(exec *cx, model *m, model_slot *slot, const batch *b, layer_range range,
                         model_stream *stream);
/* Call it between two layer ranges. Opens out[T,D] = x + delta, the stream after layers [0, end). Closes
   tensors of block end - 1 that backward does not need. The next range gets x = *out and no delta. */
ott_status model_stream_materialize(exec *cx, model *m, model_slot *slot, int64_t end, model_stream *stream,
                                    tensor *out, plan_buffer *out_buffer);
/* Runs the head and the loss after the last layer. With grad_scale it also runs their backward, and opens
   *grad, the gradient of the last block's output, with the quantized copies that model_backward needs. */
ott_status model_loss(exec *cx, model *m, model_slot *slot, const batch *b, const tensor *grad_scale,
                      const tensor *losses, activation *grad);
/* Replaces model_loss if the caller computes the loss. Writes logits[T,V] in the activation format. In
   PHASE_TRAIN the caller must then call model_head_backward with dlogits, the gradient of the logits in
   *buffer. model_head_backward closes *buffer, and opens *grad as model_loss does. */
ott_status model_head(exec *cx, model *m, model_slot *slot, const tensor *logits);
ott_status model_head_backward(exec *cx, model *m, model_slot *slot, const tensor *dlogits,
                               plan_buffer *buffer, activation *grad);
/* Backward of layers [first, end). *grad is the gradient of their output; it becomes the gradient of their
   input. If first is 0, also runs the embedding's backward and closes *grad. */
ott_status model_backward(exec *cx, model *m, model_slot *slot, const batch *b, layer_range range,
                          activation *grad);

#endif
