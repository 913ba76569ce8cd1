/* jinja/access: converts JSON, lists elements, and reads members and arguments. */
#include "tokenizer/jinja/value.h"

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
        TRY(jinja_value_from_json(w, json_object_iter_value(i), &value));
        TRY(jinja_dict_set(w, out->dict, jinja_value_string(text_view_of(json_object_iter_key(i))), value));
    }
    return OTT_OK;
}

ott_status jinja_value_from_json(jinja_work *w, const json_t *json, jinja_value *out) {
    switch (json_typeof(json)) {
    case JSON_OBJECT: return dict_from_json(w, json, out);
    case JSON_ARRAY: return list_from_json(w, json, out);
    case JSON_STRING:
        *out = jinja_value_string((text_view){json_string_value(json), (int64_t)json_string_length(json)});
        break;
    case JSON_INTEGER: *out = jinja_value_integer(json_integer_value(json)); break;
    case JSON_REAL: *out = (jinja_value){.kind = JINJA_REAL, .real = json_real_value(json)}; break;
    case JSON_TRUE: *out = jinja_value_bool(true); break;
    case JSON_FALSE: *out = jinja_value_bool(false); break;
    case JSON_NULL: *out = (jinja_value){.kind = JINJA_NONE}; break;
    }
    return OTT_OK;
}

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

ott_status jinja_value_elements(jinja_work *w, const jinja_value *v, jinja_list **out) {
    jinja_value made;
    if (v->kind == JINJA_LIST) return *out = v->list, OTT_OK;
    if (v->kind != JINJA_STRING && v->kind != JINJA_DICT && v->kind != JINJA_UNDEFINED)
        return jinja_work_fail(w, OTT_ERR_FORMAT, "%s cannot be iterated over", jinja_value_kind(v));
    TRY(jinja_value_list(w, &made));
    *out = made.list;
    if (v->kind == JINJA_STRING) {
        for (int64_t i = 0, bytes; i < v->text.bytes; i += bytes) {
            bytes = text_character_bytes((unsigned char)v->text.at[i]);
            TRY(jinja_list_append(w, *out, jinja_value_string((text_view){v->text.at + i, bytes})));
        }
        return OTT_OK;
    }
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

static void loop_member(jinja_work *w, const jinja_loop *loop, text_view name, jinja_value *out) {
    const jinja_value *items = loop->over->items;
    int64_t i = loop->index, length = jinja_list_count(w, loop->over);
    if (loop->over->grows &&
        (text_is(name, "length") || text_is(name, "revindex") || text_is(name, "revindex0")))
        jinja_work_see(w, INT64_MAX);
    if (text_is(name, "index")) *out = jinja_value_integer(i + 1);
    if (text_is(name, "index0")) *out = jinja_value_integer(i);
    if (text_is(name, "first")) *out = jinja_value_bool(i == 0);
    if (text_is(name, "last")) *out = jinja_value_bool(!has_next(w, loop));
    if (text_is(name, "length")) *out = jinja_value_integer(length);
    if (text_is(name, "revindex")) *out = jinja_value_integer(length - i);
    if (text_is(name, "revindex0")) *out = jinja_value_integer(length - i - 1);
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

ott_status jinja_items(jinja_work *w, const jinja_call *c, jinja_value *out) {
    const jinja_value *v = c->v;
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
