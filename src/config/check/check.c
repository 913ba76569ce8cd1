/* config/check/check: checks that all requested features are supported and that the keys agree. */
#include "config/check/check.h"
#include <stdio.h>
#include <string.h>

/* True if the key's section has a switch (checkpoint.enabled, eval.enabled), and the switch is off. */
static bool section_is_off(const config *cfg, const config_key *key) {
    char path[80];
    snprintf(path, sizeof path, "%s.enabled", key->section);
    const config_key *own = table_find(path);
    return own && own != key && !table_get(cfg, own).integer;
}

/* True if another key overrides this key or switches it off. */
static bool is_moot(const config *cfg, const config_key *key) {
    const key_note *note = &cfg->state->keys[table_index(key)];
    return config_is_replaced(cfg, key) || section_is_off(cfg, key) ||
           (note->spelled && diagnostic_is_off(cfg, note->spelled));
}

static ott_status fail_later(const config_key *key, const char *where) {
    char text[160];
    switch (key->type) {
    case KEY_BOOL:
        snprintf(text, sizeof text, "set it to %s", key->fallback.integer ? "true" : "false");
        break;
    case KEY_INT: snprintf(text, sizeof text, "set it to %lld", (long long)key->fallback.integer); break;
    default: snprintf(text, sizeof text, "leave it out"); break;
    }
    return status_fail(OTT_ERR_CONFIG, "%s: %s (%s to run without it)", where, key->reason, text);
}

static ott_status check_key(const config *cfg, const config_key *key) {
    if (key->state != STATE_LATER || config_is_neutral(cfg, key) || is_moot(cfg, key)) return OTT_OK;
    return fail_later(key, config_where(cfg, key->path));
}

static ott_status check_built(config *cfg) {
    int count;
    const config_key *keys = table_keys(&count);
    for (int i = 0; i < count; i++)
        TRY(diagnostic_failure(cfg, keys[i].path, &keys[i], check_key(cfg, &keys[i])));
    return OTT_OK;
}

/* Checks global_batch_size and computes grad_accum_steps. While the number of ranks is unknown, it assumes
   one rank, but accepts any grad_accum_steps that is right for some number of ranks. */
static ott_status check_batches(config *cfg) {
    int64_t global = cfg->train.global_batch_size, local = cfg->train.batch_size;
    int64_t counted = cfg->state->data_ranks, ranks = counted ? counted : 1, each = local * ranks;
    if (global == 0) return OTT_OK;
    if (global % each != 0)
        FAIL("global_batch_size (%lld) must be divisible by local_batch_size * dp_size (%lld * %lld)",
             (long long)global, (long long)local, (long long)ranks);
    int64_t steps = global / each, given = cfg->train.grad_accum_steps;
    bool fits = counted ? given == steps : steps % given == 0;
    if (*cfg->checkpoint.load_path) fits = true; /* the checkpoint's run may have had more or fewer ranks */
    if (config_was_set(cfg, "train.grad_accum_steps") && !fits)
        FAIL("train.global_batch_size (%lld) is not train.batch_size (%lld) times train.grad_accum_steps "
             "(%lld)%s; give only one",
             (long long)global, (long long)local, (long long)given, ranks > 1 ? " times the ranks" : "");
    if (counted || !config_was_set(cfg, "train.grad_accum_steps")) cfg->train.grad_accum_steps = steps;
    return OTT_OK;
}

int64_t config_step_rows(const config *cfg) {
    int64_t ranks = cfg->state->data_ranks;
    return cfg->train.batch_size * cfg->train.grad_accum_steps * (ranks ? ranks : 1);
}

int64_t config_evaluation_batch(const config *cfg) {
    return cfg->eval.enabled && cfg->eval.batch_size > 0 ? cfg->eval.batch_size : cfg->train.batch_size;
}

int64_t config_max_positions(const config *cfg) {
    bool is_dynamic = cfg->model.rope_scaling == ROPE_DYNAMIC;
    double length = (double)cfg->model.max_seq_len * (is_dynamic ? cfg->model.rope_factor : 1);
    return length < (double)INT32_MAX ? (int64_t)length : INT32_MAX;
}

int64_t config_evaluation_length(const config *cfg) {
    return cfg->eval.enabled && cfg->eval.seq_len > 0 ? cfg->eval.seq_len : cfg->train.seq_len;
}

static ott_status check_heads(config *cfg) {
    bool given = config_was_set(cfg, "model.dim") && config_was_set(cfg, "model.n_heads");
    if (given && cfg->model.head_dim == 0 && cfg->model.dim % cfg->model.n_heads != 0)
        FAIL("dim (%lld) must be divisible by n_heads (%lld)", (long long)cfg->model.dim,
             (long long)cfg->model.n_heads);
    return OTT_OK;
}

static ott_status check_kv_heads(config *cfg) {
    long long n_heads = cfg->model.n_heads, kv = cfg->model.n_kv_heads;
    bool given = config_was_set(cfg, "model.n_heads") && config_was_set(cfg, "model.n_kv_heads");
    if (given && kv > 0 && n_heads % kv != 0)
        FAIL("n_heads (%lld) must be divisible by n_kv_heads (%lld)", n_heads, kv);
    return OTT_OK;
}

/* out = text about the source of the key's value: " (run.yaml:3: packed_sequence.packed_sequence_size =
   512)". It is "" if the user gave an option, because the user knows that. */
static void append_origin(const config *cfg, const char *path, char out[200]) {
    const key_note *note = state_note(cfg, path);
    bool of_preset = cfg->model.preset != PRESET_NONE && str_starts_with(path, "model.");
    if (!note->set)
        snprintf(out, 200, " (%s)", of_preset ? "from model.preset" : "the default");
    else if (note->from_file)
        snprintf(out, 200, " (%.190s)", note->where);
    else
        *out = '\0';
}

static ott_status fail_length(const config *cfg, const char *key, int64_t length) {
    char from[200], longest[200];
    append_origin(cfg, key, from);
    append_origin(cfg, "model.max_seq_len", longest);
    FAIL("%s (%lld) exceeds model.max_seq_len (%lld): set --%s=%lld%s, or --model.max_seq_len=%lld%s", key,
         (long long)length, (long long)cfg->model.max_seq_len, key, (long long)cfg->model.max_seq_len, from,
         (long long)length, longest);
}

ott_status config_check_lengths(const config *cfg) {
    int64_t longest = config_max_positions(cfg);
    if (cfg->train.seq_len > longest) return fail_length(cfg, "train.seq_len", cfg->train.seq_len);
    if (cfg->eval.enabled && cfg->eval.seq_len > longest)
        return fail_length(cfg, "eval.seq_len", cfg->eval.seq_len);
    return OTT_OK;
}

/* Compares the model's and the data's lengths only if all are given. Else config_check_lengths runs later,
   when a preset, a model folder or the data have set them. */
static ott_status check_lengths(config *cfg) {
    bool given = config_was_set(cfg, "train.seq_len") && config_was_set(cfg, "model.max_seq_len");
    if (*cfg->model.hf_path) given = given && config_was_set(cfg, "model.rope_scaling");
    return given ? config_check_lengths(cfg) : OTT_OK;
}

static ott_status check_data(config *cfg) {
    bool mixture = cfg->data.datasets.count > 0;
    if (cfg->data.format == DATA_SYNTHETIC && (mixture || *cfg->data.dataset_path))
        FAIL("data.format = \"synthetic\" reads no file, but %s is given; remove one",
             mixture ? "data.datasets" : "data.dataset_path");
    if (mixture && *cfg->data.dataset_path)
        FAIL("data.datasets and data.dataset_path both name the training data; remove one");
    if (mixture && cfg->eval.enabled && !*cfg->eval.dataset_path && cfg->eval.holdout > 0)
        FAIL("eval.holdout splits one data.dataset_path, but data.datasets names several: name the "
             "validation data with eval.dataset_path");
    bool columns = cfg->data.format == DATA_INSTRUCTION; /* data.context_field can replace the prompt */
    if (!columns && !*cfg->data.prompt_field != !*cfg->data.completion_field)
        FAIL("data.prompt_field = \"%s\" and data.completion_field = \"%s\": give both or neither",
             cfg->data.prompt_field, cfg->data.completion_field);
    return OTT_OK;
}

static ott_status check_eval(config *cfg) {
    if (!cfg->eval.enabled) return OTT_OK;
    bool source = *cfg->eval.dataset_path || (cfg->eval.holdout > 0.0 && *cfg->data.dataset_path) ||
                  cfg->data.format == DATA_SYNTHETIC;
    bool named = *cfg->data.dataset || *cfg->data.hf_dataset_name || cfg->data.datasets.count > 0;
    bool refused = /* true if check_built or check_data refuses these keys */
        *cfg->eval.dataset || *cfg->eval.hf_dataset_name || (cfg->eval.holdout > 0.0 && named);
    if (!source && !refused)
        FAIL("eval.enabled is True but no eval data source is configured. Set eval.dataset_path, or "
             "eval.holdout with data.dataset_path.");
    return OTT_OK;
}

static ott_status check_checkpoint(config *cfg) {
    bool folder = cfg->checkpoint.save_hf != SAVE_HF_FALSE || cfg->checkpoint.interval == 0;
    if (cfg->checkpoint.export_dtype == EXPORT_FLOAT32 || folder) return OTT_OK;
    FAIL("checkpoint.export_dtype needs checkpoint.save_hf, which writes the Hugging Face folder: set "
         "checkpoint.save_hf = \"final\", or remove checkpoint.export_dtype");
}

/* The parts of a checkpoint that checkpoint.exclude_from_loading may name. */
static const char *const parts[] = {"model", "optimizer", "lr_scheduler", "dataloader", "train_state"};
enum { OPTIMIZER_PART = 1, SCHEDULE_PART = 2, COUNTERS_PART = 4, PARTS = sizeof parts / sizeof *parts };

static ott_status find_checkpoint_part(const config *cfg, const char *word, int *part) {
    const char *nearest = str_nearest(word, parts, PARTS);
    for (*part = 0; *part < PARTS; ++*part)
        if (strcmp(parts[*part], word) == 0) return OTT_OK;
    FAIL("%s: \"%s\" is not a part of a checkpoint; its parts are model, optimizer, lr_scheduler, dataloader "
         "and train_state%s%s%s",
         config_where(cfg, "checkpoint.exclude_from_loading"), str_show(word).text,
         nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

/* Fails if loading skips train_state (which has the step count) but not optimizer and lr_scheduler. */
static ott_status check_excluded_parts(config *cfg) {
    const str_list *list = &cfg->checkpoint.exclude_from_loading;
    bool given[PARTS] = {false};
    for (int64_t i = 0; i < list->count; i++) {
        int part;
        TRY(find_checkpoint_part(cfg, list->items[i], &part));
        given[part] = true;
    }
    if (!given[COUNTERS_PART] || (given[OPTIMIZER_PART] && given[SCHEDULE_PART])) return OTT_OK;
    FAIL("%s: optimizer and lr_scheduler cannot be loaded without train_state, the step count: exclude them "
         "as well",
         config_where(cfg, "checkpoint.exclude_from_loading"));
}

static ott_status check_profiling(config *cfg) {
    if (cfg->profiling.frequency > 0 || cfg->profiling.end_step > cfg->profiling.start_step) return OTT_OK;
    FAIL("profiling.end_step (%lld) must be greater than profiling.start_step (%lld)",
         (long long)cfg->profiling.end_step, (long long)cfg->profiling.start_step);
}

static ott_status check_schedule(config *cfg) {
    long long warmup = cfg->scheduler.warmup_steps, steps = cfg->train.max_steps;
    long long decay = cfg->scheduler.decay_steps,
              stable = cfg->scheduler.stable_steps < 0 ? 0 : cfg->scheduler.stable_steps;
    if (cfg->scheduler.name == SCHEDULER_NONE) return OTT_OK;
    if (cfg->scheduler.name == SCHEDULER_WSD && warmup <= steps && warmup + stable + decay > steps)
        FAIL("scheduler.warmup_steps (%lld), stable_steps (%lld) and decay_steps (%lld) exceed "
             "train.max_steps (%lld)",
             warmup, stable, decay, steps);
    if (warmup > steps)
        log_warning(cfg->state->lg,
                    "scheduler.warmup_steps (%lld) is longer than train.max_steps (%lld): the learning "
                    "rate never reaches optimizer.lr",
                    warmup, steps);
    return OTT_OK;
}

/* True if distributed.fit may reduce the parallel sizes later, when the number of ranks is known. */
static bool sizes_may_change(const config *cfg) {
    return cfg->distributed.fit && cfg->state->data_ranks == 0;
}

/* The message begins with KempnerForge's documented words, and then names the key that Ottava has for it. */
static ott_status check_tensor_parallel(config *cfg) {
    if (sizes_may_change(cfg) || cfg->train.mixed_precision != PRECISION_FP8 || cfg->distributed.tp <= 1 ||
        cfg->float8.tensor_parallel)
        return OTT_OK;
    FAIL("FP8 + Tensor Parallelism is not yet supported (torchao Float8Linear does not compose with DTensor "
         "sharding). Use FP8 with FSDP only, or TP without FP8. float8.tensor_parallel = true turns on "
         "Ottava's own implementation.");
}

static ott_status check_pipeline(config *cfg) {
    if (sizes_may_change(cfg) || cfg->distributed.pp <= 1 || cfg->distributed.pp_schedule != PP_ZERO_BUBBLE)
        return OTT_OK;
    FAIL("schedules that split backward, and looped breadth-first ones, are not supported yet: use 1f1b, "
         "gpipe or interleaved_1f1b");
}

/* Control characters in file names would break log lines, terminals and config.toml. */
ott_status config_check_name(const char *key, const char *name) {
    if (!str_has_control(name)) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG, "%s = \"%s\" has a control character (shown as ?): rename it", key,
                       str_show(name).text);
}

static ott_status check_names(config *cfg) {
    static const char *const keys[] = {"run.dir",           "model.hf_path",           "data.dataset_path",
                                       "data.file_pattern", "data.tokenizer_path",     "eval.dataset_path",
                                       "eval.file_pattern", "checkpoint.dir",          "checkpoint.load_path",
                                       "peft.path",         "metrics.tensorboard_dir", "profiling.trace_dir"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        TRY(config_collect(cfg, config_check_name(keys[i], table_get(cfg, table_find(keys[i])).text)));
    for (int64_t i = 0; i < cfg->data.datasets.count; i++)
        TRY(config_collect(cfg, config_check_name("data.datasets", cfg->data.datasets.items[i])));
    return config_check_name("the configuration's file", cfg->path);
}

/* Enables adapters if any key of [peft] is given, unless peft.enabled is given. */
static void finalize_adapters(config *cfg) {
    int count;
    const config_key *keys = table_keys(&count);
    if (config_was_set(cfg, "peft.enabled")) return;
    for (int i = 0; i < count; i++)
        if (strcmp(keys[i].section, "peft") == 0) cfg->peft.enabled |= cfg->state->keys[i].set;
}

bool config_copies_masters(const config *cfg) {
    return cfg->train.mixed_precision != PRECISION_FP32 && cfg->train.master_dtype == STATE_FP32;
}

/* Fails if masters are in host memory and GEMMs would read them: GEMMs cannot read host memory. */
static ott_status check_offload(config *cfg) {
    bool is_fp32 = cfg->train.mixed_precision == PRECISION_FP32;
    if (cfg->train.offload != OFFLOAD_STATE || config_copies_masters(cfg)) return OTT_OK;
    FAIL("train.offload = \"state\" keeps master weights in host memory, but with %s matrix products read "
         "them; "
         "set train.offload = \"moments\", or %s",
         is_fp32 ? "train.mixed_precision = \"fp32\"" : "train.master_dtype = \"bf16\"",
         is_fp32 ? "use another precision" : "remove train.master_dtype");
}

static ott_status check_moments(config *cfg) {
    if (cfg->optimizer.name == OPTIMIZER_ADAMW || cfg->optimizer.state_dtype != MOMENT_FP8) return OTT_OK;
    FAIL("optimizer.state_dtype = \"fp8\" is supported only for optimizer.name = \"adamw\", not for \"%s\": "
         "set \"bf16\", or remove it",
         config_word(cfg, "optimizer.name"));
}

static ott_status check_muon_offload(config *cfg) {
    if (cfg->optimizer.name == OPTIMIZER_MUON && cfg->train.offload != OFFLOAD_NONE)
        FAIL("train.offload = \"%s\" is not supported for optimizer.name = \"muon\": remove it, or use "
             "another optimizer",
             config_word(cfg, "train.offload"));
    return OTT_OK;
}

static ott_status check_muon_ranks(config *cfg) {
    bool is_split = cfg->distributed.tp > 1;
    if (sizes_may_change(cfg)) return OTT_OK;
    if (cfg->optimizer.name == OPTIMIZER_MUON && (is_split || cfg->distributed.ep > 1))
        FAIL("optimizer.name = \"muon\" needs full matrices, but distributed.%s = %lld shards them: use "
             "distributed.dp_shard instead, or another optimizer",
             is_split ? "tp" : "ep", (long long)(is_split ? cfg->distributed.tp : cfg->distributed.ep));
    return OTT_OK;
}

static ott_status check_nesterov(config *cfg) {
    config_optimizer name = cfg->optimizer.name;
    bool is_nesterov_muon = name == OPTIMIZER_MUON && cfg->optimizer.muon_nesterov;
    if (name != OPTIMIZER_SGD && !is_nesterov_muon && cfg->optimizer.nesterov)
        FAIL("optimizer.nesterov = true is supported only for optimizer.name = \"sgd\", not for \"%s\": "
             "remove it (muon has optimizer.muon_nesterov)",
             config_word(cfg, "optimizer.name"));
    if (name == OPTIMIZER_SGD && cfg->optimizer.nesterov && cfg->optimizer.momentum == 0.0)
        FAIL(
            "optimizer.nesterov = true needs a momentum, but optimizer.momentum is 0: set one, or remove it");
    return OTT_OK;
}

static ott_status check_schedule_free(config *cfg) {
    if (cfg->optimizer.name == OPTIMIZER_SCHEDULE_FREE_ADAMW && cfg->scheduler.name != SCHEDULER_NONE)
        FAIL("optimizer.name = \"schedule_free_adamw\" has no learning-rate decay: set "
             "scheduler.name = \"none\", and the warmup with optimizer.schedule_free_warmup_steps");
    return OTT_OK;
}

/* A check is skipped if a key that it reads has an error, because this key has its default value then. */
static const struct {
    ott_status (*check)(config *);
    const char *reads; /* the keys and sections that the check reads: "a.b|c" */
} checks[] = {
    {check_names, ""},
    {check_batches, "train.batch_size|train.global_batch_size|train.grad_accum_steps"},
    {check_heads, "model.dim|model.n_heads|model.head_dim"},
    {check_kv_heads, "model.n_heads|model.n_kv_heads"},
    {check_lengths, "train.seq_len|model.max_seq_len"},
    {check_data, "data"},
    {check_eval, "eval|data"},
    {check_profiling, "profiling"},
    {check_schedule, "scheduler|train.max_steps"},
    {check_float8, "float8|train.mixed_precision"},
    {check_checkpoint, "checkpoint"},
    {check_excluded_parts, "checkpoint.exclude_from_loading"},
    {check_offload, "train.offload|train.mixed_precision|train.master_dtype"},
    {check_moments, "optimizer.name|optimizer.state_dtype"},
    {check_muon_offload, "optimizer.name|train.offload"},
    {check_muon_ranks, "optimizer.name|distributed"},
    {check_nesterov, "optimizer"},
    {check_tensor_parallel, "distributed|train.mixed_precision|float8.tensor_parallel"},
    {check_pipeline, "distributed"},
    {check_schedule_free, "optimizer.name|scheduler.name"},
};

static ott_status check_all(config *cfg) {
    TRY(config_collect(cfg, foreign_finalize(cfg)));
    if (!cfg->checkpoint.enabled) cfg->checkpoint.interval = 0;
    finalize_adapters(cfg);
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (!diagnostic_has_error_in(cfg, checks[i].reads)) TRY(config_collect(cfg, checks[i].check(cfg)));
    return check_built(cfg);
}

/* Runs `check`, then reports all failures together. After config_collect_begin, only collects them. */
static ott_status report_failures(config *cfg, ott_status (*check)(config *)) {
    if (cfg->state->diagnostics.collecting) return check(cfg);
    config_collect_begin(cfg);
    ott_status status = check(cfg), reported = config_collect_end(cfg);
    return status == OTT_OK ? reported : status;
}

ott_status config_check(config *cfg) {
    return report_failures(cfg, check_all);
}

static ott_status check_ranks(config *cfg) {
    static ott_status (*const of_ranks[])(config *) = {check_batches, check_tensor_parallel, check_pipeline,
                                                       check_muon_ranks};
    for (size_t i = 0; i < sizeof of_ranks / sizeof *of_ranks; i++)
        TRY(config_collect(cfg, of_ranks[i](cfg)));
    return OTT_OK;
}

ott_status config_set_data_ranks(config *cfg, int64_t ranks) {
    cfg->state->data_ranks = ranks;
    return report_failures(cfg, check_ranks);
}
