/* config/state: the data of a config other than its values: where each key was set, its memory, diagnostics,
   and other tools' keys. Internal to config. */
#ifndef CONFIG_STATE_H
#define CONFIG_STATE_H

#include "base/arena.h"
#include "config/compat/alias.h"
#include "config/config.h"
#include "config/compat/foreign.h"
#include "config/diagnostic.h"
#include "config/table.h"

/* Where and how one key of the schema was set. */
typedef struct key_note {
    bool set;     /* a file or an option set the key */
    bool in_file; /* the file that is being read has set the key, so it may not set another value */
    /* where the key was set: "run.toml:3: train.seq_len = 512" or an option; NULL: not set */
    const char *where;
    const char *spelled; /* the name that the user wrote */
    bool from_file;      /* set by a file, not by an option */
} key_note;

struct config_state {
    mem *account;
    arena *memory;    /* owns all texts and lists of the config */
    const logger *lg; /* receives log lines; may be NULL */
    key_note *keys;   /* one per schema key, at its table_index */
    diagnostics diagnostics;
    foreign_state foreign;
    int64_t data_ranks; /* number of data-parallel ranks (config_set_data_ranks); 0: not known yet */
    bool reading_file;  /* true while keys are set from the file, false for options */
    bool deriving;      /* true while another tool's key sets one of our keys */
};

/* True if the value requests nothing: it is the default or one of the key's neutral words. */
bool config_is_neutral(const config *cfg, const config_key *key);
/* True if the value is one of the key's neutral words. */
bool config_is_listed(const config *cfg, const config_key *key);

/* True if the key's section is off, or another key replaces it: data.dataset_path replaces data.dataset. */
bool config_is_replaced(const config *cfg, const config_key *key);

const key_note *state_note(const config *cfg, const char *path); /* `path` must be a key of the schema */

#endif
