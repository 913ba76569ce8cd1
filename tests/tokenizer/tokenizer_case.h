/* tests/tokenizer/tokenizer_case: small tokenizer.json files, and short ways to ask a tokenizer. */
#ifndef TESTS_IO_TOKENIZER_CASE_H
#define TESTS_IO_TOKENIZER_CASE_H

#include "support/folder.h"
#include "tokenizer/tokenizer.h"
#include <jansson.h>

/*
 * The root of a tokenizer.json whose model knows the characters of `alphabet` (UTF-8), the merges "a b" of
 * `merges`, separated by '|', and their results: ids in this order. Everything else is null.
 */
json_t *case_json(const char *alphabet, const char *merges);
/* One of bytes: the 256 bytes as GPT-2 writes them; pre-tokenizer and decoder ByteLevel. */
json_t *case_bytes(const char *merges);
/* One of characters: "<unk>", "<s>", "</s>", the 256 byte tokens, U+2581 and a to z; Metaspace and Llama's
 * decoder. */
json_t *case_characters(const char *merges);
/* Sets the member at the path ("model.vocab.a") to the JSON `text`; NULL deletes it. */
void case_set(json_t *root, const char *path, const char *text);

/* Writes it to the folder (and forgets the tree), then opens it; fails the test when that fails. */
const char *case_write(folder *f, json_t *root);
tokenizer *case_open(folder *f, json_t *root);
/* Opening must fail so, with an error that names the file and says `message`. */
void case_refuse(folder *f, json_t *root, ott_status expected, const char *message);

/* The ids of a text as "1 2 3", or the error's text; the caller frees it. Here and below bytes < 0: up to the
 * NUL. */
char *case_ids(folder *f, const tokenizer *t, const char *text, int64_t bytes, unsigned flags);
/* The text encodes to these tokens: names with a '|' between. */
void assert_tokens(folder *f, const tokenizer *t, const char *text, unsigned flags, const char *expected);
/* The ids, given as "1 2 3", are this text, all at once; and one by one if `streamed`. */
void assert_decodes(folder *f, const tokenizer *t, const char *ids, bool skip_special, const char *expected,
                    int64_t bytes, bool streamed);

#endif
