/*
 * config/rules: lets a file write some list keys as tables, and converts them to the texts of the schema.
 * Internal to config. Lists of tables ([[float8.module]] in TOML): float8.module to "match=recipe",
 * data.datasets to "path=weight NAME", data.phases to "10000 web=0.3 lr_scale=0.5", train.freeze_schedule to
 * "100 lm_head". Tables: data.anneal_weights, peft.rank_pattern and peft.alpha_pattern to "web=0.1".
 */
#ifndef CONFIG_RULES_H
#define CONFIG_RULES_H

#include "config/table.h"
#include "config/tree.h"

/* Replaces *value by its list of texts if `key` is such a key and *value has tables. Leaves other values
   unchanged. `where` begins the error message. */
ott_status rules_read(arena *memory, const config_key *key, const node **value, const char *where);

#endif
