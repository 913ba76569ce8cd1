/*
 * tokenizer/describe: what a tokenizer is made of, for files that keep it in another form.
 */
#ifndef TOKENIZER_DESCRIBE_H
#define TOKENIZER_DESCRIBE_H

#include "tokenizer/tokenizer.h"

typedef enum token_kind {
    TOKEN_NONE,  /* no token has this id */
    TOKEN_PIECE, /* of the vocabulary */
    TOKEN_BYTE,  /* "<0x0A>", for a byte that has no other token */
    TOKEN_UNKNOWN,
    TOKEN_ADDED, /* one token wherever its text stands */
    TOKEN_SPECIAL
} token_kind;

token_kind tokenizer_kind(const tokenizer *t, int64_t id);
/* An added token that takes spaces beside it along, or wants to stand alone; -1: there is none. */
int32_t tokenizer_find_flagged(const tokenizer *t);
int32_t tokenizer_unknown(const tokenizer *t); /* -1: none */
/* What TOKENIZER_ADD_SPECIAL puts before a text, or behind. */
const int32_t *tokenizer_added_around(const tokenizer *t, bool behind, int *count);

/* Two tokens that become one. */
typedef struct tokenizer_merge {
    int32_t left, right, merged;
    int32_t rank; /* the smaller goes first */
} tokenizer_merge;
/* All of them, by rank, to be given back with mem_free. */
ott_status tokenizer_merges(mem *account, const tokenizer *t, tokenizer_merge **out, int64_t *count);

/* How ByteLevel cuts where no other pattern does: GPT-2's regular expression, without what matches the same. */
#define TOKENIZER_GPT2 "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* Is it byte-level BPE that cuts a text at these regular expressions (NULL-ended), which match everywhere, one after the other,
   and changes it by Unicode's composition at most? */
bool tokenizer_is_byte_level(const tokenizer *t, const char *const *regex, bool ignores_merges);
/* Is it SentencePiece's BPE, of characters, with U+2581 for a space, and bytes for what has no token? *prepends: one is put
   before a text. */
bool tokenizer_is_sentencepiece(const tokenizer *t, bool *prepends);
/* The character that stands for a byte in the names of byte-level tokens; returns its bytes. */
int tokenizer_byte_name(unsigned char byte, char out[3]);

#endif
