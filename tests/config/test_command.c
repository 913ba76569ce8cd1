/* Command-line overrides in every spelling, and which setting has priority. */
#include "config/case.h"
#include <stdio.h>

/* Parses arguments and fails the test if they are not valid. */
#define GOOD(c, cfg, ...)                                                                                    \
    do {                                                                                                     \
        if (case_arguments(c, &cfg, __VA_ARGS__, (char *)NULL) != OTT_OK) fail_msg("%s", status_text());     \
    } while (0)

static void test_spellings(void **state) {
    config_case *c = *state;
    config *cfg;
    GOOD(c, cfg, "--train.seq_len=64", "--train.batch-size", "4", "--train.compile_model", "--optimizer.lr",
         "1e-5", "--train.deterministic", "true", "--data.dataset_path='a b.txt'", "--train.seed=1_000");
    assert_int_equal(cfg->train.seq_len, 64);
    assert_int_equal(cfg->train.batch_size, 4);
    assert_true(cfg->train.compile_model && cfg->train.deterministic == DETERMINISM_FULL);
    assert_true(cfg->optimizer.lr == 1e-5);
    assert_string_equal(cfg->data.dataset_path, "a b.txt");
    assert_int_equal(cfg->train.seed, 1000);
    config_close(cfg);
}

static void test_switches(void **state) {
    config_case *c = *state;
    config *cfg;
    static const char *const off[] = {"--train.no_compile_model", "--train.no-compile-model",
                                      "--no-train.compile_model", "--train.compile_model=False",
                                      "--train.compile_model=0",  "--train.compile_model=no",
                                      "--training.no_compile",    "--compile.no_enabled"};
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++) {
        GOOD(c, cfg, off[i]);
        assert_false(cfg->train.compile_model);
        config_close(cfg);
    }
    GOOD(c, cfg, "--train.no_compile_model", "--training.compile");
    assert_true(cfg->train.compile_model);
    config_close(cfg);
    GOOD(c, cfg, "--float8.enabled", "--train.seed", "3");
    assert_int_equal(cfg->train.mixed_precision, PRECISION_FP8);
    config_close(cfg);
    /* wandb.project has no effect, but still takes "mine" as its value */
    GOOD(c, cfg, "--wandb.project", "mine", "--train.seed", "4");
    assert_int_equal(cfg->train.seed, 4);
    config_close(cfg);
    case_bad_argument(c, "--train.no_seq_len", "train.seq_len is not a switch", NULL);
    case_bad_argument(c, "--train.no_compile_model=true", "unknown key", NULL);
}

static void test_lists(void **state) {
    config_case *c = *state;
    config *cfg;
    static const char *const two[] = {
        "--float8.filter_fqns=lm_head,output",        "--float8.filter_fqns=[\"lm_head\",\"output\"]",
        "--float8.filter_fqns=['lm_head', 'output']", "--float8.filter_fqns=('lm_head','output',)",
        "--float8.filter_fqns=[lm_head, output]",     "--float8.filter_fqns=\"lm_head,output\""};
    for (size_t i = 0; i < sizeof two / sizeof two[0]; i++) {
        GOOD(c, cfg, two[i]);
        assert_int_equal(cfg->float8.filter_fqns.count, 2);
        assert_string_equal(cfg->float8.filter_fqns.items[0], "lm_head");
        assert_string_equal(cfg->float8.filter_fqns.items[1], "output");
        config_close(cfg);
    }
    static const char *const betas[] = {"--optimizer.betas=[0.8,0.9]", "--optimizer.betas=(0.8, 0.9)",
                                        "--optimizer.betas=0.8,0.9"};
    for (size_t i = 0; i < sizeof betas / sizeof betas[0]; i++) {
        GOOD(c, cfg, betas[i]);
        assert_true(cfg->optimizer.betas[0] == 0.8 && cfg->optimizer.betas[1] == 0.9);
        config_close(cfg);
    }
    GOOD(c, cfg, "--float8.filter_fqns=[]");
    assert_int_equal(cfg->float8.filter_fqns.count, 0);
    config_close(cfg);
}

static void test_files(void **state) {
    config_case *c = *state;
    config *cfg;
    static const char *const spelled[] = {"--config", "--config_file", "--job.config_file",
                                          "--job.config-file", "-c"};
    config_close(case_good(c, ".toml", "[train]\nseed = 7\nseq_len = 32\n", NULL));
    for (size_t i = 0; i < sizeof spelled / sizeof spelled[0]; i++) {
        GOOD(c, cfg, spelled[i], c->path, "--train.seq_len=16");
        assert_int_equal(cfg->train.seed, 7);
        /* the command line has priority over the file, wherever the file's name is */
        assert_int_equal(cfg->train.seq_len, 16);
        assert_string_equal(cfg->path, c->path);
        config_close(cfg);
    }
    GOOD(c, cfg, "--train.seq_len=16", "--train.deterministic", c->path);
    assert_int_equal(cfg->train.seed, 7);
    assert_int_equal(cfg->train.seq_len, 16);
    assert_int_equal(cfg->train.deterministic, DETERMINISM_FULL);
    config_close(cfg);
}

static void test_order(void **state) {
    config_case *c = *state;
    config *cfg;
    GOOD(c, cfg, "--train.max_steps=5", "--training.steps=6", "--step_scheduler.max_steps=7");
    assert_int_equal(cfg->train.max_steps, 7);
    config_close(cfg);
    GOOD(c, cfg, "--train.mixed_precision=fp8", "--model.torch_dtype=bf16");
    assert_int_equal(cfg->train.mixed_precision,
                     PRECISION_FP8); /* torch_dtype does not change mixed_precision */
    config_close(cfg);
    GOOD(c, cfg, "--fp8.enabled=true", "--train.mixed_precision=fp32");
    assert_int_equal(cfg->train.mixed_precision, PRECISION_FP32);
    config_close(cfg);
    GOOD(c, cfg, "--train.seq_len=5", "--train.seq_len=none");
    assert_int_equal(cfg->train.seq_len, 2048);
    assert_false(config_was_set(cfg, "train.seq_len"));
    config_close(cfg);
    GOOD(c, cfg, "--scheduler.name=none", "--scheduler.decay_steps=None");
    assert_int_equal(cfg->scheduler.name, SCHEDULER_NONE);
    config_close(cfg);
}

static void test_set(void **state) {
    config_case *c = *state;
    config *cfg;
    GOOD(c, cfg, "--train.seed=1");
    assert_int_equal(config_set(cfg, "train.seq_len", "128"), OTT_OK);
    assert_int_equal(cfg->train.seq_len, 128);
    assert_true(config_was_set(cfg, "train.seq_len"));
    assert_int_equal(config_set(cfg, "training.steps", "12"), OTT_OK);
    assert_int_equal(cfg->train.max_steps, 12);
    assert_int_equal(config_set(cfg, "train.seq_len", "long"), OTT_ERR_CONFIG);
    assert_string_equal(status_text(), "--train.seq_len=long must be an integer");
    assert_int_equal(cfg->train.seq_len, 128);
    assert_int_equal(config_set(cfg, "train.nothing", "1"), OTT_ERR_CONFIG);
    assert_int_equal(config_set(cfg, "checkpoint.export_dtype", "bfloat16"), OTT_OK);
    assert_int_equal(config_check(cfg), OTT_ERR_CONFIG);
    assert_non_null(strstr(status_text(), "checkpoint.save_hf = \"final\""));
    assert_int_equal(config_set(cfg, "checkpoint.last_save_in_hf", "true"), OTT_OK);
    assert_int_equal(config_check(cfg), OTT_OK);
    assert_string_equal(config_word(cfg, "checkpoint.save_hf"), "final");
    assert_int_equal(config_set(cfg, "profiling.memory_snapshot", "true"), OTT_OK);
    assert_int_equal(config_check(cfg), OTT_ERR_CONFIG);
    assert_int_equal(config_set(cfg, "profiling.memory_snapshot", "false"), OTT_OK);
    assert_int_equal(config_check(cfg), OTT_OK);
    assert_string_equal(config_word(cfg, "train.mixed_precision"), "bf16");
    assert_null(config_word(cfg, "train.seq_len"));
    assert_null(config_word(cfg, "train.nothing"));
    assert_false(config_was_set(cfg, "train.nothing"));
    config_close(cfg);
    config_close(NULL);
}

/* Errors about a key's value begin with config_where: the place where the key was set. */
static void where_a_key_was_given(void **state) {
    config_case *c = *state;
    char wanted[128];
    config *cfg = case_good(c, ".toml", "[train]\nseq_len = 8\n", "--device=cuda:0", NULL);
    assert_string_equal(cfg->train.device, "cuda:0");
    assert_string_equal(config_where(cfg, "train.device"), "--device=cuda:0");
    snprintf(wanted, sizeof wanted, "%s:2: train.seq_len = 8", c->path);
    assert_string_equal(config_where(cfg, "train.seq_len"), wanted);
    assert_string_equal(config_where(cfg, "train.seed"), "train.seed");
    config_close(cfg);
}

/* "train.max_steps=3" is an override. With "./" in front it is the name of a file. */
static void test_dashes(void **state) {
    config_case *c = *state;
    config *cfg = NULL;
    case_bad_argument(c, "train.max_steps=3", "an option begins with two dashes: --train.max_steps=3", NULL);
    case_bad_argument(c, "training.steps=3", "--training.steps=3", NULL);
    assert_int_equal(case_arguments(c, &cfg, "train.max_steps=3.toml", NULL), OTT_ERR_NOT_FOUND);
    assert_int_equal(case_arguments(c, &cfg, "nothing=3", NULL), OTT_ERR_CONFIG);
    assert_null(strstr(status_text(), "dashes"));
}

/* A preset on the command line replaces the dimensions in the file, but not dimensions on the command
   line. */
static void test_preset_over_file(void **state) {
    static const char file[] = "[model]\ndim = 96\nn_layers = 7\nrope_theta = 5e5\ninit_std = 0.5\n";
    config_case *c = *state;
    config *cfg = case_good(c, ".toml", file, "--model.n_layers=3", "--model.preset=42M", NULL);
    assert_false(config_was_set(cfg, "model.dim"));
    assert_false(config_was_set(cfg, "model.rope_theta"));
    assert_int_equal(cfg->model.n_layers, 3);
    assert_true(cfg->model.init_std == 0.5);
    assert_non_null(strstr(c->log, "--model.preset=42M replaces model.dim, model.rope_theta of "));
    config_close(cfg);
    c->log[0] = '\0';
    cfg = case_good(c, ".toml", "[model]\npreset = \"10M\"\nn_layers = 7\n", NULL);
    assert_int_equal(cfg->model.n_layers, 7); /* a file's dimensions change the preset in the same file */
    assert_null(strstr(c->log, "replaces"));
    config_close(cfg);
}

int main(void) {
    const struct CMUnitTest tests[] = {CASE(test_spellings),
                                       CASE(test_switches),
                                       CASE(test_lists),
                                       CASE(test_files),
                                       CASE(test_order),
                                       CASE(test_set),
                                       CASE(where_a_key_was_given),
                                       CASE(test_dashes),
                                       CASE(test_preset_over_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
