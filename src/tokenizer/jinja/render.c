/* jinja/render: renders a template: evaluates expressions and runs statements. */
#include "tokenizer/jinja/render.h"

static ott_status evaluate_value(rendering *r, const jinja_node *n, jinja_value *out);
static ott_status evaluate_any(rendering *r, const jinja_node *n, jinja_value *out);
static ott_status run_statements(rendering *r, const jinja_node *first);

static ott_status enter_node(rendering *r, const jinja_node *n) {
    r->work.line = n->line;
    TRY(jinja_work_steps(&r->work, 1));
    if (++r->depth <= JINJA_CALLS_MOST) return OTT_OK;
    return FAIL(r, OTT_ERR_UNSUPPORTED, "calls nested more than %d deep", JINJA_CALLS_MOST);
}

static ott_status evaluate_truth(rendering *r, const jinja_node *n, bool *out) {
    jinja_value v;
    TRY(evaluate_any(r, n, &v));
    return *out = jinja_value_truth_now(&r->work, &v), OTT_OK;
}

/* ---- calls ---- */

static ott_status evaluate_arguments(rendering *r, const jinja_node *list, jinja_arguments *a) {
    a->count = 0;
    for (const jinja_node *n = list; n; n = n->next) {
        if (a->count == JINJA_ARGUMENTS_MOST)
            return FAIL(r, OTT_ERR_UNSUPPORTED, "more than %d arguments", JINJA_ARGUMENTS_MOST);
        a->name[a->count] = n->name;
        TRY(evaluate_value(r, n->child[0], &a->value[a->count]));
        a->count++;
    }
    return OTT_OK;
}

/* Runs statements and returns their output as a string. */
static ott_status capture(rendering *r, const jinja_node *list, jinja_value *out) {
    str text = {.account = r->work.account}, *before = r->out;
    jinja_spans *generation = r->generation;
    r->out = &text;
    r->generation = NULL; /* spans are positions in the template's output, not in `text` */
    r->bodies++;
    ott_status status = run_statements(r, list);
    r->bodies--;
    r->out = before;
    r->generation = generation;
    return jinja_value_take_text(&r->work, &text, status, out);
}

/* Runs the statements in the body of n in a new scope. captured: receives the output; NULL: it is written. */
static ott_status run_inside(rendering *r, const jinja_node *n, jinja_value *captured) {
    scope own, *before = r->here;
    TRY(scope_open(r, before, &own));
    TRY(captured ? capture(r, n->list, captured) : run_statements(r, n->list));
    return r->here = before, OTT_OK;
}

static ott_status call_macro(rendering *r, const jinja_node *macro, const jinja_arguments *a,
                             jinja_value *out) {
    scope own, *before = r->here;
    int place = 0;
    TRY(scope_open(r, r->global, &own));
    for (const jinja_node *p = macro->other; p; p = p->next, place++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", jinja_shown_bytes(p->name), p->name.at);
        const jinja_value *given = jinja_argument(a, place, name);
        jinja_value v = jinja_value_undefined(p->name);
        if (given)
            v = *given;
        else if (p->child[0])
            TRY(evaluate_value(r, p->child[0], &v));
        TRY(scope_set(r, p->name, v));
    }
    TRY(capture(r, macro->list, out));
    return r->here = before, OTT_OK;
}

static ott_status call_method(rendering *r, const jinja_node *n, const jinja_value *object,
                              const jinja_arguments *a, jinja_value *out) {
    bool found;
    TRY(jinja_method(&r->work, n->name, object, a, out, &found));
    if (found) return OTT_OK;
    jinja_value member;
    TRY(jinja_member(&r->work, object, n->name, &member));
    if (member.kind == JINJA_MACRO) return call_macro(r, member.macro, a, out);
    return FAIL(r, OTT_ERR_UNSUPPORTED, "the method \"%.*s\" of %s is not supported",
                jinja_shown_bytes(n->name), n->name.at, jinja_value_kind(object));
}

static ott_status evaluate_call(rendering *r, const jinja_node *n, jinja_value *out) {
    jinja_arguments a;
    jinja_value callee;
    const jinja_node *function = n->child[0];
    bool method = function->kind == JINJA_NODE_MEMBER;
    TRY(evaluate_value(r, method ? function->child[0] : function, &callee));
    TRY(evaluate_arguments(r, n->list, &a));
    r->work.line = n->line;
    if (method) return call_method(r, function, &callee, &a, out);
    if (callee.kind == JINJA_MACRO) return call_macro(r, callee.macro, &a, out);
    if (callee.kind == JINJA_FUNCTION) return jinja_function(&r->work, callee.text, &a, out);
    if (callee.kind == JINJA_UNDEFINED)
        return FAIL(r, OTT_ERR_UNSUPPORTED, "the function \"%.*s\" is not supported",
                    jinja_shown_bytes(callee.text), callee.text.at);
    return FAIL(r, OTT_ERR_FORMAT, "%s is called", jinja_value_kind(&callee));
}

static ott_status apply_builtin(rendering *r, const jinja_node *n, jinja_value *out) {
    const bool test = n->kind == JINJA_NODE_TEST;
    jinja_arguments a;
    jinja_value v;
    bool truth, found;
    TRY(test && !n->list ? evaluate_any(r, n->child[0], &v) /* such tests read only the kind */
                         : evaluate_value(r, n->child[0], &v));
    TRY(evaluate_arguments(r, n->list, &a));
    r->work.line = n->line;
    TRY(test ? jinja_test(&r->work, n->name, &v, &a, &truth, &found)
             : jinja_filter(&r->work, n->name, &v, &a, out, &found));
    if (!found)
        return FAIL(r, OTT_ERR_UNSUPPORTED, "the %s \"%.*s\" is not supported", test ? "test" : "filter",
                    jinja_shown_bytes(n->name), n->name.at);
    if (test) *out = jinja_value_bool(truth != n->negated);
    return OTT_OK;
}

/* ---- expressions ---- */

static ott_status evaluate_list(rendering *r, const jinja_node *n, jinja_value *out) {
    jinja_value v;
    TRY(jinja_value_list(&r->work, out));
    out->list->tuple = n->tuple;
    for (const jinja_node *e = n->list; e; e = e->next) {
        TRY(evaluate_value(r, e, &v));
        TRY(jinja_list_append(&r->work, out->list, v));
    }
    return OTT_OK;
}

static ott_status evaluate_dict(rendering *r, const jinja_node *n, jinja_value *out) {
    jinja_value key, value;
    TRY(jinja_value_dict(&r->work, out));
    for (const jinja_node *e = n->list; e; e = e->next) {
        TRY(evaluate_value(r, e->child[0], &key));
        TRY(evaluate_value(r, e->child[1], &value));
        TRY(jinja_dict_set(&r->work, out->dict, key, value));
    }
    return OTT_OK;
}

static ott_status evaluate_slice(rendering *r, const jinja_node *n, jinja_value *out) {
    jinja_value object, bounds[3];
    TRY(evaluate_any(r, n->child[0], &object));
    for (int i = 0; i < 3; i++) {
        bounds[i] = (jinja_value){.kind = JINJA_NONE};
        if (n->child[i + 1]) TRY(evaluate_value(r, n->child[i + 1], &bounds[i]));
    }
    r->work.line = n->line;
    return jinja_slice(&r->work, &object, bounds, out);
}

static ott_status evaluate_over(rendering *r, const jinja_node *n, jinja_value *out) {
    jinja_value a, b;
    bool truth;
    TRY(n->kind == JINJA_NODE_INDEX ? evaluate_any(r, n->child[0], &a) : evaluate_value(r, n->child[0], &a));
    if (n->child[1]) TRY(evaluate_value(r, n->child[1], &b));
    r->work.line = n->line;
    switch (n->kind) {
    case JINJA_NODE_NEGATE: return *out = a, jinja_negate(&r->work, out);
    case JINJA_NODE_MEMBER: return jinja_member(&r->work, &a, n->name, out);
    case JINJA_NODE_INDEX: return jinja_index(&r->work, &a, &b, out);
    case JINJA_NODE_BINARY: return jinja_calculate(&r->work, n->name, &a, &b, out);
    default: break; /* JINJA_NODE_COMPARE is handled below */
    }
    TRY(jinja_compare(&r->work, n->name, &a, &b, &truth));
    return *out = jinja_value_bool(truth != n->negated), OTT_OK;
}

static ott_status evaluate_one(rendering *r, const jinja_node *n, jinja_value *out) {
    bool truth;
    switch (n->kind) {
    case JINJA_NODE_STRING: return *out = jinja_value_string(n->name), OTT_OK;
    case JINJA_NODE_INTEGER: return *out = jinja_value_integer(n->integer), OTT_OK;
    case JINJA_NODE_REAL: return *out = (jinja_value){.kind = JINJA_REAL, .real = n->real}, OTT_OK;
    case JINJA_NODE_TRUE:
    case JINJA_NODE_FALSE: return *out = jinja_value_bool(n->kind == JINJA_NODE_TRUE), OTT_OK;
    case JINJA_NODE_NONE: return *out = (jinja_value){.kind = JINJA_NONE}, OTT_OK;
    case JINJA_NODE_NAME: return scope_find(r, n->name, out);
    case JINJA_NODE_LIST: return evaluate_list(r, n, out);
    case JINJA_NODE_DICT: return evaluate_dict(r, n, out);
    case JINJA_NODE_CALL: return evaluate_call(r, n, out);
    case JINJA_NODE_FILTER:
    case JINJA_NODE_TEST: return apply_builtin(r, n, out);
    case JINJA_NODE_CONDITION:
        TRY(evaluate_truth(r, n->child[1], &truth));
        if (truth || n->child[2]) return evaluate_any(r, n->child[truth ? 0 : 2], out);
        return *out = jinja_value_undefined((text_view){"the other case", 14}), OTT_OK;
    case JINJA_NODE_AND:
    case JINJA_NODE_OR: /* the value is the operand that decides */
        TRY(evaluate_any(r, n->child[0], out));
        return jinja_value_truth_now(&r->work, out) == (n->kind == JINJA_NODE_OR)
                   ? OTT_OK
                   : evaluate_any(r, n->child[1], out);
    case JINJA_NODE_NOT:
        TRY(evaluate_truth(r, n->child[0], &truth));
        return *out = jinja_value_bool(!truth), OTT_OK;
    case JINJA_NODE_SLICE: return evaluate_slice(r, n, out);
    case JINJA_NODE_BODY: return run_inside(r, n, out);
    default: return evaluate_over(r, n, out);
    }
}

/* Evaluates a node. A result that is the list of messages is not copied; evaluate_value copies it. */
static ott_status evaluate_any(rendering *r, const jinja_node *n, jinja_value *out) {
    TRY(enter_node(r, n));
    TRY(evaluate_one(r, n, out));
    r->depth--;
    return OTT_OK;
}

static ott_status evaluate_value(rendering *r, const jinja_node *n, jinja_value *out) {
    TRY(evaluate_any(r, n, out));
    return jinja_value_fix(&r->work, out);
}

/* ---- statements ---- */

static ott_status append_output(rendering *r, text_view text) {
    if (text.bytes > JINJA_MEMORY_MOST - r->work.bytes)
        return FAIL(r, OTT_ERR_UNSUPPORTED, "makes more than %d MiB", JINJA_MEMORY_MOST >> 20);
    r->work.bytes += text.bytes;
    str_append_bytes(r->out, text.at, text.bytes);
    return jinja_work_read(&r->work, text.bytes);
}

static ott_status run_if(rendering *r, const jinja_node *n) {
    for (const jinja_node *branch = n->list; branch; branch = branch->next) {
        bool condition = true;
        if (branch->child[0]) TRY(evaluate_truth(r, branch->child[0], &condition));
        if (condition) return run_statements(r, branch->list);
    }
    return OTT_OK;
}

static ott_status run_iteration(rendering *r, const jinja_node *n, const jinja_loop *loop) {
    scope own, *before = r->here;
    TRY(scope_open(r, before, &own));
    r->bodies++;
    r->jump = JUMP_NONE;
    TRY(scope_assign(r, n->child[0], loop->over->items[loop->index]));
    TRY(scope_set(r, (text_view){"loop", 4}, (jinja_value){.kind = JINJA_LOOP, .loop = loop}));
    TRY(run_statements(r, n->list));
    r->bodies--;
    return r->here = before, OTT_OK;
}

static ott_status open_loop(rendering *r, const jinja_list *over, jinja_loop **out) {
    TRY(jinja_work_alloc(&r->work, sizeof **out, out));
    (*out)->over = over;
    return OTT_OK;
}

/* ---- prefixes ---- */

/* Runs the loop's body for message `index` as if it were the last one, then the template after the loop. */
static ott_status run_last(rendering *r, const jinja_node *n, const jinja_list *l, int64_t index) {
    jinja_loop *loop;
    TRY(open_loop(r, l, &loop));
    loop->index = index;
    TRY(run_iteration(r, n, loop));
    r->jump = JUMP_NONE;
    for (const frame *f = r->frames; f; f = f->around) TRY(run_statements(r, f->next));
    return OTT_OK;
}

/* The text of prefix p begins with r's output so far. Renders the rest of this text to branches->tails, with
   separate variables and memory. Then undoes changes of namespaces. */
static ott_status run_branch(rendering *r, const jinja_node *n, const jinja_list *l, int64_t index,
                             jinja_prefix *p) {
    rendering branch = *r;
    scope own;
    p->shared = r->out->length;
    p->at = r->branches->tails->length;
    branch.out = r->branches->tails;
    branch.work.messages = p->count;
    branch.here = branch.global = &own;
    TRY(arena_open(r->work.account, MEM_OTHER, &branch.work.memory));
    r->branches->running = true;
    ott_status status = scope_open(&branch, r->global, &own);
    if (status == OTT_OK) status = run_last(&branch, n, l, index);
    r->branches->running = false;
    jinja_undos_run(&r->branches->undos);
    arena_close(branch.work.memory);
    r->work.steps = branch.work.steps;
    r->work.line = branch.work.line;
    p->bytes = r->branches->tails->length - p->at;
    p->known = true;
    r->work.bytes += p->bytes;
    return status == OTT_OK ? str_finish(r->branches->tails) : status;
}

/* Called before an iteration. Renders the prefixes that end with the message of this iteration. */
static ott_status run_branches(rendering *r, const jinja_node *n, const jinja_loop *loop) {
    branches *b = r->branches;
    int64_t messages = loop->over->skipped + loop->index + 1;
    for (; b->next < b->count && b->items[b->next].count <= messages; b->next++) {
        jinja_prefix *p = &b->items[b->next];
        if (p->count == messages && r->work.seen <= messages)
            TRY(run_branch(r, n, loop->over, loop->index, p));
    }
    return OTT_OK;
}

/* Runs the body of a loop for each element. messages: the loop that renders the conversation's prefixes. */
static ott_status run_iterations(rendering *r, const jinja_node *n, const jinja_list *l, bool messages) {
    jinja_loop *loop;
    TRY(open_loop(r, l, &loop));
    for (; loop->index < l->count && r->jump != JUMP_BREAK; loop->index++) {
        if (messages && r->work.seen < INT64_MAX) TRY(run_branches(r, n, loop));
        if (messages) jinja_work_see(&r->work, l->skipped + loop->index + 1);
        TRY(run_iteration(r, n, loop));
    }
    r->jump = JUMP_NONE;
    if (messages) jinja_work_see(&r->work, INT64_MAX); /* now the output depends on the number of messages */
    return OTT_OK;
}

static ott_status run_for(rendering *r, const jinja_node *n) {
    jinja_value over, left, keep;
    jinja_list *elements;
    TRY(evaluate_any(r, n->child[1], &over));
    if (r->branches && !r->branches->running && r->bodies == 0 && !n->child[2] && over.kind == JINJA_LIST &&
        over.list->grows && over.list->count > 0)
        return run_iterations(r, n, over.list, true);
    TRY(jinja_value_fix(&r->work, &over));
    TRY(jinja_value_elements(&r->work, &over, &elements));
    if (n->child[2]) { /* keeps the elements for which the "if" of the loop is true */
        scope own, *before = r->here;
        TRY(jinja_value_list(&r->work, &left));
        TRY(scope_open(r, before, &own));
        for (int64_t i = 0; i < elements->count; i++) {
            TRY(scope_assign(r, n->child[0], elements->items[i]));
            TRY(evaluate_value(r, n->child[2], &keep));
            if (jinja_value_truth(&keep)) TRY(jinja_list_append(&r->work, left.list, elements->items[i]));
        }
        r->here = before;
        elements = left.list;
    }
    return elements->count ? run_iterations(r, n, elements, false) : run_statements(r, n->other);
}

static ott_status run_generation(rendering *r, const jinja_node *n) {
    jinja_spans *s = r->generation;
    int64_t begin = r->out->length;
    TRY(run_inside(r, n, NULL));
    if (!s) return OTT_OK;
    TRY(mem_grow(s->account, MEM_OTHER, (s->count + 1) * (int64_t)sizeof *s->items,
                 "spans of {% generation %}", &s->items));
    s->items[s->count++] = (jinja_span){begin, r->out->length};
    return OTT_OK;
}

static ott_status run_one(rendering *r, const jinja_node *n) {
    jinja_value v;
    switch (n->kind) {
    case JINJA_NODE_TEXT: return append_output(r, n->name);
    case JINJA_NODE_OUTPUT:
        TRY(evaluate_value(r, n->child[0], &v));
        TRY(jinja_show(&r->work, &v, &v));
        return append_output(r, v.text);
    case JINJA_NODE_IF: return run_if(r, n);
    case JINJA_NODE_FOR: return run_for(r, n);
    case JINJA_NODE_SET:
        TRY(n->child[1] ? evaluate_any(r, n->child[1], &v) : run_inside(r, n, &v));
        return scope_assign(r, n->child[0], v);
    case JINJA_NODE_MACRO: return scope_set(r, n->name, (jinja_value){.kind = JINJA_MACRO, .macro = n});
    case JINJA_NODE_GENERATION: return run_generation(r, n);
    case JINJA_NODE_BREAK: return r->jump = JUMP_BREAK, OTT_OK;
    default: return r->jump = JUMP_CONTINUE, OTT_OK;
    }
}

static ott_status run_statements(rendering *r, const jinja_node *first) {
    frame own = {.around = r->frames};
    r->frames = &own;
    for (const jinja_node *n = first; n && r->jump == JUMP_NONE; n = n->next) {
        own.next = n->next;
        TRY(enter_node(r, n));
        TRY(run_one(r, n));
        r->depth--;
    }
    r->frames = own.around;
    return OTT_OK;
}

/* ---- a rendering ---- */

static ott_status render_names(rendering *r, const jinja *t, const json_t *context) {
    jinja_value names;
    const jinja_value *messages;
    scope global;
    TRY(jinja_value_from_json(&r->work, context, &names));
    if (names.kind != JINJA_DICT)
        return status_fail(OTT_ERR_ARGUMENT, "a template's variables are not an object");
    TRY(jinja_dict_find_text(&r->work, names.dict, (text_view){"messages", 8}, &messages));
    if (r->branches && messages && messages->kind == JINJA_LIST) {
        messages->list->grows = true;
        r->work.messages = messages->list->count;
    }
    global = (scope){.names = names.dict};
    r->global = r->here = &global;
    TRY(run_statements(r, t->body));
    return str_finish(r->out);
}

static ott_status render_template(rendering *r, const jinja *t, const json_t *context,
                                  const jinja_settings *s) {
    jinja_budget *budget = s->budget;
    r->work.account = t->account;
    r->work.settings = s;
    r->work.steps_most = budget ? budget->most - budget->taken : JINJA_STEPS_MOST;
    TRY(arena_open(t->account, MEM_OTHER, &r->work.memory));
    ott_status status = render_names(r, t, context);
    arena_close(r->work.memory);
    if (budget) budget->taken += r->work.steps;
    return status;
}

ott_status jinja_render(const jinja *t, const json_t *context, const jinja_settings *settings, str *out,
                        jinja_spans *generation) {
    rendering r = {.out = out, .generation = generation};
    return render_template(&r, t, context, settings);
}

ott_status jinja_render_prefixes(const jinja *t, const json_t *context, const jinja_settings *settings,
                                 str *out, jinja_prefix *prefixes, int64_t count, str *tails) {
    branches b = {.items = prefixes, .count = count, .tails = tails};
    rendering r = {.out = out, .branches = &b};
    const int64_t before = out->length;
    for (int64_t i = 0; i < count; i++) prefixes[i].known = false;
    ott_status status = render_template(&r, t, context, settings);
    for (int64_t i = 0; i < count; i++) prefixes[i].shared -= before;
    mem_free(t->account, b.undos.items);
    return status;
}
