/* jinja/parse: parses a template into a tree, by recursive descent with Jinja2's precedence. */
#include "tokenizer/jinja/syntax.h"

typedef struct parser {
    jinja *t;
    const jinja_token *at;
    int depth, loops;
} parser;

static ott_status parse_expression(parser *p, jinja_node **out);
static ott_status parse_unary(parser *p, bool filters, jinja_node **out);
static ott_status parse_body(parser *p, const char *const *ends, jinja_node **out);

/* ---- tokens ---- */

static ott_status fail_expecting(const parser *p, const char *what) {
    const jinja_token *t = p->at;
    if (t->kind == JINJA_TOKEN_END)
        return status_fail(OTT_ERR_FORMAT, "line %d: the template ends where %s should be", t->line, what);
    if (!t->text.at)
        return status_fail(OTT_ERR_FORMAT, "line %d: a tag begins or ends where %s should be", t->line, what);
    return status_fail(OTT_ERR_FORMAT, "line %d: \"%.*s\" where %s should be", t->line,
                       (int)(t->text.bytes < 40 ? t->text.bytes : 40), t->text.at, what);
}

static ott_status fail_unsupported(int line, const char *what, text_view name) {
    return status_fail(OTT_ERR_UNSUPPORTED, "line %d: the %s \"%.*s\" is not supported", line, what,
                       (int)(name.bytes < 40 ? name.bytes : 40), name.at);
}

static bool is_sign(const parser *p, const char *sign) {
    return p->at->kind == JINJA_TOKEN_SIGN && text_is(p->at->text, sign);
}

static bool is_word(const parser *p, const char *word) {
    return p->at->kind == JINJA_TOKEN_NAME && text_is(p->at->text, word);
}

static bool skip_sign(parser *p, const char *sign) {
    return is_sign(p, sign) ? (p->at++, true) : false;
}

static bool skip_word(parser *p, const char *word) {
    return is_word(p, word) ? (p->at++, true) : false;
}

static ott_status expect_sign(parser *p, const char *sign) {
    char what[16];
    if (skip_sign(p, sign)) return OTT_OK;
    snprintf(what, sizeof what, "\"%s\"", sign);
    return fail_expecting(p, what);
}

static ott_status expect_kind(parser *p, jinja_token_kind kind, const char *what) {
    if (p->at->kind != kind) return fail_expecting(p, what);
    p->at++;
    return OTT_OK;
}

static ott_status expect_name(parser *p, text_view *out) {
    *out = p->at->text;
    return expect_kind(p, JINJA_TOKEN_NAME, "a name");
}

/* ---- nodes ---- */

static ott_status make(parser *p, jinja_node_kind kind, jinja_node **out) {
    TRY(arena_alloc(p->t->memory, sizeof **out, out));
    (*out)->kind = kind;
    (*out)->line = p->at->line;
    return OTT_OK;
}

static ott_status make_over(parser *p, jinja_node_kind kind, jinja_node *operand, jinja_node **out) {
    TRY(make(p, kind, out));
    (*out)->child[0] = operand;
    return OTT_OK;
}

static void append(jinja_node ***end, jinja_node *node) {
    **end = node;
    *end = &node->next;
}

static ott_status enter_nesting(parser *p) {
    if (++p->depth <= JINJA_NESTING_MOST) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED, "line %d: nested more than %d deep", p->at->line,
                       JINJA_NESTING_MOST);
}

/* ---- expressions ---- */

/* After "(": parses arguments until ")". */
static ott_status parse_arguments(parser *p, jinja_node **list) {
    while (!is_sign(p, ")")) {
        jinja_node *argument;
        TRY(make(p, JINJA_NODE_ARGUMENT, &argument));
        if (is_sign(p, "*") || is_sign(p, "**"))
            return fail_unsupported(p->at->line, "argument", p->at->text);
        const jinja_token *next = p->at + 1;
        if (p->at->kind == JINJA_TOKEN_NAME && next->kind == JINJA_TOKEN_SIGN && text_is(next->text, "=")) {
            argument->name = p->at->text;
            p->at += 2;
        }
        TRY(parse_expression(p, &argument->child[0]));
        append(&list, argument);
        if (!skip_sign(p, ",")) break;
    }
    return expect_sign(p, ")");
}

static ott_status parse_elements(parser *p, const char *end, jinja_node **list) {
    while (!is_sign(p, end)) {
        jinja_node *element = NULL;
        TRY(parse_expression(p, &element));
        append(&list, element);
        if (!skip_sign(p, ",")) break;
    }
    return expect_sign(p, end);
}

static ott_status parse_pairs(parser *p, jinja_node **list) {
    while (!is_sign(p, "}")) {
        jinja_node *pair;
        TRY(make(p, JINJA_NODE_PAIR, &pair));
        TRY(parse_expression(p, &pair->child[0]));
        TRY(expect_sign(p, ":"));
        TRY(parse_expression(p, &pair->child[1]));
        append(&list, pair);
        if (!skip_sign(p, ",")) break;
    }
    return expect_sign(p, "}");
}

/* After "(": parses an expression in parentheses, or a tuple. */
static ott_status parse_parentheses(parser *p, jinja_node **out) {
    jinja_node *first = NULL;
    if (!is_sign(p, ")")) TRY(parse_expression(p, &first));
    if (first && skip_sign(p, ")")) return *out = first, OTT_OK;
    TRY(make(p, JINJA_NODE_LIST, out));
    (*out)->list = first;
    (*out)->tuple = true;
    if (!first) return expect_sign(p, ")");
    TRY(expect_sign(p, ","));
    return parse_elements(p, ")", &first->next);
}

/* Parses a string. Concatenates adjacent strings. */
static ott_status parse_string(parser *p, jinja_node **out) {
    int64_t bytes = 0;
    void *memory;
    TRY(make(p, JINJA_NODE_STRING, out));
    const jinja_token *from = p->at;
    for (; p->at->kind == JINJA_TOKEN_STRING; p->at++) bytes += p->at->text.bytes;
    (*out)->name = from->text;
    if (p->at == from + 1) return OTT_OK;
    TRY(arena_alloc(p->t->memory, bytes + 1, &memory));
    (*out)->name = (text_view){memory, bytes};
    for (char *to = memory; from < p->at; to += from->text.bytes, from++)
        memcpy(to, from->text.at, (size_t)from->text.bytes);
    return OTT_OK;
}

static ott_status parse_name(parser *p, jinja_node **out) {
    static const struct {
        const char *word;
        jinja_node_kind kind;
    } words[] = {{"true", JINJA_NODE_TRUE},   {"True", JINJA_NODE_TRUE}, {"false", JINJA_NODE_FALSE},
                 {"False", JINJA_NODE_FALSE}, {"none", JINJA_NODE_NONE}, {"None", JINJA_NODE_NONE}};
    jinja_node_kind kind = JINJA_NODE_NAME;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (is_word(p, words[i].word)) kind = words[i].kind;
    TRY(make(p, kind, out));
    (*out)->name = p->at++->text;
    return OTT_OK;
}

static ott_status parse_primary(parser *p, jinja_node **out) {
    const jinja_token *t = p->at;
    if (t->kind == JINJA_TOKEN_NAME) return parse_name(p, out);
    if (t->kind == JINJA_TOKEN_STRING) return parse_string(p, out);
    if (t->kind == JINJA_TOKEN_INTEGER || t->kind == JINJA_TOKEN_REAL) {
        TRY(make(p, t->kind == JINJA_TOKEN_REAL ? JINJA_NODE_REAL : JINJA_NODE_INTEGER, out));
        (*out)->integer = t->integer;
        (*out)->real = t->real;
        p->at++;
        return OTT_OK;
    }
    if (skip_sign(p, "(")) return parse_parentheses(p, out);
    bool list = is_sign(p, "["), dict = is_sign(p, "{");
    if (!list && !dict) return fail_expecting(p, "an expression");
    TRY(make(p, list ? JINJA_NODE_LIST : JINJA_NODE_DICT, out));
    p->at++;
    return list ? parse_elements(p, "]", &(*out)->list) : parse_pairs(p, &(*out)->list);
}

/* After "[": parses an index or a slice of `operand`. */
static ott_status parse_index(parser *p, jinja_node *operand, jinja_node **out) {
    int bound = 1;
    TRY(make_over(p, JINJA_NODE_INDEX, operand, out));
    if (!is_sign(p, ":")) TRY(parse_expression(p, &(*out)->child[1]));
    for (; bound < 3 && skip_sign(p, ":"); bound++) {
        (*out)->kind = JINJA_NODE_SLICE;
        if (!is_sign(p, ":") && !is_sign(p, "]")) TRY(parse_expression(p, &(*out)->child[bound + 1]));
    }
    return expect_sign(p, "]");
}

static ott_status parse_call(parser *p, jinja_node *operand, jinja_node **out) {
    TRY(make_over(p, JINJA_NODE_CALL, operand, out));
    return parse_arguments(p, &(*out)->list);
}

static ott_status parse_postfix(parser *p, jinja_node **node) {
    for (;;) {
        jinja_node *operand = *node;
        if (skip_sign(p, ".")) {
            TRY(make_over(p, JINJA_NODE_MEMBER, operand, node));
            if (p->at->kind == JINJA_TOKEN_INTEGER)
                return fail_unsupported(p->at->line, "member", p->at->text);
            TRY(expect_name(p, &(*node)->name));
        } else if (skip_sign(p, "["))
            TRY(parse_index(p, operand, node));
        else if (skip_sign(p, "("))
            TRY(parse_call(p, operand, node));
        else
            return OTT_OK;
    }
}

static bool begins_argument(const parser *p) {
    static const char *const not_one[] = {"else", "or", "and", "is", "if", "in", "not"};
    const jinja_token *t = p->at;
    for (size_t i = 0; i < sizeof not_one / sizeof *not_one; i++)
        if (is_word(p, not_one[i])) return false;
    return t->kind == JINJA_TOKEN_NAME || t->kind == JINJA_TOKEN_STRING || t->kind == JINJA_TOKEN_INTEGER ||
           t->kind == JINJA_TOKEN_REAL || is_sign(p, "[") || is_sign(p, "{");
}

/* After "is": parses a test. */
static ott_status parse_test(parser *p, jinja_node *operand, jinja_node **out) {
    TRY(make_over(p, JINJA_NODE_TEST, operand, out));
    (*out)->negated = skip_word(p, "not");
    TRY(expect_name(p, &(*out)->name));
    if (skip_sign(p, "(")) return parse_arguments(p, &(*out)->list);
    if (!begins_argument(p)) return OTT_OK;
    TRY(make(p, JINJA_NODE_ARGUMENT, &(*out)->list));
    TRY(parse_primary(p, &(*out)->list->child[0]));
    return parse_postfix(p, &(*out)->list->child[0]);
}

static ott_status parse_filter(parser *p, jinja_node *operand, jinja_node **out) {
    TRY(make_over(p, JINJA_NODE_FILTER, operand, out));
    TRY(expect_name(p, &(*out)->name));
    return skip_sign(p, "(") ? parse_arguments(p, &(*out)->list) : OTT_OK;
}

static ott_status parse_filters(parser *p, jinja_node **node) {
    for (;;) {
        jinja_node *operand = *node;
        if (skip_sign(p, "|"))
            TRY(parse_filter(p, operand, node));
        else if (skip_word(p, "is"))
            TRY(parse_test(p, operand, node));
        else if (skip_sign(p, "("))
            TRY(parse_call(p, operand, node));
        else
            return OTT_OK;
    }
}

static ott_status parse_unary(parser *p, bool filters, jinja_node **out) {
    TRY(enter_nesting(p));
    if (skip_sign(p, "-")) {
        jinja_node *operand;
        TRY(parse_unary(p, false, &operand));
        TRY(make_over(p, JINJA_NODE_NEGATE, operand, out));
    } else {
        skip_sign(p, "+");
        TRY(parse_primary(p, out));
        TRY(parse_postfix(p, out));
    }
    p->depth--;
    return filters ? parse_filters(p, out) : OTT_OK;
}

/* Operators by precedence, lowest first. */
static const char *const binary[][4] = {{"+", "-"}, {"~"}, {"*", "/", "//", "%"}};
enum { BINARY_LEVELS = sizeof binary / sizeof *binary };

static bool is_binary(const parser *p, int level) {
    for (int i = 0; i < 4 && binary[level][i]; i++)
        if (is_sign(p, binary[level][i])) return true;
    return false;
}

static ott_status parse_binary(parser *p, int level, jinja_node **out) {
    if (level == BINARY_LEVELS) {
        TRY(parse_unary(p, true, out));
        return is_sign(p, "**") ? fail_unsupported(p->at->line, "operator", p->at->text) : OTT_OK;
    }
    TRY(parse_binary(p, level + 1, out));
    while (is_binary(p, level)) {
        TRY(make_over(p, JINJA_NODE_BINARY, *out, out));
        (*out)->name = p->at++->text;
        TRY(parse_binary(p, level + 1, &(*out)->child[1]));
    }
    return OTT_OK;
}

static bool is_comparison(const parser *p) {
    static const char *const signs[] = {"==", "!=", "<", ">", "<=", ">="};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (is_sign(p, signs[i])) return true;
    return is_word(p, "in") ||
           (is_word(p, "not") && p->at[1].kind == JINJA_TOKEN_NAME && text_is(p->at[1].text, "in"));
}

static ott_status parse_comparison(parser *p, jinja_node **out) {
    TRY(parse_binary(p, 0, out));
    if (!is_comparison(p)) return OTT_OK;
    TRY(make_over(p, JINJA_NODE_COMPARE, *out, out));
    (*out)->negated = skip_word(p, "not");
    (*out)->name = p->at++->text;
    TRY(parse_binary(p, 0, &(*out)->child[1]));
    return is_comparison(p) ? fail_unsupported(p->at->line, "chained comparison", p->at->text) : OTT_OK;
}

static ott_status parse_not(parser *p, jinja_node **out) {
    if (!skip_word(p, "not")) return parse_comparison(p, out);
    jinja_node *operand;
    TRY(enter_nesting(p));
    TRY(parse_not(p, &operand));
    p->depth--;
    return make_over(p, JINJA_NODE_NOT, operand, out);
}

static ott_status parse_and(parser *p, jinja_node **out) {
    TRY(parse_not(p, out));
    while (skip_word(p, "and")) {
        TRY(make_over(p, JINJA_NODE_AND, *out, out));
        TRY(parse_not(p, &(*out)->child[1]));
    }
    return OTT_OK;
}

static ott_status parse_or(parser *p, jinja_node **out) {
    TRY(parse_and(p, out));
    while (skip_word(p, "or")) {
        TRY(make_over(p, JINJA_NODE_OR, *out, out));
        TRY(parse_and(p, &(*out)->child[1]));
    }
    return OTT_OK;
}

static ott_status parse_expression(parser *p, jinja_node **out) {
    TRY(enter_nesting(p));
    TRY(parse_or(p, out));
    while (skip_word(p, "if")) {
        TRY(make_over(p, JINJA_NODE_CONDITION, *out, out));
        TRY(parse_or(p, &(*out)->child[1]));
        if (skip_word(p, "else")) TRY(parse_expression(p, &(*out)->child[2]));
    }
    p->depth--;
    return OTT_OK;
}

/* Parses an expression, or expressions separated by commas, which are a tuple. */
static ott_status parse_tuple(parser *p, jinja_node **out) {
    TRY(parse_expression(p, out));
    if (!is_sign(p, ",")) return OTT_OK;
    jinja_node *first = *out, **end = &first->next;
    TRY(make(p, JINJA_NODE_LIST, out));
    (*out)->list = first;
    (*out)->tuple = true;
    while (skip_sign(p, ",")) {
        TRY(parse_expression(p, end));
        end = &(*end)->next;
    }
    return OTT_OK;
}

/* ---- statements ---- */

static ott_status end_block(parser *p) {
    return expect_kind(p, JINJA_TOKEN_BLOCK_END, "the end of the tag");
}

/* After a body: skips the tag that ended the body. */
static ott_status end_body(parser *p) {
    p->at += 2;
    return end_block(p);
}

static bool ends_with(const parser *p, const char *word) {
    return p->at[0].kind == JINJA_TOKEN_BLOCK_BEGIN && p->at[1].kind == JINJA_TOKEN_NAME &&
           text_is(p->at[1].text, word);
}

static ott_status parse_branch(parser *p, bool condition, jinja_node ***end) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    jinja_node *branch;
    TRY(make(p, JINJA_NODE_BRANCH, &branch));
    if (condition) TRY(parse_tuple(p, &branch->child[0]));
    TRY(end_block(p));
    TRY(parse_body(p, ends, &branch->list));
    append(end, branch);
    return OTT_OK;
}

static ott_status parse_if(parser *p, jinja_node *node) {
    jinja_node **end = &node->list;
    TRY(parse_branch(p, true, &end));
    while (ends_with(p, "elif")) {
        p->at += 2;
        TRY(parse_branch(p, true, &end));
    }
    if (ends_with(p, "else")) {
        p->at += 2;
        TRY(parse_branch(p, false, &end));
    }
    return ends_with(p, "endif") ? end_body(p) : fail_expecting(p, "{% endif %}");
}

/* Parses an assignment target: a name, several names (parentheses are optional), or a namespace's member. */
static ott_status parse_target(parser *p, jinja_node **out) {
    bool parentheses = skip_sign(p, "(");
    jinja_node *first;
    TRY(make(p, JINJA_NODE_NAME, &first));
    TRY(expect_name(p, &first->name));
    *out = first;
    if (skip_sign(p, ".")) {
        TRY(make_over(p, JINJA_NODE_MEMBER, first, out));
        return expect_name(p, &(*out)->name);
    }
    if (is_sign(p, ",")) {
        jinja_node **end = &first->next;
        TRY(make(p, JINJA_NODE_LIST, out));
        (*out)->list = first;
        for (; skip_sign(p, ","); end = &(*end)->next) {
            TRY(make(p, JINJA_NODE_NAME, end));
            TRY(expect_name(p, &(*end)->name));
        }
    }
    return parentheses ? expect_sign(p, ")") : OTT_OK;
}

static ott_status parse_for(parser *p, jinja_node *node) {
    static const char *const ends[] = {"else", "endfor", NULL}, *const end[] = {"endfor", NULL};
    TRY(parse_target(p, &node->child[0]));
    if (!skip_word(p, "in")) return fail_expecting(p, "\"in\"");
    TRY(parse_or(p, &node->child[1]));
    if (skip_word(p, "if")) TRY(parse_expression(p, &node->child[2]));
    if (is_word(p, "recursive")) return fail_unsupported(p->at->line, "loop", p->at->text);
    TRY(end_block(p));
    p->loops++;
    TRY(parse_body(p, ends, &node->list));
    p->loops--;
    if (ends_with(p, "else")) {
        TRY(end_body(p));
        TRY(parse_body(p, end, &node->other));
    }
    return end_body(p);
}

static ott_status parse_set(parser *p, jinja_node *node) {
    static const char *const ends[] = {"endset", NULL};
    TRY(parse_target(p, &node->child[0]));
    if (skip_sign(p, "=")) {
        TRY(parse_tuple(p, &node->child[1]));
        return end_block(p);
    }
    TRY(end_block(p));
    TRY(parse_body(p, ends, &node->list));
    return end_body(p);
}

/* Parses a body that break and continue cannot leave. */
static ott_status parse_closed_body(parser *p, const char *const *ends, jinja_node **list) {
    int loops = p->loops;
    p->loops = 0;
    TRY(parse_body(p, ends, list));
    p->loops = loops;
    return end_body(p);
}

static ott_status parse_macro(parser *p, jinja_node *node) {
    static const char *const ends[] = {"endmacro", NULL};
    jinja_node **end = &node->other;
    TRY(expect_name(p, &node->name));
    TRY(expect_sign(p, "("));
    while (!is_sign(p, ")")) {
        jinja_node *parameter;
        TRY(make(p, JINJA_NODE_ARGUMENT, &parameter));
        TRY(expect_name(p, &parameter->name));
        if (skip_sign(p, "=")) TRY(parse_expression(p, &parameter->child[0]));
        append(&end, parameter);
        if (!skip_sign(p, ",")) break;
    }
    TRY(expect_sign(p, ")"));
    TRY(end_block(p));
    return parse_closed_body(p, ends, &node->list);
}

static ott_status parse_generation(parser *p, jinja_node *node) {
    static const char *const ends[] = {"endgeneration", NULL};
    p->t->marks_generation = true;
    TRY(end_block(p));
    return parse_closed_body(p, ends, &node->list);
}

/* Parses {% filter NAME %}, which outputs the filtered text of its body. */
static ott_status parse_filter_block(parser *p, jinja_node *node) {
    static const char *const ends[] = {"endfilter", NULL};
    jinja_node *body;
    TRY(make(p, JINJA_NODE_BODY, &body));
    TRY(parse_filter(p, body, &node->child[0]));
    while (skip_sign(p, "|")) TRY(parse_filter(p, node->child[0], &node->child[0]));
    TRY(end_block(p));
    return parse_closed_body(p, ends, &body->list);
}

static ott_status parse_jump(parser *p, jinja_node *node) {
    if (p->loops) return end_block(p);
    return status_fail(OTT_ERR_FORMAT, "line %d: %s is not in a loop", node->line,
                       node->kind == JINJA_NODE_BREAK ? "break" : "continue");
}

static const struct {
    const char *word;
    jinja_node_kind kind;
    ott_status (*parse)(parser *p, jinja_node *node);
} statements[] = {{"if", JINJA_NODE_IF, parse_if},
                  {"for", JINJA_NODE_FOR, parse_for},
                  {"set", JINJA_NODE_SET, parse_set},
                  {"macro", JINJA_NODE_MACRO, parse_macro},
                  {"filter", JINJA_NODE_OUTPUT, parse_filter_block},
                  {"generation", JINJA_NODE_GENERATION, parse_generation},
                  {"break", JINJA_NODE_BREAK, parse_jump},
                  {"continue", JINJA_NODE_CONTINUE, parse_jump}};

/* After "{%": parses a statement. */
static ott_status parse_statement(parser *p, jinja_node **out) {
    text_view word;
    const int line = p->at->line;
    TRY(expect_name(p, &word));
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!text_is(word, statements[i].word)) continue;
        TRY(make(p, statements[i].kind, out));
        (*out)->line = line;
        TRY(enter_nesting(p));
        TRY(statements[i].parse(p, *out));
        p->depth--;
        return OTT_OK;
    }
    return fail_unsupported(line, "tag", word);
}

static ott_status parse_one(parser *p, jinja_node **out) {
    const jinja_token *t = p->at++;
    if (t->kind == JINJA_TOKEN_BLOCK_BEGIN) return parse_statement(p, out);
    TRY(make(p, t->kind == JINJA_TOKEN_TEXT ? JINJA_NODE_TEXT : JINJA_NODE_OUTPUT, out));
    (*out)->name = t->text;
    if (t->kind == JINJA_TOKEN_TEXT) return OTT_OK;
    TRY(parse_tuple(p, &(*out)->child[0]));
    return expect_kind(p, JINJA_TOKEN_OUTPUT_END, "}}");
}

static bool is_end(const parser *p, const char *const *ends) {
    for (int i = 0; ends && ends[i]; i++)
        if (ends_with(p, ends[i])) return true;
    return false;
}

/* Parses statements until a tag in `ends`, which is not consumed; NULL: until the end of the template. */
static ott_status parse_body(parser *p, const char *const *ends, jinja_node **out) {
    while (!is_end(p, ends)) {
        if (p->at->kind == JINJA_TOKEN_END && !ends) return OTT_OK;
        if (p->at->kind == JINJA_TOKEN_END)
            return status_fail(OTT_ERR_FORMAT, "line %d: the template ends without {%% %s %%}", p->at->line,
                               ends[1] && ends[2] ? ends[2]
                               : ends[1]          ? ends[1]
                                                  : ends[0]);
        jinja_node *node = NULL;
        TRY(parse_one(p, &node));
        append(&out, node);
    }
    return OTT_OK;
}

ott_status jinja_parse(jinja *t, const jinja_token *tokens) {
    parser p = {.t = t, .at = tokens};
    return parse_body(&p, NULL, &t->body);
}
