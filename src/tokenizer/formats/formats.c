/* tokenizer/formats: functions that several readers use. */
#include "tokenizer/formats/formats.h"
#include <inttypes.h>
#include <stdlib.h>

static ott_status fail_memory(void) {
    return status_fail(OTT_ERR_MEMORY, "no memory for the tokenizer's tokens");
}

ott_status formats_add_token(json_t *list, int64_t id, const char *content, bool special) {
    json_t *token = json_pack("{s:I, s:s, s:b, s:b}", "id", (json_int_t)id, "content", content, "special",
                              special, "normalized", !special);
    return token && json_array_append_new(list, token) == 0 ? OTT_OK : fail_memory();
}

ott_status formats_add_piece(json_t *vocab, const char *name, int64_t id) {
    const json_t *before = json_object_get(vocab, name);
    if (before)
        return status_fail(OTT_ERR_FORMAT, "'%s' is a token twice: %" JSON_INTEGER_FORMAT " and %" PRId64,
                           str_show(name).text, json_integer_value(before), id);
    return json_object_set_new_nocheck(vocab, name, json_integer(id)) == 0 ? OTT_OK : fail_memory();
}

ott_status formats_new_ranks(tokenizer *t, int64_t count, int32_t **out) {
    void *memory;
    TRY(arena_alloc(t->texts, count * (int64_t)sizeof **out, &memory));
    *out = memory;
    for (int64_t i = 0; i < count; i++) (*out)[i] = -1;
    t->ranks = *out;
    t->ranked = count;
    return OTT_OK;
}

ott_status formats_add_config_tokens(tokenizer *t, const sentence_piece *pieces, int64_t count,
                                     json_t *list) {
    json_t *config = NULL, *object;
    const char *key;
    ott_status status = OTT_OK;
    TRY(tokenizer_read_neighbour(t, "tokenizer_config.json", JSON_DECODE_INT_AS_REAL, &config));
    if (t->sentence) t->sentence->only_first = json_is_false(json_object_get(config, "legacy"));
    json_object_foreach(json_object_get(config, "added_tokens_decoder"), key, object) {
        char *end;
        long long id = strtoll(key, &end, 10);
        if (*end || end == key || id < 0 || id > INT32_MAX || !json_is_object(object)) {
            status = status_fail(OTT_ERR_FORMAT,
                                 "tokenizer_config.json: added_tokens_decoder: '%s' is not the id of a token",
                                 str_show(key).text);
            break;
        }
        if (id < count && pieces[id].kind != PIECE_NORMAL && pieces[id].kind != PIECE_BYTE) continue;
        json_object_set_new(object, "id", json_integer(id));
        /* As in transformers, these tokens are found in the raw text. */
        json_object_set_new(object, "normalized", json_false());
        if (json_array_append(list, object) != 0) status = fail_memory();
    }
    json_decref(config);
    return status;
}
