/* jinja/method: methods of strings and dictionaries, and functions. */
#define _GNU_SOURCE /* declares memrchr */
#include "base/text/text.h"
#include "tokenizer/jinja/value.h"
#include <utf8proc.h>

typedef ott_status (*apply_method)(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                   jinja_value *out);

/* ---- strings ---- */

static ott_status text_argument(const jinja_work *w, const jinja_arguments *a, int place,
                                const char *function, text_view *out) {
    const jinja_value *v = jinja_argument(a, place, NULL);
    if (!v || v->kind != JINJA_STRING)
        return jinja_work_fail(w, OTT_ERR_FORMAT, "%s: argument %d is %s, not a string", function, place + 1,
                               v ? jinja_value_kind(v) : "missing");
    return *out = v->text, OTT_OK;
}

static bool holds_character(text_view set, const char *at, int64_t bytes) {
    for (int64_t i = 0; i < set.bytes; i += text_character_bytes((unsigned char)set.at[i]))
        if (set.bytes - i >= bytes && memcmp(set.at + i, at, (size_t)bytes) == 0) return true;
    return false;
}

static ott_status bytes_at_start(jinja_work *w, text_view text, const text_view *set, int64_t *out) {
    *out = 0;
    if (!set) return *out = text_spaces_at_start(text), jinja_work_write(w, *out);
    for (int64_t bytes; *out < text.bytes; *out += bytes) {
        bytes = text_character_bytes((unsigned char)text.at[*out]);
        TRY(jinja_work_write(w, set->bytes));
        if (!holds_character(*set, text.at + *out, bytes)) break;
    }
    return OTT_OK;
}

static ott_status bytes_at_end(jinja_work *w, text_view text, const text_view *set, int64_t *out) {
    int64_t i = text.bytes;
    if (!set) return *out = text_spaces_at_end(text), jinja_work_write(w, *out);
    while (i > 0) {
        int64_t from = i - 1;
        while (from > 0 && ((unsigned char)text.at[from] & 0xc0) == 0x80) from--;
        TRY(jinja_work_write(w, set->bytes));
        if (!holds_character(*set, text.at + from, i - from)) break;
        i = from;
    }
    return *out = text.bytes - i, OTT_OK;
}

static ott_status strip(jinja_work *w, const jinja_value *v, const jinja_arguments *a, bool left, bool right,
                        jinja_value *out) {
    text_view text = v->text, set, *given = NULL;
    const jinja_value *argument = jinja_argument(a, 0, NULL);
    int64_t bytes;
    TRY(jinja_arguments_check(w, a, "strip", 1, NULL));
    if (argument && argument->kind != JINJA_NONE) {
        TRY(text_argument(w, a, 0, "strip", &set));
        given = &set;
    }
    if (left) {
        TRY(bytes_at_start(w, text, given, &bytes));
        text = (text_view){text.at + bytes, text.bytes - bytes};
    }
    if (right) {
        TRY(bytes_at_end(w, text, given, &bytes));
        text.bytes -= bytes;
    }
    return *out = jinja_value_string(text), OTT_OK;
}

static ott_status method_strip(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                               jinja_value *out) {
    return strip(w, v, a, true, true, out);
}
static ott_status method_lstrip(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                jinja_value *out) {
    return strip(w, v, a, true, false, out);
}
static ott_status method_rstrip(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                jinja_value *out) {
    return strip(w, v, a, false, true, out);
}

typedef enum letter_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITAL } letter_case;

/* Changes case per character, with Unicode's simple mappings. */
static ott_status change_case(jinja_work *w, text_view text, letter_case to, jinja_value *out) {
    str made = {.account = w->account};
    bool inside = false; /* the previous character belongs to the current word */
    TRY(jinja_work_steps(w, 1 + text.bytes / 2));
    for (int64_t i = 0, bytes; i < text.bytes; i += bytes) {
        utf8proc_int32_t code;
        utf8proc_uint8_t encoded[4];
        bytes = utf8proc_iterate((const utf8proc_uint8_t *)text.at + i, text.bytes - i, &code);
        if (bytes <= 0) break; /* cannot happen: texts are valid UTF-8 */
        bool letter = utf8proc_islower(code) || utf8proc_isupper(code);
        bool upper = to == CASE_UPPER || ((to == CASE_TITLE || to == CASE_CAPITAL) && !inside);
        code = upper ? utf8proc_toupper(code) : utf8proc_tolower(code);
        inside = to == CASE_CAPITAL || letter;
        str_append_bytes(&made, encoded, utf8proc_encode_char(code, encoded));
    }
    ott_status status = str_finish(&made);
    if (status == OTT_OK) status = jinja_value_copy_text(w, made.text ? made.text : "", made.length, out);
    str_free(&made);
    return status;
}

#define CASE_METHOD(name, to)                                                                                \
    static ott_status method_##name(jinja_work *w, const jinja_value *v, const jinja_arguments *a,           \
                                    jinja_value *out) {                                                      \
        TRY(jinja_arguments_check(w, a, #name, 0, NULL));                                                    \
        return change_case(w, v->text, to, out);                                                             \
    }
CASE_METHOD(upper, CASE_UPPER)
CASE_METHOD(lower, CASE_LOWER)
CASE_METHOD(title, CASE_TITLE)
CASE_METHOD(capitalize, CASE_CAPITAL)

/* startswith or endswith: tests one text, or whether any text of a list matches. */
static ott_status match_end(jinja_work *w, const jinja_value *v, const jinja_arguments *a, bool end,
                            jinja_value *out) {
    const jinja_value *with = jinja_argument(a, 0, NULL);
    TRY(jinja_arguments_check(w, a, end ? "endswith" : "startswith", 1, NULL));
    *out = jinja_value_bool(false);
    int64_t count = with && with->kind == JINJA_LIST ? with->list->count : 1;
    for (int64_t i = 0; i < count; i++) {
        const jinja_value *part = with && with->kind == JINJA_LIST ? &with->list->items[i] : with;
        if (!part || part->kind != JINJA_STRING)
            return jinja_work_fail(w, OTT_ERR_FORMAT, "%s needs a string", end ? "endswith" : "startswith");
        int64_t rest = v->text.bytes - part->text.bytes;
        TRY(jinja_work_read(w, rest >= 0 ? part->text.bytes : 0));
        out->truth |=
            rest >= 0 && memcmp(v->text.at + (end ? rest : 0), part->text.at, (size_t)part->text.bytes) == 0;
    }
    return OTT_OK;
}

static ott_status method_startswith(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                    jinja_value *out) {
    return match_end(w, v, a, false, out);
}
static ott_status method_endswith(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                  jinja_value *out) {
    return match_end(w, v, a, true, out);
}

static ott_status count_argument(const jinja_work *w, const jinja_arguments *a, int place, const char *name,
                                 int64_t *out) {
    const jinja_value *v = jinja_argument(a, place, name);
    *out = -1;
    if (!v || v->kind == JINJA_NONE) return OTT_OK;
    if (v->kind != JINJA_INTEGER)
        return jinja_work_fail(w, OTT_ERR_FORMAT, "%s is %s", name, jinja_value_kind(v));
    return *out = v->integer, OTT_OK;
}

static ott_status replace_all(jinja_work *w, text_view rest, text_view old, text_view new, int64_t most,
                              str *made) {
    const char *at;
    for (; most != 0 && made->length < JINJA_MEMORY_MOST; most--) {
        TRY(jinja_text_find(w, rest, old, &at));
        if (!at) break;
        TRY(jinja_work_read(w, new.bytes));
        str_append_bytes(made, rest.at, at - rest.at);
        str_append_bytes(made, new.at, new.bytes);
        rest = (text_view){at + old.bytes, rest.at + rest.bytes - at - old.bytes};
    }
    str_append_bytes(made, rest.at, rest.bytes);
    return OTT_OK;
}

static ott_status method_replace(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                 jinja_value *out) {
    static const char *const names[] = {"count", NULL};
    text_view old, new;
    int64_t most;
    str made = {.account = w->account};
    TRY(jinja_arguments_check(w, a, "replace", 3, names));
    TRY(text_argument(w, a, 0, "replace", &old));
    TRY(text_argument(w, a, 1, "replace", &new));
    TRY(count_argument(w, a, 2, "count", &most));
    if (old.bytes == 0) return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "replace of \"\" is not supported");
    ott_status status = replace_all(w, v->text, old, new, most, &made);
    if (status == OTT_OK) status = str_finish(&made);
    if (status == OTT_OK) status = jinja_value_copy_text(w, made.text ? made.text : "", made.length, out);
    str_free(&made);
    return status;
}

/* Splits at white space; ignores white space at both ends. */
static ott_status split_words(jinja_work *w, text_view text, int64_t most, jinja_list *l) {
    for (;;) {
        int64_t spaces = text_spaces_at_start(text), bytes = 0;
        text = (text_view){text.at + spaces, text.bytes - spaces};
        if (text.bytes == 0) return OTT_OK;
        if (most == 0) {
            text.bytes -= text_spaces_at_end(text);
            return jinja_list_append(w, l, jinja_value_string(text));
        }
        while (bytes < text.bytes &&
               text_spaces_at_start((text_view){text.at + bytes, text.bytes - bytes}) == 0)
            bytes += text_character_bytes((unsigned char)text.at[bytes]);
        TRY(jinja_list_append(w, l, jinja_value_string((text_view){text.at, bytes})));
        text = (text_view){text.at + bytes, text.bytes - bytes};
        most--;
    }
}

static ott_status method_split(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                               jinja_value *out) {
    static const char *const names[] = {"sep", "maxsplit", NULL};
    const jinja_value *between = jinja_argument(a, 0, "sep");
    text_view rest = v->text;
    int64_t most;
    TRY(jinja_arguments_check(w, a, "split", 2, names));
    TRY(count_argument(w, a, 1, "maxsplit", &most));
    TRY(jinja_value_list(w, out));
    TRY(jinja_work_write(w, rest.bytes));
    if (!between || between->kind == JINJA_NONE) return split_words(w, rest, most, out->list);
    if (between->kind != JINJA_STRING || between->text.bytes == 0)
        return jinja_work_fail(w, OTT_ERR_FORMAT, "split: the separator is %s or empty",
                               jinja_value_kind(between));
    for (const char *at; most != 0; most--) {
        TRY(jinja_text_find(w, rest, between->text, &at));
        if (!at) break;
        TRY(jinja_list_append(w, out->list, jinja_value_string((text_view){rest.at, at - rest.at})));
        at += between->text.bytes;
        rest = (text_view){at, rest.at + rest.bytes - at};
    }
    return jinja_list_append(w, out->list, jinja_value_string(rest));
}

/* Supports only rsplit(text, 1): splits once, at the last occurrence. */
static ott_status method_rsplit(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                jinja_value *out) {
    static const char *const names[] = {"sep", "maxsplit", NULL};
    text_view by;
    int64_t most;
    TRY(jinja_arguments_check(w, a, "rsplit", 2, names));
    TRY(text_argument(w, a, 0, "rsplit", &by));
    TRY(count_argument(w, a, 1, "maxsplit", &most));
    if (by.bytes == 0 || most != 1)
        return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "rsplit is supported only with a text and maxsplit 1");
    TRY(jinja_value_list(w, out));
    TRY(jinja_work_read(w, v->text.bytes));
    for (int64_t at = v->text.bytes - by.bytes; at >= 0; at--) {
        const char *found = memrchr(v->text.at, by.at[0], (size_t)at + 1);
        if (!found) break;
        at = found - v->text.at;
        TRY(jinja_work_read(w, by.bytes));
        if (memcmp(found, by.at, (size_t)by.bytes) != 0) continue;
        TRY(jinja_list_append(w, out->list, jinja_value_string((text_view){v->text.at, at})));
        int64_t after = at + by.bytes;
        return jinja_list_append(w, out->list,
                                 jinja_value_string((text_view){v->text.at + after, v->text.bytes - after}));
    }
    return jinja_list_append(w, out->list, *v);
}

static ott_status method_join(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                              jinja_value *out) {
    const jinja_value *list = jinja_argument(a, 0, NULL);
    TRY(jinja_arguments_check(w, a, "join", 1, NULL));
    if (!list) return jinja_work_fail(w, OTT_ERR_FORMAT, "join needs a list");
    return jinja_show_joined(w, list, NULL, v->text, out);
}

static ott_status method_find(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                              jinja_value *out) {
    text_view part;
    TRY(jinja_arguments_check(w, a, "find", 1, NULL));
    TRY(text_argument(w, a, 0, "find", &part));
    const char *at = v->text.at;
    if (part.bytes) TRY(jinja_text_find(w, v->text, part, &at));
    *out = jinja_value_integer(-1);
    return at ? jinja_text_length(w, (text_view){v->text.at, at - v->text.at}, &out->integer) : OTT_OK;
}

static ott_status method_count(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                               jinja_value *out) {
    text_view part, rest = v->text;
    TRY(jinja_arguments_check(w, a, "count", 1, NULL));
    TRY(text_argument(w, a, 0, "count", &part));
    if (part.bytes == 0) return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "count of \"\" is not supported");
    *out = jinja_value_integer(0);
    for (const char *at;; out->integer++) {
        TRY(jinja_text_find(w, rest, part, &at));
        if (!at) return OTT_OK;
        rest = (text_view){at + part.bytes, rest.at + rest.bytes - at - part.bytes};
    }
}

/* ---- dictionaries ---- */

static ott_status method_items(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                               jinja_value *out) {
    TRY(jinja_arguments_check(w, a, "items", 0, NULL));
    return jinja_value_items(w, v, out);
}

static ott_status list_members(jinja_work *w, const jinja_value *v, const jinja_arguments *a, bool keys,
                               jinja_value *out) {
    TRY(jinja_arguments_check(w, a, keys ? "keys" : "values", 0, NULL));
    TRY(jinja_value_list(w, out));
    TRY(jinja_work_steps(w, v->dict->count));
    for (int64_t i = 0; i < v->dict->count; i++)
        TRY(jinja_list_append(w, out->list, keys ? v->dict->entries[i].key : v->dict->entries[i].value));
    return OTT_OK;
}

static ott_status method_keys(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                              jinja_value *out) {
    return list_members(w, v, a, true, out);
}
static ott_status method_values(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                jinja_value *out) {
    return list_members(w, v, a, false, out);
}

static ott_status method_get(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                             jinja_value *out) {
    const jinja_value *key = jinja_argument(a, 0, NULL), *otherwise = jinja_argument(a, 1, NULL);
    TRY(jinja_arguments_check(w, a, "get", 2, NULL));
    if (!key) return jinja_work_fail(w, OTT_ERR_FORMAT, "get needs a key");
    const jinja_value *member;
    TRY(jinja_dict_find(w, v->dict, key, &member));
    *out = member ? *member : otherwise ? *otherwise : (jinja_value){.kind = JINJA_NONE};
    return OTT_OK;
}

static const struct {
    jinja_kind kind;
    const char *name;
    apply_method apply;
} methods[] = {{JINJA_STRING, "strip", method_strip},
               {JINJA_STRING, "lstrip", method_lstrip},
               {JINJA_STRING, "rstrip", method_rstrip},
               {JINJA_STRING, "upper", method_upper},
               {JINJA_STRING, "lower", method_lower},
               {JINJA_STRING, "title", method_title},
               {JINJA_STRING, "capitalize", method_capitalize},
               {JINJA_STRING, "startswith", method_startswith},
               {JINJA_STRING, "endswith", method_endswith},
               {JINJA_STRING, "replace", method_replace},
               {JINJA_STRING, "split", method_split},
               {JINJA_STRING, "rsplit", method_rsplit},
               {JINJA_STRING, "join", method_join},
               {JINJA_STRING, "find", method_find},
               {JINJA_STRING, "count", method_count},
               {JINJA_DICT, "items", method_items},
               {JINJA_DICT, "keys", method_keys},
               {JINJA_DICT, "values", method_values},
               {JINJA_DICT, "get", method_get}};

ott_status jinja_method(jinja_work *w, text_view name, const jinja_value *v, const jinja_arguments *a,
                        jinja_value *out, bool *found) {
    *found = true;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (methods[i].kind == v->kind && text_is(name, methods[i].name))
            return methods[i].apply(w, v, a, out);
    return *found = false, OTT_OK;
}

/* ---- functions ---- */

static ott_status function_raise(jinja_work *w, const jinja_arguments *a, jinja_value *out) {
    jinja_value text = jinja_value_string((text_view){"", 0});
    const jinja_value *given = jinja_argument(a, 0, "message");
    if (given) TRY(jinja_show(w, given, &text));
    *out = text;
    return jinja_work_fail(w, OTT_ERR_ARGUMENT, "the template raised an exception: %.*s",
                           (int)(text.text.bytes < 300 ? text.text.bytes : 300), text.text.at);
}

static ott_status set_members(jinja_work *w, const jinja_arguments *a, const char *function,
                              jinja_value *out) {
    TRY(jinja_value_dict(w, out));
    for (int i = 0; i < a->count; i++) {
        if (a->name[i].bytes == 0)
            return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "%s: argument %d has no name", function, i + 1);
        TRY(jinja_dict_set(w, out->dict, jinja_value_string(a->name[i]), a->value[i]));
    }
    return OTT_OK;
}

static ott_status function_namespace(jinja_work *w, const jinja_arguments *a, jinja_value *out) {
    TRY(set_members(w, a, "namespace", out));
    out->kind = JINJA_NAMESPACE;
    return OTT_OK;
}

static ott_status function_dict(jinja_work *w, const jinja_arguments *a, jinja_value *out) {
    return set_members(w, a, "dict", out);
}

static ott_status function_range(jinja_work *w, const jinja_arguments *a, jinja_value *out) {
    int64_t bound[3] = {0, 0, 1};
    TRY(jinja_arguments_check(w, a, "range", 3, NULL));
    for (int i = 0; i < a->count; i++) {
        if (a->value[i].kind != JINJA_INTEGER || a->value[i].integer > INT32_MAX ||
            a->value[i].integer < -INT32_MAX)
            return jinja_work_fail(w, OTT_ERR_FORMAT, "range: argument %d is %s", i + 1,
                                   jinja_value_kind(&a->value[i]));
        bound[i] = a->value[i].integer;
    }
    if (a->count == 1) bound[1] = bound[0], bound[0] = 0;
    if (a->count == 0 || bound[2] == 0)
        return jinja_work_fail(w, OTT_ERR_FORMAT, "range needs an end, and a step other than 0");
    TRY(jinja_value_list(w, out));
    for (int64_t i = bound[0]; bound[2] > 0 ? i < bound[1] : i > bound[1]; i += bound[2]) {
        TRY(jinja_work_steps(w, 1));
        TRY(jinja_list_append(w, out->list, jinja_value_integer(i)));
    }
    return OTT_OK;
}

/* Writes names of days and months in English, in any locale. */
static ott_status function_strftime_now(jinja_work *w, const jinja_arguments *a, jinja_value *out) {
    text_view given;
    char format[128], text[512];
    TRY(jinja_arguments_check(w, a, "strftime_now", 1, NULL));
    TRY(text_argument(w, a, 0, "strftime_now", &given));
    if (given.bytes >= (int64_t)sizeof format || memchr(given.at, 0, (size_t)given.bytes))
        return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "strftime_now: a format of %lld bytes; at most %d",
                               (long long)given.bytes, (int)sizeof format - 1);
    memcpy(format, given.at, (size_t)given.bytes);
    format[given.bytes] = 0;
    size_t bytes = text_strftime(text, sizeof text, format, w->settings->today);
    if (bytes == 0 && given.bytes > 0)
        return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "strftime_now: \"%s\" gives no text", format);
    return jinja_value_copy_text(w, text, (int64_t)bytes, out);
}

static const struct {
    const char *name;
    ott_status (*call)(jinja_work *w, const jinja_arguments *a, jinja_value *out);
} functions[] = {{"raise_exception", function_raise},
                 {"strftime_now", function_strftime_now},
                 {"namespace", function_namespace},
                 {"dict", function_dict},
                 {"range", function_range}};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

bool jinja_function_exists(const jinja_work *w, text_view name) {
    for (int i = 0; i < FUNCTIONS; i++)
        if (text_is(name, functions[i].name))
            return functions[i].call != function_strftime_now || w->settings->today;
    return false;
}

ott_status jinja_function(jinja_work *w, text_view name, const jinja_arguments *a, jinja_value *out) {
    for (int i = 0; i < FUNCTIONS; i++)
        if (text_is(name, functions[i].name)) return functions[i].call(w, a, out);
    STATUS_REQUIRE(!"a function that exists");
    return OTT_OK;
}
