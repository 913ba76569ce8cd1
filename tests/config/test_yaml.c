/* Tests special features of YAML: anchors, merges, variables, and malicious files. */
#include "config/case.h"
#include <stdio.h>
#include <stdlib.h>

static void test_anchors(void **state) {
    config_case *c = *state;
    config *cfg =
        case_good(c, ".yaml", "train: &t\n  seq_len: &n 128\n  seed: 3\nmodel:\n  max_seq_len: *n\n", NULL);
    assert_int_equal(cfg->model.max_seq_len, 128);
    config_close(cfg);
    cfg = case_good(c, ".yaml", "train:\n  <<: {seq_len: 64, seed: 9}\n  seed: 4\n", NULL);
    assert_int_equal(cfg->train.seq_len, 64);
    assert_int_equal(cfg->train.seed, 4);
    config_close(cfg);
    cfg = case_good(c, ".yaml", "train:\n  seed: 4\n  <<: [{seq_len: 64}, {seq_len: 32, batch_size: 2}]\n",
                    NULL);
    assert_int_equal(cfg->train.seq_len, 64);
    assert_int_equal(cfg->train.batch_size, 2);
    config_close(cfg);
    case_bad(c, ".yaml", "train:\n  seed: *none\n", ":2: alias *none has no anchor before it", NULL);
    case_bad(c, ".yaml", "train: &t\n  seed: *t\n", "alias *t has no anchor before it", NULL);
    case_bad(c, ".yaml", "train:\n  <<: 5\n", "<< can only merge a table", NULL);
    case_bad(c, ".yaml", "train:\n  <<: {seed: 1}\n  <<: {seed: 2}\n", "<< is given twice", NULL);
}

static void test_scalars(void **state) {
    config_case *c = *state;
    config *cfg = case_good(
        c, ".yaml",
        "optimizer:\n  lr: 1e-5\n  eps: 1E-8\n  weight_decay: 0\n  betas: [0.9, 9.5e-1]\n"
        "train:\n  compile_model: no\n  seed: !!int 5\ndata:\n  dataset_path: !!str 8\n"
        "model:\n  preset: 124M\nrun:\n  description: >\n    two\n    lines\n"
        "scheduler:\n  name: none\n  decay_steps: ~\nfloat8:\n  recipe_name: none\n  filter_fqns: lm_head\n",
        NULL);
    assert_true(cfg->optimizer.lr == 1e-5 && cfg->optimizer.eps == 1e-8 && cfg->optimizer.betas[1] == 0.95);
    assert_false(cfg->train.compile_model);
    assert_string_equal(cfg->data.dataset_path, "8");
    assert_int_equal(cfg->model.preset, PRESET_124M);
    assert_string_equal(cfg->run.description, "two lines\n");
    assert_int_equal(cfg->scheduler.name, SCHEDULER_NONE);
    assert_int_equal(cfg->float8.recipe_name, RECIPE_TENSORWISE);
    assert_string_equal(cfg->float8.filter_fqns.items[0], "lm_head");
    config_close(cfg);
    cfg = case_good(c, ".toml", "\xEF\xBB\xBF[train]\nseed = 5\n", NULL);
    assert_int_equal(cfg->train.seed, 5);
    config_close(cfg);
    cfg = case_good(c, ".yml", "\xEF\xBB\xBFtrain:\n  seed: 6\n", NULL);
    assert_int_equal(cfg->train.seed, 6);
    config_close(cfg);
}

static void test_variables(void **state) {
    config_case *c = *state;
    setenv("OTTAVA_TEST_SEED", "77", 1);
    unsetenv("OTTAVA_TEST_ABSENT");
    config *cfg =
        case_good(c, ".yaml",
                  "train:\n  seed: ${OTTAVA_TEST_SEED}\n  seq_len: ${oc.env:OTTAVA_TEST_ABSENT, 33}\n"
                  "data:\n  dataset_path: \"a/${OTTAVA_TEST_SEED}/${OTTAVA_TEST_ABSENT,}b.txt\"\n",
                  NULL);
    assert_int_equal(cfg->train.seed, 77);
    assert_int_equal(cfg->train.seq_len, 33);
    assert_string_equal(cfg->data.dataset_path, "a/77/b.txt");
    config_close(cfg);
    case_bad(c, ".yaml", "train:\n  seed: ${OTTAVA_TEST_ABSENT}\n",
             ":2: environment variable OTTAVA_TEST_ABSENT is not set", NULL);
    case_bad(c, ".yaml", "train:\n  seed: ${train.seq_len}\n", "only environment variables are replaced",
             NULL);
    case_bad(c, ".yaml", "train:\n  seed: \"${OTTAVA\"\n", "${ is not closed", NULL);
    case_bad(c, ".yaml", "train:\n  seed: ${}\n", "only environment variables", NULL);
    setenv("OTTAVA_TEST_SEED", "\xff", 1);
    case_bad(c, ".yaml", "train:\n  seed: ${OTTAVA_TEST_SEED}\n", "OTTAVA_TEST_SEED is not UTF-8", NULL);
    unsetenv("OTTAVA_TEST_SEED");
}

/* A malicious file of 600 bytes: expanding its nested aliases would give 10^10 values. */
static void test_alias_bomb(void **state) {
    config_case *c = *state;
    char text[2048] = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
    for (int i = 1; i < 10; i++) {
        size_t length = strlen(text);
        snprintf(text + length, sizeof text - length,
                 "a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i, i - 1, i - 1,
                 i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
    }
    case_bad(c, ".yaml", text, "more than 20000 values", NULL);
}

/* Nested aliases can make lists that are deeper than the limit, although no text in the file is so deep. */
static void test_alias_depth(void **state) {
    config_case *c = *state;
    char text[8192] = "a0: &a0 [x]\n";
    for (int i = 1; i < 200; i++) {
        size_t length = strlen(text);
        snprintf(text + length, sizeof text - length, "a%d: &a%d [*a%d]\n", i, i, i - 1);
    }
    case_bad(c, ".yaml", text, "config_case", NULL);
}

static void repeat(char *out, const char *piece, int count) {
    for (int i = 0; i < count; i++) out = stpcpy(out, piece);
}

static void test_depth(void **state) {
    config_case *c = *state;
    static char text[1 << 20];
    strcpy(text, "a: ");
    repeat(text + 3, "[", 100000);
    case_bad(c, ".yaml", text, "nested deeper than 32 levels", NULL);
    strcpy(text, "a: ");
    repeat(text + 3, "{a: ", 50000);
    case_bad(c, ".yaml", text, "nested deeper than 32 levels", NULL);
    strcpy(text, "a = ");
    repeat(text + 4, "[", 100);
    repeat(text + 104, "]", 100);
    case_bad(c, ".toml", text, "nested deeper than 32 levels", NULL);
    strcpy(text, "a = ");
    repeat(text + 4, "[", 100000);
    case_bad(c, ".toml", text, ":1:", NULL);
    strcpy(text, "[a");
    repeat(text + 2, ".a", 100);
    strcat(text, "]\nx = 1\n");
    case_bad(c, ".toml", text, "nested deeper than 32 levels", NULL);
    strcpy(text, "[a");
    repeat(text + 2, ".a", 300000);
    strcat(text, "]\n");
    case_bad(c, ".toml", text, "more than 4000 dots", NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {CASE(test_anchors),    CASE(test_scalars),     CASE(test_variables),
                                       CASE(test_alias_bomb), CASE(test_alias_depth), CASE(test_depth)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
