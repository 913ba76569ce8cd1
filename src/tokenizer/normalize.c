/* tokenizer/normalize: Unicode normalization forms, lower case, strip, prepend and replace. */
#include "tokenizer/formats/formats.h"
#include <inttypes.h>
#include <utf8proc.h>

/* ---- loading ---- */

static const struct {
    const char *name;
    int options;
    /* texts without bytes >= first_byte are already normal; NFC changes nothing below U+0300 */
    unsigned char first_byte;
} forms[] = {
    {"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE, 0xcc},
    {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, 0x80},
    {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT, 0x80},
    {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, 0x80},
};

static bool set_normal_form(normalize_step *step, const char *type) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(forms[i].name, type) != 0) continue;
        *step = (normalize_step){
            .kind = NORMALIZE_UNICODE, .unicode = forms[i].options, .first_byte = forms[i].first_byte};
        return true;
    }
    return false;
}

static ott_status load_normalize_step(tokenizer *t, const json_t *object, const char *type, void *unused) {
    (void)unused;
    if (t->normalize_count == TOKENIZER_MAX_STEPS)
        return status_fail(OTT_ERR_UNSUPPORTED, "more than %d steps", TOKENIZER_MAX_STEPS);
    normalize_step *step = &t->normalize[t->normalize_count];
    *step = (normalize_step){0};
    t->normalize_count++; /* counted first, so that an incomplete step is freed on failure */
    if (set_normal_form(step, type)) return OTT_OK;
    if (strcmp(type, "Lowercase") == 0) {
        step->kind = NORMALIZE_LOWERCASE;
        return OTT_OK;
    }
    if (strcmp(type, "Strip") == 0) {
        step->kind = NORMALIZE_STRIP;
        TRY(json_member_bool(object, "strip_left", true, &step->left));
        return json_member_bool(object, "strip_right", true, &step->right);
    }
    if (strcmp(type, "Prepend") == 0) {
        step->kind = NORMALIZE_PREPEND;
        return json_get_text(t->texts, object, "prepend", &step->content);
    }
    if (strcmp(type, "Replace") == 0) {
        step->kind = NORMALIZE_REPLACE;
        TRY(json_get_pattern(t, object, &step->pattern));
        return json_get_text(t->texts, object, "content", &step->content);
    }
    return status_fail(OTT_ERR_UNSUPPORTED, "this normalizer is not supported");
}

ott_status normalize_load(tokenizer *t, const json_t *root) {
    return json_each_step(t, json_object_get(root, "normalizer"), "normalizer", "normalizers",
                          load_normalize_step, NULL);
}

/* ---- Unicode forms ---- */

/* Sorts the marks after a letter by combining class (stable sort). utf8proc's sort takes quadratic time. */
static void order_marks(utf8proc_int32_t *c, utf8proc_int32_t *sorted, int64_t count) {
    int64_t starts[257] = {0};
    for (int64_t i = 0; i < count; i++) starts[utf8proc_get_property(c[i])->combining_class + 1]++;
    for (int k = 0; k < 256; k++) starts[k + 1] += starts[k];
    for (int64_t i = 0; i < count; i++) sorted[starts[utf8proc_get_property(c[i])->combining_class]++] = c[i];
    memcpy(c, sorted, (size_t)count * sizeof *c);
}

static void order_all_marks(utf8proc_int32_t *c, int64_t count) {
    for (int64_t i = 0, end; i < count; i = end + 1) {
        for (end = i; end < count && utf8proc_get_property(c[end])->combining_class; end++) {
        }
        if (end - i > 1) order_marks(c + i, c + count + 1, end - i);
    }
}

/* Like utf8proc_decompose. Writes to the first half of s->codepoints; sorting uses the second half. */
static ott_status decompose(tokenizer_scratch *s, const normalize_step *step, text_view text,
                            int64_t *count) {
    const utf8proc_uint8_t *p = (const utf8proc_uint8_t *)text.at;
    int boundary = UTF8PROC_BOUNDCLASS_START;
    *count = 0;
    for (int64_t at = 0; at < text.bytes;) {
        utf8proc_int32_t c;
        int64_t free_slots = s->codepoint_capacity / 2 - 1 - *count;
        utf8proc_ssize_t bytes = utf8proc_iterate(p + at, text.bytes - at, &c), made = 0;
        if (bytes > 0)
            made = utf8proc_decompose_char(c, s->codepoints ? s->codepoints + *count : NULL,
                                           free_slots > 0 ? free_slots : 0, (utf8proc_option_t)step->unicode,
                                           &boundary);
        if (bytes < 0 || made < 0)
            return status_fail(OTT_ERR_FORMAT, "Unicode normalization: %s",
                               utf8proc_errmsg(bytes < 0 ? bytes : made));
        if (made > free_slots) {
            TRY(mem_reserve(s->account, MEM_SCRATCH, 2 * (*count + made + 1), "Unicode normalization",
                            &s->codepoint_capacity, &s->codepoints));
            continue;
        }
        *count += made;
        at += bytes;
    }
    order_all_marks(s->codepoints, *count);
    return OTT_OK;
}

/* Normalizes one independent range of text and appends it to `out`. */
static ott_status unicode_stretch(tokenizer_scratch *s, const normalize_step *step, text_view text,
                                  str *out) {
    int64_t count;
    TRY(decompose(s, step, text, &count));
    count = utf8proc_reencode(s->codepoints, count, (utf8proc_option_t)step->unicode);
    if (count < 0) return status_fail(OTT_ERR_FORMAT, "Unicode normalization: %s", utf8proc_errmsg(count));
    str_append_bytes(out, s->codepoints, count);
    return OTT_OK;
}

/* Normalizes only the parts that may change: from the last ASCII character before a byte >= step->first_byte
   to the next ASCII character. ASCII never combines with what is before it, so parts are independent. */
static ott_status normalize_unicode(tokenizer_scratch *s, const normalize_step *step, text_view text,
                                    str *out) {
    const unsigned char *p = (const unsigned char *)text.at;
    for (int64_t done = 0; done < text.bytes;) {
        int64_t hot = done, begin, end;
        while (hot < text.bytes && p[hot] < step->first_byte) hot++;
        for (begin = hot; begin > done && (begin == text.bytes || p[begin] >= 0x80); begin--) {
        }
        for (end = hot; end < text.bytes && p[end] >= 0x80; end++) {
        }
        if (hot == text.bytes) begin = end;
        str_append_bytes(out, text.at + done, begin - done);
        if (begin < end) TRY(unicode_stretch(s, step, (text_view){text.at + begin, end - begin}, out));
        done = end;
    }
    return OTT_OK;
}

static bool is_normal(const normalize_step *step, text_view text) {
    for (int64_t i = 0; i < text.bytes; i++)
        if ((unsigned char)text.at[i] >= step->first_byte) return false;
    return true;
}

/* ---- the other steps ---- */

static void append_codepoint(str *out, utf8proc_int32_t c) {
    utf8proc_uint8_t bytes[4];
    str_append_bytes(out, bytes, utf8proc_encode_char(c, bytes));
}

static void lowercase(text_view text, str *out) {
    for (int64_t at = 0; at < text.bytes;) {
        utf8proc_int32_t c;
        at += utf8proc_iterate((const utf8proc_uint8_t *)text.at + at, text.bytes - at, &c);
        append_codepoint(out, c == 0x130 ? 'i' : utf8proc_tolower(c));
        /* the only letter with a lower case of two characters */
        if (c == 0x130) append_codepoint(out, 0x307);
    }
}

static text_view strip(const normalize_step *step, text_view text) {
    if (step->left) {
        int64_t spaces = text_spaces_at_start(text, false);
        text.at += spaces;
        text.bytes -= spaces;
    }
    if (step->right) text.bytes -= text_spaces_at_end(text, false);
    return text;
}

ott_status normalize_replace(const pattern *p, matcher *m, text_view text, text_view content, int64_t limit,
                             str *out) {
    regex_walk w = regex_walk_start(p, m, text);
    int64_t done = 0;
    for (;;) {
        TRY(regex_walk_next(&w));
        if (w.begin < 0) break;
        str_append_bytes(out, text.at + done, w.begin - done);
        str_append_bytes(out, content.at, content.bytes);
        if (out->length > limit)
            return status_fail(OTT_ERR_UNSUPPORTED,
                               "its replacements make more than %" PRId64 " bytes of a text", limit);
        done = w.end;
    }
    str_append_bytes(out, text.at + done, text.bytes - done);
    return str_finish(out);
}

/* Applies a step to *text. `buffer` holds the new text if it changes. */
static ott_status apply_step(tokenizer_scratch *s, const normalize_step *step, int64_t limit, str *buffer,
                             text_view *text) {
    if (step->kind == NORMALIZE_STRIP) return *text = strip(step, *text), OTT_OK;
    if (text->bytes == 0 || (step->kind == NORMALIZE_UNICODE && is_normal(step, *text))) return OTT_OK;
    buffer->length = 0;
    switch (step->kind) {
    case NORMALIZE_UNICODE: TRY(normalize_unicode(s, step, *text, buffer)); break;
    case NORMALIZE_LOWERCASE: lowercase(*text, buffer); break;
    case NORMALIZE_PREPEND:
        str_append_bytes(buffer, step->content.at, step->content.bytes);
        str_append_bytes(buffer, text->at, text->bytes);
        break;
    case NORMALIZE_REPLACE:
        TRY(normalize_replace(&step->pattern, &s->matcher, *text, step->content, limit, buffer));
        break;
    case NORMALIZE_SENTENCE: TRY(sentence_normalize(s->t, *text, s->at_start, limit, buffer)); break;
    case NORMALIZE_STRIP: break;
    }
    *text = (text_view){buffer->text, buffer->length};
    return str_finish(buffer);
}

ott_status normalize_text(tokenizer_scratch *s, text_view text, text_view *out) {
    /* Limits the text, because up to 64 steps may each enlarge it. */
    int64_t limit = (1 << 20) + 64 * text.bytes;
    int buffer = 0;
    *out = text;
    for (int i = 0; i < s->t->normalize_count; i++) {
        TRY(apply_step(s, &s->t->normalize[i], limit, &s->normalized[buffer], out));
        if (out->at == s->normalized[buffer].text) buffer = 1 - buffer; /* *out is now in this buffer */
    }
    return OTT_OK;
}
