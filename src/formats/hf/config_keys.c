/* formats/hf/config_keys: the table of single-number keys, and functions that read and check a key. */
#include "formats/hf/config_keys.h"
#include "base/text/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages ---- */

ott_status hf_fail_key(ott_status code, const char *name, const char *key, json_t *value) {
    if (!value) return status_context(code, "%s: has no key '%s'", name, key);
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    status_context(code, "%s: key '%s' = %s", name, key, str_show(text ? text : "?").text);
    free(text);
    return code;
}

json_t *hf_get(json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

ott_status hf_get_bool(const char *name, json_t *root, const char *key, bool default_value, bool *out) {
    json_t *value = hf_get(root, key);
    *out = value ? json_is_true(value) : default_value;
    if (!value || json_is_boolean(value)) return OTT_OK;
    return hf_fail(OTT_ERR_FORMAT, name, key, value, "must be true or false");
}

/* ---- table of keys ---- */

#define KEY(key, type, member, least, most)                                                                  \
    { key, type, offsetof(hf_config, member), least, most, 0, 0, 0 }
#define KEY_OF_SIZE(families, key, member, least, most)                                                      \
    { key, HF_INT, offsetof(hf_config, member), least, most, families, NAN, NAN }
#define SIZE(key, of_gpt2, member, most)                                                                     \
    KEY_OF_SIZE(~GPT2, key, member, 1, most), KEY_OF_SIZE(GPT2, of_gpt2, member, 1, most)
#define KEY_OF_LATENT(key, member)                                                                           \
    { key, HF_INT, offsetof(hf_config, member), 1, 65536, DEEPSEEK, NAN, 0 }
#define KEY_OF(families, key, member, default_value, other_value)                                            \
    { key, HF_REAL, offsetof(hf_config, member), 1e-9, 1e9, families, default_value, other_value }
#define KEY_OF_SWITCH(families, key, member, default_value)                                                  \
    { key, HF_BOOL, offsetof(hf_config, member), 0, 0, families, default_value, 0 }
#define KEY_OF_EXPERTS(families, key, type, member, least, most, default_value)                              \
    { key, type, offsetof(hf_config, member), least, most, families, default_value, 0 }
#define LLAMA       (1u << FAMILY_LLAMA)
#define GRANITE     (1u << FAMILY_GRANITE)
#define MIXTRAL     (1u << FAMILY_MIXTRAL)
#define QWEN3_MOE   (1u << FAMILY_QWEN3_MOE)
#define DOTS1       (1u << FAMILY_DOTS1)
#define DEEPSEEK_V3 (1u << FAMILY_DEEPSEEK_V3)
#define DEEPSEEK_V2 (1u << FAMILY_DEEPSEEK_V2)
#define DEEPSEEK    (DEEPSEEK_V2 | DEEPSEEK_V3)
#define SHARING     (DOTS1 | DEEPSEEK)
#define MIXTURES    (MIXTRAL | QWEN3_MOE | SHARING)
#define GEMMA2      (1u << FAMILY_GEMMA2)
#define GEMMA3      (1u << FAMILY_GEMMA3)
#define COMMAND_R   (1u << FAMILY_COHERE)
#define COHERE      (1u << FAMILY_COHERE | 1u << FAMILY_COHERE2)
#define STARCODER2  (1u << FAMILY_STARCODER2)
#define GPT2        (1u << FAMILY_GPT2)

static const hf_key keys[] = {
    SIZE("hidden_size", "n_embd", hidden_size, HF_LARGEST_DIMENSION),
    SIZE("intermediate_size", "n_inner", intermediate_size, HF_LARGEST_DIMENSION),
    SIZE("num_hidden_layers", "n_layer", layers, 10000),
    SIZE("num_attention_heads", "n_head", heads, 65536),
    KEY_OF_SIZE(~GPT2, "num_key_value_heads", kv_heads, 1, 65536),
    KEY_OF_LATENT("q_lora_rank", q_lora_rank),
    KEY_OF_LATENT("kv_lora_rank", kv_lora_rank),
    KEY_OF_LATENT("qk_nope_head_dim", qk_nope_head_dim),
    KEY_OF_LATENT("qk_rope_head_dim", qk_rope_head_dim),
    KEY_OF_LATENT("v_head_dim", v_head_dim),
    KEY_OF_SIZE(~(GPT2 | DEEPSEEK), "head_dim", head_dim, 2, 65536),
    KEY("vocab_size", HF_INT, vocab_size, 1, 16 * HF_LARGEST_DIMENSION),
    SIZE("max_position_embeddings", "n_positions", max_position_embeddings, INT32_MAX),
    {"rms_norm_eps", HF_REAL, offsetof(hf_config, norm_eps), 1e-30, 1, ~(COHERE | STARCODER2 | GPT2), NAN,
     NAN},
    {"layer_norm_eps", HF_REAL, offsetof(hf_config, norm_eps), 1e-30, 1, COHERE, 1e-5, NAN},
    {"norm_epsilon", HF_REAL, offsetof(hf_config, norm_eps), 1e-30, 1, STARCODER2, 1e-5, NAN},
    {"layer_norm_epsilon", HF_REAL, offsetof(hf_config, norm_eps), 1e-30, 1, GPT2, 1e-5, NAN},
    {"query_pre_attn_scalar", HF_INT, offsetof(hf_config, query_pre_attn_scalar), 1, 1 << 20, GEMMA2 | GEMMA3,
     256, 0},
    KEY_OF(GEMMA2, "attn_logit_softcapping", attention_softcap, 50, 0),
    KEY_OF(GEMMA3, "attn_logit_softcapping", attention_softcap, 0, 0),
    KEY_OF(GEMMA2, "final_logit_softcapping", logit_softcap, 30, 0),
    KEY_OF(GEMMA3, "final_logit_softcapping", logit_softcap, 0, 0),
    KEY_OF(COHERE, "logit_scale", logit_scale, 0.0625, 1),
    KEY_OF(GRANITE, "embedding_multiplier", embedding_multiplier, 1, 1),
    KEY_OF(GRANITE, "residual_multiplier", residual_multiplier, 1, 1),
    KEY_OF(GRANITE, "attention_multiplier", attention_multiplier, 1, 0),
    KEY_OF(GRANITE, "logits_scaling", logits_scaling, 1, 1),
    KEY_OF_EXPERTS(MIXTRAL, "num_local_experts", HF_INT, experts, 1, 65536, NAN),
    KEY_OF_EXPERTS(QWEN3_MOE, "num_experts", HF_INT, experts, 1, 65536, NAN),
    KEY_OF_EXPERTS(SHARING, "n_routed_experts", HF_INT, experts, 1, 65536, NAN),
    KEY_OF_EXPERTS(MIXTURES, "num_experts_per_tok", HF_INT, experts_per_token, 1, 65536, NAN),
    KEY_OF_EXPERTS(QWEN3_MOE | SHARING, "moe_intermediate_size", HF_INT, expert_size, 1, HF_LARGEST_DIMENSION,
                   NAN),
    KEY_OF_EXPERTS(QWEN3_MOE, "decoder_sparse_step", HF_INT, sparse_step, 1, INT32_MAX, 1),
    KEY_OF_EXPERTS(DOTS1 | DEEPSEEK_V2, "first_k_dense_replace", HF_INT, first_dense, 0, INT32_MAX, 0),
    KEY_OF_EXPERTS(DEEPSEEK_V3, "first_k_dense_replace", HF_INT, first_dense, 0, INT32_MAX, 3),
    KEY_OF_EXPERTS(DOTS1, "n_shared_experts", HF_INT, shared_experts, 0, 65536, 0),
    KEY_OF_EXPERTS(DEEPSEEK, "n_shared_experts", HF_INT, shared_experts, 0, 65536, NAN),
    KEY_OF_EXPERTS(DOTS1 | DEEPSEEK_V2, "n_group", HF_INT, expert_groups, 1, 64, 1),
    KEY_OF_EXPERTS(DEEPSEEK_V3, "n_group", HF_INT, expert_groups, 1, 64, 8),
    KEY_OF_EXPERTS(DOTS1 | DEEPSEEK_V2, "topk_group", HF_INT, top_groups, 1, 64, 1),
    KEY_OF_EXPERTS(DEEPSEEK_V3, "topk_group", HF_INT, top_groups, 1, 64, 4),
    KEY_OF_EXPERTS(QWEN3_MOE | DOTS1, "norm_topk_prob", HF_BOOL, normalizes_weights, 0, 0, 0),
    KEY_OF_EXPERTS(DEEPSEEK_V3, "norm_topk_prob", HF_BOOL, normalizes_weights, 0, 0, 1),
    KEY_OF_EXPERTS(DOTS1 | DEEPSEEK_V2, "routed_scaling_factor", HF_REAL, route_scale, 1e-9, 1e9, 1),
    KEY_OF_EXPERTS(DEEPSEEK_V3, "routed_scaling_factor", HF_REAL, route_scale, 1e-9, 1e9, 2.5),
    KEY("attention_bias", HF_BOOL, attention_bias, 0, 0),
    {"use_bias", HF_BOOL, offsetof(hf_config, attention_bias), 0, 0, STARCODER2, 1, 0},
    KEY_OF_SWITCH(LLAMA | GRANITE, "mlp_bias", mlp_bias, 0),
    KEY_OF_SWITCH(COMMAND_R, "use_qk_norm", qk_norm, 0),
    KEY_OF_SWITCH(DEEPSEEK_V3, "rope_interleave", rope_interleave, 1),
    KEY_OF_SWITCH(GPT2, "scale_attn_by_inverse_layer_idx", scales_by_layer, 0),
    KEY("tie_word_embeddings", HF_BOOL, tie_word_embeddings, 0, 0),
};

const hf_key *hf_keys(int *count) {
    *count = sizeof keys / sizeof *keys;
    return keys;
}

bool hf_key_has_substitute(const hf_key *k, const family *f) {
    for (size_t i = 0; !hf_key_applies(k, f) && i < sizeof keys / sizeof *keys; i++)
        if (keys[i].offset == k->offset && hf_key_applies(&keys[i], f)) return true;
    return false;
}

bool hf_key_applies(const hf_key *k, const family *f) {
    if (k->families) return k->families >> (f - family_table) & 1;
    return k->offset != offsetof(hf_config, attention_bias) || f->bias_key || f->qkv_bias_key;
}

double hf_key_get(const hf_key *k, const hf_config *c) {
    const void *member = (const char *)c + k->offset;
    switch (k->type) {
    case HF_INT: return (double)*(const int64_t *)member;
    case HF_REAL: return *(const double *)member;
    case HF_BOOL: break;
    }
    return *(const bool *)member;
}

/* Compares real numbers in fp32, because one of the two may have been rounded to fp32. */
bool hf_key_equal(const hf_key *k, double a, double b) {
    return k->type == HF_REAL ? (float)a == (float)b : a == b;
}

bool hf_key_can_be_null(const hf_key *k) {
    bool is_rank = k->offset == offsetof(hf_config, q_lora_rank);
    return k->families && (k->type == HF_REAL || is_rank) && k->other_value == 0;
}

ott_status hf_key_value_of(const hf_key *k, const char *name, json_t *root, const hf_config *c, double *out,
                           bool *is_given) {
    json_t *value = hf_get(root, k->name);
    if (!value && family_is(c->family, FAMILY_QWEN3_MOE) && strcmp(k->name, "num_experts") == 0)
        value = hf_get(root, "num_local_experts"); /* the key's name in transformers 5 */
    *is_given = true;
    if (value) return hf_key_read(k, name, value, out);
    *is_given = hf_key_default(k, c, out);
    if (hf_key_can_be_null(k) && json_object_get(root, k->name)) *is_given = true, *out = 0;
    return OTT_OK;
}

/* Computes a default from other values of c. Returns false if the key's default does not depend on any. */
static bool derive_value(const hf_key *k, const hf_config *c, double *out) {
    const family *f = c->family;
    if (k->offset == offsetof(hf_config, kv_heads) && f->kv_heads_optional)
        return *out = (double)c->heads, true;
    if (k->offset == offsetof(hf_config, intermediate_size) && family_is(f, FAMILY_GPT2))
        return *out = (double)(4 * c->hidden_size), true;
    if (k->offset != offsetof(hf_config, head_dim)) return false;
    if (f->latent) return *out = (double)(c->qk_nope_head_dim + c->qk_rope_head_dim), true;
    *out = (double)(f->head_dim ? f->head_dim : c->heads > 0 ? c->hidden_size / c->heads : 0);
    return f->head_dim || (c->heads > 0 && c->hidden_size % c->heads == 0);
}

bool hf_key_default(const hf_key *k, const hf_config *c, double *out) {
    if (derive_value(k, c, out)) return true;
    if (k->families)
        *out = hf_key_applies(k, c->family) ? k->default_value : k->other_value;
    else if (k->type != HF_BOOL)
        *out = NAN;
    else if (k->offset == offsetof(hf_config, attention_bias))
        *out = c->family->qkv_bias_key && c->family->qkv_bias;
    else
        *out = c->family->tied;
    return !isnan(*out);
}

static const char *describe_key(const hf_key *k, char out[96]) {
    if (k->type == HF_BOOL) return "must be true or false";
    if (k->type == HF_INT)
        text_format(out, 96, "must be an integer from %.0f to %.0f", k->least, k->most);
    else
        text_format(out, 96, "must be a number above 0, up to %g", k->most);
    return out;
}

ott_status hf_key_read(const hf_key *k, const char *name, json_t *value, double *out) {
    char expected[96];
    *out = k->type == HF_BOOL ? json_is_true(value) : json_number_value(value);
    bool is_type = k->type == HF_BOOL  ? json_is_boolean(value)
                   : k->type == HF_INT ? json_is_integer(value)
                                       : json_is_number(value);
    if (is_type && (k->type == HF_BOOL || (*out >= k->least && *out <= k->most))) return OTT_OK;
    return hf_fail(OTT_ERR_FORMAT, name, k->name, value, "%s", describe_key(k, expected));
}

ott_status hf_read_keys(const char *name, json_t *root, hf_config *c) {
    double v;
    char expected[96];
    bool is_given;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const hf_key *k = &keys[i];
        if (hf_key_has_substitute(k, c->family)) continue;
        if (hf_key_applies(k, c->family))
            TRY(hf_key_value_of(k, name, root, c, &v, &is_given));
        else
            is_given = hf_key_default(k, c, &v);
        if (!is_given)
            return hf_fail(OTT_ERR_FORMAT, name, k->name, NULL, "%s requires it, and it %s", c->family->name,
                           describe_key(k, expected));
        void *member = (char *)c + k->offset;
        switch (k->type) {
        case HF_INT: *(int64_t *)member = (int64_t)v; break;
        case HF_REAL: *(double *)member = v; break;
        case HF_BOOL: *(bool *)member = v != 0; break;
        }
    }
    return OTT_OK;
}
