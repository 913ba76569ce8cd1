/*
 * parallel/hf_model: a model from and to a Hugging Face folder: config.json into the configuration, weights
 * into the masters, tensor by tensor and converted on the way, and back. Families that store q, k, v, or gate
 * and up, as one tensor are split when they are read and joined when they are written.
 */
#ifndef PARALLEL_HF_MODEL_H
#define PARALLEL_HF_MODEL_H

#include "config/config.h"
#include "model/model.h"

/* Puts what config.json of model.hf_path says under the keys of [model] that were not given. Nothing when
   model.hf_path is empty. */
ott_status hf_model_configure(mem *account, config *cfg);
/* Fills the parameters from the folder's weights (F32, BF16 or F16). A tensor that is missing, of another shape or
   format is an error that names it; so is one left over that no parameter reads. */
ott_status hf_model_load(model *m, const char *folder);
/*
 * Writes a folder: weights in format d (F32, BF16 or F16) and config.json; with `original`, the folder the model
 * came from, that one's config.json with unknown keys kept, and every other file of it copied. `folder` must not
 * hold a model yet.
 */
ott_status hf_model_save(const model *m, const char *original, const char *folder, ott_dtype d);

#endif
