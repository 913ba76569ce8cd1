/* config/write: writes the resolved configuration as TOML, and compares two configurations. */
#include "config/assign.h"
#include "config/value.h"
#include <string.h>

/* True for supported keys. True for unsupported keys only if their value differs from the default. */
static bool is_key_written(const config *cfg, const config_key *key) {
    config_value value = table_get(cfg, key);
    return key->state == STATE_BUILT || !table_equal(key, &value, &key->fallback);
}

static void write_key(const config *cfg, const config_key *key, str *out) {
    config_value value = table_get(cfg, key);
    str_printf(out, "%s = ", key->name);
    value_write(out, key, &value);
    str_printf(out, "  # %s\n", key->help);
}

ott_status config_write_toml(const config *cfg, str *out) {
    int key_count, section_count;
    const config_key *keys = table_keys(&key_count);
    const config_section *sections = table_sections(&section_count);
    str_append(out, "# Ottava: the configuration of a run with every value it used (version 2).\n");
    for (int s = 0; s < section_count; s++) {
        str_printf(out, "\n# %s\n[%s]\n", sections[s].help, sections[s].name);
        for (int i = 0; i < key_count; i++)
            if (strcmp(keys[i].section, sections[s].name) == 0 && is_key_written(cfg, &keys[i]))
                write_key(cfg, &keys[i], out);
    }
    return str_finish(out);
}

ott_status config_show(const config *cfg, const char *key, str *out) {
    const config_key *found = table_find(key);
    if (!found) return unknown_fail(key, key);
    config_value value = table_get(cfg, found);
    value_write(out, found, &value);
    return str_finish(out);
}

static ott_status report_difference(const config *a, const config *b, const config_key *key,
                                    config_difference callback, void *user) {
    str text_a = {.account = a->state->account}, text_b = {.account = a->state->account};
    config_value value_a = table_get(a, key), value_b = table_get(b, key);
    ott_status status;
    if (table_equal(key, &value_a, &value_b)) return OTT_OK;
    value_write(&text_a, key, &value_a);
    value_write(&text_b, key, &value_b);
    TRY_OUT(str_finish(&text_a));
    TRY_OUT(str_finish(&text_b));
    callback(user, key->path, text_a.text, text_b.text);
out:
    str_free(&text_a);
    str_free(&text_b);
    return status;
}

ott_status config_differences(const config *a, const config *b, config_difference callback, void *user) {
    int count;
    const config_key *keys = table_keys(&count);
    for (int i = 0; i < count; i++) TRY(report_difference(a, b, &keys[i], callback, user));
    return OTT_OK;
}
