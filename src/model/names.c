/* model/names: texts of a configuration and the modules they name. */
#include "model/names.h"
#include "base/str.h"
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 128 };

/* Modules of a model, without their layers. */
typedef struct module_list {
    enum family_module module[FAMILY_MODULE_COUNT];
    int count;
} module_list;

/* ---- what the model has ---- */

int names_block_linears(const model_options *o, enum family_module out[NAMES_PER_BLOCK]) {
    int count = 0;
    if (o->fused_qkv)
        out[count++] = FAMILY_qkv;
    else
        for (int i = FAMILY_q; i <= FAMILY_v; i++) out[count++] = (enum family_module)i;
    out[count++] = FAMILY_o;
    if (o->fused_gate_up)
        out[count++] = FAMILY_gate_up;
    else
        for (int i = FAMILY_gate; i <= FAMILY_up; i++) out[count++] = (enum family_module)i;
    out[count++] = FAMILY_down;
    return count;
}

static module_list linear_modules(const model_options *o) {
    module_list list;
    list.count = names_block_linears(o, list.module);
    list.module[list.count++] = FAMILY_head;
    return list;
}

/* Embedding and norms. */
static void add_others(const model_options *o, module_list *list) {
    list->module[list->count++] = FAMILY_embedding;
    list->module[list->count++] = FAMILY_attention_norm;
    if (o->qk_norm) {
        list->module[list->count++] = FAMILY_q_norm;
        list->module[list->count++] = FAMILY_k_norm;
    }
    list->module[list->count++] = FAMILY_mlp_norm;
    list->module[list->count++] = FAMILY_final_norm;
}

/* Parts of models that are none of ours, which filters of published configurations name all the same. */
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

/* Is `part` a run of whole components of the name, as "router.gate" of "moe.router.gate"? */
static bool has_components(const char *name, const char *part) {
    size_t length = strlen(part);
    for (const char *at = name; (at = strstr(at, part)); at++)
        if ((at == name || at[-1] == '.') && (at[length] == '\0' || at[length] == '.')) return length > 0;
    return false;
}

bool names_any(const named_module *m, name_test test, const char *text) {
    for (int style = 0; style < NAMING_COUNT; style++) {
        char name[NAME_BYTES];
        if (test(family_module_name(m->module, (naming)style, m->layer, name), text)) return true;
    }
    return false;
}

static bool any_of(const model_options *o, const module_list *list, name_test test, const char *text) {
    for (int layer = 0; layer < o->layers; layer++)
        for (int i = 0; i < list->count; i++)
            if (names_any(&(named_module){list->module[i], layer}, test, text)) return true;
    return false;
}

/* ---- the nearest name ---- */

/* Modules are compared, not their parameters. */
static void cut_parameter(char *name) {
    char *last = strrchr(name, '.');
    if (last && (strcmp(last, ".weight") == 0 || strcmp(last, ".bias") == 0)) *last = '\0';
}

/* The longest stretch of a pattern without wildcards, and without dots at its ends. */
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
    cut_parameter(out);
}

/* The layer whose number stands in the text, as far as the model goes; else the first. */
static int layer_in(const model_options *o, const char *text) {
    long number = strtol(text + strcspn(text, "0123456789"), NULL, 10);
    return number < o->layers ? (int)number : (int)o->layers - 1;
}

/* Names to choose the nearest of: modules in all spellings, and the parts of a block they are in; each in
   full, inside its block, and by its last component, which all stand for the full one. */
typedef struct name_list {
    char full[3 * FAMILY_MODULE_COUNT * NAMING_COUNT][NAME_BYTES];
    const char *name[9 * FAMILY_MODULE_COUNT * NAMING_COUNT];
    int count;
} name_list;

static void add_name(name_list *list, const char *text, size_t length) {
    char *full = list->full[list->count / 3];
    memcpy(full, text, length);
    full[length] = '\0';
    const char *digits = full + strcspn(full, "0123456789"), *last = strrchr(full, '.');
    const char *inside = digits + strspn(digits, "0123456789");
    list->name[list->count++] = full;
    list->name[list->count++] = *inside == '.' ? inside + 1 : full;
    list->name[list->count++] = last && *inside == '.' ? last + 1 : full;
}

/* The module, then what it is in: "model.layers.0.mlp", "model.layers.0". */
static void add_names(name_list *list, enum family_module module, naming style, int layer) {
    char text[NAME_BYTES];
    family_module_name(module, style, layer, text);
    size_t block = strcspn(text, "0123456789"), length = strlen(text);
    add_name(list, text, length);
    while (length > block) {
        do length--;
        while (length > block && text[length] != '.');
        if (length > block) add_name(list, text, length);
    }
}

static void list_names(name_list *list, const module_list *modules, int layer) {
    list->count = 0;
    for (int style = 0; style < NAMING_COUNT; style++)
        for (int i = 0; i < modules->count; i++) add_names(list, modules->module[i], (naming)style, layer);
}

static ott_status fail_name(const model_options *o, const module_list *modules, const char *key,
                            const char *text, const char *problem) {
    name_list list;
    char word[NAME_BYTES], example[NAME_BYTES];
    literal_part(text, word);
    list_names(&list, modules, layer_in(o, word));
    const char *near = str_nearest(word, list.name, list.count);
    for (int i = 0; i < list.count; i++)
        if (near == list.name[i])
            return status_fail(OTT_ERR_CONFIG, "%s has \"%s\", %s; the nearest is %s", key,
                               str_show(text).text, problem, list.full[i / 3]);
    family_module_name(modules->module[0], NAMING_HUGGING_FACE, 0, example);
    return status_fail(OTT_ERR_CONFIG,
                       "%s has \"%s\", %s; names are as %s, or as KempnerForge and torchtitan have them", key,
                       str_show(text).text, problem, example);
}

/* ---- texts of the configuration ---- */

ott_status names_check_filter(const model_options *o, const char *text, const logger *log) {
    module_list linears = linear_modules(o), others = {.count = 0};
    add_others(o, &others);
    if (any_of(o, &linears, names_contain, text)) return OTT_OK;
    if (any_of(o, &others, names_contain, text)) {
        log_info(log, "float8.filter_fqns has \"%s\", which names no linear layer; FP8 reaches no others",
                 str_show(text).text);
        return OTT_OK;
    }
    for (size_t i = 0; i < sizeof foreign_parts / sizeof *foreign_parts; i++)
        if (has_components(foreign_parts[i].name, text)) {
            log_info(log, "float8.filter_fqns has \"%s\", a part of %s, which this is not", text,
                     foreign_parts[i].models);
            return OTT_OK;
        }
    return fail_name(o, &linears, "float8.filter_fqns", text, "which is in the name of no linear layer");
}

ott_status names_check_rule(const model_options *o, const char *pattern) {
    module_list linears = linear_modules(o);
    if (any_of(o, &linears, names_fit, pattern)) return OTT_OK;
    return fail_name(o, &linears, "float8.module", pattern, "a pattern that fits no linear layer");
}

ott_status names_fail_freeze(const model_options *o, const char *pattern) {
    module_list modules = linear_modules(o);
    add_others(o, &modules);
    return fail_name(o, &modules, "train.freeze", pattern, "which names no parameter");
}
