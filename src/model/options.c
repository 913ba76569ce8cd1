/* model/options: presets, derived values and checks of a model's options. */
#include "model/options.h"
#include "base/text/size.h"
#include "base/text/str.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A row of the table of presets (model.preset). */
typedef struct preset {
    config_preset id;
    int64_t dim, layers, heads, kv_heads, head_dim, hidden, vocab, max_positions;
    bool tied;
    double theta;
    double rope_factor; /* factor of llama3 scaling; 0: no scaling */
    config_model_family family;
    double norm_eps;
} preset;

#define LLAMA MODEL_FAMILY_LLAMA, 1e-5
#define QWEN3 MODEL_FAMILY_QWEN3, 1e-6
static const preset presets[] = {
    /*            dim  layers heads kv head_dim hidden   vocab  positions tied   theta  llama3 factor */
    {PRESET_DEBUG, 256, 4, 4, 4, 64, 768, 256, 512, false, 1e4, 0, LLAMA},
    {PRESET_DEMO, 192, 3, 3, 3, 64, 512, 256, 256, false, 1e4, 0, LLAMA},
    {PRESET_10M, 256, 10, 4, 4, 64, 768, 4096, 1024, false, 1e4, 0, LLAMA},
    {PRESET_42M, 512, 8, 8, 8, 64, 1376, 32000, 1024, true, 1e4, 0, LLAMA},
    {PRESET_124M, 768, 12, 12, 12, 64, 2048, 50304, 1024, true, 1e4, 0, LLAMA},
    {PRESET_1B, 2048, 16, 32, 8, 64, 8192, 128256, 131072, true, 5e5, 32, LLAMA},   /* Llama 3.2 1B */
    {PRESET_3B, 3072, 28, 24, 8, 128, 8192, 128256, 131072, true, 5e5, 32, LLAMA},  /* Llama 3.2 3B */
    {PRESET_8B, 4096, 32, 32, 8, 128, 14336, 128256, 131072, false, 5e5, 8, LLAMA}, /* Llama 3.1 */
    {PRESET_70B, 8192, 80, 64, 8, 128, 28672, 128256, 131072, false, 5e5, 8, LLAMA},
    {PRESET_405B, 16384, 126, 128, 8, 128, 53248, 128256, 131072, false, 5e5, 8, LLAMA},
    /* values of Qwen3's config.json; the debug size is torchtitan's */
    {PRESET_QWEN3_DEBUG, 256, 8, 16, 8, 128, 3072, 2048, 4096, true, 1e6, 0, QWEN3},
    {PRESET_QWEN3_0_6B, 1024, 28, 16, 8, 128, 3072, 151936, 40960, true, 1e6, 0, QWEN3},
    {PRESET_QWEN3_1_7B, 2048, 28, 16, 8, 128, 6144, 151936, 40960, true, 1e6, 0, QWEN3},
    {PRESET_QWEN3_4B, 2560, 36, 32, 8, 128, 9728, 151936, 40960, true, 1e6, 0, QWEN3},
    {PRESET_QWEN3_8B, 4096, 36, 32, 8, 128, 12288, 151936, 40960, false, 1e6, 0, QWEN3},
    {PRESET_QWEN3_14B, 5120, 40, 40, 8, 128, 17408, 151936, 40960, false, 1e6, 0, QWEN3},
    {PRESET_QWEN3_32B, 5120, 64, 64, 8, 128, 25600, 151936, 40960, false, 1e6, 0, QWEN3},
};

static const preset *preset_find(config_preset id) {
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (presets[i].id == id) return &presets[i];
    return NULL;
}

static void take_int(const config *cfg, const char *key, int64_t *value, int64_t from_preset) {
    if (!config_was_set(cfg, key)) *value = from_preset;
}

static void apply_preset(config *cfg, const preset *p) {
    if (!config_was_set(cfg, "model.family")) cfg->model.family = p->family;
    if (!config_was_set(cfg, "model.norm_eps")) cfg->model.norm_eps = p->norm_eps;
    take_int(cfg, "model.dim", &cfg->model.dim, p->dim);
    take_int(cfg, "model.n_layers", &cfg->model.n_layers, p->layers);
    take_int(cfg, "model.n_heads", &cfg->model.n_heads, p->heads);
    take_int(cfg, "model.vocab_size", &cfg->model.vocab_size, p->vocab);
    take_int(cfg, "model.max_seq_len", &cfg->model.max_seq_len, p->max_positions);
    bool same_width = !config_was_set(cfg, "model.dim");
    bool same_heads = same_width && !config_was_set(cfg, "model.n_heads");
    if (same_heads && cfg->model.kv_lora_rank == 0) { /* otherwise derive_sizes derives these values */
        take_int(cfg, "model.n_kv_heads", &cfg->model.n_kv_heads, p->kv_heads);
        take_int(cfg, "model.head_dim", &cfg->model.head_dim, p->head_dim);
    }
    if (same_width && !config_was_set(cfg, "model.ffn_dim_multiplier"))
        take_int(cfg, "model.ffn_hidden_dim", &cfg->model.ffn_hidden_dim, p->hidden);
    if (!config_was_set(cfg, "model.tie_embeddings")) cfg->model.tie_embeddings = p->tied;
    if (!config_was_set(cfg, "model.rope_theta")) cfg->model.rope_theta = p->theta;
    if (p->rope_factor > 0 && !config_was_set(cfg, "model.rope_scaling")) {
        cfg->model.rope_scaling = ROPE_SCALING_LLAMA3;
        if (!config_was_set(cfg, "model.rope_factor")) cfg->model.rope_factor = p->rope_factor;
    }
}

#define LARGEST_DIMENSION (1 << 20)

/* KempnerForge's rule: 4 x dim x 2/3 x multiplier, rounded up to a multiple of 256. A result that is too
   large becomes a value that check_dimensions refuses. */
static int64_t hidden_from_dim(int64_t dim, double multiplier) {
    double width = 4.0 * (double)dim * 2.0 / 3.0 * multiplier;
    return width <= 16 * LARGEST_DIMENSION ? ((int64_t)width + 255) / 256 * 256 : 16 * LARGEST_DIMENSION;
}

/* ---- mixture of experts ---- */

static int64_t width_of_expert(const config *cfg) {
    double width = ceil((double)cfg->model.ffn_hidden_dim * cfg->model.moe_expert_ffn_multiplier / 16) * 16;
    return width <= 16 * LARGEST_DIMENSION ? (int64_t)width : 16 * LARGEST_DIMENSION;
}

/* Sets derived options of experts. With balancing biases, the default weight of the balance loss is 0. */
static void derive_moe(config *cfg) {
    if (cfg->model.num_experts == 0) return;
    if (cfg->model.moe_router == MOE_ROUTER_SIGMOID_TOPK && !config_was_set(cfg, "model.moe_aux_loss_weight"))
        cfg->model.moe_aux_loss_weight = 0;
    if (cfg->model.moe_expert_hidden_dim == 0) cfg->model.moe_expert_hidden_dim = width_of_expert(cfg);
    if (cfg->model.moe_top_groups == 0) cfg->model.moe_top_groups = cfg->model.moe_groups;
}

/* ---- latent attention ---- */

static latent_shape latent_from(const config *cfg) {
    if (cfg->model.kv_lora_rank == 0) return (latent_shape){0};
    return (latent_shape){.query_rank = cfg->model.q_lora_rank,
                          .key_rank = cfg->model.kv_lora_rank,
                          .nope_dim = cfg->model.qk_nope_head_dim,
                          .rope_dim = cfg->model.qk_rope_head_dim,
                          .value = cfg->model.v_head_dim};
}

static ott_status check_latent_widths(const config *cfg) {
    const struct {
        const char *key;
        int64_t value, least;
    } widths[] = {{"model.kv_lora_rank", cfg->model.kv_lora_rank, 1},
                  {"model.q_lora_rank", cfg->model.q_lora_rank, 0},
                  {"model.qk_nope_head_dim", cfg->model.qk_nope_head_dim, 1},
                  {"model.qk_rope_head_dim", cfg->model.qk_rope_head_dim, 2},
                  {"model.v_head_dim", cfg->model.v_head_dim, 1}};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (widths[i].value < widths[i].least || widths[i].value > LARGEST_DIMENSION)
            return status_fail(OTT_ERR_CONFIG, "%s = %lld: latent attention needs a width from %lld to %d",
                               widths[i].key, (long long)widths[i].value, (long long)widths[i].least,
                               LARGEST_DIMENSION);
    return OTT_OK;
}

/* With MLA, a head of q or k has nope_dim + rope_dim columns, and k has as many heads as q. */
static ott_status check_latent_heads(const config *cfg) {
    const latent_shape shape = latent_from(cfg);
    int64_t width = latent_key_width(&shape);
    if (cfg->model.head_dim != width)
        return status_fail(OTT_ERR_CONFIG,
                           "model.head_dim (%lld) must be model.qk_nope_head_dim + model.qk_rope_head_dim "
                           "(%lld); leave it out",
                           (long long)cfg->model.head_dim, (long long)width);
    if (cfg->model.n_kv_heads != cfg->model.n_heads)
        return status_fail(OTT_ERR_CONFIG,
                           "model.n_kv_heads (%lld) must be model.n_heads (%lld): latent attention has a key "
                           "head for each query head; leave it out",
                           (long long)cfg->model.n_kv_heads, (long long)cfg->model.n_heads);
    return OTT_OK;
}

static ott_status check_latent(const config *cfg, const family *f) {
    const struct {
        const char *key;
        bool given;
    } others[] = {{"model.fused_qkv", cfg->model.fused_qkv}, {"model.qk_norm", cfg->model.qk_norm}};
    if (f->latent != (cfg->model.kv_lora_rank > 0))
        return status_fail(OTT_ERR_CONFIG,
                           f->latent
                               ? "model.family = %s has latent attention: set model.kv_lora_rank, the width "
                                 "of the latent of keys and values"
                               : "model.kv_lora_rank cannot be combined with model.family = %s: deepseek_v2 "
                                 "and deepseek_v3 have latent attention",
                           f->name);
    if (!f->latent) return OTT_OK;
    TRY(check_latent_widths(cfg));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].given)
            return status_fail(OTT_ERR_CONFIG,
                               "%s = true cannot be combined with latent attention (model.kv_lora_rank)",
                               others[i].key);
    return check_latent_heads(cfg);
}

static void derive_sizes(config *cfg, const family *f) {
    const latent_shape shape = latent_from(cfg);
    if (!config_was_set(cfg, "train.seq_len") && cfg->train.seq_len > config_max_positions(cfg))
        cfg->train.seq_len = config_max_positions(cfg); /* a default seq_len that the model supports */
    if (cfg->model.head_dim == 0) cfg->model.head_dim = latent_key_width(&shape);
    if (cfg->model.n_kv_heads == 0) cfg->model.n_kv_heads = cfg->model.n_heads;
    if (cfg->model.head_dim == 0) cfg->model.head_dim = cfg->model.dim / cfg->model.n_heads;
    if (cfg->model.ffn_hidden_dim == 0)
        cfg->model.ffn_hidden_dim = f->mlp == FAMILY_MLP_GELU
                                        ? 4 * cfg->model.dim
                                        : hidden_from_dim(cfg->model.dim, cfg->model.ffn_dim_multiplier);
    derive_moe(cfg);
}

static ott_status not_divisible(const char *what, int64_t x, const char *by, int64_t y) {
    return status_fail(OTT_ERR_CONFIG, "%s (%lld) must be divisible by %s (%lld)", what, (long long)x, by,
                       (long long)y);
}

/* Returns width / by, rounded down to a multiple of 16 for FP8, but at least 16. */
static int64_t narrowed(int64_t width, int64_t by) {
    return size_max(width / by / 16 * 16, 16);
}

/* Removes the indices of layers that the reduced model does not have. The list is sorted. */
static void drop_layers(config_list *list, int64_t layers) {
    while (list->count > 0 && strtol(list->items[list->count - 1], NULL, 10) >= layers) list->count--;
}

/* Divides the experts' width by `by`. Changes which layers have experts, so that at least one has. */
static void reduce_moe(config *cfg, int64_t by) {
    int64_t layers = cfg->model.n_layers;
    if (cfg->model.num_experts == 0) return;
    cfg->model.moe_expert_hidden_dim = narrowed(cfg->model.moe_expert_hidden_dim, by);
    if (cfg->model.moe_frequency > layers) cfg->model.moe_frequency = layers;
    if (cfg->model.moe_first_dense_layers >= layers) cfg->model.moe_first_dense_layers = layers - 1;
    drop_layers(&cfg->model.moe_dense_layers, layers);
}

/* model.reduce: divides layers, heads and widths by a factor. A head keeps its width, and n_heads stays a
   multiple of n_kv_heads. Then sets model.reduce to 1, because cfg describes the small model. */
static void reduce_model(config *cfg) {
    int64_t by = cfg->model.reduce;
    if (by <= 1) return;
    int64_t heads = size_max(cfg->model.n_heads / by, 1), shared = cfg->model.n_heads / cfg->model.n_kv_heads;
    cfg->model.n_layers = size_max(cfg->model.n_layers / by, 1);
    drop_layers(&cfg->model.full_attention_layers, cfg->model.n_layers);
    cfg->model.dim = narrowed(cfg->model.dim, by);
    cfg->model.ffn_hidden_dim = narrowed(cfg->model.ffn_hidden_dim, by);
    cfg->model.n_kv_heads = size_max(heads / shared, 1);
    cfg->model.n_heads = heads / cfg->model.n_kv_heads * cfg->model.n_kv_heads;
    if (cfg->model.q_lora_rank > 0) cfg->model.q_lora_rank = narrowed(cfg->model.q_lora_rank, by);
    if (cfg->model.kv_lora_rank > 0) cfg->model.kv_lora_rank = narrowed(cfg->model.kv_lora_rank, by);
    reduce_moe(cfg, by);
    cfg->model.reduce = 1;
}

/* Checks model.norm_type and model.activation. llama accepts all values; other families only some. */
static ott_status check_block(const config *cfg, const family *f) {
    const char *function = config_word(cfg, "model.activation");
    bool is_llama = family_is(f, FAMILY_LLAMA), plain = cfg->model.activation == ACTIVATION_SILU;
    bool is_gated = cfg->model.activation >= ACTIVATION_GEGLU;
    if (cfg->model.norm_type == NORM_LAYERNORM && !is_llama && f->norm < FAMILY_NORM_LAYER)
        return status_fail(OTT_ERR_CONFIG,
                           "model.norm_type = layernorm cannot be combined with model.family = %s, which has "
                           "RMSNorm: leave out one of the two",
                           f->name);
    if (plain) return OTT_OK;
    if (is_gated && !family_mlp_is_gated(f->mlp))
        return status_fail(OTT_ERR_CONFIG,
                           "model.activation = %s, a feed-forward with a gate, cannot be combined with "
                           "model.family = %s, which has none: give gelu or relu",
                           function, f->name);
    if (!is_gated && !is_llama && f->mlp != FAMILY_MLP_GELU)
        return status_fail(OTT_ERR_CONFIG,
                           "model.activation = %s, a feed-forward without a gate, cannot be combined with "
                           "model.family = %s, which has one: leave out one of the two",
                           function, f->name);
    if (cfg->model.num_experts > 0)
        return status_fail(OTT_ERR_CONFIG,
                           "model.activation = %s cannot be combined with model.num_experts = %lld: experts "
                           "have SwiGLU; leave out one of the two",
                           function, (long long)cfg->model.num_experts);
    if (cfg->model.fused_gate_up && !is_gated)
        return status_fail(OTT_ERR_CONFIG,
                           "model.fused_gate_up = true cannot be combined with model.activation = %s, which "
                           "has no gate: leave out one of the two",
                           function);
    return OTT_OK;
}

static ott_status check_dimensions(const config *cfg) {
    int64_t dim = cfg->model.dim, heads = cfg->model.n_heads;
    if (dim % heads != 0 && cfg->model.kv_lora_rank == 0 && !config_was_set(cfg, "model.head_dim"))
        return not_divisible("model.dim", dim, "model.n_heads", heads);
    if (cfg->model.fused_qkv && cfg->model.qk_norm)
        return status_fail(OTT_ERR_CONFIG,
                           "model.fused_qkv = true cannot be combined with model.qk_norm = true: QK norms "
                           "need separate q and k; set one of the two to false");
    if (cfg->model.kv_lora_rank == 0 && cfg->model.head_dim % 2 != 0)
        return status_fail(OTT_ERR_CONFIG,
                           "model.head_dim = %lld must be even: rotary embedding rotates pairs",
                           (long long)cfg->model.head_dim);
    const struct {
        const char *key;
        int64_t value, limit;
    } sizes[] = {{"model.dim", dim, LARGEST_DIMENSION},
                 {"model.ffn_hidden_dim", cfg->model.ffn_hidden_dim, LARGEST_DIMENSION},
                 {"model.vocab_size", cfg->model.vocab_size, 16 * LARGEST_DIMENSION},
                 {"model.n_layers", cfg->model.n_layers, 10000},
                 {"model.n_heads * model.head_dim", heads * cfg->model.head_dim, LARGEST_DIMENSION},
                 {"model.n_heads * model.v_head_dim",
                  cfg->model.kv_lora_rank > 0 ? heads * cfg->model.v_head_dim : 0, LARGEST_DIMENSION}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value > sizes[i].limit)
            return status_fail(OTT_ERR_CONFIG, "%s = %lld is more than %lld", sizes[i].key,
                               (long long)sizes[i].value, (long long)sizes[i].limit);
    if (cfg->model.pad_token_id >= cfg->model.vocab_size)
        return status_fail(OTT_ERR_CONFIG, "model.pad_token_id = %lld must be below model.vocab_size (%lld)",
                           (long long)cfg->model.pad_token_id, (long long)cfg->model.vocab_size);
    return config_check_lengths(cfg);
}

static ott_status check_groups(const config *cfg) {
    int64_t experts = cfg->model.num_experts, groups = cfg->model.moe_groups,
            open = cfg->model.moe_top_groups;
    if (groups > 0 && experts % groups != 0)
        return not_divisible("model.num_experts", experts, "model.moe_groups", groups);
    if (open > groups || (groups > 0 && experts / groups * open < cfg->model.moe_top_k))
        return status_fail(OTT_ERR_CONFIG,
                           "model.moe_top_groups (%lld) must be at most model.moe_groups (%lld), and that "
                           "many groups together must have at least model.moe_top_k (%lld) experts",
                           (long long)open, (long long)groups, (long long)cfg->model.moe_top_k);
    return OTT_OK;
}

static bool has_mixture(const config *cfg) {
    const config_list *dense = &cfg->model.moe_dense_layers;
    for (int64_t i = cfg->model.moe_first_dense_layers; i < cfg->model.n_layers; i++) {
        bool mixes = (i + 1) % cfg->model.moe_frequency == 0;
        for (int64_t k = 0; k < dense->count && mixes; k++) mixes = strtol(dense->items[k], NULL, 10) != i;
        if (mixes) return true;
    }
    return false;
}

static ott_status check_moe(const config *cfg) {
    int64_t experts = cfg->model.num_experts, rows = experts * cfg->model.moe_expert_hidden_dim;
    if (experts == 0) return OTT_OK;
    if (!has_mixture(cfg))
        return status_fail(OTT_ERR_CONFIG,
                           "model.num_experts = %lld, and none of the %lld blocks is a mixture: "
                           "model.moe_frequency (%lld), model.moe_first_dense_layers (%lld) and "
                           "model.moe_dense_layers exclude all; change them, or leave out model.num_experts",
                           (long long)experts, (long long)cfg->model.n_layers,
                           (long long)cfg->model.moe_frequency, (long long)cfg->model.moe_first_dense_layers);
    if (cfg->model.moe_top_k > experts)
        return status_fail(OTT_ERR_CONFIG, "model.moe_top_k (%lld) must be <= model.num_experts (%lld)",
                           (long long)cfg->model.moe_top_k, (long long)experts);
    if (cfg->model.moe_expert_hidden_dim > LARGEST_DIMENSION ||
        cfg->model.moe_shared_experts > LARGEST_DIMENSION / cfg->model.moe_expert_hidden_dim)
        return status_fail(OTT_ERR_CONFIG,
                           "model.moe_expert_hidden_dim = %lld, and its product with "
                           "model.moe_shared_experts (%lld), must be at most %d",
                           (long long)cfg->model.moe_expert_hidden_dim,
                           (long long)cfg->model.moe_shared_experts, LARGEST_DIMENSION);
    if (rows > INT32_MAX)
        return status_fail(OTT_ERR_CONFIG,
                           "model.num_experts (%lld) times model.moe_expert_hidden_dim (%lld) is too large",
                           (long long)experts, (long long)cfg->model.moe_expert_hidden_dim);
    return check_groups(cfg);
}

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

static moe_options moe_from(const config *cfg, const family *f) {
    bool biased = cfg->model.moe_router == MOE_ROUTER_SIGMOID_TOPK;
    if (cfg->model.num_experts == 0) return (moe_options){0};
    return (moe_options){.experts = cfg->model.num_experts,
                         .choices = cfg->model.moe_top_k,
                         .hidden = cfg->model.moe_expert_hidden_dim,
                         .shared_hidden = cfg->model.moe_shared_experts * cfg->model.moe_expert_hidden_dim,
                         .rule = {.score = biased ? ROUTE_SIGMOID : ROUTE_SOFTMAX,
                                  .groups = (int)cfg->model.moe_groups,
                                  .chosen_groups = (int)cfg->model.moe_top_groups,
                                  .group_score_max = f->group_score_max,
                                  .normalized = cfg->model.moe_normalize_weights,
                                  .scale = (float)cfg->model.moe_route_scale},
                         .biased = biased,
                         .bias_rate = cfg->model.moe_bias_rate,
                         .bias_by_sign = cfg->model.moe_bias_rule == MOE_BIAS_SIGN,
                         .balance = cfg->model.moe_aux_loss_weight,
                         .sequence_balance = cfg->model.moe_sequence_aux_loss_weight,
                         .z = cfg->model.moe_router_z_loss_weight,
                         .sequence = cfg->train.seq_len,
                         .capacity = cfg->model.moe_capacity_factor,
                         .balances_gradients = cfg->model.moe_gradient_scale};
}

/* Reads at most `most` layer indices. For a longer list, the error names `instead`, the key to use. */
static ott_status read_layers(const model_options *o, const char *key, const config_list *list, int most,
                              const char *instead, int32_t *out, int *count) {
    if (list->count > most)
        return status_fail(OTT_ERR_CONFIG, "%s has %lld numbers, but at most %d are allowed: use %s", key,
                           (long long)list->count, most, instead);
    for (int64_t i = 0; i < list->count; i++) {
        long layer = strtol(list->items[i], NULL, 10);
        if (layer >= o->layers)
            return status_fail(OTT_ERR_CONFIG, "%s has %ld: the model has blocks 0 to %lld", key, layer,
                               (long long)o->layers - 1);
        out[(*count)++] = (int32_t)layer;
    }
    return OTT_OK;
}

static ott_status read_full_layers(const config *cfg, model_options *o) {
    if (cfg->model.full_attention_layers.count > 0 && cfg->model.full_attention_every > 0)
        return status_fail(OTT_ERR_CONFIG,
                           "model.full_attention_layers and model.full_attention_every (%lld) "
                           "both name the layers without a window: leave out one of the two",
                           (long long)cfg->model.full_attention_every);
    return read_layers(o, "model.full_attention_layers", &cfg->model.full_attention_layers, MODEL_MAX_FULL,
                       "model.full_attention_every", o->full, &o->full_count);
}

/* Reads longrope's list of factors, one for each pair of columns that rotates. */
static ott_status read_factors(const char *key, const config_list *list, int64_t pairs,
                               float out[ROPE_MOST_FACTORS]) {
    if (list->count != pairs || pairs > ROPE_MOST_FACTORS)
        return status_fail(OTT_ERR_CONFIG,
                           "%s has %lld numbers: longrope needs one for each of the %lld pairs of a head, at "
                           "most %d",
                           key, (long long)list->count, (long long)pairs, ROPE_MOST_FACTORS);
    for (int64_t i = 0; i < pairs; i++) {
        char *end;
        out[i] = strtof(list->items[i], &end);
        if (*end || end == list->items[i] || !(out[i] >= 1e-6f && out[i] <= 1e9f))
            return status_fail(OTT_ERR_CONFIG, "%s has \"%s\", which is not a number above 0", key,
                               str_show(list->items[i]).text);
    }
    return OTT_OK;
}

static ott_status read_rope(const config *cfg, rope_options *out) {
    static const rope_kind kinds[] = {
        [ROPE_SCALING_NONE] = ROPE_PLAIN,        [ROPE_SCALING_LLAMA3] = ROPE_LLAMA3,
        [ROPE_SCALING_LINEAR] = ROPE_LINEAR,     [ROPE_SCALING_YARN] = ROPE_YARN,
        [ROPE_SCALING_LONGROPE] = ROPE_LONGROPE, [ROPE_SCALING_DYNAMIC] = ROPE_DYNAMIC};
    bool is_dynamic = cfg->model.rope_scaling == ROPE_SCALING_DYNAMIC;
    *out = (rope_options){.kind = kinds[cfg->model.rope_scaling],
                          .theta = cfg->model.rope_theta,
                          .partial_rotary_factor = cfg->model.partial_rotary_factor,
                          .interleaved = cfg->model.rope_interleaved,
                          .factor = cfg->model.rope_factor,
                          .low_frequency_factor = cfg->model.rope_low_freq_factor,
                          .high_frequency_factor = cfg->model.rope_high_freq_factor,
                          .beta_fast = cfg->model.rope_beta_fast,
                          .beta_slow = cfg->model.rope_beta_slow,
                          .attention_factor = cfg->model.rope_attention_factor,
                          .mscale = cfg->model.rope_mscale,
                          .mscale_all_dim = cfg->model.rope_mscale_all_dim,
                          .original_max_position =
                              is_dynamic ? cfg->model.max_seq_len : cfg->model.rope_original_max_position};
    bool is_latent = cfg->model.kv_lora_rank > 0;
    int64_t width = is_latent ? cfg->model.qk_rope_head_dim : cfg->model.head_dim;
    int64_t columns = rope_columns(out, width);
    if (columns < 2 || columns % 2 != 0)
        return status_fail(OTT_ERR_CONFIG,
                           "model.partial_rotary_factor = %g and model.%s = %lld give %lld rotated columns: "
                           "rotary embedding rotates pairs, so the number must be even",
                           out->partial_rotary_factor, is_latent ? "qk_rope_head_dim" : "head_dim",
                           (long long)width, (long long)columns);
    if (out->kind != ROPE_LONGROPE) return OTT_OK;
    out->factors = (int)(columns / 2);
    TRY(read_factors("model.rope_short_factor", &cfg->model.rope_short_factor, columns / 2,
                     out->short_factor));
    return read_factors("model.rope_long_factor", &cfg->model.rope_long_factor, columns / 2,
                        out->long_factor);
}

/* Sets options to the family's values, unless the configuration sets them. */
static void apply_family(config *cfg, const family *f) {
    if (!config_was_set(cfg, "model.attention_bias")) cfg->model.attention_bias = f->qkv_bias;
    bool all_biases = f->biases && (cfg->model.attention_bias || !f->biases_key);
    if (!config_was_set(cfg, "model.attention_output_bias")) cfg->model.attention_output_bias = all_biases;
    if (!config_was_set(cfg, "model.mlp_bias")) cfg->model.mlp_bias = all_biases;
    if (!config_was_set(cfg, "model.rope_interleaved")) cfg->model.rope_interleaved = f->rope_interleaved;
    if (!config_was_set(cfg, "model.qk_norm")) cfg->model.qk_norm = f->qk_norm;
    if (!config_was_set(cfg, "model.fused_qkv")) cfg->model.fused_qkv = f->fused_qkv;
    if (!config_was_set(cfg, "model.fused_gate_up")) cfg->model.fused_gate_up = f->fused_gate_up;
    if (!config_was_set(cfg, "model.tie_embeddings") && f->tied) cfg->model.tie_embeddings = true;
    bool names_full = cfg->model.full_attention_layers.count > 0;
    if (!config_was_set(cfg, "model.full_attention_every"))
        cfg->model.full_attention_every = names_full ? 0 : f->full_attention_every;
    if (!config_was_set(cfg, "model.rope_local_theta")) cfg->model.rope_local_theta = f->local_theta;
    if (!config_was_set(cfg, "model.partial_rotary_factor") && f->partial_rotary_factor > 0)
        cfg->model.partial_rotary_factor = f->partial_rotary_factor;
}

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

static float embedding_multiplier(const config *cfg, const family *f) {
    double m = cfg->model.embedding_multiplier;
    return (float)(f->scale_embeddings ? m * sqrt((double)cfg->model.dim) : m);
}

static ott_dtype state_format(config_state_dtype d) {
    return d == STATE_BF16 ? OTT_BF16 : OTT_F32;
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

ott_status model_options_resolve(config *cfg, model_options *out) {
    const preset *p = preset_find(cfg->model.preset);
    if (p) apply_preset(cfg, p);
    const family *f = family_find(config_word(cfg, "model.family"));
    apply_family(cfg, f);
    derive_sizes(cfg, f);
    int64_t heads = cfg->model.n_heads, kv_heads = cfg->model.n_kv_heads;
    if (heads % kv_heads) return not_divisible("model.n_heads", heads, "model.n_kv_heads", kv_heads);
    reduce_model(cfg);
    TRY(check_dimensions(cfg));
    TRY(check_block(cfg, f));
    TRY(check_latent(cfg, f));
    TRY(check_moe(cfg));
    TRY(check_expert_ranks(cfg));
    if (cfg->model.num_experts > 0) TRY(check_sequences(cfg));
    rope_options positions;
    TRY(read_rope(cfg, &positions));
    *out = (model_options){.family = f,
                           .dim = cfg->model.dim,
                           .layers = cfg->model.n_layers,
                           .heads = cfg->model.n_heads,
                           .kv_heads = cfg->model.n_kv_heads,
                           .head_dim = cfg->model.head_dim,
                           .latent = latent_from(cfg),
                           .hidden = cfg->model.ffn_hidden_dim,
                           .vocab = cfg->model.vocab_size,
                           .max_positions = cfg->model.max_seq_len,
                           .window = cfg->model.sliding_window,
                           .rope = positions,
                           .norm_epsilon = (float)cfg->model.norm_eps,
                           .layer_norm = cfg->model.norm_type == NORM_LAYERNORM && family_is(f, FAMILY_LLAMA),
                           .activation = cfg->model.activation,
                           .attention_softcap = (float)cfg->model.attention_softcap,
                           .logit_softcap = (float)cfg->model.final_logit_softcap,
                           .full_attention_every = cfg->model.full_attention_every,
                           .local_theta = cfg->model.rope_local_theta,
                           .embedding_multiplier = embedding_multiplier(cfg, f),
                           .residual_multiplier = (float)cfg->model.residual_multiplier,
                           .attention_multiplier = (float)cfg->model.attention_multiplier,
                           .logit_multiplier = (float)(1.0 / cfg->model.logits_scaling),
                           .scales_by_layer = cfg->model.scale_attention_by_layer,
                           .tied = cfg->model.tie_embeddings,
                           .qkv_bias = cfg->model.attention_bias,
                           .o_bias = cfg->model.attention_output_bias,
                           .mlp_bias = cfg->model.mlp_bias,
                           .qk_norm = cfg->model.qk_norm,
                           .fused_qkv = cfg->model.fused_qkv,
                           .fused_gate_up = cfg->model.fused_gate_up,
                           .moe = moe_from(cfg, f),
                           .moe_every = cfg->model.moe_frequency,
                           .moe_first = cfg->model.moe_first_dense_layers,
                           .adapter = adapter_from(cfg),
                           .base = base_from(cfg),
                           .has_padding = cfg->model.pad_token_id >= 0,
                           .padding = cfg->model.pad_token_id,
                           .init_style = cfg->model.init_style,
                           .init_std = cfg->model.init_std,
                           .freeze = &cfg->train.freeze,
                           .frozen = frozen_format(cfg),
                           .frozen_granularity = cfg->train.frozen_granularity,
                           .optimizer = optimizer_find(config_word(cfg, "optimizer.name")),
                           .master = state_format(cfg->train.master_dtype),
                           .gradient = state_format(cfg->train.grad_dtype),
                           .state = cfg->optimizer.state_dtype == MOMENT_FP8    ? OTT_E4M3
                                    : cfg->optimizer.state_dtype == MOMENT_BF16 ? OTT_BF16
                                                                                : OTT_F32,
                           .offload = cfg->train.offload};
    TRY(read_full_layers(cfg, out));
    if (cfg->model.num_experts == 0) return OTT_OK;
    return read_layers(out, "model.moe_dense_layers", &cfg->model.moe_dense_layers, MODEL_MAX_DENSE,
                       "model.moe_frequency and model.moe_first_dense_layers", out->dense, &out->dense_count);
}
