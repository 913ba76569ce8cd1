/* config/value: converts a node to the typed value of a key, and a value to text. */
#ifndef CONFIG_VALUE_H
#define CONFIG_VALUE_H

#include "config/table.h"
#include "config/tree.h"

/* Reads `n` as a value of `key`. Fails on a wrong type, range or word; `where` begins the message. `memory`
   owns the value's texts. */
ott_status value_read(arena *memory, const config_key *key, const node *n, const char *where,
                      config_value *out);
/* Appends a value in TOML syntax. */
void value_write(str *out, const config_key *key, const config_value *value);
/* Appends a value like value_write, but without quotes around texts and words, for help and messages. */
void value_show(str *out, const config_key *key, const config_value *value);
/* Appends the allowed values for help: "[1, inf)" or "bf16 | fp16". */
void value_allowed(str *out, const config_key *key);
/* Reads a truth value: NODE_BOOL, or a plain true, 1, yes, on, false, 0, no, off. False for other nodes. */
bool value_bool(const node *n, bool *out);

#endif
