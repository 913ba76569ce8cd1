/*
 * folders/peft: adapters (nn/linear/lora.h) in folders of the PEFT library, which transformers and vLLM read:
 * adapter_config.json, and adapter_model.safetensors with "base_model.model.<module>.lora_A.weight" and
 * "...lora_B.weight".
 */
#ifndef FOLDERS_PEFT_H
#define FOLDERS_PEFT_H

#include "config/config.h"
#include "model/model.h"

#define PEFT_CONFIG_NAME  "adapter_config.json"
#define PEFT_TENSORS_NAME "adapter_model.safetensors"

/* Sets unset keys of [peft] and model.hf_path from adapter_config.json of peft.path, if that is not empty.
   OTT_ERR_UNSUPPORTED if the adapter is not LoRA or uses an unsupported feature. */
ott_status peft_configure(mem *account, config *cfg);
/* Appends one line about the adapters in a PEFT folder of any kind: type, rank, alpha and base model. */
ott_status peft_describe(mem *account, const char *folder, str *out);
/* Loads the adapters (fp32, bf16 or fp16) of a folder. A tensor that is missing, unused or of another shape
   is an error that names it, found before any parameter changes. */
ott_status peft_load(model *m, const char *folder);
/* Writes adapter_config.json, with values of cfg, and adapter_model.safetensors to an existing folder.
   Collective over `ranks` (NULL: one rank). OTT_ERR_UNSUPPORTED if the model fuses projections that are
   separate in the family's Hugging Face files, or the reverse. */
ott_status peft_save(const model *m, const config *cfg, group *ranks, const char *folder);

#endif
