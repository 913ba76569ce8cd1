/* model/options: checks for contradictions. */
#include "model/options.h"

enum { LARGEST = 1 << 20 }; /* largest width */

#define FAIL(...) return status_fail(OTT_ERR_CONFIG, __VA_ARGS__)

ott_status model_check_divisible(const char *what, int64_t x, const char *by, int64_t y) {
    if (x % y != 0) FAIL("%s (%lld) must be divisible by %s (%lld)", what, (long long)x, by, (long long)y);
    return OTT_OK;
}

typedef struct size_limit {
    const char *key;
    int64_t value, limit;
} size_limit;

static ott_status check_sizes(const model_options *o) {
    const size_limit sizes[] = {{"model.dim", o->dim, LARGEST},
                                {"model.ffn_hidden_dim", o->hidden, LARGEST},
                                {"model.vocab_size", o->vocab, 16 * LARGEST},
                                {"model.n_layers", o->layers, 10000},
                                {"model.n_heads * model.head_dim", o->heads * o->head_dim, LARGEST},
                                {"model.n_heads * model.v_head_dim", o->heads * o->latent.value, LARGEST}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].value > sizes[i].limit)
            FAIL("%s = %lld is more than %lld", sizes[i].key, (long long)sizes[i].value,
                 (long long)sizes[i].limit);
    return OTT_OK;
}

static ott_status check_dimensions(const model_options *o) {
    if (o->fused_qkv && o->qk_norm)
        FAIL("model.fused_qkv = true cannot be combined with model.qk_norm = true: QK norms need separate q "
             "and k; set one of the two to false");
    if (o->latent.key_rank == 0 && o->head_dim % 2 != 0)
        FAIL("model.head_dim = %lld must be even: rotary embedding rotates pairs", (long long)o->head_dim);
    return check_sizes(o);
}

/* llama accepts all norms and activations; other families only some. */
static ott_status check_block(const model_options *o) {
    static const char *const words[] = {KIND_ACTIVATIONS(KIND_WORD)};
    const family *f = o->family;
    const char *function = words[o->activation];
    bool is_llama = family_is(f, FAMILY_LLAMA), is_gated = o->activation >= ACTIVATION_GEGLU;
    if (o->layer_norm && !is_llama)
        FAIL("model.norm_type = layernorm cannot be combined with model.family = %s, which has RMSNorm: "
             "leave out one of the two",
             f->name);
    if (o->activation == ACTIVATION_SILU) return OTT_OK;
    if (is_gated && !family_mlp_is_gated(f->mlp))
        FAIL("model.activation = %s, a feed-forward with a gate, cannot be combined with model.family = %s, "
             "which has none: give gelu or relu",
             function, f->name);
    if (!is_gated && !is_llama && f->mlp != FAMILY_MLP_GELU)
        FAIL("model.activation = %s, a feed-forward without a gate, cannot be combined with model.family = "
             "%s, which has one: leave out one of the two",
             function, f->name);
    if (o->moe.experts > 0)
        FAIL("model.activation = %s cannot be combined with model.num_experts = %lld: experts have SwiGLU; "
             "leave out one of the two",
             function, (long long)o->moe.experts);
    if (o->fused_gate_up && !is_gated)
        FAIL("model.fused_gate_up = true cannot be combined with model.activation = %s, which has no gate: "
             "leave out one of the two",
             function);
    return OTT_OK;
}

static ott_status check_latent_widths(const latent_shape *shape) {
    const struct {
        const char *key;
        int64_t value, least;
    } widths[] = {{"model.kv_lora_rank", shape->key_rank, 1},
                  {"model.q_lora_rank", shape->query_rank, 0},
                  {"model.qk_nope_head_dim", shape->nope_dim, 1},
                  {"model.qk_rope_head_dim", shape->rope_dim, 2},
                  {"model.v_head_dim", shape->value, 1}};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (widths[i].value < widths[i].least || widths[i].value > LARGEST)
            FAIL("%s = %lld: latent attention needs a width from %lld to %d", widths[i].key,
                 (long long)widths[i].value, (long long)widths[i].least, LARGEST);
    return OTT_OK;
}

/* With MLA, a head of q or k has nope_dim + rope_dim columns, and k has as many heads as q. */
static ott_status check_latent(const model_options *o) {
    const family *f = o->family;
    int64_t width = latent_key_width(&o->latent);
    if (f->latent != (o->latent.key_rank > 0))
        FAIL(f->latent ? "model.family = %s has latent attention: set model.kv_lora_rank, the width of the "
                         "latent of keys and values"
                       : "model.kv_lora_rank cannot be combined with model.family = %s: deepseek_v2 and "
                         "deepseek_v3 have latent attention",
             f->name);
    if (!f->latent) return OTT_OK;
    TRY(check_latent_widths(&o->latent));
    if (o->fused_qkv || o->qk_norm)
        FAIL("%s = true cannot be combined with latent attention (model.kv_lora_rank)",
             o->fused_qkv ? "model.fused_qkv" : "model.qk_norm");
    if (o->head_dim != width)
        FAIL("model.head_dim (%lld) must be model.qk_nope_head_dim + model.qk_rope_head_dim (%lld); leave it "
             "out",
             (long long)o->head_dim, (long long)width);
    if (o->kv_heads != o->heads)
        FAIL("model.n_kv_heads (%lld) must be model.n_heads (%lld): latent attention has a key head for each "
             "query head; leave it out",
             (long long)o->kv_heads, (long long)o->heads);
    return OTT_OK;
}

static ott_status check_rope(const model_options *o) {
    bool is_latent = o->latent.key_rank > 0;
    int64_t width = model_rope_width(o), columns = rope_columns(&o->rope, width);
    if (columns < 2 || columns % 2 != 0)
        FAIL("model.partial_rotary_factor = %g and model.%s = %lld give %lld rotated columns: rotary "
             "embedding rotates pairs, so the number must be even",
             o->rope.partial_rotary_factor, is_latent ? "qk_rope_head_dim" : "head_dim", (long long)width,
             (long long)columns);
    return OTT_OK;
}

static ott_status check_groups(const moe_options *m) {
    int64_t groups = m->rule.groups, open = m->rule.chosen_groups;
    if (groups > 0) TRY(model_check_divisible("model.num_experts", m->experts, "model.moe_groups", groups));
    if (open > groups || (groups > 0 && m->experts / groups * open < m->choices))
        FAIL("model.moe_top_groups (%lld) must be at most model.moe_groups (%lld), and that many groups "
             "together must have at least model.moe_top_k (%lld) experts",
             (long long)open, (long long)groups, (long long)m->choices);
    return OTT_OK;
}

static bool has_mixture(const model_options *o) {
    for (int64_t i = o->moe_first; i < o->layers; i++) {
        bool mixes = (i + 1) % o->moe_every == 0;
        for (int k = 0; k < o->dense_count && mixes; k++) mixes = o->dense[k] != i;
        if (mixes) return true;
    }
    return false;
}

static ott_status check_moe(const model_options *o) {
    const moe_options *m = &o->moe;
    long long experts = m->experts, width = m->hidden;
    if (experts == 0) return OTT_OK;
    if (!has_mixture(o))
        FAIL("model.num_experts = %lld, and none of the %lld blocks is a mixture: model.moe_frequency "
             "(%lld), model.moe_first_dense_layers (%lld) and model.moe_dense_layers exclude all; change "
             "them, or leave out model.num_experts",
             experts, (long long)o->layers, (long long)o->moe_every, (long long)o->moe_first);
    if (m->choices > experts)
        FAIL("model.moe_top_k (%lld) must be <= model.num_experts (%lld)", (long long)m->choices, experts);
    if (width == 0)
        FAIL("model.moe_expert_hidden_dim is 0: raise model.moe_expert_ffn_multiplier, or set it");
    if (width > LARGEST || m->shared_hidden > LARGEST)
        FAIL("model.moe_expert_hidden_dim = %lld, and its product with model.moe_shared_experts (%lld), must "
             "be at most %d",
             width, (long long)m->shared_hidden / width, LARGEST);
    if (experts * width > INT32_MAX)
        FAIL("model.num_experts (%lld) times model.moe_expert_hidden_dim (%lld) is too large", experts,
             width);
    return check_groups(m);
}

static ott_status check_layers(const model_options *o, const char *key, const int32_t *layers, int count) {
    for (int i = 0; i < count; i++)
        if (layers[i] < 0 || layers[i] >= o->layers)
            FAIL("%s has %d: the model has blocks 0 to %lld", key, (int)layers[i], (long long)o->layers - 1);
    return OTT_OK;
}

ott_status model_options_check(const model_options *o) {
    TRY(check_dimensions(o));
    TRY(check_block(o));
    TRY(check_latent(o));
    TRY(check_moe(o));
    TRY(check_rope(o));
    if (o->full_count > 0 && o->full_attention_every > 0)
        FAIL("model.full_attention_layers and model.full_attention_every (%lld) both name the layers without "
             "a window: leave out one of the two",
             (long long)o->full_attention_every);
    TRY(check_layers(o, "model.full_attention_layers", o->full, o->full_count));
    return check_layers(o, "model.moe_dense_layers", o->dense, o->dense_count);
}
