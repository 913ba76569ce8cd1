/* config/compat/alias: tables that translate other tools' names of keys, and their values, to Ottava's. */
#ifndef CONFIG_ALIAS_H
#define CONFIG_ALIAS_H

#include "config/table.h"
#include "config/parse/tree.h"

typedef enum alias_kind { /* one kind for each macro of aliases.def and ignored_keys.def */
                          ALIAS_SAME,
                          ALIAS_WORDS,
                          ALIAS_SPECIAL,
                          ALIAS_CLOSED,
                          ALIAS_IGNORED,
                          ALIAS_REFUSED,
                          ALIAS_INERT
} alias_kind;

/* Applies a foreign key. `where` begins error messages. */
typedef ott_status (*alias_function)(config *cfg, const node *value, const char *where);

typedef struct config_alias {
    const char *path;
    alias_kind kind;
    const char *target;      /* our key, for SAME, WORDS and SPECIAL */
    const char *words;       /* the allowed words (WORDS, CLOSED) or the reason (IGNORED, REFUSED, INERT) */
    const char *neutral;     /* values that request nothing, "a|b", for IGNORED and REFUSED */
    alias_function function; /* applies a SPECIAL key */
} config_alias;

const config_alias *alias_table(int *count);
/* Returns the table's row for `path`: an exact match, else the longest match that ends in *, else NULL. */
const config_alias *alias_find(const char *path);
bool alias_knows(const char *path);                          /* true if `path` is a key or an alias */
bool alias_is_section(const char *path);                     /* true if a key or an alias is below `path` */
bool alias_is_within(const char *path, const char *section); /* path "a.b" is within section "a" */
/* `path` is one of our keys or an alias. Returns our key that it sets; NULL if it sets none. */
const config_key *alias_target(const char *path);
/* The last component of a dotted name: "AdamW" of "torch.optim.AdamW". */
const char *alias_last_component(const char *name);

/* A row of values.def. */
typedef struct alias_value {
    const char *key, *patterns;
    const char *ours; /* our word; NULL: the word is refused */
    const char *asks; /* message about the unsupported feature that the word requests; NULL: supported */
} alias_value;

/* Returns why values.def refuses the word for the key `path`; NULL if values.def does not refuse it. */
const char *alias_asked(const char *path, const char *word);
/* Returns the row of values.def with `word`, another tool's value of key or alias `path`; NULL if none. */
const alias_value *alias_value_find(const char *path, const char *word);
/* Finds `word` in "theirs=ours|..." and copies our word into out[64]. False if it is not listed. */
bool alias_translate(const char *words, const char *word, char *out);

#endif
