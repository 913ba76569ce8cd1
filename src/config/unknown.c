/* config/unknown: the error message for a name that is neither in schema.def nor in compat. */
#include "config/assign.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { NAME_LIMIT = 128, CANDIDATES = 1024 };

/* Lists the names of keys and aliases in a section (NULL: all our own keys). Returns how many there are. */
static int names_within(const char *section, const char *out[CANDIDATES]) {
    int count, found = 0;
    const config_key *keys = table_keys(&count);
    for (int i = 0; i < count && found < CANDIDATES; i++)
        if (!section || alias_is_within(keys[i].path, section)) out[found++] = keys[i].name;
    const config_alias *aliases = alias_table(&count);
    for (int i = 0; i < count && section && found < CANDIDATES; i++)
        if (alias_is_within(aliases[i].path, section) && !str_ends_with(aliases[i].path, "*"))
            out[found++] = aliases[i].path + strlen(section) + 1;
    return found;
}

static const char *nearest_within(const char *section, const char *name) {
    const char *names[CANDIDATES];
    return str_nearest(name, names, names_within(section, names));
}

/* Returns our key for a name in synonyms.def; NULL if the name is not there. */
static const char *key_of_synonym(const char *name) {
    static const char *const rows[][2] = {
#define SYNONYMS(key, names) {key, names},
#include "config/compat/synonyms.def"
    };
    char low[NAME_LIMIT] = "";
    for (int i = 0; name[i] && i < NAME_LIMIT - 1; i++) low[i] = (char)tolower((unsigned char)name[i]);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (table_word_in(rows[i][1], low)) return rows[i][0];
    return NULL;
}

static const char *path_of_name(const char *name) {
    int count;
    const config_key *keys = table_keys(&count);
    for (int i = 0; i < count; i++)
        if (strcmp(keys[i].name, name) == 0) return keys[i].path;
    return "";
}

/* Returns the path of the key whose name is most like `name`, in any section; NULL if no name is like it. */
static const char *nearest_anywhere(const char *name) {
    const char *meant = key_of_synonym(name), *near = meant ? NULL : nearest_within(NULL, name);
    return near ? path_of_name(near) : meant;
}

/* Lists the sections of all tools, without duplicates. `memory` stores the names. Returns how many. */
static int all_sections(char memory[CANDIDATES][NAME_LIMIT / 4], const char *out[CANDIDATES]) {
    int count, found = 0;
    const config_section *ours = table_sections(&count);
    for (int i = 0; i < count; i++) out[found++] = ours[i].name;
    const config_alias *aliases = alias_table(&count);
    for (int i = 0; i < count && found < CANDIDATES; i++) {
        size_t span = strcspn(aliases[i].path, ".");
        bool known = !aliases[i].path[span] || span >= NAME_LIMIT / 4;
        for (int j = 0; j < found && !known; j++)
            known = strlen(out[j]) == span && memcmp(out[j], aliases[i].path, span) == 0;
        if (known) continue;
        memcpy(memory[found], aliases[i].path, span);
        memory[found][span] = '\0';
        out[found] = memory[found];
        found++;
    }
    return found;
}

static ott_status fail_section(const char *place, const char *section) {
    char memory[CANDIDATES][NAME_LIMIT / 4];
    const char *names[CANDIDATES];
    const char *near = str_nearest(section, names, all_sections(memory, names));
    if (near)
        return status_fail(OTT_ERR_CONFIG, "%s: unknown section [%s]; did you mean [%s]?", place, section,
                           near);
    char list[512] = "";
    int count;
    size_t length = 0;
    const config_section *sections = table_sections(&count);
    for (int i = 0; i < count; i++)
        length +=
            (size_t)snprintf(list + length, sizeof list - length, "%s%s", i ? ", " : "", sections[i].name);
    return status_fail(OTT_ERR_CONFIG, "%s: unknown section [%s]; the sections are %s", place, section, list);
}

/* Writes "; the keys of [training] are ...", or nothing if no key of the section is known. */
static void list_keys(char *out, size_t size, const char *section) {
    const char *names[CANDIDATES];
    int count = names_within(section, names);
    size_t length = 0;
    *out = '\0';
    for (int i = 0; i < count && length + 160 < size; i++)
        length += i ? (size_t)snprintf(out + length, size - length, ", %s", names[i])
                    : (size_t)snprintf(out, size, "; the keys of [%s] are %s", section, names[i]);
}

static ott_status fail_key(const char *place, const char *path, const char *section, const char *name) {
    char list[1536];
    const char *near = nearest_within(section, name);
    if (near)
        return status_fail(OTT_ERR_CONFIG, "%s: unknown key %s; did you mean %s.%s?", place, path, section,
                           near);
    near = nearest_anywhere(alias_last_component(name));
    if (near) return status_fail(OTT_ERR_CONFIG, "%s: unknown key %s; did you mean %s?", place, path, near);
    list_keys(list, sizeof list, section);
    return status_fail(OTT_ERR_CONFIG, "%s: unknown key %s%s", place, path, list);
}

ott_status unknown_fail(const char *place, const char *path) {
    char section[NAME_LIMIT];
    size_t span = strcspn(path, ".");
    if (span >= sizeof section) return status_fail(OTT_ERR_CONFIG, "%s: unknown key %.80s...", place, path);
    memcpy(section, path, span);
    section[span] = '\0';
    if (path[span] && alias_is_section(section)) return fail_key(place, path, section, path + span + 1);
    const char *near = path[span] ? key_of_synonym(alias_last_component(path)) : nearest_anywhere(path);
    if (near) return status_fail(OTT_ERR_CONFIG, "%s: unknown key %s; did you mean %s?", place, path, near);
    return fail_section(place, section);
}
