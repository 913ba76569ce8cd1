/* data/tokenize: tokenizes without a model: a stream by lines, or a corpus into a token file on all cores. */
#ifndef DATA_TOKENIZE_H
#define DATA_TOKENIZE_H

#include "base/cancellation.h"
#include "ottava/ottava.h"
#include "tokenizer/tokenizer.h"

#define TOKENIZE_DOCUMENT_LIMIT TOKENIZER_TEXT_LIMIT /* maximum bytes of a document or line */

/* See ott_tokenize. */
ott_status tokenize_stream(mem *account, const logger *log, const char *tokenizer_path,
                           const ott_tokenize_options *o, ott_read_fn read, void *read_user,
                           ott_bytes_fn write, void *write_user);

/* See ott_tokenize_file. Threads check `w` for cancellation. */
ott_status tokenize_file(mem *account, const cancellation *w, const char *tokenizer_path, const char *input,
                         const char *output, const ott_tokenize_options *o, ott_tokenize_result *result);

#endif
