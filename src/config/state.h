/*
 * config/state: what a config remembers besides its values: where each was set, and what foreign keys said.
 * Internal to this floor.
 */
#ifndef CONFIG_STATE_H
#define CONFIG_STATE_H

#include "base/arena.h"
#include "config/compat/alias.h"
#include "config/config.h"
#include "config/compat/foreign.h"
#include "config/diagnostic.h"
#include "config/table.h"

/* Of one key of the schema. */
typedef struct key_note {
    bool set;            /* given by a file or an option */
    bool in_file;        /* by the file being read */
    const char *where;   /* "run.toml:3: train.seq_len = 512" or "--train.seq_len=512"; NULL: never set */
    const char *spelled; /* the name it was given by */
    bool from_file;      /* by a file, not by an option */
} key_note;

struct config_state {
    mem *account;
    arena *memory;
    const logger *lg;
    key_note *keys;
    diagnostics diagnostics;
    foreign_state foreign;
    int64_t data_ranks; /* config_set_data_ranks; 0: not known yet */
    bool reading_file;
    bool deriving; /* one of our keys is given a value because of what a foreign key said */
};

/* Does the value of the key ask for nothing (its default, or one of its neutral words)? */
bool config_is_neutral(const config *cfg, const config_key *key);
/* Is it one of the neutral words? */
bool config_is_listed(const config *cfg, const config_key *key);

/* Does another key say now what this one was to say (a local file for a named dataset), or is its section
 * off? */
bool config_is_replaced(const config *cfg, const config_key *key);

const key_note *state_note(const config *cfg, const char *path);

#endif
