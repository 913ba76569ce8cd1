/* config/assign: sets keys to values of a parsed file, under our names or other tools' names. */
#include "config/assign.h"
#include "config/value.h"
#include <string.h>

static const char *last_word(const node *value) {
    return value->text ? alias_last_component(value->text) : "";
}

/* Fails and lists the alias's allowed words: the "theirs" of "theirs=ours|...", or all words of "a|b". */
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
    bool closed = a->kind == ALIAS_CLOSED;
    return status_fail(OTT_ERR_CONFIG, closed ? "%s is not supported; supported: %s" : "%s is not one of %s",
                       where, list);
}

static ott_status assign_words(config *cfg, const config_alias *a, const node *value, const char *where) {
    char ours[64];
    if (tree_is_null(value)) return assign_key(cfg, table_find(a->target), value, where, a->path);
    bool on;
    bool known = alias_translate(a->words, last_word(value), ours) ||
                 (value_bool(value, &on) && alias_translate(a->words, on ? "true" : "false", ours));
    if (!known) return fail_words(a, where);
    node word = {.kind = NODE_PLAIN, .text = ours};
    return assign_key(cfg, table_find(a->target), &word, where, a->path);
}

static ott_status assign_closed(const config_alias *a, const node *value, const char *where) {
    if (tree_is_null(value) || table_word_in(a->words, last_word(value))) return OTT_OK;
    return fail_words(a, where);
}

/* True if the value requests nothing: null, an empty text, list or table, or a neutral word of the alias. */
static bool asks_for_nothing(const config_alias *a, const node *value) {
    if (tree_is_null(value)) return true;
    if (value->kind == NODE_LIST || value->kind == NODE_TABLE) return !value->first;
    bool on;
    const char *word = value_bool(value, &on) && value->kind != NODE_INTEGER ? (on ? "true" : "false") : "";
    if (!*value->text || !a->neutral) return !*value->text;
    return table_word_in(a->neutral, value->text) || table_word_in(a->neutral, word);
}

static ott_status diagnostic_on(config *cfg, const config_alias *a, const char *path, const node *value,
                                const char *where) {
    diagnostic_kind kind = a->kind == ALIAS_REFUSED   ? DIAGNOSTIC_ERROR
                           : a->kind == ALIAS_IGNORED ? DIAGNOSTIC_INSTEAD
                                                      : DIAGNOSTIC_INERT;
    if (asks_for_nothing(a, value)) return OTT_OK;
    if (kind == DIAGNOSTIC_INERT) where = a->path;
    return diagnostic_add(cfg, kind, path, NULL, where, a->words);
}

static ott_status assign_alias(config *cfg, const config_alias *a, const char *path, const node *value,
                               const char *where) {
    node ours;
    if (!cfg->state->reading_file) diagnostic_remove(cfg, path, NULL);
    TRY(assign_translate(cfg, path, a->target ? table_find(a->target) : NULL, &value, where, path, &ours));
    if (!value) return OTT_OK;
    switch (a->kind) {
    case ALIAS_SAME: return assign_key(cfg, table_find(a->target), value, where, a->path);
    case ALIAS_WORDS: return assign_words(cfg, a, value, where);
    case ALIAS_SPECIAL: return a->function(cfg, value, where);
    case ALIAS_CLOSED: return assign_closed(a, value, where);
    case ALIAS_IGNORED:
    case ALIAS_REFUSED:
    case ALIAS_INERT: return diagnostic_on(cfg, a, path, value, where);
    }
    return OTT_OK;
}

ott_status assign_path(config *cfg, const char *path, const node *value, const char *where) {
    const config_key *key = table_find(path);
    const char *name;
    bool on;
    if (value_bool(value, &on)) TRY(diagnostic_switched(cfg, path, on));
    if (tree_is_null(value) && !cfg->state->reading_file) diagnostic_remove_section(cfg, path);
    if (key) return assign_key(cfg, key, value, where, key->path);
    TRY(arena_strdup(cfg->state->memory, path, &name));
    return assign_alias(cfg, alias_find(path), name, value, where);
}

bool assign_is_switch(const char *path) {
    const config_key *key = table_find(path);
    const config_alias *a = key ? NULL : alias_find(path);
    if (!key && a && (a->kind == ALIAS_SAME || a->kind == ALIAS_WORDS)) key = table_find(a->target);
    if (a && a->kind == ALIAS_WORDS)
        return str_starts_with(a->words, "true=") || str_starts_with(a->words, "false=");
    if (a && a->kind == ALIAS_SPECIAL) return a->function == foreign_fp8_enabled;
    if (a && a->kind != ALIAS_SAME) return true; /* a value without effect may be missing */
    return key && (key->type == KEY_BOOL || (key->type == KEY_CHOICE && table_choice(key, "true") >= 0));
}

/* Writes "run.toml:3: train.seq_len = 512" into the arena. */
static ott_status describe_leaf(config *cfg, const char *file, const char *path, const node *value,
                                const char **out) {
    str shown = {.account = cfg->state->account};
    str_printf(&shown, "%s:%d: %s = ", file, value->line, path);
    tree_show(&shown, value);
    ott_status status = str_finish(&shown);
    if (status == OTT_OK) status = arena_strdup(cfg->state->memory, shown.text, out);
    str_free(&shown);
    return status;
}

/* Returns the first error message in the value or its children, for example that an environment variable is
   not set; NULL if there is no error. */
static const char *find_trouble(const node *value) {
    const char *found = value->trouble;
    for (const node *child = value->first; child && !found; child = child->next) found = find_trouble(child);
    return found;
}

/* False for other tools' keys that only give a log line or an error. Their values are not checked. */
static bool is_read(const char *path) {
    const config_alias *a = table_find(path) ? NULL : alias_find(path);
    return !a || a->target || a->kind == ALIAS_CLOSED;
}

static ott_status give_leaf(config *cfg, const char *file, const char *path, const node *value) {
    const char *where;
    if (!alias_knows(path)) {
        if (tree_is_null(value) && alias_is_section(path)) return OTT_OK; /* an empty section is allowed */
        TRY(arena_printf(cfg->state->memory, &where, "%s:%d", file, value->line));
        return unknown_fail(where, path);
    }
    TRY(describe_leaf(cfg, file, path, value, &where));
    const char *trouble = is_read(path) ? find_trouble(value) : NULL;
    if (trouble) return status_fail(OTT_ERR_CONFIG, "%s: %s", where, trouble);
    return assign_path(cfg, path, value, where);
}

static ott_status assign_table(config *cfg, const char *file, const char *path, const node *table) {
    for (const node *child = table->first; child; child = child->next) {
        const char *child_path;
        TRY(arena_printf(cfg->state->memory, &child_path, "%s%s%s", path, *path ? "." : "", child->name));
        bool leaf = child->kind != NODE_TABLE || (table_find(child_path) && !alias_is_section(child_path));
        if (child->kind == NODE_TABLE && !*path && !alias_is_section(child_path))
            leaf = true; /* reports an unknown section once */
        TRY(leaf ? diagnostic_failure(cfg, child_path, alias_target(child_path),
                                      give_leaf(cfg, file, child_path, child))
                 : assign_table(cfg, file, child_path, child));
    }
    return OTT_OK;
}

ott_status assign_tree(config *cfg, const char *file, const node *root) {
    cfg->state->reading_file = true;
    ott_status status = assign_table(cfg, file, "", root);
    cfg->state->reading_file = false;
    int count;
    table_keys(&count);
    for (int i = 0; i < count; i++) cfg->state->keys[i].in_file = false;
    return status;
}
