/*
 * config/assign: gives what a tree says to the keys it names, by our names or by other tools', and says what
 * is wrong with a name nobody knows.
 */
#include "config/book.h"
#include "config/number.h"
#include "config/rules.h"
#include "config/value.h"
#include <stdio.h>
#include <string.h>

const key_note *book_note(const config *cfg, const char *path) {
    return &cfg->book->keys[table_index(table_find(path))];
}

void assign_default(config *cfg, const config_key *key) {
    table_put(cfg, key, &key->fallback);
    key_note *note = &cfg->book->keys[table_index(key)];
    *note = (key_note){.in_file = note->in_file};
}

/* Several foreign keys may speak about one of ours, so this is never "twice". */
ott_status assign_word(config *cfg, const char *path, const char *word, const char *where) {
    node n = {.kind = NODE_PLAIN, .text = word};
    const config_key *key = table_find(path);
    bool kept = cfg->book->deriving;
    cfg->book->deriving = true;
    ott_status status = assign_key(cfg, key, &n, where, key->path);
    cfg->book->deriving = kept;
    return status;
}

/* Two names of one key in one file, or one name twice in a spelling the file's language does not see as
 * twice. */
static ott_status check_twice(config *cfg, const key_note *note, const char *where) {
    if (!cfg->book->reading_file || cfg->book->deriving || !note->in_file) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG, "%s says again what %s said", where, note->where);
}

/* activation_checkpointing = 2 is every_n with N = 2. */
static ott_status take_number(config *cfg, const config_key *key, const node **value, const char *where,
                              const char *spelled) {
    static const node every_n = {.kind = NODE_PLAIN, .text = "every_n"};
    int64_t ignored;
    if (strcmp(key->path, "train.activation_checkpointing") != 0) return OTT_OK;
    if (!(*value)->text || !number_parse_integer((*value)->text, &ignored)) return OTT_OK;
    node number = {.kind = NODE_PLAIN, .text = (*value)->text};
    *value = &every_n;
    return assign_key(cfg, table_find("train.activation_checkpointing_every"), &number, where, spelled);
}

ott_status assign_key(config *cfg, const config_key *key, const node *value, const char *where,
                      const char *spelled) {
    key_note *note = &cfg->book->keys[table_index(key)];
    node translated;
    config_value typed;
    TRY(check_twice(cfg, note, where));
    bool word = value->text && key->type == KEY_CHOICE && table_choice(key, value->text) >= 0;
    if (tree_is_null(value) && !word) return assign_default(cfg, key), OTT_OK;
    TRY(take_number(cfg, key, &value, where, spelled));
    TRY(rules_read(cfg->book->memory, key, &value, where));
    if (value->text) {
        const char *ours = alias_word(key->path, value->text);
        if (ours != value->text) {
            translated = (node){.kind = NODE_PLAIN, .text = ours};
            value = &translated;
        }
    }
    TRY(value_read(cfg->book->memory, key, value, where, &typed));
    table_put(cfg, key, &typed);
    *note = (key_note){true, cfg->book->reading_file && !cfg->book->deriving, where, spelled};
    foreign_key_was_set(cfg, key);
    return OTT_OK;
}

static const char *last_word(const node *value) {
    return value->text ? alias_last_component(value->text) : "";
}

/* The left-hand words of "theirs=ours|..." (or of "a|b") as a list for messages. */
static ott_status fail_words(const config_alias *a, const char *where) {
    char list[640] = "";
    size_t length = 0;
    for (const char *at = a->words; *at && length + 80 < sizeof list;) {
        size_t span = strcspn(at, "|"), word = strcspn(at, "|=");
        if (length) memcpy(list + length, ", ", 2), length += 2;
        list[length++] = '"';
        memcpy(list + length, at, word);
        length += word;
        list[length++] = '"';
        at += span + (at[span] == '|');
    }
    list[length] = '\0';
    return status_fail(OTT_ERR_CONFIG, "%s is not one of %s", where, list);
}

static ott_status assign_words(config *cfg, const config_alias *a, const node *value, const char *where) {
    char ours[64];
    if (tree_is_null(value)) return assign_key(cfg, table_find(a->target), value, where, a->path);
    if (!alias_translate(a->words, last_word(value), ours)) return fail_words(a, where);
    node word = {.kind = NODE_PLAIN, .text = ours};
    return assign_key(cfg, table_find(a->target), &word, where, a->path);
}

static ott_status assign_closed(const config_alias *a, const node *value, const char *where) {
    if (tree_is_null(value) || table_word_in(a->words, last_word(value))) return OTT_OK;
    return fail_words(a, where);
}

/* Nothing is asked for by null, an empty text or list, or one of the neutral words. */
static bool asks_for_nothing(const config_alias *a, const node *value) {
    if (tree_is_null(value)) return true;
    if (value->kind == NODE_LIST || value->kind == NODE_TABLE) return !value->first;
    return !*value->text || table_word_in(a->neutral, value->text);
}

static ott_status assign_alias(config *cfg, const config_alias *a, const node *value, const char *where) {
    switch (a->kind) {
    case ALIAS_SAME: return assign_key(cfg, table_find(a->target), value, where, a->path);
    case ALIAS_WORDS: return assign_words(cfg, a, value, where);
    case ALIAS_SPECIAL: return a->function(cfg, value, where);
    case ALIAS_CLOSED: return assign_closed(a, value, where);
    case ALIAS_IGNORED:
    case ALIAS_REFUSED:
        cfg->book->aliases[alias_index(a)].where = asks_for_nothing(a, value) ? NULL : where;
        return OTT_OK;
    case ALIAS_INERT: return OTT_OK;
    }
    return OTT_OK;
}

ott_status assign_path(config *cfg, const char *path, const node *value, const char *where) {
    const config_key *key = table_find(path);
    if (key) return assign_key(cfg, key, value, where, key->path);
    return assign_alias(cfg, alias_find(path), value, where);
}

bool assign_knows(const char *path) {
    return table_find(path) || alias_find(path);
}

static bool is_below(const char *path, const char *section) {
    size_t length = strlen(section);
    return strncmp(path, section, length) == 0 && path[length] == '.';
}

bool assign_knows_below(const char *path) {
    int count;
    const config_key *keys = table_keys(&count);
    for (int i = 0; i < count; i++)
        if (is_below(keys[i].path, path)) return true;
    const config_alias *aliases = alias_table(&count);
    for (int i = 0; i < count; i++)
        if (is_below(aliases[i].path, path)) return true;
    return false;
}

bool assign_is_switch(const char *path) {
    const config_key *key = table_find(path);
    const config_alias *a = key ? NULL : alias_find(path);
    if (!key && a && (a->kind == ALIAS_SAME || a->kind == ALIAS_WORDS)) key = table_find(a->target);
    if (a && a->kind == ALIAS_WORDS)
        return str_starts_with(a->words, "true=") || str_starts_with(a->words, "false=");
    if (a && a->kind == ALIAS_SPECIAL) return a->function == foreign_fp8_enabled;
    if (a && a->kind != ALIAS_SAME) return true; /* nothing depends on its value, so it needs none */
    return key && key->type == KEY_BOOL;
}

/* The nearest of all names whose section is `section` (NULL: any section), compared by their last component.
 */
static const char *nearest_name(const char *section, const char *name) {
    const char *names[512];
    int count, found = 0;
    const config_key *keys = table_keys(&count);
    for (int i = 0; i < count && found < 512; i++)
        if (!section || is_below(keys[i].path, section)) names[found++] = keys[i].name;
    const config_alias *aliases = alias_table(&count);
    for (int i = 0; i < count && section && found < 512; i++)
        if (is_below(aliases[i].path, section)) names[found++] = aliases[i].path + strlen(section) + 1;
    return str_nearest(name, names, found);
}

static const char *path_of_name(const char *name) {
    int count;
    const config_key *keys = table_keys(&count);
    for (int i = 0; i < count; i++)
        if (strcmp(keys[i].name, name) == 0) return keys[i].path;
    return "";
}

static const char *nearest_section(const char *section) {
    const char *names[512];
    int count, found = 0;
    const config_section *sections = table_sections(&count);
    for (int i = 0; i < count; i++) names[found++] = sections[i].name;
    static const char *const foreign[] = {"training",       "job",     "parallelism", "activation_checkpoint",
                                          "lr_scheduler",   "compile", "validation",  "fp8",
                                          "step_scheduler", "dataset", "dataloader",  "loss_fn"};
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) names[found++] = foreign[i];
    return str_nearest(section, names, found);
}

static void list_keys(char *out, size_t size, const char *section) {
    int count;
    size_t length = 0;
    const config_key *keys = table_keys(&count);
    for (int i = 0; i < count && length + 80 < size; i++)
        if (is_below(keys[i].path, section))
            length += (size_t)snprintf(out + length, size - length, "%s%s", length ? ", " : "", keys[i].name);
}

static ott_status fail_section(const char *place, const char *section) {
    const char *near = nearest_section(section);
    if (near)
        return status_fail(OTT_ERR_CONFIG, "%s: unknown section [%s]; did you mean [%s]?", place, section,
                           near);
    char list[512] = "";
    int count;
    size_t length = 0;
    const config_section *sections = table_sections(&count);
    for (int i = 0; i < count; i++)
        length +=
            (size_t)snprintf(list + length, sizeof list - length, "%s%s", i ? ", " : "", sections[i].name);
    return status_fail(OTT_ERR_CONFIG, "%s: unknown section [%s]; the sections are %s", place, section, list);
}

ott_status assign_fail_unknown(const char *place, const char *path) {
    char section[128], list[2048] = "";
    size_t span = strcspn(path, ".");
    if (span >= sizeof section) return status_fail(OTT_ERR_CONFIG, "%s: unknown key %.80s...", place, path);
    memcpy(section, path, span);
    section[span] = '\0';
    if (!path[span] || !assign_knows_below(section)) {
        const char *here = path[span] ? NULL : nearest_name(NULL, path);
        if (here)
            return status_fail(OTT_ERR_CONFIG, "%s: unknown key %s; did you mean %s?", place, path,
                               path_of_name(here));
        return fail_section(place, section);
    }
    const char *name = path + span + 1, *near = nearest_name(section, name);
    if (near)
        return status_fail(OTT_ERR_CONFIG, "%s: unknown key %s; did you mean %s.%s?", place, path, section,
                           near);
    near = nearest_name(NULL, alias_last_component(name));
    if (near)
        return status_fail(OTT_ERR_CONFIG, "%s: unknown key %s; did you mean %s?", place, path,
                           path_of_name(near));
    list_keys(list, sizeof list, section);
    return status_fail(OTT_ERR_CONFIG, "%s: unknown key %s; the keys of [%s] are %s", place, path, section,
                       list);
}

/* "run.toml:3: train.seq_len = 512" in the arena. */
static ott_status describe(config *cfg, const char *file, const char *path, const node *value,
                           const char **out) {
    str shown = {.account = cfg->book->account};
    str_printf(&shown, "%s:%d: %s = ", file, value->line, path);
    tree_show(&shown, value);
    ott_status status = str_finish(&shown);
    if (status == OTT_OK) status = arena_strdup(cfg->book->memory, shown.text, out);
    str_free(&shown);
    return status;
}

static ott_status assign_leaf(config *cfg, const char *file, const char *path, const node *value) {
    const char *where;
    if (!assign_knows(path)) {
        if (tree_is_null(value) && assign_knows_below(path)) return OTT_OK; /* an empty section */
        TRY(arena_printf(cfg->book->memory, &where, "%s:%d", file, value->line));
        return assign_fail_unknown(where, path);
    }
    TRY(describe(cfg, file, path, value, &where));
    return assign_path(cfg, path, value, where);
}

static ott_status assign_table(config *cfg, const char *file, const char *path, const node *table) {
    for (const node *child = table->first; child; child = child->next) {
        const char *below;
        TRY(arena_printf(cfg->book->memory, &below, "%s%s%s", path, *path ? "." : "", child->name));
        bool leaf = child->kind != NODE_TABLE || (table_find(below) && !assign_knows_below(below));
        if (child->kind == NODE_TABLE && !*path && !assign_knows_below(below))
            leaf = true; /* an unknown section */
        TRY(leaf ? assign_leaf(cfg, file, below, child) : assign_table(cfg, file, below, child));
    }
    return OTT_OK;
}

ott_status assign_tree(config *cfg, const char *file, const node *root) {
    cfg->book->reading_file = true;
    ott_status status = assign_table(cfg, file, "", root);
    cfg->book->reading_file = false;
    int count;
    table_keys(&count);
    for (int i = 0; i < count; i++) cfg->book->keys[i].in_file = false;
    return status;
}
