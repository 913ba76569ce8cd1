/* config/compat/foreign_model: other tools' keys of the model: torchtitan's name and flavor, AutoModel's
   class and folder. */
#include "base/file/file.h"
#include "config/assign.h"
#include "config/value.h"
#include <stdio.h>
#include <string.h>

/* --- torchtitan: [model] name and flavor --- */

ott_status foreign_model_name(config *cfg, const node *value, const char *where) {
    if (tree_is_null(value)) return cfg->state->foreign.family = NULL, OTT_OK;
    const char *word = value->text ? value->text : "";
    if (strcmp(word, "llama") != 0 && strcmp(word, "qwen3") != 0)
        return status_fail(OTT_ERR_CONFIG, "%s is not supported; supported: llama3 and qwen3", where);
    cfg->state->foreign.family = word;
    return OTT_OK;
}

ott_status foreign_flavor(config *cfg, const node *value, const char *where) {
    foreign_state *f = &cfg->state->foreign;
    f->flavor = tree_is_null(value) ? NULL : value->text ? value->text : "";
    f->flavor_where = where;
    return OTT_OK;
}

/* Removes an ending such as _flex (attention inside each document) from "8B_flex". True if there was one. */
static bool strip_mask(char *flavor) {
    static const char *const endings[] = {"_flex_attn_hf", "_flex_attn", "_varlen_attn",
                                          "_flex_flash",   "_flex",      "_varlen"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (str_ends_with(flavor, endings[i]))
            return flavor[strlen(flavor) - strlen(endings[i])] = '\0', true;
    return false;
}

/* Fails with the flavors of a family: the presets that begin with `prefix` (empty for llama). */
static ott_status fail_flavor(const config_key *key, const char *where, const char *prefix) {
    char list[256] = "";
    size_t length = 0;
    for (int i = 1; i < key->choice_count; i++) {
        const char *word = key->choices[i].text;
        bool ours = *prefix ? str_starts_with(word, prefix) : !strchr(word, '-');
        if (ours)
            length += (size_t)snprintf(list + length, sizeof list - length, "%s%s", length ? ", " : "",
                                       word + strlen(prefix));
    }
    return status_fail(OTT_ERR_CONFIG, "%s is not a known flavor of %s; known: %s", where,
                       *prefix ? "qwen3" : "llama3", list);
}

static ott_status finalize_flavor(config *cfg) {
    foreign_state kept = cfg->state->foreign, *f = &cfg->state->foreign;
    const config_key *key = table_find("model.preset");
    const char *prefix = f->family && strcmp(f->family, "qwen3") == 0 ? "qwen3-" : "";
    char flavor[64], word[80];
    if (!f->flavor || *cfg->model.hf_path || diagnostic_has_error(cfg, "model.name")) return OTT_OK;
    snprintf(flavor, sizeof flavor, "%s", f->flavor);
    bool masked = strip_mask(flavor);
    bool debug = strcmp(flavor, "debugmodel") == 0;
    snprintf(word, sizeof word, "%s%s", prefix, debug ? "debug" : flavor);
    if (table_choice(key, word) < 0) return fail_flavor(key, f->flavor_where, prefix);
    TRY(assign_word(cfg, key->path, word, f->flavor_where));
    if (masked && !state_note(cfg, "data.pack_sequences")->set)
        TRY(assign_word(cfg, "data.pack_sequences", "true", f->flavor_where));
    *f = kept; /* restores *f, which assign_word changed as if the user had set our key */
    return OTT_OK;
}

/* --- AutoModel: from_pretrained loads a folder's weights, from_config reads only its config.json --- */

ott_status foreign_model_target(config *cfg, const node *value, const char *where) {
    const char *word = value->text ? value->text : "";
    bool from_config = strcmp(word, "from_config") == 0;
    if (strcmp(word, "gpt2") == 0) return assign_word(cfg, "model.family", word, where);
    if (!tree_is_null(value) && !from_config && strcmp(word, "from_pretrained") != 0)
        return status_fail(OTT_ERR_CONFIG,
                           "%s is not supported; supported: NeMoAutoModelForCausalLM.from_pretrained, "
                           "NeMoAutoModelForCausalLM.from_config, build_gpt2_model",
                           where);
    cfg->state->foreign.from_config = from_config;
    return OTT_OK;
}

ott_status foreign_load_base_model(config *cfg, const node *value, const char *where) {
    bool load = false;
    if (!tree_is_null(value) && !value_bool(value, &load))
        return status_fail(OTT_ERR_CONFIG, "%s must be true or false", where);
    cfg->state->foreign.loads_base = load;
    return OTT_OK;
}

static void finalize_weights(config *cfg) {
    const foreign_state *f = &cfg->state->foreign;
    if (!f->from_config || f->loads_base || !*cfg->model.hf_path) return;
    if (!state_note(cfg, "model.reduce")->set)
        cfg->model.reduce = 1; /* random weights, all dimensions from config.json */
}

/* Reports an error if another tool's file names an unsupported model, unless a folder has this name. */
static ott_status refuse_unsupported(config *cfg) {
    const key_note *note = state_note(cfg, "model.hf_path");
    const char *asked = alias_asked("hub", cfg->model.hf_path);
    if (!asked || !note->spelled || strcmp(note->spelled, "model.hf_path") == 0) return OTT_OK;
    if (file_exists(cfg->model.hf_path)) return OTT_OK;
    return diagnostic_add(cfg, DIAGNOSTIC_ERROR, note->spelled, NULL, note->where, asked);
}

ott_status foreign_finalize_model(config *cfg) {
    finalize_weights(cfg);
    TRY(refuse_unsupported(cfg));
    return finalize_flavor(cfg);
}

/* AutoModel's top-level seed; rng.seed overrides it. */
ott_status foreign_seed(config *cfg, const node *value, const char *where) {
    const key_note *note = state_note(cfg, "train.seed");
    if ((cfg->state->reading_file && note->in_file) || tree_is_null(value)) return OTT_OK;
    bool kept = cfg->state->deriving;
    cfg->state->deriving = true;
    ott_status status = assign_key(cfg, table_find("train.seed"), value, where, "seed");
    cfg->state->deriving = kept;
    return status;
}
