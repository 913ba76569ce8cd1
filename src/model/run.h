/*
 * model/run: passes over a micro-batch: forward and backward over a range of a model's layers, what is at their
 * two ends, and all of it.
 */
#ifndef MODEL_RUN_H
#define MODEL_RUN_H

#include "model/model.h"

/* A micro-batch: `count` sequences of `length` tokens, all of one device block. T = count * length. */
typedef struct batch {
    int64_t count, length;
    tensor token, target; /* i32[T]; target < 0: ignored */
    sequence_metadata at; /* its cache is not read */
    tensor number;        /* i32[2], of the first token (exec.token); data NULL: not known */
    /* [layers], for model_logits of a sequence that goes on (model/cache.h); NULL: nothing stands before. */
    const attention_cache *cache;
} batch;

typedef struct model_slot
    model_slot; /* what forward leaves for backward: one for each micro-batch in flight */
ott_status model_slot_open(const model *m, model_slot **out);
void model_slot_close(const model *m, model_slot *slot);

/* Of a vector of a micro-batch's T tokens, the elements of those that this rank computes: all, without context ranks. */
tensor model_own_tokens(const model *m, tensor of_all);

/* losses[T] of a batch, those of its own tokens. With grad_scale (fp32[1] on the device) it is a training pass: every parameter's
   gradient accumulates; without, an evaluation. The plan of cx must be recording or sealed for the same call.
 */
ott_status model_run(exec *cx, model *m, model_slot *slot, const batch *b, const tensor *grad_scale,
                     const tensor *losses);
/* logits[1,V] (activation format) of the last token of a batch of one sequence. */
ott_status model_logits(exec *cx, model *m, model_slot *slot, const batch *b, const tensor *logits);

/* ---- the parts of model_run ---- */

/* The residual stream on its way from block to block: its value is x + delta. Zeroed: before the first. */
typedef struct model_stream {
    tensor x, delta; /* [T,D] */
    plan_buffer x_buffer, delta_buffer;
    bool has_delta; /* x is lent by the block that made delta */
} model_stream;

/* Rows of it that are here, T but with sequence parallelism; OTT_ERR_CONFIG when its ranks do not divide T. */
ott_status model_stream_rows(const model *m, const batch *b, int64_t *rows);

/* Through layers [first, end). From the tokens where first is 0, to the final norm where end is all layers; else
   from and to the stream that is handed over. cx->phase says what is kept. */
ott_status model_forward(exec *cx, model *m, model_slot *slot, const batch *b, layer_range range,
                         model_stream *stream);
/* Between ranges: the stream after layer `end` as one tensor[T,D], x + delta, which it opens; what the last block lent
   goes. A stream whose x is this tensor goes on with the same bits. */
ott_status model_stream_materialize(exec *cx, model *m, model_slot *slot, int64_t end, model_stream *stream,
                                    tensor *out, plan_buffer *out_buffer);
/* After the last layer: head, loss, and back to the gradient of the last block's output, which it opens with the
   forms that model_backward reads. Without grad_scale the losses are all. */
ott_status model_loss(exec *cx, model *m, model_slot *slot, const batch *b, const tensor *grad_scale,
                      const tensor *losses, activation *grad);
/* In place of model_loss, for a caller with a loss of its own: logits[T,V] (activation format) of all tokens; in
   training what the way back reads stays. Then from their gradient, whose buffer is closed, to that of the last
   block's output. */
ott_status model_head(exec *cx, model *m, model_slot *slot, const tensor *logits);
ott_status model_head_backward(exec *cx, model *m, model_slot *slot, const tensor *dlogits,
                               plan_buffer *buffer, activation *grad);
/* Back through layers [first, end): *grad, of their output, becomes that of their input; where first is 0 the
   embedding gets it, and it is closed. */
ott_status model_backward(exec *cx, model *m, model_slot *slot, const batch *b, layer_range range,
                          activation *grad);

#endif
