/* formats/gguf/gguf_config: converts metadata to keys of config.json. folders/gguf_describe does the
   reverse. Keys that llama.cpp does not need get the value that it assumes. */
#include "formats/gguf/gguf_config.h"
#include "base/file/file.h"
#include "base/text/number.h"
#include "base/text/str.h"
#include "base/text/text.h"
#include "formats/gguf/gguf_arch.h"
#include "formats/gguf/gguf_read.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OF(family)  (1u << FAMILY_##family)
#define ALL         UINT32_MAX
#define COHERES     (OF(COHERE) | OF(COHERE2))
#define GEMMAS      (OF(GEMMA2) | OF(GEMMA3))
#define MIXTURES    (OF(MIXTRAL) | OF(QWEN3_MOE) | OF(DOTS1))
#define OWN_EXPERTS (OF(QWEN3_MOE) | OF(DOTS1))

/* Keys with one number or truth value. `key` follows the architecture's name and a dot. */
static const struct {
    const char *key, *name; /* in GGUF, and in config.json */
    uint32_t families;
} rows[] = {
    {"context_length", "max_position_embeddings", ~OF(GPT2)},
    {"context_length", "n_positions", OF(GPT2)},
    {"embedding_length", "hidden_size", ~OF(GPT2)},
    {"embedding_length", "n_embd", OF(GPT2)},
    {"block_count", "num_hidden_layers", ~OF(GPT2)},
    {"block_count", "n_layer", OF(GPT2)},
    {"feed_forward_length", "intermediate_size", ~OF(GPT2)},
    {"feed_forward_length", "n_inner", OF(GPT2)},
    {"attention.head_count", "num_attention_heads", ~OF(GPT2)},
    {"attention.head_count", "n_head", OF(GPT2)},
    {"attention.head_count_kv", "num_key_value_heads", ~OF(GPT2)},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", ALL},
    {"attention.layer_norm_epsilon", "layer_norm_eps", COHERES},
    {"attention.layer_norm_epsilon", "norm_epsilon", OF(STARCODER2)},
    {"attention.layer_norm_epsilon", "layer_norm_epsilon", OF(GPT2)},
    {"rope.freq_base", "rope_theta", ~OF(GPT2)},
    {"rope.freq_base_swa", "rope_local_base_freq", OF(GEMMA3)},
    {"attention.sliding_window", "sliding_window", GEMMAS | OF(COHERE2)},
    {"attention.sliding_window_pattern", "sliding_window_pattern", GEMMAS | OF(COHERE2)},
    {"attn_logit_softcapping", "attn_logit_softcapping", GEMMAS},
    {"final_logit_softcapping", "final_logit_softcapping", GEMMAS},
    {"logit_scale", "logit_scale", COHERES},
    {"logit_scale", "logits_scaling", OF(GRANITE)}, /* llama.cpp divides Granite's logits by it */
    {"embedding_scale", "embedding_multiplier", OF(GRANITE)},
    {"residual_scale", "residual_multiplier", OF(GRANITE)},
    {"attention.scale", "attention_multiplier", OF(GRANITE)},
    {"expert_count", "num_local_experts", OF(MIXTRAL)},
    {"expert_count", "num_experts", OF(QWEN3_MOE)},
    {"expert_count", "n_routed_experts", OF(DOTS1)},
    {"expert_used_count", "num_experts_per_tok", MIXTURES},
    {"expert_feed_forward_length", "moe_intermediate_size", OWN_EXPERTS},
    {"leading_dense_block_count", "first_k_dense_replace", OF(DOTS1)},
    {"expert_shared_count", "n_shared_experts", OF(DOTS1)},
    {"expert_weights_scale", "routed_scaling_factor", OF(DOTS1)},
    {"expert_weights_norm", "norm_topk_prob", OF(DOTS1)},
    {"expert_group_count", "n_group", OF(DOTS1)},
    {"expert_group_used_count", "topk_group", OF(DOTS1)},
};

typedef struct gguf_converter {
    const gguf_file *file;
    const gguf_arch *arch;
    const family *family;
    json_t *root; /* the object of config.json */
} gguf_converter;

static const json_t *get(const gguf_converter *c, const char *key) {
    char name[96];
    text_format(name, sizeof name, "%s.%s", c->arch->name, key);
    return json_object_get(c->file->metadata, name);
}

static double get_number(const gguf_converter *c, const char *key, double otherwise) {
    const json_t *value = get(c, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static int64_t get_count(const gguf_converter *c, const char *key, int64_t otherwise) {
    const json_t *value = get(c, key);
    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

/* jansson's functions accept NULL for `value`, and then fail. */
static ott_status put(json_t *object, const char *name, json_t *value) {
    if (json_object_set_new(object, name, value) == 0) return OTT_OK;
    return status_fail(OTT_ERR_MEMORY, "out of memory: a configuration");
}

/* The file has fp32 numbers. The shortest decimal number of the same fp32 value is usually the original. */
static ott_status put_real(json_t *object, const char *name, double value) {
    char text[32];
    return put(object, name, json_real(text_to_double(number_metric(value, text), NULL)));
}

static ott_status put_like(const gguf_converter *c, const char *name, const json_t *value) {
    if (json_is_real(value)) return put_real(c->root, name, json_real_value(value));
    return put(c->root, name, json_incref((json_t *)value));
}

/* A list has a value for each layer. Only the pattern of windows may be a list: then the family's default
   pattern is used. A real number of 0 means that the model has no such multiplier or cap. */
static ott_status put_rows(const gguf_converter *c) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const json_t *value = get(c, rows[i].key);
        if (!(rows[i].families >> c->arch->family & 1) || !value) continue;
        if (json_is_array(value) && strcmp(rows[i].name, "sliding_window_pattern") != 0)
            return status_fail(OTT_ERR_UNSUPPORTED,
                               "%s: %s.%s differs between layers, which is not supported", c->file->path,
                               c->arch->name, rows[i].key);
        if (json_is_array(value) || (json_is_real(value) && json_real_value(value) == 0)) continue;
        TRY(put_like(c, rows[i].name, value));
    }
    return OTT_OK;
}

static bool has_tensor(const gguf_converter *c, const char *name) {
    return gguf_find(c->file, name) != NULL;
}

/* ---- shape and features ---- */

/* Gemma's query_pre_attn_scalar: q k^T is divided by its square root (gguf_arch.largest_layers). */
static int64_t attention_divisor(const gguf_converter *c) {
    int64_t heads = get_count(c, "attention.head_count", 0);
    int64_t width = heads > 0 ? get_count(c, "embedding_length", 0) / heads : 0;
    bool largest = get_count(c, "block_count", 0) == c->arch->largest_layers;
    return largest ? width : get_count(c, "attention.key_length", width);
}

static ott_status put_shape(const gguf_converter *c) {
    const safetensors_entry *embedding = gguf_find(c->file, "token_embd.weight");
    int64_t heads = get_count(c, "attention.head_count", 0);
    if (!embedding || embedding->rank != 2)
        return status_fail(OTT_ERR_FORMAT, "%s: has no matrix token_embd.weight: is it a language model?",
                           c->file->path);
    TRY(put(c->root, "vocab_size", json_integer(embedding->shape[0])));
    if (c->family->learned_positions) return OTT_OK;
    int64_t head = get_count(c, "attention.key_length", heads > 0 ? embedding->shape[1] / heads : 0);
    TRY(put(c->root, "head_dim", json_integer(head)));
    if (!get(c, "attention.head_count_kv")) TRY(put(c->root, "num_key_value_heads", json_integer(heads)));
    if (!get(c, "rope.freq_base")) TRY(put(c->root, "rope_theta", json_real(10000)));
    double columns = get_number(c, "rope.dimension_count", 0);
    if (columns <= 0 || head <= 0 || c->family->partial_rotary_factor == 0) return OTT_OK;
    return put_real(c->root, "partial_rotary_factor", columns / (double)head);
}

static ott_status put_features(const gguf_converter *c) {
    const family *f = c->family;
    bool biased = has_tensor(c, "blk.0.attn_q.bias") || has_tensor(c, "blk.0.attn_qkv.bias");
    TRY(put(c->root, "tie_word_embeddings", json_boolean(!has_tensor(c, "output.weight"))));
    if (f->bias_key || f->qkv_bias_key) TRY(put(c->root, "attention_bias", json_boolean(biased)));
    if (f->biases_key) TRY(put(c->root, "use_bias", json_boolean(biased)));
    if (f->mlp_bias_key) TRY(put(c->root, "mlp_bias", json_boolean(has_tensor(c, "blk.0.ffn_up.bias"))));
    if (f->qk_norm_key)
        TRY(put(c->root, "use_qk_norm", json_boolean(has_tensor(c, "blk.0.attn_q_norm.weight"))));
    if (f->scale_embeddings) TRY(put(c->root, "query_pre_attn_scalar", json_integer(attention_divisor(c))));
    return family_is(f, FAMILY_QWEN3_MOE) ? put(c->root, "norm_topk_prob", json_true()) : OTT_OK;
}

/* ---- special tokens ---- */

static ott_status put_tokens(const gguf_converter *c) {
    const json_t *metadata = c->file->metadata,
                 *eos = json_object_get(metadata, "tokenizer.ggml.eos_token_id"),
                 *turn = json_object_get(metadata, "tokenizer.ggml.eot_token_id"),
                 *bos = json_object_get(metadata, "tokenizer.ggml.bos_token_id"),
                 *pad = json_object_get(metadata, "tokenizer.ggml.padding_token_id");
    if (bos) TRY(put_like(c, "bos_token_id", bos));
    if (pad) TRY(put_like(c, "pad_token_id", pad));
    if (!eos || !turn || json_equal(eos, turn)) return eos ? put_like(c, "eos_token_id", eos) : OTT_OK;
    return put(c->root, "eos_token_id", json_pack("[O, O]", eos, turn));
}

/* ---- rotary embedding ---- */

/* Reads a vector of fp32 numbers. */
static ott_status read_vector(const gguf_converter *c, const char *name, float *out, int64_t most,
                              int64_t *count) {
    const safetensors_entry *e = gguf_find(c->file, name);
    file_reader r;
    if (!e || e->rank != 1 || e->dtype != OTT_F32 || e->shape[0] > most)
        return status_fail(OTT_ERR_FORMAT, "%s: needs a vector %s of at most %d F32 numbers", c->file->path,
                           name, (int)most);
    *count = e->shape[0];
    TRY(file_reader_open(c->file->path, &r));
    ott_status status = file_reader_read(&r, c->file->data_begin + e->begin, out, e->bytes);
    file_reader_close(&r);
    return status;
}

enum { MOST_FACTORS = 256 };

static ott_status put_factors(const gguf_converter *c, json_t *rope, const char *name, const char *tensor) {
    float factor[MOST_FACTORS];
    int64_t count;
    json_t *list = json_array();
    TRY(put(rope, name, list));
    TRY(read_vector(c, tensor, factor, MOST_FACTORS, &count));
    char text[32];
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(list, json_real(text_to_double(number_metric((double)factor[i], text), NULL)));
    return OTT_OK;
}

/*
 * Finds the parameters of Llama 3's rule from rope_freqs.weight, the divisors of the frequencies. Divisors
 * are 1 for short waves, `factor` for long ones, and between these
 *     1 / divisor = (1 - s) / factor + s,  s = (original / wave - low) / (high - low).
 * s is linear in 1 / wave. So two of these waves give (high - low) / original and low / original. All Llama 3
 * models have the original length 8192. The result is compared with all divisors.
 */
static ott_status put_llama3(const gguf_converter *c, json_t *rope) {
    enum { ORIGINAL = 8192 };
    float divisor[MOST_FACTORS];
    int64_t count, first = -1, last = -1;
    TRY(read_vector(c, "rope_freqs.weight", divisor, MOST_FACTORS, &count));
    double theta = get_number(c, "rope.freq_base", 10000), factor = (double)divisor[count - 1];
    double wave[MOST_FACTORS], s[MOST_FACTORS];
    for (int64_t i = 0; i < count; i++) {
        wave[i] = 2 * M_PI * pow(theta, (double)i / (double)count);
        s[i] = (1 / (double)divisor[i] - 1 / factor) / (1 - 1 / factor);
        if (!(s[i] > 1e-6 && s[i] < 1 - 1e-6)) continue;
        if (first < 0) first = i;
        last = i;
    }
    double low = 1, high = 4;
    if (last > first) {
        double slope = (s[first] - s[last]) / (1 / wave[first] - 1 / wave[last]);
        double range = ORIGINAL / slope;
        low = rint((ORIGINAL / wave[first] - s[first] * range) * 1e3) / 1e3;
        high = rint((low + range) * 1e3) / 1e3;
    }
    for (int64_t i = 0; i < count; i++) {
        double at = fmin(fmax((ORIGINAL / wave[i] - low) / (high - low), 0), 1);
        double expected = 1 / ((1 - at) / factor + at);
        if (!(fabs((double)divisor[i] / expected - 1) < 1e-3))
            return status_fail(OTT_ERR_UNSUPPORTED,
                               "%s: rope_freqs.weight does not follow Llama 3's rule, which is the only one "
                               "that is supported",
                               c->file->path);
    }
    TRY(put(rope, "rope_type", json_string("llama3")));
    TRY(put_real(rope, "factor", factor));
    TRY(put_real(rope, "low_freq_factor", low));
    TRY(put_real(rope, "high_freq_factor", high));
    return put(rope, "original_max_position_embeddings", json_integer(ORIGINAL));
}

static ott_status put_scaled_rope(const gguf_converter *c, json_t *rope, const char *kind) {
    const json_t *original = get(c, "rope.scaling.original_context_length");
    double factor = get_number(c, "rope.scaling.factor", 0),
           scale = get_number(c, "rope.scaling.attn_factor", 0);
    bool is_yarn = strcmp(kind, "yarn") == 0, is_long = strcmp(kind, "longrope") == 0;
    TRY(put(rope, "rope_type", json_string(kind)));
    if (factor > 0) TRY(put_real(rope, "factor", factor));
    if (original) TRY(put(rope, "original_max_position_embeddings", json_incref((json_t *)original)));
    if (is_yarn && factor > 1) scale *= 0.1 * log(factor) + 1; /* llama.cpp multiplies by both */
    if (scale > 0) TRY(put_real(rope, "attention_factor", scale));
    double fast = get_number(c, "rope.scaling.yarn_beta_fast", 0),
           slow = get_number(c, "rope.scaling.yarn_beta_slow", 0);
    if (is_yarn && fast > 0) TRY(put_real(rope, "beta_fast", fast));
    if (is_yarn && slow > 0) TRY(put_real(rope, "beta_slow", slow));
    if (!is_long) return OTT_OK;
    TRY(put_factors(c, rope, "short_factor", "rope_factors_short.weight"));
    return put_factors(c, rope, "long_factor", "rope_factors_long.weight");
}

static ott_status put_rope(const gguf_converter *c) {
    const char *kind = json_string_value(get(c, "rope.scaling.type"));
    bool is_long = has_tensor(c, "rope_factors_long.weight");
    if (is_long) kind = "longrope";
    bool is_llama3 = has_tensor(c, "rope_freqs.weight");
    if (!is_llama3 && (!kind || strcmp(kind, "none") == 0)) return OTT_OK;
    json_t *rope = json_object();
    TRY(put(c->root, "rope_scaling", rope));
    return is_llama3 ? put_llama3(c, rope) : put_scaled_rope(c, rope, kind);
}

/* ---- the file ---- */

static ott_status find_arch(const gguf_file *f, gguf_converter *c) {
    const char *name = json_string_value(json_object_get(f->metadata, "general.architecture"));
    char list[400] = "";
    size_t length = 0;
    c->arch = name ? gguf_arch_find(name, NULL) : NULL;
    if (c->arch && c->arch->family == FAMILY_LLAMA && get_count(c, "expert_count", 0) > 0)
        c->arch = gguf_arch_find(name, &family_table[FAMILY_MIXTRAL]);
    if (c->arch) return c->family = &family_table[c->arch->family], OTT_OK;
    for (int i = 0; gguf_arch_at(i); i++) {
        const char *word = gguf_arch_at(i)->name;
        if (gguf_arch_find(word, NULL) == gguf_arch_at(i))
            length += (size_t)text_format(list + length, sizeof list - length, "%s%s", i ? ", " : "", word);
    }
    return status_fail(OTT_ERR_UNSUPPORTED, "%s: general.architecture = %s is not supported: %s are", f->path,
                       name ? str_show(name).text : "(missing)", list);
}

static ott_status convert(gguf_converter *c) {
    TRY(find_arch(c->file, c));
    TRY(put(c->root, "architectures", json_pack("[s]", c->family->architecture)));
    TRY(put(c->root, "model_type", json_string(c->family->name)));
    TRY(put_rows(c));
    TRY(put_shape(c));
    TRY(put_features(c));
    TRY(put_tokens(c));
    return put_rope(c);
}

ott_status gguf_config_text(mem *account, const char *path, char **text) {
    gguf_file file;
    gguf_converter c = {.file = &file, .root = json_object()};
    *text = NULL;
    ott_status status = gguf_open(account, path, &file);
    if (status == OTT_OK) status = convert(&c);
    char *json = status == OTT_OK ? json_dumps(c.root, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    if (json) status = mem_strdup(account, json, text);
    if (status == OTT_OK && !json) status = status_fail(OTT_ERR_MEMORY, "out of memory: a configuration");
    free(json);
    json_decref(c.root);
    gguf_close(&file);
    return status;
}
