/* tokenizer/tokenizer: opening, and the way of a text through a tokenizer's parts. */
#include "tokenizer/tokenizer.h"
#include "base/file.h"
#include "tokenizer/internal.h"
#include <inttypes.h>

/* ---- opening ---- */

static ott_status load_parts(tokenizer *t, const json_t *root) {
    TRY(split_load(t, root)); /* first: it tells whether the model's texts are bytes */
    TRY(normalize_load(t, root));
    TRY(vocab_load(t, root));
    TRY(added_load(t, root));
    TRY(decode_load(t, root));
    return template_load(t, root);
}

static ott_status load_steps(tokenizer *t, const char *path) {
    json_t *root;
    bool folder = file_is_folder(path);
    TRY(arena_printf(t->texts, &t->path, "%s%s", path, folder ? "/tokenizer.json" : ""));
    if (folder && !file_exists(t->path)) return tokenizer_fail_absent(path);
    TRY(tokenizer_check_kind(t->path));
    TRY(json_read_file(t->account, t->path, 0, &root));
    if (!root) return status_fail(OTT_ERR_NOT_FOUND, "%s: there is no such file", t->path);
    ott_status status = load_parts(t, root);
    json_decref(root);
    if (status != OTT_OK) return status_context(status, "%s", t->path);
    return template_load_neighbours(t);
}

ott_status tokenizer_open(mem *account, const char *path, tokenizer **out) {
    void *memory;
    *out = NULL;
    TRY(file_refuse_gguf(path));
    TRY(mem_alloc(account, MEM_DATA, sizeof(tokenizer), "a tokenizer", &memory));
    tokenizer *t = memory;
    t->account = account;
    ott_status status = arena_open(account, MEM_DATA, &t->texts);
    if (status == OTT_OK) status = load_steps(t, path);
    if (status == OTT_OK)
        *out = t;
    else
        tokenizer_close(t);
    return status;
}

void tokenizer_close(tokenizer *t) {
    if (!t) return;
    decode_close(t);
    for (int i = 0; i < t->normalize_count; i++) regex_free(&t->normalize[i].pattern);
    for (int i = 0; i < t->split_count; i++) regex_free(&t->split[i].pattern);
    mem_free(t->account, t->raw_tree.nodes);
    mem_free(t->account, t->normalized_tree.nodes);
    mem_free(t->account, t->added);
    mem_free(t->account, t->added_by_id);
    mem_free(t->account, t->model.merges);
    mem_free(t->account, t->by_name.slots);
    mem_free(t->account, t->by_piece.slots);
    text_list_close(t->account, &t->names);
    text_list_close(t->account, &t->piece_bytes);
    arena_close(t->texts);
    mem_free(t->account, t);
}

/* ---- encoding ---- */

static ott_status encode_normalized(encode_run *run, text_view text, bool at_start) {
    return split_run(run, 0, text, at_start);
}

static ott_status encode_raw(encode_run *run, text_view text, bool at_start) {
    text_view normal;
    TRY(normalize_text(run->s, text, &normal));
    return added_walk(run, &run->t->normalized_tree, normal, at_start, encode_normalized);
}

static ott_status append_all(tokenizer_ids *out, const int32_t *ids, int count) {
    for (int i = 0; i < count; i++) TRY(tokenizer_ids_append(out, ids[i]));
    return OTT_OK;
}

static ott_status check_text(const char *text, int64_t bytes) {
    if (bytes < 0 || (bytes > 0 && !text))
        return status_fail(OTT_ERR_ARGUMENT, "a text of %" PRId64 " bytes", bytes);
    if (bytes > TOKENIZER_TEXT_LIMIT)
        return status_fail(OTT_ERR_ARGUMENT,
                           "a text of %" PRId64 " bytes; at most %" PRId64 " can be encoded at once", bytes,
                           TOKENIZER_TEXT_LIMIT);
    int64_t bad = str_utf8_error(text, bytes);
    if (bad < 0) return OTT_OK;
    return status_fail(OTT_ERR_FORMAT, "the text is not UTF-8: byte %" PRId64 " (0x%02x)", bad,
                       (unsigned char)text[bad]);
}

ott_status tokenizer_encode(const tokenizer *t, tokenizer_scratch *s, const char *text, int64_t bytes,
                            unsigned flags, tokenizer_ids *ids) {
    encode_run run = {.t = t, .s = s, .ids = ids, .match_special = flags & TOKENIZER_MATCH_SPECIAL};
    bool around = flags & TOKENIZER_ADD_SPECIAL;
    int64_t before = ids->count;
    ott_status status;
    STATUS_REQUIRE(s->t == t);
    TRY(check_text(text, bytes));
    regex_matcher_begin(&s->matcher, bytes);
    TRY(tokenizer_ids_reserve(ids, bytes / 3)); /* as many as most texts need */
    if (around) TRY_OUT(append_all(ids, t->prefix, t->prefix_count));
    if (bytes > 0) TRY_OUT(added_walk(&run, &t->raw_tree, (text_view){text, bytes}, true, encode_raw));
    status = around ? append_all(ids, t->suffix, t->suffix_count) : OTT_OK;
out:
    if (status != OTT_OK) ids->count = before;
    return status;
}
