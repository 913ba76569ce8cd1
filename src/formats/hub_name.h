/*
 * formats/hub_name: detects a Hugging Face hub name ("meta-llama/Llama-3.1-8B") where a folder is needed.
 * Ottava does not download models.
 */
#ifndef FORMATS_HUB_NAME_H
#define FORMATS_HUB_NAME_H

#include "config/config.h"

/* True if `path` looks like "organization/model" and no such file exists. */
bool hub_name_is(const char *path);
/* Returns OTT_ERR_CONFIG with instructions to download. The message begins with `where`; `option`
   ("--model.hf_path=") precedes FOLDER. */
ott_status hub_name_fail(const char *where, const char *name, const char *option);
/* Calls hub_name_fail if `value`, the value of configuration key `key`, is a hub name; else OTT_OK. */
ott_status hub_name_check(const config *cfg, const char *key, const char *value);

#endif
