/* formats/hf/config: the reader of config.json: the family, single-number keys, unsupported features, and
   consistency. Features with several keys are in config_parts.c and config_rope.c. */
#include "formats/hf/config.h"
#include "base/file/file.h"
#include "base/json/json_text.h"
#include "base/text/text.h"
#include "config/compat/alias.h"
#include "formats/gguf/gguf_config.h"
#include "formats/hf/config_keys.h"
#include <inttypes.h>
#include <string.h>

/* ---- family and unsupported features ---- */

/* Lists all families: "llama, mistral and phi3". */
static const char *list_families(char out[256]) {
    size_t length = 0;
    for (int i = 0; i < FAMILY_COUNT; i++)
        length += (size_t)text_format(out + length, 256 - length, "%s%s",
                                      i == 0                 ? ""
                                      : i < FAMILY_COUNT - 1 ? ", "
                                                             : " and ",
                                      family_table[i].name);
    return out;
}

static ott_status fail_family(const char *name, json_t *value) {
    const char *words[FAMILY_COUNT], *type = json_is_string(value) ? json_string_value(value) : "";
    char list[256];
    const char *asked = alias_asked("model_type", type);
    if (asked)
        return hf_fail(OTT_ERR_UNSUPPORTED, name, "model_type", value, "%s; %s can be loaded", asked,
                       list_families(list));
    for (int i = 0; i < FAMILY_COUNT; i++) words[i] = family_table[i].name;
    const char *nearest = str_nearest(type, words, FAMILY_COUNT);
    return hf_fail(OTT_ERR_UNSUPPORTED, name, "model_type", value, "%s can be loaded%s%s%s",
                   list_families(list), nearest ? "; the nearest is '" : "", nearest ? nearest : "",
                   nearest ? "'" : "");
}

static ott_status read_family(const char *name, json_t *root, hf_config *c) {
    json_t *type = hf_get(root, "model_type"), *architectures = hf_get(root, "architectures");
    const char *word = json_is_string(type) ? json_string_value(type) : "";
    /* Kimi K2 has DeepSeek-V3's architecture. */
    c->family = family_find(strcmp(word, "kimi_k2") == 0 ? "deepseek_v3" : word);
    if (!c->family) return fail_family(name, type);
    if (!architectures) return OTT_OK;
    const char *architecture = json_string_value(json_array_get(architectures, 0));
    /* Baichuan 1 and Baichuan 2 spell the class differently. */
    if (json_array_size(architectures) == 1 && architecture &&
        (strcmp(architecture, c->family->architecture) == 0 ||
         (family_is(c->family, FAMILY_BAICHUAN) && strcmp(architecture, "BaiChuanForCausalLM") == 0)))
        return OTT_OK;
    return hf_fail(OTT_ERR_UNSUPPORTED, name, "architectures", architectures,
                   "a %s language model needs [\"%s\"]", c->family->name, c->family->architecture);
}

const char *hf_activation_key(const family *f) {
    return f->activation_key ? f->activation_key : "hidden_act";
}

/* Each row has a name of an activation function in config.json, and the kinds of MLP with this function:
   `plain` without a gate, `gated` with one. If a function has several names, the writer uses the first. */
static const struct {
    const char *word;
    family_mlp plain, gated;
    bool has_gated;
} functions[] = {{"gelu_pytorch_tanh", FAMILY_MLP_GELU, FAMILY_MLP_GEGLU, true},
                 {"gelu_new", FAMILY_MLP_GELU, FAMILY_MLP_GEGLU, true},
                 {"gelu_fast", FAMILY_MLP_GELU, FAMILY_MLP_GEGLU, true},
                 {"gelu_python_tanh", FAMILY_MLP_GELU, FAMILY_MLP_GEGLU, true},
                 {"gelu", FAMILY_MLP_GELU_ERF, FAMILY_MLP_GEGLU_ERF, true},
                 {"gelu_python", FAMILY_MLP_GELU_ERF, FAMILY_MLP_GEGLU_ERF, true},
                 {"relu", FAMILY_MLP_RELU, FAMILY_MLP_RELU, false}};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* True if models of the family can use the activation function functions[i]. Experts only use SwiGLU. */
static bool has_function(const family *f, int i) {
    return !family_mlp_is_gated(f->mlp) || (functions[i].has_gated && !f->experts);
}

static family_mlp mlp_of(const family *f, int i) {
    return family_mlp_is_gated(f->mlp) ? functions[i].gated : functions[i].plain;
}

const char *hf_activation(const hf_config *c) {
    if (c->mlp == FAMILY_MLP_SWIGLU) return "silu";
    if (c->family->activation && c->mlp == c->family->mlp) return c->family->activation;
    int i = 0;
    while (i < FUNCTIONS - 1 && mlp_of(c->family, i) != c->mlp) i++;
    return functions[i].word;
}

/* Lists the names of the family's activation functions for a message, with quotes and commas. */
static const char *list_functions(const family *f, char out[256]) {
    size_t length = 0;
    if (f->mlp == FAMILY_MLP_SWIGLU) length = (size_t)text_format(out, 256, "\"silu\" (SwiGLU)");
    for (int i = 0; i < FUNCTIONS; i++)
        if (has_function(f, i))
            length += (size_t)text_format(out + length, 256 - length, "%s\"%s\"", length ? ", " : "",
                                          functions[i].word);
    return out;
}

static ott_status read_activation(const char *name, json_t *root, hf_config *c) {
    const family *f = c->family;
    c->mlp = f->mlp;
    const char *key = hf_activation_key(f), *works = hf_activation(c);
    json_t *activation = hf_get(root, key);
    const char *word = json_is_string(activation) ? json_string_value(activation) : "";
    char list[256];
    if (!activation || strcmp(word, works) == 0) return OTT_OK;
    for (int i = 0; i < FUNCTIONS; i++)
        if (has_function(f, i) && strcmp(word, functions[i].word) == 0) return c->mlp = mlp_of(f, i), OTT_OK;
    return hf_fail(OTT_ERR_UNSUPPORTED, name, key, activation, "supported for %s: %s", f->name,
                   list_functions(f, list));
}

/* Fails if a key that is true or false has a value that is not supported. */
static ott_status refuse_switches(const char *name, json_t *root, const family *f) {
    const struct {
        const char *key;
        bool works, is_of; /* the supported value; whether the family reads the key */
    } switches[] = {{"use_qk_norm", false, f->norms == FAMILY_NORMS_SHARED && !f->qk_norm_key},
                    {"scale_attn_weights", true, f->learned_positions},
                    {"add_cross_attention", false, f->learned_positions},
                    {"use_bidirectional_attention", false, f->scale_embeddings},
                    {"rope_interleave", true, f->latent && !f->interleave_key},
                    {"mlp_bias", false, !f->mlp_bias_key},
                    {"norm_topk_prob", false, family_is(f, FAMILY_DEEPSEEK_V2)}};
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        bool is_on;
        TRY(hf_get_bool(name, root, switches[i].key, switches[i].works, &is_on));
        if (switches[i].is_of && is_on != switches[i].works)
            return hf_fail(OTT_ERR_UNSUPPORTED, name, switches[i].key, hf_get(root, switches[i].key),
                           "only %s is supported", switches[i].works ? "true" : "false");
    }
    return OTT_OK;
}

/* Fails if config.json chooses experts by an unsupported rule. Only DeepSeek's files have keys for it. */
static ott_status refuse_routing(const char *name, json_t *root, const family *f) {
    const struct {
        family_index family;
        const char *key, *works;
    } words[] = {{FAMILY_DEEPSEEK_V3, "scoring_func", "sigmoid"},
                 {FAMILY_DEEPSEEK_V3, "topk_method", "noaux_tc"},
                 {FAMILY_DEEPSEEK_V2, "scoring_func", "softmax"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        json_t *value = family_is(f, words[i].family) ? hf_get(root, words[i].key) : NULL;
        if (value && !(json_is_string(value) && strcmp(json_string_value(value), words[i].works) == 0))
            return hf_fail(OTT_ERR_UNSUPPORTED, name, words[i].key, value, "only \"%s\" is supported for %s",
                           words[i].works, f->name);
    }
    return OTT_OK;
}

/* Fails if a model with experts has a layer without full attention. */
static ott_status refuse_layers(const char *name, json_t *root) {
    json_t *types = hf_get(root, "layer_types"), *type;
    size_t i;
    json_array_foreach(types, i, type) {
        const char *word = json_string_value(type);
        if (word && strcmp(word, "full_attention") == 0) continue;
        return hf_fail(OTT_ERR_UNSUPPORTED, name, "layer_types", type,
                       "with experts only \"full_attention\" is supported");
    }
    return OTT_OK;
}

static const char *const methods[] = {"greedy", "group_limited_greedy"};

const char *hf_routing_method(const hf_config *c) {
    return methods[c->expert_groups > 1];
}

/* DeepSeek-V2 uses expert groups only with topk_method "group_limited_greedy". */
static ott_status read_routing_method(const char *name, json_t *root, hf_config *c) {
    json_t *value = family_is(c->family, FAMILY_DEEPSEEK_V2) ? hf_get(root, "topk_method") : NULL;
    const char *word = value ? json_string_value(value) : methods[0];
    if (!family_is(c->family, FAMILY_DEEPSEEK_V2) || (word && strcmp(word, methods[1]) == 0)) return OTT_OK;
    c->expert_groups = c->top_groups = 1;
    if (word && strcmp(word, methods[0]) == 0) return OTT_OK;
    return hf_fail(OTT_ERR_UNSUPPORTED, name, "topk_method", value, "\"%s\" and \"%s\" are supported for %s",
                   methods[0], methods[1], c->family->name);
}

/* Fails if config.json has a key for a feature that Ottava does not compute for this family. */
static ott_status refuse_features(const char *name, json_t *root, const family *f) {
    static const char *const experts[] = {"num_local_experts", "num_experts", "n_routed_experts"};
    TRY(refuse_switches(name, root, f));
    /* Baichuan 13B has ALiBi, and lacks max_position_embeddings. */
    if (family_is(f, FAMILY_BAICHUAN) && !hf_get(root, "max_position_embeddings"))
        return hf_fail(
            OTT_ERR_UNSUPPORTED, name, "max_position_embeddings", NULL,
            "so the model has ALiBi (Baichuan 13B), which is not supported; Baichuan 7B can be loaded");
    TRY(refuse_routing(name, root, f));
    if (f->experts) return refuse_layers(name, root);
    for (size_t i = 0; i < sizeof experts / sizeof *experts; i++) {
        json_t *count = hf_get(root, experts[i]);
        if (count && json_number_value(count) != 0)
            return hf_fail(OTT_ERR_UNSUPPORTED, name, experts[i], count,
                           "experts are not supported for this family");
    }
    return OTT_OK;
}

static ott_status check_fit(const char *name, const hf_config *c) {
    if (c->heads % c->kv_heads != 0)
        return status_fail(OTT_ERR_FORMAT,
                           "%s: num_attention_heads (%" PRId64
                           ") must be divisible by num_key_value_heads (%" PRId64 ")",
                           name, c->heads, c->kv_heads);
    bool is_latent = c->family->latent;
    int64_t turning = is_latent ? c->qk_rope_head_dim : c->head_dim;
    if (turning % 2 != 0)
        return status_fail(OTT_ERR_FORMAT,
                           "%s: %s (%" PRId64 ") must be even: rotary embedding rotates pairs", name,
                           is_latent ? "qk_rope_head_dim" : "head_dim", turning);
    if (is_latent && c->kv_heads != c->heads)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "%s: num_key_value_heads (%" PRId64 ") must be num_attention_heads (%" PRId64
                           ") with latent attention",
                           name, c->kv_heads, c->heads);
    bool wide = is_latent && c->v_head_dim > c->head_dim;
    int64_t width = c->heads * (wide ? c->v_head_dim : c->head_dim);
    if (width > HF_LARGEST_DIMENSION)
        return status_fail(OTT_ERR_FORMAT, "%s: num_attention_heads x %s (%" PRId64 ") is more than %d", name,
                           wide ? "v_head_dim" : "head_dim", width, HF_LARGEST_DIMENSION);
    return OTT_OK;
}

/* ---- layers without experts ---- */

bool hf_can_list_dense_layers(const family *f) {
    return family_is(f, FAMILY_QWEN3_MOE);
}

static ott_status read_dense(const char *name, json_t *root, hf_config *c) {
    json_t *list = hf_get(root, "mlp_only_layers"), *layer;
    size_t i;
    if (!c->family->experts || !list || json_is_null(list)) return OTT_OK;
    bool fits = json_is_array(list) && json_array_size(list) <= HF_CONFIG_MOST_DENSE &&
                (hf_can_list_dense_layers(c->family) || json_array_size(list) == 0);
    json_array_foreach(list, i, layer) {
        int64_t number = json_is_integer(layer) ? json_integer_value(layer) : -1;
        fits = fits && number >= 0 && number < c->layers;
        if (fits) c->dense[c->dense_count++] = (int32_t)number;
    }
    if (fits) return OTT_OK;
    return hf_fail(OTT_ERR_UNSUPPORTED, name, "mlp_only_layers", list,
                   "only a list of at most %d layers is supported, in a qwen3_moe model",
                   HF_CONFIG_MOST_DENSE);
}

bool hf_dense_layers_equal(const hf_config *a, const hf_config *b) {
    return a->dense_count == b->dense_count &&
           memcmp(a->dense, b->dense, (size_t)b->dense_count * sizeof *b->dense) == 0;
}

/* ---- reading a file ---- */

static ott_status read_config_root(const char *name, json_t *root, hf_config *c) {
    if (!json_is_object(root)) return status_fail(OTT_ERR_FORMAT, "%s: is not a JSON object", name);
    TRY(read_family(name, root, c));
    TRY(read_activation(name, root, c));
    TRY(refuse_features(name, root, c->family));
    TRY(hf_read_keys(name, root, c));
    TRY(read_routing_method(name, root, c));
    TRY(check_fit(name, c));
    TRY(read_dense(name, root, c));
    TRY(hf_read_rope(name, root, c));
    TRY(hf_read_window(name, root, c));
    TRY(hf_read_tokens(name, root, c));
    TRY(hf_read_dropout(name, root, c));
    TRY(hf_read_router_loss(name, root, c));
    TRY(hf_read_dtype(name, root, c));
    return hf_read_quantization(name, root, c);
}

ott_status hf_config_parse(const char *name, const char *text, int64_t length, hf_config *out) {
    json_error_t error;
    *out = (hf_config){.bos = -1, .pad = -1, .padding_row = -1, .dtype = OTT_DTYPE_COUNT};
    json_t *root;
    TRY(status_context(json_text_parse(text, length, JSON_REJECT_DUPLICATES, &root, &error), "%s", name));
    if (!root) return status_fail(OTT_ERR_FORMAT, "%s:%d: %s", name, error.line, str_show(error.text).text);
    ott_status status = read_config_root(name, root, out);
    json_decref(root);
    return status;
}

ott_status hf_config_read(mem *account, const char *path, hf_config *out, char **text) {
    enum { MOST_BYTES = 1 << 24 };
    char name[PATH_MAX], *data;
    int64_t bytes;
    if (text) *text = NULL;
    TRY(file_is_folder(path) ? file_join(path, HF_CONFIG_NAME, name) : file_path(name, "%s", path));
    if (file_is_gguf(name)) {
        TRY(gguf_config_text(account, name, &data));
        bytes = (int64_t)strlen(data);
    } else {
        TRY(file_read(account, name, MOST_BYTES, &data, &bytes));
    }
    ott_status status = hf_config_parse(name, data, bytes, out);
    if (status == OTT_OK && text)
        *text = data;
    else
        mem_free(account, data);
    return status;
}

bool hf_config_equal(const hf_config *a, const hf_config *b) {
    int count;
    const hf_key *keys = hf_keys(&count);
    for (int i = 0; i < count; i++)
        if (!hf_key_equal(&keys[i], hf_key_get(&keys[i], a), hf_key_get(&keys[i], b))) return false;
    if (a->family != b->family || a->mlp != b->mlp || a->sliding_window != b->sliding_window ||
        !hf_full_layers_equal(a, b) || a->dtype != b->dtype)
        return false;
    if (!hf_rope_equal(a, b) || !hf_tokens_equal(a, b) || !hf_dense_layers_equal(a, b)) return false;
    return strcmp(a->quantization, b->quantization) == 0;
}
