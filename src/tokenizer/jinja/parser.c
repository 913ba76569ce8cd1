/* jinja/parser: the current token of a parser, and the nodes that it makes. */
#include "tokenizer/jinja/parser.h"

ott_status parser_fail(const parser *p, const char *what) {
    const jinja_token *t = p->at;
    if (t->kind == JINJA_TOKEN_END)
        return status_fail(OTT_ERR_FORMAT, "line %d: the template ends where %s should be", t->line, what);
    if (!t->text.at)
        return status_fail(OTT_ERR_FORMAT, "line %d: a tag begins or ends where %s should be", t->line, what);
    return status_fail(OTT_ERR_FORMAT, "line %d: \"%.*s\" where %s should be", t->line,
                       (int)(t->text.bytes < 40 ? t->text.bytes : 40), t->text.at, what);
}

ott_status parser_fail_unsupported(int line, const char *what, text_view name) {
    return status_fail(OTT_ERR_UNSUPPORTED, "line %d: the %s \"%.*s\" is not supported", line, what,
                       (int)(name.bytes < 40 ? name.bytes : 40), name.at);
}

bool parser_is(const parser *p, const char *text) {
    return (p->at->kind == JINJA_TOKEN_SIGN || p->at->kind == JINJA_TOKEN_NAME) && text_is(p->at->text, text);
}

bool parser_skip(parser *p, const char *text) {
    return parser_is(p, text) ? (p->at++, true) : false;
}

ott_status parser_expect(parser *p, const char *sign) {
    char what[16];
    if (parser_skip(p, sign)) return OTT_OK;
    snprintf(what, sizeof what, "\"%s\"", sign);
    return parser_fail(p, what);
}

ott_status parser_expect_kind(parser *p, jinja_token_kind kind, const char *what) {
    if (p->at->kind != kind) return parser_fail(p, what);
    p->at++;
    return OTT_OK;
}

ott_status parser_expect_name(parser *p, text_view *out) {
    *out = p->at->text;
    return parser_expect_kind(p, JINJA_TOKEN_NAME, "a name");
}

ott_status parser_make(parser *p, jinja_node_kind kind, jinja_node **out) {
    TRY(arena_alloc(p->t->memory, sizeof **out, out));
    (*out)->kind = kind;
    (*out)->line = p->at->line;
    return OTT_OK;
}

ott_status parser_make_over(parser *p, jinja_node_kind kind, jinja_node *operand, jinja_node **out) {
    TRY(parser_make(p, kind, out));
    (*out)->child[0] = operand;
    return OTT_OK;
}

void parser_append(jinja_node ***end, jinja_node *node) {
    **end = node;
    *end = &node->next;
}

ott_status parser_enter(parser *p) {
    if (++p->depth <= JINJA_NESTING_MOST) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED, "line %d: nested more than %d deep", p->at->line,
                       JINJA_NESTING_MOST);
}
