/* jinja/value: creates and compares values, and counts memory and steps. */
#include "tokenizer/jinja/value.h"

/* ---- work ---- */

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
    default: return true;
    }
}

double jinja_value_real(const jinja_value *v) {
    return v->kind == JINJA_REAL ? v->real : v->kind == JINJA_BOOL ? v->truth : (double)v->integer;
}

int64_t jinja_value_as_integer(const jinja_value *v) {
    return v->kind == JINJA_BOOL ? v->truth : v->integer;
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

ott_status jinja_value_equal(jinja_work *w, const jinja_value *a, const jinja_value *b, bool *out) {
    TRY(jinja_work_steps(w, 1));
    *out = false;
    if (jinja_value_is_number(a) && jinja_value_is_number(b))
        *out = a->kind == JINJA_REAL || b->kind == JINJA_REAL
                   ? jinja_value_real(a) == jinja_value_real(b)
                   : jinja_value_as_integer(a) == jinja_value_as_integer(b);
    if (a->kind != b->kind) return OTT_OK;
    switch (a->kind) {
    case JINJA_STRING:
        if (a->text.bytes == b->text.bytes) TRY(jinja_work_steps(w, a->text.bytes / 64));
        return *out = text_view_same(a->text, b->text), OTT_OK;
    case JINJA_LIST: return equal_lists(w, a->list, b->list, out);
    case JINJA_DICT: return equal_dicts(w, a->dict, b->dict, out);
    case JINJA_NAMESPACE: *out = a->dict == b->dict; break;
    case JINJA_LOOP: *out = a->loop == b->loop; break;
    case JINJA_MACRO: *out = a->macro == b->macro; break;
    case JINJA_FUNCTION: *out = text_view_same(a->text, b->text); break;
    case JINJA_UNDEFINED:
    case JINJA_NONE: *out = true; break;
    default: break; /* numbers */
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
            return *out = (jinja_value_as_integer(a) > jinja_value_as_integer(b)) -
                          (jinja_value_as_integer(a) < jinja_value_as_integer(b)),
                   OTT_OK;
        double x = jinja_value_real(a), y = jinja_value_real(b);
        return *out = (x > y) - (x < y), OTT_OK;
    }
    if (a->kind == JINJA_STRING && b->kind == JINJA_STRING) {
        int64_t shared = a->text.bytes < b->text.bytes ? a->text.bytes : b->text.bytes;
        TRY(jinja_work_read(w, shared));
        *out = memcmp(a->text.at, b->text.at, (size_t)shared);
        if (*out == 0) *out = (a->text.bytes > b->text.bytes) - (a->text.bytes < b->text.bytes);
        return OTT_OK;
    }
    if (a->kind == JINJA_LIST && b->kind == JINJA_LIST) return order_lists(w, a->list, b->list, out);
    return jinja_work_fail(w, OTT_ERR_FORMAT, "%s and %s cannot be compared", jinja_value_kind(a),
                           jinja_value_kind(b));
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
static ott_status grow_array(jinja_work *w, void **array, int64_t count, int64_t *capacity, int64_t size) {
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
    TRY(grow_array(w, &items, l->count, &l->capacity, sizeof v));
    l->items = items;
    l->items[l->count++] = v;
    return OTT_OK;
}

ott_status jinja_list_append_all(jinja_work *w, jinja_list *l, const jinja_list *from) {
    const int64_t count = from->count;
    TRY(jinja_work_steps(w, count));
    for (int64_t i = 0; i < count; i++) TRY(jinja_list_append(w, l, from->items[i]));
    return OTT_OK;
}

ott_status jinja_value_list_copy(jinja_work *w, const jinja_list *from, jinja_value *out) {
    TRY(jinja_value_list(w, out));
    out->list->tuple = from->tuple;
    return jinja_list_append_all(w, out->list, from);
}

ott_status jinja_value_fix(jinja_work *w, jinja_value *v) {
    jinja_value snapshot;
    if (v->kind != JINJA_LIST || !v->list->grows) return OTT_OK;
    jinja_work_see(w, INT64_MAX);
    TRY(jinja_value_list(w, &snapshot));
    *snapshot.list = *v->list;
    snapshot.list->count = snapshot.list->capacity = jinja_list_count(w, v->list);
    snapshot.list->grows = false;
    return *v = snapshot, OTT_OK;
}

bool jinja_value_truth_now(jinja_work *w, const jinja_value *v) {
    if (v->kind != JINJA_LIST || !v->list->grows) return jinja_value_truth(v);
    bool any = jinja_list_count(w, v->list) > 0;
    if (any) jinja_work_see(w, v->list->skipped + 1);
    return any;
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
static ott_status find_key_slot(jinja_work *w, const jinja_dict *d, const jinja_value *key, uint64_t hash,
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
    TRY(find_key_slot(w, d, key, hash, &found, &slot));
    if (found >= 0) *out = &d->entries[found].value;
    return OTT_OK;
}

ott_status jinja_dict_find_text(jinja_work *w, const jinja_dict *d, text_view key, const jinja_value **out) {
    const jinja_value text = jinja_value_string(key);
    return jinja_dict_find(w, d, &text, out);
}

static void fill_key_slot(jinja_dict *d, int64_t entry) {
    const uint64_t mask = 2 * (uint64_t)d->capacity - 1;
    uint64_t i = d->entries[entry].hash;
    while (d->slots[i & mask]) i++;
    d->slots[i & mask] = (int32_t)entry + 1;
}

static ott_status grow_dict(jinja_work *w, jinja_dict *d) {
    void *entries = d->entries, *slots;
    if (d->count < d->capacity) return OTT_OK;
    TRY(grow_array(w, &entries, d->count, &d->capacity, sizeof(jinja_entry)));
    d->entries = entries;
    if (d->capacity <= SEARCHED_MOST) return OTT_OK;
    TRY(jinja_work_alloc(w, 2 * d->capacity * (int64_t)sizeof *d->slots, &slots));
    d->slots = slots;
    for (int64_t i = 0; i < d->count; i++) fill_key_slot(d, i);
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
    TRY(find_key_slot(w, d, &key, hash, &found, &slot));
    if (found >= 0) return d->entries[found].value = value, OTT_OK;
    TRY(grow_dict(w, d));
    d->entries[d->count] = (jinja_entry){hash, key, value};
    if (d->slots) fill_key_slot(d, d->count);
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
