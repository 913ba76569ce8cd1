/* tokenizer/tokenizer_case: makes small tokenizer.json files, and checks a tokenizer in one call. */
#ifndef TESTS_IO_TOKENIZER_CASE_H
#define TESTS_IO_TOKENIZER_CASE_H

#include "support/folder.h"
#include "tokenizer/tokenizer.h"
#include <jansson.h>

/* Makes the root of a tokenizer.json. Its vocabulary has the characters of `alphabet` (UTF-8), then the
   results of `merges` ("a b", separated by '|'), with ids in this order. All other members are null. */
json_t *case_json(const char *alphabet, const char *merges);
/* Makes a byte-level tokenizer: its characters are the 256 bytes as GPT-2 writes them; the pre-tokenizer and
   the decoder are ByteLevel. */
json_t *case_bytes(const char *merges);
/* Makes a tokenizer whose first tokens are "<unk>", "<s>", "</s>", the 256 byte tokens, U+2581, and a to z.
   The pre-tokenizer is Metaspace, and the decoder is the one of Llama 2. */
json_t *case_characters(const char *merges);
/* Sets the member at `path`, such as "model.vocab.a", to the JSON `text`. text NULL: deletes the member. */
void case_set(json_t *root, const char *path, const char *text);

/* Writes the file to the folder and frees `root`. Returns its path. */
const char *case_write(folder *f, json_t *root);
tokenizer *case_open(folder *f, json_t *root);
/* Expects that opening fails with status `expected`; the error must name the file and contain `message`. */
void case_refuse(folder *f, json_t *root, ott_status expected, const char *message);

/* Returns the ids of a text as "1 2 3", or the error's text. The caller frees the returned string. bytes < 0:
   the text ends with NUL. */
char *case_ids(folder *f, const tokenizer *t, const char *text, int64_t bytes, unsigned flags);
/* Expects that the text encodes to these tokens, separated by '|'. */
void assert_tokens(folder *f, const tokenizer *t, const char *text, unsigned flags, const char *expected);
/* Expects that the ids, given as "1 2 3", decode to `expected`. bytes < 0: `expected` ends with NUL.
   streamed: also decodes them one by one. */
void assert_decodes(folder *f, const tokenizer *t, const char *ids, bool skip_special, const char *expected,
                    int64_t bytes, bool streamed);

#endif
