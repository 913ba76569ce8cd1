/* tokenizer/file: finds a folder's tokenizer file, and reads a tokenizer file of any format. */
#include "base/file/file.h"
#include "tokenizer/formats/formats.h"

/* Names of tokenizer files. A folder's first one is used. */
static const char *const files[] = {"tokenizer.json", "tokenizer.model", "spiece.model",
                                    "sentencepiece.bpe.model", "qwen.tiktoken"};

bool tokenizer_file_in(const char *folder, char path[PATH_MAX]) {
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (file_join(folder, files[i], path) == OTT_OK && file_exists(path) && !file_is_folder(path))
            return true;
    return false;
}

/* True if the name ends with .json, or the text begins with a brace. */
static bool is_json(const char *path, const char *data, int64_t bytes) {
    int64_t at = 0;
    while (at < bytes && (data[at] == ' ' || data[at] == '\t' || data[at] == '\r' || data[at] == '\n')) at++;
    return str_ends_with(path, ".json") || (at < bytes && data[at] == '{');
}

ott_status tokenizer_read_file(tokenizer *t, json_t **root) {
    char *data;
    int64_t bytes;
    *root = NULL;
    if (!file_exists(t->path)) return status_fail(OTT_ERR_NOT_FOUND, "%s: there is no such file", t->path);
    TRY(file_read(t->account, t->path, TOKENIZER_FILE_LIMIT, &data, &bytes));
    bool sentence = sentencepiece_is(data, bytes), json = !sentence && is_json(t->path, data, bytes);
    ott_status status = json       ? json_parse_object(t->path, data, bytes, 0, root)
                        : sentence ? sentencepiece_read(t, data, bytes, root)
                                   : tiktoken_read(t, data, bytes, root);
    mem_free(t->account, data);
    if (status == OTT_OK && !*root) status = status_fail(OTT_ERR_MEMORY, "no memory for the tokenizer");
    if (status != OTT_OK) json_decref(*root);
    return json ? status : status_context(status, "%s", t->path);
}

ott_status tokenizer_fail_absent(const char *folder) {
    if (file_is_gguf(folder)) return status_fail(OTT_ERR_NOT_FOUND, "%s: has no tokenizer", folder);
    bool pair = file_is_in(folder, "vocab.json") && file_is_in(folder, "merges.txt");
    return status_fail(
        OTT_ERR_NOT_FOUND, "%s: has no tokenizer.json%s", folder,
        pair ? "; its vocab.json and merges.txt are not supported: in this folder, python3 -c \"from "
               "transformers import AutoTokenizer as T; "
               "T.from_pretrained('.').save_pretrained('.')\" writes a tokenizer.json"
             : " and no tokenizer.model");
}
