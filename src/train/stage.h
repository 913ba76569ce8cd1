/*
 * train/stage: runs a training step on one stage of a pipeline (parallel/pipeline.h). The stage's model has
 * only its own layers. The residual stream and its gradient are sent between stages while this stage computes
 * other micro-batches. Losses, gradients and FP8 state are bit-identical to one rank that runs the same
 * micro-batches; delayed scaling's amax histories advance with each micro-batch.
 *
 * Tied head: the first and the last stage both hold the embedding table. For each micro-batch the last stage
 * sends its table gradient to the first stage, which adds the embedding's gradient, in the order of one rank.
 * After the step the first stage sends the sum back.
 */
#ifndef TRAIN_STAGE_H
#define TRAIN_STAGE_H

#include "model/run.h"

typedef struct stage stage;

/* m was opened with options.stage and is borrowed. micro_batches: micro-batches of a step. OTT_ERR_CONFIG if
   the layers or the micro-batches cannot be divided among the stages. Close with stage_close. */
ott_status stage_open(model *m, int64_t micro_batches, stage **out);
/* Call before model_close. NULL is allowed. */
void stage_close(stage *s);

/* Runs forward and backward of all micro-batches of a step. Adds to every gradient of this stage and advances
   the amax histories of delayed scaling, reduced over cx->data_group. batches[micro_batches]: the device
   memory must not change during the call. losses[micro_batches], each [T], are written on the last stage
   only. The plan of cx must be recording, or sealed after recording the same call. */
ott_status stage_train(exec *cx, stage *s, const batch *batches, const tensor *grad_scale,
                       const tensor *losses);
/* Copies the table gradient of a tied head from the first stage to the last. Call after store_reduce_once, on
   every stage; the plan is used as in stage_train. */
ott_status stage_share_gradients(exec *cx, stage *s);
/* Forward only: losses[T] of a batch, written on the last stage. */
ott_status stage_evaluate(exec *cx, stage *s, const batch *b, const tensor *losses);

#endif
