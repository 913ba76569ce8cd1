/* jinja/render: a template with its variables: expressions and statements. */
#include "tokenizer/jinja/value.h"
#include <math.h>

/* The names that a body has set; it sees those of the ones around it. */
typedef struct scope scope;
struct scope {
    jinja_dict *names;
    const scope *around; /* NULL: the template's own */
};

typedef enum jump { JUMP_NONE, JUMP_BREAK, JUMP_CONTINUE } jump;

typedef struct rendering {
    jinja_work work;
    scope *global, *here;
    str *out;
    jinja_spans *generation;
    jump jump; /* on the way out of a loop's body */
    int depth;
} rendering;

static ott_status evaluate(rendering *r, const jinja_node *n, jinja_value *out);
static ott_status run_all(rendering *r, const jinja_node *first);

#define FAIL(r, code, ...) jinja_work_fail(&(r)->work, code, __VA_ARGS__)

static int shown_bytes(text_view name) {
    return (int)(name.bytes < 60 ? name.bytes : 60);
}

static ott_status enter(rendering *r, const jinja_node *n) {
    r->work.line = n->line;
    TRY(jinja_work_step(&r->work));
    if (++r->depth <= JINJA_CALLS_MOST) return OTT_OK;
    return FAIL(r, OTT_ERR_UNSUPPORTED, "calls nested more than %d deep", JINJA_CALLS_MOST);
}

/* ---- names ---- */

static ott_status find_name(const rendering *r, text_view name, jinja_value *out) {
    for (const scope *s = r->here; s; s = s->around) {
        const jinja_value *v = jinja_dict_find_text(s->names, name);
        if (v) return *out = *v, OTT_OK;
    }
    *out = jinja_value_undefined(name);
    if (jinja_function_exists(name)) out->kind = JINJA_FUNCTION;
    return OTT_OK;
}

static ott_status set_name(rendering *r, text_view name, jinja_value v) {
    return jinja_dict_set(&r->work, r->here->names, jinja_value_string(name), v);
}

static ott_status open_scope(rendering *r, const scope *around, scope *out) {
    jinja_value names;
    TRY(jinja_value_dict(&r->work, &names));
    *out = (scope){.names = names.dict, .around = around};
    return OTT_OK;
}

/* ---- members, indexes, slices ---- */

static text_view characters(text_view text, int64_t first, int64_t count) {
    const char *from = text.at;
    while (first-- > 0) from += text_character_bytes((unsigned char)*from);
    const char *to = from;
    while (count-- > 0) to += text_character_bytes((unsigned char)*to);
    return (text_view){from, to - from};
}

static int64_t length_of(const jinja_value *v) {
    return v->kind == JINJA_STRING ? jinja_text_length(v->text) : v->list->count;
}

static ott_status index_value(const rendering *r, const jinja_value *of, const jinja_value *key,
                              jinja_value *out) {
    *out = jinja_value_undefined((text_view){"an element", 10});
    if (key->kind == JINJA_STRING && of->kind != JINJA_DICT)
        return jinja_member(&r->work, of, key->text, out);
    if (of->kind == JINJA_DICT) {
        const jinja_value *v = jinja_dict_find(of->dict, key);
        if (v)
            *out = *v;
        else if (key->kind == JINJA_STRING)
            out->text = key->text;
        return OTT_OK;
    }
    if (of->kind == JINJA_UNDEFINED)
        return FAIL(r, OTT_ERR_FORMAT, "\"%.*s\" is undefined, and has no elements", shown_bytes(of->text),
                    of->text.at);
    if ((of->kind != JINJA_LIST && of->kind != JINJA_STRING) || key->kind != JINJA_INTEGER) return OTT_OK;
    int64_t length = length_of(of), i = key->integer < 0 ? key->integer + length : key->integer;
    if (i < 0 || i >= length) return OTT_OK;
    *out = of->kind == JINJA_LIST ? of->list->of[i] : jinja_value_string(characters(of->text, i, 1));
    return OTT_OK;
}

/* A bound of a slice, as Python's indices(): where it is absent, and kept within [least, most]. */
static ott_status read_bound(rendering *r, const jinja_node *n, int64_t length, int64_t absent, int64_t least,
                             int64_t most, int64_t *out) {
    jinja_value v = {.kind = JINJA_NONE};
    if (n) TRY(evaluate(r, n, &v));
    *out = absent;
    if (v.kind == JINJA_NONE) return OTT_OK;
    if (v.kind != JINJA_INTEGER)
        return FAIL(r, OTT_ERR_FORMAT, "a slice begins or ends with %s", jinja_value_kind(&v));
    int64_t at = v.integer < 0 ? (v.integer < -length ? -1 - length : v.integer) + length : v.integer;
    *out = at < least ? least : at > most ? most : at;
    return OTT_OK;
}

static ott_status slice_step(rendering *r, const jinja_node *n, int64_t *out) {
    jinja_value v = {.kind = JINJA_NONE};
    if (n) TRY(evaluate(r, n, &v));
    if (v.kind != JINJA_NONE &&
        (v.kind != JINJA_INTEGER || v.integer == 0 || v.integer < -INT32_MAX || v.integer > INT32_MAX))
        return FAIL(r, OTT_ERR_FORMAT, "a slice cannot have this step");
    *out = v.kind == JINJA_NONE ? 1 : v.integer;
    return OTT_OK;
}

static ott_status slice_value(rendering *r, const jinja_node *n, const jinja_value *of, jinja_value *out) {
    int64_t from, to, step;
    jinja_list *all;
    if (of->kind != JINJA_LIST && of->kind != JINJA_STRING)
        return FAIL(r, OTT_ERR_FORMAT, "%s has no slices", jinja_value_kind(of));
    int64_t length = length_of(of);
    TRY(slice_step(r, n->of[3], &step));
    bool back = step < 0;
    TRY(read_bound(r, n->of[1], length, back ? length - 1 : 0, back ? -1 : 0, back ? length - 1 : length,
                   &from));
    TRY(read_bound(r, n->of[2], length, back ? -1 : length, back ? -1 : 0, back ? length - 1 : length, &to));
    if (of->kind == JINJA_STRING && step == 1)
        return *out = jinja_value_string(characters(of->text, from, to > from ? to - from : 0)), OTT_OK;
    if (of->kind == JINJA_STRING)
        return FAIL(r, OTT_ERR_UNSUPPORTED, "slices of a string with a step are not built");
    TRY(jinja_value_elements(&r->work, of, &all));
    TRY(jinja_value_list(&r->work, out));
    for (int64_t i = from; back ? i > to : i < to; i += step)
        TRY(jinja_list_append(&r->work, out->list, all->of[i]));
    return OTT_OK;
}

/* ---- operators ---- */

static ott_status join_texts(rendering *r, text_view a, text_view b, jinja_value *out) {
    void *memory;
    TRY(jinja_work_alloc(&r->work, a.bytes + b.bytes + 1, &memory));
    if (a.bytes) memcpy(memory, a.at, (size_t)a.bytes);
    if (b.bytes) memcpy((char *)memory + a.bytes, b.at, (size_t)b.bytes);
    *out = jinja_value_string((text_view){memory, a.bytes + b.bytes});
    return OTT_OK;
}

static ott_status join_lists(rendering *r, const jinja_list *a, const jinja_list *b, jinja_value *out) {
    TRY(jinja_value_list(&r->work, out));
    for (int64_t i = 0; i < a->count; i++) TRY(jinja_list_append(&r->work, out->list, a->of[i]));
    for (int64_t i = 0; i < b->count; i++) TRY(jinja_list_append(&r->work, out->list, b->of[i]));
    return OTT_OK;
}

static ott_status repeat_text(rendering *r, text_view text, int64_t times, jinja_value *out) {
    jinja_value made = jinja_value_string((text_view){"", 0});
    for (int64_t i = 0; i < times; i++) {
        TRY(jinja_work_step(&r->work));
        TRY(join_texts(r, made.text, text, &made));
    }
    *out = made;
    return OTT_OK;
}

static ott_status calculate_whole(rendering *r, text_view sign, int64_t a, int64_t b, jinja_value *out) {
    bool fits = true;
    *out = jinja_value_integer(0);
    if (text_is(sign, "+"))
        fits = !__builtin_add_overflow(a, b, &out->integer);
    else if (text_is(sign, "-"))
        fits = !__builtin_sub_overflow(a, b, &out->integer);
    else if (text_is(sign, "*"))
        fits = !__builtin_mul_overflow(a, b, &out->integer);
    else if (b == 0)
        return FAIL(r, OTT_ERR_FORMAT, "division by zero");
    else if (text_is(sign, "/"))
        *out = (jinja_value){.kind = JINJA_REAL, .real = (double)a / (double)b};
    else if (a == INT64_MIN)
        fits = false;
    else {
        int64_t rest = a % b, down = rest != 0 && (rest < 0) != (b < 0);
        out->integer = text_is(sign, "%") ? rest + down * b : a / b - down;
    }
    return fits ? OTT_OK : FAIL(r, OTT_ERR_UNSUPPORTED, "a number is too large");
}

static ott_status calculate_real(rendering *r, text_view sign, double a, double b, jinja_value *out) {
    *out = (jinja_value){.kind = JINJA_REAL};
    bool divides = text_is(sign, "/") || text_is(sign, "//") || text_is(sign, "%");
    if (divides && b == 0) return FAIL(r, OTT_ERR_FORMAT, "division by zero");
    double floored = divides ? floor(a / b) : 0;
    out->real = text_is(sign, "+")    ? a + b
                : text_is(sign, "-")  ? a - b
                : text_is(sign, "*")  ? a * b
                : text_is(sign, "/")  ? a / b
                : text_is(sign, "//") ? floored
                                      : a - floored * b;
    return OTT_OK;
}

static ott_status calculate(rendering *r, text_view sign, const jinja_value *a, const jinja_value *b,
                            jinja_value *out) {
    jinja_value x, y;
    if (text_is(sign, "~")) {
        TRY(jinja_show(&r->work, a, &x));
        TRY(jinja_show(&r->work, b, &y));
        return join_texts(r, x.text, y.text, out);
    }
    if (jinja_value_is_number(a) && jinja_value_is_number(b)) {
        if (a->kind == JINJA_REAL || b->kind == JINJA_REAL)
            return calculate_real(r, sign, jinja_value_real(a), jinja_value_real(b), out);
        return calculate_whole(r, sign, a->kind == JINJA_BOOL ? a->truth : a->integer,
                               b->kind == JINJA_BOOL ? b->truth : b->integer, out);
    }
    bool adds = text_is(sign, "+");
    if (adds && a->kind == JINJA_STRING && b->kind == JINJA_STRING)
        return join_texts(r, a->text, b->text, out);
    if (adds && a->kind == JINJA_LIST && b->kind == JINJA_LIST) return join_lists(r, a->list, b->list, out);
    if (text_is(sign, "*") && a->kind == JINJA_STRING && b->kind == JINJA_INTEGER)
        return repeat_text(r, a->text, b->integer, out);
    if (a->kind == JINJA_UNDEFINED || b->kind == JINJA_UNDEFINED) {
        text_view name = a->kind == JINJA_UNDEFINED ? a->text : b->text;
        return FAIL(r, OTT_ERR_FORMAT, "\"%.*s\" is undefined", shown_bytes(name), name.at);
    }
    return FAIL(r, OTT_ERR_FORMAT, "%s %.*s %s has no meaning", jinja_value_kind(a), (int)sign.bytes, sign.at,
                jinja_value_kind(b));
}

static ott_status is_in(rendering *r, const jinja_value *a, const jinja_value *b, bool *out) {
    *out = false;
    if (b->kind == JINJA_STRING && a->kind == JINJA_STRING)
        return *out = jinja_text_has(b->text, a->text), OTT_OK;
    if (b->kind == JINJA_DICT) return *out = jinja_dict_find(b->dict, a) != NULL, OTT_OK;
    if (b->kind == JINJA_UNDEFINED) return OTT_OK;
    if (b->kind != JINJA_LIST)
        return FAIL(r, OTT_ERR_FORMAT, "%s is in no %s", jinja_value_kind(a), jinja_value_kind(b) + 2);
    for (int64_t i = 0; i < b->list->count && !*out; i++) *out = jinja_value_equal(a, &b->list->of[i]);
    return OTT_OK;
}

static ott_status compare(rendering *r, const jinja_node *n, const jinja_value *a, const jinja_value *b,
                          jinja_value *out) {
    bool truth;
    int order;
    if (text_is(n->name, "in")) {
        TRY(is_in(r, a, b, &truth));
        return *out = jinja_value_bool(truth != n->negated), OTT_OK;
    }
    if (text_is(n->name, "==") || text_is(n->name, "!="))
        return *out = jinja_value_bool(jinja_value_equal(a, b) == text_is(n->name, "==")), OTT_OK;
    TRY(jinja_value_order(&r->work, a, b, &order));
    truth = text_is(n->name, "<")    ? order < 0
            : text_is(n->name, ">")  ? order > 0
            : text_is(n->name, "<=") ? order <= 0
                                     : order >= 0;
    return *out = jinja_value_bool(truth), OTT_OK;
}

/* ---- calls ---- */

static ott_status evaluate_arguments(rendering *r, const jinja_node *list, jinja_arguments *a) {
    a->count = 0;
    for (const jinja_node *n = list; n; n = n->next) {
        if (a->count == JINJA_ARGUMENTS_MOST)
            return FAIL(r, OTT_ERR_UNSUPPORTED, "more than %d arguments", JINJA_ARGUMENTS_MOST);
        a->name[a->count] = n->name;
        TRY(evaluate(r, n->of[0], &a->value[a->count]));
        a->count++;
    }
    return OTT_OK;
}

/* The text that statements write. */
static ott_status capture(rendering *r, const jinja_node *list, jinja_value *out) {
    str text = {.account = r->work.account}, *before = r->out;
    jinja_spans *generation = r->generation;
    r->out = &text;
    r->generation = NULL; /* places in another text */
    ott_status status = run_all(r, list);
    r->out = before;
    r->generation = generation;
    if (status == OTT_OK) status = str_finish(&text);
    if (status == OTT_OK)
        status = jinja_value_copy_text(&r->work, text.text ? text.text : "", text.length, out);
    str_free(&text);
    return status;
}

static ott_status bind_parameters(rendering *r, const jinja_node *macro, const jinja_arguments *a) {
    int place = 0;
    for (const jinja_node *p = macro->other; p; p = p->next, place++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", shown_bytes(p->name), p->name.at);
        const jinja_value *given = jinja_argument(a, place, name);
        jinja_value v = jinja_value_undefined(p->name);
        if (given)
            v = *given;
        else if (p->of[0])
            TRY(evaluate(r, p->of[0], &v));
        TRY(set_name(r, p->name, v));
    }
    return OTT_OK;
}

static ott_status call_macro(rendering *r, const jinja_node *macro, const jinja_arguments *a,
                             jinja_value *out) {
    scope own, *before = r->here;
    TRY(open_scope(r, r->global, &own));
    r->here = &own;
    ott_status status = bind_parameters(r, macro, a);
    if (status == OTT_OK) status = capture(r, macro->list, out);
    r->here = before;
    return status;
}

static ott_status call_method(rendering *r, const jinja_node *n, const jinja_value *of,
                              const jinja_arguments *a, jinja_value *out) {
    bool found;
    TRY(jinja_method(&r->work, n->name, of, a, out, &found));
    if (found) return OTT_OK;
    jinja_value member;
    TRY(jinja_member(&r->work, of, n->name, &member));
    if (member.kind == JINJA_MACRO) return call_macro(r, member.macro, a, out);
    return FAIL(r, OTT_ERR_UNSUPPORTED, "the method \"%.*s\" of %s is not built", shown_bytes(n->name),
                n->name.at, jinja_value_kind(of));
}

static ott_status call(rendering *r, const jinja_node *n, jinja_value *out) {
    jinja_arguments a;
    jinja_value callee;
    const jinja_node *of = n->of[0];
    bool method = of->kind == JINJA_NODE_MEMBER;
    TRY(evaluate(r, method ? of->of[0] : of, &callee));
    TRY(evaluate_arguments(r, n->list, &a));
    r->work.line = n->line;
    if (method) return call_method(r, of, &callee, &a, out);
    if (callee.kind == JINJA_MACRO) return call_macro(r, callee.macro, &a, out);
    if (callee.kind == JINJA_FUNCTION) return jinja_function(&r->work, callee.text, &a, out);
    if (callee.kind == JINJA_UNDEFINED)
        return FAIL(r, OTT_ERR_UNSUPPORTED, "the function \"%.*s\" is not built", shown_bytes(callee.text),
                    callee.text.at);
    return FAIL(r, OTT_ERR_FORMAT, "%s is called", jinja_value_kind(&callee));
}

static ott_status apply_filter(rendering *r, const jinja_node *n, jinja_value *out) {
    jinja_arguments a;
    jinja_value v;
    bool found;
    TRY(evaluate(r, n->of[0], &v));
    TRY(evaluate_arguments(r, n->list, &a));
    r->work.line = n->line;
    TRY(jinja_filter(&r->work, n->name, &v, &a, out, &found));
    if (found) return OTT_OK;
    return FAIL(r, OTT_ERR_UNSUPPORTED, "the filter \"%.*s\" is not built", shown_bytes(n->name), n->name.at);
}

static ott_status apply_test(rendering *r, const jinja_node *n, jinja_value *out) {
    jinja_arguments a;
    jinja_value v;
    bool truth, found;
    TRY(evaluate(r, n->of[0], &v));
    TRY(evaluate_arguments(r, n->list, &a));
    r->work.line = n->line;
    TRY(jinja_test(&r->work, n->name, &v, &a, &truth, &found));
    if (!found)
        return FAIL(r, OTT_ERR_UNSUPPORTED, "the test \"%.*s\" is not built", shown_bytes(n->name),
                    n->name.at);
    return *out = jinja_value_bool(truth != n->negated), OTT_OK;
}

/* ---- expressions ---- */

static ott_status evaluate_list(rendering *r, const jinja_node *n, jinja_value *out) {
    jinja_value v;
    TRY(jinja_value_list(&r->work, out));
    out->list->tuple = n->tuple;
    for (const jinja_node *e = n->list; e; e = e->next) {
        TRY(evaluate(r, e, &v));
        TRY(jinja_list_append(&r->work, out->list, v));
    }
    return OTT_OK;
}

static ott_status evaluate_dict(rendering *r, const jinja_node *n, jinja_value *out) {
    jinja_value key, value;
    TRY(jinja_value_dict(&r->work, out));
    for (const jinja_node *e = n->list; e; e = e->next) {
        TRY(evaluate(r, e->of[0], &key));
        TRY(evaluate(r, e->of[1], &value));
        TRY(jinja_dict_set(&r->work, out->dict, key, value));
    }
    return OTT_OK;
}

static ott_status evaluate_condition(rendering *r, const jinja_node *n, jinja_value *out) {
    jinja_value condition;
    TRY(evaluate(r, n->of[1], &condition));
    if (jinja_value_truth(&condition)) return evaluate(r, n->of[0], out);
    if (n->of[2]) return evaluate(r, n->of[2], out);
    return *out = jinja_value_undefined((text_view){"the other case", 14}), OTT_OK;
}

static ott_status negate(rendering *r, jinja_value *v) {
    if (v->kind == JINJA_REAL) return v->real = -v->real, OTT_OK;
    if (v->kind == JINJA_INTEGER && v->integer != INT64_MIN) return v->integer = -v->integer, OTT_OK;
    return FAIL(r, OTT_ERR_FORMAT, "%s has no negative", jinja_value_kind(v));
}

/* A node over one or two values. */
static ott_status evaluate_over(rendering *r, const jinja_node *n, jinja_value *out) {
    jinja_value a, b;
    TRY(evaluate(r, n->of[0], &a));
    bool decided = (n->kind == JINJA_NODE_AND && !jinja_value_truth(&a)) ||
                   (n->kind == JINJA_NODE_OR && jinja_value_truth(&a));
    if (decided) return *out = a, OTT_OK;
    if (n->kind != JINJA_NODE_SLICE && n->of[1]) TRY(evaluate(r, n->of[1], &b));
    r->work.line = n->line;
    switch (n->kind) {
    case JINJA_NODE_AND:
    case JINJA_NODE_OR: return *out = b, OTT_OK;
    case JINJA_NODE_NOT: return *out = jinja_value_bool(!jinja_value_truth(&a)), OTT_OK;
    case JINJA_NODE_NEGATE: return *out = a, negate(r, out);
    case JINJA_NODE_MEMBER: return jinja_member(&r->work, &a, n->name, out);
    case JINJA_NODE_INDEX: return index_value(r, &a, &b, out);
    case JINJA_NODE_SLICE: return slice_value(r, n, &a, out);
    case JINJA_NODE_BINARY: return calculate(r, n->name, &a, &b, out);
    default: return compare(r, n, &a, &b, out);
    }
}

static ott_status evaluate_one(rendering *r, const jinja_node *n, jinja_value *out) {
    switch (n->kind) {
    case JINJA_NODE_STRING: return *out = jinja_value_string(n->name), OTT_OK;
    case JINJA_NODE_INTEGER: return *out = jinja_value_integer(n->integer), OTT_OK;
    case JINJA_NODE_REAL: return *out = (jinja_value){.kind = JINJA_REAL, .real = n->real}, OTT_OK;
    case JINJA_NODE_TRUE:
    case JINJA_NODE_FALSE: return *out = jinja_value_bool(n->kind == JINJA_NODE_TRUE), OTT_OK;
    case JINJA_NODE_NONE: return *out = (jinja_value){.kind = JINJA_NONE}, OTT_OK;
    case JINJA_NODE_NAME: return find_name(r, n->name, out);
    case JINJA_NODE_LIST: return evaluate_list(r, n, out);
    case JINJA_NODE_DICT: return evaluate_dict(r, n, out);
    case JINJA_NODE_CALL: return call(r, n, out);
    case JINJA_NODE_FILTER: return apply_filter(r, n, out);
    case JINJA_NODE_TEST: return apply_test(r, n, out);
    case JINJA_NODE_CONDITION: return evaluate_condition(r, n, out);
    default: return evaluate_over(r, n, out);
    }
}

static ott_status evaluate(rendering *r, const jinja_node *n, jinja_value *out) {
    TRY(enter(r, n));
    TRY(evaluate_one(r, n, out));
    r->depth--;
    return OTT_OK;
}

/* ---- statements ---- */

static ott_status write_text(rendering *r, text_view text) {
    if (text.bytes > JINJA_MEMORY_MOST - r->work.bytes)
        return FAIL(r, OTT_ERR_UNSUPPORTED, "makes more than %d MiB", JINJA_MEMORY_MOST >> 20);
    r->work.bytes += text.bytes;
    str_append_bytes(r->out, text.at, text.bytes);
    return OTT_OK;
}

static ott_status run_output(rendering *r, const jinja_node *n) {
    jinja_value v, text;
    TRY(evaluate(r, n->of[0], &v));
    TRY(jinja_show(&r->work, &v, &text));
    return write_text(r, text.text);
}

static ott_status run_if(rendering *r, const jinja_node *n) {
    for (const jinja_node *branch = n->list; branch; branch = branch->next) {
        jinja_value condition = jinja_value_bool(true);
        if (branch->of[0]) TRY(evaluate(r, branch->of[0], &condition));
        if (jinja_value_truth(&condition)) return run_all(r, branch->list);
    }
    return OTT_OK;
}

static ott_status assign(rendering *r, const jinja_node *target, jinja_value v) {
    if (target->kind == JINJA_NODE_NAME) return set_name(r, target->name, v);
    if (target->kind == JINJA_NODE_MEMBER) {
        jinja_value of;
        TRY(find_name(r, target->of[0]->name, &of));
        if (of.kind == JINJA_NAMESPACE)
            return jinja_dict_set(&r->work, of.dict, jinja_value_string(target->name), v);
        return FAIL(r, OTT_ERR_FORMAT, "a member of %s is set: only a namespace's can be",
                    jinja_value_kind(&of));
    }
    int64_t count = 0;
    for (const jinja_node *n = target->list; n; n = n->next) count++;
    if (v.kind != JINJA_LIST || v.list->count != count)
        return FAIL(r, OTT_ERR_FORMAT, "%s is set to %d names", jinja_value_kind(&v), (int)count);
    const jinja_value *element = v.list->of;
    for (const jinja_node *n = target->list; n; n = n->next) TRY(set_name(r, n->name, *element++));
    return OTT_OK;
}

static ott_status run_set(rendering *r, const jinja_node *n) {
    jinja_value v;
    TRY(n->of[1] ? evaluate(r, n->of[1], &v) : capture(r, n->list, &v));
    return assign(r, n->of[0], v);
}

static ott_status set_member(rendering *r, jinja_dict *d, const char *name, jinja_value v) {
    return jinja_dict_set(&r->work, d, jinja_value_string((text_view){name, (int64_t)strlen(name)}), v);
}

/* "loop", for element i of a list. */
static ott_status describe_loop(rendering *r, const jinja_list *l, int64_t i) {
    const jinja_value nothing = jinja_value_undefined((text_view){"loop", 4});
    jinja_value loop;
    TRY(jinja_value_dict(&r->work, &loop));
    TRY(set_member(r, loop.dict, "index", jinja_value_integer(i + 1)));
    TRY(set_member(r, loop.dict, "index0", jinja_value_integer(i)));
    TRY(set_member(r, loop.dict, "first", jinja_value_bool(i == 0)));
    TRY(set_member(r, loop.dict, "last", jinja_value_bool(i == l->count - 1)));
    TRY(set_member(r, loop.dict, "length", jinja_value_integer(l->count)));
    TRY(set_member(r, loop.dict, "revindex", jinja_value_integer(l->count - i)));
    TRY(set_member(r, loop.dict, "revindex0", jinja_value_integer(l->count - i - 1)));
    TRY(set_member(r, loop.dict, "previtem", i > 0 ? l->of[i - 1] : nothing));
    TRY(set_member(r, loop.dict, "nextitem", i + 1 < l->count ? l->of[i + 1] : nothing));
    return set_name(r, (text_view){"loop", 4}, loop);
}

/* The elements that the loop's own filter leaves. */
static ott_status filter_elements(rendering *r, const jinja_node *n, const jinja_list *all,
                                  jinja_list *left) {
    jinja_value keep;
    for (int64_t i = 0; i < all->count; i++) {
        TRY(assign(r, n->of[0], all->of[i]));
        TRY(evaluate(r, n->of[2], &keep));
        if (jinja_value_truth(&keep)) TRY(jinja_list_append(&r->work, left, all->of[i]));
    }
    return OTT_OK;
}

static ott_status run_iterations(rendering *r, const jinja_node *n, const jinja_list *l) {
    for (int64_t i = 0; i < l->count && r->jump != JUMP_BREAK; i++) {
        scope own, *before = r->here;
        TRY(open_scope(r, before, &own));
        r->here = &own;
        r->jump = JUMP_NONE;
        ott_status status = assign(r, n->of[0], l->of[i]);
        if (status == OTT_OK) status = describe_loop(r, l, i);
        if (status == OTT_OK) status = run_all(r, n->list);
        r->here = before;
        TRY(status);
    }
    r->jump = JUMP_NONE;
    return OTT_OK;
}

static ott_status run_for(rendering *r, const jinja_node *n) {
    jinja_value over, left;
    jinja_list *elements;
    TRY(evaluate(r, n->of[1], &over));
    TRY(jinja_value_elements(&r->work, &over, &elements));
    if (n->of[2]) {
        scope own, *before = r->here;
        TRY(jinja_value_list(&r->work, &left));
        TRY(open_scope(r, before, &own));
        r->here = &own;
        ott_status status = filter_elements(r, n, elements, left.list);
        r->here = before;
        TRY(status);
        elements = left.list;
    }
    return elements->count ? run_iterations(r, n, elements) : run_all(r, n->other);
}

static ott_status run_generation(rendering *r, const jinja_node *n) {
    jinja_spans *s = r->generation;
    int64_t begin = r->out->length;
    TRY(run_all(r, n->list));
    if (!s) return OTT_OK;
    void *of = s->of;
    TRY(mem_grow(s->account, MEM_OTHER, (s->count + 1) * (int64_t)sizeof *s->of,
                 "places of what is generated", &of));
    s->of = of;
    s->of[s->count++] = (jinja_span){begin, r->out->length};
    return OTT_OK;
}

static ott_status run_one(rendering *r, const jinja_node *n) {
    switch (n->kind) {
    case JINJA_NODE_TEXT: return write_text(r, n->name);
    case JINJA_NODE_OUTPUT: return run_output(r, n);
    case JINJA_NODE_IF: return run_if(r, n);
    case JINJA_NODE_FOR: return run_for(r, n);
    case JINJA_NODE_SET: return run_set(r, n);
    case JINJA_NODE_MACRO: return set_name(r, n->name, (jinja_value){.kind = JINJA_MACRO, .macro = n});
    case JINJA_NODE_GENERATION: return run_generation(r, n);
    case JINJA_NODE_BREAK: return r->jump = JUMP_BREAK, OTT_OK;
    default: return r->jump = JUMP_CONTINUE, OTT_OK;
    }
}

static ott_status run_all(rendering *r, const jinja_node *first) {
    for (const jinja_node *n = first; n && r->jump == JUMP_NONE; n = n->next) {
        TRY(enter(r, n));
        TRY(run_one(r, n));
        r->depth--;
    }
    return OTT_OK;
}

static ott_status render(rendering *r, const jinja *t, const json_t *context) {
    jinja_value names;
    scope global;
    TRY(jinja_value_from_json(&r->work, context, &names));
    if (names.kind != JINJA_DICT)
        return status_fail(OTT_ERR_ARGUMENT, "a template's variables are no object");
    global = (scope){.names = names.dict};
    r->global = r->here = &global;
    TRY(run_all(r, t->body));
    return str_finish(r->out);
}

ott_status jinja_render(const jinja *t, const json_t *context, str *out, jinja_spans *generation) {
    rendering r = {.work = {.account = t->account}, .out = out, .generation = generation};
    TRY(arena_open(t->account, MEM_OTHER, &r.work.memory));
    ott_status status = render(&r, t, context);
    arena_close(r.work.memory);
    return status;
}

/* ---- a template ---- */

void jinja_spans_free(jinja_spans *s) {
    mem_free(s->account, s->of);
    *s = (jinja_spans){.account = s->account};
}

/* Lines end with \n; the last end of line is not part of the template. Returns its bytes. */
static int64_t copy_lines(const char *text, int64_t bytes, char *to) {
    int64_t count = 0;
    for (int64_t i = 0; i < bytes; i++) {
        if (text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n') continue;
        to[count++] = text[i] == '\r' ? '\n' : text[i];
    }
    return count > 0 && to[count - 1] == '\n' ? count - 1 : count;
}

static ott_status open_template(jinja *t, const char *text, int64_t bytes) {
    void *memory;
    jinja_token *tokens;
    if (bytes > JINJA_TEXT_MOST)
        return status_fail(OTT_ERR_UNSUPPORTED, "a template of %lld bytes: at most %d are read",
                           (long long)bytes, JINJA_TEXT_MOST);
    int64_t wrong = str_utf8_error(text, bytes);
    if (wrong >= 0) return status_fail(OTT_ERR_FORMAT, "byte %lld is not UTF-8", (long long)wrong);
    TRY(arena_open(t->account, MEM_OTHER, &t->memory));
    TRY(arena_alloc(t->memory, bytes + 1, &memory));
    t->text = memory;
    TRY(jinja_lex(t, copy_lines(text, bytes, t->text), &tokens));
    ott_status status = jinja_parse(t, tokens);
    mem_free(t->account, tokens);
    return status;
}

ott_status jinja_open(mem *account, const char *text, int64_t bytes, jinja **out) {
    void *memory;
    *out = NULL;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(jinja), "a template", &memory));
    jinja *t = memory;
    t->account = account;
    ott_status status = open_template(t, text, bytes);
    if (status == OTT_OK)
        *out = t;
    else
        jinja_close(t);
    return status;
}

void jinja_close(jinja *t) {
    if (!t) return;
    arena_close(t->memory);
    mem_free(t->account, t);
}

bool jinja_marks_generation(const jinja *t) {
    return t->marks_generation;
}
