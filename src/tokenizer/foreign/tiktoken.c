/* tokenizer/foreign/tiktoken: reads tiktoken's vocabulary: on each line a token's bytes in base64, a space, and
   its rank, which is its id. A pair of tokens merges if its bytes are a token, in the order of the ranks. */
#include "tokenizer/describe.h"
#include "tokenizer/foreign/foreign.h"
#include <inttypes.h>

enum { LLAMA3_TOKENS = 128000, LLAMA3_SPECIAL = 256, QWEN_SPECIAL = 208 };

/* ---- the lines ---- */

/* Returns the value of a base64 digit; -1: none. */
static int digit_value(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Decodes base64 to out[FOREIGN_LONGEST]. Returns the number of bytes; -1: not base64, empty or too long. */
static int read_base64(text_view text, unsigned char *out) {
    int count = 0;
    if (text.bytes == 0 || text.bytes % 4 != 0 || text.bytes / 4 * 3 > FOREIGN_LONGEST) return -1;
    for (int64_t i = 0; i < text.bytes; i += 4) {
        const char *four = text.at + i;
        int padding = i + 4 < text.bytes ? 0 : (four[3] == '=') + (four[3] == '=' && four[2] == '=');
        uint32_t bits = 0;
        for (int k = 0; k < 4; k++) {
            int value = k < 4 - padding ? digit_value(four[k]) : 0;
            if (value < 0) return -1;
            bits = bits << 6 | (uint32_t)value;
        }
        if (bits & ((1u << 8 * padding) - 1)) return -1; /* bits that no byte has must be 0 */
        for (int k = 0; k < 3 - padding; k++) out[count++] = (unsigned char)(bits >> (16 - 8 * k));
    }
    return count;
}

/* Writes the characters that represent the bytes to name[2 * FOREIGN_LONGEST + 3]. */
static void name_bytes(const unsigned char *bytes, int count, char *name) {
    for (int i = 0; i < count; i++) name += tokenizer_byte_name(bytes[i], name);
    *name = '\0';
}

/* Reads "TOKEN RANK" of a line. Ranks ascend, so that no two tokens have the same rank. */
static ott_status read_token(text_view line, int64_t *rank, json_t *vocab) {
    unsigned char bytes[FOREIGN_LONGEST];
    char name[2 * FOREIGN_LONGEST + 3];
    const char *space = memchr(line.at, ' ', (size_t)line.bytes), *digit, *end = line.at + line.bytes;
    int64_t before = *rank;
    int count = space ? read_base64((text_view){line.at, space - line.at}, bytes) : -1;
    if (count < 0)
        return status_fail(OTT_ERR_FORMAT, "is not a token of 1 to %d bytes in base64, a space and a rank",
                           FOREIGN_LONGEST);
    *rank = 0;
    for (digit = space + 1; digit < end && *digit >= '0' && *digit <= '9' && *rank <= INT32_MAX; digit++)
        *rank = 10 * *rank + (*digit - '0');
    if (digit < end || digit == space + 1 || *rank > INT32_MAX / 2)
        return status_fail(OTT_ERR_FORMAT, "the rank is not an integer from 0 to %d", INT32_MAX / 2);
    if (*rank <= before)
        return status_fail(OTT_ERR_FORMAT,
                           "the rank %" PRId64 " is not larger than the line before's, %" PRId64, *rank,
                           before);
    name_bytes(bytes, count, name);
    return foreign_add_piece(vocab, name, *rank);
}

/* Reads all lines. *count: the largest rank + 1. */
static ott_status read_vocabulary(const char *data, int64_t bytes, json_t *vocab, int64_t *count) {
    int64_t rank = -1, number = 0;
    for (const char *at = data, *end = data + bytes, *stop; at < end; at = stop + 1) {
        stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        text_view line = {at, stop - at};
        if (line.bytes > 0 && line.at[line.bytes - 1] == '\r') line.bytes--;
        number++;
        if (line.bytes == 0) continue;
        ott_status status = read_token(line, &rank, vocab);
        if (status != OTT_OK) return status_context(status, "line %" PRId64, number);
    }
    if (rank < 0) return status_fail(OTT_ERR_FORMAT, "has no tokens");
    return *count = rank + 1, OTT_OK;
}

/* ---- what the file does not contain ---- */

/* Llama 3's special tokens, with the names of Llama 3.1. */
static ott_status add_llama_tokens(json_t *list, int64_t first) {
    static const char *const known[] = {"<|begin_of_text|>",
                                        "<|end_of_text|>",
                                        "",
                                        "",
                                        "<|finetune_right_pad_id|>",
                                        "",
                                        "<|start_header_id|>",
                                        "<|end_header_id|>",
                                        "<|eom_id|>",
                                        "<|eot_id|>",
                                        "<|python_tag|>"};
    char name[48];
    for (int i = 0, reserved = 0; i < LLAMA3_SPECIAL; i++) {
        bool is_known = i < (int)(sizeof known / sizeof *known) && *known[i];
        if (!is_known) snprintf(name, sizeof name, "<|reserved_special_token_%d|>", reserved++);
        TRY(foreign_add_token(list, first + i, is_known ? known[i] : name, true));
    }
    return OTT_OK;
}

static ott_status add_qwen_tokens(json_t *list, int64_t first) {
    static const char *const known[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    char name[48];
    for (int i = 0; i < QWEN_SPECIAL; i++) {
        if (i >= 3) snprintf(name, sizeof name, "<|extra_%d|>", i - 3);
        TRY(foreign_add_token(list, first + i, i < 3 ? known[i] : name, true));
    }
    return OTT_OK;
}

static ott_status check_kind(const tokenizer *t, int64_t count, bool *qwen) {
    const char *slash = strrchr(t->path, '/'), *name = slash ? slash + 1 : t->path;
    *qwen = strcmp(name, "qwen.tiktoken") == 0;
    if (*qwen || (strcmp(name, "tokenizer.model") == 0 && count <= LLAMA3_TOKENS)) return OTT_OK;
    return status_fail(
        OTT_ERR_UNSUPPORTED,
        "is a tiktoken vocabulary of %" PRId64
        " tokens, but does not contain how a text is split: only Llama 3's tokenizer.model, of "
        "at most %d tokens, and Qwen's qwen.tiktoken are supported; convert others to a "
        "tokenizer.json",
        count, LLAMA3_TOKENS);
}

/* Makes the members of a tokenizer.json; `vocab` and `added` are its own. */
static json_t *make_root(json_t *vocab, json_t *added, bool qwen) {
    return json_pack("{s:o, s:o?, s:{s:s, s:[{s:s, s:{s:s}, s:s}, {s:s, s:b, s:b}]}, s:{s:s}, s:{s:o, s:b}}",
                     "added_tokens", added, "normalizer", qwen ? json_pack("{s:s}", "type", "NFC") : NULL,
                     "pre_tokenizer", "type", "Sequence", "pretokenizers", "type", "Split", "pattern",
                     "Regex", qwen ? TOKENIZER_QWEN2 : TOKENIZER_LLAMA3, "behavior", "Isolated", "type",
                     "ByteLevel", "add_prefix_space", false, "use_regex", false, "decoder", "type",
                     "ByteLevel", "model", "vocab", vocab, "ignore_merges", true);
}

static ott_status describe(tokenizer *t, const json_t *vocab, int64_t count, json_t *added) {
    int32_t *ranks;
    const char *name;
    json_t *rank;
    bool qwen;
    TRY(check_kind(t, count, &qwen));
    TRY(foreign_new_ranks(t, count, &ranks));
    json_object_foreach((json_t *)vocab, name, rank) ranks[json_integer_value(rank)] =
        (int32_t)json_integer_value(rank);
    TRY(foreign_add_config_tokens(t, NULL, 0, added));
    if (json_array_size(added) == 0)
        TRY(qwen ? add_qwen_tokens(added, count) : add_llama_tokens(added, count));
    t->bos_name = qwen ? NULL : "<|begin_of_text|>";
    t->eos_name = qwen ? "<|endoftext|>" : "<|end_of_text|>";
    return OTT_OK;
}

ott_status tiktoken_read(tokenizer *t, const char *data, int64_t bytes, json_t **root) {
    json_t *vocab = json_object(), *added = json_array();
    int64_t count = 0;
    ott_status status = read_vocabulary(data, bytes, vocab, &count);
    if (status == OTT_OK) status = describe(t, vocab, count, added);
    *root = status == OTT_OK ? make_root(json_incref(vocab), json_incref(added), !t->bos_name) : NULL;
    json_decref(vocab);
    json_decref(added);
    if (status == OTT_OK && !*root)
        return status_fail(OTT_ERR_MEMORY, "no memory for the tokenizer's tokens");
    return status;
}
