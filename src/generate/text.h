/* generate/text: converts between text and tokens (bytes or a tokenizer), and ends text at stop strings. */
#ifndef GENERATE_TEXT_H
#define GENERATE_TEXT_H

#include "ottava/ottava.h"
#include "tokenizer/tokenizer.h"

typedef struct text_codec {
    mem *account;
    tokenizer *tokenizer; /* NULL: a token is a byte */
    tokenizer_scratch *scratch;
    tokenizer_stream stream; /* state of the decoder after all text so far */
    int64_t vocab;           /* number of ids of the model */
    int64_t choices;         /* smaller ids have text; the others are padding */
    bool started;            /* a text was encoded already, so no BOS follows */
} text_codec;

/* Opens the codec. tokenizer_path "": tokens are bytes. Call text_codec_close also after a failure. */
ott_status text_codec_open(mem *account, const char *tokenizer_path, int64_t vocab, text_codec *out);
void text_codec_close(text_codec *c);
/* Appends the ids of a text. The first text also gets the special tokens of the tokenizer's post-processor,
   such as BOS; later texts continue it. OTT_ERR_ARGUMENT, with `ids` unchanged, if an id is not in the
   model's vocabulary. */
ott_status text_codec_encode(text_codec *c, const char *text, tokenizer_ids *ids);
/* Appends the text of the next token to `out`; nothing while a UTF-8 character is incomplete. */
ott_status text_codec_decode(text_codec *c, int32_t token, str *out);
bool text_codec_ends(const text_codec *c, int32_t token); /* true if the token ends the text */

/* Writes text while it is generated, and ends it at the first stop string. Text that may be the beginning of
   a stop string is written only when later text shows that it is not. */
typedef struct text_filter {
    const char *const *stop; /* [count], borrowed; none is empty */
    int count;
    str held; /* text that is not written yet; the caller sets its account and frees it */
} text_filter;

/* Adds text, and writes the text that cannot belong to a stop string. *stopped: true if a stop string was
   found; the text ends before it. */
ott_status text_filter_push(text_filter *f, const str *text, ott_text_fn write, void *user, bool *stopped);
/* Writes the held text. Call it at the end. */
void text_filter_finish(text_filter *f, ott_text_fn write, void *user);

#endif
