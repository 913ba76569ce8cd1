/*
 * formats/token_writer: a token file whose tokens come piece by piece, when nobody knows yet how many there will
 * be: llm.c's 20240801 format, 256 int32 of header and uint32 tokens.
 */
#ifndef FORMATS_TOKEN_WRITER_H
#define FORMATS_TOKEN_WRITER_H

#include "base/mem.h"

typedef struct token_writer token_writer;

/* Nothing is visible at `path` before token_writer_commit. OTT_ERR_ARGUMENT when something is there that is
 * no file. */
ott_status token_writer_open(mem *account, const char *path, token_writer **out);
/* OTT_ERR_ARGUMENT: a negative id. OTT_ERR_UNSUPPORTED: more than the 2^31 - 1 tokens the format counts. */
ott_status token_writer_append(token_writer *w, const int32_t *tokens, int64_t count);
int64_t token_writer_count(const token_writer *w);
ott_status token_writer_commit(token_writer *w); /* closes w whatever happens */
void token_writer_abandon(token_writer *w);      /* removes what was written; NULL is allowed */

#endif
