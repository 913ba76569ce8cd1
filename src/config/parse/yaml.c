/* config/parse/yaml: reads the events of libyaml by recursion, at most TREE_DEPTH_LIMIT deep. */
#include "config/parse/yaml.h"
#include <string.h>
#include <yaml.h>

#define ANCHOR_LIMIT 256

typedef struct anchor {
    const char *name;
    /* set when the node has been read, so that the node cannot contain an alias of itself */
    const node *target;
} anchor;

typedef struct reader {
    tree_builder *b;
    yaml_parser_t parser;
    anchor anchors[ANCHOR_LIMIT];
    int anchor_count;
} reader;

static ott_status read_node(reader *r, yaml_event_t *event, node *parent, const char *name, int depth,
                            node **out);

static int line_of(const yaml_event_t *e) {
    return (int)e->start_mark.line + 1;
}

static ott_status next_event(reader *r, yaml_event_t *event) {
    if (yaml_parser_parse(&r->parser, event)) return OTT_OK;
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR) return status_fail(OTT_ERR_MEMORY, "%s: out of memory", r->b->place);
    return status_fail(OTT_ERR_CONFIG, "%s:%d:%d: %s%s%s", r->b->place, (int)p->problem_mark.line + 1,
                       (int)p->problem_mark.column + 1, p->problem ? p->problem : "malformed YAML",
                       p->context ? " " : "", p->context ? p->context : "");
}

static ott_status remember_anchor(reader *r, const yaml_char_t *name, int line, const node *target) {
    if (!name) return OTT_OK;
    if (r->anchor_count == ANCHOR_LIMIT)
        return status_fail(OTT_ERR_CONFIG, "%s:%d: more than %d anchors", r->b->place, line, ANCHOR_LIMIT);
    anchor *a = &r->anchors[r->anchor_count];
    TRY(arena_strdup(r->b->memory, (const char *)name, &a->name));
    a->target = target;
    r->anchor_count++;
    return OTT_OK;
}

static ott_status read_alias(reader *r, const yaml_event_t *event, node *parent, const char *name,
                             node **out) {
    const char *wanted = (const char *)event->data.alias.anchor;
    for (int i = r->anchor_count - 1; i >= 0; i--)
        if (strcmp(r->anchors[i].name, wanted) == 0)
            return tree_copy(r->b, parent, r->anchors[i].target, name, out);
    return status_fail(OTT_ERR_CONFIG, "%s:%d: alias *%s has no anchor before it", r->b->place,
                       line_of(event), wanted);
}

/* Returns the kind of a scalar. It depends on the tag or, if there is no tag, on the quotes. The type of a
   NODE_PLAIN is decided later, by the key. Fails for tags that YAML does not define. */
static ott_status scalar_kind(const reader *r, const yaml_event_t *event, node_kind *kind) {
    static const char *const plain[] = {YAML_NULL_TAG, YAML_BOOL_TAG, YAML_INT_TAG, YAML_FLOAT_TAG};
    const char *tag = (const char *)event->data.scalar.tag;
    *kind = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE ? NODE_PLAIN : NODE_TEXT;
    if (!tag) return OTT_OK;
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (strcmp(tag, plain[i]) == 0) return *kind = NODE_PLAIN, OTT_OK;
    *kind = NODE_TEXT;
    if (strcmp(tag, YAML_STR_TAG) == 0 || strcmp(tag, "!") == 0) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG, "%s:%d: the tag %.80s is not supported", r->b->place, line_of(event),
                       tag);
}

static ott_status read_scalar(reader *r, const yaml_event_t *event, node *parent, const char *name,
                              node **out) {
    const char *text = (const char *)event->data.scalar.value;
    node_kind kind;
    if (strlen(text) != event->data.scalar.length)
        return status_fail(OTT_ERR_CONFIG, "%s:%d: a text contains a NUL character", r->b->place,
                           line_of(event));
    TRY(scalar_kind(r, event, &kind));
    const char *trouble = NULL;
    ott_status status = yaml_interpolate(r->b, line_of(event), text, &text);
    if (status == OTT_ERR_CONFIG) status = arena_strdup(r->b->memory, status_text(), &trouble);
    if (status == OTT_OK) status = tree_add(r->b, parent, kind, line_of(event), name, text, out);
    if (status != OTT_OK) return status;
    (*out)->yaml = kind == NODE_PLAIN;
    (*out)->trouble = trouble; /* the text becomes an error if a key reads the value */
    return OTT_OK;
}

static ott_status read_sequence(reader *r, int depth, node *list) {
    for (;;) {
        yaml_event_t event;
        node *child;
        TRY(next_event(r, &event));
        bool end = event.type == YAML_SEQUENCE_END_EVENT;
        ott_status status = end ? OTT_OK : read_node(r, &event, list, NULL, depth + 1, &child);
        yaml_event_delete(&event);
        if (end || status != OTT_OK) return status;
    }
}

/* Merges `base` (`<<: *base`) into a table: adds the entries with names that the table does not have yet. */
static ott_status merge_table(reader *r, node *table, const node *base, int line) {
    if (base->kind != NODE_TABLE)
        return status_fail(OTT_ERR_CONFIG, "%s:%d: << can only merge a table", r->b->place, line);
    for (const node *child = base->first; child; child = child->next) {
        node *copy;
        if (!tree_child(table, child->name)) TRY(tree_copy(r->b, table, child, child->name, &copy));
    }
    return OTT_OK;
}

static ott_status merge_tables(reader *r, node *table, const node *bases) {
    if (bases->kind != NODE_LIST) return merge_table(r, table, bases, bases->line);
    for (const node *base = bases->first; base; base = base->next)
        TRY(merge_table(r, table, base, bases->line));
    return OTT_OK;
}

static ott_status read_key(const reader *r, const yaml_event_t *event, const char **name) {
    if (event->type != YAML_SCALAR_EVENT)
        return status_fail(OTT_ERR_CONFIG, "%s:%d: a key must be a plain name", r->b->place, line_of(event));
    const char *text = (const char *)event->data.scalar.value;
    if (!*text || strlen(text) != event->data.scalar.length || tree_has_control(text))
        return status_fail(OTT_ERR_CONFIG, "%s:%d: a key is empty or contains a control character",
                           r->b->place, line_of(event));
    return arena_strdup(r->b->memory, text, name);
}

/* Fails if a table has two entries of one name with different values (PyYAML would use the last one). */
static ott_status check_twin(const reader *r, node *table, node *last, int line) {
    const node *twin = tree_child(table, table->last->name);
    if (twin == table->last) return OTT_OK;
    if (!tree_equal(twin, table->last))
        return status_fail(OTT_ERR_CONFIG, "%s:%d: %s is given twice, first in line %d", r->b->place, line,
                           twin->name, twin->line);
    table->last = last;
    last->next = NULL;
    return OTT_OK;
}

/* Reads one entry of a table. `key` is the event of the entry's key; the next events are its value. */
static ott_status read_mapping_entry(reader *r, const yaml_event_t *key, int depth, node *table,
                                     const node **bases) {
    const char *name;
    yaml_event_t event;
    node *child;
    node *last = table->last;
    TRY(read_key(r, key, &name));
    TRY(next_event(r, &event));
    bool merges = strcmp(name, "<<") == 0 && key->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    ott_status status = read_node(r, &event, merges ? NULL : table, name, depth + 1, &child);
    yaml_event_delete(&event);
    if (status != OTT_OK) return status;
    child->line = line_of(key);
    if (merges && *bases)
        return status_fail(OTT_ERR_CONFIG, "%s:%d: << is given twice", r->b->place, line_of(key));
    if (merges) *bases = child;
    return merges ? OTT_OK : check_twin(r, table, last, line_of(key));
}

static ott_status read_mapping(reader *r, int depth, node *table) {
    const node *bases = NULL;
    for (;;) {
        yaml_event_t event;
        TRY(next_event(r, &event));
        bool end = event.type == YAML_MAPPING_END_EVENT;
        ott_status status = end ? OTT_OK : read_mapping_entry(r, &event, depth, table, &bases);
        yaml_event_delete(&event);
        if (status != OTT_OK) return status;
        if (end) return bases ? merge_tables(r, table, bases) : OTT_OK;
    }
}

static ott_status read_node(reader *r, yaml_event_t *event, node *parent, const char *name, int depth,
                            node **out) {
    int line = line_of(event);
    if (depth > TREE_DEPTH_LIMIT)
        return status_fail(OTT_ERR_CONFIG, "%s:%d: nested deeper than %d levels", r->b->place, line,
                           TREE_DEPTH_LIMIT);
    switch (event->type) {
    case YAML_ALIAS_EVENT: return read_alias(r, event, parent, name, out);
    case YAML_SCALAR_EVENT:
        TRY(read_scalar(r, event, parent, name, out));
        return remember_anchor(r, event->data.scalar.anchor, line, *out);
    case YAML_SEQUENCE_START_EVENT:
        TRY(tree_add(r->b, parent, NODE_LIST, line, name, NULL, out));
        TRY(read_sequence(r, depth, *out));
        return remember_anchor(r, event->data.sequence_start.anchor, line, *out);
    case YAML_MAPPING_START_EVENT:
        TRY(tree_add(r->b, parent, NODE_TABLE, line, name, NULL, out));
        TRY(read_mapping(r, depth, *out));
        return remember_anchor(r, event->data.mapping_start.anchor, line, *out);
    default: return status_fail(OTT_ERR_CONFIG, "%s:%d: unexpected end of the document", r->b->place, line);
    }
}

/* Reads the events before a document; *found is false if the stream has no document. */
static ott_status open_document(reader *r, bool *found) {
    for (int i = 0; i < 2; i++) {
        yaml_event_t event;
        TRY(next_event(r, &event));
        *found = event.type == YAML_DOCUMENT_START_EVENT;
        yaml_event_delete(&event);
    }
    return OTT_OK;
}

static ott_status close_document(reader *r) {
    for (int i = 0; i < 2; i++) {
        yaml_event_t event;
        TRY(next_event(r, &event));
        int line = line_of(&event);
        bool second = event.type == YAML_DOCUMENT_START_EVENT;
        yaml_event_delete(&event);
        if (second)
            return status_fail(OTT_ERR_CONFIG,
                               "%s:%d: a second document begins; a configuration has one document",
                               r->b->place, line);
    }
    return OTT_OK;
}

static ott_status read_stream(reader *r, node **out) {
    bool found;
    yaml_event_t event;
    TRY(open_document(r, &found));
    if (!found) return tree_add(r->b, NULL, NODE_TABLE, 1, NULL, NULL, out);
    TRY(next_event(r, &event));
    ott_status status = read_node(r, &event, NULL, NULL, 0, out);
    yaml_event_delete(&event);
    if (status != OTT_OK) return status;
    if ((*out)->kind != NODE_TABLE)
        return status_fail(OTT_ERR_CONFIG, "%s:%d: a configuration must be sections of keys", r->b->place,
                           (*out)->line);
    return close_document(r);
}

ott_status yaml_read(tree_builder *b, const char *text, int64_t bytes, node **out) {
    reader r = {.b = b};
    if (!yaml_parser_initialize(&r.parser)) return status_fail(OTT_ERR_MEMORY, "%s: out of memory", b->place);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, (size_t)bytes);
    ott_status status = read_stream(&r, out);
    yaml_parser_delete(&r.parser);
    return status;
}
