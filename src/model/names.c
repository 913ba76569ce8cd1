/* model/names: matches configuration texts with module names, and finds the nearest name. */
#include "model/names.h"
#include "base/text/str.h"
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = MODULES_NAME_BYTES };

/* Names that only some models have. Published filter_fqns lists contain them for all models. */
static const struct {
    const char *name, *models;
} foreign_parts[] = {
    {"mlp.router.gate", "mixture-of-experts models"},
    {"moe.router.gate", "mixture-of-experts models"},
    {"mlp.experts", "mixture-of-experts models"},
    {"moe.experts", "mixture-of-experts models"},
    {"mlp.shared_expert", "mixture-of-experts models"},
    {"mlp.shared_experts", "mixture-of-experts models"},
    {"moe.shared_experts", "mixture-of-experts models"},
    {"mlp.shared_expert_gate", "mixture-of-experts models"},
    {"block_sparse_moe.gate", "mixture-of-experts models"},
    {"block_sparse_moe.experts", "mixture-of-experts models"},
    {"attention.wkv_a", "models with latent attention"},
    {"attention.wkv_b", "models with latent attention"},
    {"self_attn.kv_a_proj_with_mqa", "models with latent attention"},
    {"self_attn.kv_b_proj", "models with latent attention"},
    {"vision_tower", "vision-language models"},
    {"vision_model", "vision-language models"},
    {"vision_encoder", "vision-language models"},
    {"visual", "vision-language models"},
    {"multi_modal_projector", "vision-language models"},
};

/* ---- tests of names ---- */

bool names_contain(const char *name, const char *text) {
    return strstr(name, text) != NULL;
}

bool names_fit(const char *name, const char *pattern) {
    return str_glob(pattern, name);
}

bool names_end(const char *name, const char *pattern) {
    for (const char *at = strchr(name, '.'); at; at = strchr(at + 1, '.'))
        if (str_glob(pattern, at + 1)) return true;
    return false;
}

/* True if `part` is one or more full components of the name, like "router.gate" in "moe.router.gate". */
static bool has_components(const char *name, const char *part) {
    size_t length = strlen(part);
    for (const char *at = name; (at = strstr(at, part)); at++)
        if ((at == name || at[-1] == '.') && (at[length] == '\0' || at[length] == '.')) return length > 0;
    return false;
}

/* Returns the module's name as this framework spells it. */
static const char *name_in_style(const model_module *m, naming style, char out[NAME_BYTES]) {
    return style == NAMING_HUGGING_FACE ? m->name : modules_name(NULL, m->role, style, m->layer, out);
}

bool names_any(const model_module *m, name_test test, const char *text) {
    if (m->role == ROLE_COUNT) return test(m->name, text);
    for (int style = 0; style < NAMING_COUNT; style++) {
        char name[NAME_BYTES];
        if (test(name_in_style(m, (naming)style, name), text)) return true;
    }
    return false;
}

/* True if `test` is true for the name of any linear layer (linears false: of any other module). */
static bool any_of(const module_list *list, bool linears, name_test test, const char *text) {
    for (int i = 0; i < list->count; i++)
        if ((list->items[i].kind == MODULE_LINEAR) == linears && names_any(&list->items[i], test, text))
            return true;
    return false;
}

/* ---- the nearest name ---- */

/* Writes a pattern's longest part without wildcards. Removes dots from the start and end of the part. */
static void literal_part(const char *pattern, char out[NAME_BYTES]) {
    size_t best = 0;
    out[0] = '\0';
    for (const char *at = pattern; *at;) {
        at += strspn(at, "*?.");
        size_t span = strcspn(at, "*?"), length = span;
        while (length > 0 && at[length - 1] == '.') length--;
        if (length > best && length < NAME_BYTES) {
            memcpy(out, at, length);
            out[length] = '\0';
            best = length;
        }
        at += span;
    }
    /* Drops ".weight" or ".bias": names are compared with names of modules, not of parameters. */
    char *last = strrchr(out, '.');
    if (last && (strcmp(last, ".weight") == 0 || strcmp(last, ".bias") == 0)) *last = '\0';
}

/* Returns the first number in the text as the index of a block, at most the last block's; 0: no number. */
static int layer_in(const module_list *list, const char *text) {
    long number = strtol(text + strcspn(text, "0123456789"), NULL, 10);
    int last = 0;
    for (int i = 0; i < list->count; i++)
        if (list->items[i].layer > last) last = list->items[i].layer;
    return number < last ? (int)number : last;
}

/* Candidates for the nearest name: modules and the modules that contain them, in all frameworks. Each has
   three entries in `name`: the full name, the name inside its block, and the last component. */
typedef struct name_list {
    char full[3 * ROLE_COUNT * NAMING_COUNT][NAME_BYTES];
    const char *name[9 * ROLE_COUNT * NAMING_COUNT];
    int count;
} name_list;

static void add_module_name(name_list *list, const char *text, size_t length) {
    char *full = list->full[list->count / 3];
    memcpy(full, text, length);
    full[length] = '\0';
    const char *digits = full + strcspn(full, "0123456789"), *last = strrchr(full, '.');
    const char *inside = digits + strspn(digits, "0123456789");
    list->name[list->count++] = full;
    list->name[list->count++] = *inside == '.' ? inside + 1 : full;
    list->name[list->count++] = last && *inside == '.' ? last + 1 : full;
}

/* Adds the module's name, then the names of modules that contain it, like "model.layers.0.mlp". */
static void add_names(name_list *names, const model_module *m, naming style) {
    char buffer[NAME_BYTES];
    const char *text = name_in_style(m, style, buffer);
    size_t block = strcspn(text, "0123456789"), length = strlen(text);
    add_module_name(names, text, length);
    while (length > block) {
        do length--;
        while (length > block && text[length] != '.');
        if (length > block) add_module_name(names, text, length);
    }
}

/* Lists the names of modules in block `layer` and of modules outside of blocks. */
static void list_names(name_list *names, const module_list *list, bool linears_only, int layer) {
    names->count = 0;
    for (int style = 0; style < NAMING_COUNT; style++)
        for (int i = 0; i < list->count; i++) {
            const model_module *m = &list->items[i];
            bool is_there = m->layer == layer || m->layer == MODULES_OUTSIDE;
            if (is_there && (m->kind == MODULE_LINEAR || !linears_only)) add_names(names, m, (naming)style);
        }
}

static ott_status fail_module_name(const module_list *list, bool linears_only, const char *key,
                                   const char *text, const char *problem) {
    name_list names;
    char word[NAME_BYTES];
    literal_part(text, word);
    list_names(&names, list, linears_only, layer_in(list, word));
    const char *near = str_nearest(word, names.name, names.count);
    for (int i = 0; i < names.count; i++)
        if (near == names.name[i])
            return status_fail(OTT_ERR_CONFIG, "%s has \"%s\", %s; the nearest is %s", key,
                               str_show(text).text, problem, names.full[i / 3]);
    const model_module *example = list->items;
    while (example->kind != MODULE_LINEAR) example++;
    return status_fail(OTT_ERR_CONFIG,
                       "%s has \"%s\", %s; names look like %s, or like KempnerForge's and torchtitan's", key,
                       str_show(text).text, problem, example->name);
}

/* ---- texts of the configuration ---- */

ott_status names_check_filter(const module_list *list, const char *text, const logger *log) {
    if (any_of(list, true, names_contain, text)) return OTT_OK;
    if (any_of(list, false, names_contain, text)) {
        log_info(
            log,
            "float8.filter_fqns has \"%s\", which names no linear layer; FP8 converts only linear layers",
            str_show(text).text);
        return OTT_OK;
    }
    for (size_t i = 0; i < sizeof foreign_parts / sizeof *foreign_parts; i++)
        if (has_components(foreign_parts[i].name, text)) {
            log_info(log, "float8.filter_fqns has \"%s\", a part of %s; this model has none", text,
                     foreign_parts[i].models);
            return OTT_OK;
        }
    return fail_module_name(list, true, "float8.filter_fqns", text,
                            "which is in the name of no linear layer");
}

ott_status names_check_rule(const module_list *list, const char *pattern) {
    if (any_of(list, true, names_fit, pattern)) return OTT_OK;
    return fail_module_name(list, true, "float8.module", pattern, "a pattern that matches no linear layer");
}

ott_status names_fail_target(const module_list *list, const char *key, const char *pattern) {
    if (any_of(list, true, names_fit, pattern)) /* only the head is a linear layer outside of blocks */
        return status_fail(
            OTT_ERR_CONFIG,
            "%s has \"%s\": only linear layers of blocks can have an adapter, the head cannot: "
            "leave it out",
            key, str_show(pattern).text);
    return fail_module_name(list, true, key, pattern, "which names no linear layer of a block");
}

ott_status names_fail_freeze(const module_list *list, const char *pattern) {
    return fail_module_name(list, false, "train.freeze", pattern, "which names no parameter");
}
