/* data/token_file: what a token file says of itself. Internal to the dataset. */
#ifndef DATA_TOKEN_FILE_H
#define DATA_TOKEN_FILE_H

#include "base/mem.h"
#include <stdbool.h>

typedef struct token_file {
    const char *kind;  /* for messages: "llm.c's 20240801" */
    int64_t offset;    /* byte of the first token */
    int64_t count;     /* tokens */
    int width;         /* bytes of a token: 1, 2, 4 or 8; little-endian */
    bool is_signed;    /* 1 and 2 bytes: else an id above 127 or 32767 would be one */
    int64_t documents; /* 0: not known */
    int64_t *begin;    /* [documents + 1] tokens; given back with mem_free */
} token_file;

/* Reads headers only, and Megatron's index. OTT_ERR_FORMAT, OTT_ERR_UNSUPPORTED: what the file says cannot
 * be. */
ott_status token_file_inspect(mem *account, const char *path, token_file *out);

#endif
