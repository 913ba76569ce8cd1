/* config/rules: converts tables to texts, with a function for each kind of table. rules.h lists the keys. */
#include "config/rules.h"
#include "config/value.h"
#include <string.h>

static bool is_text(const node *n) {
    return n->kind == NODE_TEXT || n->kind == NODE_PLAIN;
}

/* Fails if the table has a key that is not in `fields`. For the message: `what` is the kind of table
   ("rule"), `list` its keys ("match and recipe"). */
static ott_status check_rule_fields(const node *table, const char *what, const char *list,
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
    TRY(check_rule_fields(rule, "rule", "match and recipe", fields, 2, where));
    const node *match = tree_child(rule, "match"), *recipe = tree_child(rule, "recipe");
    if (!match || !recipe || !is_text(match) || !is_text(recipe))
        return status_fail(OTT_ERR_CONFIG,
                           "%s: a rule needs the texts match and recipe: match = \"model.layers.0.*\", "
                           "recipe = \"bf16\"",
                           where);
    TRY(arena_printf(b->memory, &text, "%s=%s", match->text, recipe->text));
    return tree_add(b, list, NODE_TEXT, rule->line, NULL, text, &ignored);
}

/* Converts a table {path, weight, name} to the text "path=weight name". */
static ott_status add_dataset(tree_builder *b, node *list, const node *dataset, const char *where) {
    static const char *const fields[] = {"path", "weight", "name", "hf_name", "hf_config"};
    const char *text;
    node *ignored;
    TRY(check_rule_fields(dataset, "dataset", "path, weight and name", fields, 5, where));
    const node *path = tree_child(dataset, "path"), *weight = tree_child(dataset, "weight");
    const node *hub = tree_child(dataset, "hf_name");
    if (hub && !tree_is_null(hub) && hub->text && *hub->text)
        return status_fail(OTT_ERR_CONFIG,
                           "%s: hf_name = %s: datasets of a hub are not downloaded; give a path", where,
                           hub->text);
    if (!path || !is_text(path) || !*path->text || (weight && !weight->text))
        return status_fail(OTT_ERR_CONFIG,
                           "%s: a dataset needs a path (a text) and a weight (a number): path = "
                           "\"tokens/web\", weight = 0.7",
                           where);
    const node *name = tree_child(dataset, "name");
    bool named = name && is_text(name) && *name->text;
    TRY(arena_printf(b->memory, &text, "%s=%s%s%s", path->text, weight ? weight->text : "1", named ? " " : "",
                     named ? name->text : ""));
    return tree_add(b, list, NODE_TEXT, dataset->line, NULL, text, &ignored);
}

/* Appends " name=weight" for each entry of a table. */
static ott_status append_weights(arena *memory, const node *weights, const char **text, const char *where) {
    for (const node *child = weights->first; child; child = child->next) {
        if (!child->text || strchr(child->name, ' '))
            return status_fail(OTT_ERR_CONFIG,
                               "%s: %.80s: give the name of a dataset, without spaces, and its weight", where,
                               child->name);
        TRY(arena_printf(memory, text, "%s%s%s=%s", *text, **text ? " " : "", child->name, child->text));
    }
    return OTT_OK;
}

static ott_status add_phase(tree_builder *b, node *list, const node *phase, const char *where) {
    static const char *const fields[] = {"start_step", "dataset_weights", "lr_scale"};
    const char *text;
    node *ignored;
    TRY(check_rule_fields(phase, "phase", "start_step, dataset_weights and lr_scale", fields, 3, where));
    const node *start = tree_child(phase, "start_step"), *scale = tree_child(phase, "lr_scale");
    const node *weights = tree_child(phase, "dataset_weights");
    if ((start && !start->text) || (scale && !scale->text) || (weights && weights->kind != NODE_TABLE))
        return status_fail(
            OTT_ERR_CONFIG,
            "%s: a phase has a number start_step, a table dataset_weights and a number lr_scale: "
            "start_step = 10000, dataset_weights = {web = 0.3}, lr_scale = 0.5",
            where);
    TRY(arena_printf(b->memory, &text, "%s", start ? start->text : "0"));
    if (weights) TRY(append_weights(b->memory, weights, &text, where));
    if (scale) TRY(arena_printf(b->memory, &text, "%s lr_scale=%s", text, scale->text));
    return tree_add(b, list, NODE_TEXT, phase->line, NULL, text, &ignored);
}

/* Appends " module" for each spec ({module, frozen}) that is frozen. */
static ott_status append_specs(arena *memory, const node *specs, const char **text, const char *where) {
    static const char *const fields[] = {"module", "frozen"};
    for (const node *spec = specs->first; spec; spec = spec->next) {
        bool frozen = true;
        const node *module = tree_child(spec, "module"), *state = tree_child(spec, "frozen");
        TRY(check_rule_fields(spec, "spec", "module and frozen", fields, 2, where));
        if (!module || !is_text(module) || strchr(module->text, ' ') ||
            (state && !value_bool(state, &frozen)))
            return status_fail(OTT_ERR_CONFIG,
                               "%s: a spec has a text module and a boolean frozen: module = \"lm_head\", "
                               "frozen = true",
                               where);
        if (frozen) TRY(arena_printf(memory, text, "%s %s", *text, module->text));
    }
    return OTT_OK;
}

static ott_status add_freeze_entry(tree_builder *b, node *list, const node *entry, const char *where) {
    static const char *const fields[] = {"start_step", "specs"};
    const char *text;
    node *ignored;
    TRY(check_rule_fields(entry, "entry", "start_step and specs", fields, 2, where));
    const node *start = tree_child(entry, "start_step"), *specs = tree_child(entry, "specs");
    if (!start || !start->text || (specs && specs->kind != NODE_LIST))
        return status_fail(OTT_ERR_CONFIG, "%s: an entry has a number start_step and a list of tables specs",
                           where);
    TRY(arena_printf(b->memory, &text, "%s", start->text));
    if (specs) TRY(append_specs(b->memory, specs, &text, where));
    return tree_add(b, list, NODE_TEXT, entry->line, NULL, text, &ignored);
}

/* Replaces {web = 0.1, code = 0.9} by the list of texts "web=0.1", "code=0.9". */
static ott_status read_weights(tree_builder *b, const node **value, const char *where) {
    node *texts, *ignored;
    TRY(tree_add(b, NULL, NODE_LIST, (*value)->line, NULL, NULL, &texts));
    for (const node *child = (*value)->first; child; child = child->next) {
        const char *text = "";
        node one = {.kind = NODE_TABLE}, copy = *child;
        copy.next = NULL;
        one.first = &copy;
        TRY(append_weights(b->memory, &one, &text, where));
        TRY(tree_add(b, texts, NODE_TEXT, child->line, NULL, text, &ignored));
    }
    return *value = texts, OTT_OK;
}

static bool has_tables(const node *list) {
    for (const node *child = list->first; child; child = child->next)
        if (child->kind == NODE_TABLE) return true;
    return false;
}

ott_status rules_read(arena *memory, const config_key *key, const node **value, const char *where) {
    tree_builder b = {.memory = memory, .place = ""}; /* .account is NULL: no temporary buffer is needed */
    node *texts, *ignored;
    static const struct {
        const char *key;
        ott_status (*add)(tree_builder *b, node *list, const node *table, const char *where);
    } lists[] = {{"float8.module", add_rule},
                 {"data.datasets", add_dataset},
                 {"data.phases", add_phase},
                 {"train.freeze_schedule", add_freeze_entry}};
    static const char *const weights[] = {"data.anneal_weights", "peft.rank_pattern", "peft.alpha_pattern"};
    enum { LISTS = sizeof lists / sizeof *lists, WEIGHTS = sizeof weights / sizeof *weights };
    int i = 0;
    for (int k = 0; k < WEIGHTS && (*value)->kind == NODE_TABLE; k++)
        if (strcmp(key->path, weights[k]) == 0) return read_weights(&b, value, where);
    while (i < LISTS && strcmp(key->path, lists[i].key) != 0) i++;
    if (i == LISTS || (*value)->kind != NODE_LIST || !has_tables(*value)) return OTT_OK;
    TRY(tree_add(&b, NULL, NODE_LIST, (*value)->line, NULL, NULL, &texts));
    for (const node *child = (*value)->first; child; child = child->next)
        TRY(child->kind != NODE_TABLE ? tree_copy(&b, texts, child, NULL, &ignored)
                                      : lists[i].add(&b, texts, child, where));
    return *value = texts, OTT_OK;
}
