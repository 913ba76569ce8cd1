/* folders/peft: reads and writes adapter_config.json and adapter tensors. */
#include "folders/peft.h"
#include "folders/hf/merge.h"
#include "base/file/file.h"
#include "base/json/json_member.h"
#include "base/text/str.h"
#include "folders/json_file.h"
#include "folders/tensors.h"
#include "formats/hf/hub_name.h"
#include "model/adapters.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX       "base_model.model."
#define CONFIG_LIMIT (INT64_C(1) << 20) /* largest accepted adapter_config.json, in bytes */

/* ---- adapter_config.json ---- */

static ott_status refuse_member(const char *path, const char *member, const char *why) {
    return status_fail(OTT_ERR_UNSUPPORTED, "%s: '%s' %s", path, member, why);
}

/* Rejects keys of unsupported features, unless the value is null, false or empty. */
static ott_status check_unbuilt(const char *path, const json_t *root) {
    static const char *const members[] = {
        "layer_replication", "trainable_token_indices", "target_parameters", "lora_bias", "use_qalora",
        "use_bdlora",        "alora_invocation_tokens", "arrow_config"};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const json_t *v = json_object_get(root, members[i]);
        bool empty = !v || json_is_null(v) || json_is_false(v) ||
                     (json_is_array(v) && json_array_size(v) == 0) ||
                     (json_is_object(v) && json_object_size(v) == 0);
        if (!empty) return refuse_member(path, members[i], "is not supported");
    }
    const char *bias = json_string_value(json_object_get(root, "bias"));
    if (bias && strcmp(bias, "none") != 0)
        return refuse_member(path, "bias", "is not \"none\"; other values are not supported");
    const char *type = json_string_value(json_object_get(root, "peft_type"));
    if (!type || strcmp(type, "LORA") != 0) return refuse_member(path, "peft_type", "is not LORA");
    /* These initializations change the base weights, so the adapter does not fit the base folder. */
    static const char *const names[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
    const char *start = json_string_value(json_object_get(root, "init_lora_weights"));
    for (size_t i = 0; start && i < sizeof names / sizeof *names; i++)
        if (str_starts_with(start, names[i]))
            return status_fail(OTT_ERR_UNSUPPORTED,
                               "%s: 'init_lora_weights' is %s, which changes the base weights: save plain "
                               "adapters with PEFT (path_initial_model_for_weight_conversion)",
                               path, str_show(start).text);
    return OTT_OK;
}

static ott_status fail_conflict(const config *cfg, const char *path, const char *member, const char *key,
                                const char *value) {
    return status_fail(OTT_ERR_CONFIG, "%s, but '%s' of %s makes %s = %s: set --%s=%s, or remove %s",
                       config_where(cfg, key), member, path, key, value, key, value, key);
}

/* Sets peft.dim. If the user set peft.dim, too, the values must be equal. */
static ott_status set_rank(config *cfg, const char *path, int64_t rank) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)rank);
    if (config_was_set(cfg, "peft.dim") && cfg->peft.dim != rank)
        return fail_conflict(cfg, path, "r", "peft.dim", text);
    return config_set_default(cfg, "peft.dim", text);
}

static ott_status set_real_member(config *cfg, const json_t *root, const char *member, const char *key) {
    char text[40];
    double value;
    const json_t *there;
    TRY(json_member(root, member, JSON_KIND_REAL, JSON_OPTIONAL, &there));
    if (!there) return OTT_OK;
    TRY(json_member_real(root, member, JSON_NEEDED, &value));
    snprintf(text, sizeof text, "%.17g", value);
    return config_set_default(cfg, key, text);
}

/* Sets `key` to the elements of a list, or to a single value: integers if `are_integers`, else names. */
static ott_status set_list(config *cfg, const char *path, const json_t *root, const char *member,
                           const char *key, bool are_integers, str *text) {
    const json_t *list = json_object_get(root, member);
    size_t count = json_is_array(list) ? json_array_size(list) : 1;
    text->length = 0;
    if (!list || json_is_null(list)) return OTT_OK;
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_is_array(list) ? json_array_get(list, i) : list;
        if (are_integers ? !json_is_integer(value) : !json_is_string(value))
            return refuse_member(path, member,
                                 are_integers ? "is not a list of numbers" : "is not a list of names");
        str_append(text, i ? "," : "");
        if (are_integers)
            str_printf(text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        else
            str_append(text, json_string_value(value));
    }
    TRY(str_finish(text));
    return text->length > 0 ? config_set_default(cfg, key, text->text) : OTT_OK;
}

/* Reads a list of names, or "all-linear". Rejects any other text, because it is a regular expression. */
static ott_status set_modules(config *cfg, const char *path, const json_t *root, const char *member,
                              const char *key, str *names) {
    const char *text = json_string_value(json_object_get(root, member));
    if (text && strcmp(text, "all-linear") == 0)
        return config_set_default(cfg, "peft.match_all_linear", "true");
    if (text)
        return refuse_member(path, member, "is a regular expression, which is not supported: list the names");
    return set_list(cfg, path, root, member, key, false, names);
}

/* Translates PEFT's regular expression to a pattern of [peft]: ".*" becomes "*", and the backslash of "\." or
   "\_" is dropped. False if the expression has other operators, such as "\.*". */
static bool translate_name(const char *name, str *out) {
    size_t length = strlen(name), end = length > 0 && name[length - 1] == '$' ? length - 1 : length;
    for (size_t i = name[0] == '^'; i < end; i++) {
        bool is_escaped = name[i] == '\\' && (name[i + 1] == '.' || name[i + 1] == '_');
        i += is_escaped;
        bool plain = (name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
                     (name[i] >= '0' && name[i] <= '9') || name[i] == '_' || name[i] == '-' || name[i] == '.';
        bool any = !is_escaped && name[i] == '.' && name[i + 1] == '*';
        if (!plain) return false;
        str_append(out, any ? "*" : (char[]){name[i], '\0'});
        i += any;
    }
    return end > 0;
}

/* Turns {"q_proj": 16} into "q_proj=16". Keeps the order, because a module uses the first matching name. */
static ott_status set_patterns(config *cfg, const char *path, const json_t *root, const char *member,
                               const char *key, str *entries) {
    json_t *object = json_object_get(root, member), *value;
    const char *name;
    entries->length = 0;
    if (!object || json_is_null(object)) return OTT_OK;
    if (!json_is_object(object)) return refuse_member(path, member, "is not an object of names and numbers");
    json_object_foreach(object, name, value) {
        str_append(entries, entries->length ? "," : "");
        if (!translate_name(name, entries))
            return refuse_member(path, member, "has a regular expression, which is not supported: use names");
        if (!json_is_number(value))
            return refuse_member(path, member, "is not an object of names and numbers");
        str_printf(entries, "=%.17g", json_number_value(value));
    }
    TRY(str_finish(entries));
    return entries->length > 0 ? config_set_default(cfg, key, entries->text) : OTT_OK;
}

static ott_status set_selection(config *cfg, const char *path, const json_t *root, str *text) {
    TRY(set_modules(cfg, path, root, "target_modules", "peft.target_modules", text));
    TRY(set_modules(cfg, path, root, "exclude_modules", "peft.exclude_modules", text));
    TRY(set_modules(cfg, path, root, "modules_to_save", "peft.modules_to_save", text));
    TRY(set_patterns(cfg, path, root, "rank_pattern", "peft.rank_pattern", text));
    TRY(set_patterns(cfg, path, root, "alpha_pattern", "peft.alpha_pattern", text));
    TRY(set_list(cfg, path, root, "layers_to_transform", "peft.layers_to_transform", true, text));
    return set_list(cfg, path, root, "layers_pattern", "peft.layers_pattern", false, text);
}

static ott_status set_all(config *cfg, const char *path, const json_t *root, str *names) {
    int64_t r;
    bool rslora, dora;
    const char *base = NULL;
    TRY(check_unbuilt(path, root));
    TRY(json_member_integer(root, "r", JSON_NEEDED, 1, 65536, &r));
    TRY(json_member_bool(root, "use_rslora", false, &rslora));
    TRY(json_member_bool(root, "use_dora", false, &dora));
    TRY(json_member_text(root, "base_model_name_or_path", JSON_OPTIONAL, &base));
    TRY(config_set_default(cfg, "peft.enabled", "true"));
    TRY(set_rank(cfg, path, r));
    TRY(config_set_default(cfg, "peft.use_rslora", rslora ? "true" : "false"));
    /* DoRA folders have magnitude tensors; other folders do not. */
    const char *text = dora ? "true" : "false";
    if (config_was_set(cfg, "peft.use_dora") && cfg->peft.use_dora != dora)
        return fail_conflict(cfg, path, "use_dora", "peft.use_dora", text);
    TRY(config_set_default(cfg, "peft.use_dora", text));
    TRY(config_set_default(cfg, "peft.dropout_position", "pre"));
    TRY(set_real_member(cfg, root, "lora_alpha", "peft.alpha"));
    TRY(set_real_member(cfg, root, "lora_dropout", "peft.dropout"));
    TRY(set_selection(cfg, path, root, names));
    if (!base || !*base || *cfg->model.hf_path) return OTT_OK;
    TRY(config_check_name("model.hf_path", base));
    return config_set(cfg, "model.hf_path", base);
}

ott_status peft_configure(mem *account, config *cfg) {
    char path[PATH_MAX];
    json_t *root;
    str names = {.account = account};
    if (!*cfg->peft.path) return OTT_OK;
    TRY(status_context(file_refuse_gguf(cfg->peft.path), "peft.path"));
    TRY(hub_name_resolve_key(cfg, "peft.path", cfg->peft.path));
    TRY(file_join(cfg->peft.path, PEFT_CONFIG_NAME, path));
    TRY(json_file_load(account, path, CONFIG_LIMIT, &root));
    ott_status status = set_all(cfg, path, root, &names);
    if (status != OTT_OK && !strstr(status_text(), path)) status = status_context(status, "%s", path);
    str_free(&names);
    json_decref(root);
    return status;
}

static void append_setting(str *out, const json_t *root, const char *member, const char *name) {
    const json_t *v = json_object_get(root, member);
    if (json_is_number(v)) str_printf(out, ", %s %g", name, json_number_value(v));
    if (json_is_string(v)) str_printf(out, ", %s %s", name, str_show(json_string_value(v)).text);
}

ott_status peft_describe(mem *account, const char *folder, str *out) {
    char path[PATH_MAX];
    json_t *root;
    TRY(file_join(folder, PEFT_CONFIG_NAME, path));
    TRY(json_file_load(account, path, CONFIG_LIMIT, &root));
    const char *type = json_string_value(json_object_get(root, "peft_type"));
    bool is_dora = json_is_true(json_object_get(root, "use_dora"));
    str_printf(out, "Adapters: %s%s", type ? str_show(type).text : "no peft_type", is_dora ? " (DoRA)" : "");
    append_setting(out, root, "r", "rank");
    append_setting(out, root, "lora_alpha", "alpha");
    append_setting(out, root, "base_model_name_or_path", "base model");
    str_append(out, "\n\n");
    json_decref(root);
    return str_finish(out);
}

/* ---- tensors ---- */

static ott_status describe_tensors(const model *m, tensor_set *set) {
    TRY(tensor_set_open(set, m->device->account, m->all_parameter_count));
    for (int i = 0; i < m->all_modules.count; i++) {
        const model_module *e = &m->all_modules.items[i];
        const parameter *const all[] = {e->saved ? e->weight : NULL, e->saved ? e->bias : NULL, e->lora_a,
                                        e->lora_b, e->lora_m};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
            const char *name;
            if (!all[k]) continue;
            TRY(arena_printf(set->memory, &name, PREFIX "%s", all[k]->name));
            TRY(tensor_set_add_parameter(set, name, all[k]));
        }
    }
    return OTT_OK;
}

static ott_status check_family(const model *m) {
    const model_options *o = &m->options;
    if (o->fused_qkv == o->family->fused_qkv && o->fused_gate_up == o->family->fused_gate_up) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "adapters of fused projections (model.fused_qkv, model.fused_gate_up) do not fit the "
                       "files of %s, which fuse differently: export merged weights instead",
                       o->family->name);
}

ott_status peft_load(model *m, const char *folder) {
    char path[PATH_MAX];
    tensor_set set = {0};
    safetensors *file = NULL;
    int64_t done = 0;
    ott_status status;
    TRY(check_family(m));
    TRY(file_join(folder, PEFT_TENSORS_NAME, path));
    TRY_OUT(describe_tensors(m, &set));
    TRY_OUT(safetensors_open(m->device->account, path, &file));
    TRY_OUT(tensor_set_check(&set, file));
    cancellation_progress progress =
        cancellation_progress_begin(m->cancellation, "Loading adapters", tensor_set_bytes(&set));
    TRY_OUT(tensor_set_read(&set, file, m->device, &progress, &done));
out:
    safetensors_close(file);
    tensor_set_close(&set);
    return status;
}

/* ---- writing ---- */

static const char *last_component(const char *name) {
    const char *point = strrchr(name, '.');
    return point ? point + 1 : name;
}

typedef bool (*module_test)(const model_module *e);

static bool is_saved(const model_module *e) {
    return e->saved;
}

static bool is_in_layers(const str_list *layers, const model_module *e) {
    for (int64_t i = 0; i < layers->count; i++)
        if (strtol(layers->items[i], NULL, 10) == e->layer) return true;
    return layers->count == 0;
}

/* True if PEFT's list may name `like` by the last component of its name: `test` must be true for every module
   in `layers` whose name ends with this component. */
static bool has_unique_suffix(const model *m, const model_module *like, module_test test,
                              const str_list *layers) {
    for (int i = 0; i < m->all_modules.count; i++) {
        const model_module *e = &m->all_modules.items[i];
        if (is_in_layers(layers, e) && !test(e) && str_ends_with(e->name, last_component(like->name)))
            return false;
    }
    return true;
}

/* Returns a JSON array with names of the modules for which `test` holds; NULL if memory ran out. */
static json_t *list_modules(const model *m, module_test test, const str_list *layers) {
    json_t *names = json_object(), *list = json_array(), *value;
    const char *name;
    for (int i = 0; i < m->all_modules.count; i++) {
        const model_module *e = &m->all_modules.items[i];
        if (test(e))
            json_object_set_new(names,
                                has_unique_suffix(m, e, test, layers) ? last_component(e->name) : e->name,
                                json_null());
    }
    json_object_foreach(names, name, value) json_array_append_new(list, json_string(name));
    json_decref(names);
    return list;
}

/* Selects what adapter_number returns for a module: the rank of its adapter if are_ranks, else alpha. */
typedef struct adapter_numbers {
    adapter_options o;
    bool are_ranks;
} adapter_numbers;

static double adapter_number(const adapter_numbers *s, const model_module *e) {
    return s->are_ranks ? (double)adapters_rank(&s->o, e) : adapters_alpha(&s->o, e);
}

static bool has_same_number(const model *m, const adapter_numbers *s, const model_module *like) {
    for (int i = 0; i < m->all_modules.count; i++) {
        const model_module *e = &m->all_modules.items[i];
        bool same = !e->lora_a || adapter_number(s, e) == adapter_number(s, like);
        if (!same && str_ends_with(e->name, last_component(like->name))) return false;
    }
    return true;
}

static json_t *describe_numbers(const model *m, const adapter_numbers *s) {
    const double most = s->are_ranks ? (double)s->o.rank : s->o.alpha;
    json_t *object = json_object();
    for (int i = 0; i < m->all_modules.count; i++) {
        const model_module *e = &m->all_modules.items[i];
        if (!e->lora_a || adapter_number(s, e) == most) continue;
        json_object_set_new(object, has_same_number(m, s, e) ? last_component(e->name) : e->name,
                            s->are_ranks ? json_integer((json_int_t)adapter_number(s, e))
                                         : json_real(adapter_number(s, e)));
    }
    return object;
}

/* ---- writing the configuration ---- */

/* Returns layers_to_transform. If a layer with adapters is not in this list, returns an empty list. */
static const str_list *usable_layers(const model *m, const config *cfg) {
    static const str_list none = {0};
    for (int i = 0; i < m->all_modules.count; i++)
        if (m->all_modules.items[i].lora_a &&
            !is_in_layers(&cfg->peft.layers_to_transform, &m->all_modules.items[i]))
            return &none;
    return &cfg->peft.layers_to_transform;
}

static void describe_selection(const model *m, const config *cfg, json_t *root) {
    const adapter_options o = {.rank = cfg->peft.dim,
                               .alpha = cfg->peft.alpha,
                               .ranks = &cfg->peft.rank_pattern,
                               .alphas = &cfg->peft.alpha_pattern};
    const str_list *layers = usable_layers(m, cfg);
    static const str_list all = {0};
    json_object_set_new(root, "target_modules", list_modules(m, hf_merge_applies, layers));
    if (layers->count > 0) {
        json_t *list = json_array();
        for (int64_t i = 0; i < layers->count; i++)
            json_array_append_new(list, json_integer(strtol(layers->items[i], NULL, 10)));
        json_object_set_new(root, "layers_to_transform", list);
    }
    if (cfg->peft.modules_to_save.count > 0)
        json_object_set_new(root, "modules_to_save", list_modules(m, is_saved, &all));
    if (o.ranks->count > 0)
        json_object_set_new(root, "rank_pattern", describe_numbers(m, &(adapter_numbers){o, true}));
    if (o.alphas->count > 0)
        json_object_set_new(root, "alpha_pattern", describe_numbers(m, &(adapter_numbers){o, false}));
}

static ott_status write_adapter_config(const model *m, const config *cfg, const char *folder) {
    char path[PATH_MAX], base[PATH_MAX]; /* a hub name is valid on every machine, its folder is not */
    json_t *root = json_pack(
        "{s:s, s:s, s:s, s:i, s:f, s:f, s:b, s:b, s:s, s:b, s:b, s:b}", "peft_type", "LORA", "task_type",
        "CAUSAL_LM", "base_model_name_or_path", hub_name_of(cfg->model.hf_path, base), "r",
        (int)cfg->peft.dim, "lora_alpha", cfg->peft.alpha, "lora_dropout", cfg->peft.dropout, "use_rslora",
        cfg->peft.use_rslora, "use_dora", cfg->peft.use_dora, "bias", "none", "fan_in_fan_out",
        m->options.family->transposed, "inference_mode", 1, "init_lora_weights", 1);
    if (root) describe_selection(m, cfg, root);
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    ott_status status = text ? file_join(folder, PEFT_CONFIG_NAME, path)
                             : status_fail(OTT_ERR_MEMORY, "out of memory: " PEFT_CONFIG_NAME);
    if (status == OTT_OK) status = file_write_atomic(path, text, (int64_t)strlen(text));
    free(text);
    json_decref(root);
    return status;
}

ott_status peft_save(const model *m, const config *cfg, group *ranks, const char *folder) {
    const checkpoint_ranks all = {ranks, m->device};
    TRY(check_family(m));
    char path[PATH_MAX];
    tensor_set set = {0};
    TRY(file_join(folder, PEFT_TENSORS_NAME, path));
    ott_status status = ranks_agree(&all, describe_tensors(m, &set));
    if (status == OTT_OK) status = tensor_set_agree(&set, &all);
    if (status == OTT_OK) status = ranks_agree(&all, tensors_write(m->device->account, &all, &set, path));
    tensor_set_close(&set);
    TRY(status);
    return ranks_own_rank(&all) == 0 ? write_adapter_config(m, cfg, folder) : OTT_OK;
}
