/*
 * parallel/hf_model: a model from a Hugging Face folder: config.json into the configuration, weights into the
 * masters, tensor by tensor and converted on the way. (And back: parallel/hf_save.)
 */
#ifndef PARALLEL_HF_MODEL_H
#define PARALLEL_HF_MODEL_H

#include "config/config.h"
#include "model/model.h"

/* Puts what config.json of model.hf_path says under the keys of [model] that were not given. Nothing when
   model.hf_path is empty. */
ott_status hf_model_configure(mem *account, config *cfg);
/* Fills the parameters from the folder's weights (F32, BF16 or F16). A tensor that is missing, of another
   shape or format is an error that names it; so is one left over that no parameter reads. What is missing or
   left over is found before the first parameter changes. */
ott_status hf_model_load(model *m, const char *folder);

#endif
