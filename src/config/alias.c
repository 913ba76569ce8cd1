/* config/alias: the table aliases.def expands to, and its look-ups. */
#include "config/alias.h"
#include "config/foreign.h"
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

/* Words of other tools inside keys that have the same name in all of them. */
static const struct {
    const char *key, *theirs, *ours;
} synonyms[] = {
    {"optimizer.name", "AdamW", "adamw"},
    {"optimizer.name", "Adam", "adam"},
    {"optimizer.name", "Muon", "muon"},
    {"model.preset", "debugmodel", "debug"},
    {"distributed.pp_schedule", "1F1B", "1f1b"},
    {"distributed.pp_schedule", "GPipe", "gpipe"},
    {"distributed.pp_schedule", "Interleaved1F1B", "interleaved_1f1b"},
    {"train.global_batch_size", "-1", "0"},
    {"checkpoint.load_path", "LATEST", "latest"},
    {"float8.fast_accum_output", "True", "true"},
    {"float8.fast_accum_output", "False", "false"},
    {"float8.fast_accum_grad_input", "True", "true"},
    {"float8.fast_accum_grad_input", "False", "false"},
    {"float8.fast_accum_grad_weight", "True", "true"},
    {"float8.fast_accum_grad_weight", "False", "false"},
};

const config_alias *alias_table(int *count) {
    *count = (int)(sizeof aliases / sizeof aliases[0]);
    return aliases;
}

/* Does "peft.*" cover path? How many characters of it, or 0. */
static size_t covers(const char *pattern, const char *path) {
    size_t length = strlen(pattern);
    if (!str_ends_with(pattern, ".*")) return 0;
    return strncmp(pattern, path, length - 1) == 0 ? length - 1 : 0;
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

int alias_index(const config_alias *a) {
    return (int)(a - aliases);
}

const char *alias_last_component(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

const char *alias_word(const char *key, const char *word) {
    for (size_t i = 0; i < sizeof synonyms / sizeof synonyms[0]; i++)
        if (strcmp(synonyms[i].key, key) == 0 && strcmp(synonyms[i].theirs, word) == 0)
            return synonyms[i].ours;
    return word;
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
