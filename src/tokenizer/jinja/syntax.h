/* tokenizer/jinja/syntax: tokens and tree of a template. Internal to jinja. */
#ifndef TOKENIZER_JINJA_SYNTAX_H
#define TOKENIZER_JINJA_SYNTAX_H

#include "base/arena.h"
#include "tokenizer/jinja/jinja.h"
#include "tokenizer/text/text.h"

typedef enum jinja_token_kind {
    JINJA_TOKEN_TEXT, /* text outside of tags, may be empty */
    JINJA_TOKEN_OUTPUT_BEGIN,
    JINJA_TOKEN_OUTPUT_END,
    JINJA_TOKEN_BLOCK_BEGIN,
    JINJA_TOKEN_BLOCK_END,
    JINJA_TOKEN_NAME,
    JINJA_TOKEN_INTEGER,
    JINJA_TOKEN_REAL,
    JINJA_TOKEN_STRING, /* a string without quotes, with its escapes decoded */
    JINJA_TOKEN_SIGN,
    JINJA_TOKEN_END
} jinja_token_kind;

typedef struct jinja_token {
    jinja_token_kind kind;
    int line;
    text_view text;
    int64_t integer;
    double real;
} jinja_token;

/* Kinds of nodes, and how each kind uses the members of jinja_node. */
typedef enum jinja_node_kind {
    /* expressions */
    JINJA_NODE_STRING,
    JINJA_NODE_INTEGER,
    JINJA_NODE_REAL,
    JINJA_NODE_TRUE,
    JINJA_NODE_FALSE,
    JINJA_NODE_NONE,
    JINJA_NODE_NAME,
    JINJA_NODE_LIST,     /* a list or a tuple; list: elements */
    JINJA_NODE_DICT,     /* list: entries of kind JINJA_NODE_PAIR */
    JINJA_NODE_PAIR,     /* an entry: child[0] key, child[1] value */
    JINJA_NODE_MEMBER,   /* child[0].name */
    JINJA_NODE_INDEX,    /* child[0][child[1]] */
    JINJA_NODE_SLICE,    /* child[0][child[1]:child[2]:child[3]], each may be NULL */
    JINJA_NODE_CALL,     /* child[0](list), where list has the arguments */
    JINJA_NODE_ARGUMENT, /* call: name=child[0], or child[0] without a name; macro: default or NULL */
    JINJA_NODE_FILTER,   /* child[0] | name(list) */
    JINJA_NODE_TEST,     /* child[0] is name(list); negated: is not */
    JINJA_NODE_NOT,
    JINJA_NODE_NEGATE,
    JINJA_NODE_AND,
    JINJA_NODE_OR,
    JINJA_NODE_BINARY,    /* child[0] name child[1]; name: + - ~ * / // % */
    JINJA_NODE_COMPARE,   /* as JINJA_NODE_BINARY; name: == != < > <= >= in; negated: not in */
    JINJA_NODE_CONDITION, /* child[0] if child[1] else child[2], which may be NULL */
    JINJA_NODE_BODY,      /* list: statements; the value is their output */
    /* statements */
    JINJA_NODE_TEXT,       /* text outside of tags; name: the text */
    JINJA_NODE_OUTPUT,     /* {{ child[0] }} */
    JINJA_NODE_IF,         /* list: branches of kind JINJA_NODE_BRANCH */
    JINJA_NODE_BRANCH,     /* child[0] condition, or NULL for else; list: statements */
    JINJA_NODE_FOR,        /* for child[0] in child[1] [if child[2]]; list: loop body; other: else body */
    JINJA_NODE_SET,        /* child[0] target; child[1] value, or NULL: the output of list */
    JINJA_NODE_MACRO,      /* name; other: list of parameters; list: statements */
    JINJA_NODE_GENERATION, /* {% generation %}; list: statements */
    JINJA_NODE_BREAK,
    JINJA_NODE_CONTINUE
} jinja_node_kind;

typedef struct jinja_node jinja_node;
struct jinja_node {
    jinja_node_kind kind;
    int line;
    bool negated, tuple;
    text_view name; /* a name, an operator, or the text of a string */
    int64_t integer;
    double real;
    jinja_node *child[4];
    jinja_node *list, *other; /* heads of linked lists */
    jinja_node *next;         /* next element of the list that contains this node */
};

struct jinja {
    mem *account;
    arena *memory;
    char *text; /* source, line ends normalized to \n */
    jinja_node *body;
    bool marks_generation;
};

/* Splits t->text into tokens, ended by JINJA_TOKEN_END; free with mem_free. */
ott_status jinja_lex(jinja *t, int64_t bytes, jinja_token **out);
/* Parses the tokens into t->body. */
ott_status jinja_parse(jinja *t, const jinja_token *tokens);

#endif
