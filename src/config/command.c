/*
 * config/command: reads the arguments after the verb (train, ...): one file, and options in the styles of
 * KempnerForge (--section.key=value), torchtitan (--section.key value, --section.key, --section.no_key)
 * and AutoModel (--section.key value).
 */
#include "config/assign.h"
#include "config/command.h"
#include "config/parse/load.h"
#include "config/value.h"
#include <stdio.h>
#include <string.h>

#define KEY_LIMIT 160

typedef struct option {
    bool is_file;
    char key[KEY_LIMIT]; /* the key without leading dashes; underscores for other dashes */
    const char *value;   /* the option's value; NULL: none was given */
    int used;            /* number of arguments that the option takes: 1 or 2 */
} option;

static bool is_file_option(const char *key) {
    return strcmp(key, "config") == 0 || strcmp(key, "config_file") == 0 ||
           strcmp(key, "job.config_file") == 0;
}

/* torchrun's and automodel's options for the number of processes. */
static bool is_process_count(const char *key) {
    return strcmp(key, "nproc_per_node") == 0 || strcmp(key, "nproc") == 0;
}

static ott_status fail_syntax(const char *argument) {
    return status_fail(OTT_ERR_CONFIG, "%.80s: an option is written --section.key=value", argument);
}

/* Reads "--key" or "--key=value" into o->key and o->value. */
static ott_status read_key(const char *argument, option *o) {
    const char *key = argument + 2;
    size_t length = strcspn(key, "=");
    if (length == 0 || length >= KEY_LIMIT) return fail_syntax(argument);
    for (size_t i = 0; i < length; i++) o->key[i] = key[i] == '-' ? '_' : key[i];
    o->key[length] = '\0';
    o->value = key[length] ? key + length + 1 : NULL;
    return tree_has_control(o->key) || str_utf8_error(o->key, (int64_t)length) >= 0 ? fail_syntax("--")
                                                                                    : OTT_OK;
}

/* True if the argument `next` is the value of option o. A switch takes only a truth value. A switch without
   effect takes any text that is not the name of a configuration file. */
static bool takes_next(const option *o, const char *next) {
    bool ignored;
    node word = {.kind = NODE_PLAIN, .text = next};
    if (!next || str_starts_with(next, "--")) return false;
    if (is_file_option(o->key) || is_process_count(o->key)) return true;
    if (alias_knows(o->key) && assign_is_switch(o->key))
        return value_bool(&word, &ignored) || (!alias_target(o->key) && !load_is_config(next));
    return alias_knows(o->key);
}

/* Fails for "train.max_steps=3", an option without its dashes. */
static ott_status check_dashes(const char *argument) {
    char key[KEY_LIMIT];
    size_t length = strcspn(argument, "=");
    if (!argument[length] || length >= KEY_LIMIT || load_is_config(argument)) return OTT_OK;
    snprintf(key, sizeof key, "%.*s", (int)length, argument);
    if (!alias_knows(key)) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG, "%s: an option begins with two dashes: --%s", str_show(argument).text,
                       str_show(argument).text);
}

/* Reads one argument: an option with its value, which may be the next argument, or a file name. */
static ott_status read_option(int argc, const char *const *argv, int at, option *o) {
    const char *argument = argv[at], *next = at + 1 < argc ? argv[at + 1] : NULL;
    *o = (option){.used = 1};
    if (strcmp(argument, "-c") == 0) argument = "--config";
    if (argument[0] != '-') {
        TRY(check_dashes(argument));
        o->is_file = true;
        o->value = argument;
        return OTT_OK;
    }
    if (argument[1] != '-') return fail_syntax(argument);
    TRY(read_key(argument, o));
    if (!o->value && takes_next(o, next)) {
        o->value = next;
        o->used = 2;
    }
    o->is_file = is_file_option(o->key);
    if (o->is_file && (!o->value || !*o->value))
        return status_fail(OTT_ERR_CONFIG, "%s needs the name of a configuration file", argument);
    return OTT_OK;
}

ott_status command_find_file(int argc, const char *const *argv, const char **file) {
    option o;
    *file = NULL;
    for (int at = 0; at < argc; at += o.used) {
        TRY(read_option(argc, argv, at, &o));
        if (!o.is_file) continue;
        if (tree_has_control(o.value))
            return status_fail(OTT_ERR_CONFIG,
                               "the name of the configuration file contains a control character");
        if (*file)
            return status_fail(OTT_ERR_CONFIG, "two configuration files: %.200s and %.200s; name one", *file,
                               o.value);
        *file = o.value;
    }
    return OTT_OK;
}

/* Removes "no_" from "no_section.key" or "section.no_key". False if the result is no known key. */
static bool read_negation(const char *key, char *out) {
    const char *last = strrchr(key, '.');
    if (!last || alias_knows(key)) return false;
    if (str_starts_with(key, "no_")) {
        snprintf(out, KEY_LIMIT, "%s", key + 3);
        if (alias_knows(out)) return true;
    }
    if (!str_starts_with(last + 1, "no_")) return false;
    snprintf(out, KEY_LIMIT, "%.*s%s", (int)(last + 1 - key), key, last + 4);
    return alias_knows(out);
}

static ott_status fail_option(const char *shown, const char *key) {
    if (is_process_count(key))
        return status_fail(OTT_ERR_CONFIG,
                           "%s: mpirun starts the processes of several ranks: mpirun -np N ottava train ...; "
                           "--train.threads sets the threads of each (0: an equal share of the cores)",
                           shown);
    return unknown_fail(shown, key);
}

ott_status command_override(config *cfg, const char *key, const char *value, const char *shown) {
    char positive[KEY_LIMIT];
    tree_builder b = {.account = cfg->state->account, .memory = cfg->state->memory, .place = shown};
    node *n;
    if (!alias_knows(key)) {
        if (value && is_process_count(key) && strcmp(value, "1") == 0) return OTT_OK;
        if (value || !read_negation(key, positive)) return fail_option(shown, key);
        if (!assign_is_switch(positive))
            return status_fail(OTT_ERR_CONFIG, "%s: %s is not a switch: write --%s=VALUE", shown, positive,
                               positive);
        TRY(tree_from_text(&b, "false", &n));
        return assign_path(cfg, positive, n, shown);
    }
    if (!value && !assign_is_switch(key))
        return status_fail(OTT_ERR_CONFIG, "%s needs a value: %s=VALUE", shown, shown);
    int64_t bad = value ? str_utf8_error(value, (int64_t)strlen(value)) : -1;
    if (bad >= 0)
        return status_fail(OTT_ERR_CONFIG, "--%s: its value is not UTF-8: byte 0x%02x at offset %lld", key,
                           (unsigned char)value[bad], (long long)bad);
    TRY(tree_from_text(&b, value ? value : "true", &n));
    return assign_path(cfg, key, n, shown);
}

/* Stores the option, as the user typed it, in the arena: one line, for messages. */
static ott_status describe_option(config *cfg, const char *argument, const char *value, const char **out) {
    str text = {.account = cfg->state->account};
    tree_show_text(&text, argument, 200);
    if (value) {
        str_append(&text, " ");
        tree_show_text(&text, value, 100);
    }
    ott_status status = str_finish(&text);
    if (status == OTT_OK) status = arena_strdup(cfg->state->memory, text.text, out);
    str_free(&text);
    return status;
}

ott_status command_apply(config *cfg, int argc, const char *const *argv) {
    option o;
    for (int at = 0; at < argc; at += o.used) {
        const char *shown;
        TRY(read_option(argc, argv, at, &o));
        if (o.is_file) continue;
        TRY(describe_option(cfg, argv[at], o.used == 2 ? o.value : NULL, &shown));
        TRY(diagnostic_failure(cfg, o.key, alias_target(o.key),
                               command_override(cfg, o.key, o.value, shown)));
    }
    return OTT_OK;
}

/* ---- config_override ---- */

/* Returns the path of our key that the option sets; NULL if it sets none. */
static const char *spelled_key(const option *o) {
    char positive[KEY_LIMIT];
    const char *name = alias_knows(o->key) || !read_negation(o->key, positive) ? o->key : positive;
    const config_key *key = alias_target(name);
    return key ? key->path : NULL;
}

/* True if `allowed` lists the key or its section. A section is listed with a dot: "float8.". */
static bool is_allowed(const char *key, const char *const *allowed) {
    for (; *allowed; allowed++) {
        bool section = str_ends_with(*allowed, ".");
        if (section ? str_starts_with(key, *allowed) : strcmp(key, *allowed) == 0) return true;
    }
    return false;
}

static ott_status fail_allowed(const char *shown, const char *const *allowed, const char *user) {
    char list[256] = "";
    for (int i = 0; allowed[i]; i++) {
        size_t length = strlen(list);
        snprintf(list + length, sizeof list - length, "%s%s%s", i ? ", " : "", allowed[i],
                 str_ends_with(allowed[i], ".") ? "*" : "");
    }
    return status_fail(OTT_ERR_CONFIG, "%s: %s takes only the keys %s", shown, user, list);
}

ott_status config_override(config *cfg, const char *argument, const char *const *allowed, const char *user,
                           const char **key) {
    option o;
    const char *shown;
    if (!str_starts_with(argument, "--")) return fail_syntax(argument);
    TRY(read_option(1, &argument, 0, &o));
    TRY(describe_option(cfg, argument, NULL, &shown));
    *key = o.is_file ? NULL : spelled_key(&o);
    if (o.is_file || (*key ? !is_allowed(*key, allowed) : alias_knows(o.key)))
        return fail_allowed(shown, allowed, user);
    return command_override(cfg, o.key, o.value, shown);
}
