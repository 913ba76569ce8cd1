/* folders/gguf_describe: checks of the model against its architecture's limits, and GGUF metadata. */
#include "folders/gguf_describe.h"
#include "folders/hf/save.h"
#include <math.h>
#include <stdio.h>

/* ---- limits of architectures ---- */

static const char *rope_limit(const model_options *o, const gguf_arch *a) {
    if (o->rope.kind == ROPE_LLAMA3 && !a->has_rope_factors) return "no model.rope_scaling = \"llama3\"";
    if (o->rope.kind == ROPE_LONGROPE && !a->longrope) return "no model.rope_scaling = \"longrope\"";
    if (o->rope.kind == ROPE_DYNAMIC) return "no model.rope_scaling = \"dynamic\"";
    bool is_gemma3_linear = a->family == FAMILY_GEMMA3 && o->rope.kind == ROPE_LINEAR;
    if (a->windows && o->rope.kind != ROPE_PLAIN && !is_gemma3_linear)
        return "no model.rope_scaling that skips windowed layers";
    return NULL;
}

static const char *experts_limit(const model_options *o, const gguf_arch *a) {
    const moe_options *e = &o->moe;
    if (a->family == FAMILY_QWEN3_MOE && (!e->rule.normalized || o->moe_every != 1 || o->dense_count > 0))
        return "only experts in every block, with normalized weights";
    if (a->family != FAMILY_DOTS1) return NULL;
    if (e->shared_hidden == 0) return "only models with shared experts";
    return o->kv_heads != o->heads ? "only models without GQA (n_kv_heads = n_heads)" : NULL;
}

static bool is_gemma(const gguf_arch *a) {
    return a->family == FAMILY_GEMMA2 || a->family == FAMILY_GEMMA3;
}

/* True if q k^T has llama.cpp's scale for Gemma (gguf_arch.largest_layers). */
static bool scales_as_gemma(const model_options *o, const gguf_arch *a) {
    bool largest = o->layers == a->largest_layers;
    double rule = 1 / sqrt((double)(largest ? o->dim / o->heads : o->head_dim));
    return o->attention_multiplier == 0 || fabs((double)o->attention_multiplier / rule - 1) < 1e-6;
}

/* False if scaling by this multiplier changes nothing: it is 0 (no multiplier), or 1 up to rounding. */
static bool has_effect(double by) {
    return by != 0 && fabs(by - 1) > 1e-6;
}

static const char *multipliers_limit(const model_options *o, const gguf_arch *a) {
    bool is_granite = a->family == FAMILY_GRANITE;
    bool is_cohere = a->family == FAMILY_COHERE || a->family == FAMILY_COHERE2;
    /* llama.cpp multiplies Gemma's embedding by sqrt(dim) */
    double root = is_gemma(a) ? sqrt((double)o->dim) : 1;
    bool inside =
        has_effect((double)o->embedding_multiplier / root) || has_effect((double)o->residual_multiplier);
    if (is_gemma(a) ? !scales_as_gemma(o, a) : o->attention_multiplier != 0 && !is_granite)
        return "no model.attention_multiplier of this value";
    if (!is_granite && inside) return "no model.embedding_multiplier or model.residual_multiplier";
    return has_effect((double)o->logit_multiplier) && !is_granite && !is_cohere ? "no model.logits_scaling"
                                                                                : NULL;
}

static const char *softcaps_limit(const model_options *o, const gguf_arch *a) {
    if (o->logit_softcap != 0 && !is_gemma(a)) return "no model.final_logit_softcap";
    if (a->family != FAMILY_GEMMA2) return o->attention_softcap != 0 ? "no model.attention_softcap" : NULL;
    return o->attention_softcap == 0 || o->logit_softcap == 0 ? "only models with both softcaps" : NULL;
}

static const char *shape_limit(const model_options *o, const gguf_arch *a) {
    if (a->square && o->heads * o->head_dim != o->dim) return "only n_heads * head_dim = dim";
    if (a->tied && !o->tied) return "only tied embeddings";
    if (a->separate && o->tied) return "no tied embeddings";
    if (a->family == FAMILY_COHERE && o->qk_norm != (o->layers >= 64))
        return "QK norms in models with 64 or more layers, and only there";
    if (a->windows && o->full_count > 0) return "only windows that skip every Nth layer";
    if (a->windows && a->family != FAMILY_GEMMA3 && o->window == 0) return "only models with a window";
    return NULL;
}

static const char *block_limit(const model_options *o, const gguf_arch *a) {
    const family *f = &family_table[a->family];
    bool biased = o->o_bias || o->mlp_bias;
    if (model_mlp(o) != f->mlp) return f->mlp == FAMILY_MLP_SWIGLU ? "only SwiGLU" : "only GELU with tanh";
    if (biased && !f->biases && !a->biases) return "no biases of the attention output and the MLP";
    if (o->scales_by_layer) return "no model.scale_attention_by_layer";
    return f->biases && !biased ? "only blocks with biases" : NULL;
}

ott_status gguf_describe_arch(const model_options *o, const gguf_arch **out) {
    /* Each function returns the first limit of the architecture that the model exceeds; NULL if none. */
    static const char *(*const limits[])(const model_options *, const gguf_arch *) = {
        rope_limit, block_limit, shape_limit, multipliers_limit, softcaps_limit, experts_limit};
    const family *f;
    TRY(hf_save_family(o, &f));
    for (int i = 0; (*out = gguf_arch_at(i)); i++) {
        if (!family_is(f, (*out)->family)) continue;
        const char *limit = NULL;
        for (size_t k = 0; !limit && k < sizeof limits / sizeof *limits; k++) limit = limits[k](o, *out);
        return limit ? status_fail(
                           OTT_ERR_UNSUPPORTED,
                           "llama.cpp's architecture %s, for models of %s, supports %s: use --format hf",
                           (*out)->name, f->name, limit)
                     : OTT_OK;
    }
    return status_fail(
        OTT_ERR_UNSUPPORTED,
        "models of the family %s cannot be exported as GGUF: use --format hf and then llama.cpp's converter",
        f->name);
}

/* ---- metadata ---- */

/* Arguments of the functions that append metadata. key: buffer for a key's name. */
typedef struct describing {
    const model_options *o;
    const gguf_arch *arch;
    gguf_metadata *m;
    char key[96];
} describing;

static const char *own_key(describing *d, const char *key) {
    snprintf(d->key, sizeof d->key, "%s.%s", d->arch->name, key);
    return d->key;
}

static void put_own_count(describing *d, const char *key, int64_t value) {
    gguf_metadata_count(d->m, own_key(d, key), value);
}

static void put_own_real(describing *d, const char *key, double value) {
    gguf_metadata_real(d->m, own_key(d, key), value);
}

/* Writes a multiplier. 0 means llama.cpp's default, which needs no key. */
static void put_multiplier(describing *d, const char *key, float value) {
    if (value != 0) put_own_real(d, key, (double)value);
}

static void describe_shape(describing *d) {
    const model_options *o = d->o;
    bool centers = model_norm(o) >= FAMILY_NORM_LAYER;
    put_own_count(d, "vocab_size", o->vocab);
    put_own_count(d, "context_length", o->max_positions);
    put_own_count(d, "embedding_length", o->dim);
    put_own_count(d, "block_count", o->layers);
    put_own_count(d, "feed_forward_length", o->hidden);
    put_own_count(d, "attention.head_count", o->heads);
    put_own_count(d, "attention.head_count_kv", o->kv_heads);
    put_own_count(d, "attention.key_length", o->head_dim);
    put_own_count(d, "attention.value_length", o->head_dim);
    put_own_real(d, centers ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
                 (double)o->norm_epsilon);
}

/* llama.cpp scales cos and sin by attn_factor; for YaRN also by 0.1 ln(factor) + 1. */
static void describe_rope(describing *d) {
    const rope_options *r = &d->o->rope;
    if (d->o->family->learned_positions) return;
    put_own_count(d, "rope.dimension_count", rope_columns(r, d->o->head_dim));
    put_own_real(d, "rope.freq_base", r->theta);
    if (r->kind == ROPE_PLAIN || r->kind == ROPE_LLAMA3) return;
    gguf_metadata_string(d->m, own_key(d, "rope.scaling.type"),
                         r->kind == ROPE_LINEAR ? "linear"
                         : r->kind == ROPE_YARN ? "yarn"
                                                : "longrope");
    if (r->kind != ROPE_LONGROPE) put_own_real(d, "rope.scaling.factor", r->factor);
    if (r->kind == ROPE_LINEAR) return;
    put_own_count(d, "rope.scaling.original_context_length", r->original_max_position);
    put_own_real(d, "rope.scaling.attn_factor",
                 rope_cos_sin_scale(r) /
                     (r->kind == ROPE_YARN && r->factor > 1 ? 0.1 * log(r->factor) + 1 : 1));
    if (r->kind == ROPE_LONGROPE) return;
    put_own_real(d, "rope.scaling.yarn_beta_fast", r->beta_fast);
    put_own_real(d, "rope.scaling.yarn_beta_slow", r->beta_slow);
}

static void describe_windows(describing *d) {
    const model_options *o = d->o;
    if (!d->arch->windows || o->window == 0) return;
    put_own_count(d, "attention.sliding_window", o->window);
    put_own_count(d, "attention.sliding_window_pattern", o->full_attention_every);
    if (o->local_theta > 0) put_own_real(d, "rope.freq_base_swa", o->local_theta);
}

static void describe_multipliers(describing *d) {
    const model_options *o = d->o;
    double logits = o->logit_multiplier != 0 ? (double)o->logit_multiplier : 1;
    if (d->arch->family == FAMILY_COHERE || d->arch->family == FAMILY_COHERE2)
        put_own_real(d, "logit_scale", logits);
    if (d->arch->family != FAMILY_GRANITE) return;
    put_own_real(d, "logit_scale", 1 / logits); /* llama.cpp divides Granite's logits by logit_scale */
    put_multiplier(d, "embedding_scale", o->embedding_multiplier);
    put_multiplier(d, "residual_scale", o->residual_multiplier);
    put_multiplier(d, "attention.scale", o->attention_multiplier);
}

static void describe_experts(describing *d) {
    enum { SIGMOID = 2 };
    const moe_options *e = &d->o->moe;
    if (e->experts == 0) return;
    put_own_count(d, "expert_count", e->experts);
    put_own_count(d, "expert_used_count", e->choices);
    put_own_count(d, "expert_feed_forward_length", e->hidden);
    if (d->arch->family != FAMILY_DOTS1) return;
    put_own_count(d, "leading_dense_block_count", d->o->moe_first);
    put_own_count(d, "expert_shared_count", e->shared_hidden / e->hidden);
    put_own_count(d, "expert_gating_func", SIGMOID);
    put_own_real(d, "expert_weights_scale", (double)e->rule.scale);
    gguf_metadata_bool(d->m, own_key(d, "expert_weights_norm"), e->rule.normalized);
    if (e->rule.groups <= 1) return;
    put_own_count(d, "expert_group_count", e->rule.groups);
    put_own_count(d, "expert_group_used_count", e->rule.chosen_groups);
}

void gguf_describe(const model_options *o, const gguf_arch *arch, gguf_type type, gguf_metadata *m) {
    describing d = {.o = o, .arch = arch, .m = m};
    static const int files[] = {[GGUF_F32] = 0, [GGUF_F16] = 1, [GGUF_Q8_0] = 7, [GGUF_BF16] = 32};
    gguf_metadata_string(d.m, "general.architecture", d.arch->name);
    gguf_metadata_string(d.m, "general.type", "model");
    gguf_metadata_count(d.m, "general.file_type", files[type]);
    if (type == GGUF_Q8_0) gguf_metadata_count(d.m, "general.quantization_version", 2);
    describe_shape(&d);
    describe_rope(&d);
    describe_windows(&d);
    describe_multipliers(&d);
    put_multiplier(&d, "attn_logit_softcapping", d.o->attention_softcap);
    put_multiplier(&d, "final_logit_softcapping", d.o->logit_softcap);
    describe_experts(&d);
}
