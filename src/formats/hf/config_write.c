/* formats/hf/config_write: the writer of config.json. It changes a key only if the key's value, or its
   default, does not match the model. The result is parsed and compared before it is returned. */
#include "base/file/file.h"
#include "base/json/json_text.h"
#include "formats/hf/config_keys.h"
#include "formats/json_edit.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct editor {
    const hf_config *c;
    json_t *root;     /* the original file, parsed; empty if there is none */
    hf_config before; /* the original file, parsed with c's family and vocabulary */
    bool is_new;      /* there is no original: `text` begins as an empty object, and all keys are set */
    str text, value;  /* text of the file so far; buffer for a value */
} editor;

/* ---- values ---- */

/* Sets `key` to the JSON text in the buffer e->value, and empties the buffer. */
static ott_status put_value(editor *e, const char *key) {
    TRY(str_finish(&e->value));
    TRY(json_edit_put(&e->text, key, e->value.text));
    e->value.length = 0;
    return OTT_OK;
}

static ott_status put_int(editor *e, const char *key, int64_t value) {
    str_printf(&e->value, "%" PRId64, value);
    return put_value(e, key);
}

static ott_status put_word(editor *e, const char *key, const char *word) {
    str_append(&e->value, word);
    return put_value(e, key);
}

static ott_status put_text(editor *e, const char *key, const char *text) {
    str_printf(&e->value, "\"%s\"", text);
    return put_value(e, key);
}

static ott_status put_number(editor *e, const char *key, double x) {
    hf_append_real(&e->value, x);
    return put_value(e, key);
}

/* ---- features ---- */

static ott_status edit_family(editor *e) {
    json_t *type = json_object_get(e->root, "model_type");
    if (!e->is_new && json_is_string(type) && strcmp(json_string_value(type), e->c->family->name) == 0)
        return OTT_OK;
    str_printf(&e->value, "[\n    \"%s\"\n  ]", e->c->family->architecture);
    TRY(put_value(e, "architectures"));
    return put_text(e, "model_type", e->c->family->name);
}

static ott_status put_key(editor *e, const hf_key *k) {
    double v = hf_key_get(k, e->c);
    if (hf_key_can_be_null(k) && hf_key_equal(k, v, 0)) return put_word(e, k->name, "null");
    if (k->type == HF_INT) return put_int(e, k->name, (int64_t)v);
    if (k->type == HF_BOOL) return put_word(e, k->name, v != 0 ? "true" : "false");
    return put_number(e, k->name, v);
}

static ott_status edit_key(editor *e, const hf_key *k) {
    double now = hf_key_get(k, e->c), given;
    bool is_given = true;
    if (hf_key_has_substitute(k, e->c->family)) return OTT_OK;
    if (!hf_key_applies(k, e->c->family)) {
        hf_key_default(k, e->c, &given);
        if (hf_key_equal(k, given, now)) return OTT_OK;
        return status_fail(OTT_ERR_UNSUPPORTED, "%s: a %s model cannot have it", k->name, e->c->family->name);
    }
    if (hf_key_value_of(k, HF_CONFIG_NAME, e->root, e->c, &given, &is_given) != OTT_OK) is_given = false;
    return !e->is_new && is_given && hf_key_equal(k, given, now) ? OTT_OK : put_key(e, k);
}

static ott_status edit_routing_method(editor *e) {
    const char *word = hf_routing_method(e->c);
    bool is_same = strcmp(hf_routing_method(&e->before), word) == 0;
    if (!family_is(e->c->family, FAMILY_DEEPSEEK_V2) || (!e->is_new && is_same)) return OTT_OK;
    return put_text(e, "topk_method", word);
}

static bool has_original_key(const editor *e, const char *key) {
    return json_object_get(e->root, key) != NULL;
}

/* Writes the rotary embedding in transformers 4's spelling: rope_scaling, and rope_theta at the top level. */
static ott_status edit_rope(editor *e) {
    if (e->c->family->learned_positions) return OTT_OK;
    bool is_old =
        !has_original_key(e, "rope_parameters") && !hf_get(hf_get(e->root, "rope_scaling"), "rope_theta");
    if (!e->is_new && is_old && hf_rope_equal(&e->before, e->c)) return OTT_OK;
    if (has_original_key(e, "rope_scaling"))
        TRY(json_edit_remove(&e->text, "rope_parameters"));
    else
        TRY(json_edit_rename(&e->text, "rope_parameters", "rope_scaling"));
    TRY(put_number(e, "rope_theta", e->c->rope_theta));
    if (e->c->family->partial_rotary_factor > 0)
        TRY(put_number(e, "partial_rotary_factor", e->c->partial_rotary_factor));
    if (e->c->rope_local_theta > 0) TRY(put_number(e, "rope_local_base_freq", e->c->rope_local_theta));
    if (e->c->rope == HF_ROPE_LONGROPE)
        TRY(put_int(e, "original_max_position_embeddings", e->c->rope_original_max_position));
    bool is_given =
        e->is_new || has_original_key(e, "rope_scaling") || has_original_key(e, "rope_parameters");
    if (e->c->rope == HF_ROPE_PLAIN) return is_given ? put_word(e, "rope_scaling", "null") : OTT_OK;
    hf_rope_append(e->c, &e->value);
    return put_value(e, "rope_scaling");
}

static ott_status put_window(editor *e, const char *key) {
    return e->c->sliding_window > 0 ? put_int(e, key, e->c->sliding_window) : put_word(e, key, "null");
}

static ott_status put_layer_types(editor *e) {
    hf_window_append(e->c, &e->value);
    return put_value(e, "layer_types");
}

/* True if the layers without a window are the first layers. Then the key max_window_layers describes them. */
static bool sees_all_first(const hf_config *c) {
    return c->full_attention_every == 0 &&
           (c->full_count == 0 || c->full[c->full_count - 1] == c->full_count - 1);
}

static ott_status put_layer_windows(editor *e) {
    bool uses = e->c->sliding_window > 0;
    TRY(put_word(e, "use_sliding_window", uses ? "true" : "false"));
    if (uses || e->is_new) TRY(put_window(e, "sliding_window"));
    if (uses && !sees_all_first(e->c)) TRY(put_layer_types(e));
    return uses ? put_int(e, "max_window_layers", e->c->full_count) : OTT_OK;
}

/* Writes the keys of the sliding window if the window or the number of layers has changed. */
static ott_status edit_window(editor *e) {
    bool is_same = e->before.sliding_window == e->c->sliding_window &&
                   hf_full_layers_equal(&e->before, e->c) && e->before.layers == e->c->layers;
    const family *f = e->c->family;
    if (f->window == FAMILY_WINDOW_NONE && e->c->sliding_window > 0)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "sliding_window: a %s model has none in transformers; write it as a mistral "
                           "model, which adds only the window",
                           f->name);
    if (!e->is_new && is_same) return OTT_OK;
    TRY(json_edit_remove(&e->text, "layer_types"));
    if (f->window == FAMILY_WINDOW_LAYERS) return put_layer_windows(e);
    if (f->window == FAMILY_WINDOW_PATTERN) TRY(put_layer_types(e));
    return f->window == FAMILY_WINDOW_NONE ? OTT_OK : put_window(e, "sliding_window");
}

static ott_status edit_dense(editor *e) {
    const hf_config *c = e->c;
    if (!hf_can_list_dense_layers(c->family) ||
        (e->is_new ? c->dense_count == 0 : hf_dense_layers_equal(&e->before, c)))
        return OTT_OK;
    str_append(&e->value, "[");
    for (int i = 0; i < c->dense_count; i++) str_printf(&e->value, "%s%d", i ? ", " : "", (int)c->dense[i]);
    str_append(&e->value, "]");
    return put_value(e, "mlp_only_layers");
}

static ott_status put_token(editor *e, const char *key, int64_t id) {
    return id < 0 ? put_word(e, key, "null") : put_int(e, key, id);
}

static ott_status put_eos(editor *e) {
    const hf_config *c = e->c;
    if (c->eos_count <= 1) return put_token(e, "eos_token_id", c->eos_count == 1 ? c->eos[0] : -1);
    str_append(&e->value, "[");
    for (int i = 0; i < c->eos_count; i++) str_printf(&e->value, "%s\n    %" PRId64, i ? "," : "", c->eos[i]);
    str_append(&e->value, "\n  ]");
    return put_value(e, "eos_token_id");
}

static ott_status edit_dtype(editor *e) {
    if (has_original_key(e, "torch_dtype"))
        TRY(json_edit_remove(&e->text, "dtype"));
    else
        TRY(json_edit_rename(&e->text, "dtype", "torch_dtype"));
    if (e->c->dtype == OTT_DTYPE_COUNT || (!e->is_new && e->before.dtype == e->c->dtype)) return OTT_OK;
    const char *word = e->c->dtype == OTT_F32 ? "float32" : e->c->dtype == OTT_F16 ? "float16" : "bfloat16";
    return put_text(e, "torch_dtype", word);
}

static ott_status edit_quantization(editor *e, const char *quantization) {
    json_error_t error;
    if (!quantization) return OTT_OK;
    if (!quantization[0]) return json_edit_remove(&e->text, "quantization_config");
    json_t *object;
    TRY(json_text_parse(quantization, (int64_t)strlen(quantization), JSON_REJECT_DUPLICATES, &object,
                        &error));
    bool is_object = json_is_object(object);
    char *text = is_object ? json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(object);
    if (!is_object)
        return status_fail(OTT_ERR_ARGUMENT, "quantization_config: not a JSON object: %s", quantization);
    if (!text) return status_fail(OTT_ERR_MEMORY, "out of memory: quantization_config");
    /* Indents all lines but the first, because the value is inside of an object. */
    for (const char *c = text; *c; c++) {
        str_append_bytes(&e->value, c, 1);
        if (*c == '\n') str_append(&e->value, "  ");
    }
    free(text);
    return put_value(e, "quantization_config");
}

/* ---- the whole file ---- */

/* Parses the original config.json. Then sets its family and vocabulary size to those that will be written. */
static ott_status read_before(editor *e) {
    if (e->is_new) return OTT_OK;
    TRY(hf_config_parse("the original " HF_CONFIG_NAME, e->text.text, e->text.length, &e->before));
    e->before.family = e->c->family;
    e->before.vocab_size = e->c->vocab_size;
    if (hf_read_window(HF_CONFIG_NAME, e->root, &e->before) != OTT_OK) e->before.sliding_window = -1;
    if (hf_read_tokens(HF_CONFIG_NAME, e->root, &e->before) != OTT_OK)
        /* -2 differs from all values, so all keys are set */
        e->before.bos = e->before.pad = e->before.eos_count = -2;
    return OTT_OK;
}

static ott_status edit_all(editor *e, const char *quantization) {
    json_error_t error;
    TRY(str_finish(&e->text));
    TRY(json_text_parse(e->text.text, e->text.length, JSON_REJECT_DUPLICATES, &e->root, &error));
    TRY(read_before(e));
    TRY(edit_family(e));
    int count;
    const hf_key *keys = hf_keys(&count);
    for (int i = 0; i < count; i++) TRY(edit_key(e, &keys[i]));
    if (e->is_new || e->before.mlp != e->c->mlp)
        TRY(put_text(e, hf_activation_key(e->c->family), hf_activation(e->c)));
    TRY(edit_routing_method(e));
    TRY(edit_rope(e));
    TRY(edit_window(e));
    TRY(edit_dense(e));
    const hf_config *c = e->c, *before = &e->before;
    if (e->is_new || before->bos != c->bos) TRY(put_token(e, "bos_token_id", c->bos));
    if (e->is_new || before->eos_count != c->eos_count ||
        memcmp(before->eos, c->eos, (size_t)c->eos_count * sizeof *c->eos) != 0)
        TRY(put_eos(e));
    if (e->is_new || before->pad != c->pad) TRY(put_token(e, "pad_token_id", c->pad));
    TRY(edit_dtype(e));
    return edit_quantization(e, quantization);
}

/* The last check: the written text must parse to the configuration c. */
static ott_status check_written(const editor *e) {
    hf_config again, wanted = *e->c;
    ott_status status =
        hf_config_parse("the " HF_CONFIG_NAME " to be written", e->text.text, e->text.length, &again);
    if (status != OTT_OK) return status;
    memcpy(wanted.quantization, again.quantization, sizeof wanted.quantization);
    if (wanted.dtype == OTT_DTYPE_COUNT) wanted.dtype = again.dtype;
    STATUS_REQUIRE(hf_config_equal(&again, &wanted));
    return OTT_OK;
}

ott_status hf_config_text(mem *account, const hf_config *c, const char *original, const char *quantization,
                          str *out) {
    editor e = {.c = c, .before = *c, .is_new = !original, .text.account = account, .value.account = account};
    ott_status status;
    if (original)
        str_append(&e.text, original);
    else
        str_append(&e.text, "{}\n");
    TRY_OUT(edit_all(&e, quantization));
    if (!original) TRY_OUT(json_edit_sort(&e.text));
    TRY_OUT(check_written(&e));
    str_append_bytes(out, e.text.text, e.text.length);
    TRY_OUT(str_finish(out));
out:
    json_decref(e.root);
    str_free(&e.text);
    str_free(&e.value);
    return status;
}

ott_status hf_config_write(mem *account, const hf_config *c, const char *original, const char *quantization,
                           const char *path) {
    str text = {.account = account};
    ott_status status = hf_config_text(account, c, original, quantization, &text);
    if (status == OTT_OK)
        status = file_write_atomic(path, text.text, text.length);
    else
        status_context(status, "%s", path);
    str_free(&text);
    return status;
}
