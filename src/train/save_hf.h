/* train/save_hf: a checkpoint's weights once more, as a Hugging Face folder in it: step-N/hf. */
#ifndef TRAIN_SAVE_HF_H
#define TRAIN_SAVE_HF_H

#include "model/model.h"

/* Does checkpoint.save_hf want one in the checkpoint of this step? */
bool save_hf_wanted(const config *cfg, int64_t step);
/*
 * Writes the folder into CHECKPOINTS/step-N, which must be there, in checkpoint.export_dtype; complete or absent.
 * The files beside the weights are those of model.hf_path, where it is a folder, and the run's tokenizer. `ranks` (NULL: one) hold the model
 * between them and all call this.
 */
ott_status save_hf(model *m, const logger *log, const config *cfg, group *ranks, const char *checkpoints,
                   int64_t step);

#endif
