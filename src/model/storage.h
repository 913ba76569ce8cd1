/*
 * model/storage: memory of a model's parameters: the format of frozen matrices, the units of the parameter
 * store, and a few large allocations for this rank's shards, gradients and optimizer state.
 */
#ifndef MODEL_STORAGE_H
#define MODEL_STORAGE_H

#include "model/model.h"

/* Sets the format of frozen matrices (train.frozen_dtype). Call it before storage_open. */
ott_status storage_keep_frozen(const model *m);
/* Allocates this rank's shards of parameters, and for MODEL_TRAINING of gradients and optimizer state. */
ott_status storage_open(model *m, model_use use);

#endif
