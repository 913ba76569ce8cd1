/* tokenizer/decode_load: loads the decoder of a tokenizer.json. Some of its steps change the text of single
   tokens: these are applied here to the whole vocabulary. Steps that change byte-fallback tokens or the full
   text become flags. */
#include "tokenizer/internal.h"

/* The stages of decoding. The steps of a decoder must be in this order. */
typedef enum decode_stage { STAGE_TOKEN, STAGE_BYTE_FALLBACK, STAGE_FUSE, STAGE_TEXT } decode_stage;

typedef enum token_change { CHANGE_TO_BYTES, CHANGE_REPLACE, CHANGE_STRIP } token_change;

typedef struct token_step {
    token_change change;
    pattern pattern;   /* pattern of a replace step */
    text_view content; /* text to strip or insert; drop_first: a text's first token gets "" */
    bool drop_first;
    int64_t start, stop;
} token_step;

/* State of loading the decoder. */
typedef struct decode_draft {
    tokenizer *t;
    token_step steps[TOKENIZER_MAX_STEPS];
    int count;
    decode_stage stage;
    byte_characters bytes;
} decode_draft;

static ott_status new_decode_step(decode_draft *d, token_change change, token_step **out) {
    *out = NULL;
    if (d->stage != STAGE_TOKEN || d->t->decode.byte_level)
        return status_fail(OTT_ERR_UNSUPPORTED, "is not supported after ByteLevel, ByteFallback or Fuse");
    if (d->count == TOKENIZER_MAX_STEPS)
        return status_fail(OTT_ERR_UNSUPPORTED, "more than %d steps", TOKENIZER_MAX_STEPS);
    d->steps[d->count] = (token_step){.change = change};
    return *out = &d->steps[d->count++], OTT_OK;
}

static ott_status load_replace(decode_draft *d, const json_t *object) {
    token_step *step;
    TRY(new_decode_step(d, CHANGE_REPLACE, &step));
    TRY(json_get_pattern(d->t, object, &step->pattern));
    return json_get_text(d->t->texts, object, "content", &step->content);
}

/* Loads Strip. It strips each token's text; if it follows Fuse, it strips the full text. */
static ott_status load_strip(decode_draft *d, const json_t *object) {
    text_view content;
    int64_t start, stop;
    token_step *step;
    TRY(json_get_character(d->t->texts, object, "content", &content));
    TRY(json_member_integer(object, "start", JSON_NEEDED, 0, INT32_MAX, &start));
    TRY(json_member_integer(object, "stop", JSON_NEEDED, 0, INT32_MAX, &stop));
    if (d->stage == STAGE_FUSE) {
        if (stop > 0) return status_fail(OTT_ERR_UNSUPPORTED, "stop > 0 after Fuse is not supported");
        d->stage = STAGE_TEXT;
        d->t->decode.strip = content;
        d->t->decode.strip_count = (int)start;
        return OTT_OK;
    }
    TRY(new_decode_step(d, CHANGE_STRIP, &step));
    step->content = content;
    step->start = start;
    step->stop = stop;
    return OTT_OK;
}

/* Loads Metaspace, which replaces U+2581 with a space. In the first token U+2581 is removed, unless the
   pre-tokenizer never adds one before a text. */
static ott_status load_metaspace_decoder(decode_draft *d, const json_t *object) {
    const char *scheme = json_string_value(json_object_get(object, "prepend_scheme"));
    bool add;
    token_step *step;
    if (d->count > 0) return status_fail(OTT_ERR_UNSUPPORTED, "is not supported after another decoder");
    TRY(new_decode_step(d, CHANGE_REPLACE, &step));
    TRY(json_member_bool(object, "add_prefix_space", true, &add));
    TRY(json_get_character(d->t->texts, object, "replacement", &step->pattern.literal));
    step->content = (text_view){" ", 1};
    step->drop_first = scheme ? strcmp(scheme, "never") != 0 : add;
    return OTT_OK;
}

static ott_status set_stage(decode_draft *d, decode_stage stage) {
    if (d->stage >= stage) return status_fail(OTT_ERR_UNSUPPORTED, "is not supported at this position");
    d->stage = stage;
    return OTT_OK;
}

static ott_status load_byte_level_decoder(decode_draft *d) {
    token_step *step;
    if (d->count > 0) return status_fail(OTT_ERR_UNSUPPORTED, "is not supported after another decoder");
    TRY(new_decode_step(d, CHANGE_TO_BYTES, &step));
    d->bytes = vocab_byte_characters();
    d->t->decode.byte_level = true;
    return OTT_OK;
}

static ott_status load_decode_step(tokenizer *t, const json_t *object, const char *type, void *context) {
    decode_draft *d = context;
    (void)t;
    if (strcmp(type, "ByteLevel") == 0) return load_byte_level_decoder(d);
    if (strcmp(type, "Replace") == 0) return load_replace(d, object);
    if (strcmp(type, "Strip") == 0) return load_strip(d, object);
    if (strcmp(type, "Metaspace") == 0) return load_metaspace_decoder(d, object);
    if (strcmp(type, "Fuse") == 0) return set_stage(d, STAGE_FUSE);
    if (strcmp(type, "ByteFallback") != 0)
        return status_fail(OTT_ERR_UNSUPPORTED, "this decoder is not supported");
    if (d->t->decode.byte_level) return status_fail(OTT_ERR_UNSUPPORTED, "is not supported after ByteLevel");
    d->t->decode.byte_fallback = true;
    return set_stage(d, STAGE_BYTE_FALLBACK);
}

/* ---- the texts ---- */

static text_view strip_token(const token_step *step, text_view text) {
    for (int64_t i = 0; i < step->start && text_starts_with(text, step->content); i++) {
        text.at += step->content.bytes;
        text.bytes -= step->content.bytes;
    }
    for (int64_t i = 0; i < step->stop && text.bytes >= step->content.bytes; i++) {
        text_view last = {text.at + text.bytes - step->content.bytes, step->content.bytes};
        if (!text_starts_with(last, step->content)) break;
        text.bytes -= step->content.bytes;
    }
    return text;
}

/* Converts a byte-level text to bytes. A text with a character that represents no byte stays unchanged. */
static text_view to_bytes(const decode_draft *d, text_view text, str *buffer) {
    buffer->length = 0;
    str_append_bytes(buffer, text.at, text.bytes);
    int64_t bytes = buffer->failed ? -1 : vocab_read_bytes(&d->bytes, text, buffer->text);
    return bytes < 0 ? text : (text_view){buffer->text, bytes};
}

/* Returns the decoder's input for a token: its name, or the content of an added token. */
static ott_status seen_name(const tokenizer *t, tokenizer_scratch *s, int32_t id, text_view *name) {
    *name = t->names.at[id];
    return t->added_by_id[id] ? added_content(s, t->added_by_id[id], name) : OTT_OK;
}

/* Applies all steps to the text of a token. first: the token begins a text. *text may point to a buffer. */
static ott_status change_token(const decode_draft *d, tokenizer_scratch *s, bool first, str buffers[2],
                               text_view *text) {
    int64_t limit = 1024 + 64 * text->bytes; /* maximum bytes: steps may repeatedly enlarge the text */
    for (int i = 0; i < d->count; i++) {
        const token_step *step = &d->steps[i];
        str *buffer = &buffers[i % 2];
        text_view content = first && step->drop_first ? (text_view){"", 0} : step->content;
        buffer->length = 0;
        switch (step->change) {
        case CHANGE_TO_BYTES: *text = to_bytes(d, *text, buffer); break;
        case CHANGE_STRIP:
            *text = strip_token(step, *text);
            str_append_bytes(buffer, text->at, text->bytes);
            *text = (text_view){buffer->text, buffer->length};
            break;
        case CHANGE_REPLACE:
            TRY(normalize_replace(&step->pattern, &s->matcher, *text, content, limit, buffer));
            *text = (text_view){buffer->text, buffer->length};
            break;
        }
        TRY(str_finish(buffer));
    }
    return OTT_OK;
}

/* Returns the byte of "<0xNN>", or -1. */
static int byte_of_name(text_view name) {
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    if (name.bytes != 6 || memcmp(name.at, "<0x", 3) != 0 || name.at[5] != '>') return -1;
    const char *high = memchr(digits, name.at[3], 32), *low = memchr(digits, name.at[4], 32);
    return high && low ? (int)((high - digits) % 16 * 16 + (low - digits) % 16) : -1;
}

/* Stores each token's text, changed by all decoder steps, in `out`. first: as a text's first token. */
static ott_status change_all(const decode_draft *d, tokenizer_scratch *s, bool first, str buffers[2],
                             text_list *out) {
    const tokenizer *t = d->t;
    int64_t bytes = 0;
    text_view text;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) TRY(text_list_open(t->account, t->vocab, bytes, out));
        for (int32_t id = 0; id < t->vocab; id++) {
            if (!t->names.at[id].at) continue;
            TRY(seen_name(t, s, id, &text));
            TRY(change_token(d, s, first, buffers, &text));
            if (pass == 1) text_list_set(out, id, text.at, text.bytes);
            bytes += text.bytes + 1;
        }
    }
    return OTT_OK;
}

static ott_status find_bytes(tokenizer *t) {
    decode_rule *rule = &t->decode;
    TRY(mem_alloc_array(t->account, MEM_DATA, t->vocab, sizeof *rule->bytes, "texts of tokens",
                        &rule->bytes));
    for (int64_t id = 0; id < t->vocab; id++)
        rule->bytes[id] = (int16_t)(rule->byte_fallback ? byte_of_name(rule->texts.at[id]) : -1);
    return OTT_OK;
}

static ott_status make_texts(decode_draft *d) {
    tokenizer *t = d->t;
    tokenizer_scratch *s;
    str buffers[2] = {{.account = t->account}, {.account = t->account}};
    TRY(tokenizer_scratch_open(t->account, t, &s));
    regex_matcher_begin(&s->matcher, t->names.used);
    ott_status status = change_all(d, s, false, buffers, &t->decode.texts);
    if (status == OTT_OK && d->count > 0 && d->steps[0].drop_first)
        status = change_all(d, s, true, buffers, &t->decode.first_texts);
    tokenizer_scratch_close(s);
    for (int i = 0; i < 2; i++) str_free(&buffers[i]);
    return status == OTT_OK ? find_bytes(t) : status;
}

ott_status decode_load(tokenizer *t, const json_t *root) {
    const json_t *decoder = json_object_get(root, "decoder");
    decode_draft d = {.t = t};
    t->decode.spaced = !decoder || json_is_null(decoder);
    ott_status status = json_each_step(t, decoder, "decoder", "decoders", load_decode_step, &d);
    if (status == OTT_OK) status = make_texts(&d);
    for (int i = 0; i < d.count; i++) regex_free(&d.steps[i].pattern);
    return status;
}

void decode_close(tokenizer *t) {
    text_list_close(t->account, &t->decode.texts);
    text_list_close(t->account, &t->decode.first_texts);
    mem_free(t->account, t->decode.bytes);
}
