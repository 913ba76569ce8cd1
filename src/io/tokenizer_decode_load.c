/*
 * io/tokenizer_decode_load: the decoder of a tokenizer.json. Its steps act on the token's text, then on runs
 * of byte tokens, then on the whole: the first kind is done here once for every token, the others are flags.
 */
#include "io/tokenizer_parts.h"

/* Steps in the order in which they may come. */
typedef enum decode_stage { STAGE_TOKEN, STAGE_BYTE_FALLBACK, STAGE_FUSE, STAGE_WHOLE } decode_stage;

typedef enum token_change { CHANGE_REPLACE, CHANGE_STRIP } token_change;

typedef struct token_step {
    token_change change;
    pattern pattern;   /* replace */
    text_view content; /* what to put there, or the character to take off */
    int64_t start, stop;
} token_step;

/* The decoder while it is read. */
typedef struct decode_draft {
    tokenizer *t;
    token_step steps[TOKENIZER_MAX_STEPS];
    int count;
    decode_stage stage;
} decode_draft;

static ott_status new_step(decode_draft *d, token_change change, token_step **out) {
    *out = NULL;
    if (d->stage != STAGE_TOKEN || d->t->decode.byte_level)
        return status_fail(OTT_ERR_UNSUPPORTED, "is not supported behind ByteLevel, ByteFallback or Fuse");
    if (d->count == TOKENIZER_MAX_STEPS)
        return status_fail(OTT_ERR_UNSUPPORTED, "more than %d steps", TOKENIZER_MAX_STEPS);
    d->steps[d->count] = (token_step){.change = change};
    *out = &d->steps[d->count++];
    return OTT_OK;
}

static ott_status load_replace(decode_draft *d, const json_t *object) {
    token_step *step;
    TRY(new_step(d, CHANGE_REPLACE, &step));
    TRY(json_get_pattern(d->t, object, &step->pattern));
    return json_get_text(d->t->texts, object, "content", &step->content);
}

/* Behind Fuse it takes characters off the whole text. */
static ott_status load_strip(decode_draft *d, const json_t *object) {
    text_view content;
    int64_t start, stop;
    token_step *step;
    TRY(json_get_character(d->t->texts, object, "content", &content));
    TRY(json_get_int(object, "start", 0, INT32_MAX, &start));
    TRY(json_get_int(object, "stop", 0, INT32_MAX, &stop));
    if (d->stage == STAGE_FUSE) {
        if (stop > 0) return status_fail(OTT_ERR_UNSUPPORTED, "stop > 0 behind Fuse is not supported");
        d->stage = STAGE_WHOLE;
        d->t->decode.strip = content;
        d->t->decode.strip_count = (int)start;
        return OTT_OK;
    }
    TRY(new_step(d, CHANGE_STRIP, &step));
    step->content = content;
    step->start = start;
    step->stop = stop;
    return OTT_OK;
}

/* The mark becomes a space; in the first token it goes, unless it was never put in front. */
static ott_status load_metaspace(decode_draft *d, const json_t *object) {
    const char *scheme = json_string_value(json_object_get(object, "prepend_scheme"));
    bool add;
    token_step *step;
    if (d->count > 0) return status_fail(OTT_ERR_UNSUPPORTED, "is not supported behind another decoder");
    TRY(new_step(d, CHANGE_REPLACE, &step));
    TRY(json_get_bool(object, "add_prefix_space", true, &add));
    TRY(json_get_character(d->t->texts, object, "replacement", &step->pattern.literal));
    step->content = (text_view){" ", 1};
    if (scheme ? strcmp(scheme, "never") != 0 : add) d->t->decode.drop_first = step->pattern.literal;
    return OTT_OK;
}

static ott_status set_stage(decode_draft *d, decode_stage stage) {
    if (d->stage >= stage) return status_fail(OTT_ERR_UNSUPPORTED, "is not supported at this place");
    d->stage = stage;
    return OTT_OK;
}

static ott_status load_byte_level(decode_draft *d) {
    if (d->count > 0 || d->stage != STAGE_TOKEN || d->t->decode.byte_level)
        return status_fail(OTT_ERR_UNSUPPORTED, "is not supported behind another decoder");
    d->t->decode.byte_level = true;
    return OTT_OK;
}

static ott_status load_step(tokenizer *t, const json_t *object, const char *type, void *context) {
    decode_draft *d = context;
    (void)t;
    if (strcmp(type, "ByteLevel") == 0) return load_byte_level(d);
    if (strcmp(type, "Replace") == 0) return load_replace(d, object);
    if (strcmp(type, "Strip") == 0) return load_strip(d, object);
    if (strcmp(type, "Metaspace") == 0) return load_metaspace(d, object);
    if (strcmp(type, "Fuse") == 0) return set_stage(d, STAGE_FUSE);
    if (strcmp(type, "ByteFallback") != 0)
        return status_fail(OTT_ERR_UNSUPPORTED, "this decoder is not supported");
    if (d->t->decode.byte_level) return status_fail(OTT_ERR_UNSUPPORTED, "is not supported behind ByteLevel");
    d->t->decode.byte_fallback = true;
    return set_stage(d, STAGE_BYTE_FALLBACK);
}

/* ---- the texts ---- */

/* At most start times `content` off the beginning, then at most stop times off the end. */
static text_view strip_token(const token_step *step, text_view text) {
    for (int64_t i = 0; i < step->start && view_starts_with(text, step->content); i++) {
        text.at += step->content.bytes;
        text.bytes -= step->content.bytes;
    }
    for (int64_t i = 0; i < step->stop && text.bytes >= step->content.bytes; i++) {
        text_view last = {text.at + text.bytes - step->content.bytes, step->content.bytes};
        if (!view_starts_with(last, step->content)) break;
        text.bytes -= step->content.bytes;
    }
    return text;
}

/* What the steps make of a name: in one of the scratch's two texts, or in the name itself. */
static ott_status change_token(const decode_draft *d, tokenizer_scratch *s, text_view *text) {
    for (int i = 0, room = 0; i < d->count; i++) {
        const token_step *step = &d->steps[i];
        if (step->change == CHANGE_STRIP) {
            *text = strip_token(step, *text);
            continue;
        }
        str *to = &s->normalized[room];
        to->length = 0;
        TRY(replace_all(&step->pattern, &s->matcher, *text, step->content, to));
        *text = (text_view){to->text, to->length};
        room = 1 - room;
    }
    return OTT_OK;
}

/* The byte of "<0xNN>", or -1. */
static int byte_of_name(text_view name) {
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    if (name.bytes != 6 || memcmp(name.at, "<0x", 3) != 0 || name.at[5] != '>') return -1;
    const char *high = memchr(digits, name.at[3], 32), *low = memchr(digits, name.at[4], 32);
    return high && low ? (int)((high - digits) % 16 * 16 + (low - digits) % 16) : -1;
}

/* The texts are made twice: once for their length, once to be kept. */
static ott_status change_all(decode_draft *d, tokenizer_scratch *s) {
    tokenizer *t = d->t;
    int64_t bytes = 0;
    for (int32_t id = 0; id < t->vocab; id++) {
        text_view text = t->names.at[id];
        if (!text.at) continue;
        TRY(change_token(d, s, &text));
        bytes += text.bytes + 1;
    }
    TRY(text_list_open(t->account, t->vocab, bytes, &t->decode.texts));
    for (int32_t id = 0; id < t->vocab; id++) {
        text_view text = t->names.at[id];
        if (!text.at) continue;
        TRY(change_token(d, s, &text));
        text_list_set(&t->decode.texts, id, text.at, text.bytes);
        t->decode.bytes[id] = (int16_t)(t->decode.byte_fallback ? byte_of_name(text) : -1);
    }
    return OTT_OK;
}

/* A name with a character that stands for no byte is taken as it is. */
static ott_status byte_level_all(tokenizer *t) {
    TRY(byte_level_texts(t, &t->decode.texts));
    for (int32_t id = 0; id < t->vocab; id++)
        if (!t->decode.texts.at[id].at) t->decode.texts.at[id] = t->names.at[id];
    return OTT_OK;
}

static ott_status make_texts(decode_draft *d) {
    tokenizer *t = d->t;
    tokenizer_scratch *s;
    void *memory;
    TRY(mem_take_array(t->account, MEM_DATA, t->vocab, sizeof *t->decode.bytes, "texts of tokens", &memory));
    t->decode.bytes = memory;
    for (int64_t id = 0; id < t->vocab; id++) t->decode.bytes[id] = -1;
    if (t->decode.byte_level) return byte_level_all(t);
    TRY(tokenizer_scratch_open(t->account, t, &s));
    ott_status status = change_all(d, s);
    tokenizer_scratch_close(s);
    return status;
}

ott_status decode_load(tokenizer *t, const json_t *root) {
    const json_t *decoder = json_object_get(root, "decoder");
    decode_draft d = {.t = t};
    t->decode.spaced = !decoder || json_is_null(decoder);
    ott_status status = json_each_step(t, decoder, "decoder", "decoders", load_step, &d);
    if (status == OTT_OK) status = make_texts(&d);
    for (int i = 0; i < d.count; i++) pattern_free(&d.steps[i].pattern);
    return status;
}

void decode_close(tokenizer *t) {
    text_list_close(t->account, &t->decode.texts);
    mem_give(t->account, t->decode.bytes);
}
