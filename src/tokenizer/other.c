/*
 * tokenizer/other: tokenizers in other files than tokenizer.json. They are not read, but known: by what
 * they are, and how they become one.
 */
#include "base/file.h"
#include "tokenizer/internal.h"
#include <limits.h>
#include <stdio.h>

/* In the folder of a model; transformers knows its kind by config.json and tokenizer_config.json. */
#define CONVERSION                                                                                           \
    "tokenizer.json is; in the model's folder, python3 -c \"from transformers import AutoTokenizer as T; "   \
    "T.from_pretrained('.').save_pretrained('.')\" writes it"

/* ---- what a file is ---- */

enum { HEAD_BYTES = 512 };

/* The first pieces of a ModelProto: field 1, and in it the text, field 1 too. */
static bool is_sentencepiece(const char *head, int64_t bytes) {
    return bytes > 4 && head[0] == 0x0a && head[2] == 0x0a && head[3] + 2 <= head[1] && head[1] > 0;
}

/* A line of a tiktoken vocabulary: the bytes of a token in base64, and its rank. */
static bool is_tiktoken(const char *head, int64_t bytes) {
    static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
    int64_t at = 0, space;
    while (at < bytes && head[at] && strchr(base64, head[at])) at++;
    space = at;
    if (at == 0 || at % 4 != 0 || at == bytes || head[at++] != ' ') return false;
    while (at < bytes && head[at] >= '0' && head[at] <= '9') at++;
    return at > space + 1 && (at == bytes || head[at] == '\n' || head[at] == '\r');
}

/* NULL: none that is known. */
static const char *kind_of(const char *path) {
    char head[HEAD_BYTES + 1] = "";
    file_reader r;
    if (!file_exists(path) || file_is_folder(path) || file_reader_open(path, &r) != OTT_OK) return NULL;
    int64_t bytes = r.bytes < HEAD_BYTES ? r.bytes : HEAD_BYTES;
    ott_status status = file_reader_read(&r, 0, head, bytes);
    file_reader_close(&r);
    if (status != OTT_OK) return NULL;
    return is_sentencepiece(head, bytes) ? "a SentencePiece model"
           : is_tiktoken(head, bytes)    ? "a tiktoken vocabulary"
                                         : NULL;
}

ott_status tokenizer_check_kind(const char *path) {
    char beside[PATH_MAX];
    const char *kind = kind_of(path), *slash = strrchr(path, '/');
    if (!kind) return OTT_OK;
    snprintf(beside, sizeof beside, "%.*stokenizer.json", slash ? (int)(slash - path) + 1 : 0, path);
    if (file_exists(beside))
        return status_fail(OTT_ERR_UNSUPPORTED, "%s: is %s, which is not read: name %s", path, kind, beside);
    return status_fail(OTT_ERR_UNSUPPORTED, "%s: is %s, which is not read: " CONVERSION, path, kind);
}

/* ---- a folder without tokenizer.json ---- */

static bool has(const char *folder, const char *name, char path[PATH_MAX]) {
    return snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX && file_exists(path);
}

ott_status tokenizer_fail_absent(const char *folder) {
    char path[PATH_MAX];
    if (has(folder, "tokenizer.model", path)) {
        const char *kind = kind_of(path);
        return status_fail(OTT_ERR_NOT_FOUND,
                           "%s: has no tokenizer.json; its tokenizer.model%s%s%s is not read: " CONVERSION,
                           folder, kind ? " (" : "", kind ? kind : "", kind ? ")" : "");
    }
    if (has(folder, "vocab.json", path) && has(folder, "merges.txt", path))
        return status_fail(
            OTT_ERR_NOT_FOUND,
            "%s: has no tokenizer.json; its vocab.json and merges.txt are not read: " CONVERSION, folder);
    return status_fail(OTT_ERR_NOT_FOUND, "%s: has no tokenizer.json", folder);
}
