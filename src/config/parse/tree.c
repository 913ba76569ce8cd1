/* config/parse/tree: builds, copies and prints trees, and parses the value of an option as a tree. */
#include "config/parse/tree.h"
#include <string.h>

ott_status tree_add(tree_builder *b, node *parent, node_kind kind, int line, const char *name,
                    const char *text, node **out) {
    if (++b->nodes > TREE_NODE_LIMIT)
        return status_fail(OTT_ERR_CONFIG,
                           "%s:%d: more than %d values (aliases counted each time they are used)", b->place,
                           line, TREE_NODE_LIMIT);
    node *n;
    TRY(arena_alloc(b->memory, sizeof(node), &n));
    n->kind = kind;
    n->line = line;
    if (name) TRY(arena_strdup(b->memory, name, &n->name));
    if (text) TRY(arena_strdup(b->memory, text, &n->text));
    if (parent) {
        if (parent->last)
            parent->last->next = n;
        else
            parent->first = n;
        parent->last = n;
    }
    return *out = n, OTT_OK;
}

/* Copies a tree by recursion. The readers refuse trees that are deeper than TREE_DEPTH_LIMIT. */
ott_status tree_copy(tree_builder *b, node *parent, const node *source, const char *name, node **out) {
    node *copy;
    TRY(tree_add(b, parent, source->kind, source->line, name, source->text, &copy));
    copy->integer = source->integer;
    copy->real = source->real;
    copy->yaml = source->yaml;
    copy->trouble = source->trouble;
    for (const node *child = source->first; child; child = child->next) {
        node *ignored;
        TRY(tree_copy(b, copy, child, child->name, &ignored));
    }
    return *out = copy, OTT_OK;
}

static bool same_text(const char *a, const char *b) {
    return a && b ? strcmp(a, b) == 0 : a == b;
}

bool tree_equal(const node *a, const node *b) {
    if (a->kind != b->kind || a->integer != b->integer || a->real != b->real) return false;
    if (!same_text(a->text, b->text)) return false;
    const node *x = a->first, *y = b->first;
    for (; x && y; x = x->next, y = y->next)
        if (!same_text(x->name, y->name) || !tree_equal(x, y)) return false;
    return x == y;
}

node *tree_child(const node *table, const char *name) {
    for (node *child = table->first; child; child = child->next)
        if (child->name && strcmp(child->name, name) == 0) return child;
    return NULL;
}

bool tree_is_null(const node *n) {
    static const char *const words[] = {"", "~", "null", "Null", "NULL", "none", "None", "NONE"};
    if (n->kind == NODE_NULL) return true;
    if (n->kind != NODE_PLAIN) return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(n->text, words[i]) == 0) return true;
    return false;
}

/* Appends the scalar text[0..length), quoted or plain. */
static ott_status add_scalar(tree_builder *b, node *parent, const char *text, size_t length, node **out) {
    node_kind kind =
        length ? NODE_PLAIN : NODE_TEXT; /* --data.dataset_path= gives an empty text, not a null */
    if (length >= 2 && (text[0] == '"' || text[0] == '\'') && text[length - 1] == text[0]) {
        kind = NODE_TEXT;
        text++;
        length -= 2;
    }
    const char *copy;
    TRY(arena_printf(b->memory, &copy, "%.*s", (int)length, text));
    return tree_add(b, parent, kind, 0, NULL, copy, out);
}

/* Returns where the list element at `at` ends: at a comma outside of quotes, or at `end`. */
static const char *element_end(const char *at, const char *end) {
    char quote = 0;
    for (; at < end; at++) {
        if (quote)
            quote = *at == quote ? 0 : quote;
        else if (*at == '"' || *at == '\'')
            quote = *at;
        else if (*at == ',')
            break;
    }
    return at;
}

static const char *skip_space(const char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\t')) at++;
    return at;
}

static ott_status add_list(tree_builder *b, const char *at, const char *end, node **out) {
    TRY(tree_add(b, NULL, NODE_LIST, 0, NULL, NULL, out));
    at = skip_space(at, end);
    while (at < end) {
        const char *stop = element_end(at, end), *last = stop;
        while (last > at && (last[-1] == ' ' || last[-1] == '\t')) last--;
        node *ignored;
        TRY(add_scalar(b, *out, at, (size_t)(last - at), &ignored));
        at = skip_space(stop < end ? stop + 1 : end, end);
    }
    return OTT_OK;
}

ott_status tree_from_text(tree_builder *b, const char *text, node **out) {
    size_t length = strlen(text);
    bool list = length >= 2 &&
                ((text[0] == '[' && text[length - 1] == ']') || (text[0] == '(' && text[length - 1] == ')'));
    if (list) return add_list(b, text + 1, text + length - 1, out);
    return add_scalar(b, NULL, text, length, out);
}

#define SHOWN 60 /* most bytes of a text that tree_show appends */

bool tree_has_control(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7F) return true;
    return false;
}

void tree_show_text(str *out, const char *text, int limit) {
    int length = (int)strlen(text), shown = length;
    if (length > limit)
        for (shown = limit; shown > 0 && ((unsigned char)text[shown] & 0xC0) == 0x80;) shown--;
    for (int i = 0; i < shown; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7F)
            str_printf(out, "\\x%02x", c);
        else
            str_append_bytes(out, text + i, 1);
    }
    str_append(out, shown < length ? "..." : "");
}

static void show_text(str *out, const char *text, const char *quote) {
    str_append(out, quote);
    tree_show_text(out, text, SHOWN);
    str_append(out, quote);
}

void tree_show(str *out, const node *n) {
    int shown = 0;
    switch (n->kind) {
    case NODE_NULL: str_append(out, "null"); break;
    case NODE_TABLE: str_append(out, "a table"); break;
    case NODE_TEXT: show_text(out, n->text, "\""); break;
    case NODE_LIST:
        str_append(out, "[");
        for (const node *child = n->first; child && shown <= 4; child = child->next, shown++) {
            str_append(out, shown ? ", " : "");
            if (shown == 4 || child->kind == NODE_LIST)
                str_append(out, "...");
            else
                tree_show(out, child);
        }
        str_append(out, "]");
        break;
    default: show_text(out, n->text, ""); break;
    }
}
