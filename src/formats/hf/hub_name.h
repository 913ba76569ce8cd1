/* formats/hf/hub_name: names of the Hugging Face hub ("meta-llama/Llama-3.1-8B") where a folder is needed.
   The name is replaced by its folder in the cache that huggingface_hub and Ottava share: models--ORG--NAME/
   snapshots/COMMIT. The library never downloads; `ottava pull` does (src/hub). Source:
   https://huggingface.co/docs/huggingface_hub/guides/manage-cache */
#ifndef FORMATS_HF_HUB_NAME_H
#define FORMATS_HF_HUB_NAME_H

#include "config/config.h"
#include <limits.h>

bool hub_name_is_valid(const char *name); /* true for "organization/model", if the hub allows the name */
/* True if `path` looks like "organization/model" and no such file exists. */
bool hub_name_is(const char *path);
/* Writes the cache's folder: HF_HUB_CACHE, else HUGGINGFACE_HUB_CACHE, else `hub` in hub_name_home. */
ott_status hub_name_cache(char out[PATH_MAX]);
/* Writes the folder of the hub's files: HF_HOME, else huggingface in XDG_CACHE_HOME or ~/.cache. */
ott_status hub_name_home(char out[PATH_MAX]);
/* Writes the folder of a model (a valid name) in the cache. It may not exist. */
ott_status hub_name_repository(const char *name, char out[PATH_MAX]);
/* Writes the snapshot of a revision (a branch, a tag or a commit) of a model. False if it is not in the
   cache, or has none of config.json, adapter_config.json and tokenizer.json. */
bool hub_name_find(const char *name, const char *revision, char out[PATH_MAX]);
/* If *path is a hub name, sets it to the snapshot of its branch main, which is written to `out`. Fails with
   OTT_ERR_CONFIG if the cache lacks it. The message begins with `where`. */
ott_status hub_name_resolve(const char *where, const char **path, char out[PATH_MAX]);
/* The same for the value of the configuration key `key`. */
ott_status hub_name_resolve_key(config *cfg, const char *key, const char *value);
/* If `folder` is a snapshot in a cache, writes its hub name to `out` and returns `out`. Otherwise returns
   `folder`. */
const char *hub_name_of(const char *folder, char out[PATH_MAX]);

#endif
