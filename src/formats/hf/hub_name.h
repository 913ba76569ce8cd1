/* formats/hf/hub_name: detects a Hugging Face hub name ("meta-llama/Llama-3.1-8B") where a folder is needed.
   Ottava does not download models. */
#ifndef FORMATS_HF_HUB_NAME_H
#define FORMATS_HF_HUB_NAME_H

#include "config/config.h"

/* True if `path` looks like "organization/model" and no such file exists. */
bool hub_name_is(const char *path);
/* Always fails, with OTT_ERR_CONFIG. The message begins with `where`. It explains how to download the model
   `name`, and to give its folder to `option` ("--model.hf_path="). */
ott_status hub_name_fail(const char *where, const char *name, const char *option);
/* Checks the value of the configuration key `key`: calls hub_name_fail if it is a hub name. */
ott_status hub_name_check(const config *cfg, const char *key, const char *value);

#endif
