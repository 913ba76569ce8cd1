/* tokenizer/json: checked reading of the members of a tokenizer's JSON files. */
#include "tokenizer/internal.h"
#include "base/file/file.h"
#include "base/json/json_text.h"
#include <inttypes.h>

enum { MAX_NESTING = 8 }; /* maximum depth of nested Sequences */

ott_status json_parse_object(const char *path, const char *data, int64_t bytes, size_t flags, json_t **out) {
    json_error_t error;
    int64_t bad = str_utf8_error(data, bytes);
    if (bad >= 0) return status_fail(OTT_ERR_FORMAT, "%s: not UTF-8 at byte %" PRId64, path, bad);
    flags |= JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;
    TRY(status_context(json_text_parse(data, bytes, flags, out, &error), "%s", path));
    if (!*out)
        return status_fail(OTT_ERR_FORMAT, "%s: invalid JSON: line %d, byte %d: %s", path, error.line,
                           error.position, str_show(error.text).text);
    if (json_is_object(*out)) return OTT_OK;
    json_decref(*out);
    *out = NULL;
    return status_fail(OTT_ERR_FORMAT, "%s: not a JSON object", path);
}

ott_status json_read_file(mem *account, const char *path, size_t flags, json_t **out) {
    char *data;
    int64_t bytes;
    *out = NULL;
    if (!file_exists(path)) return OTT_OK;
    TRY(file_read(account, path, TOKENIZER_FILE_LIMIT, &data, &bytes));
    ott_status status = json_parse_object(path, data, bytes, flags, out);
    mem_free(account, data);
    return status;
}

ott_status json_get_text(arena *texts, const json_t *object, const char *key, text_view *out) {
    const json_t *value;
    void *memory;
    TRY(json_member(object, key, JSON_KIND_TEXT, JSON_NEEDED, &value));
    size_t bytes = json_string_length(value);
    TRY(arena_alloc(texts, (int64_t)bytes + 1, &memory));
    *out = (text_view){memcpy(memory, json_string_value(value), bytes), (int64_t)bytes};
    return OTT_OK;
}

ott_status json_get_character(arena *texts, const json_t *object, const char *key, text_view *out) {
    TRY(json_get_text(texts, object, key, out));
    if (out->bytes == 0 || out->bytes != text_character_bytes((unsigned char)out->at[0]))
        return status_fail(OTT_ERR_FORMAT, "%s '%s' is not one character", key, str_show(out->at).text);
    return OTT_OK;
}

ott_status json_get_pattern(tokenizer *t, const json_t *object, pattern *out) {
    const json_t *value = json_object_get(object, "pattern");
    text_view regex;
    *out = (pattern){0};
    if (json_is_string(json_object_get(value, "String"))) {
        TRY(json_get_text(t->texts, value, "String", &out->literal));
        if (out->literal.bytes == 0)
            return status_fail(OTT_ERR_UNSUPPORTED, "an empty pattern is not supported");
        return OTT_OK;
    }
    if (!json_is_string(json_object_get(value, "Regex")))
        return status_fail(OTT_ERR_FORMAT, "pattern is neither a String nor a Regex");
    TRY(json_get_text(t->texts, value, "Regex", &regex));
    return regex_compile(t->account, regex, out);
}

static ott_status each_step(tokenizer *t, const json_t *object, const char *list, json_step step,
                            void *context, int nesting) {
    const char *type;
    TRY(json_member_text(object, "type", JSON_NEEDED, &type));
    if (strcmp(type, "Sequence") != 0)
        return status_context(step(t, object, type, context), "%s", str_show(type).text);
    const json_t *members;
    TRY(json_member(object, list, JSON_KIND_LIST, JSON_NEEDED, &members));
    if (nesting == MAX_NESTING)
        return status_fail(OTT_ERR_FORMAT, "more than %d Sequences in each other", MAX_NESTING);
    for (size_t i = 0; i < json_array_size(members); i++)
        TRY(each_step(t, json_array_get(members, i), list, step, context, nesting + 1));
    return OTT_OK;
}

ott_status json_each_step(tokenizer *t, const json_t *object, const char *part, const char *list,
                          json_step step, void *context) {
    if (!object || json_is_null(object)) return OTT_OK;
    return status_context(each_step(t, object, list, step, context, 0), "%s", part);
}
