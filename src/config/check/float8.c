/* config/check/float8: checks of [float8]. */
#include "config/check/check.h"
#include "fp8/recipe_names.h"
#include "fp8/recipe_text.h"
#include <stdio.h>
#include <string.h>

/* True if one of the words in `text` is a name of the recipe `wanted`. */
static bool text_names_recipe(const char *text, const char *wanted) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    for (const char *at = text; *at; at += strspn(at, letters)) {
        char word[64];
        at += strcspn(at, letters);
        snprintf(word, sizeof word, "%.*s", (int)strspn(at, letters), at);
        const char *own = recipe_canonical_name(word);
        if (strcmp(own ? own : word, wanted) == 0) return true;
    }
    return false;
}

/* True if the run uses the recipe, for all steps and layers or for some. */
static bool uses_recipe(const config *cfg, const char *name) {
    if (strcmp(config_word(cfg, "float8.recipe_name"), name) == 0) return true;
    for (int64_t i = 0; i < cfg->float8.module.count; i++) {
        const char *equals = strrchr(cfg->float8.module.items[i], '=');
        if (equals && text_names_recipe(equals + 1, name)) return true;
    }
    return text_names_recipe(cfg->float8.schedule, name);
}

static bool uses_any_recipe(const config *cfg, const char *recipes) {
    const config_key *key = table_find("float8.recipe_name");
    for (int i = 0; i < key->choice_count; i++)
        if (text_names_recipe(recipes, key->choices[i].text) && uses_recipe(cfg, key->choices[i].text))
            return true;
    return false;
}

/* Options that only some recipes read. */
static const struct {
    const char *key, *recipes;
} recipe_options[] = {
    {"float8.margin", "delayed"},
    {"float8.amax_history_len", "delayed"},
    {"float8.amax_compute_algo", "delayed"},
    {"float8.reduce_amax", "delayed"},
    {"float8.amax_epsilon", "current, block"},
    {"float8.use_f32_scales", "block"},
    {"float8.mx_scale", "mxfp8"},
    {"float8.round_scales_to_power_of_2", "tensorwise, rowwise, rowwise_with_gw_hp, current, block, custom"},
    {"float8.fp8_format", "delayed, current, block, mxfp8"},
};

/* Fails if the key has a value other than its default, but the run uses none of its recipes "a, b". */
static ott_status check_recipe_option(const config *cfg, const char *path, const char *recipes) {
    const config_key *key = table_find(path);
    if (!config_was_set(cfg, path) || config_is_neutral(cfg, key)) return OTT_OK;
    if (uses_any_recipe(cfg, recipes)) return OTT_OK;
    FAIL("%s has no effect with float8.recipe_name = \"%s\"; it is for %s", config_where(cfg, path),
         config_word(cfg, "float8.recipe_name"), recipes);
}

/* Checks the syntax of the casts of GEMM operands. Converting the model checks whether they fit together. */
static ott_status check_operands(config *cfg) {
    static const char *const keys[] = {"float8.input",       "float8.input_for_grad_weight",
                                       "float8.weight",      "float8.weight_for_grad_input",
                                       "float8.grad_output", "float8.grad_output_for_grad_weight"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *text = table_get(cfg, table_find(keys[i])).text;
        cast_spec ignored;
        ott_status status = *text ? recipe_cast_parse(text, OTT_BF16, &ignored) : OTT_OK;
        TRY(config_collect(cfg, status_context(status, "%s", config_where(cfg, keys[i]))));
    }
    return OTT_OK;
}

/* True if weights are cast to FP8 with one scale per tensor. */
static bool weight_is_tensorwise(const config *cfg) {
    const recipe *row = recipe_find(config_word(cfg, "float8.recipe_name"));
    cast_spec weight = {.format = OTT_BF16};
    if (row) weight = row->weight.rowwise;
    bool known = !*cfg->float8.weight || recipe_cast_parse(cfg->float8.weight, OTT_BF16, &weight) == OTT_OK;
    return known && cast_spec_is_fp8(&weight) && weight.grain == GRANULARITY_TENSOR;
}

static ott_status fail_tensorwise(const config *cfg, const char *path) {
    FAIL("%s: %s only supports tensorwise scaling granularity, got %s", config_where(cfg, path), path + 7,
         *cfg->float8.weight ? cfg->float8.weight : config_word(cfg, "float8.recipe_name"));
}

/* FP8 all-gather and precomputed scales need one scale per tensor, as in torchao. Fails if their keys are
   true with another recipe. In AutoModel's files such keys become false, because AutoModel ignores them. */
static ott_status check_tensorwise(config *cfg) {
    static const char *const paths[] = {"float8.enable_fsdp_float8_all_gather",
                                        "float8.precompute_float8_dynamic_scale_for_fsdp"};
    bool *const flags[] = {&cfg->float8.enable_fsdp_float8_all_gather,
                           &cfg->float8.precompute_float8_dynamic_scale_for_fsdp};
    bool drops = cfg->state->foreign.config_format == CONFIG_FORMAT_AUTOMODEL;
    const char *dropped[2] = {NULL, NULL};
    if (weight_is_tensorwise(cfg)) return OTT_OK;
    for (int i = 0; i < 2; i++) {
        if (!*flags[i]) continue;
        if (config_was_set(cfg, paths[i]) && !drops) {
            TRY(config_collect(cfg, fail_tensorwise(cfg, paths[i])));
        } else {
            *flags[i] = false;
            if (config_was_set(cfg, paths[i])) dropped[dropped[0] != NULL] = config_where(cfg, paths[i]);
        }
    }
    if (dropped[0])
        log_info(cfg->state->lg,
                 "%s%s%s: ignored, as in AutoModel: FP8 all-gather and precomputed scales need "
                 "tensorwise weights, and the recipe is %s",
                 dropped[0], dropped[1] ? ", " : "", dropped[1] ? dropped[1] : "",
                 config_word(cfg, "float8.recipe_name"));
    return OTT_OK;
}

/* Warns about each key of [float8] that is given although the run does not use FP8. */
static void log_no_effect(const config *cfg) {
    int count;
    const config_key *keys = table_keys(&count);
    for (int i = 0; i < count; i++) {
        bool asks = strcmp(keys[i].path, "float8.recipe_name") == 0 || !config_is_neutral(cfg, &keys[i]);
        if (strcmp(keys[i].section, "float8") == 0 && config_was_set(cfg, keys[i].path) && asks)
            log_warning(cfg->state->lg, "%s has no effect: train.mixed_precision is %s, not fp8",
                        config_where(cfg, keys[i].path), config_word(cfg, "train.mixed_precision"));
    }
}

ott_status check_float8(config *cfg) {
    if (cfg->train.mixed_precision != PRECISION_FP8) return log_no_effect(cfg), OTT_OK;
    for (size_t i = 0; i < sizeof recipe_options / sizeof *recipe_options; i++)
        TRY(config_collect(cfg, check_recipe_option(cfg, recipe_options[i].key, recipe_options[i].recipes)));
    TRY(check_operands(cfg));
    return check_tensorwise(cfg);
}
