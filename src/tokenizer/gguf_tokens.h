/* tokenizer/gguf_tokens: tokenizers in GGUF files. Reading makes the JSON of Hugging Face's tokenizer files,
   so that GGUF and tokenizer.json are loaded by the same code. */
#ifndef TOKENIZER_GGUF_TOKENS_H
#define TOKENIZER_GGUF_TOKENS_H

#include "base/text/str.h"
#include "tokenizer/tokenizer.h"
#include <jansson.h>

/* Values of tokenizer.ggml.token_type. */
enum {
    GGUF_TOKEN_NORMAL = 1,
    GGUF_TOKEN_UNKNOWN,
    GGUF_TOKEN_CONTROL,
    GGUF_TOKEN_USER_DEFINED,
    GGUF_TOKEN_UNUSED,
    GGUF_TOKEN_BYTE
};

/* Returns llama.cpp's name of the rules by which a byte-level tokenizer splits text; NULL: it has none. */
const char *gguf_pre_tokenizer(const tokenizer *t);

/* Contents of tokenizer.json, tokenizer_config.json (with the chat template) and generation_config.json. */
typedef struct gguf_tokens {
    json_t *tokenizer, *config, *generation;
} gguf_tokens;

/* Reads a file's tokenizer. OTT_ERR_NOT_FOUND: it has none; OTT_ERR_UNSUPPORTED: another kind. Errors name
   the file. *out needs gguf_tokens_free also after an error. */
ott_status gguf_tokens_read(mem *account, const char *path, gguf_tokens *out);
void gguf_tokens_free(gguf_tokens *g);
/* True if the file can be read and has a tokenizer. */
bool gguf_tokens_exist(const char *path);
/* Writes the three files to `folder`, and replaces existing ones. *files: 3; 0 if there is no tokenizer. */
ott_status gguf_tokens_write(mem *account, const char *path, const char *folder, int64_t *files);

#endif
