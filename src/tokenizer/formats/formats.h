/* tokenizer/formats: reads tokenizer files other than tokenizer.json: tiktoken's vocabulary and
   SentencePiece's model. A reader converts the file to the members of a tokenizer.json, and sets the members
   of `tokenizer` that a tokenizer.json cannot express. */
#ifndef TOKENIZER_FORMATS_FORMATS_H
#define TOKENIZER_FORMATS_FORMATS_H

#include "tokenizer/internal.h"

/* Maximum bytes of a token. Limits the time to find all pairs of tokens that make a token. */
enum { MAX_TOKEN_BYTES = 1024 };

/* True if the file begins like a SentencePiece model: a message with a piece. */
bool sentencepiece_is(const char *data, int64_t bytes);
/* Both readers set *root to the members of a tokenizer.json; release with json_decref. Errors name a line or
   a byte; the caller adds the path. */
ott_status sentencepiece_read(tokenizer *t, const char *data, int64_t bytes, json_t **root);
/* A file contains neither the split pattern nor the special tokens, so its name selects them: Llama 3's for
   tokenizer.model, Qwen's for qwen.tiktoken. */
ott_status tiktoken_read(tokenizer *t, const char *data, int64_t bytes, json_t **root);

typedef enum piece_kind {
    PIECE_NORMAL = 1,
    PIECE_UNKNOWN,
    PIECE_CONTROL,
    PIECE_USER,
    PIECE_UNUSED,
    PIECE_BYTE
} piece_kind;

/* A piece of a SentencePiece model; its index is its id. */
typedef struct sentence_piece {
    const char *text; /* in the tokenizer's arena */
    int64_t bytes;
    float score;
    piece_kind kind;
} sentence_piece;

/* Appends an added token to `list`. A token that is not special is found in normalized text. */
ott_status formats_add_token(json_t *list, int64_t id, const char *content, bool special);
/* Appends the tokens of added_tokens_decoder in tokenizer_config.json. Skips the tokens that
   pieces[count] already adds. Also reads `legacy`. */
ott_status formats_add_config_tokens(tokenizer *t, const sentence_piece *pieces, int64_t count, json_t *list);
/* Adds a token to the vocabulary. OTT_ERR_FORMAT if it is there already. */
ott_status formats_add_piece(json_t *vocab, const char *name, int64_t id);
/* Makes the ranks of `count` tokens, all -1. The tokenizer owns them. */
ott_status formats_new_ranks(tokenizer *t, int64_t count, int32_t **out);

/* ---- SentencePiece's normalizer (sentence.c) and unigram model (unigram.c) ---- */

/* Appends SentencePiece's normalization of the text to `out`. at_start: the text begins the input. Fails
   above `limit` bytes. */
ott_status sentence_normalize(const tokenizer *t, text_view text, bool at_start, int64_t limit, str *out);

/* Makes the tree of the pieces and their scores. */
ott_status unigram_load(tokenizer *t, const sentence_piece *pieces, int64_t count);
/* Appends the ids of the best segmentation of a normalized text. */
ott_status unigram_encode(encode_run *run, text_view text);
void unigram_close(tokenizer *t);

#endif
