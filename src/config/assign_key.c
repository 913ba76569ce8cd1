/* config/assign_key: sets a key of the schema. */
#include "config/assign.h"
#include "config/parse/number.h"
#include "config/rules.h"
#include "config/value.h"
#include "fp8/recipe_names.h"
#include <stdio.h>
#include <string.h>

void assign_default(config *cfg, const config_key *key) {
    table_put(cfg, key, &key->fallback);
    key_note *note = &cfg->state->keys[table_index(key)];
    *note = (key_note){.in_file = note->in_file};
}

/* Several keys of another tool may set our key. `deriving` prevents an error when a second one sets it. */
ott_status assign_word(config *cfg, const char *path, const char *word, const char *where) {
    node n = {.kind = NODE_PLAIN, .text = word};
    const config_key *key = table_find(path);
    bool kept = cfg->state->deriving;
    cfg->state->deriving = true;
    ott_status status = assign_key(cfg, key, &n, where, key->path);
    cfg->state->deriving = kept;
    return status;
}

/* Fails if one file sets a key twice, under two names, to different values. */
static ott_status check_twice(const config *cfg, const config_key *key, const config_value *value,
                              const char *where) {
    const key_note *note = &cfg->state->keys[table_index(key)];
    if (!cfg->state->reading_file || cfg->state->deriving || !note->in_file) return OTT_OK;
    config_value old = table_get(cfg, key);
    if (table_equal(key, &old, value)) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG, "%s sets the same key as %s", where, note->where);
}

/* Reads activation_checkpointing = 2 as every_n with activation_checkpointing_every = 2. */
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

ott_status assign_translate(config *cfg, const char *name, const config_key *target, const node **value,
                            const char *where, const char *spelled, node *ours) {
    const alias_value *row = (*value)->text ? alias_value_find(name, (*value)->text) : NULL;
    if (!row) return OTT_OK;
    *ours = (node){.kind = NODE_PLAIN, .line = (*value)->line, .text = row->ours};
    *value = row->ours ? ours : NULL;
    if (row->ours) return OTT_OK;
    return diagnostic_add(cfg, DIAGNOSTIC_ERROR, spelled, target, where, row->asks);
}

/* Translates other tools' names of FP8 recipes (fp8/recipe_names.h) into ours. */
static ott_status name_recipe(const config_key *key, const node **value, const char *where, node *ours) {
    if (!(*value)->text || strcmp(key->path, "float8.recipe_name") != 0) return OTT_OK;
    const char *own = recipe_canonical_name((*value)->text), *advice = recipe_word_advice((*value)->text);
    if (!own && advice) return status_fail(OTT_ERR_CONFIG, "%s is not a recipe: %s", where, advice);
    if (!own || table_choice(key, own) < 0) return OTT_OK;
    *ours = (node){.kind = NODE_PLAIN, .line = (*value)->line, .text = own};
    return *value = ours, OTT_OK;
}

/* A preset given as an option resets the model dimensions that the file set, but not those set by options. */
static ott_status replace_dimensions(config *cfg, const char *where) {
    static const char *const keys[] = {
        "family",         "dim",        "n_layers",           "n_heads",        "n_kv_heads",
        "head_dim",       "vocab_size", "ffn_dim_multiplier", "ffn_hidden_dim", "max_seq_len",
        "tie_embeddings", "norm_eps",   "rope_theta",         "rope_scaling",   "rope_factor"};
    str replaced = {.account = cfg->state->account};
    if (cfg->state->reading_file || cfg->state->deriving || cfg->model.preset == PRESET_NONE) return OTT_OK;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char path[64];
        snprintf(path, sizeof path, "model.%s", keys[i]);
        if (!state_note(cfg, path)->from_file) continue;
        assign_default(cfg, table_find(path));
        str_printf(&replaced, "%s%s", replaced.length ? ", " : "", path);
    }
    ott_status status = replaced.length ? str_finish(&replaced) : OTT_OK;
    if (status == OTT_OK && replaced.length)
        log_info(cfg->state->lg, "%s replaces %s of %s", where, replaced.text, cfg->path);
    str_free(&replaced);
    return status;
}

ott_status assign_key(config *cfg, const config_key *key, const node *value, const char *where,
                      const char *spelled) {
    key_note *note = &cfg->state->keys[table_index(key)];
    node ours;
    config_value typed;
    if (!cfg->state->reading_file && !cfg->state->deriving) diagnostic_remove(cfg, NULL, key);
    bool word = value->text && key->type == KEY_CHOICE && table_choice(key, value->text) >= 0;
    if (tree_is_null(value) && !word) return assign_default(cfg, key), OTT_OK;
    TRY(take_number(cfg, key, &value, where, spelled));
    TRY(rules_read(cfg->state->memory, key, &value, where));
    /* One of the key's own words is not translated, even if another tool also uses it. */
    if (!word) TRY(assign_translate(cfg, key->path, key, &value, where, spelled, &ours));
    if (!value) return OTT_OK;
    TRY(name_recipe(key, &value, where, &ours));
    TRY(value_read(cfg->state->memory, key, value, where, &typed));
    TRY(check_twice(cfg, key, &typed, where));
    table_put(cfg, key, &typed);
    *note = (key_note){.set = true,
                       .in_file = cfg->state->reading_file && !cfg->state->deriving,
                       .where = where,
                       .spelled = spelled,
                       .from_file = cfg->state->reading_file};
    foreign_key_was_set(cfg, key);
    return strcmp(key->path, "model.preset") == 0 ? replace_dimensions(cfg, where) : OTT_OK;
}
