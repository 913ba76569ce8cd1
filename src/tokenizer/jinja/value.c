/* jinja/value: creates, compares and accesses values, and counts memory and steps. */
#include "tokenizer/jinja/value.h"
#include "base/text/text.h"
#include <stdarg.h>

/* ---- work ---- */

ott_status jinja_work_fail(const jinja_work *w, ott_status code, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    text_vformat(text, sizeof text, format, arguments);
    va_end(arguments);
    return status_fail(code, "line %d: %s", w->line, text);
}

enum { STEPS_BETWEEN_CHECKS = 1 << 16 }; /* this number of steps takes a few milliseconds */

ott_status jinja_work_steps(jinja_work *w, int64_t count) {
    int64_t before = w->steps / STEPS_BETWEEN_CHECKS;
    w->steps += count;
    if (w->steps > w->steps_most)
        return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "takes more than %lld steps",
                               (long long)(w->settings->budget ? w->settings->budget->most : w->steps_most));
    return w->steps / STEPS_BETWEEN_CHECKS == before ? OTT_OK : cancellation_check(w->settings->cancellation);
}

ott_status(jinja_work_alloc)(jinja_work *w, int64_t bytes, void **out) {
    if (bytes > JINJA_MEMORY_MOST - w->bytes)
        return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "makes more than %d MiB", JINJA_MEMORY_MOST >> 20);
    w->bytes += bytes;
    TRY(jinja_work_steps(w, bytes / 64));
    return arena_alloc(w->memory, bytes, out);
}

/* ---- kinds and comparisons ---- */

const char *jinja_value_kind(const jinja_value *v) {
    static const char *const names[] = {[JINJA_UNDEFINED] = "undefined",   [JINJA_NONE] = "none",
                                        [JINJA_BOOL] = "true or false",    [JINJA_INTEGER] = "a whole number",
                                        [JINJA_REAL] = "a number",         [JINJA_STRING] = "a string",
                                        [JINJA_LIST] = "a list",           [JINJA_DICT] = "a dictionary",
                                        [JINJA_NAMESPACE] = "a namespace", [JINJA_LOOP] = "a loop",
                                        [JINJA_MACRO] = "a macro",         [JINJA_FUNCTION] = "a function"};
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
    case JINJA_LOOP:
    case JINJA_MACRO:
    case JINJA_FUNCTION: return true;
    }
    return false;
}

double jinja_value_real(const jinja_value *v) {
    return v->kind == JINJA_REAL ? v->real : v->kind == JINJA_BOOL ? v->truth : (double)v->integer;
}

static int64_t integer_of(const jinja_value *v) {
    return v->kind == JINJA_BOOL ? v->truth : v->integer;
}

static int order_texts(text_view a, text_view b) {
    int order = memcmp(a.at, b.at, (size_t)(a.bytes < b.bytes ? a.bytes : b.bytes));
    return order ? (order > 0) - (order < 0) : (a.bytes > b.bytes) - (a.bytes < b.bytes);
}

static bool same_text(text_view a, text_view b) {
    return a.bytes == b.bytes && memcmp(a.at, b.at, (size_t)a.bytes) == 0;
}

static ott_status equal_lists(jinja_work *w, const jinja_list *a, const jinja_list *b, bool *out) {
    *out = a->count == b->count && a->tuple == b->tuple;
    for (int64_t i = 0; *out && a != b && i < a->count; i++)
        TRY(jinja_value_equal(w, &a->items[i], &b->items[i], out));
    return OTT_OK;
}

static ott_status equal_dicts(jinja_work *w, const jinja_dict *a, const jinja_dict *b, bool *out) {
    *out = a->count == b->count;
    for (int64_t i = 0; *out && a != b && i < a->count; i++) {
        const jinja_value *other;
        TRY(jinja_dict_find(w, b, &a->entries[i].key, &other));
        *out = other != NULL;
        if (other) TRY(jinja_value_equal(w, &a->entries[i].value, other, out));
    }
    return OTT_OK;
}

static ott_status equal_texts(jinja_work *w, text_view a, text_view b, bool *out) {
    *out = false;
    if (a.bytes == b.bytes) TRY(jinja_work_steps(w, a.bytes / 64));
    return *out = same_text(a, b), OTT_OK;
}

ott_status jinja_value_equal(jinja_work *w, const jinja_value *a, const jinja_value *b, bool *out) {
    TRY(jinja_work_steps(w, 1));
    *out = false;
    if (jinja_value_is_number(a) && jinja_value_is_number(b))
        *out = a->kind == JINJA_REAL || b->kind == JINJA_REAL ? jinja_value_real(a) == jinja_value_real(b)
                                                              : integer_of(a) == integer_of(b);
    if (a->kind != b->kind) return OTT_OK;
    switch (a->kind) {
    case JINJA_STRING: return equal_texts(w, a->text, b->text, out);
    case JINJA_LIST: return equal_lists(w, a->list, b->list, out);
    case JINJA_DICT: return equal_dicts(w, a->dict, b->dict, out);
    case JINJA_NAMESPACE: *out = a->dict == b->dict; break;
    case JINJA_LOOP: *out = a->loop == b->loop; break;
    case JINJA_MACRO: *out = a->macro == b->macro; break;
    case JINJA_FUNCTION: *out = same_text(a->text, b->text); break;
    case JINJA_UNDEFINED:
    case JINJA_NONE: *out = true; break;
    case JINJA_BOOL:
    case JINJA_INTEGER:
    case JINJA_REAL: break; /* numbers */
    }
    return OTT_OK;
}

static ott_status order_lists(jinja_work *w, const jinja_list *a, const jinja_list *b, int *out) {
    *out = 0;
    for (int64_t i = 0; i < a->count && i < b->count && *out == 0; i++) {
        bool equal;
        TRY(jinja_value_equal(w, &a->items[i], &b->items[i], &equal));
        if (!equal) return jinja_value_order(w, &a->items[i], &b->items[i], out);
    }
    *out = (a->count > b->count) - (a->count < b->count);
    return OTT_OK;
}

ott_status jinja_value_order(jinja_work *w, const jinja_value *a, const jinja_value *b, int *out) {
    TRY(jinja_work_steps(w, 1));
    if (jinja_value_is_number(a) && jinja_value_is_number(b)) {
        if (a->kind != JINJA_REAL && b->kind != JINJA_REAL)
            return *out = (integer_of(a) > integer_of(b)) - (integer_of(a) < integer_of(b)), OTT_OK;
        double x = jinja_value_real(a), y = jinja_value_real(b);
        return *out = (x > y) - (x < y), OTT_OK;
    }
    if (a->kind == JINJA_STRING && b->kind == JINJA_STRING) {
        TRY(jinja_work_read(w, a->text.bytes < b->text.bytes ? a->text.bytes : b->text.bytes));
        return *out = order_texts(a->text, b->text), OTT_OK;
    }
    if (a->kind == JINJA_LIST && b->kind == JINJA_LIST) return order_lists(w, a->list, b->list, out);
    return jinja_work_fail(w, OTT_ERR_FORMAT, "%s and %s cannot be compared", jinja_value_kind(a),
                           jinja_value_kind(b));
}

ott_status jinja_value_in(jinja_work *w, const jinja_value *a, const jinja_value *b, bool *out) {
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

/* ---- lists and dictionaries ---- */

ott_status jinja_value_list(jinja_work *w, jinja_value *out) {
    *out = (jinja_value){.kind = JINJA_LIST};
    return jinja_work_alloc(w, sizeof(jinja_list), &out->list);
}

/* *nesting = depth of a list or dictionary that gets the element v. The limit also prevents cycles. */
static ott_status record_nesting(const jinja_work *w, const jinja_value *v, int *nesting) {
    int inside = v->kind == JINJA_LIST ? v->list->nesting : v->kind == JINJA_DICT ? v->dict->nesting : 0;
    if (inside >= *nesting) *nesting = inside + 1;
    if (*nesting <= JINJA_NESTING_MOST) return OTT_OK;
    return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "a value is nested more than %d deep", JINJA_NESTING_MOST);
}

/* Grows an array of elements of `size` bytes if it is full. Its old memory stays until the rendering ends. */
static ott_status grow(jinja_work *w, void **array, int64_t count, int64_t *capacity, int64_t size) {
    void *memory;
    int64_t more = *capacity ? 2 * *capacity : 4;
    if (count < *capacity) return OTT_OK;
    TRY(jinja_work_alloc(w, more * size, &memory));
    if (count) memcpy(memory, *array, (size_t)(count * size));
    *array = memory;
    return *capacity = more, OTT_OK;
}

ott_status jinja_list_append(jinja_work *w, jinja_list *l, jinja_value v) {
    void *items = l->items;
    TRY(record_nesting(w, &v, &l->nesting));
    TRY(grow(w, &items, l->count, &l->capacity, sizeof v));
    l->items = items;
    l->items[l->count++] = v;
    return OTT_OK;
}

ott_status jinja_value_dict(jinja_work *w, jinja_value *out) {
    *out = (jinja_value){.kind = JINJA_DICT};
    return jinja_work_alloc(w, sizeof(jinja_dict), &out->dict);
}

/* Equal keys (1, 1.0, true) have equal hashes; lists of equal length do, too. The low bits select the slot. A
   text's hash is mixed again with swapped halves, so that the text's last bytes change the low bits. */
static ott_status hash_key(jinja_work *w, const jinja_value *key, uint64_t *out) {
    double real;
    *out = text_hash_mix(0, (uint64_t)key->kind);
    switch (key->kind) {
    case JINJA_STRING:
        TRY(jinja_work_steps(w, key->text.bytes / 64));
        *out = text_hash(key->text.at, key->text.bytes);
        *out = text_hash_mix(*out >> 32 | *out << 32, 0);
        break;
    case JINJA_BOOL:
    case JINJA_INTEGER:
    case JINJA_REAL:
        real = jinja_value_real(key) + 0.0; /* so that -0.0 and 0.0 have equal hashes */
        memcpy(out, &real, sizeof real);
        *out = text_hash_mix(1, *out >> 32 | *out << 32);
        break;
    case JINJA_LIST: *out = text_hash_mix(*out, (uint64_t)key->list->count); break;
    default: break;
    }
    return OTT_OK;
}

enum { SEARCHED_MOST = 8 }; /* maximum entries of a dictionary without slots */

/* Finds a key. *found: index of its entry, or -1. *slot: the key's slot or a free slot; NULL: no slots. */
static ott_status find_slot(jinja_work *w, const jinja_dict *d, const jinja_value *key, uint64_t hash,
                            int64_t *found, int32_t **slot) {
    const uint64_t mask = d->slots ? 2 * (uint64_t)d->capacity - 1 : 0;
    *slot = NULL;
    for (uint64_t i = 0;; i++) {
        *slot = d->slots ? &d->slots[(hash + i) & mask] : NULL;
        *found = d->slots ? **slot - 1 : i < (uint64_t)d->count ? (int64_t)i : -1;
        if (*found < 0) return OTT_OK;
        bool same = d->entries[*found].hash == hash;
        TRY(jinja_work_steps(w, d->slots != NULL));
        if (same) TRY(jinja_value_equal(w, &d->entries[*found].key, key, &same));
        if (same) return OTT_OK;
    }
}

ott_status jinja_dict_find(jinja_work *w, const jinja_dict *d, const jinja_value *key,
                           const jinja_value **out) {
    uint64_t hash;
    int64_t found;
    int32_t *slot;
    *out = NULL;
    if (d->count == 0) return OTT_OK;
    TRY(hash_key(w, key, &hash));
    TRY(find_slot(w, d, key, hash, &found, &slot));
    if (found >= 0) *out = &d->entries[found].value;
    return OTT_OK;
}

ott_status jinja_dict_find_text(jinja_work *w, const jinja_dict *d, text_view key, const jinja_value **out) {
    const jinja_value text = jinja_value_string(key);
    return jinja_dict_find(w, d, &text, out);
}

static void fill_slots(jinja_dict *d, int64_t entry) {
    const uint64_t mask = 2 * (uint64_t)d->capacity - 1;
    uint64_t i = d->entries[entry].hash;
    while (d->slots[i & mask]) i++;
    d->slots[i & mask] = (int32_t)entry + 1;
}

static ott_status grow_dict(jinja_work *w, jinja_dict *d) {
    void *entries = d->entries, *slots;
    if (d->count < d->capacity) return OTT_OK;
    TRY(grow(w, &entries, d->count, &d->capacity, sizeof(jinja_entry)));
    d->entries = entries;
    if (d->capacity <= SEARCHED_MOST) return OTT_OK;
    TRY(jinja_work_alloc(w, 2 * d->capacity * (int64_t)sizeof *d->slots, &slots));
    d->slots = slots;
    for (int64_t i = 0; i < d->count; i++) fill_slots(d, i);
    return OTT_OK;
}

ott_status jinja_dict_set(jinja_work *w, jinja_dict *d, jinja_value key, jinja_value value) {
    uint64_t hash;
    int64_t found;
    int32_t *slot;
    TRY(record_nesting(w, &key, &d->nesting));
    TRY(record_nesting(w, &value, &d->nesting));
    TRY(hash_key(w, &key, &hash));
    TRY(jinja_work_steps(w, 1));
    TRY(find_slot(w, d, &key, hash, &found, &slot));
    if (found >= 0) return d->entries[found].value = value, OTT_OK;
    TRY(grow_dict(w, d));
    d->entries[d->count] = (jinja_entry){hash, key, value};
    if (d->slots) fill_slots(d, d->count);
    d->count++;
    return OTT_OK;
}

/* Removes the last entry. Its slot was filled last, so no search for another entry passes through it. */
void jinja_dict_drop_last(jinja_dict *d) {
    d->count--;
    if (!d->slots) return;
    const uint64_t mask = 2 * (uint64_t)d->capacity - 1;
    uint64_t i = d->entries[d->count].hash;
    while (d->slots[i & mask] != d->count + 1) i++;
    d->slots[i & mask] = 0;
}

/* ---- from JSON ---- */

static text_view view_bytes(const char *text, size_t bytes) {
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
    json_t *object = (json_t *)json; /* jansson's iterators need a non-const object; it is not changed */
    TRY(jinja_value_dict(w, out));
    for (void *i = json_object_iter(object); i; i = json_object_iter_next(object, i)) {
        const char *key = json_object_iter_key(i);
        TRY(jinja_value_from_json(w, json_object_iter_value(i), &value));
        TRY(jinja_dict_set(w, out->dict, jinja_value_string(view_bytes(key, strlen(key))), value));
    }
    return OTT_OK;
}

ott_status jinja_value_from_json(jinja_work *w, const json_t *json, jinja_value *out) {
    switch (json_typeof(json)) {
    case JSON_OBJECT: return dict_from_json(w, json, out);
    case JSON_ARRAY: return list_from_json(w, json, out);
    case JSON_STRING:
        *out = jinja_value_string(view_bytes(json_string_value(json), json_string_length(json)));
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

ott_status jinja_value_take_text(jinja_work *w, str *text, ott_status status, jinja_value *out) {
    if (status == OTT_OK) status = str_finish(text);
    if (status == OTT_OK) status = jinja_value_copy_text(w, text->text ? text->text : "", text->length, out);
    str_free(text);
    return status;
}

ott_status jinja_text_length(jinja_work *w, text_view text, int64_t *out) {
    TRY(jinja_work_write(w, text.bytes));
    return *out = text_characters(text), OTT_OK;
}

ott_status jinja_text_find(jinja_work *w, text_view text, text_view part, const char **out) {
    *out = memmem(text.at, (size_t)text.bytes, part.at, (size_t)part.bytes);
    return jinja_work_read(w, *out ? *out - text.at + part.bytes : text.bytes);
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
        return jinja_work_fail(w, OTT_ERR_FORMAT, "%s cannot be iterated over", jinja_value_kind(v));
    TRY(jinja_value_list(w, &made));
    *out = made.list;
    if (v->kind == JINJA_STRING) return list_characters(w, v->text, *out);
    for (int64_t i = 0; v->kind == JINJA_DICT && i < v->dict->count; i++)
        TRY(jinja_list_append(w, *out, v->dict->entries[i].key));
    return OTT_OK;
}

/* True if the loop has another iteration. If so, records that the output depends on the next message. */
static bool has_next(jinja_work *w, const jinja_loop *loop) {
    const jinja_list *l = loop->over;
    bool next = loop->index + 1 < jinja_list_count(w, l);
    if (l->grows && next) jinja_work_see(w, l->skipped + loop->index + 2);
    return next;
}

static int64_t loop_length(jinja_work *w, const jinja_loop *loop) {
    if (loop->over->grows) jinja_work_see(w, INT64_MAX);
    return jinja_list_count(w, loop->over);
}

static void loop_member(jinja_work *w, const jinja_loop *loop, text_view name, jinja_value *out) {
    const jinja_value *items = loop->over->items;
    int64_t i = loop->index;
    if (text_is(name, "index")) *out = jinja_value_integer(i + 1);
    if (text_is(name, "index0")) *out = jinja_value_integer(i);
    if (text_is(name, "first")) *out = jinja_value_bool(i == 0);
    if (text_is(name, "last")) *out = jinja_value_bool(!has_next(w, loop));
    if (text_is(name, "length")) *out = jinja_value_integer(loop_length(w, loop));
    if (text_is(name, "revindex")) *out = jinja_value_integer(loop_length(w, loop) - i);
    if (text_is(name, "revindex0")) *out = jinja_value_integer(loop_length(w, loop) - i - 1);
    if (text_is(name, "previtem") && i > 0) *out = items[i - 1];
    if (text_is(name, "nextitem") && has_next(w, loop)) *out = items[i + 1];
}

ott_status jinja_member(jinja_work *w, const jinja_value *v, text_view name, jinja_value *out) {
    *out = jinja_value_undefined(name);
    if (v->kind == JINJA_LOOP) return loop_member(w, v->loop, name, out), OTT_OK;
    if (v->kind == JINJA_UNDEFINED)
        return jinja_work_fail(w, OTT_ERR_FORMAT, "\"%.*s\" is undefined, and has no \"%.*s\"",
                               (int)v->text.bytes, v->text.at, (int)name.bytes, name.at);
    if (v->kind != JINJA_DICT && v->kind != JINJA_NAMESPACE) return OTT_OK;
    const jinja_value *member;
    TRY(jinja_dict_find_text(w, v->dict, name, &member));
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
        TRY(jinja_list_append(w, pair.list, v->dict->entries[i].key));
        TRY(jinja_list_append(w, pair.list, v->dict->entries[i].value));
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

ott_status jinja_arguments_check(const jinja_work *w, const jinja_arguments *a, const char *function,
                                 int most, const char *const *names) {
    int places = 0;
    for (int i = 0; i < a->count; i++) {
        bool known = a->name[i].bytes == 0;
        places += known;
        for (int n = 0; !known && names && names[n]; n++) known = text_is(a->name[i], names[n]);
        if (!known || places > most)
            return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "%s: argument %d is not supported", function,
                                   i + 1);
    }
    return OTT_OK;
}

const jinja_builtin *jinja_builtin_find(const jinja_builtin *table, text_view name) {
    while (table->name && !text_is(name, table->name)) table++;
    return table->name ? table : NULL;
}

ott_status jinja_builtin_call(jinja_work *w, const jinja_builtin *b, const jinja_value *v,
                              const jinja_arguments *a, jinja_value *out) {
    STATUS_REQUIRE(b); /* the caller looked it up */
    if (b->positional != JINJA_ARGUMENTS_ANY)
        TRY(jinja_arguments_check(w, a, b->name, b->positional, b->keywords));
    return b->apply(w, &(jinja_call){b->name, v, a, b->option}, out);
}
