/* config/assign: gives what a tree says to the keys it names, by our names or by other tools'. */
#include "config/book.h"
#include "config/number.h"
#include "config/rules.h"
#include "config/value.h"
#include "fp8/recipe_names.h"
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
 * twice; to say the same twice does no harm. */
static ott_status check_twice(const config *cfg, const config_key *key, const config_value *value,
                              const char *where) {
    const key_note *note = &cfg->book->keys[table_index(key)];
    if (!cfg->book->reading_file || cfg->book->deriving || !note->in_file) return OTT_OK;
    config_value old = table_get(cfg, key);
    if (table_equal(key, &old, value)) return OTT_OK;
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

/* What values.def knows about the word under that name: *value becomes our word in `ours`, or the word is
   refused by what it asks for, in a remark, and *value becomes NULL. */
static ott_status translate(config *cfg, const char *name, const node **value, const char *where,
                            const char *spelled, node *ours) {
    const alias_value *row = (*value)->text ? alias_value_find(name, (*value)->text) : NULL;
    if (!row) return OTT_OK;
    *ours = (node){.kind = NODE_PLAIN, .line = (*value)->line, .text = row->ours};
    *value = row->ours ? ours : NULL;
    if (row->ours) return OTT_OK;
    return remark_add(cfg, REMARK_OBSTACLE, spelled, assign_target(name), where, row->asks);
}

/* Others' names of the recipes are known where recipes are. */
static ott_status name_recipe(const config_key *key, const node **value, const char *where, node *ours) {
    if (!(*value)->text || strcmp(key->path, "float8.recipe_name") != 0) return OTT_OK;
    const char *own = recipe_own_name((*value)->text), *advice = recipe_word_advice((*value)->text);
    if (!own && advice) return status_fail(OTT_ERR_CONFIG, "%s is no recipe: %s", where, advice);
    if (!own || table_choice(key, own) < 0) return OTT_OK;
    *ours = (node){.kind = NODE_PLAIN, .line = (*value)->line, .text = own};
    *value = ours;
    return OTT_OK;
}

ott_status assign_key(config *cfg, const config_key *key, const node *value, const char *where,
                      const char *spelled) {
    key_note *note = &cfg->book->keys[table_index(key)];
    node ours;
    config_value typed;
    if (!cfg->book->reading_file && !cfg->book->deriving) remark_forget(cfg, NULL, key);
    bool word = value->text && key->type == KEY_CHOICE && table_choice(key, value->text) >= 0;
    if (tree_is_null(value) && !word) return assign_default(cfg, key), OTT_OK;
    TRY(take_number(cfg, key, &value, where, spelled));
    TRY(rules_read(cfg->book->memory, key, &value, where));
    TRY(translate(cfg, key->path, &value, where, spelled, &ours));
    if (!value) return OTT_OK;
    TRY(name_recipe(key, &value, where, &ours));
    TRY(value_read(cfg->book->memory, key, value, where, &typed));
    TRY(check_twice(cfg, key, &typed, where));
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
    bool closed = a->kind == ALIAS_CLOSED;
    return status_fail(OTT_ERR_CONFIG,
                       closed ? "%s: no such thing is built; what works: %s" : "%s is not one of %s", where,
                       list);
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

/* Nothing is asked for by null, an empty text or list, or one of the neutral words. */
static bool asks_for_nothing(const config_alias *a, const node *value) {
    if (tree_is_null(value)) return true;
    if (value->kind == NODE_LIST || value->kind == NODE_TABLE) return !value->first;
    bool on;
    const char *word = value_bool(value, &on) && value->kind != NODE_INTEGER ? (on ? "true" : "false") : "";
    if (!*value->text || !a->neutral) return !*value->text;
    return table_word_in(a->neutral, value->text) || table_word_in(a->neutral, word);
}

static ott_status remark_on(config *cfg, const config_alias *a, const char *path, const node *value,
                            const char *where) {
    remark_kind kind = a->kind == ALIAS_REFUSED   ? REMARK_OBSTACLE
                       : a->kind == ALIAS_IGNORED ? REMARK_INSTEAD
                                                  : REMARK_INERT;
    if (asks_for_nothing(a, value)) return OTT_OK;
    if (kind == REMARK_INERT) where = a->path;
    return remark_add(cfg, kind, path, NULL, where, a->words);
}

static ott_status assign_alias(config *cfg, const config_alias *a, const char *path, const node *value,
                               const char *where) {
    node ours;
    if (!cfg->book->reading_file) remark_forget(cfg, path, NULL);
    TRY(translate(cfg, path, &value, where, path, &ours));
    if (!value) return OTT_OK;
    switch (a->kind) {
    case ALIAS_SAME: return assign_key(cfg, table_find(a->target), value, where, a->path);
    case ALIAS_WORDS: return assign_words(cfg, a, value, where);
    case ALIAS_SPECIAL: return a->function(cfg, value, where);
    case ALIAS_CLOSED: return assign_closed(a, value, where);
    case ALIAS_IGNORED:
    case ALIAS_REFUSED:
    case ALIAS_INERT: return remark_on(cfg, a, path, value, where);
    }
    return OTT_OK;
}

const config_key *assign_target(const char *path) {
    const config_key *key = table_find(path);
    const config_alias *a = key ? NULL : alias_find(path);
    return a && a->target ? table_find(a->target) : key;
}

ott_status assign_path(config *cfg, const char *path, const node *value, const char *where) {
    const config_key *key = table_find(path);
    const char *name;
    bool on;
    if (value_bool(value, &on)) TRY(remark_switched(cfg, path, on));
    if (tree_is_null(value) && !cfg->book->reading_file) remark_forget_section(cfg, path);
    if (key) return assign_key(cfg, key, value, where, key->path);
    TRY(arena_strdup(cfg->book->memory, path, &name));
    return assign_alias(cfg, alias_find(path), name, value, where);
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

/* A text below the value that could not be made, as of an environment variable that is not set; NULL: none.
 */
static const char *find_trouble(const node *value) {
    const char *found = value->trouble;
    for (const node *child = value->first; child && !found; child = child->next) found = find_trouble(child);
    return found;
}

/* Does it matter what the value is? */
static bool is_read(const char *path) {
    const config_alias *a = table_find(path) ? NULL : alias_find(path);
    return !a || a->target || a->kind == ALIAS_CLOSED;
}

static ott_status give_leaf(config *cfg, const char *file, const char *path, const node *value) {
    const char *where;
    if (!assign_knows(path)) {
        if (tree_is_null(value) && assign_knows_below(path)) return OTT_OK; /* an empty section */
        TRY(arena_printf(cfg->book->memory, &where, "%s:%d", file, value->line));
        return unknown_fail(where, path);
    }
    TRY(describe(cfg, file, path, value, &where));
    const char *trouble = is_read(path) ? find_trouble(value) : NULL;
    if (trouble) return status_fail(OTT_ERR_CONFIG, "%s: %s", where, trouble);
    return assign_path(cfg, path, value, where);
}

static ott_status assign_leaf(config *cfg, const char *file, const char *path, const node *value) {
    return remark_failure(cfg, path, assign_target(path), give_leaf(cfg, file, path, value));
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
