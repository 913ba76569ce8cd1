/* tokenizer/other: recognizes tokenizer files other than tokenizer.json, which are not supported, and reports
   how to convert them. */
#include "base/file/file.h"
#include "tokenizer/internal.h"
#include <stdio.h>

/* The end of messages that name a file which is not supported: how to make a tokenizer.json. */
#define CONVERSION                                                                                           \
    "tokenizer.json is; in the model's folder, python3 -c \"from transformers import AutoTokenizer as T; "   \
    "T.from_pretrained('.').save_pretrained('.')\" writes it"

enum { HEAD_BYTES = 512 };

/* Recognizes SentencePiece's protobuf: its first field, a piece, begins with field 1, the piece's text. */
static bool is_sentencepiece(const char *head, int64_t bytes) {
    return bytes > 4 && head[0] == 0x0a && head[2] == 0x0a && head[3] + 2 <= head[1] && head[1] > 0;
}

/* Recognizes a line of a tiktoken vocabulary: a token's bytes in base64, and its rank. */
static bool is_tiktoken(const char *head, int64_t bytes) {
    static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
    int64_t at = 0, space;
    while (at < bytes && head[at] && strchr(base64, head[at])) at++;
    space = at;
    if (at == 0 || at % 4 != 0 || at == bytes || head[at++] != ' ') return false;
    while (at < bytes && head[at] >= '0' && head[at] <= '9') at++;
    return at > space + 1 && (at == bytes || head[at] == '\n' || head[at] == '\r');
}

/* Returns the kind of tokenizer; NULL: unknown. */
static const char *foreign_kind(const char *path) {
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
    char tokenizer_json[PATH_MAX];
    const char *kind = foreign_kind(path), *slash = strrchr(path, '/');
    if (!kind) return OTT_OK;
    snprintf(tokenizer_json, sizeof tokenizer_json, "%.*stokenizer.json", slash ? (int)(slash - path) + 1 : 0,
             path);
    if (file_exists(tokenizer_json))
        return status_fail(OTT_ERR_UNSUPPORTED, "%s: is %s, which is not supported: name %s", path, kind,
                           tokenizer_json);
    return status_fail(OTT_ERR_UNSUPPORTED, "%s: is %s, which is not supported: " CONVERSION, path, kind);
}

ott_status tokenizer_fail_absent(const char *folder) {
    char path[PATH_MAX];
    if (file_is_gguf(folder)) return status_fail(OTT_ERR_NOT_FOUND, "%s: has no tokenizer", folder);
    if (file_is_in(folder, "tokenizer.model")) {
        TRY(file_join(folder, "tokenizer.model", path));
        const char *kind = foreign_kind(path);
        return status_fail(
            OTT_ERR_NOT_FOUND,
            "%s: has no tokenizer.json; its tokenizer.model%s%s%s is not supported: " CONVERSION, folder,
            kind ? " (" : "", kind ? kind : "", kind ? ")" : "");
    }
    if (file_is_in(folder, "vocab.json") && file_is_in(folder, "merges.txt"))
        return status_fail(
            OTT_ERR_NOT_FOUND,
            "%s: has no tokenizer.json; its vocab.json and merges.txt are not supported: " CONVERSION,
            folder);
    return status_fail(OTT_ERR_NOT_FOUND, "%s: has no tokenizer.json", folder);
}
