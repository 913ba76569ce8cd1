/* config/value: converts a node to the typed value of a key, and a value to text. */
#ifndef CONFIG_VALUE_H
#define CONFIG_VALUE_H

#include "config/table.h"
#include "config/parse/tree.h"

/* Reads node n as a value of `key`. Fails on a wrong type, range or word. `where` is the start of the error
   message. `memory` owns the texts of the value. */
ott_status value_read(arena *memory, const config_key *key, const node *n, const char *where,
                      config_value *out);
/* Appends a value in TOML syntax. */
void value_write(str *out, const config_key *key, const config_value *value);
/* Appends a value for help and messages: in TOML syntax, but texts and words without quotes. */
void value_show(str *out, const config_key *key, const config_value *value);
/* Appends the allowed values for help: "[1, inf)" or "bf16 | fp16". */
void value_allowed(str *out, const config_key *key);
/* Reads a truth value: NODE_BOOL, or a plain true, 1, yes, on, false, 0, no, off. False for other nodes. */
bool value_bool(const node *n, bool *out);

#endif
