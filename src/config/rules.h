/*
 * config/rules: float8.module, data.datasets, data.phases and train.freeze_schedule written as lists of tables ([[float8.module]] in TOML, a list
 * of mappings in YAML), and data.anneal_weights as a table, which become the lists of texts "match=recipe", "path=weight NAME",
 * "10000 web=0.3 lr_scale=0.5" and "web=0.1" that the schema knows. Internal to this floor.
 */
#ifndef CONFIG_RULES_H
#define CONFIG_RULES_H

#include "config/table.h"
#include "config/tree.h"

/* Gives *value the texts when it is such a list for those keys; leaves anything else as it is. `where` begins
   the error message. */
ott_status rules_read(arena *memory, const config_key *key, const node **value, const char *where);

#endif
