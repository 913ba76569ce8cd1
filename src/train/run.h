/* train/run: what a run is made of, opened from its configuration: tokenizer, recipe. Shared by
 * training and generation. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include "base/log.h"
#include "model/options.h"
#include "train/precision.h"
#include "train/trainer.h"
#include <limits.h>

/* Does the configuration say what to train, and on what? OTT_ERR_CONFIG says what is missing: a model nobody
   described would be the largest of the defaults, and data nobody named would be random. */
ott_status run_check_described(const config *cfg);
ott_status run_check_model(const config *cfg); /* the first alone: who plans a run needs no data */
/* What a model begins with where no checkpoint brings it: the weights of model.hf_path, which do not fit a reduced
   model, or random ones, on so many threads (0: all cores). */
ott_status run_load_initial_weights(model *m, const config *cfg, int threads);
/* What the trainer needs of the configuration; the recipe is that of training step `step`. The plan is
 * borrowed. */
ott_status run_trainer_options(const config *cfg, const precision_plan *precision, int64_t step,
                               trainer_options *out);

#endif
