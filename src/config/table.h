/*
 * config/table: the schema as data: what schema.def and choices.def say, for code that goes over all keys.
 */
#ifndef CONFIG_TABLE_H
#define CONFIG_TABLE_H

#include "config/config.h"
#include <stddef.h>

typedef enum key_type { KEY_INT, KEY_REAL, KEY_PAIR, KEY_BOOL, KEY_TEXT, KEY_CHOICE, KEY_LIST } key_type;
typedef enum key_state { STATE_BUILT, STATE_LATER, STATE_INSTEAD, STATE_WITH } key_state;

typedef struct key_choice {
    const char *text; /* as written in a file */
} key_choice;

/* One value of any type; a key's type says which member counts. */
typedef struct config_value {
    int64_t integer; /* also a bool (0, 1) and a choice (its place in the list) */
    double real[2];  /* KEY_REAL: the first */
    const char *text;
    config_list list;
} config_value;

typedef struct config_key {
    const char *path, *section, *name; /* "train.seq_len", "train", "seq_len" */
    key_type type;
    size_t offset; /* in struct config */
    config_value fallback;
    const char *
        range; /* numbers: "[1, inf)", "(0, 1)", "-1|[1, inf)"; of a list: of each integer; NULL: it is of texts */
    const key_choice *choices;
    int choice_count;
    key_state state;
    const char *reason;  /* LATER: why not; INSTEAD: what Ottava does; WITH: under which key */
    const char *neutral; /* values that ask for nothing, "a|b"; the default is one too, but not of INSTEAD */
    const char *help;
} config_key;

typedef struct config_section {
    const char *name, *help;
} config_section;

const config_key *table_keys(int *count);
const config_section *table_sections(int *count);
/* The key of that path, or NULL. */
const config_key *table_find(const char *path);
int table_index(const config_key *key);
int table_choice(const config_key *key, const char *word); /* place of the word, or -1 */

config_value table_get(const config *cfg, const config_key *key);
void table_put(config *cfg, const config_key *key, const config_value *value);
bool table_equal(const config_key *key, const config_value *a, const config_value *b);
/* Is `word` one of the words of "a|b|c"? */
bool table_word_in(const char *words, const char *word);

#endif
