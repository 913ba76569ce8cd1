/*
 * train/stage: a step on one stage of a pipeline (parallel/pipeline.h): its model has the layers of the stage only.
 * The residual stream and its gradient go from stage to stage while this one computes. Losses, gradients and FP8 state
 * have the bits of one rank that runs the same micro-batches: delayed scaling's histories move on with each of them.
 *
 * A tied head: first and last stage have the table. The last one's gradient of it goes to the first with each
 * micro-batch, which adds the embedding's to it, as one rank does, and in the end gives the sum back.
 */
#ifndef TRAIN_STAGE_H
#define TRAIN_STAGE_H

#include "model/run.h"

typedef struct stage stage;

/* Of a model that was opened with options.stage, which is borrowed. OTT_ERR_CONFIG when its layers or the micro-batches of
   a step cannot be dealt out. */
ott_status stage_open(model *m, int64_t micro_batches, stage **out);
void stage_close(stage *s); /* before the model; NULL is allowed */

/* All micro-batches of a step: every gradient of the stage accumulates, and the histories of delayed scaling move on, over
   cx->data_group where they are reduced. batches[micro_batches], whose device memory
   stays as it is meanwhile; losses[micro_batches], each [T], are written by the last stage. The plan of cx must be
   recording or sealed for the same call. */
ott_status stage_train(exec *cx, stage *s, const batch *batches, const tensor *grad_scale,
                       const tensor *losses);
/* Once the gradients of the step are those of the shards (store_reduce_once): where two stages have a parameter, both have
   the sum. Under a plan as well. */
ott_status stage_share_gradients(exec *cx, stage *s);
/* losses[T] of a batch, on the last stage. */
ott_status stage_evaluate(exec *cx, stage *s, const batch *b, const tensor *losses);

#endif
