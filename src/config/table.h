/* config/table: the keys of schema.def and choices.def as a table, for code that loops over all keys. */
#ifndef CONFIG_TABLE_H
#define CONFIG_TABLE_H

#include "config/config.h"
#include <stddef.h>

typedef enum key_type { KEY_INT, KEY_REAL, KEY_PAIR, KEY_BOOL, KEY_TEXT, KEY_CHOICE, KEY_LIST } key_type;
typedef enum key_state { STATE_BUILT, STATE_LATER, STATE_INSTEAD, STATE_WITH } key_state;

typedef struct key_choice {
    const char *text; /* the word that a file contains: "bf16" */
} key_choice;

/* One value of any type. The key's type selects the member. */
typedef struct config_value {
    int64_t integer; /* an integer, a truth value (0 or 1), or a choice's index */
    double real[2];  /* both numbers of a KEY_PAIR; a KEY_REAL uses real[0] */
    const char *text;
    str_list list;
} config_value;

typedef struct config_key {
    const char *path, *section, *name; /* names such as "train.seq_len", "train", "seq_len" */
    key_type type;
    size_t offset;         /* offset of the value in struct config, in bytes */
    config_value fallback; /* default value of the key */
    /* Range of a number, or of the integers in a list: "[1, inf)", "(0, 1)", "-1|[1, inf)". Else NULL. */
    const char *range;
    const key_choice *choices;
    int choice_count;
    key_state state;
    const char *reason;  /* LATER: why it is refused. INSTEAD: Ottava's way. WITH: the key that it needs */
    const char *neutral; /* values that request nothing, "a|b"; with LATER, also the default */
    const char *help;
} config_key;

typedef struct config_section {
    const char *name, *help;
} config_section;

const config_key *table_keys(int *count);
const config_section *table_sections(int *count);
/* Returns the key with this path ("train.seq_len"); NULL if it is unknown. */
const config_key *table_find(const char *path);
int table_index(const config_key *key);
int table_choice(const config_key *key, const char *word); /* index in key->choices; -1 if missing */

config_value table_get(const config *cfg, const config_key *key);
void table_put(config *cfg, const config_key *key, const config_value *value);
bool table_equal(const config_key *key, const config_value *a, const config_value *b);
/* True if `word` is one of the words of "a|b|c". */
bool table_word_in(const char *words, const char *word);

#endif
