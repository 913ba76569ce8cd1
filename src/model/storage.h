/*
 * model/storage: where the parameters of a model lie: frozen matrices in their format, each parameter in a unit of the store,
 * and this rank's shards with their gradients and optimizer state in a few large allocations.
 */
#ifndef MODEL_STORAGE_H
#define MODEL_STORAGE_H

#include "model/model.h"

/* Gives what is frozen the format of train.frozen_dtype. All parameters are declared; none has memory. */
ott_status storage_keep_frozen(const model *m);
/* Divides the parameters among ranks, and allocates this rank's; gradients and state where use is MODEL_TRAINING. */
ott_status storage_open(model *m, model_use use);

#endif
