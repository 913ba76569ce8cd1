/* config/compat/alias_words: translates other tools' words into ours. */
#include "base/text/str.h"
#include "config/compat/alias.h"
#include "config/compat/reasons.h"
#include "kinds/family.h"
#include <string.h>

static const alias_value values[] = {
#define MEANS(k, theirs, word)                        {.key = k, .patterns = theirs, .ours = word},
#define ASKS(k, theirs, reason)                       {.key = k, .patterns = theirs, .asks = reason},
#define MEANS_FAMILY(k, constant, name, classes, ...) MEANS(k, "*" classes "Config*", name)
#include "config/compat/values.def"
};

const char *alias_last_component(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

enum { WORD_LIMIT = 256 };

/* Copies a word in lower case, and truncates it to WORD_LIMIT. No word of the table is so long. */
static const char *lower_case(const char *text, char out[WORD_LIMIT]) {
    int length = 0;
    for (; text[length] && length < WORD_LIMIT - 1; length++)
        out[length] = (char)(text[length] >= 'A' && text[length] <= 'Z' ? text[length] + 32 : text[length]);
    out[length] = '\0';
    return out;
}

/* True if one of the patterns "a|b|c" matches `word`, which is in lower case. */
static bool one_fits(const char *patterns, const char *word) {
    for (const char *at = patterns; *at;) {
        char pattern[WORD_LIMIT], low[WORD_LIMIT];
        size_t span = strcspn(at, "|");
        memcpy(pattern, at, span);
        pattern[span] = '\0';
        lower_case(pattern, low);
        if (str_glob(low, word) || str_glob(low, alias_last_component(word))) return true;
        at += span + (at[span] == '|');
    }
    return false;
}

/* True if the rows of values.def for `key` also apply to `path`: to `key`._target_ or to validation_`key`. */
static bool has_rows_of(const char *path, const char *key) {
    static const char twin[] = "validation_", target[] = "._target_";
    size_t length = strlen(path), wanted = strlen(key);
    if (strcmp(path, key) == 0) return true;
    if (str_starts_with(path, twin)) path += sizeof twin - 1, length -= sizeof twin - 1;
    if (str_ends_with(path, target) && length > wanted) length -= sizeof target - 1;
    return length == wanted && memcmp(path, key, wanted) == 0;
}

const alias_value *alias_value_find(const char *path, const char *word) {
    char low[WORD_LIMIT];
    lower_case(word, low);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        if (has_rows_of(path, values[i].key) && one_fits(values[i].patterns, low)) return &values[i];
    return NULL;
}

const char *alias_asked(const char *path, const char *word) {
    const alias_value *row = alias_value_find(path, word);
    return row ? row->asks : NULL;
}

bool alias_translate(const char *words, const char *word, char *out) {
    size_t length = strlen(word);
    for (const char *at = words; *at;) {
        size_t span = strcspn(at, "|");
        if (span > length && memcmp(at, word, length) == 0 && at[length] == '=') {
            size_t ours = span - length - 1;
            memcpy(out, at + length + 1, ours);
            out[ours] = '\0';
            return true;
        }
        at += span + (at[span] == '|');
    }
    return false;
}
