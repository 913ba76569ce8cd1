/*
 * folders/hf/base: the Hugging Face folder with the frozen base weights of an adapter run. Checkpoints do
 * not copy these weights; they record the folder's path and a fingerprint, to detect changed weights.
 */
#ifndef FOLDERS_HF_BASE_H
#define FOLDERS_HF_BASE_H

#include "base/log.h"
#include "model/model.h"

/* Stores the path and fingerprint of a folder in m->base, for later checkpoints. */
ott_status hf_base_mark(model *m, const char *folder);
/* *fits is true if the folder's weights have the fingerprint in `base`. False if they cannot be read. */
ott_status hf_base_fits(mem *account, const char *folder, const model_base *base, bool *fits);
/* Loads the base weights for the checkpoint at `path`: from model_options.base if set, else from the recorded
   folder. OTT_ERR_NOT_FOUND if the folder is missing, OTT_ERR_SHAPE if its fingerprint differs; both come
   before any parameter changes. */
ott_status hf_base_load(model *m, const logger *log, const char *path, const model_base *base);

#endif
