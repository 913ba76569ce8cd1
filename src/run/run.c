/* run/run: turns a configuration into weights and trainer options. */
#include "run/run.h"
#include "base/text/size.h"
#include "folders/hf/base.h"
#include "folders/hf/model.h"
#include "folders/peft.h"
#include "model/init.h"

static bool has_model(const config *cfg) {
    return cfg->model.preset != PRESET_NONE || *cfg->model.hf_path || config_was_set(cfg, "model.dim") ||
           config_was_set(cfg, "model.n_layers");
}

static ott_status check_described(const config *cfg, bool described, bool named) {
    static const char file[] = "no model is given: use a configuration file (ready ones are in "
                               "configs/, or share/ottava/configs of an installation: debug.toml, demo.toml, "
                               "...), or model.preset and data.dataset_path";
    static const char no_model[] =
        "no model is described: give model.preset (demo, 42M, 8B, ...), model.hf_path "
        "(a Hugging Face folder) or model.dim and the other dimensions";
    static const char no_data[] =
        "no training data is named: give data.dataset_path (text, JSONL or tokens), or "
        "data.format = \"synthetic\" for random tokens";
    if (described && named) return OTT_OK;
    if (!described && !*cfg->path) return status_fail(OTT_ERR_CONFIG, "%s", file);
    return status_fail(OTT_ERR_CONFIG, "%s%s%s%s%s", cfg->path, *cfg->path ? ": " : "",
                       described ? "" : no_model, described || named ? "" : "; ", named ? "" : no_data);
}

ott_status run_check_described(const config *cfg) {
    return check_described(cfg, has_model(cfg),
                           *cfg->data.dataset_path || cfg->data.datasets.count > 0 ||
                               cfg->data.format == DATA_SYNTHETIC);
}

ott_status run_check_model(const config *cfg) {
    return check_described(cfg, has_model(cfg), true);
}

ott_status run_load_initial_weights(model *m, const config *cfg, int threads) {
    uint64_t seed = (uint64_t)cfg->train.seed;
    bool loads = *cfg->model.hf_path && !cfg->model.reduce;
    if (m->options.base) TRY(hf_base_mark(m, m->options.base));
    if (!loads)
        TRY(model_initialize(m, seed, threads));
    else if (cfg->train.master_dither)
        TRY(hf_model_load_dithered(m, cfg->model.hf_path, seed));
    else
        TRY(hf_model_load(m, cfg->model.hf_path));
    if (*cfg->peft.path && cfg->peft.enabled) return peft_load(m, cfg->peft.path);
    return loads && cfg->peft.enabled ? model_initialize_adapters(m, seed, threads) : OTT_OK;
}

static checkpointing checkpointing_from(const config *cfg) {
    switch (cfg->train.activation_checkpointing) {
    case CHECKPOINTING_SELECTIVE: return CHECKPOINT_SELECTIVE;
    case CHECKPOINTING_OP: return CHECKPOINT_OP;
    case CHECKPOINTING_FULL:
    case CHECKPOINTING_EVERY_N: return CHECKPOINT_FULL;
    default: return CHECKPOINT_NONE;
    }
}

/* Tokens per chunk of the loss. Without chunks: the tokens of a micro-batch or of a batch of evaluation,
   whichever has more. */
static int64_t chunk_from(const config *cfg) {
    enum { DEFAULT_CHUNK = 4096 }; /* if train.ce_chunk_size is 0 */
    if (cfg->train.loss_fn != LOSS_CHUNKED_CROSS_ENTROPY)
        return size_max(cfg->train.batch_size * cfg->train.seq_len,
                        config_evaluation_batch(cfg) * config_evaluation_length(cfg));
    return cfg->train.ce_chunk_size > 0 ? cfg->train.ce_chunk_size : DEFAULT_CHUNK;
}

ott_status run_check_caller_loss(const config *cfg) {
    if (cfg->train.loss_fn != LOSS_CROSS_ENTROPY)
        return status_fail(OTT_ERR_CONFIG,
                           "%s: a loss function of the caller replaces it and gets the logits of all tokens "
                           "at once: leave train.loss_fn out",
                           config_where(cfg, "train.loss_fn"));
    if (cfg->train.z_loss_weight == 0) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG,
                       "%s: a loss function of the caller computes the full loss: leave train.z_loss_weight "
                       "out, and add the z-loss in the function",
                       config_where(cfg, "train.z_loss_weight"));
}

/* The head's weight gradient is a sum over a chunk's tokens, so a chunk must have full scale blocks. */
static ott_status check_chunk(const recipe *r, const trainer_options *o) {
    int64_t tokens = o->batch_size * o->seq_len, evaluated = o->evaluation_batch * o->evaluation_length;
    if (evaluated > tokens) tokens = evaluated;
    const cast_spec *use = &r->input.columnwise;
    int64_t depth = cast_spec_is_fp8(use) ? granularity_block(use->grain).k : INT64_MAX;
    if (depth == INT64_MAX || o->chunk >= tokens || o->chunk % depth == 0) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG,
                       "train.ce_chunk_size = %lld must be a multiple of %lld with recipe %s, which scales "
                       "%s blocks",
                       (long long)o->chunk, (long long)depth, r->name, granularity_name(use->grain));
}

/* Token indices in a micro-batch are 32-bit integers. */
static ott_status check_batch_tokens(const config *cfg) {
    long long size = cfg->train.batch_size, length = cfg->train.seq_len, rows = config_evaluation_batch(cfg),
              row = config_evaluation_length(cfg);
    int64_t tokens;
    if (!size_multiply(size, length, &tokens) || tokens >= INT32_MAX)
        return status_fail(
            OTT_ERR_CONFIG,
            "train.batch_size x train.seq_len = %lld x %lld tokens: a micro-batch must have fewer than %d; "
            "raise train.grad_accum_steps instead",
            size, length, INT32_MAX);
    if (size_multiply(rows, row, &tokens) && tokens < INT32_MAX) return OTT_OK;
    return status_fail(
        OTT_ERR_CONFIG,
        "eval.batch_size x eval.seq_len = %lld x %lld tokens: a batch must have fewer than %d; "
        "raise eval.steps instead",
        rows, row, INT32_MAX);
}

ott_status run_trainer_options(const config *cfg, const precision_plan *precision, int64_t step,
                               trainer_options *out) {
    static const store_reshard reshards[] = {[RESHARD_DEFAULT] = STORE_RESHARD_DEFAULT,
                                             [RESHARD_ALWAYS] = STORE_RESHARD_ALWAYS,
                                             [RESHARD_NEVER] = STORE_RESHARD_NEVER};
    static const muon_scale muon_scales[] = {[MUON_ADJUST_ORIGINAL] = MUON_SCALE_ORIGINAL,
                                             [MUON_ADJUST_MATCH_RMS_ADAMW] = MUON_SCALE_RMS,
                                             [MUON_ADJUST_SPECTRAL_UNCLAMPED] = MUON_SCALE_SPECTRAL,
                                             [MUON_ADJUST_NONE] = MUON_SCALE_ONE};
    bool is_muon = cfg->optimizer.name == OPTIMIZER_MUON;
    TRY(check_batch_tokens(cfg));
    *out = (trainer_options){
        .convert = {.recipe = precision_at(precision, step),
                    .kept = &precision->fp8,
                    .bf16 = precision->bf16,
                    .filter = cfg->float8.filter_fqns.items,
                    .filter_count = (int)cfg->float8.filter_fqns.count,
                    .any_dimension = cfg->float8.pad_inner_dim,
                    .reduced = cfg->model.reduce > 0,
                    .rules = precision->rules,
                    .rule_count = precision->rule_count,
                    .keep_first = cfg->float8.keep_first_layers,
                    .keep_last = cfg->float8.keep_last_layers,
                    .experts = cfg->float8.moe_experts,
                    .store_mlp_inputs = cfg->float8.store_mlp_inputs,
                    .smooth_mlp = cfg->float8.smooth_swiglu},
        .store = {.gather_masters = !cfg->float8.enable_fsdp_float8_all_gather,
                  .precompute_scales = cfg->float8.precompute_float8_dynamic_scale_for_fsdp,
                  .regather_for_backward = cfg->float8.force_recompute_fp8_weight_in_bwd,
                  .reduce_bf16 = cfg->distributed.reduce_dtype == REDUCE_BFLOAT16,
                  .reduce_once = cfg->distributed.defer_fsdp_grad_sync,
                  .reshard = reshards[cfg->distributed.reshard_after_forward]},
        .optimizer = {.beta1 = (float)cfg->optimizer.betas[0],
                      .beta2 = (float)cfg->optimizer.betas[1],
                      .epsilon = (float)cfg->optimizer.eps,
                      .weight_decay = (float)cfg->optimizer.weight_decay,
                      .max_norm = (float)cfg->train.grad_clip_norm,
                      .seed = (uint64_t)cfg->train.seed,
                      .momentum = (float)(is_muon ? cfg->optimizer.muon_momentum : cfg->optimizer.momentum),
                      .nesterov = is_muon ? cfg->optimizer.muon_nesterov : cfg->optimizer.nesterov,
                      .warmup = cfg->optimizer.schedule_free_warmup_steps,
                      .weight_lr_power = cfg->optimizer.weight_lr_power,
                      .muon_scale = muon_scales[cfg->optimizer.muon_adjust_lr],
                      .muon_steps = (int)cfg->optimizer.muon_ns_steps,
                      .muon_format = cfg->train.mixed_precision == PRECISION_FP32 ? OTT_F32 : OTT_BF16,
                      /* AdamW's learning rate divided by Muon's; both follow the same schedule */
                      .adam_rate = (float)(cfg->optimizer.muon_adam_lr > 0
                                               ? cfg->optimizer.muon_adam_lr / cfg->optimizer.lr
                                               : 1.0)},
        .batch_size = cfg->train.batch_size,
        .seq_len = cfg->train.seq_len,
        .evaluation_batch = config_evaluation_batch(cfg),
        .evaluation_length = config_evaluation_length(cfg),
        .grad_accum = cfg->train.grad_accum_steps,
        .chunk = chunk_from(cfg),
        .z_weight = (float)cfg->train.z_loss_weight,
        .checkpointing = checkpointing_from(cfg),
        .checkpoint_every = cfg->train.activation_checkpointing == CHECKPOINTING_EVERY_N
                                ? cfg->train.activation_checkpointing_every
                                : 1,
        .budgeted = cfg->train.activation_checkpointing == CHECKPOINTING_MEMORY_BUDGET,
        .memory_budget = cfg->train.activation_memory_budget,
        .data_seed = (uint64_t)(cfg->train.data_seed >= 0 ? cfg->train.data_seed : cfg->train.seed),
        .fp16_scaling = cfg->train.mixed_precision == PRECISION_FP16,
        .graphs = cfg->train.compile_model && cfg->train.compile_mode != COMPILE_DEFAULT,
    };
    for (int i = 0; i < precision->phase_count; i++) TRY(check_chunk(precision->phases[i].recipe, out));
    for (int i = 0; i < precision->rule_count; i++) TRY(check_chunk(precision->rules[i].recipe, out));
    return OTT_OK;
}
