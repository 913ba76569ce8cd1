/* jinja/filter: filters and tests. */
#include "base/text/text.h"
#include "tokenizer/jinja/value.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

typedef ott_status (*apply_filter)(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                   jinja_value *out);

static ott_status text_of(jinja_work *w, const jinja_value *v, text_view *out) {
    jinja_value shown;
    TRY(jinja_show(w, v, &shown));
    *out = shown.text;
    return OTT_OK;
}

/* ---- filters that convert any value to text and call a string method; `trim` calls `strip` ---- */

static ott_status apply_method(jinja_work *w, const char *name, const jinja_value *v,
                               const jinja_arguments *a, jinja_value *out) {
    jinja_value shown;
    bool found;
    TRY(jinja_show(w, v, &shown));
    return jinja_method(w, (text_view){name, (int64_t)strlen(name)}, &shown, a, out, &found);
}

#define METHOD_FILTER(filter, method)                                                                        \
    static ott_status filter_##filter(jinja_work *w, const jinja_value *v, const jinja_arguments *a,         \
                                      jinja_value *out) {                                                    \
        return apply_method(w, method, v, a, out);                                                           \
    }
METHOD_FILTER(trim, "strip")
METHOD_FILTER(upper, "upper")
METHOD_FILTER(lower, "lower")
METHOD_FILTER(title, "title")
METHOD_FILTER(capitalize, "capitalize")
METHOD_FILTER(replace, "replace")

static ott_status filter_string(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                jinja_value *out) {
    (void)a;
    return jinja_show(w, v, out);
}

static ott_status filter_tojson(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                jinja_value *out) {
    static const char *const names[] = {"indent", "ensure_ascii", NULL};
    const jinja_value *ascii = jinja_argument(a, -1, "ensure_ascii"),
                      *indent = jinja_argument(a, 0, "indent");
    TRY(jinja_arguments_check(w, a, "tojson", 1, names));
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
static ott_status filter_indent(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                jinja_value *out) {
    static const char *const names[] = {"width", "first", "blank", NULL};
    const jinja_value *width = jinja_argument(a, 0, "width"), *first = jinja_argument(a, 1, "first"),
                      *blank = jinja_argument(a, 2, "blank");
    int64_t spaces = width && width->kind == JINJA_INTEGER ? width->integer : 4;
    text_view text;
    str made = {.account = w->account};
    TRY(jinja_arguments_check(w, a, "indent", 3, names));
    TRY(text_of(w, v, &text));
    if ((width && width->kind != JINJA_INTEGER) || spaces < 0 || spaces > 64)
        return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "indent: the width must be an integer from 0 to 64");
    TRY(jinja_work_write(w, text.bytes));
    for (int64_t i = 0; i < text.bytes && made.length < JINJA_MEMORY_MOST; i++) {
        bool begins = i == 0 ? first && jinja_value_truth(first) : text.at[i - 1] == '\n';
        bool empty = text.at[i] == '\n' && !(blank && jinja_value_truth(blank));
        if (begins && !empty) str_printf(&made, "%*s", (int)spaces, "");
        str_append_bytes(&made, text.at + i, 1);
    }
    ott_status status = str_finish(&made);
    if (status == OTT_OK) status = jinja_value_copy_text(w, made.text ? made.text : "", made.length, out);
    str_free(&made);
    return status;
}

/* ---- filters of numbers ---- */

/* Copies a number's text without white space at its ends; false if it cannot be a number. */
static bool copy_number(text_view text, char out[40]) {
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
static ott_status filter_int(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                             jinja_value *out) {
    const jinja_value *otherwise = jinja_argument(a, 0, "default");
    static const char *const names[] = {"default", NULL};
    TRY(jinja_arguments_check(w, a, "int", 1, names));
    *out = otherwise ? *otherwise : jinja_value_integer(0);
    char number[40], *end;
    if (v->kind == JINJA_INTEGER) {
        *out = *v;
    } else if (jinja_value_is_number(v)) {
        set_integer(jinja_value_real(v), out);
    } else if (v->kind == JINJA_STRING && copy_number(v->text, number)) {
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

static ott_status filter_float(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                               jinja_value *out) {
    TRY(jinja_arguments_check(w, a, "float", 0, NULL));
    *out = (jinja_value){.kind = JINJA_REAL};
    if (jinja_value_is_number(v)) out->real = jinja_value_real(v);
    char number[40], *end;
    if (v->kind == JINJA_STRING && copy_number(v->text, number)) {
        double x = text_to_double(number, &end);
        if (*end == '\0') out->real = x;
    }
    return OTT_OK;
}

static ott_status filter_abs(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                             jinja_value *out) {
    TRY(jinja_arguments_check(w, a, "abs", 0, NULL));
    if (!jinja_value_is_number(v) || (v->kind == JINJA_INTEGER && v->integer == INT64_MIN))
        return jinja_work_fail(w, OTT_ERR_FORMAT, "abs of %s", jinja_value_kind(v));
    *out = *v;
    if (v->kind == JINJA_REAL) out->real = fabs(v->real);
    if (v->kind == JINJA_INTEGER && v->integer < 0) out->integer = -v->integer;
    return OTT_OK;
}

/* ---- filters of lists ---- */

static ott_status filter_length(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                jinja_value *out) {
    TRY(jinja_arguments_check(w, a, "length", 0, NULL));
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

static ott_status take_end(jinja_work *w, const jinja_value *v, bool last, jinja_value *out) {
    jinja_list *l;
    TRY(jinja_value_elements(w, v, &l));
    *out = jinja_value_undefined((text_view){"an element", 10});
    if (l->count) *out = l->items[last ? l->count - 1 : 0];
    return OTT_OK;
}

static ott_status filter_first(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                               jinja_value *out) {
    TRY(jinja_arguments_check(w, a, "first", 0, NULL));
    return take_end(w, v, false, out);
}

static ott_status filter_last(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                              jinja_value *out) {
    TRY(jinja_arguments_check(w, a, "last", 0, NULL));
    return take_end(w, v, true, out);
}

static ott_status copy_elements(jinja_work *w, const jinja_value *v, jinja_value *out) {
    jinja_list *l;
    TRY(jinja_value_elements(w, v, &l));
    TRY(jinja_value_list(w, out));
    TRY(jinja_work_steps(w, l->count));
    for (int64_t i = 0; i < l->count; i++) TRY(jinja_list_append(w, out->list, l->items[i]));
    return OTT_OK;
}

static ott_status filter_list(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                              jinja_value *out) {
    TRY(jinja_arguments_check(w, a, "list", 0, NULL));
    return copy_elements(w, v, out);
}

static ott_status filter_reverse(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                 jinja_value *out) {
    TRY(jinja_arguments_check(w, a, "reverse", 0, NULL));
    if (v->kind == JINJA_STRING)
        return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "reverse of a string is not supported");
    TRY(copy_elements(w, v, out));
    jinja_value *items = out->list->items;
    for (int64_t i = 0, k = out->list->count - 1; i < k; i++, k--) {
        jinja_value swapped = items[i];
        items[i] = items[k];
        items[k] = swapped;
    }
    return OTT_OK;
}

/* Converts a string to lower case: Jinja's sort and unique ignore case by default. */
static ott_status ignore_case(jinja_work *w, const jinja_value *v, jinja_value *out) {
    const jinja_arguments none = {0};
    bool found;
    if (v->kind != JINJA_STRING) return *out = *v, OTT_OK;
    return jinja_method(w, (text_view){"lower", 5}, v, &none, out, &found);
}

/* Keeps the first of equal elements. */
static ott_status filter_unique(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                jinja_value *out) {
    jinja_list *l;
    jinja_value seen, key;
    const jinja_value *there;
    TRY(jinja_arguments_check(w, a, "unique", 0, NULL));
    TRY(jinja_value_elements(w, v, &l));
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

/* Returns [(key, value), ...] of a dictionary. */
static ott_status filter_items(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                               jinja_value *out) {
    TRY(jinja_arguments_check(w, a, "items", 0, NULL));
    return jinja_value_items(w, v, out);
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

/* Stable sort. pairs: sorts (key, value) pairs by key. */
static ott_status sort_list(jinja_work *w, jinja_list *l, bool pairs) {
    void *memory;
    TRY(jinja_work_alloc(w, 2 * l->count * (int64_t)sizeof(sorted), &memory));
    sorted *from = memory, *to = from + l->count;
    for (int64_t i = 0; i < l->count; i++) {
        from[i].value = l->items[i];
        TRY(ignore_case(w, pairs ? &l->items[i].list->items[0] : &l->items[i], &from[i].key));
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

static ott_status filter_sort(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                              jinja_value *out) {
    TRY(jinja_arguments_check(w, a, "sort", 0, NULL));
    TRY(copy_elements(w, v, out));
    return sort_list(w, out->list, false);
}

static ott_status filter_dictsort(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                  jinja_value *out) {
    TRY(filter_items(w, v, a, out));
    return sort_list(w, out->list, true);
}

static ott_status filter_join(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                              jinja_value *out) {
    static const char *const names[] = {"d", "attribute", NULL};
    const jinja_value *between = jinja_argument(a, 0, "d"), *member = jinja_argument(a, 1, "attribute");
    text_view separator = {"", 0};
    TRY(jinja_arguments_check(w, a, "join", 2, names));
    if (between) TRY(text_of(w, between, &separator));
    return jinja_show_joined(w, v, member && member->kind == JINJA_STRING ? &member->text : NULL, separator,
                             out);
}

/* ---- filters that call a filter or a test for each element ---- */

/* Returns the elements to iterate over; none has no elements. */
static ott_status elements_of(jinja_work *w, const jinja_value *v, jinja_list **out) {
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

static ott_status map_one(jinja_work *w, const jinja_value *element, const jinja_value *member,
                          const jinja_value *otherwise, const jinja_value *filter,
                          const jinja_arguments *rest, jinja_value *out) {
    bool found;
    if (member) {
        TRY(jinja_member(w, element, member->text, out));
        if (out->kind == JINJA_UNDEFINED && otherwise) *out = *otherwise;
        return OTT_OK;
    }
    TRY(jinja_filter(w, filter->text, element, rest, out, &found));
    return found ? OTT_OK : jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "map: its filter is not supported");
}

static ott_status filter_map(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                             jinja_value *out) {
    const jinja_value *filter = jinja_argument(a, 0, NULL), *member = jinja_argument(a, -1, "attribute"),
                      *otherwise = jinja_argument(a, -1, "default");
    jinja_arguments rest = arguments_from(a, 1);
    jinja_list *l;
    jinja_value made;
    const jinja_value *what = member ? member : filter;
    if (!what || what->kind != JINJA_STRING)
        return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "map needs the name of a filter or attribute");
    TRY(elements_of(w, v, &l));
    TRY(jinja_value_list(w, out));
    for (int64_t i = 0; i < l->count; i++) {
        TRY(jinja_work_steps(w, 1));
        TRY(map_one(w, &l->items[i], member, otherwise, filter, &rest, &made));
        TRY(jinja_list_append(w, out->list, made));
    }
    return OTT_OK;
}

/* Lists the elements for which a test of the element (or of its member) is `wanted`: true or false. If the
   template names no test, the truth value of the element is used. */
static ott_status select_elements(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                  bool of_member, bool wanted, jinja_value *out) {
    const jinja_value *member = of_member ? jinja_argument(a, 0, NULL) : NULL,
                      *test = jinja_argument(a, of_member, NULL);
    jinja_arguments rest = arguments_from(a, of_member + 1);
    jinja_list *l;
    if ((of_member && (!member || member->kind != JINJA_STRING)) || (test && test->kind != JINJA_STRING))
        return jinja_work_fail(w, OTT_ERR_UNSUPPORTED, "the name of a test or member is not a string");
    TRY(elements_of(w, v, &l));
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
        if (truth == wanted) TRY(jinja_list_append(w, out->list, l->items[i]));
    }
    return OTT_OK;
}

static ott_status filter_select(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                jinja_value *out) {
    return select_elements(w, v, a, false, true, out);
}
static ott_status filter_reject(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                jinja_value *out) {
    return select_elements(w, v, a, false, false, out);
}
static ott_status filter_selectattr(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                    jinja_value *out) {
    return select_elements(w, v, a, true, true, out);
}
static ott_status filter_rejectattr(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                    jinja_value *out) {
    return select_elements(w, v, a, true, false, out);
}

static ott_status filter_default(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                                 jinja_value *out) {
    static const char *const names[] = {"default_value", "boolean", NULL};
    const jinja_value *otherwise = jinja_argument(a, 0, "default_value"),
                      *boolean = jinja_argument(a, 1, "boolean");
    TRY(jinja_arguments_check(w, a, "default", 2, names));
    bool absent =
        v->kind == JINJA_UNDEFINED || (boolean && jinja_value_truth(boolean) && !jinja_value_truth(v));
    *out = !absent ? *v : otherwise ? *otherwise : jinja_value_string((text_view){"", 0});
    return OTT_OK;
}

/* Text is never escaped, so `safe` changes nothing. */
static ott_status filter_safe(jinja_work *w, const jinja_value *v, const jinja_arguments *a,
                              jinja_value *out) {
    TRY(jinja_arguments_check(w, a, "safe", 0, NULL));
    *out = *v;
    return OTT_OK;
}

static const struct {
    const char *name;
    apply_filter apply;
} filters[] = {{"trim", filter_trim},
               {"upper", filter_upper},
               {"lower", filter_lower},
               {"title", filter_title},
               {"capitalize", filter_capitalize},
               {"replace", filter_replace},
               {"string", filter_string},
               {"tojson", filter_tojson},
               {"indent", filter_indent},
               {"int", filter_int},
               {"float", filter_float},
               {"abs", filter_abs},
               {"length", filter_length},
               {"count", filter_length},
               {"first", filter_first},
               {"last", filter_last},
               {"list", filter_list},
               {"reverse", filter_reverse},
               {"unique", filter_unique},
               {"items", filter_items},
               {"sort", filter_sort},
               {"dictsort", filter_dictsort},
               {"join", filter_join},
               {"map", filter_map},
               {"select", filter_select},
               {"reject", filter_reject},
               {"selectattr", filter_selectattr},
               {"rejectattr", filter_rejectattr},
               {"default", filter_default},
               {"d", filter_default},
               {"safe", filter_safe}};

ott_status jinja_filter(jinja_work *w, text_view name, const jinja_value *v, const jinja_arguments *a,
                        jinja_value *out, bool *found) {
    *found = true;
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (text_is(name, filters[i].name)) return filters[i].apply(w, v, a, out);
    *found = false;
    return OTT_OK;
}

/* ---- tests ---- */

typedef enum test_word {
    TEST_DEFINED,
    TEST_UNDEFINED,
    TEST_NONE,
    TEST_BOOLEAN,
    TEST_TRUE,
    TEST_FALSE,
    TEST_INTEGER,
    TEST_FLOAT,
    TEST_NUMBER,
    TEST_STRING,
    TEST_MAPPING,
    TEST_ITERABLE,
    TEST_CALLABLE,
    TEST_ODD,
    TEST_EVEN,
    TEST_DIVISIBLE,
    TEST_EQUAL,
    TEST_NOT_EQUAL,
    TEST_LESS,
    TEST_GREATER,
    TEST_LESS_EQUAL,
    TEST_GREATER_EQUAL,
    TEST_IN
} test_word;

static const struct {
    const char *name;
    test_word word;
} test_words[] = {{"defined", TEST_DEFINED},
                  {"undefined", TEST_UNDEFINED},
                  {"none", TEST_NONE},
                  {"boolean", TEST_BOOLEAN},
                  {"true", TEST_TRUE},
                  {"false", TEST_FALSE},
                  {"integer", TEST_INTEGER},
                  {"float", TEST_FLOAT},
                  {"number", TEST_NUMBER},
                  {"string", TEST_STRING},
                  {"mapping", TEST_MAPPING},
                  {"iterable", TEST_ITERABLE},
                  {"sequence", TEST_ITERABLE},
                  {"callable", TEST_CALLABLE},
                  {"odd", TEST_ODD},
                  {"even", TEST_EVEN},
                  {"divisibleby", TEST_DIVISIBLE},
                  {"equalto", TEST_EQUAL},
                  {"eq", TEST_EQUAL},
                  {"sameas", TEST_EQUAL},
                  {"ne", TEST_NOT_EQUAL},
                  {"lt", TEST_LESS},
                  {"lessthan", TEST_LESS},
                  {"gt", TEST_GREATER},
                  {"greaterthan", TEST_GREATER},
                  {"le", TEST_LESS_EQUAL},
                  {"ge", TEST_GREATER_EQUAL},
                  {"in", TEST_IN}};

static ott_status test_remainder(jinja_work *w, const jinja_value *v, const jinja_value *by, int64_t rest,
                                 bool *out) {
    int64_t divisor = by ? by->integer : 2;
    if (v->kind != JINJA_INTEGER || (by && by->kind != JINJA_INTEGER) || divisor == 0 || divisor == -1)
        return jinja_work_fail(w, OTT_ERR_FORMAT, "%s is divided by %s", jinja_value_kind(v),
                               by ? jinja_value_kind(by) : "2");
    *out = (v->integer % divisor != 0) == (rest != 0);
    return OTT_OK;
}

static ott_status test_order(jinja_work *w, test_word word, const jinja_value *v, const jinja_value *other,
                             bool *out) {
    int order;
    TRY(jinja_value_order(w, v, other, &order));
    *out = word == TEST_LESS         ? order < 0
           : word == TEST_GREATER    ? order > 0
           : word == TEST_LESS_EQUAL ? order <= 0
                                     : order >= 0;
    return OTT_OK;
}

static ott_status test_against(jinja_work *w, test_word word, const jinja_value *v, const jinja_value *other,
                               bool *out) {
    if (!other) return jinja_work_fail(w, OTT_ERR_FORMAT, "a test has no value to compare with");
    if (word == TEST_EQUAL || word == TEST_NOT_EQUAL) {
        TRY(jinja_value_equal(w, v, other, out));
        return *out = *out == (word == TEST_EQUAL), OTT_OK;
    }
    if (word == TEST_DIVISIBLE) return test_remainder(w, v, other, 0, out);
    return word == TEST_IN ? jinja_value_in(w, v, other, out) : test_order(w, word, v, other, out);
}

static ott_status test_word_of(jinja_work *w, test_word word, const jinja_value *v, const jinja_arguments *a,
                               bool *out) {
    TRY(jinja_arguments_check(w, a, "a test", word < TEST_DIVISIBLE ? 0 : 1, NULL));
    jinja_kind k = v->kind;
    switch (word) {
    case TEST_DEFINED: *out = k != JINJA_UNDEFINED; break;
    case TEST_UNDEFINED: *out = k == JINJA_UNDEFINED; break;
    case TEST_NONE: *out = k == JINJA_NONE; break;
    case TEST_BOOLEAN: *out = k == JINJA_BOOL; break;
    case TEST_TRUE: *out = k == JINJA_BOOL && v->truth; break;
    case TEST_FALSE: *out = k == JINJA_BOOL && !v->truth; break;
    case TEST_INTEGER: *out = k == JINJA_INTEGER; break;
    case TEST_FLOAT: *out = k == JINJA_REAL; break;
    case TEST_NUMBER: *out = jinja_value_is_number(v); break;
    case TEST_STRING: *out = k == JINJA_STRING; break;
    case TEST_MAPPING: *out = k == JINJA_DICT; break;
    case TEST_ITERABLE:
        *out = k == JINJA_STRING || k == JINJA_LIST || k == JINJA_DICT || k == JINJA_UNDEFINED;
        break;
    case TEST_CALLABLE: *out = k == JINJA_MACRO || k == JINJA_FUNCTION; break;
    case TEST_ODD: return test_remainder(w, v, NULL, 1, out);
    case TEST_EVEN: return test_remainder(w, v, NULL, 0, out);
    default: return test_against(w, word, v, jinja_argument(a, 0, NULL), out);
    }
    return OTT_OK;
}

ott_status jinja_test(jinja_work *w, text_view name, const jinja_value *v, const jinja_arguments *a,
                      bool *out, bool *found) {
    *found = true;
    for (size_t i = 0; i < sizeof test_words / sizeof *test_words; i++)
        if (text_is(name, test_words[i].name)) return test_word_of(w, test_words[i].word, v, a, out);
    *found = false;
    return OTT_OK;
}
