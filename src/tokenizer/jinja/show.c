/* jinja/show: converts values to text: Python's str, repr and json.dumps. */
#include "base/text/number.h"
#include "base/text/text.h"
#include "tokenizer/jinja/value.h"
#include <inttypes.h>
#include <math.h>

/* Writes the shortest digits that read back as the same number, in Python's notation. */
static void show_real(double x, bool json, str *out) {
    char digits[32];
    if (isnan(x)) return str_append(out, json ? "NaN" : "nan");
    if (isinf(x)) return str_append(out, json ? (x < 0 ? "-Infinity" : "Infinity") : x < 0 ? "-inf" : "inf");
    number_json(x, digits);
    /* number_json writes 17 digits without an exponent; Python does not */
    if (fabs(x) >= 1e16 && !strchr(digits, 'e')) text_format(digits, sizeof digits, "%.16e", x);
    str_append(out, digits);
    if (!strpbrk(digits, ".e")) str_append(out, ".0");
}

/* Writes a string with the quotes and escapes of Python's repr. */
static void show_quoted(text_view text, str *out) {
    bool single = memchr(text.at, '\'', (size_t)text.bytes) != NULL,
         both = single && memchr(text.at, '"', (size_t)text.bytes);
    char quote = single && !both ? '"' : '\'';
    str_append_bytes(out, &quote, 1);
    for (int64_t i = 0; i < text.bytes; i++) {
        unsigned char c = (unsigned char)text.at[i];
        if (c == '\n' || c == '\r' || c == '\t')
            str_append(out, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
        else if (c < 0x20 || c == 0x7f)
            str_printf(out, "\\x%02x", c);
        else {
            if (c == '\\' || (char)c == quote) str_append(out, "\\");
            str_append_bytes(out, &text.at[i], 1);
        }
    }
    str_append_bytes(out, &quote, 1);
}

typedef struct shower {
    jinja_work *w;
    str *out;
    bool json;
    int64_t indent; /* spaces per level of JSON; < 0: one line */
    int depth;
} shower;

static ott_status show(shower *s, const jinja_value *v);

static void begin_element(const shower *s, int64_t i) {
    if (i > 0) str_append(s->out, s->indent >= 0 ? "," : ", ");
    if (s->indent < 0) return;
    str_append(s->out, "\n");
    for (int64_t n = 0; n < s->indent * s->depth; n++) str_append(s->out, " ");
}

static void end_elements(shower *s, int64_t count, const char *bracket) {
    s->depth--;
    if (count > 0 && s->indent >= 0) begin_element(s, 0);
    str_append(s->out, bracket);
}

static ott_status enter_container(shower *s, const char *bracket) {
    s->depth++;
    str_append(s->out, bracket);
    return jinja_work_steps(s->w, 1);
}

static ott_status show_list(shower *s, const jinja_list *l) {
    bool tuple = l->tuple && !s->json;
    TRY(enter_container(s, tuple ? "(" : "["));
    for (int64_t i = 0; i < l->count; i++) {
        begin_element(s, i);
        TRY(show(s, &l->items[i]));
    }
    end_elements(s, l->count, !tuple ? "]" : l->count == 1 ? ",)" : ")");
    return OTT_OK;
}

static ott_status show_dict(shower *s, const jinja_dict *d) {
    TRY(enter_container(s, "{"));
    for (int64_t i = 0; i < d->count; i++) {
        begin_element(s, i);
        if (s->json && d->entries[i].key.kind != JINJA_STRING)
            return jinja_work_fail(s->w, OTT_ERR_UNSUPPORTED, "tojson: a key is %s, not a string",
                                   jinja_value_kind(&d->entries[i].key));
        TRY(show(s, &d->entries[i].key));
        str_append(s->out, ": ");
        TRY(show(s, &d->entries[i].value));
    }
    end_elements(s, d->count, "}");
    return OTT_OK;
}

static ott_status show(shower *s, const jinja_value *v) {
    bool json = s->json;
    if (s->out->length > JINJA_MEMORY_MOST)
        return jinja_work_fail(s->w, OTT_ERR_UNSUPPORTED, "makes more than %d MiB", JINJA_MEMORY_MOST >> 20);
    TRY(jinja_work_steps(s->w, v->kind == JINJA_STRING ? 1 + v->text.bytes / 4
                               : v->kind == JINJA_REAL ? 32
                                                       : 1));
    switch (v->kind) {
    case JINJA_NONE: str_append(s->out, json ? "null" : "None"); return OTT_OK;
    case JINJA_BOOL:
        str_append(s->out, v->truth ? json ? "true" : "True" : json ? "false" : "False");
        return OTT_OK;
    case JINJA_INTEGER: str_printf(s->out, "%" PRId64, v->integer); return OTT_OK;
    case JINJA_REAL: show_real(v->real, json, s->out); return OTT_OK;
    case JINJA_STRING:
        json ? str_append_json(s->out, v->text.at, v->text.bytes) : show_quoted(v->text, s->out);
        return OTT_OK;
    case JINJA_LIST: return show_list(s, v->list);
    case JINJA_DICT: return show_dict(s, v->dict);
    default:
        return jinja_work_fail(s->w, OTT_ERR_UNSUPPORTED, "%s cannot be shown as text", jinja_value_kind(v));
    }
}

ott_status jinja_show(jinja_work *w, const jinja_value *v, jinja_value *out) {
    str text = {.account = w->account};
    shower s = {.w = w, .out = &text, .indent = -1};
    if (v->kind == JINJA_STRING) return *out = *v, OTT_OK;
    if (v->kind == JINJA_UNDEFINED) return *out = jinja_value_string((text_view){"", 0}), OTT_OK;
    return jinja_value_take_text(w, &text, show(&s, v), out);
}

ott_status jinja_show_json(jinja_work *w, const jinja_value *v, int64_t indent, jinja_value *out) {
    str text = {.account = w->account};
    shower s = {.w = w, .out = &text, .json = true, .indent = indent};
    return jinja_value_take_text(w, &text, show(&s, v), out);
}

static ott_status join_list(jinja_work *w, const jinja_list *l, const text_view *member, text_view separator,
                            str *made) {
    for (int64_t i = 0; i < l->count; i++) {
        jinja_value element = l->items[i], text;
        if (member) TRY(jinja_member(w, &l->items[i], *member, &element));
        TRY(jinja_show(w, &element, &text));
        if (made->length > JINJA_MEMORY_MOST)
            return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "join: too long");
        TRY(jinja_work_read(w, separator.bytes + text.text.bytes));
        if (i > 0) str_append_bytes(made, separator.at, separator.bytes);
        str_append_bytes(made, text.text.at, text.text.bytes);
    }
    return OTT_OK;
}

ott_status jinja_show_joined(jinja_work *w, const jinja_value *v, const text_view *member,
                             text_view separator, jinja_value *out) {
    str made = {.account = w->account};
    jinja_list *l;
    TRY(jinja_value_elements(w, v, &l));
    return jinja_value_take_text(w, &made, join_list(w, l, member, separator, &made), out);
}
