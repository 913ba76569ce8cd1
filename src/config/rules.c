/* config/rules: a rule's table has two texts, match and recipe; a dataset's has a path, a weight and a name.
 */
#include "config/rules.h"
#include <string.h>

static bool is_text(const node *n) {
    return n->kind == NODE_TEXT || n->kind == NODE_PLAIN;
}

static ott_status check_fields(const node *table, const char *what, const char *list,
                               const char *const *fields, int count, const char *where) {
    for (const node *child = table->first; child; child = child->next) {
        int known = 0;
        while (known < count && strcmp(child->name, fields[known]) != 0) known++;
        const char *near = str_nearest(child->name, fields, count);
        if (known < count) continue;
        return status_fail(OTT_ERR_CONFIG, "%s: unknown key %.80s in a %s, which has %s%s%s%s", where,
                           child->name, what, list, near ? "; did you mean " : "", near ? near : "",
                           near ? "?" : "");
    }
    return OTT_OK;
}

static ott_status add_rule(tree_builder *b, node *list, const node *rule, const char *where) {
    const char *text;
    node *ignored;
    static const char *const fields[] = {"match", "recipe"};
    TRY(check_fields(rule, "rule", "match and recipe", fields, 2, where));
    const node *match = tree_child(rule, "match"), *recipe = tree_child(rule, "recipe");
    if (!match || !recipe || !is_text(match) || !is_text(recipe))
        return status_fail(OTT_ERR_CONFIG,
                           "%s: a rule is a text match and a text recipe: match = \"model.layers.0.*\", "
                           "recipe = \"bf16\"",
                           where);
    TRY(arena_printf(b->memory, &text, "%s=%s", match->text, recipe->text));
    return tree_add(b, list, NODE_TEXT, rule->line, NULL, text, &ignored);
}

/* A name is KempnerForge's handle on a dataset for phases of the mixture; nothing else asks for it. */
static ott_status add_dataset(tree_builder *b, node *list, const node *dataset, const char *where) {
    static const char *const fields[] = {"path", "weight", "name", "hf_name", "hf_config"};
    const char *text;
    node *ignored;
    TRY(check_fields(dataset, "dataset", "path, weight and name", fields, 5, where));
    const node *path = tree_child(dataset, "path"), *weight = tree_child(dataset, "weight");
    const node *hub = tree_child(dataset, "hf_name");
    if (hub && !tree_is_null(hub) && hub->text && *hub->text)
        return status_fail(OTT_ERR_CONFIG,
                           "%s: hf_name = %s: datasets of a hub are not downloaded; give a path", where,
                           hub->text);
    if (!path || !is_text(path) || !*path->text || (weight && !weight->text))
        return status_fail(OTT_ERR_CONFIG,
                           "%s: a dataset is a text path and a number weight: path = "
                           "\"tokens/web\", weight = 0.7",
                           where);
    TRY(arena_printf(b->memory, &text, "%s=%s", path->text, weight ? weight->text : "1"));
    return tree_add(b, list, NODE_TEXT, dataset->line, NULL, text, &ignored);
}

static bool has_tables(const node *list) {
    for (const node *child = list->first; child; child = child->next)
        if (child->kind == NODE_TABLE) return true;
    return false;
}

ott_status rules_read(arena *memory, const config_key *key, const node **value, const char *where) {
    tree_builder b = {.memory = memory, .place = ""}; /* no account: nothing is interpolated */
    node *texts, *ignored;
    bool datasets = strcmp(key->path, "data.datasets") == 0;
    if (!datasets && strcmp(key->path, "float8.module") != 0) return OTT_OK;
    if ((*value)->kind != NODE_LIST || !has_tables(*value)) return OTT_OK;
    TRY(tree_add(&b, NULL, NODE_LIST, (*value)->line, NULL, NULL, &texts));
    for (const node *child = (*value)->first; child; child = child->next)
        TRY(child->kind != NODE_TABLE ? tree_copy(&b, texts, child, NULL, &ignored)
            : datasets                ? add_dataset(&b, texts, child, where)
                                      : add_rule(&b, texts, child, where));
    *value = texts;
    return OTT_OK;
}
