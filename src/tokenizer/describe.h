/* tokenizer/describe: reads a tokenizer's parts, to write them in other file formats (GGUF). */
#ifndef TOKENIZER_DESCRIBE_H
#define TOKENIZER_DESCRIBE_H

#include "tokenizer/tokenizer.h"

typedef enum token_kind {
    TOKEN_NONE,  /* no token has this id */
    TOKEN_PIECE, /* the token is in the vocabulary */
    TOKEN_BYTE,  /* "<0x0A>": a byte that has no other token */
    TOKEN_UNKNOWN,
    TOKEN_ADDED, /* matched as one token wherever its text occurs */
    TOKEN_SPECIAL
} token_kind;

token_kind tokenizer_kind(const tokenizer *t, int64_t id);
/* Returns an added token with lstrip, rstrip or single_word; -1: none. */
int32_t tokenizer_find_flagged(const tokenizer *t);
int32_t tokenizer_unknown(const tokenizer *t); /* id of the unknown token; -1: none */
/* Returns the [*count] ids that TOKENIZER_ADD_SPECIAL adds before a text, or after it if `after`. */
const int32_t *tokenizer_added_around(const tokenizer *t, bool after, int *count);

/* A merge of two tokens into one. */
typedef struct tokenizer_merge {
    int32_t left, right, merged;
    int32_t rank; /* merges of smaller rank are applied first */
} tokenizer_merge;
/* Lists all merges by rank; free with mem_free. */
ott_status tokenizer_merges(mem *account, const tokenizer *t, tokenizer_merge **out, int64_t *count);

/* ByteLevel's default pattern: GPT-2's regular expression, without redundant alternatives. */
#define TOKENIZER_GPT2 "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

#define TOKENIZER_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TOKENIZER_SPACES       "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define TOKENIZER_WORDS(digits)                                                                              \
    TOKENIZER_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                                          \
                           "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TOKENIZER_SPACES
/* The patterns of Llama 3 and Qwen 2.5. */
#define TOKENIZER_LLAMA3 TOKENIZER_WORDS("\\p{N}{1,3}")
#define TOKENIZER_QWEN2  TOKENIZER_WORDS("\\p{N}")

/* True for byte-level BPE that splits text with exactly these regular expressions, in this order, and has no
   normalization other than Unicode composition. `regex` is NULL-terminated. Each expression must match at
   every position. */
bool tokenizer_is_byte_level(const tokenizer *t, const char *const *regex, bool ignores_merges);
/* True for SentencePiece's BPE: characters, U+2581 for a space, byte fallback. *prepends: a U+2581 is added
   before a text. */
bool tokenizer_is_sentencepiece(const tokenizer *t, bool *prepends);
/* Writes the character that represents a byte in names of byte-level tokens; returns its length in bytes. */
int tokenizer_byte_name(unsigned char byte, char out[3]);

#endif
