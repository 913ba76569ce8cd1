/* checkpoint/peft: adapter_config.json, and the tensors beside it. */
#include "checkpoint/peft.h"
#include "base/file.h"
#include "base/json_member.h"
#include "base/str.h"
#include "checkpoint/json.h"
#include "checkpoint/snapshot.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TENSORS_NAME "adapter_model.safetensors"
#define PREFIX       "base_model.model."
#define CONFIG_LIMIT (INT64_C(1) << 20) /* bytes */

/* ---- the configuration of a folder ---- */

static ott_status refuse(const char *path, const char *member, const char *why) {
    return status_fail(OTT_ERR_UNSUPPORTED, "%s: '%s' %s", path, member, why);
}

/* Starts that take a part out of the base's weights, which are then not those of the folder that is named. */
static ott_status check_start(const char *path, const json_t *root) {
    static const char *const names[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
    const char *start = json_string_value(json_object_get(root, "init_lora_weights"));
    for (size_t i = 0; start && i < sizeof names / sizeof *names; i++)
        if (str_starts_with(start, names[i]))
            return status_fail(
                OTT_ERR_UNSUPPORTED,
                "%s: 'init_lora_weights' is %s, whose adapters stand beside changed weights of the "
                "base: save them as plain ones with PEFT "
                "(path_initial_model_for_weight_conversion)",
                path, str_show(start).text);
    return OTT_OK;
}

/* Members that ask for what is not built unless they are absent, null, false or empty. */
static ott_status check_unbuilt(const char *path, const json_t *root) {
    static const char *const members[] = {"modules_to_save",
                                          "rank_pattern",
                                          "alpha_pattern",
                                          "layers_to_transform",
                                          "layer_replication",
                                          "trainable_token_indices",
                                          "target_parameters",
                                          "lora_bias",
                                          "use_qalora",
                                          "use_bdlora",
                                          "alora_invocation_tokens",
                                          "arrow_config"};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const json_t *v = json_object_get(root, members[i]);
        bool empty = !v || json_is_null(v) || json_is_false(v) ||
                     (json_is_array(v) && json_array_size(v) == 0) ||
                     (json_is_object(v) && json_object_size(v) == 0);
        if (!empty) return refuse(path, members[i], "asks for what is not built");
    }
    const char *bias = json_string_value(json_object_get(root, "bias"));
    if (bias && strcmp(bias, "none") != 0) return refuse(path, "bias", "is not none: biases are not trained");
    const char *type = json_string_value(json_object_get(root, "peft_type"));
    if (!type || strcmp(type, "LORA") != 0) return refuse(path, "peft_type", "is not LORA");
    return check_start(path, root);
}

static ott_status give(config *cfg, const char *key, const char *value) {
    return config_was_set(cfg, key) ? OTT_OK : config_set(cfg, key, value);
}

static ott_status fail_given(const config *cfg, const char *path, const char *member, const char *key,
                             const char *value) {
    return status_fail(OTT_ERR_CONFIG, "%s, but '%s' of %s makes %s = %s: set --%s=%s, or leave %s out",
                       config_where(cfg, key), member, path, key, value, key, value, key);
}

/* The folder's tensors have its rank, whatever the configuration says. */
static ott_status give_rank(config *cfg, const char *path, int64_t rank) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)rank);
    if (config_was_set(cfg, "peft.dim") && cfg->peft.dim != rank)
        return fail_given(cfg, path, "r", "peft.dim", text);
    return give(cfg, "peft.dim", text);
}

/* They have magnitudes if they are DoRA's. */
static ott_status give_dora(config *cfg, const char *path, bool dora) {
    const char *text = dora ? "true" : "false";
    if (config_was_set(cfg, "peft.use_dora") && cfg->peft.use_dora != dora)
        return fail_given(cfg, path, "use_dora", "peft.use_dora", text);
    return give(cfg, "peft.use_dora", text);
}

static ott_status give_real(config *cfg, const json_t *root, const char *member, const char *key) {
    char text[40];
    double value;
    const json_t *there;
    TRY(json_member(root, member, JSON_KIND_REAL, JSON_OPTIONAL, &there));
    if (!there) return OTT_OK;
    TRY(json_member_real(root, member, JSON_NEEDED, &value));
    snprintf(text, sizeof text, "%.17g", value);
    return give(cfg, key, text);
}

/* A list of names, or the word that means all of them; else a text is a regular expression. */
static ott_status give_modules(config *cfg, const char *path, const json_t *root, const char *member,
                               const char *key, str *names) {
    const json_t *list = json_object_get(root, member);
    const char *text = json_string_value(list);
    if (!list || json_is_null(list)) return OTT_OK;
    if (text && strcmp(text, "all-linear") == 0) return give(cfg, "peft.match_all_linear", "true");
    if (text) return refuse(path, member, "is a regular expression, which is not built: list the names");
    if (!json_is_array(list)) return refuse(path, member, "is not a list of names");
    names->length = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name) return refuse(path, member, "is not a list of names");
        str_printf(names, "%s%s", i ? "," : "", name);
    }
    TRY(str_finish(names));
    return names->length > 0 ? give(cfg, key, names->text) : OTT_OK;
}

static ott_status give_all(config *cfg, const char *path, const json_t *root, str *names) {
    int64_t r;
    bool rslora, dora;
    const char *base = NULL;
    TRY(check_unbuilt(path, root));
    TRY(json_member_integer(root, "r", JSON_NEEDED, 1, 65536, &r));
    TRY(json_member_bool(root, "use_rslora", false, &rslora));
    TRY(json_member_bool(root, "use_dora", false, &dora));
    TRY(json_member_text(root, "base_model_name_or_path", JSON_OPTIONAL, &base));
    TRY(give(cfg, "peft.enabled", "true"));
    TRY(give_rank(cfg, path, r));
    TRY(give(cfg, "peft.use_rslora", rslora ? "true" : "false"));
    TRY(give_dora(cfg, path, dora));
    TRY(give(cfg, "peft.dropout_position", "pre"));
    TRY(give_real(cfg, root, "lora_alpha", "peft.alpha"));
    TRY(give_real(cfg, root, "lora_dropout", "peft.dropout"));
    TRY(give_modules(cfg, path, root, "target_modules", "peft.target_modules", names));
    TRY(give_modules(cfg, path, root, "exclude_modules", "peft.exclude_modules", names));
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
    TRY(file_join(cfg->peft.path, PEFT_CONFIG_NAME, path));
    TRY(checkpoint_json_load(account, path, CONFIG_LIMIT, &root));
    ott_status status = give_all(cfg, path, root, &names);
    if (status != OTT_OK && !strstr(status_text(), path)) status = status_context(status, "%s", path);
    str_free(&names);
    json_decref(root);
    return status;
}

/* ---- the tensors ---- */

static ott_status add_factor(tensor_set *set, const parameter *p) {
    const char *name;
    TRY(arena_printf(set->memory, &name, PREFIX "%s", p->name));
    return tensor_set_add_parameter(set, name, p);
}

static ott_status describe(const model *m, tensor_set *set) {
    TRY(tensor_set_open(set, m->device->account, m->all_count));
    for (int i = 0; i < m->whole.count; i++) {
        const model_module *e = &m->whole.of[i];
        if (!e->lora_a) continue;
        TRY(add_factor(set, e->lora_a));
        TRY(add_factor(set, e->lora_b));
        if (e->lora_m) TRY(add_factor(set, e->lora_m));
    }
    return OTT_OK;
}

static ott_status check_family(const model *m) {
    const model_options *o = &m->options;
    if (o->fused_qkv == o->family->fused_qkv && o->fused_gate_up == o->family->fused_gate_up) return OTT_OK;
    return status_fail(
        OTT_ERR_UNSUPPORTED,
        "adapters of joined projections (model.fused_qkv, model.fused_gate_up) are no adapters of "
        "%s's, whose files have them otherwise: merge them into an export of the weights instead",
        o->family->name);
}

static ott_status read_tensors(model *m, const tensor_set *set, const char *path) {
    safetensors *file;
    int64_t done = 0;
    watched progress = watch_begin(m->watch, "Loading adapters", tensor_set_bytes(set));
    TRY(safetensors_open(m->device->account, path, &file));
    ott_status status = tensor_set_check(set, file);
    if (status == OTT_OK) status = tensor_set_read(set, file, m->device, &progress, &done);
    safetensors_close(file);
    return status;
}

ott_status peft_load(model *m, const char *folder) {
    char path[PATH_MAX];
    tensor_set set = {0};
    TRY(check_family(m));
    TRY(file_join(folder, TENSORS_NAME, path));
    ott_status status = describe(m, &set);
    if (status == OTT_OK) status = read_tensors(m, &set, path);
    tensor_set_close(&set);
    return status;
}

/* ---- writing ---- */

static const char *last_part(const char *name) {
    const char *point = strrchr(name, '.');
    return point ? point + 1 : name;
}

static bool ends_alike(const model_module *a, const model_module *b) {
    return strcmp(last_part(a->name), last_part(b->name)) == 0;
}

/* Has every layer whose name ends like this one's an adapter? Then that end says which: PEFT knows layers by it. */
static bool all_alike(const model *m, const model_module *like) {
    for (int i = 0; i < m->whole.count; i++) {
        const model_module *e = &m->whole.of[i];
        if (e->kind == MODULE_LINEAR && !e->lora_a && ends_alike(e, like)) return false;
    }
    return true;
}

/* NULL when memory ran out, which every jansson call passes on. */
static json_t *list_targets(const model *m) {
    json_t *list = json_array();
    for (int i = 0; i < m->whole.count; i++) {
        const model_module *e = &m->whole.of[i];
        bool first = true;
        if (!e->lora_a) continue;
        bool alike = all_alike(m, e);
        for (int k = 0; k < i && alike; k++)
            first &= !m->whole.of[k].lora_a || !ends_alike(&m->whole.of[k], e);
        if (first) json_array_append_new(list, json_string(alike ? last_part(e->name) : e->name));
    }
    return list;
}

static json_t *describe_folder(const model *m, const config *cfg) {
    return json_pack("{s:s, s:s, s:s, s:i, s:f, s:f, s:b, s:b, s:s, s:b, s:b, s:b, s:o}", "peft_type", "LORA",
                     "task_type", "CAUSAL_LM", "base_model_name_or_path", cfg->model.hf_path, "r",
                     (int)cfg->peft.dim, "lora_alpha", cfg->peft.alpha, "lora_dropout", cfg->peft.dropout,
                     "use_rslora", cfg->peft.use_rslora, "use_dora", cfg->peft.use_dora, "bias", "none",
                     "fan_in_fan_out", m->options.family->transposed, "inference_mode", 1,
                     "init_lora_weights", 1, "target_modules", list_targets(m));
}

static ott_status write_config(const model *m, const config *cfg, const char *folder) {
    char path[PATH_MAX];
    json_t *root = describe_folder(m, cfg);
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    ott_status status = text ? file_join(folder, PEFT_CONFIG_NAME, path)
                             : status_fail(OTT_ERR_MEMORY, "out of memory: " PEFT_CONFIG_NAME);
    if (status == OTT_OK) status = file_write_atomic(path, text, (int64_t)strlen(text));
    free(text);
    json_decref(root);
    return status;
}

static ott_status write_tensors(const model *m, const checkpoint_ranks *ranks, const char *folder) {
    char path[PATH_MAX];
    tensor_set set = {0};
    TRY(file_join(folder, TENSORS_NAME, path));
    ott_status status = ranks_agree(ranks, describe(m, &set));
    if (status == OTT_OK) status = tensor_set_agree(&set, ranks);
    if (status == OTT_OK)
        status = ranks_agree(ranks, checkpoint_snapshot_put_set(m->device->account, ranks, &set, path));
    tensor_set_close(&set);
    return status;
}

ott_status peft_save(const model *m, const config *cfg, group *ranks, const char *folder) {
    const checkpoint_ranks all = {ranks, m->device};
    TRY(check_family(m));
    TRY(write_tensors(m, &all, folder));
    return ranks_own(&all) == 0 ? write_config(m, cfg, folder) : OTT_OK;
}
