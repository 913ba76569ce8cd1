/*
 * train/stage: runs a training step on one stage of a pipeline (parallel/pipeline.h). The stage's model has
 * only its own layers. The residual stream and its gradient are sent between stages while this stage computes
 * other micro-batches. Losses, gradients and FP8 state are bit-identical to one rank that runs the same
 * micro-batches, if on that rank delayed scaling's amax histories advance with each micro-batch.
 *
 * Tied head: the first and the last stage both hold the embedding table. For each micro-batch the last stage
 * sends the head's gradient of the table to the first stage, which then adds the embedding's gradient, as one
 * rank does. After the step the first stage sends the sum back.
 */
#ifndef TRAIN_STAGE_H
#define TRAIN_STAGE_H

#include "model/run.h"

typedef struct stage stage;

/* Opens a stage of m, which was opened with options.stage and is borrowed. micro_batches: per step.
   OTT_ERR_CONFIG if layers or micro-batches cannot be divided among the stages. Close with stage_close. */
ott_status stage_open(model *m, int64_t micro_batches, stage **out);
/* Call before model_close. NULL is allowed. */
void stage_close(stage *s);

/* Runs forward and backward of all micro-batches of a step. Adds to every gradient of this stage. Advances
   the amax histories of delayed scaling, reduced over cx->data_group. batches[micro_batches]: device memory
   that must not change during the call. losses[micro_batches], each [T]: written only on the last stage.
   cx->plan must be recording, or sealed after it recorded the same call. */
ott_status stage_train(exec *cx, stage *s, const batch *batches, const tensor *grad_scale,
                       const tensor *losses);
/* Copies a tied table's gradient from the first stage to the last. Call it on every stage, after
   store_reduce_once. cx->plan is used as in stage_train. */
ott_status stage_share_gradients(exec *cx, stage *s);
/* Runs only the forward of a batch, for evaluation. losses[T] is written on the last stage. */
ott_status stage_evaluate(exec *cx, stage *s, const batch *b, const tensor *losses);

#endif
