/*
 * data/tokenize: texts through a tokenizer, beside any model: line by line as they come, and a corpus into a
 * token file on all cores.
 */
#ifndef DATA_TOKENIZE_H
#define DATA_TOKENIZE_H

#include "base/log.h"
#include "ottava/ottava.h"
#include "tokenizer/tokenizer.h"

#define TOKENIZE_DOCUMENT_LIMIT TOKENIZER_TEXT_LIMIT /* bytes of a document, and of a line */

/* See ott_tokenize. */
ott_status tokenize_stream(mem *account, const char *tokenizer_path, const ott_tokenize_options *o,
                           ott_read_fn read, void *read_user, ott_bytes_fn write, void *write_user);

typedef struct tokenize_hooks {
    bool (*stop)(void *user); /* asked between pieces of work; NULL: never */
    void *user;
} tokenize_hooks;

/* See ott_tokenize_file. */
ott_status tokenize_file(mem *account, const logger *log, const char *tokenizer_path, const char *input,
                         const char *output, const ott_tokenize_options *o, const tokenize_hooks *hooks,
                         ott_tokenize_result *result);

#endif
