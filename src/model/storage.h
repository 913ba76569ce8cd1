/*
 * model/storage: decides the format of frozen matrices, fills in the units of the parameter stores, and
 * allocates this rank's shards, gradients and optimizer state in a few large blocks.
 */
#ifndef MODEL_STORAGE_H
#define MODEL_STORAGE_H

#include "model/model.h"

/* Sets the format of frozen matrices, before storage_open. OTT_ERR_CONFIG for FP8 if none is frozen. */
ott_status storage_keep_frozen(const model *m);
/* Allocates this rank's shards of parameters and, for MODEL_TRAINING, of gradients and optimizer state. */
ott_status storage_open(model *m, model_use use);

#endif
