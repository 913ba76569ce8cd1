/* jinja/expression: parses expressions, by recursive descent with Jinja2's precedence. */
#include "tokenizer/jinja/parser.h"

static ott_status parse_argument(parser *p, jinja_node **out) {
    TRY(parser_make(p, JINJA_NODE_ARGUMENT, out));
    if (parser_is(p, "*") || parser_is(p, "**"))
        return parser_fail_unsupported(p->at->line, "argument", p->at->text);
    const jinja_token *next = p->at + 1;
    if (p->at->kind == JINJA_TOKEN_NAME && next->kind == JINJA_TOKEN_SIGN && text_is(next->text, "=")) {
        (*out)->name = p->at->text;
        p->at += 2;
    }
    return expression_parse(p, &(*out)->child[0]);
}

ott_status expression_list(parser *p, const char *end, ott_status (*element)(parser *p, jinja_node **out),
                           jinja_node **list) {
    while (!parser_is(p, end)) {
        jinja_node *node = NULL;
        TRY(element(p, &node));
        parser_append(&list, node);
        if (!parser_skip(p, ",")) break;
    }
    return parser_expect(p, end);
}

static ott_status parse_pair(parser *p, jinja_node **out) {
    TRY(parser_make(p, JINJA_NODE_PAIR, out));
    TRY(expression_parse(p, &(*out)->child[0]));
    TRY(parser_expect(p, ":"));
    return expression_parse(p, &(*out)->child[1]);
}

/* After "(": parses an expression in parentheses, or a tuple. */
static ott_status parse_parentheses(parser *p, jinja_node **out) {
    jinja_node *first = NULL;
    if (!parser_is(p, ")")) TRY(expression_parse(p, &first));
    if (first && parser_skip(p, ")")) return *out = first, OTT_OK;
    TRY(parser_make(p, JINJA_NODE_LIST, out));
    (*out)->list = first;
    (*out)->tuple = true;
    if (!first) return parser_expect(p, ")");
    TRY(parser_expect(p, ","));
    return expression_list(p, ")", expression_parse, &first->next);
}

/* Parses a string. Concatenates adjacent strings. */
static ott_status parse_string(parser *p, jinja_node **out) {
    int64_t bytes = 0;
    void *memory;
    TRY(parser_make(p, JINJA_NODE_STRING, out));
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
        if (parser_is(p, words[i].word)) kind = words[i].kind;
    TRY(parser_make(p, kind, out));
    (*out)->name = p->at++->text;
    return OTT_OK;
}

static ott_status parse_primary(parser *p, jinja_node **out) {
    const jinja_token *t = p->at;
    if (t->kind == JINJA_TOKEN_NAME) return parse_name(p, out);
    if (t->kind == JINJA_TOKEN_STRING) return parse_string(p, out);
    if (t->kind == JINJA_TOKEN_INTEGER || t->kind == JINJA_TOKEN_REAL) {
        TRY(parser_make(p, t->kind == JINJA_TOKEN_REAL ? JINJA_NODE_REAL : JINJA_NODE_INTEGER, out));
        (*out)->integer = t->integer;
        (*out)->real = t->real;
        p->at++;
        return OTT_OK;
    }
    if (parser_skip(p, "(")) return parse_parentheses(p, out);
    bool list = parser_is(p, "["), dict = parser_is(p, "{");
    if (!list && !dict) return parser_fail(p, "an expression");
    TRY(parser_make(p, list ? JINJA_NODE_LIST : JINJA_NODE_DICT, out));
    p->at++;
    return expression_list(p, list ? "]" : "}", list ? expression_parse : parse_pair, &(*out)->list);
}

static ott_status parse_index(parser *p, jinja_node *operand, jinja_node **out) {
    int bound = 1;
    TRY(parser_make_over(p, JINJA_NODE_INDEX, operand, out));
    if (!parser_is(p, ":")) TRY(expression_parse(p, &(*out)->child[1]));
    for (; bound < 3 && parser_skip(p, ":"); bound++) {
        (*out)->kind = JINJA_NODE_SLICE;
        if (!parser_is(p, ":") && !parser_is(p, "]")) TRY(expression_parse(p, &(*out)->child[bound + 1]));
    }
    return parser_expect(p, "]");
}

static ott_status parse_call(parser *p, jinja_node *operand, jinja_node **out) {
    TRY(parser_make_over(p, JINJA_NODE_CALL, operand, out));
    return expression_list(p, ")", parse_argument, &(*out)->list);
}

static ott_status parse_postfix(parser *p, jinja_node **node) {
    for (;;) {
        jinja_node *operand = *node;
        if (parser_skip(p, ".")) {
            TRY(parser_make_over(p, JINJA_NODE_MEMBER, operand, node));
            if (p->at->kind == JINJA_TOKEN_INTEGER)
                return parser_fail_unsupported(p->at->line, "member", p->at->text);
            TRY(parser_expect_name(p, &(*node)->name));
        } else if (parser_skip(p, "["))
            TRY(parse_index(p, operand, node));
        else if (parser_skip(p, "("))
            TRY(parse_call(p, operand, node));
        else
            return OTT_OK;
    }
}

static bool begins_argument(const parser *p) {
    static const char *const not_one[] = {"else", "or", "and", "is", "if", "in", "not"};
    const jinja_token *t = p->at;
    for (size_t i = 0; i < sizeof not_one / sizeof *not_one; i++)
        if (parser_is(p, not_one[i])) return false;
    return t->kind == JINJA_TOKEN_NAME || t->kind == JINJA_TOKEN_STRING || t->kind == JINJA_TOKEN_INTEGER ||
           t->kind == JINJA_TOKEN_REAL || parser_is(p, "[") || parser_is(p, "{");
}

static ott_status parse_test(parser *p, jinja_node *operand, jinja_node **out) {
    TRY(parser_make_over(p, JINJA_NODE_TEST, operand, out));
    (*out)->negated = parser_skip(p, "not");
    TRY(parser_expect_name(p, &(*out)->name));
    if (parser_skip(p, "(")) return expression_list(p, ")", parse_argument, &(*out)->list);
    if (!begins_argument(p)) return OTT_OK;
    TRY(parser_make(p, JINJA_NODE_ARGUMENT, &(*out)->list));
    TRY(parse_primary(p, &(*out)->list->child[0]));
    return parse_postfix(p, &(*out)->list->child[0]);
}

ott_status expression_filter(parser *p, jinja_node *operand, jinja_node **out) {
    TRY(parser_make_over(p, JINJA_NODE_FILTER, operand, out));
    TRY(parser_expect_name(p, &(*out)->name));
    return parser_skip(p, "(") ? expression_list(p, ")", parse_argument, &(*out)->list) : OTT_OK;
}

static ott_status parse_filters(parser *p, jinja_node **node) {
    for (;;) {
        jinja_node *operand = *node;
        if (parser_skip(p, "|"))
            TRY(expression_filter(p, operand, node));
        else if (parser_skip(p, "is"))
            TRY(parse_test(p, operand, node));
        else if (parser_skip(p, "("))
            TRY(parse_call(p, operand, node));
        else
            return OTT_OK;
    }
}

static ott_status parse_unary(parser *p, bool filters, jinja_node **out) {
    TRY(parser_enter(p));
    if (parser_skip(p, "-")) {
        jinja_node *operand;
        TRY(parse_unary(p, false, &operand));
        TRY(parser_make_over(p, JINJA_NODE_NEGATE, operand, out));
    } else {
        parser_skip(p, "+");
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
        if (parser_is(p, binary[level][i])) return true;
    return false;
}

static ott_status parse_binary(parser *p, int level, jinja_node **out) {
    if (level == BINARY_LEVELS) {
        TRY(parse_unary(p, true, out));
        return parser_is(p, "**") ? parser_fail_unsupported(p->at->line, "operator", p->at->text) : OTT_OK;
    }
    TRY(parse_binary(p, level + 1, out));
    while (is_binary(p, level)) {
        TRY(parser_make_over(p, JINJA_NODE_BINARY, *out, out));
        (*out)->name = p->at++->text;
        TRY(parse_binary(p, level + 1, &(*out)->child[1]));
    }
    return OTT_OK;
}

static bool is_comparison(const parser *p) {
    static const char *const signs[] = {"==", "!=", "<", ">", "<=", ">="};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (parser_is(p, signs[i])) return true;
    return parser_is(p, "in") ||
           (parser_is(p, "not") && p->at[1].kind == JINJA_TOKEN_NAME && text_is(p->at[1].text, "in"));
}

static ott_status parse_comparison(parser *p, jinja_node **out) {
    TRY(parse_binary(p, 0, out));
    if (!is_comparison(p)) return OTT_OK;
    TRY(parser_make_over(p, JINJA_NODE_COMPARE, *out, out));
    (*out)->negated = parser_skip(p, "not");
    (*out)->name = p->at++->text;
    TRY(parse_binary(p, 0, &(*out)->child[1]));
    return is_comparison(p) ? parser_fail_unsupported(p->at->line, "chained comparison", p->at->text)
                            : OTT_OK;
}

static ott_status parse_not(parser *p, jinja_node **out) {
    if (!parser_skip(p, "not")) return parse_comparison(p, out);
    jinja_node *operand;
    TRY(parser_enter(p));
    TRY(parse_not(p, &operand));
    p->depth--;
    return parser_make_over(p, JINJA_NODE_NOT, operand, out);
}

ott_status expression_logic(parser *p, bool or, jinja_node **out) {
    TRY(or ? expression_logic(p, false, out) : parse_not(p, out));
    while (parser_skip(p, or ? "or" : "and")) {
        TRY(parser_make_over(p, or ? JINJA_NODE_OR : JINJA_NODE_AND, *out, out));
        TRY(or ? expression_logic(p, false, &(*out)->child[1]) : parse_not(p, &(*out)->child[1]));
    }
    return OTT_OK;
}

ott_status expression_parse(parser *p, jinja_node **out) {
    TRY(parser_enter(p));
    TRY(expression_logic(p, true, out));
    while (parser_skip(p, "if")) {
        TRY(parser_make_over(p, JINJA_NODE_CONDITION, *out, out));
        TRY(expression_logic(p, true, &(*out)->child[1]));
        if (parser_skip(p, "else")) TRY(expression_parse(p, &(*out)->child[2]));
    }
    p->depth--;
    return OTT_OK;
}

ott_status expression_tuple(parser *p, jinja_node **out) {
    TRY(expression_parse(p, out));
    if (!parser_is(p, ",")) return OTT_OK;
    jinja_node *first = *out, **end = &first->next;
    TRY(parser_make(p, JINJA_NODE_LIST, out));
    (*out)->list = first;
    (*out)->tuple = true;
    while (parser_skip(p, ",")) {
        TRY(expression_parse(p, end));
        end = &(*end)->next;
    }
    return OTT_OK;
}
