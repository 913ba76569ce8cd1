/* data/token_file: reads the headers of token files. Internal to the dataset. */
#ifndef DATA_TOKEN_FILE_H
#define DATA_TOKEN_FILE_H

#include "base/mem.h"
#include <stdbool.h>

typedef struct token_file {
    const char *kind;  /* name of the format, for messages: "llm.c's 20240801" */
    int64_t offset;    /* byte offset of the first token */
    int64_t count;     /* number of tokens */
    int width;         /* bytes per token: 1, 2, 4 or 8; little-endian */
    bool is_signed;    /* tokens are signed integers */
    int64_t documents; /* number of documents; 0: unknown */
    int64_t *begin;    /* [documents + 1] first token of each document; free with mem_free */
} token_file;

/* Reads the header or Megatron's index, but no tokens. OTT_ERR_FORMAT or OTT_ERR_UNSUPPORTED if invalid. */
ott_status token_file_inspect(mem *account, const char *path, token_file *out);

#endif
