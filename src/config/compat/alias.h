/*
 * config/compat/alias: other tools' names for our keys, as a table; and other tools' words for our words.
 */
#ifndef CONFIG_ALIAS_H
#define CONFIG_ALIAS_H

#include "config/table.h"
#include "config/tree.h"

typedef enum alias_kind {
    ALIAS_SAME,
    ALIAS_WORDS,
    ALIAS_SPECIAL,
    ALIAS_CLOSED,
    ALIAS_IGNORED,
    ALIAS_REFUSED,
    ALIAS_INERT
} alias_kind;

/* Works out what a foreign key means. `where` begins the error message. */
typedef ott_status (*alias_function)(config *cfg, const node *value, const char *where);

typedef struct config_alias {
    const char *path;
    alias_kind kind;
    const char *target;      /* SAME, WORDS, SPECIAL: our key */
    const char *words;       /* WORDS, CLOSED: the words; IGNORED, REFUSED, INERT: what to say */
    const char *neutral;     /* IGNORED, REFUSED */
    alias_function function; /* SPECIAL */
} config_alias;

const config_alias *alias_table(int *count);
/* The line for `path`: its own, else the longest that ends in * and covers it; NULL when there is none. */
const config_alias *alias_find(const char *path);
/* Is there a key or an alias of that name, or one below it? */
bool alias_knows(const char *path);
bool alias_knows_below(const char *path);
bool alias_is_below(const char *path, const char *section); /* "a.b" is below "a" */
/* The key of the schema that a name ends in, or NULL. */
const config_key *alias_target(const char *path);
/* The last component of a dotted name: "AdamW" of "torch.optim.AdamW". */
const char *alias_last_component(const char *name);

/* A row of values.def. */
typedef struct alias_value {
    const char *key, *patterns;
    const char *ours; /* our word for theirs; NULL: refused */
    const char *asks; /* by what it asks for; NULL: it is one of ours */
} alias_value;

/* What is asked for by a word that values.def refuses for `path`, or NULL. */
const char *alias_asked(const char *path, const char *word);
/* What the word of another tool means as a value of the key or alias `path`; NULL: nothing is known about it.
 */
const alias_value *alias_value_find(const char *path, const char *word);
/* In "theirs=ours|...": copies ours for `word` into out[64]; false when it is not there. */
bool alias_translate(const char *words, const char *word, char *out);

#endif
