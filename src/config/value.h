/*
 * config/value: from a node to the typed value of a key, and back to text.
 */
#ifndef CONFIG_VALUE_H
#define CONFIG_VALUE_H

#include "config/table.h"
#include "config/tree.h"

/* Reads `n` as a value of `key`: right type, in range, a known word. `where` begins the error message; texts
   of the value live in `memory`. */
ott_status value_read(arena *memory, const config_key *key, const node *n, const char *where,
                      config_value *out);
/* Appends a value as TOML writes it. */
void value_write(str *out, const config_key *key, const config_value *value);
/* Appends the same without quotes around a text or a word, as help and messages show it. */
void value_show(str *out, const config_key *key, const config_value *value);
/* Appends what the key accepts, for help: "[1, inf)", "bf16 | fp16". */
void value_allowed(str *out, const config_key *key);
/* A plain scalar or NODE_BOOL as a truth value; false when it is none. */
bool value_bool(const node *n, bool *out);

#endif
