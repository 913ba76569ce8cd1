/* run/export_tokenizer: finds and copies the run's tokenizer. */
#include "run/export_tokenizer.h"
#include "base/file/file.h"
#include "base/text/str.h"
#include "tokenizer/gguf_tokens.h"
#include "tokenizer/tokenizer.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define MAIN_FILE "tokenizer.json"

/* Tokenizer files that transformers reads. */
static const char *const files[] = {MAIN_FILE,
                                    "tokenizer_config.json",
                                    "special_tokens_map.json",
                                    "added_tokens.json",
                                    "vocab.json",
                                    "merges.txt",
                                    "tokenizer.model",
                                    "chat_template.jinja",
                                    "chat_template.json",
                                    "spiece.model",
                                    "sentencepiece.bpe.model",
                                    "qwen.tiktoken"};

static ott_status copy_one_file(mem *account, const char *from, const char *folder, const char *name,
                                int64_t *copied) {
    char to[PATH_MAX];
    file_reader r;
    TRY(file_join(folder, name, to));
    TRY(file_reader_open(from, &r));
    ott_status status = file_copy(account, &r, to);
    file_reader_close(&r);
    *copied += status == OTT_OK;
    return status;
}

static ott_status copy_tokenizer_folder(mem *account, const char *from, const char *folder, int64_t *copied) {
    char path[PATH_MAX];
    if (!tokenizer_file_in(from, path)) return tokenizer_fail_absent(from);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        TRY(file_join(from, files[i], path));
        if (file_exists(path)) TRY(copy_one_file(account, path, folder, files[i], copied));
    }
    return OTT_OK;
}

/* A file with one of the names in `files` is copied with its companion files. A file with another name is
   copied alone, under the usual name of its format. */
static ott_status copy_tokenizer_file(mem *account, const char *path, const char *folder, int64_t *copied) {
    char from[PATH_MAX];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    snprintf(from, sizeof from, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(name, files[i]) == 0) return copy_tokenizer_folder(account, from, folder, copied);
    bool is_sentence = str_ends_with(name, ".model"), is_tiktoken = str_ends_with(name, ".tiktoken");
    const char *usual = is_sentence ? "tokenizer.model" : is_tiktoken ? "qwen.tiktoken" : MAIN_FILE;
    return copy_one_file(account, path, folder, usual, copied);
}

ott_status export_tokenizer(mem *account, const config *cfg, const char *from, const char *folder,
                            int64_t *copied) {
    const char *path = cfg->data.tokenizer_path, *source = from ? from : *path ? path : cfg->model.hf_path;
    *copied = 0;
    if (!from && cfg->data.format == DATA_BYTES) return OTT_OK;
    if (file_is_gguf(source)) return gguf_tokens_write(account, source, folder, copied);
    if (from || !*path) return OTT_OK;
    ott_status status = file_is_folder(path) ? copy_tokenizer_folder(account, path, folder, copied)
                                             : copy_tokenizer_file(account, path, folder, copied);
    if (status == OTT_OK) return OTT_OK;
    return status_context(status,
                          "data.tokenizer_path of the run (give another folder by --from, or an empty "
                          "--from for none)");
}
