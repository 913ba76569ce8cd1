/*
 * checkpoint/float8: the FP8 state of a model in a file of its own: delayed scaling's windows and
 * scales, and what float8.fallback has counted and decided. Internal to this floor.
 *
 *     "<module>.<tensor>.<format>.amax_history"   fp32[length], the newest last; "...scale" fp32[1]
 *     "<module>.below"                            fp32[1]: linear.below where it is not 0
 */
#ifndef CHECKPOINT_FLOAT8_H
#define CHECKPOINT_FLOAT8_H

#include "base/log.h"
#include "checkpoint/tensors.h"

/* Opens the set and fills it. recipe_name: the name of the one in force, kept for messages. */
ott_status checkpoint_float8_describe(const model *m, const char *recipe_name, tensor_set *set);
/* Looks at every entry before the first one of the model changes. A amax_history of another length keeps its newest
   members; a state the file has not starts anew; one the model has no use for is dropped; the log says so.
   *fallen: some layer of the file has fallen back and the model does not run it so. */
ott_status checkpoint_float8_read(model *m, const logger *log, const char *path, bool *fallen);

#endif
