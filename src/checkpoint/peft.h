/*
 * checkpoint/peft: adapters (nn/lora.h) in folders of the PEFT library, which transformers and vLLM read: adapter_config.json and
 * adapter_model.safetensors, whose tensors are "base_model.model.<module>.lora_A.weight" and ".lora_B.weight".
 */
#ifndef CHECKPOINT_PEFT_H
#define CHECKPOINT_PEFT_H

#include "config/config.h"
#include "model/model.h"

#define PEFT_CONFIG_NAME  "adapter_config.json"
#define PEFT_TENSORS_NAME "adapter_model.safetensors"

/* Puts what adapter_config.json of peft.path says under the keys of [peft] that were not given, and its base model under
   model.hf_path. Nothing when peft.path is empty. OTT_ERR_UNSUPPORTED for an adapter that is no LoRA, or has what is not
   built. */
ott_status peft_configure(mem *account, config *cfg);
/* Appends a line about the adapters of a folder, also of adapters that Ottava cannot load: type, rank, alpha and base model. */
ott_status peft_describe(mem *account, const char *folder, str *out);
/* Fills the adapters of a model from a folder: fp32, bf16 or fp16. A tensor that is missing, left over or of another shape is an
   error that names it, found before the first parameter changes. */
ott_status peft_load(model *m, const char *folder);
/* Writes both files into a folder that is there; cfg gives what adapter_config.json says. `ranks` (NULL: one) have the model
   between them and all call this. OTT_ERR_UNSUPPORTED where projections are not joined as the family's files have them. */
ott_status peft_save(const model *m, const config *cfg, group *ranks, const char *folder);

#endif
