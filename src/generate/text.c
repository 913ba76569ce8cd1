/* generate/text: encodes and decodes text, and finds stop strings. */
#include "generate/text.h"
#include <string.h>

/* ---- text and tokens ---- */

ott_status text_codec_open(mem *account, const char *tokenizer_path, int64_t vocab, text_codec *out) {
    *out = (text_codec){.account = account, .vocab = vocab, .choices = vocab < 256 ? vocab : 256};
    if (!*tokenizer_path) return OTT_OK;
    TRY(tokenizer_open(account, tokenizer_path, &out->tokenizer));
    TRY(tokenizer_scratch_open(account, out->tokenizer, &out->scratch));
    out->stream = tokenizer_stream_start(out->tokenizer, true);
    int64_t known = tokenizer_vocab(out->tokenizer); /* the head's rows from `known` on are padding */
    out->choices = known < vocab ? known : vocab;
    return OTT_OK;
}

void text_codec_close(text_codec *c) {
    tokenizer_scratch_close(c->scratch);
    tokenizer_close(c->tokenizer);
}

static ott_status encode_bytes(const text_codec *c, const char *text, tokenizer_ids *ids) {
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte >= c->vocab)
            return status_fail(OTT_ERR_ARGUMENT,
                               "the prompt has byte %d, but the model's vocabulary has only %lld", byte,
                               (long long)c->vocab);
        TRY(tokenizer_ids_append(ids, byte));
    }
    return OTT_OK;
}

static ott_status check_prompt_ids(const text_codec *c, const tokenizer_ids *ids, int64_t from) {
    for (int64_t i = from; i < ids->count; i++)
        if (ids->ids[i] >= c->vocab)
            return status_fail(OTT_ERR_ARGUMENT,
                               "the prompt has token %d of %s, but the model's vocabulary has only %lld",
                               ids->ids[i], tokenizer_path(c->tokenizer), (long long)c->vocab);
    return OTT_OK;
}

static ott_status encode_prompt(text_codec *c, const char *text, tokenizer_ids *ids) {
    if (!c->tokenizer) return encode_bytes(c, text, ids);
    int64_t from = ids->count;
    unsigned flags = TOKENIZER_MATCH_SPECIAL | (c->started ? 0 : TOKENIZER_ADD_SPECIAL);
    TRY(tokenizer_encode(c->tokenizer, c->scratch, text, (int64_t)strlen(text), flags, ids));
    TRY(check_prompt_ids(c, ids, from));
    c->started = true;
    /* The decoder drops a space at the start of a text. So it first decodes the prompt, whose text is
       discarded: the generated text is then not the start. */
    str unseen = {.account = c->account};
    ott_status status = OTT_OK;
    for (int64_t i = from; status == OTT_OK && i < ids->count; i++)
        status = tokenizer_stream_push(&c->stream, ids->ids[i], &unseen);
    str_free(&unseen);
    return status;
}

ott_status text_codec_encode(text_codec *c, const char *text, tokenizer_ids *ids) {
    int64_t before = ids->count;
    ott_status status = encode_prompt(c, text, ids);
    if (status != OTT_OK) ids->count = before;
    return status;
}

ott_status text_codec_decode(text_codec *c, int32_t token, str *out) {
    if (c->tokenizer) return tokenizer_stream_push(&c->stream, token, out);
    if (token != 0) str_append_bytes(out, (char[]){(char)token}, 1); /* a C string cannot have the byte 0 */
    return OTT_OK;
}

bool text_codec_ends(const text_codec *c, int32_t token) {
    return c->tokenizer && tokenizer_is_stop(c->tokenizer, token);
}

/* ---- stop strings ---- */

/* Writes the first `bytes` bytes of held text and removes them. */
static void write_held(str *held, int64_t bytes, ott_text_fn write, void *user) {
    if (bytes == 0) return;
    char kept = held->text[bytes];
    held->text[bytes] = '\0';
    write(user, held->text);
    held->text[bytes] = kept;
    held->length -= bytes;
    memmove(held->text, held->text + bytes, (size_t)held->length + 1);
}

/* Returns where in f->held a stop string begins: the one that ends first; -1 if there is none. So the result
   does not depend on how the text was divided into tokens. */
static int64_t find_stop(const text_filter *f) {
    int64_t begin = -1, end = INT64_MAX;
    for (int i = 0; i < f->count; i++) {
        const char *at = strstr(f->held.text, f->stop[i]);
        int64_t from = at ? at - f->held.text : 0, to = at ? from + (int64_t)strlen(f->stop[i]) : INT64_MAX;
        if (!at || to > end || (to == end && from > begin)) continue;
        begin = from;
        end = to;
    }
    return begin;
}

/* Returns how many bytes at the end of f->held may be the beginning of a stop string. */
static int64_t uncertain_bytes(const text_filter *f) {
    int64_t most = 0;
    for (int i = 0; i < f->count; i++) {
        int64_t length = (int64_t)strlen(f->stop[i]) - 1;
        if (length > f->held.length) length = f->held.length;
        while (length > most &&
               memcmp(f->held.text + f->held.length - length, f->stop[i], (size_t)length) != 0)
            length--;
        if (length > most) most = length;
    }
    return most;
}

ott_status text_filter_push(text_filter *f, const str *text, ott_text_fn write, void *user, bool *stopped) {
    str_append_bytes(&f->held, text->text, text->length);
    TRY(str_finish(&f->held));
    *stopped = false;
    if (f->held.length == 0) return OTT_OK;
    int64_t stop = find_stop(f);
    *stopped = stop >= 0;
    write_held(&f->held, *stopped ? stop : f->held.length - uncertain_bytes(f), write, user);
    if (*stopped) f->held.length = 0;
    return OTT_OK;
}

void text_filter_finish(text_filter *f, ott_text_fn write, void *user) {
    write_held(&f->held, f->held.length, write, user);
}
