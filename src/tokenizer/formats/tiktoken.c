/* tokenizer/formats/tiktoken: reads tiktoken's vocabulary: on each line a token's bytes in base64, a space,
   and its rank, which is its id. Two tokens merge if their joined bytes are a token; lower ranks first. */
#include "tokenizer/describe.h"
#include "tokenizer/formats/formats.h"
#include <inttypes.h>

enum { LARGEST_RANK = INT32_MAX / 2 };

/* Properties that the files do not contain. Special tokens without a name here are reserved. */
static const struct {
    const char *file, *pattern, *normalizer, *bos, *eos;
    int64_t most; /* larger vocabularies have other patterns */
    int special;
    const char *reserved, *names[11];
} kinds[] = {
    /* Llama 3, with the names of Llama 3.1 */
    {"tokenizer.model",
     TOKENIZER_LLAMA3,
     NULL,
     "<|begin_of_text|>",
     "<|end_of_text|>",
     128000,
     256,
     "reserved_special_token",
     {"<|begin_of_text|>", "<|end_of_text|>", NULL, NULL, "<|finetune_right_pad_id|>", NULL,
      "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"}},
    {"qwen.tiktoken",
     TOKENIZER_QWEN2,
     "NFC",
     NULL,
     "<|endoftext|>",
     151643,
     208,
     "extra",
     {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}},
};
enum { KINDS = sizeof kinds / sizeof *kinds, NAMES = sizeof kinds->names / sizeof *kinds->names };

/* ---- the lines ---- */

/* Decodes base64 to out[MAX_TOKEN_BYTES]. Returns the number of bytes; -1: not base64, empty or too long. */
static int read_base64(text_view text, unsigned char *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    int count = 0;
    if (text.bytes == 0 || text.bytes % 4 != 0 || text.bytes / 4 * 3 > MAX_TOKEN_BYTES) return -1;
    for (int64_t i = 0; i < text.bytes; i += 4) {
        const char *four = text.at + i;
        int padding = i + 4 < text.bytes ? 0 : (four[3] == '=') + (four[3] == '=' && four[2] == '=');
        uint32_t bits = 0;
        for (int k = 0; k < 4; k++) {
            const char *digit = k < 4 - padding ? memchr(digits, four[k], 64) : digits;
            if (!digit) return -1;
            bits = bits << 6 | (uint32_t)(digit - digits);
        }
        if (bits & ((1u << 8 * padding) - 1)) return -1; /* bits that no byte has must be 0 */
        for (int k = 0; k < 3 - padding; k++) out[count++] = (unsigned char)(bits >> (16 - 8 * k));
    }
    return count;
}

/* Reads "TOKEN RANK" of a line. Ranks ascend, so that no two tokens have the same rank. */
static ott_status read_token(text_view line, int64_t *rank, json_t *vocab) {
    unsigned char bytes[MAX_TOKEN_BYTES];
    char name[2 * MAX_TOKEN_BYTES + 3] = "", *to = name;
    const char *space = memchr(line.at, ' ', (size_t)line.bytes), *digit, *end = line.at + line.bytes;
    int64_t before = *rank;
    int count = space ? read_base64((text_view){line.at, space - line.at}, bytes) : -1;
    if (count < 0)
        return status_fail(OTT_ERR_FORMAT, "is not a token of 1 to %d bytes in base64, a space and a rank",
                           MAX_TOKEN_BYTES);
    *rank = 0;
    for (digit = space + 1; digit < end && *digit >= '0' && *digit <= '9' && *rank <= LARGEST_RANK; digit++)
        *rank = 10 * *rank + (*digit - '0');
    if (digit < end || digit == space + 1 || *rank > LARGEST_RANK || *rank <= before)
        return status_fail(OTT_ERR_FORMAT, "the rank '%.*s' is not an integer from %" PRId64 " to %d",
                           (int)(end - space > 40 ? 40 : end - space - 1), space + 1, before + 1,
                           LARGEST_RANK);
    for (int i = 0; i < count; i++) to += tokenizer_byte_name(bytes[i], to);
    *to = '\0';
    return formats_add_piece(vocab, name, *rank);
}

/* Reads all lines. *count: the largest rank + 1. */
static ott_status read_vocabulary(const char *data, int64_t bytes, json_t *vocab, int64_t *count) {
    int64_t rank = -1, number = 1;
    for (const char *at = data, *end = data + bytes, *stop; at < end; at = stop + 1, number++) {
        stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        int64_t length = stop - at - (stop > at && stop[-1] == '\r');
        if (length > 0)
            TRY(status_context(read_token((text_view){at, length}, &rank, vocab), "line %" PRId64, number));
    }
    *count = rank + 1;
    return rank >= 0 ? OTT_OK : status_fail(OTT_ERR_FORMAT, "has no tokens");
}

/* ---- the tokenizer ---- */

static ott_status find_kind(const tokenizer *t, int64_t count, int *kind) {
    const char *slash = strrchr(t->path, '/'), *name = slash ? slash + 1 : t->path;
    for (*kind = 0; *kind < KINDS; ++*kind)
        if (strcmp(kinds[*kind].file, name) == 0 && count <= kinds[*kind].most) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "is a tiktoken vocabulary of %" PRId64 " tokens, but how it splits a text is unknown: "
                       "only Llama 3's tokenizer.model, of at most %" PRId64 " tokens, and qwen.tiktoken are "
                       "supported; convert other files to a tokenizer.json",
                       count, kinds[0].most);
}

static ott_status add_special(int kind, int64_t first, json_t *added) {
    char reserved[48];
    for (int i = 0, unnamed = 0; i < kinds[kind].special; i++) {
        const char *name = i < NAMES ? kinds[kind].names[i] : NULL;
        if (!name) snprintf(reserved, sizeof reserved, "<|%s_%d|>", kinds[kind].reserved, unnamed++);
        TRY(formats_add_token(added, first + i, name ? name : reserved, true));
    }
    return OTT_OK;
}

static ott_status describe(tokenizer *t, const json_t *vocab, int64_t count, json_t *added, int *kind) {
    int32_t *ranks;
    const char *name;
    json_t *rank;
    TRY(find_kind(t, count, kind));
    TRY(formats_new_ranks(t, count, &ranks));
    json_object_foreach((json_t *)vocab, name, rank) ranks[json_integer_value(rank)] =
        (int32_t)json_integer_value(rank);
    t->bos_name = kinds[*kind].bos;
    t->eos_name = kinds[*kind].eos;
    TRY(formats_add_config_tokens(t, NULL, 0, added));
    return json_array_size(added) > 0 ? OTT_OK : add_special(*kind, count, added);
}

/* Makes the members of a tokenizer.json, to which `vocab` and `added` move. */
static json_t *make_root(json_t *vocab, json_t *added, int kind) {
    const char *normalizer = kinds[kind].normalizer;
    return json_pack("{s:o, s:{s:s, s:[{s:s, s:{s:s}, s:s}, {s:s, s:b, s:b}]}, s:o?, s:{s:s}, s:{s:o, s:b}}",
                     "added_tokens", added, "pre_tokenizer", "type", "Sequence", "pretokenizers", "type",
                     "Split", "pattern", "Regex", kinds[kind].pattern, "behavior", "Isolated", "type",
                     "ByteLevel", "add_prefix_space", false, "use_regex", false, "normalizer",
                     normalizer ? json_pack("{s:s}", "type", normalizer) : NULL, "decoder", "type",
                     "ByteLevel", "model", "vocab", vocab, "ignore_merges", true);
}

ott_status tiktoken_read(tokenizer *t, const char *data, int64_t bytes, json_t **root) {
    json_t *vocab = json_object(), *added = json_array();
    int64_t count = 0;
    int kind = 0;
    ott_status status = read_vocabulary(data, bytes, vocab, &count);
    if (status == OTT_OK) status = describe(t, vocab, count, added, &kind);
    if (status == OTT_OK) return *root = make_root(vocab, added, kind), OTT_OK;
    json_decref(vocab);
    json_decref(added);
    return status;
}
