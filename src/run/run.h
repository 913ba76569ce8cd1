/* run/run: turns a configuration into initial weights and trainer options, for training and inference. */
#ifndef RUN_RUN_H
#define RUN_RUN_H

#include "base/log.h"
#include "resolve/resolve.h"
#include "train/precision.h"
#include "train/trainer.h"
#include <limits.h>

/* OTT_ERR_CONFIG if the configuration sets no model or no data; the message shows the missing keys. The
   defaults would train a large model on random tokens. */
ott_status run_check_described(const config *cfg);
ott_status run_check_model(const config *cfg); /* checks only the model: `ottava plan` needs no data */
/* OTT_ERR_CONFIG if the keys of [train] contradict a caller's loss function. */
ott_status run_check_caller_loss(const config *cfg);
/* Fills the weights of a run without a checkpoint: from model.hf_path, or random if model.hf_path is empty or
   model.reduce is set. Also loads or initializes adapters. threads 0: all cores. */
ott_status run_load_initial_weights(model *m, const config *cfg, int threads);
/* Converts the configuration to trainer options with the recipe of training step `step`. The process groups
   in *out are NULL. *out borrows cfg and `precision`. OTT_ERR_CONFIG if a batch is too large or
   train.ce_chunk_size does not fit the recipe. */
ott_status run_trainer_options(const config *cfg, const precision_plan *precision, int64_t step,
                               trainer_options *out);

#endif
