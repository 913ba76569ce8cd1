/* config/compat/alias: the table of aliases.def and ignored_keys.def, and lookups in the table. */
#include "config/compat/alias.h"
#include "base/text/str.h"
#include "config/compat/foreign.h"
#include "config/compat/reasons.h"
#include <string.h>

static const config_alias aliases[] = {
#define SAME(p, key)             {.path = p, .kind = ALIAS_SAME, .target = key},
#define WORDS(p, key, list)      {.path = p, .kind = ALIAS_WORDS, .target = key, .words = list},
#define SPECIAL(p, key, f)       {.path = p, .kind = ALIAS_SPECIAL, .target = key, .function = f},
#define CLOSED(p, list)          {.path = p, .kind = ALIAS_CLOSED, .words = list},
#define IGNORED(p, ours, none)   {.path = p, .kind = ALIAS_IGNORED, .words = ours, .neutral = none},
#define REFUSED(p, reason, none) {.path = p, .kind = ALIAS_REFUSED, .words = reason, .neutral = none},
#define INERT(p, reason)         {.path = p, .kind = ALIAS_INERT, .words = reason},
#include "config/compat/aliases.def"
#include "config/compat/ignored_keys.def"
};

const config_alias *alias_table(int *count) {
    *count = (int)(sizeof aliases / sizeof aliases[0]);
    return aliases;
}

/* Length of the text before the * of a pattern ("peft.*", "_*") if `path` matches the pattern; 0 if not.
   "peft.*" matches "peft" too. */
static size_t covered_length(const char *pattern, const char *path) {
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
        size_t covered = covered_length(all[i].path, path);
        if (covered > longest) longest = covered, best = &all[i];
    }
    return best;
}

const config_key *alias_target(const char *path) {
    const config_key *key = table_find(path);
    const config_alias *a = key ? NULL : alias_find(path);
    return a && a->target ? table_find(a->target) : key;
}

bool alias_knows(const char *path) {
    return table_find(path) || alias_find(path);
}

bool alias_is_within(const char *path, const char *section) {
    size_t length = strlen(section);
    return strncmp(path, section, length) == 0 && path[length] == '.';
}

bool alias_is_section(const char *path) {
    int count;
    const config_key *keys = table_keys(&count);
    for (int i = 0; i < count; i++)
        if (alias_is_within(keys[i].path, path)) return true;
    const config_alias *rows = alias_table(&count);
    for (int i = 0; i < count; i++)
        if (alias_is_within(rows[i].path, path)) return true;
    return false;
}
