/*
 * checkpoint/hf_model: a model from a Hugging Face folder: config.json into the configuration, weights into the
 * masters, tensor by tensor and converted on the way. (And back: checkpoint/hf_save.)
 */
#ifndef CHECKPOINT_HF_MODEL_H
#define CHECKPOINT_HF_MODEL_H

#include "base/str.h"
#include "config/config.h"
#include "model/model.h"

/* What config.json says beside the keys of [model]. */
typedef struct hf_model_notes {
    char dropout[128]; /* the kinds that transformers would train with, "attention_dropout = 0.1"; "": none */
    char quantization[32];       /* of the weights, "compressed-tensors"; "": none */
    double router_aux_loss_coef; /* -1: none */
} hf_model_notes;

/* Puts what config.json of model.hf_path says under the keys of [model] that were not given. Nothing when
   model.hf_path is empty. notes: may be NULL. */
ott_status hf_model_configure(mem *account, config *cfg, hf_model_notes *notes);
/* Appends the names of the matrices of blocks that a folder has as E4M3 codes, with commas between; of experts, which it has
   apart, the stack's; not of routers. *others_are_bf16: all its other matrices. */
ott_status hf_model_list_codes(mem *account, const char *folder, str *names, bool *others_are_bf16);
/* Fills the parameters from the folder's weights (F32, BF16 or F16, or FP8 with scales: code * scale). A
   tensor that is missing, of another shape or format is an error that names it; so is one left over that no
   parameter reads. What is missing or left over is found before the first parameter changes. */
ott_status hf_model_load(model *m, const char *folder);
/* Loads as hf_model_load, for a model that is about to train. An fp32 master that a BF16 or F16 tensor fills gets a random offset that rounds
   away in that format (nn/draw.h, draw_dither). The key of an offset is the seed, the tensor's name and the element's index.
   Frozen parameters keep the loaded values. So do norms, biases and routers: layers read them in fp32. */
ott_status hf_model_load_dithered(model *m, const char *folder, uint64_t seed);

#endif
