/* jinja/parse: parses the statements of a template into a tree. */
#include "tokenizer/jinja/parser.h"

static ott_status parse_body(parser *p, const char *const *ends, jinja_node **out);

static ott_status end_block(parser *p) {
    return parser_expect_kind(p, JINJA_TOKEN_BLOCK_END, "the end of the tag");
}

/* After a body: skips the tag that ended the body. */
static ott_status end_body(parser *p) {
    p->at += 2;
    return end_block(p);
}

static bool is_tag(const parser *p, const char *word) {
    return p->at[0].kind == JINJA_TOKEN_BLOCK_BEGIN && p->at[1].kind == JINJA_TOKEN_NAME &&
           text_is(p->at[1].text, word);
}

static ott_status parse_branch(parser *p, bool condition, jinja_node ***end) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    jinja_node *branch;
    TRY(parser_make(p, JINJA_NODE_BRANCH, &branch));
    if (condition) TRY(expression_tuple(p, &branch->child[0]));
    TRY(end_block(p));
    TRY(parse_body(p, ends, &branch->list));
    parser_append(end, branch);
    return OTT_OK;
}

static ott_status parse_if(parser *p, jinja_node *node) {
    jinja_node **end = &node->list;
    TRY(parse_branch(p, true, &end));
    while (is_tag(p, "elif")) {
        p->at += 2;
        TRY(parse_branch(p, true, &end));
    }
    if (is_tag(p, "else")) {
        p->at += 2;
        TRY(parse_branch(p, false, &end));
    }
    return is_tag(p, "endif") ? end_body(p) : parser_fail(p, "{% endif %}");
}

/* Parses an assignment target: a name, several names (parentheses are optional), or a namespace's member. */
static ott_status parse_target(parser *p, jinja_node **out) {
    bool parentheses = parser_skip(p, "(");
    jinja_node *first;
    TRY(parser_make(p, JINJA_NODE_NAME, &first));
    TRY(parser_expect_name(p, &first->name));
    *out = first;
    if (parser_skip(p, ".")) {
        TRY(parser_make_over(p, JINJA_NODE_MEMBER, first, out));
        return parser_expect_name(p, &(*out)->name);
    }
    if (parser_is(p, ",")) {
        jinja_node **end = &first->next;
        TRY(parser_make(p, JINJA_NODE_LIST, out));
        (*out)->list = first;
        for (; parser_skip(p, ","); end = &(*end)->next) {
            TRY(parser_make(p, JINJA_NODE_NAME, end));
            TRY(parser_expect_name(p, &(*end)->name));
        }
    }
    return parentheses ? parser_expect(p, ")") : OTT_OK;
}

static ott_status parse_for(parser *p, jinja_node *node) {
    static const char *const ends[] = {"else", "endfor", NULL}, *const end[] = {"endfor", NULL};
    TRY(parse_target(p, &node->child[0]));
    if (!parser_skip(p, "in")) return parser_fail(p, "\"in\"");
    TRY(expression_logic(p, true, &node->child[1]));
    if (parser_skip(p, "if")) TRY(expression_parse(p, &node->child[2]));
    if (parser_is(p, "recursive")) return parser_fail_unsupported(p->at->line, "loop", p->at->text);
    TRY(end_block(p));
    p->loops++;
    TRY(parse_body(p, ends, &node->list));
    p->loops--;
    if (is_tag(p, "else")) {
        TRY(end_body(p));
        TRY(parse_body(p, end, &node->other));
    }
    return end_body(p);
}

static ott_status parse_set(parser *p, jinja_node *node) {
    static const char *const ends[] = {"endset", NULL};
    TRY(parse_target(p, &node->child[0]));
    if (parser_skip(p, "=")) {
        TRY(expression_tuple(p, &node->child[1]));
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

static ott_status parse_parameter(parser *p, jinja_node **out) {
    TRY(parser_make(p, JINJA_NODE_ARGUMENT, out));
    TRY(parser_expect_name(p, &(*out)->name));
    return parser_skip(p, "=") ? expression_parse(p, &(*out)->child[0]) : OTT_OK;
}

static ott_status parse_macro(parser *p, jinja_node *node) {
    static const char *const ends[] = {"endmacro", NULL};
    TRY(parser_expect_name(p, &node->name));
    TRY(parser_expect(p, "("));
    TRY(expression_list(p, ")", parse_parameter, &node->other));
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
    TRY(parser_make(p, JINJA_NODE_BODY, &body));
    TRY(expression_filter(p, body, &node->child[0]));
    while (parser_skip(p, "|")) TRY(expression_filter(p, node->child[0], &node->child[0]));
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

static ott_status parse_statement(parser *p, jinja_node **out) {
    text_view word;
    const int line = p->at->line;
    TRY(parser_expect_name(p, &word));
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!text_is(word, statements[i].word)) continue;
        TRY(parser_make(p, statements[i].kind, out));
        (*out)->line = line;
        TRY(parser_enter(p));
        TRY(statements[i].parse(p, *out));
        p->depth--;
        return OTT_OK;
    }
    return parser_fail_unsupported(line, "tag", word);
}

static ott_status parse_one(parser *p, jinja_node **out) {
    const jinja_token *t = p->at++;
    if (t->kind == JINJA_TOKEN_BLOCK_BEGIN) return parse_statement(p, out);
    TRY(parser_make(p, t->kind == JINJA_TOKEN_TEXT ? JINJA_NODE_TEXT : JINJA_NODE_OUTPUT, out));
    (*out)->name = t->text;
    if (t->kind == JINJA_TOKEN_TEXT) return OTT_OK;
    TRY(expression_tuple(p, &(*out)->child[0]));
    return parser_expect_kind(p, JINJA_TOKEN_OUTPUT_END, "}}");
}

/* Parses statements until a tag in `ends`, which is not consumed; NULL: until the end of the template. */
static ott_status parse_body(parser *p, const char *const *ends, jinja_node **out) {
    for (;;) {
        for (int i = 0; ends && ends[i]; i++)
            if (is_tag(p, ends[i])) return OTT_OK;
        if (p->at->kind == JINJA_TOKEN_END && !ends) return OTT_OK;
        if (p->at->kind == JINJA_TOKEN_END)
            return status_fail(OTT_ERR_FORMAT, "line %d: the template ends without {%% %s %%}", p->at->line,
                               ends[1] && ends[2] ? ends[2]
                               : ends[1]          ? ends[1]
                                                  : ends[0]);
        jinja_node *node = NULL;
        TRY(parse_one(p, &node));
        parser_append(&out, node);
    }
}

ott_status jinja_parse(jinja *t, const jinja_token *tokens) {
    parser p = {.t = t, .at = tokens};
    return parse_body(&p, NULL, &t->body);
}
