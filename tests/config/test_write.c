/* Tests that a written configuration is read back unchanged, that the help lists every key, and that
   differences between configurations are found. */
#include "config/case.h"
#include "config/compat/alias.h"
#include "config/parse/number.h"
#include "config/table.h"
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

static void count_difference(void *user, const char *key, const char *a, const char *b) {
    int *count = user;
    (*count)++;
    print_message("%s: %s | %s\n", key, a, b);
}

static int differences(const config *a, const config *b) {
    int count = 0;
    assert_int_equal(config_differences(a, b, count_difference, &count), OTT_OK);
    return count;
}

/* Writes cfg, reads it back and expects the same values and the same text. */
static void round_trip(config_case *c, config *cfg) {
    str first = {.account = c->account}, second = {.account = c->account};
    assert_int_equal(config_write_toml(cfg, &first), OTT_OK);
    config *again = case_good(c, ".toml", first.text, NULL);
    assert_int_equal(differences(cfg, again), 0);
    assert_int_equal(config_write_toml(again, &second), OTT_OK);
    assert_string_equal(first.text, second.text);
    config_close(again);
    str_free(&first);
    str_free(&second);
}

static void test_round_trip(void **state) {
    config_case *c = *state;
    config *cfg = NULL;
    assert_int_equal(case_arguments(c, &cfg, (char *)NULL), OTT_OK);
    round_trip(c, cfg);
    config_close(cfg);
    cfg = case_good(
        c, ".yaml",
        "run:\n  description: \"a \\\"quote\\\", a \\\\, a\\ttab, a\\nline, \\u00e9 \\x7f\"\noptimizer:\n  "
        "lr: 0.1234567890123456789\n  eps: 1.4012984643248171e-45\n"
        "float8:\n  filter_fqns: [lm_head, \"with, comma\", \"\"]\ntrain:\n  activation_checkpointing: 3\n"
        "  mixed_precision: fp8\n  seed: 9223372036854775807\ndistributed:\n  dp_shard: 1\nmodel:\n  "
        "moe_top_k: 5\n  moe_dense_layers: [3, 0]\n"
        "  rope_scaling:\n    rope_type: llama3\n    factor: 32\nmetrics:\n  wandb_project: z\n",
        NULL);
    assert_int_equal(cfg->model.rope_scaling, ROPE_LLAMA3);
    assert_true(cfg->model.rope_factor == 32.0);
    assert_int_equal(cfg->model.moe_dense_layers.count, 2);
    round_trip(c, cfg);
    config_close(cfg);
}

/* A torchtitan configuration, written with Ottava's keys, is read back without torchtitan's defaults. */
static void test_round_trip_of_titan(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".toml",
                            "[training]\nsteps = 100\n[lr_scheduler]\nwarmup_steps = 10\ndecay_ratio = "
                            "0.3\n[model]\nconverters = \"float8\"\n",
                            NULL);
    round_trip(c, cfg);
    config_close(cfg);
}

static void test_differences(void **state) {
    config_case *c = *state;
    config *a = NULL, *b = NULL;
    assert_int_equal(case_arguments(c, &a, "--train.seq_len=5", (char *)NULL), OTT_OK);
    assert_int_equal(case_arguments(c, &b, "--train.seq_len=6", "--optimizer.betas=0.9,0.99",
                                    "--float8.filter_fqns=x", "--data.dataset_path=y.txt", (char *)NULL),
                     OTT_OK);
    assert_int_equal(differences(a, b), 4);
    assert_int_equal(differences(a, a), 0);
    config_close(a);
    config_close(b);
}

static void test_help(void **state) {
    config_case *c = *state;
    char wanted[160];
    int count;
    str text = {.account = c->account};
    assert_int_equal(config_help(&text), OTT_OK);
    const config_key *keys = table_keys(&count);
    for (int i = 0; i < count; i++) {
        snprintf(wanted, sizeof wanted, "\n  --%s  ", keys[i].path);
        if (!strstr(text.text, wanted)) fail_msg("%s is not in the help", keys[i].path);
        assert_true(strlen(keys[i].help) > 3);
    }
    const config_section *sections = table_sections(&count);
    for (int i = 0; i < count; i++) {
        snprintf(wanted, sizeof wanted, "\n[%s]  ", sections[i].name);
        assert_non_null(strstr(text.text, wanted));
    }
    const config_alias *aliases = alias_table(&count);
    for (int i = 0; i < count; i++)
        if (aliases[i].target && !strstr(text.text, aliases[i].path))
            fail_msg("%s is not in the help", aliases[i].path);
    str_free(&text);
}

/* The tables of keys are consistent: paths are unique, synonyms name existing keys, defaults are valid. */
static void test_tables(void **state) {
    config_case *c = *state;
    int key_count, alias_count;
    char argument[256];
    const config_key *keys = table_keys(&key_count);
    const config_alias *aliases = alias_table(&alias_count);
    for (int i = 0; i < key_count; i++) {
        assert_ptr_equal(table_find(keys[i].path), &keys[i]);
        assert_int_equal(table_index(&keys[i]), i);
    }
    for (int i = 0; i < alias_count; i++) {
        assert_null(table_find(aliases[i].path));
        assert_ptr_equal(alias_find(aliases[i].path), &aliases[i]);
        if (aliases[i].target && !table_find(aliases[i].target))
            fail_msg("%s aliases %s", aliases[i].path, aliases[i].target);
    }
    for (int i = 0; i < key_count; i++) {
        if (keys[i].type != KEY_INT && keys[i].type != KEY_REAL) continue;
        config *cfg = NULL;
        char number[40];
        snprintf(argument, sizeof argument, "--%s=%lld", keys[i].path, (long long)keys[i].fallback.integer);
        if (keys[i].type == KEY_REAL)
            snprintf(argument, sizeof argument, "--%s=%s", keys[i].path,
                     number_print_real(keys[i].fallback.real[0], number));
        if (case_arguments(c, &cfg, argument, (char *)NULL) != OTT_OK) fail_msg("%s", status_text());
        config_close(cfg);
    }
}

static void test_numbers(void **state) {
    (void)state;
    char text[40];
    double back;
    int64_t integer;
    static const double values[] = {0.0,  0.1,     1.0 / 3.0, 3e-4,   1e-8, 5e5,
                                    1e22, DBL_MAX, DBL_MIN,   5e-324, -2.5};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        assert_true(number_parse_real(number_print_real(values[i], text), &back));
        assert_true(back == values[i]);
        assert_non_null(strpbrk(text, ".e"));
    }
    static const char *const not_real[] = {"",    "+",   "-",    ".",   "e5", "1e",   "0x10",
                                           "nan", "inf", "-inf", "1_",  "_1", "1__0", "1e400",
                                           "1 ",  " 1",  "1,5",  "--1", "+-1"};
    for (size_t i = 0; i < sizeof not_real / sizeof not_real[0]; i++)
        assert_false(number_parse_real(not_real[i], &back));
    static const char *const not_integer[] = {"",   "1.0", "1e3", "0x10", "9223372036854775808",
                                              "1_", "a",   "1a"};
    for (size_t i = 0; i < sizeof not_integer / sizeof not_integer[0]; i++)
        assert_false(number_parse_integer(not_integer[i], &integer));
    assert_true(number_parse_integer("-9_223_372_036_854_775_808", &integer) && integer == INT64_MIN);
    assert_true(number_parse_integer("+5", &integer) && integer == 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {CASE(test_round_trip),  CASE(test_round_trip_of_titan),
                                       CASE(test_differences), CASE(test_help),
                                       CASE(test_tables),      CASE(test_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
