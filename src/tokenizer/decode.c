/* tokenizer/decode: decodes a list of ids to text, or id by id. Never writes incomplete characters. */
#include "tokenizer/internal.h"
#include <inttypes.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD in UTF-8 */

/* Appends text. Drops characters at the start of the full text that the decoder's Strip step removes. */
static void emit(tokenizer_stream *s, const char *text, int64_t bytes, str *out) {
    text_view strip = s->tokenizer->decode.strip, rest = {text, bytes};
    while (s->strip_left > 0 && rest.bytes > 0) {
        if (!text_starts_with(rest, strip)) {
            s->strip_left = 0;
            break;
        }
        rest.at += strip.bytes;
        rest.bytes -= strip.bytes;
        s->strip_left--;
    }
    str_append_bytes(out, rest.at, rest.bytes);
}

/* Replaces the bytes of an incomplete character by U+FFFD: by one, or by one per byte if each byte is a
   byte-fallback token. */
static void give_up(tokenizer_stream *s, str *out) {
    int marks = s->waiting == 0 ? 0 : s->tokenizer->decode.byte_fallback ? s->waiting : 1;
    s->waiting = 0;
    for (int i = 0; i < marks; i++) emit(s, REPLACEMENT, 3, out);
}

static void push_byte(tokenizer_stream *s, unsigned char byte, str *out) {
    s->pending[s->waiting++] = byte;
    if (str_utf8_length((const char *)s->pending, s->waiting) < 0) return;
    if (str_utf8_error((const char *)s->pending, s->waiting) < 0) {
        emit(s, (const char *)s->pending, s->waiting, out);
        s->waiting = 0;
        return;
    }
    if (s->waiting > 1) { /* the byte may begin another character */
        s->waiting--;
        give_up(s, out);
        push_byte(s, byte, out);
        return;
    }
    give_up(s, out);
}

static void push_bytes(tokenizer_stream *s, const char *bytes, int64_t count, str *out) {
    for (int64_t i = 0; i < count;) {
        if (s->waiting > 0) {
            push_byte(s, (unsigned char)bytes[i++], out);
            continue;
        }
        int64_t bad = str_utf8_error(bytes + i, count - i), valid = bad < 0 ? count - i : bad;
        emit(s, bytes + i, valid, out);
        i += valid;
        if (i < count) push_byte(s, (unsigned char)bytes[i++], out);
    }
}

tokenizer_stream tokenizer_stream_start(const tokenizer *t, bool skip_special) {
    return (tokenizer_stream){
        .tokenizer = t, .skip_special = skip_special, .strip_left = t->decode.strip_count};
}

static bool is_shown(const tokenizer *t, int32_t id, bool skip_special) {
    return tokenizer_token(t, id) && !(skip_special && tokenizer_is_special(t, id));
}

ott_status tokenizer_stream_push(tokenizer_stream *s, int32_t id, str *out) {
    const decode_rule *rule = &s->tokenizer->decode;
    if (id < 0) return status_fail(OTT_ERR_ARGUMENT, "%" PRId32 " is not a token id", id);
    if (!is_shown(s->tokenizer, id, s->skip_special)) return OTT_OK;
    bool first = !s->started;
    s->started = true;
    if (rule->bytes[id] >= 0) {
        push_byte(s, (unsigned char)rule->bytes[id], out);
        return str_finish(out);
    }
    if (!rule->byte_level) give_up(s, out); /* only byte tokens can complete pending bytes */
    if (rule->spaced && !first) emit(s, " ", 1, out);
    const text_list *texts = first && rule->first_texts.at ? &rule->first_texts : &rule->texts;
    push_bytes(s, texts->at[id].at, texts->at[id].bytes, out);
    return str_finish(out);
}

ott_status tokenizer_stream_finish(tokenizer_stream *s, str *out) {
    give_up(s, out);
    return str_finish(out);
}

/* Decodes a run of byte-fallback tokens that begins at ids[0]. If the run is not UTF-8, each byte becomes
   U+FFFD. Returns the number of ids in the run. */
static int64_t push_run(tokenizer_stream *s, const int32_t *ids, int64_t count, str *bytes, str *out) {
    const decode_rule *rule = &s->tokenizer->decode;
    int64_t i = 0;
    bytes->length = 0;
    for (; i < count && ids[i] >= 0; i++) {
        if (!is_shown(s->tokenizer, ids[i], s->skip_special)) continue;
        if (rule->bytes[ids[i]] < 0) break;
        char byte = (char)rule->bytes[ids[i]];
        str_append_bytes(bytes, &byte, 1);
    }
    s->started = true;
    if (str_utf8_error(bytes->text, bytes->length) < 0) {
        emit(s, bytes->text, bytes->length, out);
        return i;
    }
    for (int64_t k = 0; k < bytes->length; k++) emit(s, REPLACEMENT, 3, out);
    return i;
}

ott_status tokenizer_decode(const tokenizer *t, const int32_t *ids, int64_t count, bool skip_special,
                            str *out) {
    tokenizer_stream s = tokenizer_stream_start(t, skip_special);
    str bytes = {.account = out->account};
    ott_status status = OTT_OK;
    for (int64_t i = 0; i < count && status == OTT_OK;) {
        if (is_shown(t, ids[i], skip_special) && t->decode.bytes[ids[i]] >= 0) {
            i += push_run(&s, ids + i, count - i, &bytes, out);
            status = str_finish(&bytes);
        } else {
            status = tokenizer_stream_push(&s, ids[i++], out);
        }
    }
    str_free(&bytes);
    return status == OTT_OK ? tokenizer_stream_finish(&s, out) : status;
}
