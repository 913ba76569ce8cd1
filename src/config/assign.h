/*
 * config/assign: sets configuration keys from parsed values: one key, an alias of another tool, or a whole
 * file. Internal to config. The argument `where` is the start of error messages, such as "run.toml:3:
 * train.seq_len = 512". The argument `spelled` is the key's name as the user wrote it.
 */
#ifndef CONFIG_ASSIGN_H
#define CONFIG_ASSIGN_H

#include "config/state.h"

/* Sets the key or alias with the dotted name `path`, which must be known (alias_knows). */
ott_status assign_path(config *cfg, const char *path, const node *value, const char *where);
/* Sets a key of the schema. A null value restores the default. */
ott_status assign_key(config *cfg, const config_key *key, const node *value, const char *where,
                      const char *spelled);
/* Looks up another tool's word for the key `name` in values.def. If values.def translates it, stores our word
   in *ours and points *value to it. If values.def refuses it, adds an error diagnostic and sets *value to
   NULL. */
ott_status assign_translate(config *cfg, const char *name, const config_key *target, const node **value,
                            const char *where, const char *spelled, node *ours);
/* Sets our key `path` to `word`, because another tool's key implies it. */
ott_status assign_word(config *cfg, const char *path, const char *word, const char *where);
/* Sets a key to its default; config_was_set then returns false for the key. */
void assign_default(config *cfg, const config_key *key);
/* Sets every key of a file's tree. Errors become diagnostics, so that all are reported together. */
ott_status assign_tree(config *cfg, const char *file, const node *root);
/* True if the key or alias may be given without a value: --train.compile_model. */
bool assign_is_switch(const char *path);

/* Fails for an unknown key or section. The message suggests the nearest name or lists the known names. */
ott_status unknown_fail(const char *place, const char *path);

#endif
