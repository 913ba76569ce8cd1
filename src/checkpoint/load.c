/* checkpoint/load: loads a checkpoint into a model. All files are checked before the model changes. */
#include "checkpoint/checkpoint.h"
#include "base/text/str.h"
#include "checkpoint/float8.h"
#include "checkpoint/folder.h"
#include "folders/hf/base.h"
#include "folders/tensors.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Count the parameters with optimizer state. Each has one tensor named like the first slot: exp_avg. */
static int64_t count_trained_in_file(const safetensors *f, const optimizer_rule *rule) {
    int64_t count = 0;
    for (int64_t i = 0; i < safetensors_count(f); i++)
        count += str_ends_with(safetensors_at(f, i)->name, rule->slot[0]);
    return count;
}
static int64_t count_trained_in_set(const tensor_set *set, const optimizer_rule *rule) {
    int64_t count = 0;
    for (int64_t i = 0; i < set->count; i++) count += str_ends_with(set->declared[i].name, rule->slot[0]);
    return count;
}

/* Returns a tensor name that the file has but the set has not, or the reverse. NULL if there is none. */
static const char *find_difference(const safetensors *f, const tensor_set *set) {
    for (int64_t i = 0; i < safetensors_count(f); i++)
        if (!tensor_set_find(set, safetensors_at(f, i)->name)) return safetensors_at(f, i)->name;
    for (int64_t i = 0; i < set->count; i++)
        if (!safetensors_find(f, set->declared[i].name)) return set->declared[i].name;
    return NULL;
}

/* `name` is a tensor of optimizer state. True if its parameter has state both in the file and in the set. */
static bool has_state_in_both(const safetensors *f, const tensor_set *set, const char *name) {
    size_t length = (size_t)(strrchr(name, '.') - name) + 1;
    bool there = false, here = false;
    for (int64_t i = 0; i < safetensors_count(f); i++)
        there |= strncmp(safetensors_at(f, i)->name, name, length) == 0;
    for (int64_t i = 0; i < set->count; i++) here |= strncmp(set->declared[i].name, name, length) == 0;
    return there && here;
}

static ott_status check_trained(const safetensors *f, const tensor_set *set, const optimizer_rule *rule) {
    const char *name = find_difference(f, set);
    if (!name) return OTT_OK;
    const char *where = safetensors_find(f, name) ? "the checkpoint" : "this run";
    int64_t before = count_trained_in_file(f, rule), now = count_trained_in_set(set, rule);
    if (before == 0 || now == 0 || !strchr(name, '.') || has_state_in_both(f, set, name))
        return status_fail(
            OTT_ERR_SHAPE,
            "%s: the optimizer state does not match %s: %s is only in %s; set [optimizer] as in the "
            "checkpoint, or start with new state: --checkpoint.exclude_from_loading=optimizer",
            safetensors_path(f), rule->name, name, where);
    return status_fail(OTT_ERR_SHAPE,
                       "%s: its run trained %" PRId64 " parameters, this run trains %" PRId64
                       ", and %s is only in %s: set train.freeze as in the checkpoint, or use "
                       "--checkpoint.ignore_freeze_mismatch",
                       safetensors_path(f), before, now, name, where);
}

static bool has_weight(const safetensors *f, module_role role) {
    char name[MODULES_NAME_BYTES], weight[MODULES_NAME_BYTES + 8];
    snprintf(weight, sizeof weight, "%s.weight", modules_name(NULL, role, NAMING_HUGGING_FACE, 0, name));
    return safetensors_find(f, weight) != NULL;
}

/* Returns true if the file has projection `fused`, false if it has `apart`, `otherwise` if neither. */
static bool has_fused(const safetensors *f, module_role fused, module_role apart, bool otherwise) {
    return has_weight(f, fused) || (!has_weight(f, apart) && otherwise);
}

/* state.json does not record whether projections are fused; the tensor names do. */
static ott_status check_projections(const safetensors *f, const model_options *o) {
    bool qkv = has_fused(f, ROLE_QKV, ROLE_Q, o->fused_qkv);
    bool gate_up = has_fused(f, ROLE_GATE_UP, ROLE_GATE, o->fused_gate_up);
    if (qkv == o->fused_qkv && gate_up == o->fused_gate_up) return OTT_OK;
    static const char *const words[] = {"false", "true"};
    return status_fail(
        OTT_ERR_SHAPE,
        "%s: its model has model.fused_qkv = %s and model.fused_gate_up = %s, this run's has %s "
        "and %s: set --model.fused_qkv=%s --model.fused_gate_up=%s, or load a checkpoint of "
        "this model",
        safetensors_path(f), words[qkv], words[gate_up], words[o->fused_qkv], words[o->fused_gate_up],
        words[qkv], words[gate_up]);
}

/* Fails if a weight is FP8 in the file or in the model, but not in both: loading does not convert it. */
static ott_status check_frozen(const safetensors *f, const model *m) {
    for (int i = 0; i < m->all_parameter_count; i++) {
        const parameter *p = m->all_parameters[i];
        const safetensors_entry *e = safetensors_find(f, p->name);
        bool codes = e && e->dtype == OTT_E4M3;
        if (!e || codes == (p->codes != NULL)) continue;
        return status_fail(OTT_ERR_SHAPE,
                           "%s: %s is %s in the checkpoint and %s in this run: set train.frozen_dtype, "
                           "train.freeze and [float8] as in the checkpoint",
                           safetensors_path(f), p->name, codes ? "kept in FP8" : dtype_name(e->dtype),
                           codes ? dtype_name(p->shard.value.dtype) : "kept in FP8");
    }
    return OTT_OK;
}

/* Fails if moments are FP8 only in the file or only in this run: loading does not convert them. */
static ott_status check_moment_formats(const safetensors *f, const tensor_set *set) {
    for (int64_t i = 0; i < set->count; i++) {
        const safetensors_tensor *t = &set->declared[i];
        const safetensors_entry *e = safetensors_find(f, t->name);
        if (!e || (e->dtype == OTT_E4M3) == (t->dtype == OTT_E4M3)) continue;
        return status_fail(
            OTT_ERR_SHAPE,
            "%s: %s is %s in the checkpoint and %s in this run: set optimizer.state_dtype = \"%s\"",
            safetensors_path(f), t->name, dtype_name(e->dtype), dtype_name(t->dtype),
            e->dtype == OTT_E4M3   ? "fp8"
            : e->dtype == OTT_BF16 ? "bf16"
                                   : "fp32");
    }
    return OTT_OK;
}

static bool has_state(const safetensors *f, const parameter *p, const optimizer_rule *rule) {
    for (int64_t i = 0; i < safetensors_count(f); i++) {
        const char *name = safetensors_at(f, i)->name;
        if (tensor_is_state_of(name, p->name) && str_ends_with(name, rule->slot[0])) return true;
    }
    return false;
}

static bool is_of_frozen(const model *m, const char *state) {
    for (int i = 0; i < m->all_parameter_count; i++)
        if (m->all_parameters[i]->frozen && tensor_is_state_of(state, m->all_parameters[i]->name))
            return true;
    return false;
}

/* For checkpoint.ignore_freeze_mismatch: removes the state that the file lacks from the set. Fails if the
   file has other state than the set, except of frozen parameters. */
static ott_status fit_frozen(const safetensors *f, const model *m, const logger *log, tensor_set *set) {
    const optimizer_rule *rule = m->options.optimizer;
    int64_t started = 0, dropped = 0;
    for (int i = 0; i < m->all_parameter_count; i++) {
        const parameter *p = m->all_parameters[i];
        if (has_state(f, p, rule) == !p->frozen) continue;
        if (!p->frozen) tensor_set_drop_state(set, p->name);
        started += !p->frozen;
        dropped += p->frozen;
    }
    for (int64_t i = 0; i < safetensors_count(f); i++) {
        const char *name = safetensors_at(f, i)->name;
        if (!tensor_set_find(set, name) && !is_of_frozen(m, name)) return check_trained(f, set, rule);
    }
    if (started + dropped > 0)
        log_info(log,
                 "%s: the state of %" PRId64
                 " parameters that were frozen is initialized, and the state of %" PRId64
                 " that are frozen now is ignored (checkpoint.ignore_freeze_mismatch)",
                 safetensors_path(f), started, dropped);
    return OTT_OK;
}

/* An open file of a checkpoint and the tensors to load from it. */
typedef struct loader {
    safetensors *file;
    tensor_set set;
} loader;

static ott_status open_weights(loader *l, const model *m, const char *folder, bool without_base) {
    TRY(tensor_set_of_model(&l->set, m, without_base));
    TRY(checkpoint_file_open(m->device->account, folder, CHECKPOINT_MODEL, &l->file));
    TRY(check_projections(l->file, &m->options));
    TRY(check_frozen(l->file, m));
    return tensor_set_check(&l->set, l->file);
}

static ott_status open_training_state(loader *l, const model *m, const logger *log, const char *folder,
                                      bool any_frozen) {
    TRY(tensor_set_of_optimizer(&l->set, m));
    TRY(checkpoint_file_open(m->device->account, folder, CHECKPOINT_OPTIMIZER, &l->file));
    if (l->set.count > 0 && safetensors_count(l->file) == 0)
        return status_fail(
            OTT_ERR_UNSUPPORTED,
            "%s: is empty: the checkpoint holds weights only (checkpoint.save_model_only), so training "
            "cannot resume from it: set an earlier one with --checkpoint.load_path=PATH/step-N, or start "
            "with new optimizer state: --checkpoint.exclude_from_loading=optimizer",
            safetensors_path(l->file));
    TRY(check_moment_formats(l->file, &l->set));
    if (!any_frozen) TRY(check_trained(l->file, &l->set, m->options.optimizer));
    if (!any_frozen) return tensor_set_check(&l->set, l->file);
    TRY(fit_frozen(l->file, m, log, &l->set));
    return tensor_set_check_local(&l->set, l->file);
}

static void loader_close(loader *l) {
    safetensors_close(l->file);
    tensor_set_close(&l->set);
}

/* Logs that the file stores tensors in another format than this run. */
static void log_converted(const logger *log, const loader *l) {
    const safetensors_tensor *t = l->file ? tensor_set_converted(&l->set, l->file) : NULL;
    if (t)
        log_info(log,
                 "%s: %s is %s in the checkpoint and %s in this run: it and similar tensors are converted",
                 safetensors_path(l->file), t->name, dtype_name(safetensors_find(l->file, t->name)->dtype),
                 dtype_name(t->dtype));
}

/* Opens and checks weights, optimizer state and base folder before any byte of the model changes. */
static ott_status load_tensors(model *m, const logger *log, const char *path, const model_base *base,
                               const checkpoint_exclusions *choice) {
    loader weights = {0}, state = {0};
    ott_status status = OTT_OK;
    if (!choice->no_model) TRY_OUT(open_weights(&weights, m, path, base->files > 0));
    if (m->options.optimizer && !choice->no_optimizer)
        TRY_OUT(open_training_state(&state, m, log, path, choice->any_frozen));
    log_converted(log, &weights);
    log_converted(log, &state);
    if (!choice->no_model && base->files > 0) TRY_OUT(hf_base_load(m, log, path, base));
    /* the weights may differ from the base folder's, so later checkpoints store them */
    if (!choice->no_model && base->files == 0) m->options.base = NULL;
    int64_t done = 0, total = tensor_set_bytes(&weights.set) + tensor_set_bytes(&state.set);
    cancellation_progress progress =
        cancellation_progress_begin(m->cancellation, "Loading the checkpoint", total);
    TRY_OUT(tensor_set_read(&weights.set, weights.file, m->device, &progress, &done));
    for (int i = 0; weights.file && i < m->parameter_count; i++)
        if (m->parameters[i].codes) TRY_OUT(frozen_place_scales(&m->parameters[i], m->device));
    TRY_OUT(tensor_set_read(&state.set, state.file, m->device, &progress, &done));
    model_weights_changed(m);
out:
    loader_close(&weights);
    loader_close(&state);
    return status;
}

ott_status checkpoint_peek(mem *account, const char *path, run_state *state) {
    checkpoint_state s;
    ott_status status = checkpoint_verify(account, path, false, NULL, &s);
    if (status != OTT_OK) return checkpoint_suggest_newest(account, path, status);
    return *state = s.run, OTT_OK;
}

ott_status checkpoint_base_matches(mem *account, const char *path, const char *folder, bool *fits) {
    checkpoint_state s;
    *fits = true;
    TRY(checkpoint_verify(account, path, false, NULL, &s));
    return s.base.files > 0 ? hf_base_fits(account, folder, &s.base, fits) : OTT_OK;
}

static ott_status load_fp8_state(model *m, const logger *log, const char *folder, bool *fell_back) {
    safetensors *f;
    TRY(checkpoint_file_open(m->device->account, folder, CHECKPOINT_FLOAT8, &f));
    ott_status status = checkpoint_float8_read(m, log, f, fell_back);
    safetensors_close(f);
    return status;
}

static ott_status load_all(model *m, const logger *log, const checkpoint_ranks *ranks, const char *path,
                           const checkpoint_exclusions *choice, run_state *state, bool *fell_back) {
    mem *account = m->device->account;
    checkpoint_state s;
    ott_status status = checkpoint_verify_shared(ranks, path, m->cancellation, &s);
    if (status == OTT_ERR_STOPPED) return status;
    if (status != OTT_OK) return checkpoint_suggest_newest(account, path, status);
    *fell_back = false;
    TRY(checkpoint_state_match(&s, &m->options, path));
    TRY(load_tensors(m, log, path, &s.base, choice));
    if (!choice->no_model) TRY(load_fp8_state(m, log, path, fell_back));
    *state = s.run;
    if (choice->no_optimizer) state->updates = 0;
    if (choice->no_data) state->samples = 0;
    if (choice->no_schedule) state->schedule_start = state->step;
    if (choice->no_counters) state->step = state->tokens = state->nan_steps = state->schedule_start = 0;
    return OTT_OK;
}

ott_status checkpoint_load_part(model *m, const logger *log, group *ranks, const char *path,
                                const checkpoint_exclusions *choice, run_state *state, bool *fell_back) {
    const checkpoint_ranks all = {ranks, m->device};
    return ranks_agree(&all, load_all(m, log, &all, path, choice, state, fell_back));
}

ott_status checkpoint_load(model *m, const logger *log, group *ranks, const char *path, run_state *state,
                           bool *fell_back) {
    return checkpoint_load_part(m, log, ranks, path, &(checkpoint_exclusions){0}, state, fell_back);
}
