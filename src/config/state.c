/* config/state: how each key was set. */
#include "config/state.h"
#include "config/value.h"
#include <string.h>

const key_note *state_note(const config *cfg, const char *path) {
    return &cfg->state->keys[table_index(table_find(path))];
}

bool config_was_set(const config *cfg, const char *key) {
    const config_key *found = table_find(key);
    return found && cfg->state->keys[table_index(found)].set;
}

const char *config_word(const config *cfg, const char *key) {
    const config_key *found = table_find(key);
    if (!found || found->type != KEY_CHOICE) return NULL;
    return found->choices[table_get(cfg, found).integer].text;
}

bool config_is_listed(const config *cfg, const config_key *key) {
    config_value value = table_get(cfg, key);
    str text = {.account = cfg->state->account};
    value_show(&text, key, &value);
    bool listed = str_finish(&text) == OTT_OK && table_word_in(key->neutral, text.text ? text.text : "");
    str_free(&text);
    return listed;
}

bool config_is_neutral(const config *cfg, const config_key *key) {
    config_value value = table_get(cfg, key);
    return table_equal(key, &value, &key->fallback) || config_is_listed(cfg, key);
}

bool config_is_replaced(const config *cfg, const config_key *key) {
    bool data = *cfg->data.dataset_path || cfg->data.datasets.count > 0;
    bool eval = *cfg->eval.dataset_path || cfg->eval.holdout > 0.0;
    if (strcmp(key->section, "eval") == 0 && !cfg->eval.enabled) return config_was_set(cfg, "eval.enabled");
    if (strcmp(key->path, "data.dataset") == 0 || strcmp(key->path, "data.hf_dataset_name") == 0) return data;
    if (strcmp(key->path, "eval.dataset") == 0 || strcmp(key->path, "eval.hf_dataset_name") == 0) return eval;
    return strcmp(key->path, "model.preset") == 0 && *cfg->model.hf_path;
}

const char *config_where(const config *cfg, const char *key) {
    const char *where = state_note(cfg, key)->where;
    return where ? where : key;
}
