/*
 * No key is silently ignored. Each key is read by code outside src/config, determines another key, allows
 * only one word, or is listed as inert and logs what happens instead.
 */
#define _GNU_SOURCE
#include "config/case.h"
#include "base/arena.h"
#include "base/file/file.h"
#include "config/table.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the sources ---- */

enum { SOURCES_MOST = 8 << 20 };

static char *sources; /* all code that may read a config, concatenated */
static size_t sources_length;

static void add_file(const char *path) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    sources_length += fread(sources + sources_length, 1, SOURCES_MOST - 1 - sources_length, f);
    sources[sources_length] = 0;
    fclose(f);
    assert_true(sources_length < SOURCES_MOST - 1);
}

static void add_folder(const char *path) {
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder));) {
        char subpath[512];
        snprintf(subpath, sizeof subpath, "%s/%s", path, e->d_name);
        if (e->d_name[0] == '.' || (e->d_type == DT_DIR && strcmp(e->d_name, "config") == 0)) continue;
        if (e->d_type == DT_DIR) add_folder(subpath);
        if (e->d_type == DT_REG && str_ends_with(subpath, ".c")) add_file(subpath);
    }
    closedir(folder);
}

static int read_sources(void **state) {
    (void)state;
    sources = calloc(1, SOURCES_MOST);
    add_folder(TEST_SOURCE_DIR "/src");
    add_folder(TEST_SOURCE_DIR "/cli");
    return sources_length > 100000 ? 0 : -1;
}

static int free_sources(void **state) {
    (void)state;
    free(sources);
    return 0;
}

/* ---- is a key read? ---- */

static bool is_word(char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* True if the sources read the key as a field: "->train.seq_len", but not "->train.seq_length". */
static bool has_field(const char *path) {
    size_t length = strlen(path);
    for (const char *at = sources; (at = strstr(at, path)); at++)
        if (at > sources && (at[-1] == '.' || at[-1] == '>') && !is_word(at[length])) return true;
    return false;
}

/* True if the sources read the key as a member of ott_model_options: "o->n_heads" for model.n_heads. */
static bool is_member(const char *path) {
    char field[100];
    int length = snprintf(field, sizeof field, "o->%s", path + strlen("model."));
    if (!str_starts_with(path, "model.")) return false;
    for (const char *at = sources; (at = strstr(at, field)); at++)
        if (!is_word(at[length])) return true;
    return false;
}

/* True if the sources use the key by its name, as in config_word(cfg, "model.family") or
   ott_config_get(config, "metrics.color", ...). */
static bool is_asked_by_name(const char *path) {
    char quoted[100];
    snprintf(quoted, sizeof quoted, ", \"%s\"", path);
    for (const char *at = sources; (at = strstr(at, quoted)); at++)
        for (const char *before = at; before > sources && before > at - 40 && before[-1] != '\n'; before--)
            if (str_starts_with(before, "config_word(") || str_starts_with(before, "ott_config_get("))
                return true;
    return false;
}

static bool has_one_word(const config_key *key) {
    return key->type == KEY_CHOICE && key->choice_count == 1;
}

/* Keys that config_check converts to a value of another key: with `argument`, the key `other` must change. */
static const struct {
    const char *path, *argument, *other;
} settled[] = {
    {"train.global_batch_size", "--train.global_batch_size=16", "train.grad_accum_steps"},
    {"checkpoint.enabled", "--checkpoint.enabled=false", "checkpoint.interval"},
};

static bool settles_another(config_case *c, const config_key *key) {
    for (size_t i = 0; i < sizeof settled / sizeof *settled; i++) {
        if (strcmp(settled[i].path, key->path) != 0) continue;
        const config_key *other = table_find(settled[i].other);
        config *cfg;
        assert_int_equal(case_arguments(c, &cfg, settled[i].argument, NULL), OTT_OK);
        config_value value = table_get(cfg, other);
        bool changed = !table_equal(other, &value, &other->fallback);
        config_close(cfg);
        return changed;
    }
    return false;
}

/* True for float8.tensor_parallel, which only config_check reads: it permits FP8 with tp > 1. */
static bool lets_pass(config_case *c, const config_key *key) {
    config *cfg;
    if (strcmp(key->path, "float8.tensor_parallel") != 0) return false;
    ott_status without = case_arguments(c, &cfg, "--distributed.tp=2", "--train.mixed_precision=fp8",
                                        "--model.preset=debug", NULL);
    if (without == OTT_OK) config_close(cfg);
    ott_status with = case_arguments(c, &cfg, "--distributed.tp=2", "--train.mixed_precision=fp8",
                                     "--model.preset=debug", "--float8.tensor_parallel=true", NULL);
    if (with == OTT_OK) config_close(cfg);
    return without == OTT_ERR_CONFIG && with == OTT_OK;
}

static void built_keys_are_read(void **state) {
    int count, built = 0;
    const config_key *keys = table_keys(&count);
    assert_true(count > 200);
    for (int i = 0; i < count; i++) {
        const config_key *key = &keys[i];
        if (key->state != STATE_BUILT) continue;
        built++;
        if (has_field(key->path) || is_member(key->path) || is_asked_by_name(key->path)) continue;
        if (has_one_word(key) || settles_another(*state, key) || lets_pass(*state, key)) continue;
        fail_msg("%s is accepted, but no code reads it: implement it, or change its state in schema.def",
                 key->path);
    }
    assert_true(built > 100);
    assert_false(has_field("train.seq_le")); /* only full names of keys are found */
    assert_false(is_member("model.n_head") || is_asked_by_name("model.famil"));
}

/* ---- inert keys report that they have no effect ---- */

/* Writes an argument "--section.key=VALUE" that sets the key to another value than its default. */
static void argument_of(const config_key *key, char out[200]) {
    const char *value = key->type == KEY_TEXT ? "mpi" : key->type == KEY_LIST ? "[a]" : "7";
    if (key->type == KEY_BOOL) value = key->fallback.integer ? "false" : "true";
    if (key->type == KEY_CHOICE) value = key->choices[key->fallback.integer == 0].text;
    if (key->type == KEY_REAL) value = "0.5";
    snprintf(out, 200, "--%s=%s", key->path, value);
}

static void inert_keys_say_what_happens_instead(void **state) {
    config_case *c = *state;
    int count, inert = 0;
    const config_key *keys = table_keys(&count);
    str help = {.account = c->account};
    assert_int_equal(config_help(&help), OTT_OK);
    for (int i = 0; i < count; i++) {
        char argument[200], line[300];
        config *cfg;
        if (keys[i].state != STATE_INSTEAD) continue;
        argument_of(&keys[i], argument);
        c->log[0] = 0;
        if (case_arguments(c, &cfg, "--model.dim=64", "--train.mixed_precision=fp8", argument, NULL) !=
            OTT_OK)
            fail_msg("%s: %s", argument, status_text());
        snprintf(line, sizeof line, "%s: controls PyTorch only; Ottava %s", argument, keys[i].reason);
        bool asks = !table_word_in(keys[i].neutral, strchr(argument, '=') + 1);
        if (asks && !strstr(c->log, line)) fail_msg("%s says: %s", argument, c->log);
        snprintf(line, sizeof line, "controls PyTorch only; Ottava %s", keys[i].reason);
        assert_non_null(strstr(help.text, line));
        config_close(cfg);
        inert += asks;
    }
    assert_true(inert > 5);
    str_free(&help);
}

/* Some keys (state WITH) have an effect only with another key, which must exist and be refused or ignored. */
static void waiting_keys_name_what_they_wait_for(void **state) {
    (void)state;
    int count;
    const config_key *keys = table_keys(&count);
    for (int i = 0; i < count; i++) {
        if (keys[i].state != STATE_WITH) continue;
        const config_key *other = table_find(keys[i].reason);
        if (!other) fail_msg("%s depends on %s, which is not a key", keys[i].path, keys[i].reason);
        assert_true(other->state == STATE_LATER || other->state == STATE_INSTEAD);
    }
}

/* A synonym names its key, must not be a key, and is in one list. */
static void synonyms_name_keys(void **state) {
    (void)state;
    static const char *const rows[][2] = {
#define SYNONYMS(key, names) {key, names},
#include "config/compat/synonyms.def"
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char names[512], *rest;
        if (!table_find(rows[i][0])) fail_msg("%s is not a key", rows[i][0]);
        assert_true(strlen(rows[i][1]) < sizeof names);
        strcpy(names, rows[i][1]);
        for (char *name = strtok_r(names, "|", &rest); name; name = strtok_r(NULL, "|", &rest)) {
            assert_null(table_find(name));
            for (size_t j = 0; j < i; j++) assert_false(table_word_in(rows[j][1], name));
        }
    }
}

static void refused_keys_say_why(void **state) {
    config_case *c = *state;
    int count;
    config *cfg;
    const config_key *keys = table_keys(&count);
    for (int i = 0; i < count; i++) {
        char argument[200];
        if (keys[i].state != STATE_LATER) continue;
        argument_of(&keys[i], argument);
        /* keys of [eval] have no effect unless eval.enabled is true */
        if (case_arguments(c, &cfg, "--eval.enabled=true", argument, NULL) == OTT_OK)
            fail_msg("%s passes", argument);
        if (!strstr(status_text(), argument) || !strstr(status_text(), keys[i].reason))
            fail_msg("%s says: %s", argument, status_text());
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(built_keys_are_read),
        CASE(inert_keys_say_what_happens_instead),
        CASE(waiting_keys_name_what_they_wait_for),
        CASE(refused_keys_say_why),
        CASE(synonyms_name_keys),
    };
    return cmocka_run_group_tests(tests, read_sources, free_sources);
}
