/* jinja/method: methods of strings and dictionaries, and functions. */
#include "base/text/text.h"
#include "tokenizer/jinja/value.h"

/* ---- strings ---- */

static ott_status text_argument(const jinja_work *w, const jinja_call *c, int place, text_view *out) {
    const jinja_value *v = jinja_argument(c->a, place, NULL);
    if (!v || v->kind != JINJA_STRING)
        return jinja_work_fail(w, OTT_ERR_FORMAT, "%s: argument %d is %s, not a string", c->name, place + 1,
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
    if (!set) return *out = text_spaces_at_start(text, true), jinja_work_write(w, *out);
    for (int64_t bytes; *out < text.bytes; *out += bytes) {
        bytes = text_character_bytes((unsigned char)text.at[*out]);
        TRY(jinja_work_write(w, set->bytes));
        if (!holds_character(*set, text.at + *out, bytes)) break;
    }
    return OTT_OK;
}

static ott_status bytes_at_end(jinja_work *w, text_view text, const text_view *set, int64_t *out) {
    int64_t i = text.bytes;
    if (!set) return *out = text_spaces_at_end(text, true), jinja_work_write(w, *out);
    while (i > 0) {
        int64_t from = i - 1;
        while (from > 0 && ((unsigned char)text.at[from] & 0xc0) == 0x80) from--;
        TRY(jinja_work_write(w, set->bytes));
        if (!holds_character(*set, text.at + from, i - from)) break;
        i = from;
    }
    return *out = text.bytes - i, OTT_OK;
}

/* Options of method_strip and method_match. */
enum { AT_START = 1, AT_END = 2 };

static ott_status method_strip(jinja_work *w, const jinja_call *c, jinja_value *out) {
    text_view text = c->v->text, set, *given = NULL;
    const jinja_value *argument = jinja_argument(c->a, 0, NULL);
    int64_t bytes;
    if (argument && argument->kind != JINJA_NONE) {
        TRY(text_argument(w, c, 0, &set));
        given = &set;
    }
    if (c->option & AT_START) {
        TRY(bytes_at_start(w, text, given, &bytes));
        text = (text_view){text.at + bytes, text.bytes - bytes};
    }
    if (c->option & AT_END) {
        TRY(bytes_at_end(w, text, given, &bytes));
        text.bytes -= bytes;
    }
    return *out = jinja_value_string(text), OTT_OK;
}

/* The option is a text_case. */
static ott_status method_case(jinja_work *w, const jinja_call *c, jinja_value *out) {
    str made = {.account = w->account};
    TRY(jinja_work_steps(w, 1 + c->v->text.bytes / 2));
    text_change_case(c->v->text, (text_case)c->option, &made);
    return jinja_value_take_text(w, &made, OTT_OK, out);
}

/* startswith or endswith: tests one text, or whether any text of a list matches. */
static ott_status method_match(jinja_work *w, const jinja_call *c, jinja_value *out) {
    const jinja_value *with = jinja_argument(c->a, 0, NULL);
    const text_view text = c->v->text;
    *out = jinja_value_bool(false);
    int64_t count = with && with->kind == JINJA_LIST ? with->list->count : 1;
    for (int64_t i = 0; i < count; i++) {
        const jinja_value *part = with && with->kind == JINJA_LIST ? &with->list->items[i] : with;
        if (!part || part->kind != JINJA_STRING)
            return jinja_work_fail(w, OTT_ERR_FORMAT, "%s needs a string", c->name);
        int64_t rest = text.bytes - part->text.bytes;
        TRY(jinja_work_read(w, rest >= 0 ? part->text.bytes : 0));
        const char *at = text.at + (c->option == AT_END ? rest : 0);
        out->truth |= rest >= 0 && memcmp(at, part->text.at, (size_t)part->text.bytes) == 0;
    }
    return OTT_OK;
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

static ott_status append_replaced(jinja_work *w, text_view rest, text_view old, text_view new, int64_t most,
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

static ott_status method_replace(jinja_work *w, const jinja_call *c, jinja_value *out) {
    text_view old, new;
    int64_t most;
    str made = {.account = w->account};
    TRY(text_argument(w, c, 0, &old));
    TRY(text_argument(w, c, 1, &new));
    TRY(count_argument(w, c->a, 2, "count", &most));
    if (old.bytes == 0) return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "replace of \"\" is not supported");
    return jinja_value_take_text(w, &made, append_replaced(w, c->v->text, old, new, most, &made), out);
}

/* Splits at white space; ignores white space at both ends. */
static ott_status split_words(jinja_work *w, text_view text, int64_t most, jinja_list *l) {
    for (;;) {
        int64_t spaces = text_spaces_at_start(text, true), bytes = 0;
        text = (text_view){text.at + spaces, text.bytes - spaces};
        if (text.bytes == 0) return OTT_OK;
        if (most == 0) {
            text.bytes -= text_spaces_at_end(text, true);
            return jinja_list_append(w, l, jinja_value_string(text));
        }
        while (bytes < text.bytes &&
               text_spaces_at_start((text_view){text.at + bytes, text.bytes - bytes}, true) == 0)
            bytes += text_character_bytes((unsigned char)text.at[bytes]);
        TRY(jinja_list_append(w, l, jinja_value_string((text_view){text.at, bytes})));
        text = (text_view){text.at + bytes, text.bytes - bytes};
        most--;
    }
}

static ott_status method_split(jinja_work *w, const jinja_call *c, jinja_value *out) {
    const jinja_value *between = jinja_argument(c->a, 0, "sep");
    text_view rest = c->v->text;
    int64_t most;
    TRY(count_argument(w, c->a, 1, "maxsplit", &most));
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

static ott_status method_join(jinja_work *w, const jinja_call *c, jinja_value *out) {
    const jinja_value *list = jinja_argument(c->a, 0, NULL);
    if (!list) return jinja_work_fail(w, OTT_ERR_FORMAT, "join needs a list");
    return jinja_show_joined(w, list, NULL, c->v->text, out);
}

/* ---- dictionaries ---- */

/* Lists the keys, or the values (option 1). */
static ott_status method_members(jinja_work *w, const jinja_call *c, jinja_value *out) {
    const jinja_dict *d = c->v->dict;
    TRY(jinja_value_list(w, out));
    TRY(jinja_work_steps(w, d->count));
    for (int64_t i = 0; i < d->count; i++)
        TRY(jinja_list_append(w, out->list, c->option ? d->entries[i].value : d->entries[i].key));
    return OTT_OK;
}

static ott_status method_get(jinja_work *w, const jinja_call *c, jinja_value *out) {
    const jinja_value *key = jinja_argument(c->a, 0, NULL), *otherwise = jinja_argument(c->a, 1, NULL);
    if (!key) return jinja_work_fail(w, OTT_ERR_FORMAT, "get needs a key");
    const jinja_value *member;
    TRY(jinja_dict_find(w, c->v->dict, key, &member));
    *out = member ? *member : otherwise ? *otherwise : (jinja_value){.kind = JINJA_NONE};
    return OTT_OK;
}

static const jinja_builtin string_methods[] = {
    {"strip", method_strip, .positional = 1, .option = AT_START | AT_END},
    {"lstrip", method_strip, .positional = 1, .option = AT_START},
    {"rstrip", method_strip, .positional = 1, .option = AT_END},
    {"upper", method_case, .option = TEXT_UPPER},
    {"lower", method_case, .option = TEXT_LOWER},
    {"capitalize", method_case, .option = TEXT_CAPITAL},
    {"startswith", method_match, .positional = 1, .option = AT_START},
    {"endswith", method_match, .positional = 1, .option = AT_END},
    {"replace", method_replace, .positional = 3, .keywords = {"count"}},
    {"split", method_split, .positional = 2, .keywords = {"sep", "maxsplit"}},
    {"join", method_join, .positional = 1},
    {0}};
static const jinja_builtin dict_methods[] = {{"items", .apply = jinja_items},
                                             {"keys", .apply = method_members},
                                             {"values", method_members, .option = 1},
                                             {"get", method_get, .positional = 2},
                                             {0}};

ott_status jinja_method(jinja_work *w, text_view name, const jinja_value *v, const jinja_arguments *a,
                        jinja_value *out, bool *found) {
    const jinja_builtin *b = v->kind == JINJA_STRING ? jinja_builtin_find(string_methods, name)
                             : v->kind == JINJA_DICT ? jinja_builtin_find(dict_methods, name)
                                                     : NULL;
    *found = b != NULL;
    return b ? jinja_builtin_call(w, b, v, a, out) : OTT_OK;
}

/* ---- functions ---- */

static ott_status function_raise(jinja_work *w, const jinja_call *c, jinja_value *out) {
    jinja_value text = jinja_value_string((text_view){"", 0});
    const jinja_value *given = jinja_argument(c->a, 0, "message");
    if (given) TRY(jinja_show(w, given, &text));
    *out = text;
    return jinja_work_fail(w, OTT_ERR_ARGUMENT, "the template raised an exception: %.*s",
                           (int)(text.text.bytes < 300 ? text.text.bytes : 300), text.text.at);
}

/* dict or namespace. The option is the kind of the result. */
static ott_status function_dict(jinja_work *w, const jinja_call *c, jinja_value *out) {
    const jinja_arguments *a = c->a;
    TRY(jinja_value_dict(w, out));
    for (int i = 0; i < a->count; i++) {
        if (a->name[i].bytes == 0)
            return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "%s: argument %d has no name", c->name, i + 1);
        TRY(jinja_dict_set(w, out->dict, jinja_value_string(a->name[i]), a->value[i]));
    }
    return out->kind = (jinja_kind)c->option, OTT_OK;
}

static ott_status function_range(jinja_work *w, const jinja_call *c, jinja_value *out) {
    const jinja_arguments *a = c->a;
    int64_t bound[3] = {0, 0, 1};
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
static ott_status function_strftime_now(jinja_work *w, const jinja_call *c, jinja_value *out) {
    text_view given;
    char format[128], text[512];
    TRY(text_argument(w, c, 0, &given));
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

static const jinja_builtin functions[] = {
    {"raise_exception", function_raise, .positional = JINJA_ARGUMENTS_ANY},
    {"strftime_now", function_strftime_now, .positional = 1},
    {"namespace", function_dict, .positional = JINJA_ARGUMENTS_ANY, .option = JINJA_NAMESPACE},
    {"dict", function_dict, .positional = JINJA_ARGUMENTS_ANY, .option = JINJA_DICT},
    {"range", function_range, .positional = 3},
    {0}};

bool jinja_function_exists(const jinja_work *w, text_view name) {
    const jinja_builtin *b = jinja_builtin_find(functions, name);
    return b && (b->apply != function_strftime_now || w->settings->today);
}

ott_status jinja_function(jinja_work *w, text_view name, const jinja_arguments *a, jinja_value *out) {
    return jinja_builtin_call(w, jinja_builtin_find(functions, name), NULL, a, out);
}
