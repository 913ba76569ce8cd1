/* config/compat/foreign_fp8: other tools' FP8 keys: a dtype and a separate FP8 switch, torchtitan's
   converters, AutoModel's te_fp8. */
#include "config/assign.h"
#include "config/value.h"
#include "fp8/recipe_names.h"
#include <string.h>

/* --- Precision: a dtype and a separate FP8 switch --- */

static ott_status finalize_precision(config *cfg, const char *where) {
    foreign_state kept = cfg->state->foreign, *f = &cfg->state->foreign;
    const config_key *key = table_find("train.mixed_precision");
    config_precision p = f->fp8 == 1 || f->te_fp8 ? PRECISION_FP8
                         : f->precision >= 0      ? (config_precision)f->precision
                                                  : PRECISION_BF16;
    TRY(assign_word(cfg, key->path, key->choices[p].text, where));
    *f = kept; /* restores *f, which assign_word changed as if the user had set our key */
    return OTT_OK;
}

/* Reads a list or a comma-separated text: ["float8"] or "float8". */
static ott_status as_list(config *cfg, const node *value, const char *where, str_list *out) {
    config_value list;
    *out = (str_list){0};
    if (tree_is_null(value)) return OTT_OK;
    TRY(value_read(cfg->state->memory, table_find("float8.filter_fqns"), value, where, &list));
    return *out = list.list, OTT_OK;
}

/* Stores what one of torchtitan's converters turns on. */
static ott_status read_converter(config *cfg, const char *name, const char *where) {
    foreign_state *f = &cfg->state->foreign;
    const char *kind = str_starts_with(name, "quantize.linear.") ? name + strlen("quantize.linear.") : name;
    if (strcmp(kind, "float8") == 0) {
        f->fp8 = 1;
    } else if (strcmp(kind, "mx") == 0) {
        f->fp8 = 1;
        f->mx = true;
        return assign_word(cfg, "float8.recipe_name", "mxfp8", where);
    } else if (strcmp(name, "quantize.grouped_mm.float8") == 0) {
        f->expert_recipe = "rowwise";
    } else if (strcmp(name, "quantize.grouped_mm.mx") == 0) {
        f->expert_recipe = "mxfp8";
    } else {
        return status_fail(
            OTT_ERR_CONFIG,
            "%s: \"%s\" is not one of \"float8\", \"quantize.linear.float8\", \"mx\", "
            "\"quantize.linear.mx\", \"quantize.grouped_mm.float8\", \"quantize.grouped_mm.mx\"",
            where, str_show(name).text);
    }
    return OTT_OK;
}

ott_status foreign_converters(config *cfg, const node *value, const char *where) {
    foreign_state *f = &cfg->state->foreign;
    str_list names;
    TRY(as_list(cfg, value, where, &names));
    f->fp8 = 0;
    f->mx = false;
    f->expert_recipe = NULL;
    for (int64_t i = 0; i < names.count; i++) TRY(read_converter(cfg, names.items[i], where));
    f->only_experts = f->expert_recipe && f->fp8 == 0;
    if (f->expert_recipe) f->fp8 = 1;
    return finalize_precision(cfg, where);
}

/* Checks torchtitan's list of expert modules to convert. Ottava runs all experts in FP8 or none. */
ott_status foreign_expert_names(config *cfg, const node *value, const char *where) {
    str_list names;
    TRY(as_list(cfg, value, where, &names));
    for (int64_t i = 0; i < names.count; i++)
        if (strcmp(names.items[i], "experts") != 0)
            return status_fail(
                OTT_ERR_CONFIG,
                "%s: \"%s\" does not name all experts, and single ones cannot be selected: give "
                "\"experts\", or remove the key",
                where, str_show(names.items[i]).text);
    return OTT_OK;
}

/* Applies torchtitan's grouped_mm converter: experts use its recipe (float8.module). If there is no converter
   for linear layers, other layers stay in bf16. */
static ott_status finalize_experts(config *cfg) {
    const foreign_state *f = &cfg->state->foreign;
    const char *text;
    if (!f->expert_recipe || state_note(cfg, "float8.moe_experts")->set ||
        state_note(cfg, "float8.module")->set)
        return OTT_OK;
    cfg->float8.moe_experts = true;
    TRY(arena_printf(cfg->state->memory, &text, "*.experts.*=%s%s", f->expert_recipe,
                     f->only_experts ? ",*=bf16" : ""));
    node n = {.kind = NODE_TEXT, .text = text};
    str_list rules;
    TRY(as_list(cfg, &n, "model.converters", &rules));
    cfg->float8.module = rules;
    return OTT_OK;
}

/* torchao's MX recipes differ in kernels and in the rounding of scales. Ottava applies only the rounding. */
ott_status foreign_mx_recipe(config *cfg, const node *value, const char *where) {
    static const char words[] = "mxfp8=|mxfp8_emulated=|mxfp8_cublas=|mxfp8_cublas_rceil=";
    char ignored[64];
    const char *word = tree_is_null(value) ? "mxfp8" : value->text ? value->text : "";
    if (!alias_translate(words, word, ignored))
        return status_fail(OTT_ERR_CONFIG,
                           "%s is not one of \"mxfp8\", \"mxfp8_emulated\", \"mxfp8_cublas\", "
                           "\"mxfp8_cublas_rceil\"",
                           where);
    cfg->state->foreign.mx_rounds_up = str_ends_with(word, "_rceil");
    return OTT_OK;
}

ott_status foreign_mx_filter(config *cfg, const node *value, const char *where) {
    return as_list(cfg, value, where, &cfg->state->foreign.mx_filter);
}

/* If the MX converter is on, applies the keys of [mx] to those of our keys that are not set. */
static void finalize_mx(config *cfg) {
    const foreign_state *f = &cfg->state->foreign;
    if (!f->mx) return;
    if (!state_note(cfg, "float8.filter_fqns")->set) cfg->float8.filter_fqns = f->mx_filter;
    if (!state_note(cfg, "float8.mx_scale")->set && cfg->float8.recipe_name == RECIPE_MXFP8)
        cfg->float8.mx_scale = f->mx_rounds_up ? MX_SCALE_ROUNDUP : MX_SCALE_FLOOR;
}

ott_status foreign_fp8_enabled(config *cfg, const node *value, const char *where) {
    bool on = false;
    if (!tree_is_null(value) && !value_bool(value, &on))
        return status_fail(OTT_ERR_CONFIG, "%s must be true or false", where);
    cfg->state->foreign.fp8 = on;
    if (!on && !cfg->state->reading_file) cfg->state->foreign.te_fp8 = false;
    return finalize_precision(cfg, where);
}

ott_status foreign_precision(config *cfg, const node *value, const char *where) {
    static const char words[] = "bfloat16=0|bf16=0|float16=1|fp16=1|float32=2|fp32=2|auto=3";
    foreign_state *f = &cfg->state->foreign;
    char digit[64] = "3";
    bool known = tree_is_null(value) ||
                 (value->text && alias_translate(words, alias_last_component(value->text), digit));
    if (!known)
        return status_fail(OTT_ERR_CONFIG,
                           "%s is not one of \"bfloat16\", \"float16\", \"float32\", \"auto\"", where);
    f->precision = digit[0] == '3' ? -1 : digit[0] - '0';
    f->precision_where = where;
    return finalize_precision(cfg, where);
}

/* --- AutoModel: TransformerEngine's FP8, enabled by its section --- */

static ott_status turn_on_te(config *cfg, const char *recipe, const char *where) {
    cfg->state->foreign.te_fp8 = true;
    if (recipe) TRY(assign_word(cfg, "float8.recipe_name", recipe, where));
    return finalize_precision(cfg, where);
}

/* `te_fp8: null` has no effect in a file; as an option it turns FP8 off. */
ott_status foreign_te_section(config *cfg, const node *value, const char *where) {
    bool was_set = state_note(cfg, "float8.recipe_name")->set;
    if (!tree_is_null(value)) return turn_on_te(cfg, was_set ? NULL : "current", where);
    if (cfg->state->reading_file) return OTT_OK;
    cfg->state->foreign.te_fp8 = false;
    return finalize_precision(cfg, where);
}

ott_status foreign_te_recipe(config *cfg, const node *value, const char *where) {
    const char *own = value->text ? recipe_canonical_name(value->text) : NULL;
    if (tree_is_null(value)) return foreign_te_section(cfg, value, where);
    if (!own || !table_word_in("current|block|mxfp8|delayed", own))
        return status_fail(OTT_ERR_CONFIG,
                           "%s is not one of \"current\", \"block\", \"mxfp8\", or a class of "
                           "TransformerEngine's recipes",
                           where);
    return turn_on_te(cfg, own, where);
}

ott_status foreign_te_experts(config *cfg, const node *value, const char *where) {
    (void)where;
    cfg->state->foreign.te_experts = value->text && strcmp(value->text, "te") == 0;
    return OTT_OK;
}

/* With te_fp8 TransformerEngine also runs experts in FP8. Ottava can do so in recipes block and mxfp8. */
static void finalize_te(config *cfg) {
    const foreign_state *f = &cfg->state->foreign;
    bool can = cfg->float8.recipe_name == RECIPE_BLOCK || cfg->float8.recipe_name == RECIPE_MXFP8;
    if (f->te_fp8 && f->te_experts && can && !state_note(cfg, "float8.moe_experts")->set)
        cfg->float8.moe_experts = true;
}

/* --- After everything --- */

ott_status foreign_finalize_float8(config *cfg) {
    const foreign_state *f = &cfg->state->foreign;
    finalize_mx(cfg);
    finalize_te(cfg);
    TRY(finalize_experts(cfg));
    if (cfg->train.mixed_precision != PRECISION_FP8 || f->precision <= PRECISION_BF16) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG,
                       "%s does not work with FP8 training, which has bf16 activations; remove it",
                       f->precision_where);
}
