/* resolve/model: resolves a configuration into a model's options. */
#include "base/text/size.h"
#include "resolve/options.h"
#include "resolve/resolve.h"
#include <math.h>
#include <stdlib.h>

/* ---- model.reduce ---- */

/* Returns width / by, rounded down to a multiple of 16 for FP8, but at least 16. */
static int64_t narrowed(int64_t width, int64_t by) {
    return size_max(width / by / 16 * 16, 16);
}

/* Removes the indices of layers that the reduced model does not have. The list is sorted. */
static void drop_layers(str_list *list, int64_t layers) {
    while (list->count > 0 && strtol(list->items[list->count - 1], NULL, 10) >= layers) list->count--;
}

/* Divides the experts' width by `by`. Changes which layers have experts, so that at least one has. */
static void reduce_mixture(ott_model_options *o, int64_t by) {
    if (o->num_experts == 0) return;
    o->moe_expert_hidden_dim = narrowed(o->moe_expert_hidden_dim, by);
    if (o->moe_frequency > o->n_layers) o->moe_frequency = o->n_layers;
    if (o->moe_first_dense_layers >= o->n_layers) o->moe_first_dense_layers = o->n_layers - 1;
}

/* Divides layers, heads and widths by a factor. A head keeps its width, and n_heads stays a multiple of
   n_kv_heads. */
static void reduce_options(ott_model_options *o, int64_t by) {
    int64_t heads = size_max(o->n_heads / by, 1), shared = o->n_heads / o->n_kv_heads;
    o->n_layers = size_max(o->n_layers / by, 1);
    o->dim = narrowed(o->dim, by);
    o->ffn_hidden_dim = narrowed(o->ffn_hidden_dim, by);
    o->n_kv_heads = size_max(heads / shared, 1);
    o->n_heads = heads / o->n_kv_heads * o->n_kv_heads;
    if (o->q_lora_rank > 0) o->q_lora_rank = narrowed(o->q_lora_rank, by);
    if (o->kv_lora_rank > 0) o->kv_lora_rank = narrowed(o->kv_lora_rank, by);
    reduce_mixture(o, by);
}

/* Then sets model.reduce to 1, because cfg describes the small model. */
static void reduce_model(config *cfg, ott_model_options *o) {
    if (cfg->model.reduce <= 1) return;
    reduce_options(o, cfg->model.reduce);
    drop_layers(&cfg->model.full_attention_layers, o->n_layers);
    if (o->num_experts > 0) drop_layers(&cfg->model.moe_dense_layers, o->n_layers);
    cfg->model.reduce = 1;
}

/* ---- lists of [model] ---- */

typedef struct model_lists {
    int32_t full[MODEL_MAX_FULL], dense[MODEL_MAX_DENSE];
    float short_factor[ROPE_MOST_FACTORS], long_factor[ROPE_MOST_FACTORS];
} model_lists;

/* Reads at most `most` numbers. Returns the number of entries, which may be larger. */
static int read_integers(const str_list *list, int most, int32_t *out) {
    for (int i = 0; i < list->count && i < most; i++) out[i] = (int32_t)strtol(list->items[i], NULL, 10);
    return (int)list->count;
}

static ott_status read_factors(const char *key, const str_list *list, float out[ROPE_MOST_FACTORS],
                               int *count) {
    *count = (int)list->count;
    for (int i = 0; i < *count && i < ROPE_MOST_FACTORS; i++) {
        char *end;
        out[i] = strtof(list->items[i], &end);
        if (*end || end == list->items[i] || !(out[i] > 0))
            return status_fail(OTT_ERR_CONFIG, "%s has \"%s\", which is not a number above 0", key,
                               str_show(list->items[i]).text);
    }
    return OTT_OK;
}

static ott_status read_lists(const config *cfg, model_lists *lists, ott_model_options *o) {
    o->full_attention_layers = lists->full;
    o->moe_dense_layers = lists->dense;
    o->rope_short_factor = lists->short_factor;
    o->rope_long_factor = lists->long_factor;
    o->full_attention_layer_count =
        read_integers(&cfg->model.full_attention_layers, MODEL_MAX_FULL, lists->full);
    o->moe_dense_layer_count = read_integers(&cfg->model.moe_dense_layers, MODEL_MAX_DENSE, lists->dense);
    TRY(read_factors("model.rope_short_factor", &cfg->model.rope_short_factor, lists->short_factor,
                     &o->rope_short_factor_count));
    return read_factors("model.rope_long_factor", &cfg->model.rope_long_factor, lists->long_factor,
                        &o->rope_long_factor_count);
}

/* ---- checks of other sections ---- */

/* Checks that expert parallelism can split the experts evenly. */
static ott_status check_expert_ranks(const config *cfg) {
    int64_t ranks = cfg->distributed.ep, experts = cfg->model.num_experts;
    if (ranks <= 1) return OTT_OK;
    if (experts == 0)
        return status_fail(OTT_ERR_CONFIG,
                           "%s: ep > 1 requires an MoE model (model.num_experts > 0); use "
                           "distributed.dp_shard for a dense model",
                           config_where(cfg, "distributed.ep"));
    if (experts % ranks != 0)
        return status_fail(OTT_ERR_CONFIG,
                           "model.num_experts (%lld) must be divisible by distributed.ep (%lld): "
                           "set distributed.ep to a divisor",
                           (long long)experts, (long long)ranks);
    return OTT_OK;
}

/* For the sequence balance loss, each rank's tokens must be full sequences, or 1/n of one sequence. */
static ott_status check_sequences(const config *cfg) {
    int64_t ranks = cfg->distributed.cp, length = cfg->train.seq_len,
            own = cfg->train.batch_size * length / size_max(ranks, 1);
    if (ranks <= 1 || cfg->model.moe_sequence_aux_loss_weight <= 0 || own == 0) return OTT_OK;
    if (own % length == 0 || length % own == 0) return OTT_OK;
    return status_fail(
        OTT_ERR_CONFIG,
        "model.moe_sequence_aux_loss_weight with distributed.cp = %lld: a rank has %lld tokens "
        "of a micro-batch, neither a multiple nor a divisor of a sequence of %lld tokens: "
        "give train.batch_size a multiple or a divisor of distributed.cp",
        (long long)ranks, (long long)own, (long long)length);
}

static ott_status check_sections(const config *cfg) {
    if (cfg->model.pad_token_id >= cfg->model.vocab_size)
        return status_fail(OTT_ERR_CONFIG, "model.pad_token_id = %lld must be below model.vocab_size (%lld)",
                           (long long)cfg->model.pad_token_id, (long long)cfg->model.vocab_size);
    TRY(config_check_lengths(cfg));
    TRY(check_expert_ranks(cfg));
    return cfg->model.num_experts > 0 ? check_sequences(cfg) : OTT_OK;
}

/* ---- options of other sections ---- */

/* The adapter's scale is PEFT's alpha / rank, or rsLoRA's alpha / sqrt(rank) (Kalajdzievski 2023). */
static adapter_options adapter_from(const config *cfg) {
    if (!cfg->peft.enabled) return (adapter_options){0};
    double rank = (double)cfg->peft.dim;
    return (adapter_options){.rank = cfg->peft.dim,
                             .scale = (float)(cfg->peft.alpha / (cfg->peft.use_rslora ? sqrt(rank) : rank)),
                             .alpha = cfg->peft.alpha,
                             .by_root = cfg->peft.use_rslora,
                             .decomposed = cfg->peft.use_dora,
                             .dropout = (float)cfg->peft.dropout,
                             .drops_output = cfg->peft.dropout_position == DROPOUT_POST,
                             .seed = (uint64_t)cfg->train.seed,
                             .start = cfg->peft.lora_A_init,
                             .all = cfg->peft.match_all_linear,
                             .targets = &cfg->peft.target_modules,
                             .excluded = &cfg->peft.exclude_modules,
                             .saved = &cfg->peft.modules_to_save,
                             .ranks = &cfg->peft.rank_pattern,
                             .alphas = &cfg->peft.alpha_pattern,
                             .layers = &cfg->peft.layers_to_transform,
                             .layer_lists = &cfg->peft.layers_pattern};
}

/* Returns the folder of an adapter model's base weights; NULL if model.reduce makes the model small. */
static const char *base_from(const config *cfg) {
    return cfg->peft.enabled && *cfg->model.hf_path && !cfg->model.reduce ? cfg->model.hf_path : NULL;
}

static ott_dtype state_format(config_state_dtype d) {
    return d == STATE_BF16 ? OTT_BF16 : OTT_F32;
}

static ott_dtype moment_format(const config *cfg) {
    switch (cfg->optimizer.state_dtype) {
    case MOMENT_FP32: break;
    case MOMENT_BF16: return OTT_BF16;
    case MOMENT_FP8: return OTT_E4M3;
    }
    return OTT_F32;
}

static ott_dtype frozen_format(const config *cfg) {
    switch (cfg->train.frozen_dtype) {
    case FROZEN_MASTER: break;
    case FROZEN_FP32: return OTT_F32;
    case FROZEN_BF16: return OTT_BF16;
    case FROZEN_FP8: return OTT_E4M3;
    }
    return state_format(cfg->train.master_dtype);
}

/* Fills the members that do not describe the model, but how it is trained and stored. */
static void add_training(const config *cfg, model_options *o) {
    o->moe.bias_rate = cfg->model.moe_bias_rate;
    o->moe.bias_by_sign = cfg->model.moe_bias_rule == MOE_BIAS_SIGN;
    o->moe.sequence = cfg->train.seq_len;
    o->adapter = adapter_from(cfg);
    o->base = base_from(cfg);
    o->has_padding = cfg->model.pad_token_id >= 0;
    o->padding = cfg->model.pad_token_id;
    o->freeze = &cfg->train.freeze;
    o->frozen = frozen_format(cfg);
    o->frozen_granularity = cfg->train.frozen_granularity;
    o->optimizer = optimizer_find(config_word(cfg, "optimizer.name"));
    o->master = state_format(cfg->train.master_dtype);
    o->gradient = state_format(cfg->train.grad_dtype);
    o->state = moment_format(cfg);
    o->offload = cfg->train.offload;
}

/* Without model.head_dim, a head has dim / n_heads columns. model.reduce may have changed both. */
static ott_status check_head_width(const config *cfg) {
    if (cfg->model.kv_lora_rank > 0 || config_was_set(cfg, "model.head_dim")) return OTT_OK;
    return model_check_divisible("model.dim", cfg->model.dim, "model.n_heads", cfg->model.n_heads);
}

ott_status model_options_resolve(config *cfg, model_options *out) {
    ott_model_options o;
    model_lists lists;
    presets_apply(cfg);
    options_from_config(cfg, &o);
    o.full_attention_layer_count = (int)cfg->model.full_attention_layers.count;
    TRY(options_complete(&o));
    reduce_model(cfg, &o);
    options_to_config(&o, cfg);
    if (!config_was_set(cfg, "train.seq_len") && cfg->train.seq_len > config_max_positions(cfg))
        cfg->train.seq_len = config_max_positions(cfg); /* a default seq_len that the model supports */
    TRY(check_head_width(cfg));
    TRY(read_lists(cfg, &lists, &o));
    TRY(options_describe(&o, out));
    add_training(cfg, out);
    return check_sections(cfg);
}
