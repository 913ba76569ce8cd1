/* model/mixer: the kinds of sequence mixer. */
#include "model/mixer.h"
#include "model/model.h"
#include <stddef.h>

/* Returns RoPE's tables for a layer; NULL: no RoPE. Sliding-window layers may have their own tables. */
static const rope *rope_of(const model *m, bool sees_all) {
    const family *f = m->options.family;
    if (f->learned_positions || (sees_all && f->rope_in_windows)) return NULL;
    return !sees_all && m->options.local_theta > 0 ? &m->local_rope : &m->rope;
}

/* Factor of attention scores in this layer; 0: the default. With MLA and YaRN it includes YaRN's mscale. */
static float attention_scale(const model_options *o, int64_t layer) {
    double mscale = o->rope.mscale_all_dim, by = 1;
    bool is_stretched = o->latent.key_rank > 0 && o->rope.kind == ROPE_YARN && mscale != 0;
    if (!is_stretched && !o->scales_by_layer && model_head_width(o) == o->head_dim)
        return o->attention_multiplier;
    if (is_stretched) by = rope_mscale(&o->rope, mscale) * rope_mscale(&o->rope, mscale);
    if (o->scales_by_layer) by /= (double)(layer + 1);
    double root = sqrt((double)o->head_dim);
    return (float)(by * (o->attention_multiplier != 0 ? (double)o->attention_multiplier : 1 / root));
}

static attention_core core_of(const model *m, int64_t layer) {
    const model_options *o = &m->options;
    int64_t ranks = o->tensor_ranks ? o->tensor_ranks->size : 1;
    bool sees_all = model_has_full_attention(o, layer);
    return (attention_core){.heads = o->heads / ranks,
                            .kv_heads = o->kv_heads / ranks,
                            .head_dim = model_head_width(o),
                            .softcap = o->attention_softcap,
                            .scale = attention_scale(o, layer),
                            .window = sees_all ? 0 : o->window,
                            .rope = rope_of(m, sees_all),
                            .rope_first = o->latent.nope_dim,
                            .context = o->context_ranks};
}

/* FLOPs of the two products of a query with seq_len keys and values, and of their backward. */
static double pair_flops(const model_options *o, int64_t key_width, int64_t value_width, int64_t seq_len) {
    return 6.0 * (double)(o->heads * (key_width + value_width)) * (double)seq_len;
}

/* ---- attention ---- */

static bool has_attention(const model_options *o, module_role role) {
    switch (role) {
    case ROLE_QKV: return o->fused_qkv;
    case ROLE_Q:
    case ROLE_K:
    case ROLE_V: return !o->fused_qkv;
    case ROLE_Q_NORM:
    case ROLE_K_NORM: return o->qk_norm;
    default: return role == ROLE_O;
    }
}

static void prepare_attention(const model *m, int64_t layer, mixer_layer a) {
    *a.attention = (attention){.core = core_of(m, layer)};
}

static double flops_of_attention(const model_options *o, int64_t seq_len) {
    return pair_flops(o, o->head_dim, o->head_dim, seq_len);
}

const mixer_kind mixer_attention = {.has = has_attention,
                                    .at = {[ROLE_QKV] = offsetof(attention, qkv),
                                           [ROLE_Q] = offsetof(attention, q),
                                           [ROLE_K] = offsetof(attention, k),
                                           [ROLE_V] = offsetof(attention, v),
                                           [ROLE_Q_NORM] = offsetof(attention, q_norm),
                                           [ROLE_K_NORM] = offsetof(attention, k_norm),
                                           [ROLE_O] = offsetof(attention, core.o)},
                                    .prepare = prepare_attention,
                                    .connect = attention_connect,
                                    .forward = attention_forward,
                                    .project = attention_core_project,
                                    .keep = attention_core_keep,
                                    .discard = attention_discard,
                                    .backward = attention_backward,
                                    .cache_bytes = attention_core_cache_bytes,
                                    .flops = flops_of_attention};

/* ---- multi-head latent attention ---- */

static bool has_latent_attention(const model_options *o, module_role role) {
    switch (role) {
    case ROLE_Q: return o->latent.query_rank == 0;
    case ROLE_Q_A:
    case ROLE_Q_A_NORM:
    case ROLE_Q_B: return o->latent.query_rank > 0;
    case ROLE_KV_A:
    case ROLE_KV_A_NORM:
    case ROLE_KV_B: return true;
    default: return role == ROLE_O;
    }
}

static void prepare_latent_attention(const model *m, int64_t layer, mixer_layer a) {
    *a.latent_attention = (latent_attention){.core = core_of(m, layer), .shape = m->options.latent};
}

static double flops_of_latent_attention(const model_options *o, int64_t seq_len) {
    return pair_flops(o, o->head_dim, o->latent.value, seq_len);
}

const mixer_kind mixer_latent_attention = {.has = has_latent_attention,
                                           .at = {[ROLE_Q] = offsetof(latent_attention, q),
                                                  [ROLE_Q_A] = offsetof(latent_attention, query.a),
                                                  [ROLE_Q_A_NORM] = offsetof(latent_attention, query.norm),
                                                  [ROLE_Q_B] = offsetof(latent_attention, query.b),
                                                  [ROLE_KV_A] = offsetof(latent_attention, key.a),
                                                  [ROLE_KV_A_NORM] = offsetof(latent_attention, key.norm),
                                                  [ROLE_KV_B] = offsetof(latent_attention, key.b),
                                                  [ROLE_O] = offsetof(latent_attention, core.o)},
                                           .prepare = prepare_latent_attention,
                                           .connect = latent_attention_connect,
                                           .forward = latent_attention_forward,
                                           .project = attention_core_project,
                                           .keep = attention_core_keep,
                                           .discard = latent_attention_discard,
                                           .backward = latent_attention_backward,
                                           .cache_bytes = attention_core_cache_bytes,
                                           .flops = flops_of_latent_attention};
