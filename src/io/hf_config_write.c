/*
 * io/hf_config_write: the writer of config.json. A key is touched only when what it says, or what its absence
 * means, is not what the model is; the result is read back before anyone sees it.
 */
#include "base/file.h"
#include "io/hf_config_keys.h"
#include "io/json_edit.h"
#include "io/number.h"
#include <inttypes.h>
#include <string.h>

typedef struct editor {
    const hf_config *c;
    json_t *root;     /* the original */
    hf_config before; /* what it means, read as a file of c's family */
    bool is_new;      /* there was no original: everything is written */
    str text, value;  /* the file so far; a value being made */
} editor;

/* ---- values ---- */

/* Puts what `value` holds. */
static ott_status put_value(editor *e, const char *key) {
    TRY(str_finish(&e->value));
    TRY(json_edit_put(&e->text, key, e->value.text));
    e->value.length = 0;
    return OTT_OK;
}

/* Python's spelling: a real number shows that it is one. */
static void append_real(str *s, double x) {
    char text[32];
    number_metric(x, text);
    str_append(s, text);
    if (!strpbrk(text, ".en")) str_append(s, ".0");
}

static ott_status put_int(editor *e, const char *key, int64_t value) {
    str_printf(&e->value, "%" PRId64, value);
    return put_value(e, key);
}

static ott_status put_word(editor *e, const char *key, const char *word) {
    str_append(&e->value, word);
    return put_value(e, key);
}

/* ---- the parts of the file ---- */

static ott_status edit_family(editor *e) {
    json_t *type = json_object_get(e->root, "model_type");
    if (!e->is_new && json_is_string(type) && strcmp(json_string_value(type), e->c->family->model_type) == 0)
        return OTT_OK;
    str_printf(&e->value, "[\n    \"%s\"\n  ]", e->c->family->architecture);
    TRY(put_value(e, "architectures"));
    str_printf(&e->value, "\"%s\"", e->c->family->model_type);
    return put_value(e, "model_type");
}

static ott_status put_key(editor *e, const hf_key *k) {
    hf_value v = hf_key_get(k, e->c);
    switch (k->type) {
    case HF_INT: return put_int(e, k->name, v.integer);
    case HF_REAL: append_real(&e->value, v.real); return put_value(e, k->name);
    case HF_BOOL: break;
    }
    return put_word(e, k->name, v.truth ? "true" : "false");
}

static ott_status edit_key(editor *e, const hf_key *k) {
    json_t *value = hf_get(e->root, k->name);
    hf_value now = hf_key_get(k, e->c), said;
    if (!hf_key_applies(k, e->c->family)) {
        if (now.truth) /* attention_bias */
            return status_fail(OTT_ERR_UNSUPPORTED, "a %s model cannot have %s", e->c->family->model_type, k->name);
        return e->is_new ? json_edit_remove(&e->text, k->name) : OTT_OK;
    }
    bool is_said = value ? hf_key_read(k, HF_CONFIG_NAME, value, &said) == OTT_OK : hf_key_default(k, e->c, &said);
    return !e->is_new && is_said && hf_key_equal(k, said, now) ? OTT_OK : put_key(e, k);
}

static void append_llama3(editor *e) {
    const hf_config *c = e->c;
    str_append(&e->value, "{\n    \"factor\": ");
    append_real(&e->value, c->rope_factor);
    str_append(&e->value, ",\n    \"high_freq_factor\": ");
    append_real(&e->value, c->rope_high_freq_factor);
    str_append(&e->value, ",\n    \"low_freq_factor\": ");
    append_real(&e->value, c->rope_low_freq_factor);
    str_printf(&e->value,
               ",\n    \"original_max_position_embeddings\": %" PRId64 ",\n    \"rope_type\": \"llama3\"\n  }",
               c->rope_original_max_position);
}

/* rope_parameters, if it is there, becomes rope_scaling where it stands. */
static ott_status edit_rope(editor *e) {
    bool is_same = hf_rope_equal(&e->before, e->c), is_new_spelling = json_object_get(e->root, "rope_parameters");
    bool has_scaling = json_object_get(e->root, "rope_scaling") != NULL;
    if (!e->is_new && is_same && !is_new_spelling) {
        json_t *inner = hf_get(hf_get(e->root, "rope_scaling"), "rope_theta");
        if (!inner) return OTT_OK;
    }
    append_real(&e->value, e->c->rope_theta);
    TRY(put_value(e, "rope_theta"));
    if (is_new_spelling && has_scaling) TRY(json_edit_remove(&e->text, "rope_parameters"));
    if (is_new_spelling && !has_scaling) TRY(json_edit_rename(&e->text, "rope_parameters", "rope_scaling"));
    if (e->c->rope == HF_ROPE_PLAIN) {
        if (!is_new_spelling && !has_scaling && !e->is_new) return OTT_OK;
        return put_word(e, "rope_scaling", "null");
    }
    append_llama3(e);
    return put_value(e, "rope_scaling");
}

static ott_status put_window(editor *e, const char *key) {
    return e->c->sliding_window > 0 ? put_int(e, key, e->c->sliding_window) : put_word(e, key, "null");
}

static ott_status edit_qwen_window(editor *e) {
    bool uses = e->c->sliding_window > 0;
    TRY(put_word(e, "use_sliding_window", uses ? "true" : "false"));
    if (uses || e->is_new) TRY(put_window(e, "sliding_window"));
    return uses ? put_int(e, "max_window_layers", 0) : OTT_OK;
}

static ott_status edit_window(editor *e) {
    static const char *const keys[] = {"sliding_window", "use_sliding_window", "max_window_layers"};
    const char *type = e->c->family->model_type;
    bool is_qwen = strcmp(type, "qwen2") == 0 || strcmp(type, "qwen3") == 0;
    bool is_same = e->before.sliding_window == e->c->sliding_window;
    if (!is_same || e->before.layers != e->c->layers) TRY(json_edit_remove(&e->text, "layer_types"));
    if (strcmp(type, "llama") == 0 && e->c->sliding_window > 0)
        return status_fail(OTT_ERR_UNSUPPORTED, "a llama model has no sliding window in transformers; write it as "
                                                "model_type mistral, which is the same but for the window");
    if (!e->is_new && is_same) return OTT_OK;
    if (is_qwen) TRY(edit_qwen_window(e));
    if (!is_qwen && strcmp(type, "llama") != 0) TRY(put_window(e, "sliding_window"));
    for (int i = 0; e->is_new && i < 3; i++) { /* what this family has no use for */
        json_t *now = NULL;
        (void)now;
        TRY(json_edit_remove(&e->text, keys[i]));
    }
    return OTT_OK;
}
