/* resolve/options: defaults of ott_model_options, and the model's options that they describe. */
#include "resolve/options.h"
#include "config/value.h"
#include <math.h>
#include <stdio.h>

/* ---- members by key ---- */

/* Keys that are members of ott_model_options. A truth value is an int, a choice a word. */
/* clang-format off */
#define MEMBERS(X)                                                                                           \
    X(family) X(dim) X(n_layers) X(n_heads) X(vocab_size) X(n_kv_heads) X(head_dim) X(ffn_hidden_dim)        \
    X(ffn_dim_multiplier) X(max_seq_len) X(tie_embeddings) X(norm_type) X(activation) X(norm_eps)            \
    X(qk_norm) X(attention_bias) X(attention_output_bias) X(mlp_bias) X(fused_qkv) X(fused_gate_up)          \
    X(sliding_window) X(full_attention_every) X(attention_softcap) X(final_logit_softcap)                    \
    X(embedding_multiplier) X(residual_multiplier) X(attention_multiplier) X(logits_scaling)                 \
    X(scale_attention_by_layer) X(rope_theta) X(rope_local_theta) X(partial_rotary_factor)                   \
    X(rope_interleaved) X(rope_scaling) X(rope_factor) X(rope_low_freq_factor) X(rope_high_freq_factor)      \
    X(rope_original_max_position) X(rope_beta_fast) X(rope_beta_slow) X(rope_mscale) X(rope_mscale_all_dim)  \
    X(rope_attention_factor) X(kv_lora_rank) X(q_lora_rank) X(qk_nope_head_dim) X(qk_rope_head_dim)          \
    X(v_head_dim) X(num_experts) X(moe_top_k) X(moe_frequency) X(moe_first_dense_layers) X(moe_router)       \
    X(moe_normalize_weights) X(moe_route_scale) X(moe_groups) X(moe_top_groups) X(moe_shared_experts)        \
    X(moe_expert_hidden_dim) X(moe_expert_ffn_multiplier) X(moe_capacity_factor) X(moe_aux_loss_weight)      \
    X(moe_router_z_loss_weight) X(moe_sequence_aux_loss_weight) X(moe_gradient_scale) X(init_style)          \
    X(init_std)
/* clang-format on */

static const struct {
    const char *path;
    size_t offset; /* in ott_model_options */
} rows[] = {
#define X(name) {"model." #name, offsetof(ott_model_options, name)},
    MEMBERS(X)
#undef X
};
enum { ROWS = sizeof rows / sizeof *rows };

/* The value of a member, and the type of its key. */
typedef struct member {
    const config_key *key;
    union {
        void *at;
        int64_t *integer;
        double *real;
        int *truth;
        const char **word;
    };
} member;

static member member_of(const ott_model_options *o, int row) {
    return (member){.key = table_find(rows[row].path), .at = (char *)o + rows[row].offset};
}

static int choice_of(const char *path, const char *word) {
    return table_choice(table_find(path), word);
}

void options_from_config(const config *cfg, ott_model_options *o) {
    *o = (ott_model_options){.struct_size = sizeof *o};
    for (int i = 0; i < ROWS; i++) {
        member m = member_of(o, i);
        config_value v = table_get(cfg, m.key);
        bool set = config_was_set(cfg, m.key->path) || !table_equal(m.key, &v, &m.key->fallback);
        if (m.key->type == KEY_CHOICE) *m.word = m.key->choices[v.integer].text;
        if (m.key->type == KEY_INT && set) *m.integer = v.integer ? v.integer : -1;
        if (m.key->type == KEY_REAL && set) *m.real = v.real[0] != 0 ? v.real[0] : -1;
        if (m.key->type == KEY_BOOL && set) *m.truth = v.integer ? 1 : -1;
    }
}

void options_to_config(const ott_model_options *o, config *cfg) {
    for (int i = 0; i < ROWS; i++) {
        member m = member_of(o, i);
        config_value v = {0};
        if (m.key->type == KEY_CHOICE) v.integer = table_choice(m.key, *m.word);
        if (m.key->type == KEY_INT) v.integer = *m.integer;
        if (m.key->type == KEY_REAL) v.real[0] = *m.real;
        if (m.key->type == KEY_BOOL) v.integer = *m.truth;
        table_put(cfg, m.key, &v);
    }
}

/* ---- defaults ---- */

static ott_status check_value(const member *m, node n, const char *shown) {
    char where[160];
    config_value ignored;
    snprintf(where, sizeof where, "%s = %s", m->key->path, shown);
    return value_read(NULL, m->key, &n, where, &ignored);
}

static ott_status complete_word(const member *m) {
    if (!*m->word) *m->word = m->key->choices[m->key->fallback.integer].text;
    return check_value(m, (node){.kind = NODE_TEXT, .text = *m->word}, str_show(*m->word).text);
}

static ott_status complete_integer(const member *m) {
    char shown[32];
    snprintf(shown, sizeof shown, "%lld", (long long)*m->integer);
    if (*m->integer == 0) *m->integer = m->key->fallback.integer;
    if (*m->integer == -1) *m->integer = 0;
    return check_value(m, (node){.kind = NODE_INTEGER, .integer = *m->integer}, shown);
}

static ott_status complete_real(const member *m) {
    char shown[32];
    snprintf(shown, sizeof shown, "%g", *m->real);
    if (*m->real == 0) *m->real = m->key->fallback.real[0];
    if (*m->real == -1) *m->real = 0;
    return check_value(m, (node){.kind = NODE_REAL, .real = *m->real}, shown);
}

static ott_status complete_truth(const member *m) {
    if (*m->truth < -1 || *m->truth > 1)
        return status_fail(OTT_ERR_CONFIG,
                           "%s = %d is not a switch: give 1 for on, -1 for off, 0 for the default",
                           m->key->path, *m->truth);
    *m->truth = *m->truth ? *m->truth > 0 : m->key->fallback.integer != 0;
    return OTT_OK;
}

#define DEFAULT(member, value)                                                                               \
    if (o->member == 0) o->member = (value)

static void take_family_defaults(ott_model_options *o) {
    const family *f = family_find(o->family);
    DEFAULT(attention_bias, f->qkv_bias);
    bool all_biases = f->biases && (o->attention_bias > 0 || !f->biases_key);
    DEFAULT(attention_output_bias, all_biases);
    DEFAULT(mlp_bias, all_biases);
    DEFAULT(rope_interleaved, f->rope_interleaved);
    DEFAULT(qk_norm, f->qk_norm);
    DEFAULT(fused_qkv, f->fused_qkv);
    DEFAULT(fused_gate_up, f->fused_gate_up);
    DEFAULT(tie_embeddings, f->tied);
    if (o->full_attention_layer_count == 0) DEFAULT(full_attention_every, f->full_attention_every);
    DEFAULT(rope_local_theta, f->local_theta);
    DEFAULT(partial_rotary_factor, f->partial_rotary_factor);
}

static bool has_biases(const ott_model_options *o) {
    return choice_of("model.moe_router", o->moe_router) == MOE_ROUTER_SIGMOID_TOPK;
}

enum { LARGEST = 1 << 24 }; /* model_options_check refuses this width */

static int64_t round_up(double width, int64_t multiple) {
    return width <= LARGEST ? (int64_t)ceil(width / (double)multiple) * multiple : LARGEST;
}

/* KempnerForge's rule: 4 x dim x 2/3 x multiplier, without its fraction, rounded up to a multiple of 256. */
static int64_t feed_forward_width(const ott_model_options *o) {
    double width = 4.0 * (double)o->dim * 2.0 / 3.0 * o->ffn_dim_multiplier;
    return family_find(o->family)->mlp == FAMILY_MLP_GELU ? 4 * o->dim : round_up(floor(width), 256);
}

static void derive_sizes(ott_model_options *o) {
    if (o->kv_lora_rank > 0) DEFAULT(head_dim, o->qk_nope_head_dim + o->qk_rope_head_dim);
    DEFAULT(n_kv_heads, o->n_heads);
    DEFAULT(head_dim, o->dim / o->n_heads);
    DEFAULT(ffn_hidden_dim, feed_forward_width(o));
    if (o->num_experts == 0) return;
    DEFAULT(moe_expert_hidden_dim, round_up((double)o->ffn_hidden_dim * o->moe_expert_ffn_multiplier, 16));
    DEFAULT(moe_top_groups, o->moe_groups);
}

ott_status options_complete(ott_model_options *o) {
    for (int i = 0; i < ROWS; i++) {
        member m = member_of(o, i);
        if (m.key->type == KEY_CHOICE) TRY(complete_word(&m));
    }
    take_family_defaults(o);
    if (o->num_experts > 0 && has_biases(o)) DEFAULT(moe_aux_loss_weight, -1);
    for (int i = 0; i < ROWS; i++) {
        member m = member_of(o, i);
        if (m.key->type == KEY_INT) TRY(complete_integer(&m));
        if (m.key->type == KEY_REAL) TRY(complete_real(&m));
        if (m.key->type == KEY_BOOL) TRY(complete_truth(&m));
    }
    derive_sizes(o);
    return model_check_divisible("model.n_heads", o->n_heads, "model.n_kv_heads", o->n_kv_heads);
}

/* ---- the model's options ---- */

static latent_shape latent_of(const ott_model_options *o) {
    if (o->kv_lora_rank == 0) return (latent_shape){0};
    return (latent_shape){.query_rank = o->q_lora_rank,
                          .key_rank = o->kv_lora_rank,
                          .nope_dim = o->qk_nope_head_dim,
                          .rope_dim = o->qk_rope_head_dim,
                          .value = o->v_head_dim};
}

static moe_options mixture_of(const ott_model_options *o, const family *f) {
    if (o->num_experts == 0) return (moe_options){0};
    return (moe_options){.experts = o->num_experts,
                         .choices = o->moe_top_k,
                         .hidden = o->moe_expert_hidden_dim,
                         .shared_hidden = o->moe_shared_experts * o->moe_expert_hidden_dim,
                         .rule = {.score = has_biases(o) ? ROUTE_SIGMOID : ROUTE_SOFTMAX,
                                  .groups = (int)o->moe_groups,
                                  .chosen_groups = (int)o->moe_top_groups,
                                  .group_score_max = f->group_score_max,
                                  .normalized = o->moe_normalize_weights,
                                  .scale = (float)o->moe_route_scale},
                         .biased = has_biases(o),
                         .balance = o->moe_aux_loss_weight,
                         .sequence_balance = o->moe_sequence_aux_loss_weight,
                         .z = o->moe_router_z_loss_weight,
                         .sequence = o->max_seq_len,
                         .capacity = o->moe_capacity_factor,
                         .balances_gradients = o->moe_gradient_scale};
}

static rope_options rope_of(const ott_model_options *o) {
    kind_rope_scaling kind = (kind_rope_scaling)choice_of("model.rope_scaling", o->rope_scaling);
    return (rope_options){.kind = kind,
                          .theta = o->rope_theta,
                          .partial_rotary_factor = o->partial_rotary_factor,
                          .interleaved = o->rope_interleaved,
                          .factor = o->rope_factor,
                          .low_frequency_factor = o->rope_low_freq_factor,
                          .high_frequency_factor = o->rope_high_freq_factor,
                          .beta_fast = o->rope_beta_fast,
                          .beta_slow = o->rope_beta_slow,
                          .attention_factor = o->rope_attention_factor,
                          .mscale = o->rope_mscale,
                          .mscale_all_dim = o->rope_mscale_all_dim,
                          .original_max_position =
                              kind == ROPE_DYNAMIC ? o->max_seq_len : o->rope_original_max_position};
}

static ott_status copy_layers(const char *key, const int32_t *layers, int count, int most,
                              const char *instead, int32_t *out, int *out_count) {
    if (count > most)
        return status_fail(OTT_ERR_CONFIG, "%s has %d numbers, but at most %d are allowed: use %s", key,
                           count, most, instead);
    for (*out_count = 0; *out_count < count; ++*out_count) out[*out_count] = layers[*out_count];
    return OTT_OK;
}

static ott_status copy_factors(const char *key, const float *factor, int count, int pairs, float *out) {
    if (count != pairs || pairs > ROPE_MOST_FACTORS)
        return status_fail(
            OTT_ERR_CONFIG,
            "%s has %d numbers: longrope needs one for each of the %d pairs of a head, at most %d", key,
            count, pairs, ROPE_MOST_FACTORS);
    for (int i = 0; i < pairs; i++) {
        if (!(factor[i] >= 1e-6f && factor[i] <= 1e9f))
            return status_fail(OTT_ERR_CONFIG, "%s has %g, which is not between 1e-6 and 1e9", key,
                               (double)factor[i]);
        out[i] = factor[i];
    }
    return OTT_OK;
}

static ott_status copy_lists(const ott_model_options *o, model_options *out) {
    int pairs = (int)rope_columns(&out->rope, model_rope_width(out)) / 2;
    TRY(copy_layers("model.full_attention_layers", o->full_attention_layers, o->full_attention_layer_count,
                    MODEL_MAX_FULL, "model.full_attention_every", out->full, &out->full_count));
    if (out->moe.experts > 0)
        TRY(copy_layers("model.moe_dense_layers", o->moe_dense_layers, o->moe_dense_layer_count,
                        MODEL_MAX_DENSE, "model.moe_frequency and model.moe_first_dense_layers", out->dense,
                        &out->dense_count));
    if (out->rope.kind != ROPE_LONGROPE) return OTT_OK;
    out->rope.factors = pairs;
    TRY(copy_factors("model.rope_short_factor", o->rope_short_factor, o->rope_short_factor_count, pairs,
                     out->rope.short_factor));
    return copy_factors("model.rope_long_factor", o->rope_long_factor, o->rope_long_factor_count, pairs,
                        out->rope.long_factor);
}

ott_status options_describe(const ott_model_options *o, model_options *out) {
    const family *f = family_find(o->family);
    double scale = f->scale_embeddings ? sqrt((double)o->dim) : 1;
    *out = (model_options){.family = f,
                           .dim = o->dim,
                           .layers = o->n_layers,
                           .heads = o->n_heads,
                           .kv_heads = o->n_kv_heads,
                           .head_dim = o->head_dim,
                           .latent = latent_of(o),
                           .hidden = o->ffn_hidden_dim,
                           .vocab = o->vocab_size,
                           .max_positions = o->max_seq_len,
                           .window = o->sliding_window,
                           .rope = rope_of(o),
                           .norm_epsilon = (float)o->norm_eps,
                           .layer_norm = choice_of("model.norm_type", o->norm_type) == NORM_LAYERNORM &&
                                         f->norm < FAMILY_NORM_LAYER,
                           .activation = (kind_activation)choice_of("model.activation", o->activation),
                           .attention_softcap = (float)o->attention_softcap,
                           .logit_softcap = (float)o->final_logit_softcap,
                           .full_attention_every = o->full_attention_every,
                           .local_theta = o->rope_local_theta,
                           .embedding_multiplier = (float)(o->embedding_multiplier * scale),
                           .residual_multiplier = (float)o->residual_multiplier,
                           .attention_multiplier = (float)o->attention_multiplier,
                           .logit_multiplier = (float)(1.0 / o->logits_scaling),
                           .scales_by_layer = o->scale_attention_by_layer,
                           .tied = o->tie_embeddings,
                           .qkv_bias = o->attention_bias,
                           .o_bias = o->attention_output_bias,
                           .mlp_bias = o->mlp_bias,
                           .qk_norm = o->qk_norm,
                           .fused_qkv = o->fused_qkv,
                           .fused_gate_up = o->fused_gate_up,
                           .moe = mixture_of(o, f),
                           .moe_every = o->moe_frequency,
                           .moe_first = o->moe_first_dense_layers,
                           .init_style = (kind_init_style)choice_of("model.init_style", o->init_style),
                           .init_std = o->init_std};
    TRY(copy_lists(o, out));
    return model_options_check(out);
}

/* ---- the record ---- */

/* One of `integers` and `reals` is NULL. */
static ott_status record_list(mem *account, config *cfg, const char *key, const int32_t *integers,
                              const float *reals, int count) {
    str text = {.account = account};
    for (int i = 0; i < count; i++)
        str_printf(&text, "%s%.9g", i ? "," : "", integers ? (double)integers[i] : (double)reals[i]);
    ott_status status = str_finish(&text);
    if (status == OTT_OK && count > 0) status = config_set(cfg, key, text.text);
    str_free(&text);
    return status;
}

ott_status options_record(const ott_model_options *o, mem *account, config *cfg) {
    options_to_config(o, cfg);
    TRY(record_list(account, cfg, "model.full_attention_layers", o->full_attention_layers, NULL,
                    o->full_attention_layer_count));
    TRY(record_list(account, cfg, "model.moe_dense_layers", o->moe_dense_layers, NULL,
                    o->moe_dense_layer_count));
    TRY(record_list(account, cfg, "model.rope_short_factor", NULL, o->rope_short_factor,
                    o->rope_short_factor_count));
    return record_list(account, cfg, "model.rope_long_factor", NULL, o->rope_long_factor,
                       o->rope_long_factor_count);
}
