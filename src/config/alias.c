/* config/alias: the table aliases.def expands to, and its look-ups. */
#include "config/alias.h"
#include "base/str.h"
#include "config/family.h"
#include "config/foreign.h"
#include "config/reasons.h"
#include <string.h>

static const config_alias aliases[] = {
#define SAME(p, key)             {.path = p, .kind = ALIAS_SAME, .target = key},
#define WORDS(p, key, list)      {.path = p, .kind = ALIAS_WORDS, .target = key, .words = list},
#define SPECIAL(p, key, f)       {.path = p, .kind = ALIAS_SPECIAL, .target = key, .function = f},
#define CLOSED(p, list)          {.path = p, .kind = ALIAS_CLOSED, .words = list},
#define IGNORED(p, ours, none)   {.path = p, .kind = ALIAS_IGNORED, .words = ours, .neutral = none},
#define REFUSED(p, reason, none) {.path = p, .kind = ALIAS_REFUSED, .words = reason, .neutral = none},
#define INERT(p, reason)         {.path = p, .kind = ALIAS_INERT, .words = reason},
#include "config/aliases.def"
};

static const alias_value values[] = {
#define MEANS(k, theirs, word)                        {.key = k, .patterns = theirs, .ours = word},
#define ASKS(k, theirs, reason)                       {.key = k, .patterns = theirs, .asks = reason},
#define MEANS_FAMILY(k, constant, name, classes, ...) MEANS(k, "*" classes "Config*", name)
#include "config/values.def"
};

const config_alias *alias_table(int *count) {
    *count = (int)(sizeof aliases / sizeof aliases[0]);
    return aliases;
}

/* Does "peft.*" (or "_*") cover path? How many characters of it, or 0. A section is covered itself. */
static size_t covers(const char *pattern, const char *path) {
    size_t length = strlen(pattern);
    if (pattern[length - 1] != '*') return 0;
    if (strncmp(pattern, path, length - 1) == 0) return length - 1;
    bool is_section = str_ends_with(pattern, ".*") && strlen(path) == length - 2;
    return is_section && memcmp(pattern, path, length - 2) == 0 ? length - 2 : 0;
}

const config_alias *alias_find(const char *path) {
    int count;
    const config_alias *all = alias_table(&count), *best = NULL;
    size_t longest = 0;
    for (int i = 0; i < count; i++) {
        if (strcmp(all[i].path, path) == 0) return &all[i];
        size_t covered = covers(all[i].path, path);
        if (covered > longest) longest = covered, best = &all[i];
    }
    return best;
}

const char *alias_last_component(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

enum { WORD_LIMIT = 256 };

/* In lower case, cut when it is longer than any word of the table. */
static const char *lower_case(const char *text, char out[WORD_LIMIT]) {
    int length = 0;
    for (; text[length] && length < WORD_LIMIT - 1; length++)
        out[length] = (char)(text[length] >= 'A' && text[length] <= 'Z' ? text[length] + 32 : text[length]);
    out[length] = '\0';
    return out;
}

/* Does one of "a|b|c" fit `word`, which is in lower case? */
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

/* "validation_dataset._target_" has the rows of "dataset". */
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
