/* jinja/value: values and their memory. */
#include "tokenizer/jinja/value.h"
#include "base/text.h"
#include <stdarg.h>
#include <stdio.h>

/* ---- work ---- */

ott_status jinja_work_fail(const jinja_work *w, ott_status code, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    text_vformat(text, sizeof text, format, arguments);
    va_end(arguments);
    return status_fail(code, "line %d: %s", w->line, text);
}

ott_status jinja_work_alloc(jinja_work *w, int64_t bytes, void **out) {
    if (bytes > JINJA_MEMORY_MOST - w->bytes)
        return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "makes more than %d MiB", JINJA_MEMORY_MOST >> 20);
    w->bytes += bytes;
    return arena_alloc(w->memory, bytes, out);
}

ott_status jinja_work_step(jinja_work *w) {
    if (w->steps++ < JINJA_STEPS_MOST) return OTT_OK;
    return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "takes more than %d steps", JINJA_STEPS_MOST);
}

/* ---- what it is ---- */

const char *jinja_value_kind(const jinja_value *v) {
    static const char *const names[] = {[JINJA_UNDEFINED] = "undefined",   [JINJA_NONE] = "none",
                                        [JINJA_BOOL] = "true or false",    [JINJA_INTEGER] = "a whole number",
                                        [JINJA_REAL] = "a number",         [JINJA_STRING] = "a string",
                                        [JINJA_LIST] = "a list",           [JINJA_DICT] = "a dictionary",
                                        [JINJA_NAMESPACE] = "a namespace", [JINJA_MACRO] = "a macro",
                                        [JINJA_FUNCTION] = "a function"};
    return names[v->kind];
}

bool jinja_value_truth(const jinja_value *v) {
    switch (v->kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE: return false;
    case JINJA_BOOL: return v->truth;
    case JINJA_INTEGER: return v->integer != 0;
    case JINJA_REAL: return v->real != 0;
    case JINJA_STRING: return v->text.bytes > 0;
    case JINJA_LIST: return v->list->count > 0;
    case JINJA_DICT: return v->dict->count > 0;
    case JINJA_NAMESPACE:
    case JINJA_MACRO:
    case JINJA_FUNCTION: return true;
    }
    return false;
}

double jinja_value_real(const jinja_value *v) {
    return v->kind == JINJA_REAL ? v->real : v->kind == JINJA_BOOL ? v->truth : (double)v->integer;
}

static int64_t whole(const jinja_value *v) {
    return v->kind == JINJA_BOOL ? v->truth : v->integer;
}

static int order_texts(text_view a, text_view b) {
    int order = memcmp(a.at, b.at, (size_t)(a.bytes < b.bytes ? a.bytes : b.bytes));
    return order ? (order > 0) - (order < 0) : (a.bytes > b.bytes) - (a.bytes < b.bytes);
}

static bool same_text(text_view a, text_view b) {
    return a.bytes == b.bytes && memcmp(a.at, b.at, (size_t)a.bytes) == 0;
}

static bool equal_lists(const jinja_list *a, const jinja_list *b) {
    if (a->count != b->count || a->tuple != b->tuple) return false;
    for (int64_t i = 0; i < a->count; i++)
        if (!jinja_value_equal(&a->of[i], &b->of[i])) return false;
    return true;
}

static bool equal_dicts(const jinja_dict *a, const jinja_dict *b) {
    if (a->count != b->count) return false;
    for (int64_t i = 0; i < a->count; i++) {
        const jinja_value *other = jinja_dict_find(b, &a->of[i].key);
        if (!other || !jinja_value_equal(&a->of[i].value, other)) return false;
    }
    return true;
}

bool jinja_value_equal(const jinja_value *a, const jinja_value *b) {
    if (jinja_value_is_number(a) && jinja_value_is_number(b))
        return a->kind == JINJA_REAL || b->kind == JINJA_REAL ? jinja_value_real(a) == jinja_value_real(b)
                                                              : whole(a) == whole(b);
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case JINJA_STRING: return same_text(a->text, b->text);
    case JINJA_LIST: return equal_lists(a->list, b->list);
    case JINJA_DICT: return equal_dicts(a->dict, b->dict);
    case JINJA_NAMESPACE: return a->dict == b->dict;
    case JINJA_MACRO: return a->macro == b->macro;
    case JINJA_FUNCTION: return same_text(a->text, b->text);
    default: return true;
    }
}

static ott_status order_lists(const jinja_work *w, const jinja_list *a, const jinja_list *b, int *out) {
    *out = 0;
    for (int64_t i = 0; i < a->count && i < b->count && *out == 0; i++)
        if (!jinja_value_equal(&a->of[i], &b->of[i])) TRY(jinja_value_order(w, &a->of[i], &b->of[i], out));
    if (*out == 0) *out = (a->count > b->count) - (a->count < b->count);
    return OTT_OK;
}

ott_status jinja_value_order(const jinja_work *w, const jinja_value *a, const jinja_value *b, int *out) {
    if (jinja_value_is_number(a) && jinja_value_is_number(b)) {
        if (a->kind != JINJA_REAL && b->kind != JINJA_REAL)
            return *out = (whole(a) > whole(b)) - (whole(a) < whole(b)), OTT_OK;
        double x = jinja_value_real(a), y = jinja_value_real(b);
        return *out = (x > y) - (x < y), OTT_OK;
    }
    if (a->kind == JINJA_STRING && b->kind == JINJA_STRING)
        return *out = order_texts(a->text, b->text), OTT_OK;
    if (a->kind == JINJA_LIST && b->kind == JINJA_LIST) return order_lists(w, a->list, b->list, out);
    return jinja_work_fail(w, OTT_ERR_FORMAT, "%s and %s have no order", jinja_value_kind(a),
                           jinja_value_kind(b));
}

/* ---- lists and dictionaries ---- */

ott_status jinja_value_list(jinja_work *w, jinja_value *out) {
    void *memory;
    TRY(jinja_work_alloc(w, sizeof(jinja_list), &memory));
    *out = (jinja_value){.kind = JINJA_LIST, .list = memory};
    return OTT_OK;
}

/* Notes that `v` is inside: values nested without end would be compared and shown without end. */
static ott_status nest(const jinja_work *w, const jinja_value *v, int *nesting) {
    int inside = v->kind == JINJA_LIST ? v->list->nesting : v->kind == JINJA_DICT ? v->dict->nesting : 0;
    if (inside >= *nesting) *nesting = inside + 1;
    if (*nesting <= JINJA_NESTING_MOST) return OTT_OK;
    return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "a value is nested more than %d deep", JINJA_NESTING_MOST);
}

/* Room for one more of `size` bytes; what is outgrown stays until the end of the rendering. */
static ott_status grow(jinja_work *w, void **of, int64_t count, int64_t *capacity, int64_t size) {
    void *memory;
    int64_t more = *capacity ? 2 * *capacity : 4;
    if (count < *capacity) return OTT_OK;
    TRY(jinja_work_alloc(w, more * size, &memory));
    if (count) memcpy(memory, *of, (size_t)(count * size));
    *of = memory;
    *capacity = more;
    return OTT_OK;
}

ott_status jinja_list_append(jinja_work *w, jinja_list *l, jinja_value v) {
    void *of = l->of;
    TRY(nest(w, &v, &l->nesting));
    TRY(grow(w, &of, l->count, &l->capacity, sizeof v));
    l->of = of;
    l->of[l->count++] = v;
    return OTT_OK;
}

ott_status jinja_value_dict(jinja_work *w, jinja_value *out) {
    void *memory;
    TRY(jinja_work_alloc(w, sizeof(jinja_dict), &memory));
    *out = (jinja_value){.kind = JINJA_DICT, .dict = memory};
    return OTT_OK;
}

const jinja_value *jinja_dict_find(const jinja_dict *d, const jinja_value *key) {
    for (int64_t i = 0; i < d->count; i++)
        if (jinja_value_equal(&d->of[i].key, key)) return &d->of[i].value;
    return NULL;
}

const jinja_value *jinja_dict_find_text(const jinja_dict *d, text_view key) {
    const jinja_value text = jinja_value_string(key);
    return jinja_dict_find(d, &text);
}

ott_status jinja_dict_set(jinja_work *w, jinja_dict *d, jinja_value key, jinja_value value) {
    void *of = d->of;
    TRY(nest(w, &key, &d->nesting));
    TRY(nest(w, &value, &d->nesting));
    for (int64_t i = 0; i < d->count; i++)
        if (jinja_value_equal(&d->of[i].key, &key)) return d->of[i].value = value, OTT_OK;
    TRY(grow(w, &of, d->count, &d->capacity, sizeof(jinja_entry)));
    d->of = of;
    d->of[d->count++] = (jinja_entry){key, value};
    return OTT_OK;
}

/* ---- from JSON ---- */

static text_view borrow(const char *text, size_t bytes) {
    return (text_view){text, (int64_t)bytes};
}

static ott_status list_from_json(jinja_work *w, const json_t *json, jinja_value *out) {
    jinja_value element;
    TRY(jinja_value_list(w, out));
    for (size_t i = 0; i < json_array_size(json); i++) {
        TRY(jinja_value_from_json(w, json_array_get(json, i), &element));
        TRY(jinja_list_append(w, out->list, element));
    }
    return OTT_OK;
}

static ott_status dict_from_json(jinja_work *w, const json_t *json, jinja_value *out) {
    jinja_value value;
    json_t *object = (json_t *)json; /* jansson iterates over what is not const; nothing is changed */
    TRY(jinja_value_dict(w, out));
    for (void *i = json_object_iter(object); i; i = json_object_iter_next(object, i)) {
        const char *key = json_object_iter_key(i);
        TRY(jinja_value_from_json(w, json_object_iter_value(i), &value));
        TRY(jinja_dict_set(w, out->dict, jinja_value_string(borrow(key, strlen(key))), value));
    }
    return OTT_OK;
}

ott_status jinja_value_from_json(jinja_work *w, const json_t *json, jinja_value *out) {
    switch (json_typeof(json)) {
    case JSON_OBJECT: return dict_from_json(w, json, out);
    case JSON_ARRAY: return list_from_json(w, json, out);
    case JSON_STRING:
        *out = jinja_value_string(borrow(json_string_value(json), json_string_length(json)));
        break;
    case JSON_INTEGER: *out = jinja_value_integer(json_integer_value(json)); break;
    case JSON_REAL: *out = (jinja_value){.kind = JINJA_REAL, .real = json_real_value(json)}; break;
    case JSON_TRUE: *out = jinja_value_bool(true); break;
    case JSON_FALSE: *out = jinja_value_bool(false); break;
    case JSON_NULL: *out = (jinja_value){.kind = JINJA_NONE}; break;
    }
    return OTT_OK;
}

/* ---- texts ---- */

ott_status jinja_value_copy_text(jinja_work *w, const char *at, int64_t bytes, jinja_value *out) {
    void *memory;
    TRY(jinja_work_alloc(w, bytes + 1, &memory));
    if (bytes) memcpy(memory, at, (size_t)bytes);
    *out = jinja_value_string((text_view){memory, bytes});
    return OTT_OK;
}

int64_t jinja_text_length(text_view text) {
    int64_t length = 0;
    for (int64_t i = 0; i < text.bytes; i += text_character_bytes((unsigned char)text.at[i])) length++;
    return length;
}

const char *jinja_text_find(text_view text, text_view part) {
    const char *at = text.at, *end = text.at + text.bytes;
    while (
        (at = end - at >= part.bytes ? memchr(at, part.at[0], (size_t)(end - at - part.bytes + 1)) : NULL)) {
        if (memcmp(at, part.at, (size_t)part.bytes) == 0) return at;
        at++;
    }
    return NULL;
}

bool jinja_text_has(text_view text, text_view part) {
    return part.bytes == 0 || jinja_text_find(text, part) != NULL;
}

static ott_status list_characters(jinja_work *w, text_view text, jinja_list *l) {
    for (int64_t i = 0, bytes; i < text.bytes; i += bytes) {
        bytes = text_character_bytes((unsigned char)text.at[i]);
        TRY(jinja_list_append(w, l, jinja_value_string((text_view){text.at + i, bytes})));
    }
    return OTT_OK;
}

ott_status jinja_value_elements(jinja_work *w, const jinja_value *v, jinja_list **out) {
    jinja_value made;
    if (v->kind == JINJA_LIST) return *out = v->list, OTT_OK;
    if (v->kind != JINJA_STRING && v->kind != JINJA_DICT && v->kind != JINJA_UNDEFINED)
        return jinja_work_fail(w, OTT_ERR_FORMAT, "%s cannot be gone over", jinja_value_kind(v));
    TRY(jinja_value_list(w, &made));
    *out = made.list;
    if (v->kind == JINJA_STRING) return list_characters(w, v->text, *out);
    for (int64_t i = 0; v->kind == JINJA_DICT && i < v->dict->count; i++)
        TRY(jinja_list_append(w, *out, v->dict->of[i].key));
    return OTT_OK;
}

ott_status jinja_member(const jinja_work *w, const jinja_value *v, text_view name, jinja_value *out) {
    *out = jinja_value_undefined(name);
    if (v->kind == JINJA_UNDEFINED)
        return jinja_work_fail(w, OTT_ERR_FORMAT, "\"%.*s\" is undefined, and has no \"%.*s\"",
                               (int)v->text.bytes, v->text.at, (int)name.bytes, name.at);
    if (v->kind != JINJA_DICT && v->kind != JINJA_NAMESPACE) return OTT_OK;
    const jinja_value *member = jinja_dict_find_text(v->dict, name);
    if (member) *out = *member;
    return OTT_OK;
}

ott_status jinja_value_items(jinja_work *w, const jinja_value *v, jinja_value *out) {
    TRY(jinja_value_list(w, out));
    if (v->kind == JINJA_UNDEFINED) return OTT_OK;
    if (v->kind != JINJA_DICT)
        return jinja_work_fail(w, OTT_ERR_FORMAT, "%s has no items", jinja_value_kind(v));
    for (int64_t i = 0; i < v->dict->count; i++) {
        jinja_value pair;
        TRY(jinja_value_list(w, &pair));
        pair.list->tuple = true;
        TRY(jinja_list_append(w, pair.list, v->dict->of[i].key));
        TRY(jinja_list_append(w, pair.list, v->dict->of[i].value));
        TRY(jinja_list_append(w, out->list, pair));
    }
    return OTT_OK;
}

/* ---- arguments ---- */

const jinja_value *jinja_argument(const jinja_arguments *a, int place, const char *name) {
    for (int i = 0, at = 0; i < a->count; i++) {
        if (a->name[i].bytes ? name && text_is(a->name[i], name) : at == place) return &a->value[i];
        at += a->name[i].bytes == 0;
    }
    return NULL;
}

ott_status jinja_arguments_check(const jinja_work *w, const jinja_arguments *a, const char *of, int most,
                                 const char *const *names) {
    int places = 0;
    for (int i = 0; i < a->count; i++) {
        bool known = a->name[i].bytes == 0;
        places += known;
        for (int n = 0; !known && names && names[n]; n++) known = text_is(a->name[i], names[n]);
        if (!known || places > most)
            return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "%s: argument %d is not built", of, i + 1);
    }
    return OTT_OK;
}
