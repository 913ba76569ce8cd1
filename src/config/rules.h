/*
 * config/rules: float8.module and data.datasets written as lists of tables ([[float8.module]] in TOML, a list
 * of mappings in YAML), which become the lists of texts "match=recipe" and "path=weight" that the schema
 * knows. Internal to this floor.
 */
#ifndef CONFIG_RULES_H
#define CONFIG_RULES_H

#include "config/table.h"
#include "config/tree.h"

/* Gives *value the texts when it is such a list for those keys; leaves anything else as it is. `where` begins
   the error message. */
ott_status rules_read(arena *memory, const config_key *key, const node **value, const char *where);

#endif
