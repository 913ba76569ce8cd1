/* formats/token_writer: writes a token file when the number of tokens is not known in advance. Format:
   llm.c's 20240801, a header of 256 int32 followed by uint32 tokens. */
#ifndef FORMATS_TOKEN_WRITER_H
#define FORMATS_TOKEN_WRITER_H

#include "base/mem.h"

typedef struct token_writer token_writer;

/* token_writer_commit creates `path`. OTT_ERR_ARGUMENT if `path` exists and is not a regular file. */
ott_status token_writer_open(mem *account, const char *path, token_writer **out);
/* Appends tokens. OTT_ERR_ARGUMENT for a negative id, OTT_ERR_UNSUPPORTED for more than 2^31 - 1 tokens. */
ott_status token_writer_append(token_writer *w, const int32_t *tokens, int64_t count);
int64_t token_writer_count(const token_writer *w);
ott_status token_writer_commit(token_writer *w); /* closes w, also after an error */
void token_writer_abandon(token_writer *w);      /* deletes the temporary file; NULL is allowed */

#endif
