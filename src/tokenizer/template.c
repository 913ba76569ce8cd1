/* tokenizer/template: loads the tokens that the post-processor adds to a text, and the BOS, EOS and stop ids
   from the other files in the folder. */
#include "base/file/file.h"
#include "tokenizer/internal.h"
#include <inttypes.h>
#include <stdio.h>

static ott_status append_template_id(const tokenizer *t, int64_t id, int32_t *ids, int *count) {
    if (id < 0 || !tokenizer_token(t, id))
        return status_fail(OTT_ERR_FORMAT, "there is no token with the id %" PRId64, id);
    if (*count == TOKENIZER_MAX_TEMPLATE)
        return status_fail(OTT_ERR_UNSUPPORTED, "more than %d tokens before or after a text",
                           TOKENIZER_MAX_TEMPLATE);
    ids[(*count)++] = (int32_t)id;
    return OTT_OK;
}

/* `piece` names a special token. Appends its ids to the suffix of a text if `after`, else to the prefix. */
static ott_status append_special(tokenizer *t, const json_t *object, const json_t *piece, bool after) {
    const char *name = json_string_value(json_object_get(piece, "id"));
    if (!name) return status_fail(OTT_ERR_FORMAT, "a SpecialToken has no id");
    const json_t *ids =
        json_object_get(json_object_get(json_object_get(object, "special_tokens"), name), "ids");
    if (!json_is_array(ids))
        return status_fail(OTT_ERR_FORMAT, "special_tokens has no ids for '%s'", str_show(name).text);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        int64_t value = json_is_integer(id) ? json_integer_value(id) : -1;
        TRY(append_template_id(t, value, after ? t->suffix : t->prefix,
                               after ? &t->suffix_count : &t->prefix_count));
    }
    return OTT_OK;
}

static ott_status load_template(tokenizer *t, const json_t *object) {
    const json_t *single = json_object_get(object, "single");
    int sequences = 0, others = 0;
    if (!json_is_array(single)) return status_fail(OTT_ERR_FORMAT, "single is missing or not an array");
    if (t->prefix_count + t->suffix_count > 0)
        return status_fail(OTT_ERR_UNSUPPORTED, "a second template is not supported");
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i), *special = json_object_get(piece, "SpecialToken");
        const char *text = json_string_value(json_object_get(json_object_get(piece, "Sequence"), "id"));
        if (special)
            TRY(append_special(t, object, special, sequences > 0));
        else if (text && strcmp(text, "A") == 0)
            sequences++;
        else
            others++;
    }
    if (sequences == 1 && others == 0) return OTT_OK;
    return status_fail(OTT_ERR_FORMAT, "single does not have the Sequence A exactly once");
}

static ott_status load_processor(tokenizer *t, const json_t *object, const char *type, void *unused) {
    (void)unused;
    if (strcmp(type, "ByteLevel") == 0) return OTT_OK; /* changes only token offsets */
    if (strcmp(type, "TemplateProcessing") == 0) return load_template(t, object);
    return status_fail(OTT_ERR_UNSUPPORTED, "this post-processor is not supported");
}

ott_status template_load(tokenizer *t, const json_t *root) {
    return json_each_step(t, json_object_get(root, "post_processor"), "post_processor", "processors",
                          load_processor, NULL);
}

/* Returns the id of the token that a JSON value names: "<s>" or {"content": "<s>"}; -1 if it names none. */
static int32_t named_token(const tokenizer *t, const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    const char *text = json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
    return text ? tokenizer_find(t, text) : -1;
}

static void name_ends(tokenizer *t, const json_t *object) {
    if (t->bos < 0) t->bos = named_token(t, object, "bos_token");
    if (t->eos < 0) t->eos = named_token(t, object, "eos_token");
}

static bool valid_id(const tokenizer *t, const json_t *id) {
    return json_is_integer(id) && json_integer_value(id) >= 0 && tokenizer_token(t, json_integer_value(id));
}

static void add_stop(tokenizer *t, const json_t *id) {
    if (!valid_id(t, id) || t->stop_count == TOKENIZER_MAX_TEMPLATE) return;
    t->stops[t->stop_count++] = (int32_t)json_integer_value(id);
}

/* add_bos_token and add_eos_token, if present, override the post-processor, as in transformers: some
   post-processors do not add the BOS. */
static ott_status read_additions(tokenizer *t, const json_t *config) {
    const json_t *bos = json_object_get(config, "add_bos_token"),
                 *eos = json_object_get(config, "add_eos_token");
    if (json_is_boolean(bos)) {
        t->prefix_count = 0;
        if (json_is_true(bos) && t->bos >= 0) TRY(append_template_id(t, t->bos, t->prefix, &t->prefix_count));
    }
    if (json_is_boolean(eos)) {
        t->suffix_count = 0;
        if (json_is_true(eos) && t->eos >= 0) TRY(append_template_id(t, t->eos, t->suffix, &t->suffix_count));
    }
    return OTT_OK;
}

/* Uses the BOS and EOS of a SentencePiece model or tiktoken vocabulary. Its BOS is added before a text. */
static ott_status use_default_ends(tokenizer *t) {
    int32_t bos = t->bos_name ? tokenizer_find(t, t->bos_name) : -1;
    if (t->bos < 0) t->bos = bos;
    if (t->eos < 0 && t->eos_name) t->eos = tokenizer_find(t, t->eos_name);
    return bos < 0 ? OTT_OK : append_template_id(t, t->bos, t->prefix, &t->prefix_count);
}

bool tokenizer_neighbour(const tokenizer *t, const char *name, char path[PATH_MAX]) {
    const char *slash = strrchr(t->path, '/');
    int folder = slash ? (int)(slash - t->path) + 1 : 0;
    return !t->is_gguf && snprintf(path, PATH_MAX, "%.*s%s", folder, t->path, name) < PATH_MAX;
}

ott_status tokenizer_read_neighbour(tokenizer *t, const char *name, size_t flags, json_t **out) {
    char path[PATH_MAX];
    *out = NULL;
    return tokenizer_neighbour(t, name, path) ? json_read_file(t->account, path, flags, out) : OTT_OK;
}

ott_status tokenizer_check_output(const tokenizer *t, const char *output) {
    static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json",
                                        "generation_config.json", "chat_template.jinja"};
    char path[PATH_MAX];
    TRY(file_check_output(output, t->path));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tokenizer_neighbour(t, names[i], path)) TRY(file_check_output(output, path));
    return OTT_OK;
}

ott_status template_load_ends(tokenizer *t, const json_t *config, const json_t *map,
                              const json_t *generation) {
    t->bos = t->eos = -1;
    t->chat_template = json_object_get(config, "chat_template");
    name_ends(t, config);
    name_ends(t, map);
    /* eos_token_id is an id or a list of ids. */
    const json_t *bos = json_object_get(generation, "bos_token_id"),
                 *eos = json_object_get(generation, "eos_token_id");
    if (t->bos < 0 && valid_id(t, bos)) t->bos = (int32_t)json_integer_value(bos);
    if (!json_is_array(eos)) add_stop(t, eos);
    for (size_t i = 0; i < json_array_size(eos); i++) add_stop(t, json_array_get(eos, i));
    if (t->eos < 0 && t->stop_count > 0) t->eos = t->stops[0];
    TRY(use_default_ends(t));
    TRY(read_additions(t, config));
    if (t->bos < 0 && t->prefix_count > 0) t->bos = t->prefix[0];
    if (t->eos < 0 && t->suffix_count > 0) t->eos = t->suffix[t->suffix_count - 1];
    return OTT_OK;
}

ott_status template_load_neighbours(tokenizer *t) {
    json_t *config = NULL, *map = NULL, *generation = NULL;
    char path[PATH_MAX];
    ott_status status;
    /* transformers writes model_max_length as the integer 10^30, which jansson must read as a real. */
    TRY_OUT(tokenizer_read_neighbour(t, "tokenizer_config.json", JSON_DECODE_INT_AS_REAL, &config));
    TRY_OUT(tokenizer_read_neighbour(t, "special_tokens_map.json", 0, &map));
    TRY_OUT(tokenizer_read_neighbour(t, "generation_config.json", 0, &generation));
    TRY_OUT(template_load_ends(t, config, map, generation));
    if (tokenizer_neighbour(t, "chat_template.jinja", path) && file_exists(path)) t->chat_template = true;
out:
    json_decref(config);
    json_decref(map);
    json_decref(generation);
    return status;
}

bool tokenizer_adds_bos(const tokenizer *t) {
    return t->bos >= 0 && t->prefix_count > 0 && t->prefix[0] == t->bos;
}

bool tokenizer_adds_eos(const tokenizer *t) {
    return t->eos >= 0 && t->suffix_count > 0 && t->suffix[t->suffix_count - 1] == t->eos;
}
