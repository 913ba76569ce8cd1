/* tokenizer/added: finds added tokens: texts that are one token wherever they occur. The leftmost match wins;
   of several matches at one position, the longest. Tokens marked "normalized" are found in the normalized
   text, and their own texts are normalized, too. */
#include "tokenizer/internal.h"
#include <inttypes.h>

/* Maximum bytes of an added token (about 30 in real models). Limits the time of matching at each position. */
enum { LONGEST = 1024 };

/* ---- loading ---- */

static ott_status check_length(const added_token *token, int64_t bytes, const char *form) {
    if (bytes <= LONGEST) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED, "'%s' (id %d) has %" PRId64 " bytes%s; at most %d are supported",
                       str_show(token->content.at).text, token->id, bytes, form, LONGEST);
}

/* Adds the token's text to the list of names, unless the vocabulary already has it with the same id. */
static ott_status name_added(tokenizer *t, const added_token *token) {
    const char *text = token->content.at;
    text_view there = t->names.at[token->id];
    int32_t id = text_index_find(&t->by_name, text, token->content.bytes);
    if (id >= 0 && id != token->id)
        return status_fail(OTT_ERR_FORMAT, "'%s' has the id %d, but %d in the vocabulary or an earlier token",
                           str_show(text).text, token->id, id);
    if (t->added_by_id[token->id]) return status_fail(OTT_ERR_FORMAT, "two tokens have the id %d", token->id);
    if (id >= 0) return OTT_OK;
    if (there.at)
        return status_fail(OTT_ERR_FORMAT, "'%s' has the id %d of '%s'", str_show(text).text, token->id,
                           str_show(there.at).text);
    text_list_set(&t->names, token->id, text, token->content.bytes);
    text_index_add(&t->by_name, token->id);
    return OTT_OK;
}

static ott_status load_tokens(tokenizer *t, const json_t *array) {
    int64_t count = (int64_t)json_array_size(array);
    TRY(mem_alloc_array(t->account, MEM_DATA, count, sizeof *t->added, "added tokens", &t->added));
    TRY(mem_alloc_array(t->account, MEM_DATA, t->vocab, sizeof *t->added_by_id, "added tokens",
                        &t->added_by_id));
    for (; t->added_count < count; t->added_count++) {
        added_token *token = &t->added[t->added_count];
        const json_t *object = json_array_get(array, (size_t)t->added_count);
        int64_t id;
        TRY(json_member_integer(object, "id", JSON_NEEDED, 0, t->vocab - 1, &id));
        TRY(json_get_text(t->texts, object, "content", &token->content));
        TRY(json_member_bool(object, "special", false, &token->special));
        TRY(json_member_bool(object, "lstrip", false, &token->lstrip));
        TRY(json_member_bool(object, "rstrip", false, &token->rstrip));
        TRY(json_member_bool(object, "single_word", false, &token->single_word));
        TRY(json_member_bool(object, "normalized", !token->special, &token->normalized));
        token->id = (int32_t)id;
        TRY(check_length(token, token->content.bytes, ""));
        TRY(name_added(t, token));
        t->added_by_id[token->id] = token;
    }
    return OTT_OK;
}

/* ---- the tree ---- */

ott_status added_content(tokenizer_scratch *s, const added_token *token, text_view *out) {
    *out = token->content;
    return token->normalized && !s->t->sentence ? normalize_text(s, *out, out) : OTT_OK;
}

/* Adds to the tree the tokens with this value of their flag `normalized`, special tokens first. If two tokens
   have equal texts, the first token wins. */
static ott_status fill_tree(tokenizer *t, tokenizer_scratch *s, bool normalized, added_tree *tree) {
    for (int special = 1; special >= 0; special--)
        for (int64_t i = 0; i < t->added_count; i++) {
            const added_token *token = &t->added[i];
            if (token->normalized != normalized || token->special != special) continue;
            text_view text;
            TRY(added_content(s, token, &text));
            TRY(added_tree_add(tree, text, (int32_t)i));
        }
    return OTT_OK;
}

/* *bytes: total bytes of the tokens' texts. So the tree has at most *bytes nodes and the root. */
static ott_status measure_tree(const tokenizer *t, tokenizer_scratch *s, bool normalized, int64_t *bytes) {
    *bytes = 0;
    for (int64_t i = 0; i < t->added_count; i++) {
        text_view text;
        if (t->added[i].normalized != normalized) continue;
        TRY(added_content(s, &t->added[i], &text));
        TRY(check_length(&t->added[i], text.bytes, " once normalized"));
        *bytes += text.bytes;
    }
    if (*bytes < INT32_MAX) return OTT_OK;
    return status_fail(OTT_ERR_FORMAT, "the added tokens take more than 2 GiB");
}

static ott_status load_trees(tokenizer *t) {
    tokenizer_scratch *s;
    int64_t bytes;
    TRY(tokenizer_scratch_open(t->account, t, &s));
    regex_matcher_begin(&s->matcher, t->names.used);
    ott_status status = OTT_OK;
    for (int normalized = 0; normalized < 2 && status == OTT_OK; normalized++) {
        added_tree *tree = normalized ? &t->normalized_tree : &t->raw_tree;
        TRY_OUT(measure_tree(t, s, normalized, &bytes));
        *tree = (added_tree){.count = 1, .capacity = bytes + 1};
        TRY_OUT(mem_alloc_array(t->account, MEM_DATA, bytes + 1, sizeof *tree->nodes, "added tokens",
                                &tree->nodes));
        tree->nodes[0].token = -1;
        TRY_OUT(fill_tree(t, s, normalized, tree));
    }
out:
    tokenizer_scratch_close(s);
    return status;
}

ott_status added_load(tokenizer *t, const json_t *root) {
    const json_t *array = json_object_get(root, "added_tokens");
    if (array && !json_is_null(array) && !json_is_array(array))
        return status_fail(OTT_ERR_FORMAT, "added_tokens is not an array");
    ott_status status = load_tokens(t, array);
    if (status == OTT_OK) status = load_trees(t);
    return status_context(status, "added_tokens");
}

/* ---- finding ---- */

/* Returns the first position from `at` on where a token may begin; text.bytes if there is none. */
static int64_t next_first(const added_tree *tree, text_view text, int64_t at) {
    if (tree->firsts == 0) return text.bytes;
    if (tree->firsts == 1) { /* usually all added tokens begin with "<" */
        const char *found = memchr(text.at + at, tree->any_first, (size_t)(text.bytes - at));
        return found ? found - text.at : text.bytes;
    }
    while (at < text.bytes && !tree->first[(unsigned char)text.at[at]]) at++;
    return at;
}

static const added_token *next_token(const tokenizer *t, const added_tree *tree, text_view text, int64_t from,
                                     int64_t *begin, int64_t *end) {
    const added_token *found = NULL;
    for (int64_t at = from; !found && (at = next_first(tree, text, at)) < text.bytes; at++) {
        int32_t token = added_tree_longest(tree, text, at, end);
        *begin = at;
        found = token < 0 ? NULL : &t->added[token];
    }
    return found;
}

/* True if the match is ignored: a single_word token inside a word, or a special token if special tokens are
   not matched. */
static bool is_passed_over(const encode_run *run, const added_token *token, text_view before,
                           text_view after) {
    if (token->special && !run->match_special) return true;
    return token->single_word && (text_ends_with_word(before) || text_starts_with_word(after));
}

ott_status added_walk(encode_run *run, const added_tree *tree, added_part part, bool at_start,
                      added_rest rest, added_mark mark) {
    const text_view text = part.text;
    int64_t done = part.from, begin = 0, end = 0;
    const added_token *token;
    for (int64_t from = done; (token = next_token(run->t, tree, text, from, &begin, &end));) {
        text_view before = {text.at, begin}, after = {text.at + end, text.bytes - end};
        from = end;
        if (is_passed_over(run, token, before, after)) continue;
        if (token->lstrip) begin -= text_spaces_at_end(before, false);
        if (token->rstrip) end += text_spaces_at_start(after, false);
        if (mark) TRY(mark(run, (added_part){text, done}, end));
        if (done < begin) TRY(rest(run, (text_view){text.at + done, begin - done}, at_start && done == 0));
        TRY(tokenizer_ids_append(run->ids, token->id));
        done = end;
    }
    if (mark) TRY(mark(run, (added_part){text, done}, text.bytes + 1));
    if (done == text.bytes) return OTT_OK;
    return rest(run, (text_view){text.at + done, text.bytes - done}, at_start && done == 0);
}
