/*
 * config/tree: what a configuration file or an option says before the schema gives it meaning: tables, lists
 * and scalars with their line. The TOML, YAML and command-line front ends make trees; assign.c reads them.
 * Nodes and texts live in the arena of the builder.
 */
#ifndef CONFIG_TREE_H
#define CONFIG_TREE_H

#include "base/arena.h"
#include "base/str.h"
#include <stdbool.h>

typedef enum node_kind {
    NODE_NULL,
    NODE_BOOL,
    NODE_INTEGER,
    NODE_REAL,
    NODE_TEXT,  /* quoted: a text and nothing else */
    NODE_PLAIN, /* unquoted: the schema decides what it is */
    NODE_LIST,
    NODE_TABLE
} node_kind;

typedef struct node {
    node_kind kind;
    int line;            /* 0: not from a file */
    const char *name;    /* in a table: the key; else NULL */
    const char *text;    /* scalars: as written, without quotes */
    int64_t integer;     /* NODE_INTEGER, NODE_BOOL */
    double real;         /* NODE_REAL */
    bool yaml;           /* NODE_PLAIN: numbers are written by YAML 1.1's rules */
    const char *trouble; /* why the text could not be made; NULL: it is there */
    struct node *first, *last, *next;
} node;

#define TREE_DEPTH_LIMIT 32
#define TREE_NODE_LIMIT  20000 /* after aliases are expanded */

/* Makes nodes; `place` (a file name) begins its error messages. */
typedef struct tree_builder {
    mem *account; /* for buffers given back at once */
    arena *memory;
    const char *place;
    int64_t nodes;
    bool is_older; /* the file is the config.toml of a run that an older version wrote */
} tree_builder;

/* A new node at the end of `parent` (NULL: a root). name (NULL in lists) and text (may be NULL) are copied.
 */
ott_status tree_add(tree_builder *b, node *parent, node_kind kind, int line, const char *name,
                    const char *text, node **out);
/* A copy of `source` with everything below it, named `name`, at the end of `parent`. */
ott_status tree_copy(tree_builder *b, node *parent, const node *source, const char *name, node **out);
/* Do two trees say the same? */
bool tree_equal(const node *a, const node *b);
/* The child of that name, or NULL. */
node *tree_child(const node *table, const char *name);
/* Makes a node of an option's text: a list ([a, "b"], (1, 2)), a quoted text, or a plain scalar. */
ott_status tree_from_text(tree_builder *b, const char *text, node **out);

/* A plain scalar (or NODE_NULL) that stands for "nothing": null, none, None, ~ or empty. */
bool tree_is_null(const node *n);
/* Appends the node as a message shows it: texts in quotes, long ones cut. */
void tree_show(str *out, const node *n);
/* Appends one line of text as a message shows it: control characters escaped, at most `limit` bytes of it. */
void tree_show_text(str *out, const char *text, int limit);
/* Has it control characters, as no key has? */
bool tree_has_control(const char *text);

#endif
