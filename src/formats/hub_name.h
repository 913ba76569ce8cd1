/*
 * formats/hub_name: a name on the Hugging Face hub ("meta-llama/Llama-3.1-8B") where a folder is needed: nothing is downloaded.
 */
#ifndef FORMATS_HUB_NAME_H
#define FORMATS_HUB_NAME_H

#include "config/config.h"

/* Does the path have the form "organization/model", and does no file have it? */
bool hub_name_is(const char *path);
/* OTT_ERR_CONFIG, with what to do. `where` begins the message; `option` ("--model.hf_path=") stands before FOLDER. */
ott_status hub_name_fail(const char *where, const char *name, const char *option);
/* The same if `value`, the value of that key, is such a name; else OTT_OK. */
ott_status hub_name_check(const config *cfg, const char *key, const char *value);

#endif
