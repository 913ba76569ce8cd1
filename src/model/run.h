/*
 * model/run: passes over a micro-batch: forward and backward over a range of layers, embedding, head and
 * loss, and the full pass made of them. Each pass gathers the parameters of a layer before it runs and
 * reduces its gradients after.
 */
#ifndef MODEL_RUN_H
#define MODEL_RUN_H

#include "model/model.h"

/* A micro-batch: `count` sequences of `length` tokens. T = count * length. All tensors are on the device. */
typedef struct batch {
    int64_t count, length;
    tensor token, target; /* i32[T]; target < 0: ignored */
    sequence_metadata at; /* positions and documents; at.cache is not read */
    tensor number;        /* i32[2]: index of the first token in the run (exec.token); data NULL: unknown */
    /* [layers] keys and values of earlier tokens, for model_logits (model/cache.h); NULL: none. */
    const attention_cache *cache;
} batch;

/* What forward keeps for backward: one for each in-flight micro-batch. */
typedef struct model_slot model_slot;
ott_status model_slot_open(const model *m, model_slot **out);
void model_slot_close(const model *m, model_slot *slot);

/* Returns this rank's part of a micro-batch's vector[T]; without context parallelism the full vector. */
tensor model_own_tokens(const model *m, tensor of_all);

/* Writes losses[T], only for this rank's tokens. With grad_scale (fp32[1] on the device, multiplies the
   gradients) it is a training pass: gradients accumulate in the parameters. grad_scale NULL: an evaluation.
   cx->plan must be recording, or sealed after a recording of the same call. */
ott_status model_run(exec *cx, model *m, model_slot *slot, const batch *b, const tensor *grad_scale,
                     const tensor *losses);
/* Writes the logits[1,V] (activation format) of the batch's last token. */
ott_status model_logits(exec *cx, model *m, model_slot *slot, const batch *b, const tensor *logits);

/* ---- the parts of model_run ---- */

/* The residual stream between blocks: its value is x + delta. Zero-initialized before the first block. */
typedef struct model_stream {
    tensor x, delta; /* [T,D] */
    plan_buffer x_buffer, delta_buffer;
    /* false: the value is x. True: x is the h2 of the block that computed delta, which owns it */
    bool has_delta;
} model_stream;

/* Sets *rows to this rank's rows of the stream: T divided by the context-parallel and sequence-parallel
   ranks. OTT_ERR_CONFIG if they do not divide T. */
ott_status model_stream_rows(const model *m, const batch *b, int64_t *rows);

/* Runs layers [first, end). If first is 0, it starts with the embedding, else with *stream. If end is the
   last layer, it ends with the final norm, whose output stays in `slot`; else the result is in *stream.
   cx->phase decides what is kept for backward. */
ott_status model_forward(exec *cx, model *m, model_slot *slot, const batch *b, layer_range range,
                         model_stream *stream);
/* Between two ranges: opens out[T,D] = x + delta, the stream after layers [0, end), and finalizes the last of
   these blocks. A stream with this tensor as x and no delta continues with the same bits. */
ott_status model_stream_materialize(exec *cx, model *m, model_slot *slot, int64_t end, model_stream *stream,
                                    tensor *out, plan_buffer *out_buffer);
/* After the last layer: runs the head and the loss. With grad_scale also their backward: opens *grad, the
   gradient of the last block's output, with the quantized copies that model_backward reads. */
ott_status model_loss(exec *cx, model *m, model_slot *slot, const batch *b, const tensor *grad_scale,
                      const tensor *losses, activation *grad);
/* Instead of model_loss, for a caller with its own loss: writes logits[T,V] (activation format). In
   PHASE_TRAIN, model_head_backward must follow. It takes the gradient of the logits, closes its buffer, and
   opens *grad as model_loss does. */
ott_status model_head(exec *cx, model *m, model_slot *slot, const tensor *logits);
ott_status model_head_backward(exec *cx, model *m, model_slot *slot, const tensor *dlogits,
                               plan_buffer *buffer, activation *grad);
/* Backward through layers [first, end): replaces *grad, the gradient of their output, by the gradient of
   their input. If first is 0, it also runs the embedding's backward and closes *grad. */
ott_status model_backward(exec *cx, model *m, model_slot *slot, const batch *b, layer_range range,
                          activation *grad);

#endif
