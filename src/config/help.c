/* config/help: prints the help of keys: type, default, allowed values, meaning and other tools' names. */
#include "config/assign.h"
#include "config/value.h"
#include <string.h>

static const char *type_name(key_type type) {
    static const char *const names[] = {"integer", "number", "two numbers", "true or false",
                                        "text",    "word",   "list"};
    return names[type];
}

static void help_aliases(const config_key *key, str *out) {
    int count, found = 0;
    const config_alias *aliases = alias_table(&count);
    for (int i = 0; i < count; i++)
        if (aliases[i].target && strcmp(aliases[i].target, key->path) == 0)
            str_printf(out, "%s%s", found++ ? ", " : "      also: ", aliases[i].path);
    if (found) str_append(out, "\n");
}

static void help_state(const config_key *key, str *out) {
    if (key->state == STATE_LATER) str_printf(out, "      refused: %s\n", key->reason);
    if (key->state == STATE_INSTEAD) str_printf(out, "      controls PyTorch only; Ottava %s\n", key->reason);
    if (key->state == STATE_WITH)
        str_printf(out, "      has an effect only with %s, which Ottava does not support\n", key->reason);
}

static void help_key(const config_key *key, str *out) {
    str_printf(out, "  --%s  %s, default ", key->path, type_name(key->type));
    value_write(out, key, &key->fallback);
    if (key->range) str_append(out, key->type == KEY_PAIR || key->type == KEY_LIST ? ", each in " : ", in ");
    if (key->range || key->type == KEY_CHOICE) {
        if (key->type == KEY_CHOICE) str_append(out, ": ");
        value_allowed(out, key);
    }
    str_printf(out, "\n      %s\n", key->help);
    help_state(key, out);
    help_aliases(key, out);
}

/* True if `what` is the key or its section, under our name or another tool's name. */
static bool is_about(const config_key *key, const char *what) {
    int count;
    const config_alias *aliases = alias_table(&count);
    size_t length = strlen(what);
    bool about = strcmp(key->section, what) == 0 || strcmp(key->path, what) == 0;
    for (int i = 0; i < count && !about; i++) {
        const char *path = aliases[i].path;
        bool names = strncmp(path, what, length) == 0 && (!path[length] || path[length] == '.');
        about = names && aliases[i].target && strcmp(aliases[i].target, key->path) == 0;
    }
    return about;
}

ott_status config_help_about(const char *what, str *out) {
    int key_count, section_count, found = 0;
    const char *shown_section = "";
    const config_key *keys = table_keys(&key_count);
    const config_section *sections = table_sections(&section_count);
    for (int i = 0; i < key_count; i++) {
        if (!is_about(&keys[i], what)) continue;
        for (int s = 0; s < section_count && strcmp(shown_section, keys[i].section) != 0; s++)
            if (strcmp(sections[s].name, keys[i].section) == 0)
                str_printf(out, "%s[%s]  %s\n", found ? "\n" : "", sections[s].name, sections[s].help);
        shown_section = keys[i].section;
        help_key(&keys[i], out);
        found++;
    }
    return found ? str_finish(out) : unknown_fail("--help", what);
}

static void complete_value(const config_key *key, str *out) {
    if (key->type == KEY_BOOL) str_append(out, "true\nfalse\n");
    for (int i = 0; i < key->choice_count; i++) str_printf(out, "%s\n", key->choices[i].text);
}

ott_status config_complete(const char *word, str *out) {
    int count;
    const config_key *keys = table_keys(&count);
    const char *equals = strchr(word, '=');
    for (int i = 0; i < count; i++) {
        size_t length = strlen(keys[i].path);
        if (keys[i].state != STATE_BUILT) continue;
        if (!equals)
            str_printf(out, "--%s=\t%s\n", keys[i].path, keys[i].help);
        else if ((size_t)(equals - word) == length + 2 && strncmp(word + 2, keys[i].path, length) == 0)
            complete_value(&keys[i], out);
    }
    return str_finish(out);
}

ott_status config_help(str *out) {
    int key_count, section_count;
    const config_key *keys = table_keys(&key_count);
    const config_section *sections = table_sections(&section_count);
    str_append(
        out,
        "Options: --config FILE (.toml, .yaml), then overrides: --section.key=value, --section.key value,\n"
        "--section.key for true, --section.no_key for false; lists as a,b or [a,b]; none restores "
        "the default.\n");
    for (int s = 0; s < section_count; s++) {
        str_printf(out, "\n[%s]  %s\n", sections[s].name, sections[s].help);
        for (int i = 0; i < key_count; i++)
            if (strcmp(keys[i].section, sections[s].name) == 0) help_key(&keys[i], out);
    }
    return str_finish(out);
}
