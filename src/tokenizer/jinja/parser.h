/* tokenizer/jinja/parser: reads tokens of a template, makes nodes, parses expressions. Internal to jinja. */
#ifndef TOKENIZER_JINJA_PARSER_H
#define TOKENIZER_JINJA_PARSER_H

#include "tokenizer/jinja/syntax.h"

typedef struct parser {
    jinja *t;
    const jinja_token *at;
    int depth, loops;
} parser;

/* Fails with "... where `what` should be". */
ott_status parser_fail(const parser *p, const char *what);
ott_status parser_fail_unsupported(int line, const char *what, text_view name);
/* Tests if the next token is this name or sign. */
bool parser_is(const parser *p, const char *text);
bool parser_skip(parser *p, const char *text); /* like parser_is, and skips the token */
ott_status parser_expect(parser *p, const char *sign);
ott_status parser_expect_kind(parser *p, jinja_token_kind kind, const char *what);
ott_status parser_expect_name(parser *p, text_view *out);

ott_status parser_make(parser *p, jinja_node_kind kind, jinja_node **out);
ott_status parser_make_over(parser *p, jinja_node_kind kind, jinja_node *operand, jinja_node **out);
/* Appends a node to a list: *end is the pointer that ends the list. */
void parser_append(jinja_node ***end, jinja_node *node);
ott_status parser_enter(parser *p); /* counts the depth of nesting */

ott_status expression_parse(parser *p, jinja_node **out);
/* Parses elements separated by commas until the sign `end`. */
ott_status expression_list(parser *p, const char *end, ott_status (*element)(parser *p, jinja_node **out),
                           jinja_node **list);
/* Parses a filter of `operand`, after "|". */
ott_status expression_filter(parser *p, jinja_node *operand, jinja_node **out);
/* Parses operands that are joined by "or", or by "and" if `or` is false. */
ott_status expression_logic(parser *p, bool or, jinja_node **out);
/* Parses an expression, or expressions separated by commas, which are a tuple. */
ott_status expression_tuple(parser *p, jinja_node **out);

#endif
