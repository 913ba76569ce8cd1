/* run/inference: opens a trained model for forward passes. */
#include "run/inference.h"
#include "base/file/file.h"
#include "checkpoint/checkpoint.h"
#include "folders/hf/model.h"
#include "folders/peft.h"
#include "formats/hf/folder.h"
#include "formats/hf/hub_name.h"
#include "fp8/recipe_names.h"
#include "run/run.h"
#include <stdio.h>
#include <string.h>

/* ---- finding and reading the model ---- */

/* Default sequence length for a Hugging Face folder or a GGUF file. Memory may not suffice for the model's
   full context. */
enum { FOLDER_WINDOW = 2048 };

/* True for a GGUF file, and for a folder with a config.json or adapters. Runs and checkpoints have a
   config.toml. */
static bool is_model_without_run(const char *path) {
    if (file_is_gguf(path)) return true;
    bool is_folder = file_is_in(path, "config.json") || file_is_in(path, PEFT_CONFIG_NAME);
    return is_folder && !file_is_in(path, "config.toml") && !file_is_in(path, "checkpoints");
}

/* Keeps the folder's FP8 matrices as frozen FP8 weights, one byte per element. With adapters, the other
   matrices are frozen as bf16. If they are not bf16 in the folder, keeps no FP8 matrices. */
static ott_status keep_codes(mem *account, config *cfg) {
    str names = {.account = account};
    bool others_are_bf16;
    ott_status status = OTT_OK;
    if (!*cfg->model.hf_path) return OTT_OK;
    TRY_OUT(hf_model_list_codes(account, cfg->model.hf_path, &names, &others_are_bf16));
    if (names.length == 0 || (cfg->peft.enabled && !others_are_bf16)) goto out;
    if (!cfg->peft.enabled) TRY_OUT(config_set(cfg, "train.freeze", names.text));
    TRY_OUT(config_set(cfg, "train.frozen_dtype", "fp8"));
    TRY_OUT(hf_model_configure(account, cfg, NULL)); /* second call: sets the granularity of the codes */
out:
    str_free(&names);
    return status;
}

/* Checks that the base model of a PEFT folder is a folder or GGUF file on this machine. adapter_config.json
   may have the name of a hub repository, or a path of another machine. */
static ott_status check_base(const config *cfg, const char *path) {
    const char *base = cfg->model.hf_path;
    if (!*base)
        return status_fail(OTT_ERR_ARGUMENT,
                           "%s: its " PEFT_CONFIG_NAME " has no base model: give its folder by --base", path);
    if (hf_folder_is_model(base)) return OTT_OK;
    return status_fail(OTT_ERR_NOT_FOUND,
                       "%s: the base model %s is not a folder on this machine: give the model's folder by "
                       "--base",
                       path, str_show(base).text);
}

/* Makes a configuration for a Hugging Face folder, a PEFT folder or a GGUF file. */
static ott_status describe_folder(mem *account, const char *path, const char *base, int64_t window,
                                  config *cfg) {
    char length[32];
    if (base) TRY(config_set(cfg, "model.hf_path", base));
    TRY(config_set(cfg, file_is_in(path, PEFT_CONFIG_NAME) ? "peft.path" : "model.hf_path", path));
    TRY(peft_configure(account, cfg));
    ott_status status = hub_name_resolve_key(cfg, "model.hf_path", cfg->model.hf_path);
    if (status != OTT_OK) return status_context(status, "%s", path);
    TRY(check_base(cfg, path));
    TRY(hf_model_configure(account, cfg, NULL));
    TRY(keep_codes(account, cfg));
    int64_t longest = window > 0 ? config_max_positions(cfg) : cfg->model.max_seq_len;
    if (window <= 0) window = FOLDER_WINDOW;
    if (window > longest) window = longest;
    snprintf(length, sizeof length, "%lld", (long long)window);
    return config_set(cfg, "train.seq_len", length);
}

static ott_status find_model(mem *account, const char *path, const char *base, int64_t window, config **cfg,
                             char **checkpoint) {
    static const char *const arguments[] = {"--train.mixed_precision=bf16", "--train.batch_size=1"};
    char folder[PATH_MAX], base_folder[PATH_MAX];
    TRY(hub_name_resolve(path, &path, folder));
    if (base) TRY(hub_name_resolve(base, &base, base_folder));
    if (is_model_without_run(path)) {
        TRY(config_parse(account, NULL, 2, arguments, cfg));
        return describe_folder(account, path, base, window, *cfg);
    }
    TRY(checkpoint_find(account, path, path, checkpoint));
    TRY(checkpoint_config(account, *checkpoint, cfg));
    return base ? config_set(*cfg, "model.hf_path", base) : OTT_OK;
}

ott_status inference_find(mem *account, const char *path, const char *base, int64_t window, config **cfg,
                          char **checkpoint) {
    *cfg = NULL;
    *checkpoint = NULL;
    ott_status status = find_model(account, path, base, window, cfg, checkpoint);
    if (status == OTT_OK && base && !(*cfg)->peft.enabled)
        status =
            status_fail(OTT_ERR_ARGUMENT, "%s has no adapters, so --base has no effect: leave it out", path);
    if (status == OTT_OK) return OTT_OK;
    config_close(*cfg);
    mem_free(account, *checkpoint);
    *cfg = NULL;
    *checkpoint = NULL;
    return status;
}

ott_status inference_read(mem *account, config *cfg, const char *checkpoint, inference_plan *out) {
    trainer_options options;
    run_state state = {0};
    out->cfg = cfg;
    out->checkpoint = checkpoint;
    TRY(model_options_resolve(cfg, &out->shape));
    TRY(precision_plan_read(cfg, &out->precision));
    if (checkpoint) TRY(checkpoint_peek(account, checkpoint, &state));
    TRY(run_trainer_options(cfg, &out->precision, state.step, &options));
    out->convert = options.convert;
    return OTT_OK;
}

/* ---- another precision ---- */

static ott_status fail_unknown_precision(const char *name) {
    int count;
    const recipe *table = recipe_table(&count);
    const char *names[32] = {"trained", "fp8"};
    for (int i = 0; i < count && i < 30; i++) names[2 + i] = table[i].name;
    const char *near = str_nearest(name, names, count < 30 ? count + 2 : 32);
    return status_fail(OTT_ERR_ARGUMENT,
                       "precision \"%s\": use trained, fp8, or a recipe's name (ottava recipes)%s%s%s", name,
                       near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static ott_status set_default(config *cfg, const char *section, const char *name) {
    char key[64];
    snprintf(key, sizeof key, "%s.%s", section, name);
    return config_set(cfg, key, "null");
}

static ott_status set_precision(config *cfg, const char *name) {
    if (!name || strcmp(name, "trained") == 0) return OTT_OK;
    if (strcmp(name, "fp8") == 0) return config_set(cfg, "train.mixed_precision", "fp8");
    const char *own = recipe_canonical_name(name);
    const recipe *r = recipe_find(own ? own : name);
    if (!r) return fail_unknown_precision(name);
    /* Resets keys that change a recipe, and keys (but not filters) that choose its layers or steps. */
    static const char *const places[] = {"schedule", "module", "keep_first_layers", "keep_last_layers"};
    int count;
    const char *const *keys = config_recipe_keys(&count);
    for (int i = 0; i < count; i++) TRY(set_default(cfg, "float8", keys[i]));
    for (int i = 0; i < 4; i++) TRY(set_default(cfg, "float8", places[i]));
    if (!recipe_gemm_is_fp8(r, GEMM_COUNT)) return config_set(cfg, "train.mixed_precision", r->name);
    TRY(config_set(cfg, "train.mixed_precision", "fp8"));
    return config_set(cfg, "float8.recipe_name", r->name);
}

static ott_status apply_settings(config *cfg, const inference_choice *c) {
    const char *key, *of_fp8 = NULL;
    for (int i = 0; i < c->setting_count; i++) {
        TRY(config_override(cfg, c->settings[i], c->allowed, c->user, &key));
        if (key && strncmp(key, "float8.", 7) == 0) of_fp8 = c->settings[i];
    }
    if (!of_fp8 || cfg->train.mixed_precision == PRECISION_FP8) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG,
                       "%s has no effect, because the model computes in %s: add --precision=fp8 "
                       "(--train.mixed_precision=fp8)",
                       str_show(of_fp8).text, config_word(cfg, "train.mixed_precision"));
}

static bool is_delayed(const recipe *r) {
    return r->input.rowwise.policy == AMAX_DELAYED && cast_spec_is_fp8(&r->input.rowwise);
}

ott_status inference_choose(mem *account, config *cfg, const char *checkpoint, const inference_choice *choice,
                            inference_plan *out) {
    TRY(inference_read(account, cfg, checkpoint, out));
    bool was_delayed = checkpoint && is_delayed(out->convert.recipe);
    bool is_own = !choice->precision || strcmp(choice->precision, "trained") == 0;
    if (is_own && choice->setting_count == 0) return OTT_OK;
    /* Resets sharding and offload keys: some allow only some precisions, and inference uses one rank. */
    TRY(set_default(cfg, "float8", "enable_fsdp_float8_all_gather"));
    TRY(set_default(cfg, "float8", "precompute_float8_dynamic_scale_for_fsdp"));
    TRY(set_default(cfg, "train", "offload"));
    TRY(config_set(cfg, "float8.tensor_parallel", "true"));
    TRY(set_precision(cfg, choice->precision));
    TRY(apply_settings(cfg, choice));
    TRY(config_check(cfg));
    TRY(inference_read(account, cfg, checkpoint, out));
    /* Delayed scaling reads amax histories. Only runs that train with delayed scaling save them. */
    const recipe *r = out->convert.recipe;
    if (was_delayed || !is_delayed(r)) return OTT_OK;
    return status_fail(
        OTT_ERR_UNSUPPORTED,
        "\"%s\" takes its scales from earlier training steps, but the model was not trained with it: use "
        "current, tensorwise or another recipe that scales each tensor by its own amax",
        r->name);
}

static ott_status convert_for_inference(const inference_plan *p, model *m) {
    return p->convert.recipe ? model_convert(m, &p->convert, NULL) : OTT_OK;
}

/* Loads the weights. Layers that the checkpoint lists as fallen back are then converted to high precision. */
static ott_status load_inference_weights(const inference_plan *p, model *m, const logger *log) {
    run_state state;
    bool fell_back;
    if (!p->checkpoint) {
        int64_t kept = 0; /* FP8 matrices */
        TRY(hf_model_load(m, p->cfg->model.hf_path));
        for (int i = 0; i < m->all_parameter_count; i++)
            if (m->all_parameters[i]->codes) kept += m->all_parameters[i]->experts;
        if (p->cfg->train.frozen_dtype == FROZEN_FP8)
            log_info(log, "%s: %lld matrices stay in FP8, as in the folder", p->cfg->model.hf_path,
                     (long long)kept);
        return *p->cfg->peft.path ? peft_load(m, p->cfg->peft.path) : OTT_OK;
    }
    TRY(checkpoint_load(m, log, NULL, p->checkpoint, &state, &fell_back));
    return fell_back ? convert_for_inference(p, m) : OTT_OK;
}

ott_status inference_open(const inference_plan *p, device *d, int64_t positions, const logger *log,
                          model **out) {
    model *m;
    model_options own = p->shape;
    own.frozen_convert = &p->convert;
    TRY(model_open(d, &own, MODEL_INFERENCE, positions, &m));
    ott_status status = convert_for_inference(p, m);
    if (status == OTT_OK) status = load_inference_weights(p, m, log);
    if (status == OTT_OK)
        *out = m;
    else
        model_close(m);
    return status;
}

/* ---- models that are open for training ---- */

ott_status inference_check_live(const live_model *l) {
    const model_options *o = &l->m->options;
    const struct {
        const char *key;
        const group *ranks;
    } parts[] = {{"dp_shard", o->shard_ranks},
                 {"ep", o->expert_ranks},
                 {"tp", o->tensor_ranks},
                 {"cp", o->context_ranks},
                 {"pp", o->stage_ranks}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].ranks && parts[i].ranks->size > 1)
            return status_fail(
                OTT_ERR_UNSUPPORTED,
                "distributed.%s = %d divides the model over ranks, so that no rank can generate "
                "on its own: generate with a checkpoint of the run",
                parts[i].key, parts[i].ranks->size);
    return OTT_OK;
}

ott_status inference_use_average(const live_model *l, bool average) {
    return l->trainer ? trainer_use_average(l->trainer, average) : OTT_OK;
}
