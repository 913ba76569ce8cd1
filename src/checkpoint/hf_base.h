/*
 * checkpoint/hf_base: the Hugging Face folder of what is frozen beside adapters. Checkpoints of such a run leave it there, and
 * record where it is and a mark of its weights, by which other weights in its place are noticed.
 */
#ifndef CHECKPOINT_HF_BASE_H
#define CHECKPOINT_HF_BASE_H

#include "base/log.h"
#include "model/model.h"

/* Marks the weights of a folder that m is about to read, as m->base: for the checkpoints to come. */
ott_status hf_base_mark(model *m, const char *folder);
/* Does a folder have the weights that `base` says? Not when it cannot be read. */
ott_status hf_base_fits(mem *account, const char *folder, const model_base *base, bool *fits);
/* Reads again what a checkpoint at `path` left in a folder: that of model_options.base, else where it was. OTT_ERR_NOT_FOUND
   when it is gone, OTT_ERR_SHAPE when its weights are others than `base` says; found before a parameter changes. */
ott_status hf_base_load(model *m, const logger *log, const char *path, const model_base *base);

#endif
