/* generate/text: what stands between text and a model's tokens: bytes or a tokenizer, and stop strings.
 */
#ifndef GENERATE_TEXT_H
#define GENERATE_TEXT_H

#include "ottava/ottava.h"
#include "tokenizer/tokenizer.h"

typedef struct text_codec {
    mem *account;
    tokenizer *tokenizer; /* NULL: a token is a byte */
    tokenizer_scratch *scratch;
    tokenizer_stream stream; /* has seen all text so far */
    int64_t vocab;           /* of the model */
    int64_t choices;         /* ids below stand for text */
    bool started;
} text_codec;

/* tokenizer_path "": bytes. */
ott_status text_codec_open(mem *account, const char *tokenizer_path, int64_t vocab, text_codec *out);
void text_codec_close(text_codec *c);
/* Appends the ids of a text, which continues the one before. The first begins as the tokenizer's
   post-processor says, with BOS where it has one. OTT_ERR_ARGUMENT: a token that the model does not have. On
   failure `ids` is as it was. */
ott_status text_codec_encode(text_codec *c, const char *text, tokenizer_ids *ids);
/* The model's next token: what it adds to the text, nothing for a character that is not whole yet. */
ott_status text_codec_decode(text_codec *c, int32_t token, str *out);
bool text_codec_ends(const text_codec *c, int32_t token); /* an end of text */

/* Text that is shown while it is made, up to the first of some stop strings to be complete: what may be the
   beginning of one is held back until it is known. */
typedef struct text_filter {
    const char *const *stop; /* [count], borrowed; none is empty */
    int count;
    str held;
} text_filter;

/* Takes text in and shows what is certain; *stopped: a stop string has come, and nothing from it on is shown.
 */
ott_status text_filter_push(text_filter *f, const str *text, ott_text_fn write, void *user, bool *stopped);
/* No more text will come: shows what was held back. */
void text_filter_finish(text_filter *f, ott_text_fn write, void *user);

#endif
