/* tokenizer/vocab: loads the model of a tokenizer.json: names of tokens, merges, and the bytes of pieces. */
#include "tokenizer/describe.h"
#include "tokenizer/internal.h"
#include <inttypes.h>
#include <stdio.h>
#include <utf8proc.h>

/* Largest allowed id of a file: IDS_PER_TOKEN * tokens + IDS_OF_ANY - 1. Without this limit a small file with
   a large id could allocate huge tables, which are indexed by id. */
enum { IDS_PER_TOKEN = 4, IDS_OF_ANY = 1 << 16 };
static const char metaspace[] = METASPACE;

/* ---- names ---- */

typedef struct extent {
    int64_t tokens, largest, bytes;
    const char *name; /* name of the token with the largest id */
} extent;

static ott_status measure_id(const json_t *id, const char *name, extent *e) {
    if (!json_is_integer(id) || json_integer_value(id) < 0)
        return status_fail(OTT_ERR_FORMAT, "the id of token '%s' is not an integer of 0 or more",
                           str_show(name).text);
    if (json_integer_value(id) > e->largest) {
        e->largest = json_integer_value(id);
        e->name = name;
    }
    e->tokens++;
    return OTT_OK;
}

static ott_status measure_vocab(const json_t *vocab, const json_t *added, extent *e) {
    const char *name;
    json_t *id;
    *e = (extent){.largest = -1};
    json_object_foreach((json_t *)vocab, name, id) {
        TRY(measure_id(id, name, e));
        e->bytes += (int64_t)strlen(name) + 1;
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i), *content = json_object_get(token, "content");
        if (!json_is_string(content))
            return status_fail(OTT_ERR_FORMAT,
                               "added_tokens: content of token %zu is missing or not a string", i);
        TRY(measure_id(json_object_get(token, "id"), json_string_value(content), e));
        e->bytes += (int64_t)json_string_length(content) + 1;
    }
    int64_t limit = IDS_PER_TOKEN * e->tokens + IDS_OF_ANY;
    if (limit > INT32_MAX) limit = INT32_MAX;
    if (e->largest < limit) return OTT_OK;
    return status_fail(OTT_ERR_FORMAT,
                       "token '%s' has the id %" PRId64 ", far beyond the others: with %" PRId64
                       " tokens, ids below %" PRId64 " are possible",
                       str_show(e->name).text, e->largest, e->tokens, limit);
}

static ott_status load_names(tokenizer *t, const json_t *vocab, const extent *e) {
    const char *name;
    json_t *value;
    TRY(text_list_open(t->account, t->vocab, e->bytes, &t->names));
    TRY(text_index_open(t->account, &t->names, e->tokens, &t->by_name));
    json_object_foreach((json_t *)vocab, name, value) {
        int32_t id = (int32_t)json_integer_value(value);
        if (t->names.at[id].at)
            return status_fail(OTT_ERR_FORMAT, "model.vocab: '%s' and '%s' have the same id %d",
                               str_show(t->names.at[id].at).text, str_show(name).text, id);
        text_list_set(&t->names, id, name, (int64_t)strlen(name));
        text_index_add(&t->by_name, id);
    }
    return OTT_OK;
}

/* ---- bytes as characters, as in GPT-2's vocabulary ---- */

/* True for bytes that represent themselves. The other bytes map to characters from U+0100 on, in order. */
static bool names_itself(int byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
}

static int codepoint_of_byte(int byte) {
    if (names_itself(byte)) return byte;
    int before = 0;
    for (int i = 0; i < byte; i++) before += !names_itself(i);
    return 0x100 + before;
}

int tokenizer_byte_name(unsigned char byte, char out[3]) {
    return (int)utf8proc_encode_char(codepoint_of_byte(byte), (utf8proc_uint8_t *)out);
}

byte_characters vocab_byte_characters(void) {
    byte_characters all;
    for (int c = 0; c < 0x180; c++) all.byte[c] = -1;
    for (int byte = 0; byte < 256; byte++) all.byte[codepoint_of_byte(byte)] = (int16_t)byte;
    return all;
}

int64_t vocab_read_bytes(const byte_characters *all, text_view text, char *out) {
    int64_t count = 0;
    for (int64_t i = 0; i < text.bytes; i++) {
        int c = (unsigned char)text.at[i];
        if (c >= 0xc6) return -1; /* first byte of U+0180 and above */
        if (c >= 0x80) c = (c & 0x1f) << 6 | (text.at[++i] & 0x3f);
        if (all->byte[c] < 0) return -1;
        out[count++] = (char)all->byte[c];
    }
    return count;
}

/* Converts each token's name to bytes. Skips names with a character that represents no byte. */
static ott_status load_piece_bytes(tokenizer *t) {
    byte_characters all = vocab_byte_characters();
    text_list *list = &t->piece_bytes;
    TRY(text_list_open(t->account, t->vocab, t->names.used, list));
    for (int32_t id = 0; id < t->vocab; id++) {
        if (!t->names.at[id].at) continue;
        char *to = list->blob + list->used;
        int64_t bytes = vocab_read_bytes(&all, t->names.at[id], to);
        if (bytes < 0) continue;
        list->at[id] = (text_view){to, bytes};
        list->used += bytes + 1; /* the zero byte ends the text */
    }
    return OTT_OK;
}

/* ---- merges ---- */

/* Returns the slot of a pair of ids in the hash table, or else the free slot where it can be added. */
static merge_slot *merge_at(const bpe_model *m, uint32_t left, uint32_t right) {
    for (uint64_t i = bpe_merge_hash(left, right);; i++) {
        merge_slot *slot = &m->merges[i & m->merge_mask];
        if (slot->rank < 0 || (slot->left == left && slot->right == right)) return slot;
    }
}

/* Reads a merge: "a b", or ["a", "b"]. */
static bool read_merge(const json_t *merge, text_view *left, text_view *right) {
    if (json_is_string(merge)) {
        const char *text = json_string_value(merge), *space = strchr(text, ' ');
        size_t bytes = json_string_length(merge);
        if (!space || strchr(space + 1, ' ') || strlen(text) != bytes) return false;
        *left = (text_view){text, space - text};
        *right = (text_view){space + 1, (int64_t)bytes - (space + 1 - text)};
        return true;
    }
    const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
    if (json_array_size(merge) != 2 || !json_is_string(a) || !json_is_string(b)) return false;
    *left = (text_view){json_string_value(a), (int64_t)json_string_length(a)};
    *right = (text_view){json_string_value(b), (int64_t)json_string_length(b)};
    return true;
}

static ott_status find_token_part(const tokenizer *t, text_view text, const char *what, size_t merge,
                                  uint32_t *id) {
    int32_t found = text_index_find(&t->by_name, text.at, text.bytes);
    *id = (uint32_t)found;
    if (found >= 0) return OTT_OK;
    return status_fail(OTT_ERR_FORMAT, "model.merges: %s '%.*s' of merge %zu is not in the vocabulary", what,
                       text.bytes > 80 ? 80 : (int)text.bytes, text.at, merge);
}

/* True if U+2581 follows another character in the text: the text then has parts of two words. */
static bool joins_words(text_view text) {
    const int bytes = sizeof metaspace - 1;
    int64_t run = 0;
    while (run + bytes <= text.bytes && memcmp(text.at + run, metaspace, (size_t)bytes) == 0) run += bytes;
    return memmem(text.at + run, (size_t)(text.bytes - run), metaspace, (size_t)bytes) != NULL;
}

/* Clears m->no_merge for the last character of `left` and the first of `right`, as a merge joins them. a, b:
   ids of left, right. If one is a byte token's id, clears all: a merge may join any two characters. */
static void note_joined(bpe_model *m, text_view left, text_view right, uint32_t a, uint32_t b) {
    unsigned char last = (unsigned char)left.at[left.bytes - 1], first = (unsigned char)right.at[0];
    if ((last | first) < 0x80) m->no_merge[last][first] = false;
    for (int byte = 0; byte < 256; byte++)
        if (m->byte_ids[byte] == (int32_t)a || m->byte_ids[byte] == (int32_t)b)
            memset(m->no_merge, 0, sizeof m->no_merge);
}

/* Adds a merge to the table; a later merge of the same pair wins. merged: the text of its result. */
static void put_merge(bpe_model *m, text_view left, text_view right, text_view merged, merge_slot slot) {
    *merge_at(m, slot.left, slot.right) = slot;
    if (m->splits_words && joins_words(merged)) m->splits_words = false;
    if (m->splits_words) note_joined(m, left, right, slot.left, slot.right);
}

static ott_status load_merge(tokenizer *t, const json_t *merge, size_t rank, str *joined) {
    text_view left, right;
    uint32_t a, b, id;
    if (!read_merge(merge, &left, &right))
        return status_fail(OTT_ERR_FORMAT, "model.merges: merge %zu is not a pair of tokens", rank);
    TRY(find_token_part(t, left, "the left part", rank, &a));
    TRY(find_token_part(t, right, "the right part", rank, &b));
    joined->length = 0;
    str_append_bytes(joined, left.at, left.bytes);
    str_append_bytes(joined, right.at, right.bytes);
    TRY(str_finish(joined));
    text_view merged = {joined->text, joined->length};
    TRY(find_token_part(t, merged, "the result", rank, &id));
    /* A merge with an empty part is refused: it would apply to its own result, without end. */
    if (left.bytes == 0 || right.bytes == 0)
        return status_fail(OTT_ERR_FORMAT, "model.merges: merge %zu has an empty part", rank);
    put_merge(&t->model, left, right, merged, (merge_slot){a, b, (int32_t)rank, (int32_t)id});
    return OTT_OK;
}

static ott_status open_merges(tokenizer *t, int64_t count) {
    bpe_model *m = &t->model;
    int64_t size = 64;
    while (size < 2 * count) size *= 2;
    TRY(mem_alloc_array(t->account, MEM_DATA, size, sizeof *m->merges, "merges", &m->merges));
    m->merge_mask = (uint64_t)size - 1;
    for (int64_t i = 0; i < size; i++) m->merges[i] = (merge_slot){UINT32_MAX, UINT32_MAX, -1, -1};
    return OTT_OK;
}

static ott_status load_merges(tokenizer *t, const json_t *merges) {
    int64_t count = (int64_t)json_array_size(merges);
    if (!json_is_array(merges)) return status_fail(OTT_ERR_FORMAT, "model.merges is missing or not an array");
    TRY(open_merges(t, count));
    str joined = {.account = t->account};
    ott_status status = OTT_OK;
    for (size_t i = 0; i < (size_t)count && status == OTT_OK; i++)
        status = load_merge(t, json_array_get(merges, i), i, &joined);
    str_free(&joined);
    return status;
}

/* ---- merges of ranked tokens ---- */

static const text_list *pieces_of(const tokenizer *t) {
    return t->model.byte_level ? &t->piece_bytes : &t->names;
}

/* True if the encoder may find the token by its text. */
static bool is_piece(const tokenizer *t, int32_t id) {
    return pieces_of(t)->at[id].at && (!t->ranks || (id < t->ranked && t->ranks[id] >= 0));
}

/* Returns the number of ways to divide a token into two tokens. add: also adds each as a merge. */
static int64_t split_token(tokenizer *t, int32_t id, bool add) {
    text_view text = pieces_of(t)->at[id];
    int64_t count = 0;
    for (int64_t at = 1; at < text.bytes; at++) {
        text_view left = {text.at, at}, right = {text.at + at, text.bytes - at};
        int32_t a = text_index_find(&t->by_piece, left.at, left.bytes), b = -1;
        if (a >= 0) b = text_index_find(&t->by_piece, right.at, right.bytes);
        if (b < 0) continue;
        count++;
        merge_slot slot = {(uint32_t)a, (uint32_t)b, t->ranks[id], id};
        if (add) put_merge(&t->model, left, right, text, slot);
    }
    return count;
}

static ott_status load_ranked_merges(tokenizer *t) {
    int64_t count = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) TRY(open_merges(t, count));
        for (int32_t id = 0; id < t->ranked && id < t->vocab; id++)
            if (is_piece(t, id)) count += split_token(t, id, pass == 1);
    }
    return OTT_OK;
}

/* ---- the model ---- */

/* Makes the index that finds a token by its text: its name, or in a byte-level model the name's raw bytes. */
static ott_status load_pieces(tokenizer *t, int64_t tokens) {
    if (t->model.byte_level) TRY(load_piece_bytes(t));
    TRY(text_index_open(t->account, pieces_of(t), tokens, &t->by_piece));
    for (int32_t id = 0; id < t->vocab; id++)
        if (is_piece(t, id)) text_index_add(&t->by_piece, id);
    for (int c = 0; c < 128; c++) t->model.ascii[c] = text_index_find(&t->by_piece, &(char){(char)c}, 1);
    return OTT_OK;
}

static ott_status load_options(tokenizer *t, const json_t *model) {
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    bpe_model *m = &t->model;
    TRY(json_member_bool(model, "ignore_merges", false, &m->ignore_merges));
    TRY(json_member_bool(model, "byte_fallback", false, &m->byte_fallback));
    TRY(json_member_bool(model, "fuse_unk", false, &m->fuse_unk));
    const json_t *dropout = json_object_get(model, "dropout");
    if (dropout && !json_is_null(dropout) && json_number_value(dropout) != 0.0)
        return status_fail(OTT_ERR_UNSUPPORTED, "model.dropout is not supported: ids would be random");
    for (int i = 0; i < 2; i++) {
        const char *text = json_string_value(json_object_get(model, affixes[i]));
        if (text && *text)
            return status_fail(OTT_ERR_UNSUPPORTED, "model.%s '%s' is not supported", affixes[i],
                               str_show(text).text);
    }
    return OTT_OK;
}

static ott_status check_type(const json_t *model) {
    const json_t *type = json_object_get(model, "type"); /* the oldest files have no type */
    if (!json_is_object(model)) return status_fail(OTT_ERR_FORMAT, "model is missing or not an object");
    if (type && !json_is_string(type)) return status_fail(OTT_ERR_FORMAT, "model.type is not a string");
    if (type && strcmp(json_string_value(type), "BPE") != 0)
        return status_fail(OTT_ERR_UNSUPPORTED, "model.type '%s' is not supported; BPE is",
                           str_show(json_string_value(type)).text);
    if (!json_is_object(json_object_get(model, "vocab")))
        return status_fail(OTT_ERR_FORMAT, "model.vocab is missing or not an object");
    return OTT_OK;
}

ott_status vocab_load(tokenizer *t, const json_t *root) {
    const json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab");
    const char *unk = json_string_value(json_object_get(model, "unk_token"));
    extent e;
    TRY(check_type(model));
    TRY(load_options(t, model));
    TRY(measure_vocab(vocab, json_object_get(root, "added_tokens"), &e));
    t->vocab = e.largest + 1;
    if (t->vocab == 0) return status_fail(OTT_ERR_FORMAT, "model.vocab has no tokens");
    TRY(load_names(t, vocab, &e));
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        int length = t->model.byte_level ? tokenizer_byte_name((unsigned char)byte, name)
                                         : snprintf(name, sizeof name, "<0x%02X>", byte);
        t->model.byte_ids[byte] = text_index_find(&t->by_name, name, length);
    }
    t->model.unk = unk ? text_index_find(&t->by_name, unk, (int64_t)strlen(unk)) : -1;
    /* Encoding words separately must not change ids. With fuse_unk, adjacent unknown characters become one
       token. So U+2581, which begins words, must be a known token. */
    t->model.splits_words = !t->model.byte_level && !t->model.ignore_merges &&
                            text_index_find(&t->by_name, metaspace, sizeof metaspace - 1) >= 0;
    memset(t->model.no_merge, t->model.splits_words, sizeof t->model.no_merge);
    if (!t->ranks) TRY(load_merges(t, json_object_get(model, "merges")));
    TRY(load_pieces(t, e.tokens));
    if (t->ranks) TRY(load_ranked_merges(t));
    /* With fuse_unk, two characters without tokens may become one token, so no word may end between them. */
    bpe_model *m = &t->model;
    for (int a = 0; a < 128; a++)
        for (int b = 0; b < 128; b++)
            if (m->ascii[a] < 0 && m->ascii[b] < 0) m->no_merge[a][b] = false;
    return OTT_OK;
}
