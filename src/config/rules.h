/*
 * config/rules: float8.module written as a list of tables ([[float8.module]] in TOML, a list of mappings in
 * YAML), which becomes the list of texts "match=recipe" that the schema knows. Internal to this floor.
 */
#ifndef CONFIG_RULES_H
#define CONFIG_RULES_H

#include "config/table.h"
#include "config/tree.h"

/* Gives *value the texts when it is such a list for that key; leaves anything else as it is. `where` begins
   the error message. */
ott_status rules_read(arena *memory, const config_key *key, const node **value, const char *where);

#endif
