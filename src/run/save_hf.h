/* run/save_hf: writes a Hugging Face folder into a checkpoint: step-N/hf. */
#ifndef RUN_SAVE_HF_H
#define RUN_SAVE_HF_H

#include "config/config.h"
#include "model/model.h"

/* True if checkpoint.save_hf requests the folder for this step. */
bool save_hf_is_requested(const config *cfg, int64_t step);
/* Writes CHECKPOINTS/step-N/hf, completely or not at all; step-N must exist. Weights are in
   checkpoint.export_dtype. Other files are copied from model.hf_path, if it is a folder, and from the run's
   tokenizer. Collective over `ranks`, the ranks that shard the model; NULL: one rank. */
ott_status save_hf(model *m, const logger *log, const config *cfg, group *ranks, const char *checkpoints,
                   int64_t step);

#endif
