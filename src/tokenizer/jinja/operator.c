/* jinja/operator: arithmetic, comparisons, indexes and slices. */
#include "tokenizer/jinja/value.h"

/* ---- texts and lists ---- */

static ott_status join_texts(jinja_work *w, text_view a, text_view b, jinja_value *out) {
    void *memory;
    TRY(jinja_work_read(w, a.bytes + b.bytes));
    TRY(jinja_work_alloc(w, a.bytes + b.bytes + 1, &memory));
    if (a.bytes) memcpy(memory, a.at, (size_t)a.bytes);
    if (b.bytes) memcpy((char *)memory + a.bytes, b.at, (size_t)b.bytes);
    *out = jinja_value_string((text_view){memory, a.bytes + b.bytes});
    return OTT_OK;
}

static ott_status repeat_text(jinja_work *w, text_view text, int64_t times, jinja_value *out) {
    void *memory;
    if (times < 0 || text.bytes == 0) times = 0;
    if (times > JINJA_MEMORY_MOST) times = JINJA_MEMORY_MOST; /* exceeds the memory limit anyway */
    TRY(jinja_work_steps(w, times));
    TRY(jinja_work_alloc(w, times * text.bytes + 1, &memory));
    for (int64_t i = 0; i < times; i++) memcpy((char *)memory + i * text.bytes, text.at, (size_t)text.bytes);
    *out = jinja_value_string((text_view){memory, times * text.bytes});
    return OTT_OK;
}

/* ---- numbers ---- */

static ott_status calculate_integers(jinja_work *w, text_view sign, int64_t a, int64_t b, jinja_value *out) {
    bool fits = true;
    *out = jinja_value_integer(0);
    if (text_is(sign, "+"))
        fits = !__builtin_add_overflow(a, b, &out->integer);
    else if (text_is(sign, "-"))
        fits = !__builtin_sub_overflow(a, b, &out->integer);
    else if (text_is(sign, "*"))
        fits = !__builtin_mul_overflow(a, b, &out->integer);
    else if (b == 0)
        return jinja_work_fail(w, OTT_ERR_FORMAT, "division by zero");
    else if (text_is(sign, "/"))
        *out = (jinja_value){.kind = JINJA_REAL, .real = (double)a / (double)b};
    else if (a == INT64_MIN)
        fits = false;
    else {
        int64_t rest = a % b, down = rest != 0 && (rest < 0) != (b < 0);
        out->integer = text_is(sign, "%") ? rest + down * b : a / b - down;
    }
    return fits ? OTT_OK : jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "a number is too large");
}

static ott_status calculate_real(jinja_work *w, text_view sign, double a, double b, jinja_value *out) {
    if (text_is(sign, "//") || text_is(sign, "%"))
        return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "%.*s of real numbers is not supported",
                               (int)sign.bytes, sign.at);
    if (text_is(sign, "/") && b == 0) return jinja_work_fail(w, OTT_ERR_FORMAT, "division by zero");
    *out = (jinja_value){.kind = JINJA_REAL};
    out->real = text_is(sign, "+") ? a + b : text_is(sign, "-") ? a - b : text_is(sign, "*") ? a * b : a / b;
    return OTT_OK;
}

ott_status jinja_calculate(jinja_work *w, text_view sign, const jinja_value *a, const jinja_value *b,
                           jinja_value *out) {
    jinja_value x, y;
    if (text_is(sign, "~")) {
        TRY(jinja_show(w, a, &x));
        TRY(jinja_show(w, b, &y));
        return join_texts(w, x.text, y.text, out);
    }
    if (jinja_value_is_number(a) && jinja_value_is_number(b))
        return a->kind == JINJA_REAL || b->kind == JINJA_REAL
                   ? calculate_real(w, sign, jinja_value_real(a), jinja_value_real(b), out)
                   : calculate_integers(w, sign, jinja_value_as_integer(a), jinja_value_as_integer(b), out);
    bool adds = text_is(sign, "+");
    if (adds && a->kind == JINJA_STRING && b->kind == JINJA_STRING)
        return join_texts(w, a->text, b->text, out);
    if (adds && a->kind == JINJA_LIST && b->kind == JINJA_LIST && a->list->tuple == b->list->tuple) {
        TRY(jinja_value_list_copy(w, a->list, out));
        return jinja_list_append_all(w, out->list, b->list);
    }
    if (text_is(sign, "*") && a->kind == JINJA_STRING && b->kind == JINJA_INTEGER)
        return repeat_text(w, a->text, b->integer, out);
    if (a->kind == JINJA_UNDEFINED || b->kind == JINJA_UNDEFINED) {
        text_view name = a->kind == JINJA_UNDEFINED ? a->text : b->text;
        return jinja_work_fail(w, OTT_ERR_FORMAT, "\"%.*s\" is undefined", jinja_shown_bytes(name), name.at);
    }
    return jinja_work_fail(w, OTT_ERR_FORMAT, "%s %.*s %s has no meaning", jinja_value_kind(a),
                           (int)sign.bytes, sign.at, jinja_value_kind(b));
}

ott_status jinja_negate(jinja_work *w, jinja_value *v) {
    if (v->kind == JINJA_REAL) return v->real = -v->real, OTT_OK;
    if (v->kind == JINJA_INTEGER && v->integer != INT64_MIN) return v->integer = -v->integer, OTT_OK;
    return jinja_work_fail(w, OTT_ERR_FORMAT, "%s has no negative", jinja_value_kind(v));
}

/* Tests if `a` is an element of a list, a key of a dictionary or a substring of `b`; false if `b` is
   undefined. */
static ott_status is_element(jinja_work *w, const jinja_value *a, const jinja_value *b, bool *out) {
    *out = false;
    if (b->kind == JINJA_UNDEFINED) return OTT_OK;
    if (b->kind == JINJA_STRING && a->kind == JINJA_STRING) {
        const char *at = b->text.at;
        if (a->text.bytes) TRY(jinja_text_find(w, b->text, a->text, &at));
        return *out = at != NULL, OTT_OK;
    }
    if (b->kind == JINJA_DICT) {
        const jinja_value *there;
        TRY(jinja_dict_find(w, b->dict, a, &there));
        return *out = there != NULL, OTT_OK;
    }
    if (b->kind != JINJA_LIST)
        return jinja_work_fail(w, OTT_ERR_FORMAT, "%s cannot be in %s", jinja_value_kind(a),
                               jinja_value_kind(b));
    for (int64_t i = 0; i < b->list->count && !*out; i++)
        TRY(jinja_value_equal(w, a, &b->list->items[i], out));
    return OTT_OK;
}

ott_status jinja_compare(jinja_work *w, text_view sign, const jinja_value *a, const jinja_value *b,
                         bool *out) {
    int order;
    if (text_is(sign, "in")) return is_element(w, a, b, out);
    if (text_is(sign, "==") || text_is(sign, "!=")) {
        TRY(jinja_value_equal(w, a, b, out));
        return *out = *out == text_is(sign, "=="), OTT_OK;
    }
    TRY(jinja_value_order(w, a, b, &order));
    *out = text_is(sign, "<")    ? order < 0
           : text_is(sign, ">")  ? order > 0
           : text_is(sign, "<=") ? order <= 0
                                 : order >= 0;
    return OTT_OK;
}

/* ---- indexes and slices ---- */

/* Returns `count` characters of the text from character number `first` on. */
static text_view characters(text_view text, int64_t first, int64_t count) {
    const char *from = text.at;
    while (first-- > 0) from += text_character_bytes((unsigned char)*from);
    const char *to = from;
    while (count-- > 0) to += text_character_bytes((unsigned char)*to);
    return (text_view){from, to - from};
}

static ott_status elements_or_characters(jinja_work *w, const jinja_value *v, int64_t *out) {
    if (v->kind == JINJA_STRING) return jinja_text_length(w, v->text, out);
    return *out = jinja_list_count(w, v->list), OTT_OK;
}

static ott_status index_dict(jinja_work *w, const jinja_dict *d, const jinja_value *key, jinja_value *out) {
    const jinja_value *v;
    TRY(jinja_dict_find(w, d, key, &v));
    if (v)
        *out = *v;
    else if (key->kind == JINJA_STRING)
        out->text = key->text;
    return OTT_OK;
}

ott_status jinja_index(jinja_work *w, const jinja_value *object, const jinja_value *key, jinja_value *out) {
    int64_t length;
    *out = jinja_value_undefined((text_view){"an element", 10});
    if (object->kind == JINJA_DICT) return index_dict(w, object->dict, key, out);
    if (key->kind == JINJA_STRING) return jinja_member(w, object, key->text, out);
    if (object->kind == JINJA_UNDEFINED)
        return jinja_work_fail(w, OTT_ERR_FORMAT, "\"%.*s\" is undefined, and has no elements",
                               jinja_shown_bytes(object->text), object->text.at);
    if ((object->kind != JINJA_LIST && object->kind != JINJA_STRING) || key->kind != JINJA_INTEGER)
        return OTT_OK;
    TRY(elements_or_characters(w, object, &length));
    /* the output depends on the messages up to this one, or on all of them if the index is negative */
    if (object->kind == JINJA_LIST && object->list->grows && key->integer < length)
        jinja_work_see(w, key->integer < 0 ? INT64_MAX : object->list->skipped + key->integer + 1);
    int64_t i = key->integer < 0 ? key->integer + length : key->integer;
    if (i < 0 || i >= length) return OTT_OK;
    *out = object->kind == JINJA_LIST ? object->list->items[i]
                                      : jinja_value_string(characters(object->text, i, 1));
    return OTT_OK;
}

/* *out = a slice's bound, clamped to [least, most] as in Python; `absent` if the slice has no such bound. */
static ott_status read_bound(const jinja_work *w, const jinja_value *v, int64_t length, int64_t absent,
                             int64_t least, int64_t most, int64_t *out) {
    *out = absent;
    if (v->kind == JINJA_NONE) return OTT_OK;
    if (v->kind != JINJA_INTEGER)
        return jinja_work_fail(w, OTT_ERR_FORMAT, "a slice cannot begin or end with %s", jinja_value_kind(v));
    int64_t at = v->integer < 0 ? (v->integer < -length ? -1 - length : v->integer) + length : v->integer;
    *out = at < least ? least : at > most ? most : at;
    return OTT_OK;
}

static ott_status read_slice_step(const jinja_work *w, const jinja_value *v, int64_t *out) {
    bool none = v->kind == JINJA_NONE;
    if (!none &&
        (v->kind != JINJA_INTEGER || v->integer == 0 || v->integer < -INT32_MAX || v->integer > INT32_MAX))
        return jinja_work_fail(w, OTT_ERR_FORMAT, "the step of a slice must be an integer other than 0");
    *out = none ? 1 : v->integer;
    return OTT_OK;
}

/* Returns list[from:] of a list of messages. Like the list, it is longer if there are more messages. */
static ott_status slice_rest(jinja_work *w, const jinja_list *list, int64_t from, jinja_value *out) {
    TRY(jinja_value_list(w, out));
    if (from > list->count) from = list->count;
    *out->list = *list;
    out->list->items += from;
    out->list->count -= from;
    out->list->capacity = out->list->count;
    out->list->skipped += from;
    return OTT_OK;
}

ott_status jinja_slice(jinja_work *w, const jinja_value *object, const jinja_value bounds[3],
                       jinja_value *out) {
    int64_t length, from, to, step = 1;
    if (object->kind != JINJA_LIST && object->kind != JINJA_STRING)
        return jinja_work_fail(w, OTT_ERR_FORMAT, "%s has no slices", jinja_value_kind(object));
    bool grows = object->kind == JINJA_LIST && object->list->grows;
    if (grows && bounds[0].kind == JINJA_INTEGER && bounds[0].integer >= 0 && bounds[1].kind == JINJA_NONE &&
        bounds[2].kind == JINJA_NONE)
        return slice_rest(w, object->list, bounds[0].integer, out);
    if (grows) jinja_work_see(w, INT64_MAX);
    TRY(elements_or_characters(w, object, &length));
    TRY(read_slice_step(w, &bounds[2], &step));
    bool back = step < 0;
    TRY(read_bound(w, &bounds[0], length, back ? length - 1 : 0, back ? -1 : 0, back ? length - 1 : length,
                   &from));
    TRY(read_bound(w, &bounds[1], length, back ? -1 : length, back ? -1 : 0, back ? length - 1 : length,
                   &to));
    if (object->kind == JINJA_STRING && step == 1)
        return *out = jinja_value_string(characters(object->text, from, to > from ? to - from : 0)), OTT_OK;
    if (object->kind == JINJA_STRING)
        return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "slices of a string with a step are not supported");
    TRY(jinja_value_list(w, out));
    for (int64_t i = from; back ? i > to : i < to; i += step) {
        TRY(jinja_work_steps(w, 1));
        TRY(jinja_list_append(w, out->list, object->list->items[i]));
    }
    return OTT_OK;
}
