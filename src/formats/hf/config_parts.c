/* formats/hf/config_parts: features of config.json that need several keys or spellings: sliding window,
   special tokens, dropout, weight format, quantization. */
#include "base/text/text.h"
#include "formats/hf/config_keys.h"
#include <stdio.h>
#include <string.h>

/* ---- sliding window ---- */

enum { DEFAULT_FULL_LAYERS = 28 }; /* transformers' default of max_window_layers */

static ott_status read_optional_size(const char *name, json_t *root, const char *key, int64_t default_value,
                                     int64_t least, int64_t *out) {
    json_t *value = json_object_get(root, key);
    *out = !value ? default_value : json_is_null(value) ? 0 : json_integer_value(value);
    if (!value || json_is_null(value)) return OTT_OK;
    if (json_is_integer(value) && *out >= least && *out <= INT32_MAX) return OTT_OK;
    return hf_fail(OTT_ERR_FORMAT, name, key, value, "must be null or an integer from %d to %d", (int)least,
                   INT32_MAX);
}

static const char *const layer_words[] = {"sliding_attention", "full_attention"};

bool hf_has_full_attention(const hf_config *c, int64_t layer) {
    for (int i = 0; i < c->full_count; i++)
        if (c->full[i] == layer) return true;
    return c->full_attention_every > 0 && (layer + 1) % c->full_attention_every == 0;
}

bool hf_full_layers_equal(const hf_config *a, const hf_config *b) {
    return a->full_attention_every == b->full_attention_every && a->full_count == b->full_count &&
           memcmp(a->full, b->full, (size_t)b->full_count * sizeof *b->full) == 0;
}

static ott_status add_full_layer(const char *name, int64_t layer, hf_config *c) {
    if (c->full_count == HF_CONFIG_MOST_FULL)
        return status_fail(
            OTT_ERR_UNSUPPORTED,
            "%s: more than %d of the %d layers have no window (layer_types, max_window_layers)", name,
            HF_CONFIG_MOST_FULL, (int)c->layers);
    c->full[c->full_count++] = (int32_t)layer;
    return OTT_OK;
}

static ott_status read_layer_types(const char *name, json_t *types, hf_config *c) {
    json_t *type;
    size_t i;
    if ((int64_t)json_array_size(types) != c->layers)
        return hf_fail(OTT_ERR_FORMAT, name, "layer_types", types,
                       "must be a list of num_hidden_layers words");
    json_array_foreach(types, i, type) {
        const char *word = json_is_string(type) ? json_string_value(type) : "";
        bool is_full = strcmp(word, layer_words[true]) == 0;
        if (!is_full && strcmp(word, layer_words[false]) != 0)
            return hf_fail(OTT_ERR_UNSUPPORTED, name, "layer_types", type,
                           "a layer must be \"full_attention\" or \"sliding_attention\"");
        if (is_full) TRY(add_full_layer(name, (int64_t)i, c));
    }
    return OTT_OK;
}

/* Reads which layers of a Qwen model have a window. layer_types lists them. If it is missing, all layers have
   one except the first max_window_layers. */
static ott_status read_layer_windows(const char *name, json_t *root, hf_config *c) {
    json_t *types = hf_get(root, "layer_types");
    bool uses;
    int64_t first;
    TRY(hf_get_bool(name, root, "use_sliding_window", false, &uses));
    if (!uses) return OTT_OK;
    TRY(read_optional_size(name, root, "sliding_window", c->family->window_size, 1, &c->sliding_window));
    TRY(read_optional_size(name, root, "max_window_layers", DEFAULT_FULL_LAYERS, 0, &first));
    if (!types && first >= c->layers) c->sliding_window = 0;
    if (c->sliding_window == 0) return OTT_OK;
    if (types) TRY(read_layer_types(name, types, c));
    for (int64_t i = 0; !types && i < first; i++) TRY(add_full_layer(name, i, c));
    if (c->full_count == c->layers) c->sliding_window = c->full_count = 0;
    return OTT_OK;
}

/* If every n-th layer has no window, sets full_attention_every to n and empties the list `full`. */
static void find_period(hf_config *c, int64_t default_value) {
    int64_t every = c->full_count > 0 ? c->full[0] + 1 : default_value > c->layers ? default_value : 0;
    bool fits = c->full_count == (every > 0 ? c->layers / every : 0);
    for (int i = 0; i < c->full_count; i++) fits = fits && c->full[i] == (i + 1) * every - 1;
    c->full_attention_every = fits ? every : 0;
    if (fits) c->full_count = 0;
}

static ott_status read_pattern(const char *name, json_t *root, hf_config *c) {
    json_t *types = hf_get(root, "layer_types");
    TRY(read_optional_size(name, root, "sliding_window", c->family->window_size, 1, &c->sliding_window));
    TRY(read_optional_size(name, root, "sliding_window_pattern", c->family->full_attention_every, 1,
                           &c->full_attention_every));
    if (!types) return OTT_OK;
    TRY(read_layer_types(name, types, c));
    find_period(c, c->full_attention_every);
    return OTT_OK;
}

void hf_window_append(const hf_config *c, str *out) {
    for (int64_t i = 0; i < c->layers; i++)
        str_printf(out, "%s\n    \"%s\"", i ? "," : "[", layer_words[hf_has_full_attention(c, i)]);
    str_append(out, "\n  ]");
}

ott_status hf_read_window(const char *name, json_t *root, hf_config *c) {
    c->sliding_window = c->full_attention_every = c->full_count = 0;
    switch (c->family->window) {
    case FAMILY_WINDOW_NONE: break;
    case FAMILY_WINDOW_LAYERS: return read_layer_windows(name, root, c);
    case FAMILY_WINDOW_PATTERN: return read_pattern(name, root, c);
    case FAMILY_WINDOW_KEY:
        return read_optional_size(name, root, "sliding_window", c->family->window_size, 1,
                                  &c->sliding_window);
    }
    return OTT_OK;
}

/* ---- special tokens ---- */

static ott_status read_token(const char *name, const char *key, json_t *value, const hf_config *c,
                             int64_t *out) {
    *out = json_integer_value(value);
    if (json_is_integer(value) && *out >= 0 && *out < c->vocab_size) return OTT_OK;
    return hf_fail(OTT_ERR_FORMAT, name, key, value, "must be null or a token id below vocab_size (%d)",
                   (int)c->vocab_size);
}

static ott_status read_eos(const char *name, json_t *eos, hf_config *c) {
    size_t count = json_is_array(eos) ? json_array_size(eos) : 1;
    if (count > HF_CONFIG_MOST_EOS)
        return hf_fail(OTT_ERR_UNSUPPORTED, name, "eos_token_id", eos, "at most %d ids are supported",
                       HF_CONFIG_MOST_EOS);
    for (size_t i = 0; i < count; i++)
        TRY(read_token(name, "eos_token_id", json_is_array(eos) ? json_array_get(eos, i) : eos, c,
                       &c->eos[i]));
    c->eos_count = (int)count;
    return OTT_OK;
}

ott_status hf_read_tokens(const char *name, json_t *root, hf_config *c) {
    json_t *bos = hf_get(root, "bos_token_id"), *eos = hf_get(root, "eos_token_id");
    json_t *pad = hf_get(root, "pad_token_id");
    c->bos = c->pad = -1;
    c->eos_count = 0;
    if (bos) TRY(read_token(name, "bos_token_id", bos, c, &c->bos));
    if (eos) TRY(read_eos(name, eos, c));
    if (pad && !json_is_integer(pad))
        return hf_fail(OTT_ERR_FORMAT, name, "pad_token_id", pad, "must be null or a token id");
    /* PyTorch counts a negative pad_token_id from the last row. An id above the vocabulary has no row. */
    int64_t id = pad ? json_integer_value(pad) : -1;
    c->pad = id >= 0 && id < c->vocab_size ? id : -1;
    c->padding_row = pad && id < 0 && id >= -c->vocab_size ? c->vocab_size + id : c->pad;
    return OTT_OK;
}

ott_status hf_read_dropout(const char *name, json_t *root, hf_config *c) {
    static const char *const keys[] = {"attention_dropout", "attn_pdrop",     "resid_pdrop",
                                       "embd_pdrop",        "hidden_dropout", "residual_dropout",
                                       "embedding_dropout"};
    size_t length = 0;
    c->dropout[0] = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *value = hf_get(root, keys[i]);
        double rate = json_number_value(value);
        if (value && !(json_is_number(value) && rate >= 0 && rate <= 1))
            return hf_fail(OTT_ERR_FORMAT, name, keys[i], value, "must be a number from 0 to 1");
        if (rate > 0)
            length += (size_t)text_format(c->dropout + length, sizeof c->dropout - length, "%s%s = %g",
                                          length ? ", " : "", keys[i], rate);
    }
    return OTT_OK;
}

/* ---- auxiliary loss of the router ---- */

ott_status hf_read_router_loss(const char *name, json_t *root, hf_config *c) {
    static const char key[] = "router_aux_loss_coef";
    json_t *value = c->experts > 0 ? hf_get(root, key) : NULL;
    c->router_aux_loss_coef = value ? json_number_value(value) : -1;
    if (!value || (json_is_number(value) && c->router_aux_loss_coef >= 0 && c->router_aux_loss_coef <= 1e9))
        return OTT_OK;
    return hf_fail(OTT_ERR_FORMAT, name, key, value, "must be a number from 0 to 1e9");
}

bool hf_tokens_equal(const hf_config *a, const hf_config *b) {
    return a->bos == b->bos && a->pad == b->pad && a->eos_count == b->eos_count &&
           memcmp(a->eos, b->eos, (size_t)a->eos_count * sizeof *a->eos) == 0;
}

/* ---- weight format ---- */

static bool dtype_from_torch(const char *word, ott_dtype *out) {
    static const struct {
        const char *word;
        ott_dtype dtype;
    } words[] = {{"float32", OTT_F32}, {"bfloat16", OTT_BF16}, {"float16", OTT_F16}};
    if (strncmp(word, "torch.", 6) == 0) word += 6;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(words[i].word, word) != 0) continue;
        *out = words[i].dtype;
        return true;
    }
    return false;
}

static ott_status read_one_dtype(const char *name, json_t *root, const char *key, hf_config *c) {
    json_t *value = hf_get(root, key);
    ott_dtype before = c->dtype;
    if (!value) return OTT_OK;
    if (!json_is_string(value) || !dtype_from_torch(json_string_value(value), &c->dtype))
        return hf_fail(OTT_ERR_UNSUPPORTED, name, key, value, "bfloat16, float16 and float32 are supported");
    if (before == OTT_DTYPE_COUNT || before == c->dtype) return OTT_OK;
    return hf_fail(OTT_ERR_FORMAT, name, key, value, "differs from torch_dtype");
}

ott_status hf_read_dtype(const char *name, json_t *root, hf_config *c) {
    c->dtype = OTT_DTYPE_COUNT;
    TRY(read_one_dtype(name, root, "torch_dtype", c));
    return read_one_dtype(name, root, "dtype", c);
}

/* ---- quantization ---- */

/* Reads the block size of FP8 weights: [rows, columns] that share a scale. Does nothing for null. */
static ott_status read_block(const char *name, const char *key, json_t *block, hf_config *c) {
    if (!block || json_is_null(block)) return OTT_OK;
    for (size_t i = 0; i < 2; i++) {
        json_t *size = json_array_get(block, i);
        c->quantization_block[i] = json_integer_value(size);
        if (json_array_size(block) != 2 || !json_is_integer(size) || c->quantization_block[i] < 1)
            return hf_fail(OTT_ERR_FORMAT, name, key, block, "must be two numbers above 0");
    }
    return OTT_OK;
}

ott_status hf_read_quantization(const char *name, json_t *root, hf_config *c) {
    json_t *object = hf_get(root, "quantization_config");
    if (!object) return OTT_OK;
    const char *method = json_string_value(json_object_get(object, "quant_method"));
    const char *format = json_string_value(json_object_get(object, "format"));
    if (!method || !method[0])
        return hf_fail(OTT_ERR_FORMAT, name, "quantization_config", object,
                       "must be an object with a quant_method");
    snprintf(c->quantization, sizeof c->quantization, "%.31s", str_show(method).text);
    snprintf(c->quantization_format, sizeof c->quantization_format, "%.31s",
             format ? str_show(format).text : "");
    TRY(read_block(name, "weight_block_size", json_object_get(object, "weight_block_size"), c));
    /* A quantization_config of compressed-tensors describes groups of layers. */
    json_t *groups = json_object_get(object, "config_groups"), *group;
    const char *key;
    json_object_foreach(groups, key, group) {
        json_t *weights = json_object_get(group, "weights");
        const char *strategy = json_string_value(json_object_get(weights, "strategy"));
        c->quantization_by_row |= strategy && strcmp(strategy, "channel") == 0;
        TRY(read_block(name, "block_structure", json_object_get(weights, "block_structure"), c));
    }
    return OTT_OK;
}
