/* tokenizer/tokenizer: opens a tokenizer, and passes a text through its parts. */
#include "tokenizer/tokenizer.h"
#include "base/file/file.h"
#include "tokenizer/formats/formats.h"
#include "tokenizer/gguf_tokens.h"
#include <inttypes.h>

static ott_status load_parts(tokenizer *t, const json_t *root) {
    TRY(split_load(t, root)); /* first: the other parts need to know if the model is byte-level */
    TRY(normalize_load(t, root));
    TRY(vocab_load(t, root));
    TRY(added_load(t, root));
    TRY(decode_load(t, root));
    return template_load(t, root);
}

static ott_status load_gguf(tokenizer *t) {
    gguf_tokens g;
    t->is_gguf = true;
    ott_status status = gguf_tokens_read(t->account, t->path, &g);
    if (status == OTT_OK) status = status_context(load_parts(t, g.tokenizer), "%s", t->path);
    if (status == OTT_OK) status = template_load_ends(t, g.config, NULL, g.generation);
    if (status == OTT_OK && t->chat_template)
        status = json_get_text(t->texts, g.config, "chat_template", &t->gguf_template);
    gguf_tokens_free(&g);
    return status;
}

static ott_status load_steps(tokenizer *t, const char *path) {
    char file[PATH_MAX];
    json_t *root;
    if (file_is_folder(path)) {
        if (!tokenizer_file_in(path, file)) return tokenizer_fail_absent(path);
        path = file;
    }
    TRY(arena_strdup(t->texts, path, &t->path));
    if (file_is_gguf(path)) return load_gguf(t);
    TRY(tokenizer_read_file(t, &root));
    ott_status status = load_parts(t, root);
    json_decref(root);
    return status != OTT_OK ? status_context(status, "%s", t->path) : template_load_neighbours(t);
}

ott_status tokenizer_open(mem *account, const char *path, tokenizer **out) {
    tokenizer *t;
    *out = NULL;
    TRY(mem_alloc(account, MEM_DATA, sizeof(tokenizer), "a tokenizer", &t));
    t->account = account;
    ott_status status = arena_open(account, MEM_DATA, &t->texts);
    if (status == OTT_OK) status = load_steps(t, path);
    if (status != OTT_OK) return tokenizer_close(t), status;
    return *out = t, OTT_OK;
}

void tokenizer_close(tokenizer *t) {
    if (!t) return;
    decode_close(t);
    for (int i = 0; i < t->normalize_count; i++) regex_free(&t->normalize[i].pattern);
    for (int i = 0; i < t->split_count; i++) regex_free(&t->split[i].pattern);
    unigram_close(t);
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

static ott_status encode_normalized(encode_run *run, text_view text, bool at_start) {
    return split_run(run, 0, text, at_start);
}

static ott_status encode_raw(encode_run *run, text_view text, bool at_start) {
    text_view normal;
    run->s->at_start = at_start;
    TRY(normalize_text(run->s, text, &normal));
    /* In a unigram model, user-defined pieces compete with other pieces. */
    if (run->t->unigram.scores) return encode_normalized(run, normal, at_start);
    return added_walk(run, &run->t->normalized_tree, (added_part){normal, 0}, at_start, encode_normalized,
                      NULL);
}

/* Sets *out to the number of ids of a text's beginning: the ids in run->ids, which end with the last added
   token, plus the ids of `part`, the text after this token, which is encoded separately. */
static ott_status encode_again(encode_run *run, added_part part, int64_t *out) {
    tokenizer_ids ids = {.account = run->ids->account};
    encode_run again = {.t = run->t, .s = run->s, .ids = &ids, .match_special = run->match_special};
    matcher *m = &run->s->matcher;
    const matcher before = *m;
    regex_matcher_begin(m, part.text.bytes - part.from);
    ott_status status = added_walk(&again, &run->t->raw_tree, part, true, encode_raw, NULL);
    m->budget = before.budget;
    m->left = before.left;
    m->searches = before.searches;
    *out = run->ids->count + ids.count;
    tokenizer_ids_free(&ids);
    return status;
}

static ott_status count_prefixes(encode_run *run, added_part part, int64_t end) {
    const tokenizer_prefixes *c = run->prefixes;
    for (; run->prefix < c->count && c->at[run->prefix] < end; run->prefix++) {
        int64_t bytes = c->at[run->prefix] - part.from;
        TRY(cancellation_check(run->s->cancellation));
        run->reencoded += bytes;
        if (run->reencoded > TOKENIZER_PREFIXES_LIMIT)
            return status_fail(OTT_ERR_UNSUPPORTED,
                               "no added token (as <|im_end|>) is between the messages, and the text is too "
                               "long to count the tokens before each of its %" PRId64
                               " turns: more than %" PRId64 " MiB would be encoded",
                               c->count / 2, TOKENIZER_PREFIXES_LIMIT >> 20);
        TRY(encode_again(run, (added_part){{part.text.at, c->at[run->prefix]}, part.from},
                         &c->ids[run->prefix]));
    }
    return OTT_OK;
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

static ott_status encode_around(encode_run *run, text_view text, bool around) {
    const tokenizer *t = run->t;
    tokenizer_ids *ids = run->ids;
    TRY(check_text(text.at, text.bytes));
    regex_matcher_begin(&run->s->matcher, text.bytes);
    TRY(tokenizer_ids_reserve(ids, text.bytes / 3)); /* enough ids for most texts */
    if (around) TRY(append_all(ids, t->prefix, t->prefix_count));
    if (text.bytes > 0)
        TRY(added_walk(run, &t->raw_tree, (added_part){text, 0}, true, encode_raw,
                       run->prefixes ? count_prefixes : NULL));
    return around ? append_all(ids, t->suffix, t->suffix_count) : OTT_OK;
}

ott_status tokenizer_encode(const tokenizer *t, tokenizer_scratch *s, const char *text, int64_t bytes,
                            unsigned flags, tokenizer_ids *ids) {
    return tokenizer_encode_prefixes(t, s, text, bytes, flags, NULL, ids);
}

ott_status tokenizer_encode_prefixes(const tokenizer *t, tokenizer_scratch *s, const char *text,
                                     int64_t bytes, unsigned flags, tokenizer_prefixes *prefixes,
                                     tokenizer_ids *ids) {
    encode_run run = {
        .t = t, .s = s, .ids = ids, .match_special = flags & TOKENIZER_MATCH_SPECIAL, .prefixes = prefixes};
    const int64_t before = ids->count;
    STATUS_REQUIRE(s->t == t);
    for (int64_t i = 0; prefixes && i < prefixes->count; i++) prefixes->ids[i] = 0;
    ott_status status = encode_around(&run, (text_view){text, bytes}, flags & TOKENIZER_ADD_SPECIAL);
    for (int64_t i = 0; prefixes && i < prefixes->count; i++)
        if (prefixes->ids[i] > 0) prefixes->ids[i] -= before;
    if (status != OTT_OK) ids->count = before;
    return status;
}
