/* train/run: what a run is made of, opened from its configuration: folder, device, recipe. Shared by
 * training and generation. */
#ifndef TRAIN_RUN_H
#define TRAIN_RUN_H

#include "base/log.h"
#include "model/options.h"
#include "train/precision.h"
#include "train/trainer.h"
#include <limits.h>

/* Folder of the run: run.dir, made if it is not there. Left empty it is runs/ and the configuration file's
   name, with a number when that is taken and this is not a resume; the choice is written back into cfg. Its
   checkpoint folder goes to `checkpoints`. Both are given back with mem_give. */
ott_status run_folder(mem *account, config *cfg, char **folder, char **checkpoints);
/* The tokenizer of the run's text: data.tokenizer_path, or else model.hf_path when it has one; "": text is
 * bytes. */
void run_tokenizer_path(const config *cfg, char out[PATH_MAX]);
/* What the trainer needs of the configuration; the recipe is that of training step `step`. The plan is
 * borrowed. */
ott_status run_trainer_options(const config *cfg, const precision_plan *precision, int64_t step,
                               trainer_options *out);

#endif
