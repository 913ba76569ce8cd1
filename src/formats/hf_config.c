/*
 * formats/hf_config: the reader of config.json: which family, the keys that are plain numbers, what must not be
 * there, and whether the numbers fit together. What takes several keys to say is in hf_config_parts.c.
 */
#include "formats/hf_config.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/text.h"
#include "config/alias.h"
#include "formats/hf_config_keys.h"
#include "formats/safetensors_show.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages ---- */

ott_status hf_fail(ott_status code, const char *name, const char *key, json_t *value, const char *format,
                   ...) {
    char what[400];
    va_list arguments;
    va_start(arguments, format);
    text_vformat(what, sizeof what, format, arguments);
    va_end(arguments);
    if (!value) return status_fail(code, "%s: has no key '%s': %s", name, key, what);
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    status_fail(code, "%s: key '%s' = %s: %s", name, key, show(text ? text : "?").text, what);
    free(text);
    return code;
}

json_t *hf_get(json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

ott_status hf_get_bool(const char *name, json_t *root, const char *key, bool fallback, bool *out) {
    json_t *value = hf_get(root, key);
    *out = value ? json_is_true(value) : fallback;
    if (!value || json_is_boolean(value)) return OTT_OK;
    return hf_fail(OTT_ERR_FORMAT, name, key, value, "must be true or false");
}

/* ---- the keys that are one number each ---- */

#define KEY(key, type, member, least, most)                                                                  \
    { key, type, offsetof(hf_config, member), least, most }
#define LARGEST_DIMENSION (1 << 20)

static const hf_key keys[] = {
    KEY("hidden_size", HF_INT, hidden_size, 1, LARGEST_DIMENSION),
    KEY("intermediate_size", HF_INT, intermediate_size, 1, LARGEST_DIMENSION),
    KEY("num_hidden_layers", HF_INT, layers, 1, 10000),
    KEY("num_attention_heads", HF_INT, heads, 1, 65536),
    KEY("num_key_value_heads", HF_INT, kv_heads, 1, 65536),
    KEY("head_dim", HF_INT, head_dim, 2, 65536),
    KEY("vocab_size", HF_INT, vocab_size, 1, 16 * LARGEST_DIMENSION),
    KEY("max_position_embeddings", HF_INT, max_position_embeddings, 1, INT32_MAX),
    KEY("rms_norm_eps", HF_REAL, rms_norm_eps, 1e-30, 1),
    KEY("attention_bias", HF_BOOL, attention_bias, 0, 0),
    KEY("tie_word_embeddings", HF_BOOL, tie_word_embeddings, 0, 0),
};

const hf_key *hf_keys(int *count) {
    *count = sizeof keys / sizeof *keys;
    return keys;
}

bool hf_key_applies(const hf_key *k, const family *f) {
    return k->offset != offsetof(hf_config, attention_bias) || f->bias_key;
}

hf_value hf_key_get(const hf_key *k, const hf_config *c) {
    const char *member = (const char *)c + k->offset;
    switch (k->type) {
    case HF_INT: return (hf_value){.integer = *(const int64_t *)(const void *)member};
    case HF_REAL: return (hf_value){.real = *(const double *)(const void *)member};
    case HF_BOOL: break;
    }
    return (hf_value){.truth = *(const bool *)member};
}

void hf_key_set(const hf_key *k, hf_config *c, hf_value v) {
    char *member = (char *)c + k->offset;
    switch (k->type) {
    case HF_INT: *(int64_t *)(void *)member = v.integer; break;
    case HF_REAL: *(double *)(void *)member = v.real; break;
    case HF_BOOL: *(bool *)member = v.truth; break;
    }
}

/* Reals are compared as the models compute with them, in fp32: an eps that came through a float is the same.
 */
bool hf_key_equal(const hf_key *k, hf_value a, hf_value b) {
    switch (k->type) {
    case HF_INT: return a.integer == b.integer;
    case HF_REAL: return (float)a.real == (float)b.real;
    case HF_BOOL: break;
    }
    return a.truth == b.truth;
}

bool hf_key_default(const hf_key *k, const hf_config *c, hf_value *out) {
    *out = (hf_value){0};
    if (k->type == HF_BOOL) return true; /* false, in all families */
    if (k->offset == offsetof(hf_config, kv_heads)) {
        out->integer = c->heads;
        return c->family->kv_heads_optional;
    }
    if (k->offset != offsetof(hf_config, head_dim)) return false;
    int own = c->family->head_dim;
    out->integer = own ? own : c->heads > 0 ? c->hidden_size / c->heads : 0;
    return own || (c->heads > 0 && c->hidden_size % c->heads == 0);
}

static const char *describe(const hf_key *k, char out[96]) {
    if (k->type == HF_BOOL) return "must be true or false";
    if (k->type == HF_INT)
        text_format(out, 96, "must be an integer from %.0f to %.0f", k->least, k->most);
    else
        text_format(out, 96, "must be a number above 0, up to %g", k->most);
    return out;
}

ott_status hf_key_read(const hf_key *k, const char *name, json_t *value, hf_value *out) {
    char expected[96];
    bool good = false;
    switch (k->type) {
    case HF_INT:
        out->integer = json_integer_value(value);
        good =
            json_is_integer(value) && out->integer >= (int64_t)k->least && out->integer <= (int64_t)k->most;
        break;
    case HF_REAL:
        out->real = json_number_value(value);
        good = json_is_number(value) && out->real >= k->least && out->real <= k->most;
        break;
    case HF_BOOL:
        out->truth = json_is_true(value);
        good = json_is_boolean(value);
        break;
    }
    if (good) return OTT_OK;
    return hf_fail(OTT_ERR_FORMAT, name, k->name, value, "%s", describe(k, expected));
}

static ott_status read_keys(const char *name, json_t *root, hf_config *c) {
    hf_value v;
    char expected[96];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const hf_key *k = &keys[i];
        json_t *value = hf_key_applies(k, c->family) ? hf_get(root, k->name) : NULL;
        if (value)
            TRY(hf_key_read(k, name, value, &v));
        else if (!hf_key_default(k, c, &v))
            return hf_fail(OTT_ERR_FORMAT, name, k->name, NULL, "%s needs it, and it %s", c->family->name,
                           describe(k, expected));
        hf_key_set(k, c, v);
    }
    return OTT_OK;
}

/* ---- the family, and what it must not have ---- */

/* "llama, mistral and phi3 can be loaded" */
static const char *list_families(char out[128]) {
    size_t length = 0;
    for (int i = 0; i < FAMILY_COUNT; i++)
        length += (size_t)text_format(out + length, 128 - length, "%s%s",
                                      i == 0                 ? ""
                                      : i < FAMILY_COUNT - 1 ? ", "
                                                             : " and ",
                                      family_table[i].name);
    return out;
}

static ott_status fail_family(const char *name, json_t *value) {
    const char *words[FAMILY_COUNT], *type = json_is_string(value) ? json_string_value(value) : "";
    char list[128];
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
    c->family = json_is_string(type) ? family_find(json_string_value(type)) : NULL;
    if (!c->family) return fail_family(name, type);
    if (!architectures) return OTT_OK;
    const char *architecture = json_string_value(json_array_get(architectures, 0));
    if (json_array_size(architectures) == 1 && architecture &&
        strcmp(architecture, c->family->architecture) == 0)
        return OTT_OK;
    return hf_fail(OTT_ERR_UNSUPPORTED, name, "architectures", architectures,
                   "a %s language model is [\"%s\"]", c->family->name, c->family->architecture);
}

/* A key by which a file of a known family asks for something the block does not compute. */
static ott_status refuse_features(const char *name, json_t *root) {
    static const char *const experts[] = {"num_local_experts", "num_experts", "n_routed_experts"};
    json_t *activation = hf_get(root, "hidden_act"), *rotary = hf_get(root, "partial_rotary_factor");
    bool mlp_bias;
    if (activation && !(json_is_string(activation) && strcmp(json_string_value(activation), "silu") == 0))
        return hf_fail(OTT_ERR_UNSUPPORTED, name, "hidden_act", activation, "only \"silu\" (SwiGLU) works");
    if (rotary && json_number_value(rotary) != 1.0)
        return hf_fail(OTT_ERR_UNSUPPORTED, name, "partial_rotary_factor", rotary,
                       "only 1, rotation of the whole head, works");
    TRY(hf_get_bool(name, root, "mlp_bias", false, &mlp_bias));
    if (mlp_bias)
        return hf_fail(OTT_ERR_UNSUPPORTED, name, "mlp_bias", hf_get(root, "mlp_bias"),
                       "only an MLP without biases works");
    for (size_t i = 0; i < sizeof experts / sizeof *experts; i++) {
        json_t *count = hf_get(root, experts[i]);
        if (count && json_number_value(count) != 0)
            return hf_fail(OTT_ERR_UNSUPPORTED, name, experts[i], count,
                           "mixtures of experts are not loaded");
    }
    return OTT_OK;
}

static ott_status check_fit(const char *name, const hf_config *c) {
    if (c->heads % c->kv_heads != 0)
        return status_fail(OTT_ERR_FORMAT,
                           "%s: num_attention_heads (%" PRId64
                           ") must be divisible by num_key_value_heads (%" PRId64 ")",
                           name, c->heads, c->kv_heads);
    if (c->head_dim % 2 != 0)
        return status_fail(OTT_ERR_FORMAT,
                           "%s: head_dim (%" PRId64 ") must be even: rotary embedding turns pairs", name,
                           c->head_dim);
    if (c->heads * c->head_dim > LARGEST_DIMENSION)
        return status_fail(OTT_ERR_FORMAT, "%s: num_attention_heads x head_dim (%" PRId64 ") is more than %d",
                           name, c->heads * c->head_dim, LARGEST_DIMENSION);
    return OTT_OK;
}

/* ---- the whole file ---- */

static ott_status read_root(const char *name, json_t *root, hf_config *c) {
    if (!json_is_object(root)) return status_fail(OTT_ERR_FORMAT, "%s: is not a JSON object", name);
    TRY(read_family(name, root, c));
    TRY(refuse_features(name, root));
    TRY(read_keys(name, root, c));
    TRY(check_fit(name, c));
    TRY(hf_read_rope(name, root, c));
    TRY(hf_read_window(name, root, c));
    TRY(hf_read_tokens(name, root, c));
    TRY(hf_read_dropout(name, root, c));
    TRY(hf_read_dtype(name, root, c));
    return hf_read_quantization(name, root, c);
}

ott_status hf_config_parse(const char *name, const char *text, int64_t length, hf_config *out) {
    json_error_t error;
    *out = (hf_config){.bos = -1, .pad = -1, .padding_row = -1, .dtype = OTT_DTYPE_COUNT};
    json_t *root;
    TRY(status_context(json_text_parse(text, length, JSON_REJECT_DUPLICATES, &root, &error), "%s", name));
    if (!root) return status_fail(OTT_ERR_FORMAT, "%s:%d: %s", name, error.line, show(error.text).text);
    ott_status status = read_root(name, root, out);
    json_decref(root);
    return status;
}

ott_status hf_config_read(mem *account, const char *path, hf_config *out, char **text) {
    enum { MOST_BYTES = 1 << 24 };
    str name = {.account = account};
    char *data = NULL;
    int64_t bytes;
    ott_status status;
    if (text) *text = NULL;
    str_printf(&name, "%s%s", path,
               !file_is_folder(path)      ? ""
               : str_ends_with(path, "/") ? HF_CONFIG_NAME
                                          : "/" HF_CONFIG_NAME);
    TRY_OUT(str_finish(&name));
    TRY_OUT(file_read(account, name.text, MOST_BYTES, &data, &bytes));
    TRY_OUT(hf_config_parse(name.text, data, bytes, out));
out:
    str_free(&name);
    if (status == OTT_OK && text)
        *text = data;
    else
        mem_free(account, data);
    return status;
}

bool hf_config_equal(const hf_config *a, const hf_config *b) {
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!hf_key_equal(&keys[i], hf_key_get(&keys[i], a), hf_key_get(&keys[i], b))) return false;
    if (a->family != b->family || a->sliding_window != b->sliding_window || a->dtype != b->dtype)
        return false;
    if (!hf_rope_equal(a, b) || !hf_tokens_equal(a, b)) return false;
    return strcmp(a->quantization, b->quantization) == 0;
}
