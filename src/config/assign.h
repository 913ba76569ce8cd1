/*
 * config/assign: gives values to keys: our own, aliases of other tools, whole files. Internal to this floor. `where` begins
 * error messages; `spelled` is the name the value was given by.
 */
#ifndef CONFIG_ASSIGN_H
#define CONFIG_ASSIGN_H

#include "config/state.h"

/* Gives the value to the key or alias of that dotted name. */
ott_status assign_path(config *cfg, const char *path, const node *value, const char *where);
/* Gives the value to a key of the schema. */
ott_status assign_key(config *cfg, const config_key *key, const node *value, const char *where,
                      const char *spelled);
/* What values.def knows about the word under that name: *value becomes our word in `ours`, or the word is
   refused by what it asks for, in a remark, and *value becomes NULL. */
ott_status assign_translate(config *cfg, const char *name, const config_key *target, const node **value,
                            const char *where, const char *spelled, node *ours);
/* Gives a word to a key that a foreign key decides. */
ott_status assign_word(config *cfg, const char *path, const char *word, const char *where);
/* A key's default, or null: back to the default, and no longer set. */
void assign_default(config *cfg, const config_key *key);
/* Every leaf of a file's tree; what is wrong becomes remarks. */
ott_status assign_tree(config *cfg, const char *file, const node *root);
/* Can the key or alias be given without a value, as a switch? */
bool assign_is_switch(const char *path);

/* unknown.c: the error for a name that nobody knows, with the nearest one or those there are. */
ott_status unknown_fail(const char *place, const char *path);

#endif
