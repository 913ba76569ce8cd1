/* config/rules: a rule's table has two texts, match and recipe. */
#include "config/rules.h"
#include <string.h>

static bool is_text(const node *n) {
    return n->kind == NODE_TEXT || n->kind == NODE_PLAIN;
}

static ott_status check_fields(const node *rule, const char *where) {
    static const char *const fields[] = {"match", "recipe"};
    for (const node *child = rule->first; child; child = child->next) {
        const char *near = str_nearest(child->name, fields, 2);
        if (strcmp(child->name, fields[0]) == 0 || strcmp(child->name, fields[1]) == 0) continue;
        return status_fail(OTT_ERR_CONFIG,
                           "%s: unknown key %.80s in a rule, which has match and recipe%s%s%s", where,
                           child->name, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    }
    return OTT_OK;
}

static ott_status add_rule(tree_builder *b, node *list, const node *rule, const char *where) {
    const char *text;
    node *ignored;
    TRY(check_fields(rule, where));
    const node *match = tree_child(rule, "match"), *recipe = tree_child(rule, "recipe");
    if (!match || !recipe || !is_text(match) || !is_text(recipe))
        return status_fail(OTT_ERR_CONFIG,
                           "%s: a rule is a text match and a text recipe: match = \"model.layers.0.*\", "
                           "recipe = \"bf16\"",
                           where);
    TRY(arena_printf(b->memory, &text, "%s=%s", match->text, recipe->text));
    return tree_add(b, list, NODE_TEXT, rule->line, NULL, text, &ignored);
}

static bool has_tables(const node *list) {
    for (const node *child = list->first; child; child = child->next)
        if (child->kind == NODE_TABLE) return true;
    return false;
}

ott_status rules_read(arena *memory, const config_key *key, const node **value, const char *where) {
    tree_builder b = {.memory = memory, .place = ""}; /* no account: nothing is interpolated */
    node *texts, *ignored;
    if (strcmp(key->path, "float8.module") != 0 || (*value)->kind != NODE_LIST || !has_tables(*value))
        return OTT_OK;
    TRY(tree_add(&b, NULL, NODE_LIST, (*value)->line, NULL, NULL, &texts));
    for (const node *child = (*value)->first; child; child = child->next)
        TRY(child->kind == NODE_TABLE ? add_rule(&b, texts, child, where)
                                      : tree_copy(&b, texts, child, NULL, &ignored));
    *value = texts;
    return OTT_OK;
}
