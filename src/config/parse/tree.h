/*
 * config/parse/tree: a parsed configuration file or option, before the schema interprets it: tables, lists
 * and scalars with their lines. The readers of TOML, YAML and options build trees; assign.c reads them. The
 * builder's arena owns nodes and texts.
 */
#ifndef CONFIG_PARSE_TREE_H
#define CONFIG_PARSE_TREE_H

#include "base/arena.h"
#include "base/text/str.h"
#include <stdbool.h>

typedef enum node_kind {
    NODE_NULL,
    NODE_BOOL,
    NODE_INTEGER,
    NODE_REAL,
    NODE_TEXT,  /* a quoted scalar, always a text */
    NODE_PLAIN, /* an unquoted scalar: the schema decides its type */
    NODE_LIST,
    NODE_TABLE
} node_kind;

typedef struct node {
    node_kind kind;
    int line;                         /* line number; 0: not from a file */
    const char *name;                 /* the key of a table's entry; else NULL */
    const char *text;                 /* text of a scalar as written, without quotes */
    int64_t integer;                  /* value of a NODE_INTEGER or NODE_BOOL */
    double real;                      /* value of a NODE_REAL */
    bool yaml;                        /* for NODE_PLAIN: numbers follow the rules of YAML 1.1 */
    const char *trouble;              /* error message why `text` is invalid; NULL if it is valid */
    struct node *first, *last, *next; /* first and last child, next sibling */
} node;

#define TREE_DEPTH_LIMIT 32
#define TREE_NODE_LIMIT  20000 /* maximum number of nodes, after aliases are expanded */

/* Makes nodes; `place` (a file name) begins its error messages. */
typedef struct tree_builder {
    mem *account;  /* memory account of temporary buffers */
    arena *memory; /* owns nodes and texts */
    const char *place;
    int64_t nodes; /* number of nodes made so far; at most TREE_NODE_LIMIT */
    bool is_older; /* the file is a run's config.toml from an older version */
} tree_builder;

/* Appends a new node to `parent` (NULL: makes a root). Copies name (NULL in lists) and text (may be NULL). */
ott_status tree_add(tree_builder *b, node *parent, node_kind kind, int line, const char *name,
                    const char *text, node **out);
/* Appends a deep copy of `source`, named `name`, to `parent`. */
ott_status tree_copy(tree_builder *b, node *parent, const node *source, const char *name, node **out);
/* True if a and b have the same structure and values. */
bool tree_equal(const node *a, const node *b);
/* Returns the child of `table` with this name; NULL if there is none. */
node *tree_child(const node *table, const char *name);
/* Parses an option's text: a list ([a, "b"] or (1, 2)), a quoted text, or a plain scalar. */
ott_status tree_from_text(tree_builder *b, const char *text, node **out);

/* True for NODE_NULL and for a plain null, none, None, ~ or empty scalar. */
bool tree_is_null(const node *n);
/* Appends the node for a message: texts are quoted, long ones are truncated. */
void tree_show(str *out, const node *n);
/* Appends the text for a message: escapes control characters and truncates it to `limit` bytes. */
void tree_show_text(str *out, const char *text, int limit);
/* True if the text has a control character, which no key may have. */
bool tree_has_control(const char *text);

#endif
