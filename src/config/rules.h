/*
 * config/rules: lets a file write some list keys as tables, and converts them to lists of texts. In a list of
 * tables ([[float8.module]] in TOML), each table becomes a text: "match=recipe" in float8.module,
 * "path=weight NAME" in data.datasets, "10000 web=0.3 lr_scale=0.5" in data.phases, "100 lm_head" in
 * train.freeze_schedule. In the tables data.anneal_weights, peft.rank_pattern and peft.alpha_pattern, each
 * entry becomes a text: "web=0.1". Internal to config.
 */
#ifndef CONFIG_RULES_H
#define CONFIG_RULES_H

#include "config/table.h"
#include "config/parse/tree.h"

/* Replaces *value by its list of texts if *value has tables and `key` may be written as tables. `where` is
   the start of the error message. */
ott_status rules_read(arena *memory, const config_key *key, const node **value, const char *where);

#endif
