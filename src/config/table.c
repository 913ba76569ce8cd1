/* config/table: the tables of schema.def, choices.def and kinds/choices.h; access to a config's keys. */
#include "config/table.h"
#include <string.h>

#define CHOICES(list, ...)   static const key_choice words_##list[] = {__VA_ARGS__};
#define WORD(constant, text) {text},
#include "config/choices.def"
#define KIND_CHOICE(constant, text) {text},
#define KIND_TABLE(name, list)      static const key_choice words_##name[] = {list(KIND_CHOICE)};
KIND_LISTS(KIND_TABLE)

#define BUILT                  .state = STATE_BUILT, .reason = "", .neutral = ""
#define LATER(why, nothing)    .state = STATE_LATER, .reason = why, .neutral = nothing
#define INSTEAD(ours, nothing) .state = STATE_INSTEAD, .reason = ours, .neutral = nothing
#define WITH(other)            .state = STATE_WITH, .reason = other, .neutral = ""

#define KEY(s, k, kind)                                                                                      \
    .path = #s "." #k, .section = #s, .name = #k, .type = kind, .offset = offsetof(config, s.k)

static const config_key keys[] = {
#define SECTION_BEGIN(s, what)
#define SECTION_END(s)
#define INT(s, k, value, limits, how, what)                                                                  \
    {KEY(s, k, KEY_INT), .fallback = {.integer = value}, .range = limits, how, .help = what},
#define REAL(s, k, value, limits, how, what)                                                                 \
    {KEY(s, k, KEY_REAL), .fallback = {.real = {value}}, .range = limits, how, .help = what},
#define PAIR(s, k, first, second, limits, how, what)                                                         \
    {KEY(s, k, KEY_PAIR), .fallback = {.real = {first, second}}, .range = limits, how, .help = what},
#define BOOL(s, k, value, how, what) {KEY(s, k, KEY_BOOL), .fallback = {.integer = value}, how, .help = what},
#define TEXT(s, k, value, how, what) {KEY(s, k, KEY_TEXT), .fallback = {.text = value}, how, .help = what},
#define CHOICE(s, k, words, value, how, what)                                                                \
    {KEY(s, k, KEY_CHOICE),                                                                                  \
     .fallback = {.integer = value},                                                                         \
     .choices = words_##words,                                                                               \
     .choice_count = sizeof words_##words / sizeof words_##words[0],                                         \
     how,                                                                                                    \
     .help = what},
#define LIST(s, k, how, what)             {KEY(s, k, KEY_LIST), how, .help = what},
#define INTEGERS(s, k, limits, how, what) {KEY(s, k, KEY_LIST), .range = limits, how, .help = what},
#include "config/schema.def"
};

static const config_section sections[] = {
#define SECTION_BEGIN(s, what) {#s, what},
#define SECTION_END(s)
#include "config/schema.def"
};

const config_key *table_keys(int *count) {
    *count = (int)(sizeof keys / sizeof keys[0]);
    return keys;
}

const config_section *table_sections(int *count) {
    *count = (int)(sizeof sections / sizeof sections[0]);
    return sections;
}

const config_key *table_find(const char *path) {
    int count;
    const config_key *all = table_keys(&count);
    for (int i = 0; i < count; i++)
        if (strcmp(all[i].path, path) == 0) return &all[i];
    return NULL;
}

int table_index(const config_key *key) {
    return (int)(key - keys);
}

int table_choice(const config_key *key, const char *word) {
    for (int i = 0; i < key->choice_count; i++)
        if (strcmp(key->choices[i].text, word) == 0) return i;
    return -1;
}

/* table_get and table_put access the enum of any choice key as unsigned, so it must have the same size. */
_Static_assert(sizeof(config_precision) == sizeof(unsigned),
               "an enum of choices must have the size of unsigned");

config_value table_get(const config *cfg, const config_key *key) {
    const char *field = (const char *)cfg + key->offset;
    config_value value = {0};
    unsigned place;
    switch (key->type) {
    case KEY_INT: value.integer = *(const int64_t *)field; break;
    case KEY_REAL: value.real[0] = *(const double *)field; break;
    case KEY_PAIR: memcpy(value.real, field, sizeof value.real); break;
    case KEY_BOOL: value.integer = *(const bool *)field; break;
    case KEY_TEXT: value.text = *(const char *const *)field; break;
    case KEY_CHOICE:
        memcpy(&place, field, sizeof place);
        value.integer = place;
        break;
    case KEY_LIST: value.list = *(const str_list *)field; break;
    }
    return value;
}

void table_put(config *cfg, const config_key *key, const config_value *value) {
    char *field = (char *)cfg + key->offset;
    unsigned place = (unsigned)value->integer;
    switch (key->type) {
    case KEY_INT: *(int64_t *)field = value->integer; break;
    case KEY_REAL: *(double *)field = value->real[0]; break;
    case KEY_PAIR: memcpy(field, value->real, sizeof value->real); break;
    case KEY_BOOL: *(bool *)field = value->integer != 0; break;
    case KEY_TEXT: *(const char **)field = value->text; break;
    case KEY_CHOICE: memcpy(field, &place, sizeof place); break;
    case KEY_LIST: *(str_list *)field = value->list; break;
    }
}

static bool list_equal(const str_list *a, const str_list *b) {
    if (a->count != b->count) return false;
    for (int64_t i = 0; i < a->count; i++)
        if (strcmp(a->items[i], b->items[i]) != 0) return false;
    return true;
}

bool table_equal(const config_key *key, const config_value *a, const config_value *b) {
    switch (key->type) {
    case KEY_INT:
    case KEY_BOOL:
    case KEY_CHOICE: return a->integer == b->integer;
    case KEY_REAL: return a->real[0] == b->real[0];
    case KEY_PAIR: return a->real[0] == b->real[0] && a->real[1] == b->real[1];
    case KEY_TEXT: return strcmp(a->text, b->text) == 0;
    case KEY_LIST: return list_equal(&a->list, &b->list);
    }
    return false;
}

bool table_word_in(const char *words, const char *word) {
    size_t length = strlen(word);
    for (const char *at = words; *at;) {
        size_t span = strcspn(at, "|");
        if (span == length && memcmp(at, word, length) == 0) return true;
        at += span;
        if (*at == '|') at++;
    }
    return false;
}
