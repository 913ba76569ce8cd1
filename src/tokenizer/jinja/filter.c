/* jinja/filter: filters and tests. */
#include "base/text/text.h"
#include "tokenizer/jinja/value.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

/* Calls the string method of the same name (option 1: strip) on the text of any value. */
static ott_status filter_as_method(jinja_work *w, const jinja_call *c, jinja_value *out) {
    jinja_value shown;
    bool found;
    TRY(jinja_show(w, c->v, &shown));
    return jinja_method(w, text_view_of(c->option ? "strip" : c->name), &shown, c->a, out, &found);
}

static ott_status filter_string(jinja_work *w, const jinja_call *c, jinja_value *out) {
    return jinja_show(w, c->v, out);
}

static ott_status filter_tojson(jinja_work *w, const jinja_call *c, jinja_value *out) {
    const jinja_value *v = c->v, *ascii = jinja_argument(c->a, -1, "ensure_ascii"),
                      *indent = jinja_argument(c->a, 0, "indent");
    if (ascii && jinja_value_truth(ascii))
        return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "tojson: ensure_ascii is not supported");
    if (indent && indent->kind != JINJA_NONE &&
        (indent->kind != JINJA_INTEGER || indent->integer < 0 || indent->integer > 16))
        return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "tojson: indent is %s", jinja_value_kind(indent));
    if (v->kind == JINJA_UNDEFINED)
        return jinja_work_fail(w, OTT_ERR_FORMAT, "tojson of \"%.*s\", which is undefined",
                               (int)v->text.bytes, v->text.at);
    return jinja_show_json(w, v, indent && indent->kind == JINJA_INTEGER ? indent->integer : -1, out);
}

/* Indents lines by `width` spaces: the first line only if `first` is true, empty lines only if `blank` is. */
static ott_status filter_indent(jinja_work *w, const jinja_call *c, jinja_value *out) {
    const jinja_value *width = jinja_argument(c->a, 0, "width"), *first = jinja_argument(c->a, 1, "first"),
                      *blank = jinja_argument(c->a, 2, "blank");
    int64_t spaces = width && width->kind == JINJA_INTEGER ? width->integer : 4;
    jinja_value shown;
    str made = {.account = w->account};
    TRY(jinja_show(w, c->v, &shown));
    text_view text = shown.text;
    if ((width && width->kind != JINJA_INTEGER) || spaces < 0 || spaces > 64)
        return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "indent: the width must be an integer from 0 to 64");
    TRY(jinja_work_write(w, text.bytes));
    for (int64_t i = 0; i < text.bytes && made.length < JINJA_MEMORY_MOST; i++) {
        bool begins = i == 0 ? first && jinja_value_truth(first) : text.at[i - 1] == '\n';
        bool empty = text.at[i] == '\n' && !(blank && jinja_value_truth(blank));
        if (begins && !empty) str_printf(&made, "%*s", (int)spaces, "");
        str_append_bytes(&made, text.at + i, 1);
    }
    return jinja_value_take_text(w, &made, OTT_OK, out);
}

/* Copies a number's text without white space at its ends; false if it cannot be a number. */
static bool trim_number(text_view text, char out[40]) {
    while (text.bytes > 0 && isspace((unsigned char)text.at[0])) text.at++, text.bytes--;
    while (text.bytes > 0 && isspace((unsigned char)text.at[text.bytes - 1])) text.bytes--;
    if (text.bytes == 0 || text.bytes >= 40) return false;
    memcpy(out, text.at, (size_t)text.bytes);
    out[text.bytes] = '\0';
    return true;
}

/* Python's int(x) drops the fraction. */
static void set_integer(double x, jinja_value *out) {
    if (x > -9e18 && x < 9e18) *out = jinja_value_integer((int64_t)x);
}

/* A text that is no integer is read as a real number, as in Jinja2. */
static ott_status filter_int(jinja_work *w, const jinja_call *c, jinja_value *out) {
    const jinja_value *v = c->v, *otherwise = jinja_argument(c->a, 0, "default");
    (void)w;
    *out = otherwise ? *otherwise : jinja_value_integer(0);
    char number[40], *end;
    if (v->kind == JINJA_INTEGER) {
        *out = *v;
    } else if (jinja_value_is_number(v)) {
        set_integer(jinja_value_real(v), out);
    } else if (v->kind == JINJA_STRING && trim_number(v->text, number)) {
        errno = 0;
        long long x = strtoll(number, &end, 10);
        if (*end == '\0' && errno == 0) {
            *out = jinja_value_integer(x);
        } else {
            double real = text_to_double(number, &end);
            if (*end == '\0') set_integer(real, out);
        }
    }
    return OTT_OK;
}

/* ---- filters of lists ---- */

static ott_status filter_length(jinja_work *w, const jinja_call *c, jinja_value *out) {
    const jinja_value *v = c->v;
    *out = jinja_value_integer(0);
    if (v->kind == JINJA_STRING) return jinja_text_length(w, v->text, &out->integer);
    if (v->kind == JINJA_LIST)
        out->integer = v->list->count;
    else if (v->kind == JINJA_DICT)
        out->integer = v->dict->count;
    else if (v->kind != JINJA_UNDEFINED)
        return jinja_work_fail(w, OTT_ERR_FORMAT, "%s has no length", jinja_value_kind(v));
    return OTT_OK;
}

/* Returns the first element, or the last (option 1). */
static ott_status filter_end(jinja_work *w, const jinja_call *c, jinja_value *out) {
    jinja_list *l;
    TRY(jinja_value_elements(w, c->v, &l));
    *out = jinja_value_undefined((text_view){"an element", 10});
    if (l->count) *out = l->items[c->option ? l->count - 1 : 0];
    return OTT_OK;
}

static ott_status filter_list(jinja_work *w, const jinja_call *c, jinja_value *out) {
    jinja_list *l;
    TRY(jinja_value_elements(w, c->v, &l));
    TRY(jinja_value_list(w, out));
    return jinja_list_append_all(w, out->list, l);
}

/* Converts a string to lower case: Jinja's sort and unique ignore case by default. */
static ott_status ignore_case(jinja_work *w, const jinja_value *v, jinja_value *out) {
    const jinja_arguments none = {0};
    bool found;
    if (v->kind != JINJA_STRING) return *out = *v, OTT_OK;
    return jinja_method(w, (text_view){"lower", 5}, v, &none, out, &found);
}

/* Keeps the first of equal elements. */
static ott_status filter_unique(jinja_work *w, const jinja_call *c, jinja_value *out) {
    jinja_list *l;
    jinja_value seen, key;
    const jinja_value *there;
    TRY(jinja_value_elements(w, c->v, &l));
    TRY(jinja_value_list(w, out));
    TRY(jinja_value_dict(w, &seen));
    for (int64_t i = 0; i < l->count; i++) {
        TRY(ignore_case(w, &l->items[i], &key));
        TRY(jinja_dict_find(w, seen.dict, &key, &there));
        if (there) continue;
        TRY(jinja_dict_set(w, seen.dict, key, jinja_value_bool(true)));
        TRY(jinja_list_append(w, out->list, l->items[i]));
    }
    return OTT_OK;
}

typedef struct sorted {
    jinja_value key, value;
} sorted;

/* Merges the sorted ranges from[begin .. middle) and from[middle .. end) into to[begin .. end). */
static ott_status merge_sorted(jinja_work *w, const sorted *from, int64_t begin, int64_t middle, int64_t end,
                               sorted *to) {
    int64_t left = begin, right = middle;
    for (int64_t i = begin; i < end; i++) {
        int order = left == middle ? 1 : -1;
        if (left < middle && right < end)
            TRY(jinja_value_order(w, &from[left].key, &from[right].key, &order));
        TRY(jinja_work_steps(w, 1));
        to[i] = from[order <= 0 ? left++ : right++];
    }
    return OTT_OK;
}

/* Stable sort of a list, or of the (key, value) pairs of a dictionary by their keys (option 1). */
static ott_status filter_sort(jinja_work *w, const jinja_call *c, jinja_value *out) {
    void *memory;
    TRY(c->option ? jinja_items(w, c, out) : filter_list(w, c, out));
    const jinja_list *l = out->list;
    TRY(jinja_work_alloc(w, 2 * l->count * (int64_t)sizeof(sorted), &memory));
    sorted *from = memory, *to = from + l->count;
    for (int64_t i = 0; i < l->count; i++) {
        from[i].value = l->items[i];
        TRY(ignore_case(w, c->option ? &l->items[i].list->items[0] : &l->items[i], &from[i].key));
    }
    for (int64_t width = 1; width < l->count; width *= 2) {
        for (int64_t begin = 0; begin < l->count; begin += 2 * width) {
            int64_t middle = begin + width < l->count ? begin + width : l->count;
            int64_t end = middle + width < l->count ? middle + width : l->count;
            TRY(merge_sorted(w, from, begin, middle, end, to));
        }
        sorted *merged = to;
        to = from;
        from = merged;
    }
    for (int64_t i = 0; i < l->count; i++) l->items[i] = from[i].value;
    return OTT_OK;
}

static ott_status filter_join(jinja_work *w, const jinja_call *c, jinja_value *out) {
    const jinja_value *between = jinja_argument(c->a, 0, "d"), *member = jinja_argument(c->a, 1, "attribute");
    jinja_value separator = jinja_value_string((text_view){"", 0});
    if (between) TRY(jinja_show(w, between, &separator));
    return jinja_show_joined(w, c->v, member && member->kind == JINJA_STRING ? &member->text : NULL,
                             separator.text, out);
}

/* ---- filters that call a filter or a test for each element ---- */

/* Returns the elements to iterate over; none has no elements. */
static ott_status elements_or_none(jinja_work *w, const jinja_value *v, jinja_list **out) {
    const jinja_value nothing = jinja_value_undefined((text_view){"none", 4});
    return jinja_value_elements(w, v->kind == JINJA_NONE ? &nothing : v, out);
}

/* Returns arguments a[first], a[first + 1], ... for the inner call. */
static jinja_arguments arguments_from(const jinja_arguments *a, int first) {
    jinja_arguments rest = {0};
    for (int i = 0, place = 0; i < a->count; i++) {
        if (a->name[i].bytes == 0 && place++ < first) continue;
        rest.name[rest.count] = a->name[i];
        rest.value[rest.count++] = a->value[i];
    }
    return rest;
}

static ott_status filter_map(jinja_work *w, const jinja_call *c, jinja_value *out) {
    const jinja_value *filter = jinja_argument(c->a, 0, NULL),
                      *member = jinja_argument(c->a, -1, "attribute"),
                      *otherwise = jinja_argument(c->a, -1, "default");
    jinja_arguments rest = arguments_from(c->a, 1);
    jinja_list *l;
    jinja_value made;
    bool found = true;
    const jinja_value *what = member ? member : filter;
    if (!what || what->kind != JINJA_STRING)
        return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "map needs the name of a filter or attribute");
    TRY(elements_or_none(w, c->v, &l));
    TRY(jinja_value_list(w, out));
    for (int64_t i = 0; i < l->count; i++) {
        TRY(jinja_work_steps(w, 1));
        if (member) {
            TRY(jinja_member(w, &l->items[i], member->text, &made));
            if (made.kind == JINJA_UNDEFINED && otherwise) made = *otherwise;
        } else
            TRY(jinja_filter(w, filter->text, &l->items[i], &rest, &made, &found));
        if (!found) return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "map: its filter is not supported");
        TRY(jinja_list_append(w, out->list, made));
    }
    return OTT_OK;
}

/* Options of filter_select. */
enum { SELECT_BY_MEMBER = 1, SELECT_FALSE = 2 };

/* Lists the elements for which a test of the element (or of its member) is true, or false with SELECT_FALSE.
   If the template names no test, the truth value of the element is used. */
static ott_status filter_select(jinja_work *w, const jinja_call *c, jinja_value *out) {
    const bool of_member = c->option & SELECT_BY_MEMBER;
    const jinja_value *member = of_member ? jinja_argument(c->a, 0, NULL) : NULL,
                      *test = jinja_argument(c->a, of_member, NULL);
    jinja_arguments rest = arguments_from(c->a, of_member + 1);
    jinja_list *l;
    if ((of_member && (!member || member->kind != JINJA_STRING)) || (test && test->kind != JINJA_STRING))
        return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "the name of a test or member is not a string");
    TRY(elements_or_none(w, c->v, &l));
    TRY(jinja_value_list(w, out));
    for (int64_t i = 0; i < l->count; i++) {
        jinja_value element = l->items[i];
        bool found = true, truth;
        TRY(jinja_work_steps(w, 1));
        if (member) TRY(jinja_member(w, &l->items[i], member->text, &element));
        truth = jinja_value_truth(&element);
        if (test) TRY(jinja_test(w, test->text, &element, &rest, &truth, &found));
        if (!found)
            return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "the test \"%.*s\" is not supported",
                                   (int)test->text.bytes, test->text.at);
        if (truth == !(c->option & SELECT_FALSE)) TRY(jinja_list_append(w, out->list, l->items[i]));
    }
    return OTT_OK;
}

static ott_status filter_default(jinja_work *w, const jinja_call *c, jinja_value *out) {
    const jinja_value *v = c->v, *otherwise = jinja_argument(c->a, 0, "default_value"),
                      *boolean = jinja_argument(c->a, 1, "boolean");
    (void)w;
    bool absent =
        v->kind == JINJA_UNDEFINED || (boolean && jinja_value_truth(boolean) && !jinja_value_truth(v));
    *out = !absent ? *v : otherwise ? *otherwise : jinja_value_string((text_view){"", 0});
    return OTT_OK;
}

/* Text is never escaped, so `safe` changes nothing. */
static ott_status filter_safe(jinja_work *w, const jinja_call *c, jinja_value *out) {
    (void)w;
    return *out = *c->v, OTT_OK;
}

enum { ANY = JINJA_ARGUMENTS_ANY };
static const jinja_builtin filters[] = {
    {"trim", filter_as_method, .positional = ANY, .option = 1},
    {"upper", filter_as_method, .positional = ANY},
    {"lower", filter_as_method, .positional = ANY},
    {"capitalize", filter_as_method, .positional = ANY},
    {"replace", filter_as_method, .positional = ANY},
    {"string", filter_string, .positional = ANY},
    {"tojson", filter_tojson, .positional = 1, .keywords = {"indent", "ensure_ascii"}},
    {"indent", filter_indent, .positional = 3, .keywords = {"width", "first", "blank"}},
    {"int", filter_int, .positional = 1, .keywords = {"default"}},
    {"length", .apply = filter_length},
    {"count", .apply = filter_length},
    {"first", .apply = filter_end},
    {"last", filter_end, .option = 1},
    {"list", .apply = filter_list},
    {"unique", .apply = filter_unique},
    {"items", .apply = jinja_items},
    {"sort", .apply = filter_sort},
    {"dictsort", filter_sort, .option = 1},
    {"join", filter_join, .positional = 2, .keywords = {"d", "attribute"}},
    {"map", filter_map, .positional = ANY},
    {"select", filter_select, .positional = ANY},
    {"reject", filter_select, .positional = ANY, .option = SELECT_FALSE},
    {"selectattr", filter_select, .positional = ANY, .option = SELECT_BY_MEMBER},
    {"rejectattr", filter_select, .positional = ANY, .option = SELECT_BY_MEMBER | SELECT_FALSE},
    {"default", filter_default, .positional = 2, .keywords = {"default_value", "boolean"}},
    {"d", filter_default, .positional = 2, .keywords = {"default_value", "boolean"}},
    {"safe", .apply = filter_safe},
    {0}};

ott_status jinja_filter(jinja_work *w, text_view name, const jinja_value *v, const jinja_arguments *a,
                        jinja_value *out, bool *found) {
    const jinja_builtin *b = jinja_builtin_find(filters, name);
    *found = b != NULL;
    return b ? jinja_builtin_call(w, b, v, a, out) : OTT_OK;
}

/* ---- tests ---- */

/* Tests that compare the value with an argument, and the sign of the operator that each of them uses. */
static const struct {
    const char *name, *sign;
} comparisons[] = {{"equalto", "=="}, {"eq", "=="},      {"sameas", "=="}, {"ne", "!="},
                   {"lt", "<"},       {"lessthan", "<"}, {"gt", ">"},      {"greaterthan", ">"},
                   {"le", "<="},      {"ge", ">="},      {"in", "in"}};

ott_status jinja_test(jinja_work *w, text_view name, const jinja_value *v, const jinja_arguments *a,
                      bool *out, bool *found) {
    const jinja_kind k = v->kind;
    const bool iterable = k == JINJA_STRING || k == JINJA_LIST || k == JINJA_DICT || k == JINJA_UNDEFINED;
    const struct {
        const char *name;
        bool truth;
    } kinds[] = {{"defined", k != JINJA_UNDEFINED},
                 {"undefined", k == JINJA_UNDEFINED},
                 {"none", k == JINJA_NONE},
                 {"boolean", k == JINJA_BOOL},
                 {"true", k == JINJA_BOOL && v->truth},
                 {"false", k == JINJA_BOOL && !v->truth},
                 {"integer", k == JINJA_INTEGER},
                 {"float", k == JINJA_REAL},
                 {"number", jinja_value_is_number(v)},
                 {"string", k == JINJA_STRING},
                 {"mapping", k == JINJA_DICT},
                 {"iterable", iterable},
                 {"sequence", iterable},
                 {"callable", k == JINJA_MACRO || k == JINJA_FUNCTION}};
    *found = true;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (text_is(name, kinds[i].name))
            return *out = kinds[i].truth, jinja_arguments_check(w, a, "a test", 0, NULL);
    for (size_t i = 0; i < sizeof comparisons / sizeof *comparisons; i++) {
        if (!text_is(name, comparisons[i].name)) continue;
        const jinja_value *other = jinja_argument(a, 0, NULL);
        TRY(jinja_arguments_check(w, a, "a test", 1, NULL));
        if (!other) return jinja_work_fail(w, OTT_ERR_FORMAT, "a test has no value to compare with");
        return jinja_compare(w, text_view_of(comparisons[i].sign), v, other, out);
    }
    return *found = false, OTT_OK;
}
