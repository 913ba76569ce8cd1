/* formats/json_edit: finds members by quotes and brackets, which is enough because the JSON is valid. */
#include "formats/json_edit.h"
#include <stdlib.h>
#include <string.h>

/* Byte offsets of a member "key": value. */
typedef struct member {
    int64_t key, key_end; /* offsets of the key, including its quotes */
    int64_t value, value_end;
    int64_t before; /* end of the previous value, or the offset after '{' */
} member;

static int64_t pass_spaces(const str *s, int64_t at) {
    while (at < s->length && strchr(" \t\r\n", s->text[at])) at++;
    return at;
}

static int64_t skip_text(const str *s, int64_t at) {
    for (at++; at < s->length && s->text[at] != '"'; at++)
        if (s->text[at] == '\\') at++;
    return at + 1;
}

static int64_t skip_member_value(const str *s, int64_t at) {
    int depth = 0;
    while (at < s->length) {
        char c = s->text[at];
        if (depth == 0 && strchr(",}] \t\r\n", c)) return at; /* `at` is the end of a number or word */
        if (c == '"')
            at = skip_text(s, at);
        else
            at++;
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        if (depth == 0 && strchr("}]\"", c)) return at;
    }
    return s->length;
}

/* Finds the next member. `before` is the offset after the previous value. False at the end of the object. */
static bool next_member(const str *s, int64_t before, member *m) {
    m->before = before;
    m->key = pass_spaces(s, before);
    if (m->key < s->length && s->text[m->key] == ',') m->key = pass_spaces(s, m->key + 1);
    if (m->key >= s->length || s->text[m->key] != '"') return false;
    m->key_end = skip_text(s, m->key);
    m->value = pass_spaces(s, pass_spaces(s, m->key_end) + 1); /* offset after the colon and spaces */
    m->value_end = skip_member_value(s, m->value);
    return true;
}

static int64_t object_begin(const str *s) {
    return pass_spaces(s, 0) + 1; /* offset after the opening brace */
}

static bool find_member(const str *s, const char *key, member *m) {
    int64_t length = (int64_t)strlen(key);
    for (int64_t at = object_begin(s); next_member(s, at, m); at = m->value_end)
        if (m->key_end - m->key == length + 2 && memcmp(s->text + m->key + 1, key, (size_t)length) == 0)
            return true;
    return false;
}

/* Replaces *s by `result`. If `result` is incomplete, frees it and keeps *s. */
static ott_status replace_text(str *s, str *result) {
    ott_status status = str_finish(result);
    str_free(status == OTT_OK ? s : result);
    if (status == OTT_OK) *s = *result;
    return status;
}

static ott_status replace_bytes(str *s, int64_t from, int64_t to, const char *with) {
    str result = {.account = s->account};
    str_append_bytes(&result, s->text, from);
    str_append(&result, with);
    str_append_bytes(&result, s->text + to, s->length - to);
    return replace_text(s, &result);
}

/* Appends a member, with white space like the first member's. */
static ott_status append_member(str *s, const char *key, const char *value) {
    str text = {.account = s->account};
    member m, first = {0};
    int64_t begin = object_begin(s), end = begin;
    for (bool any = next_member(s, begin, &m); any; any = next_member(s, end, &m)) {
        if (first.key == 0) first = m;
        end = m.value_end;
    }
    if (first.key > 0) {
        str_append(&text, ",");
        str_append_bytes(&text, s->text + begin, first.key - begin);
        str_printf(&text, "\"%s\": %s", key, value);
    } else {
        str_printf(&text, "\n  \"%s\": %s\n", key, value);
    }
    ott_status status = str_finish(&text);
    if (status == OTT_OK) status = replace_bytes(s, end, end, text.text);
    str_free(&text);
    return status;
}

ott_status json_edit_put(str *text, const char *key, const char *value) {
    member m;
    if (find_member(text, key, &m)) return replace_bytes(text, m.value, m.value_end, value);
    return append_member(text, key, value);
}

ott_status json_edit_rename(str *text, const char *key, const char *new_key) {
    member m;
    return find_member(text, key, &m) ? replace_bytes(text, m.key + 1, m.key_end - 1, new_key) : OTT_OK;
}

ott_status json_edit_remove(str *text, const char *key) {
    member m, next;
    if (!find_member(text, key, &m)) return OTT_OK;
    bool is_first = m.before == object_begin(text);
    if (is_first && next_member(text, m.value_end, &next)) return replace_bytes(text, m.key, next.key, "");
    return replace_bytes(text, m.before, m.value_end, ""); /* also removes the comma before the member */
}

/* The text of a member, from its key to the end of its value. */
typedef struct member_text {
    const char *at;
    int64_t bytes;
} member_text;

static int compare_keys(const void *a, const void *b) {
    const member_text *x = a, *y = b;
    return memcmp(x->at, y->at, (size_t)(x->bytes < y->bytes ? x->bytes : y->bytes));
}

ott_status json_edit_sort(str *text) {
    member m;
    member_text *members = NULL;
    str result = {.account = text->account};
    int64_t count = 0, capacity = 0, end = object_begin(text);
    for (; next_member(text, end, &m); end = m.value_end) {
        ott_status grown =
            mem_reserve(text->account, MEM_OTHER, count + 1, "members of an object", &capacity, &members);
        if (grown != OTT_OK) return mem_free(text->account, members), grown;
        members[count++] = (member_text){text->text + m.key, m.value_end - m.key};
    }
    qsort(members, (size_t)count, sizeof *members, compare_keys);
    str_append(&result, "{");
    for (int64_t i = 0; i < count; i++) {
        str_append(&result, i ? ",\n  " : "\n  ");
        str_append_bytes(&result, members[i].at, members[i].bytes);
    }
    str_append_bytes(&result, text->text + end, text->length - end);
    mem_free(text->account, members);
    return replace_text(text, &result);
}
