/* support/token_file: makes a token file in one call, with the writer that `ottava tokenize` uses. */
#ifndef TESTS_IO_TOKEN_FILE_H
#define TESTS_IO_TOKEN_FILE_H

#include "formats/token_writer.h"

static inline ott_status token_file_write(mem *account, const char *path, const int32_t *tokens,
                                          int64_t count) {
    token_writer *w;
    TRY(token_writer_open(account, path, &w));
    ott_status status = token_writer_append(w, tokens, count);
    if (status == OTT_OK) return token_writer_commit(w);
    token_writer_abandon(w);
    return status;
}

#endif
