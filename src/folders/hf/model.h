/*
 * folders/hf/model: loads a model from a Hugging Face folder. config.json sets the configuration; weights
 * are converted and loaded tensor by tensor. folders/hf/save writes such folders.
 */
#ifndef FOLDERS_HF_MODEL_H
#define FOLDERS_HF_MODEL_H

#include "base/text/str.h"
#include "config/config.h"
#include "model/model.h"

/* Values of config.json that have no key in [model]. */
typedef struct hf_model_notes {
    /* dropout that config.json requests for training, such as "attention_dropout = 0.1"; "" if none */
    char dropout[128];
    char quantization[32];       /* quantization method, such as "compressed-tensors"; "" if none */
    double router_aux_loss_coef; /* weight of the auxiliary loss; -1 if there is none */
} hf_model_notes;

/* Sets unset keys of [model] from config.json of model.hf_path, if that is not empty. notes may be NULL. */
ott_status hf_model_configure(mem *account, config *cfg, hf_model_notes *notes);
/* Appends the comma-separated names of the block matrices that the folder stores as E4M3 codes, except
   routers. A matrix that all experts have is named once. *others_are_bf16: all other matrices are BF16. */
ott_status hf_model_list_codes(mem *account, const char *folder, str *names, bool *others_are_bf16);
/* Loads all parameters from the folder (F32, BF16, F16, or FP8 with scales). Errors come before any
   change of a parameter, and name a tensor that is missing, unused or of the wrong shape or format. */
ott_status hf_model_load(model *m, const char *folder);
/* Like hf_model_load, for a model that will be trained. It dithers fp32 masters that are loaded from BF16 or
   F16: it adds a small random offset to each element, which rounds back to the file's value (nn/draw.h,
   draw_dither). The offset depends on the seed, the tensor's name and the element's index. Frozen parameters
   get no offset. Norms, biases and routers get none, because layers read them in fp32. */
ott_status hf_model_load_dithered(model *m, const char *folder, uint64_t seed);

#endif
