/*
 * config/book: what a config remembers besides its values: where each was set, and what foreign keys said.
 * Internal to this floor.
 */
#ifndef CONFIG_BOOK_H
#define CONFIG_BOOK_H

#include "base/arena.h"
#include "config/compat/alias.h"
#include "config/config.h"
#include "config/compat/foreign.h"
#include "config/remark.h"
#include "config/table.h"

/* Of one key of the schema. */
typedef struct key_note {
    bool set;            /* given by a file or an option */
    bool in_file;        /* by the file being read */
    const char *where;   /* "run.toml:3: train.seq_len = 512" or "--train.seq_len=512"; NULL: never set */
    const char *spelled; /* the name it was given by */
} key_note;

struct config_book {
    mem *account;
    arena *memory;
    const logger *lg;
    key_note *keys;
    remarks remarks;
    foreign_state foreign;
    bool reading_file;
    bool deriving; /* one of our keys is given a value because of what a foreign key said */
};

/* key.c, and of paths assign.c. `where` begins error messages; `spelled` is the name the value was given by. */
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

/* Does the value of the key ask for nothing (its default, or one of its neutral words)? */
bool config_is_neutral(const config *cfg, const config_key *key);
/* Is it one of the neutral words? */
bool config_is_listed(const config *cfg, const config_key *key);

/* Does another key say now what this one was to say (a local file for a named dataset), or is its section
 * off? */
bool config_is_replaced(const config *cfg, const config_key *key);

const key_note *book_note(const config *cfg, const char *path);

/* command.c */
/* The one configuration file the arguments name, or NULL. */
ott_status command_find_file(int argc, const char *const *argv, const char **file);
/* Applies the overrides among the arguments, in their order. */
ott_status command_apply(config *cfg, int argc, const char *const *argv);
/* One override: "--key=value" (value NULL: a switch). `shown` is the option as typed. */
ott_status command_override(config *cfg, const char *key, const char *value, const char *shown);

#endif
