/* Calls of the public API that train, evaluate, export and so on: with wrong arguments, with option structs
   of other versions, and on a run. */
#define _GNU_SOURCE
#include "api/api_case.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void count(void *user, const char *text) {
    size_t *bytes = user;
    *bytes += strlen(text);
}

static void test_statuses(void **state) {
    (void)state;
    assert_string_equal(ott_status_name(OTT_ERR_SHAPE), "ERR_SHAPE");
    assert_int_equal(ott_status_exit_code(OTT_OK), 0);
    assert_int_equal(ott_status_exit_code(OTT_ERR_DIVERGED), 1);
    assert_int_equal(ott_status_exit_code(OTT_ERR_CONFIG), 2);
    assert_true(strlen(ott_status_meaning(OTT_ERR_IO)) > 0);
    assert_int_equal(ott_version()[0] >= '0' && ott_version()[0] <= '9', 1);
}

static void test_null_arguments(void **state) {
    (void)state;
    size_t bytes = 0;
    ott_config *config;
    ott_generate_options generate;
    ott_context *context = open_context();
    ott_generate_options_init(&generate);
    assert_error(ott_context_open(NULL, NULL), OTT_ERR_ARGUMENT, "ott_context_open: out is NULL");
    assert_error(ott_config_open(NULL, 0, NULL, &config), OTT_ERR_ARGUMENT, "context is NULL");
    assert_error(ott_config_open(context, 1, NULL, &config), OTT_ERR_ARGUMENT, "argv is NULL");
    assert_null(config);
    assert_error(ott_config_set(NULL, "a", "b"), OTT_ERR_ARGUMENT, "ott_config_set");
    assert_error(ott_config_get(NULL, "a", count, &bytes), OTT_ERR_ARGUMENT, "ott_config_get");
    assert_error(ott_config_help(context, NULL, NULL), OTT_ERR_ARGUMENT, "write is NULL");
    assert_error(ott_config_complete(context, NULL, count, &bytes), OTT_ERR_ARGUMENT, "word is NULL");
    assert_error(ott_train(context, NULL, NULL), OTT_ERR_ARGUMENT, "ott_train");
    assert_error(ott_generate(context, "x", NULL, count, &bytes), OTT_ERR_ARGUMENT, "options is NULL");
    assert_error(ott_generate(context, NULL, &generate, count, &bytes), OTT_ERR_ARGUMENT, "run is NULL");
    assert_error(ott_generate(context, "x", &generate, count, &bytes), OTT_ERR_ARGUMENT,
                 "the prompt is empty");
    assert_error(ott_report(context, NULL, 1, NULL, count, &bytes), OTT_ERR_ARGUMENT, "runs is NULL");
    assert_error(ott_report(context, (const char *const[]){NULL}, 1, NULL, count, &bytes), OTT_ERR_ARGUMENT,
                 "run folder 0 is NULL");
    assert_error(ott_report(context, (const char *const[]){"x"}, 0, NULL, count, &bytes), OTT_ERR_ARGUMENT,
                 "0 run folders");
    assert_error(ott_report(context, (const char *const[]){"x"}, 1, NULL, NULL, NULL), OTT_ERR_ARGUMENT,
                 "write is NULL");
    assert_int_equal(bytes, 0);
    ott_config_close(NULL);
    ott_stop(NULL);
    ott_context_close(NULL);
    ott_context_close(context);
}

/* A program compiled with an older header has a shorter option struct. A newer header has a longer struct. */
static void test_options_of_other_versions(void **state) {
    (void)state;
    size_t bytes = 0;
    ott_context *context = open_context();
    const char *const runs[] = {"none"};
    struct {
        ott_report_options known;
        char unknown[16];
    } newer = {0};
    ott_report_options_init(&newer.known);
    newer.known.struct_size = sizeof newer;
    assert_error(ott_report(context, runs, 1, &newer.known, count, &bytes), OTT_ERR_NOT_FOUND,
                 "none: is not");
    newer.unknown[3] = 1;
    assert_error(ott_report(context, runs, 1, &newer.known, count, &bytes), OTT_ERR_ARGUMENT,
                 "an option is set that version");
    newer.known.struct_size = 0;
    assert_error(ott_report(context, runs, 1, &newer.known, count, &bytes), OTT_ERR_ARGUMENT,
                 "ott_report_options_init");

    ott_report_options older = {.struct_size = offsetof(ott_report_options, plot_width), .plot_width = -1};
    assert_error(ott_report(context, runs, 1, &older, count, &bytes), OTT_ERR_NOT_FOUND, "none: is not");
    older.struct_size = sizeof older;
    assert_error(ott_report(context, runs, 1, &older, count, &bytes), OTT_ERR_ARGUMENT, "a plot of -1 x");
    ott_context_close(context);
}

static void keep(void *user, const char *text) {
    snprintf(user, 40, "%s", text);
}

static void test_configuration(void **state) {
    (void)state;
    size_t bytes = 0;
    char value[40] = "";
    ott_config *config;
    ott_context *context = open_context();
    const char *const arguments[] = {"--train.max_steps=3", "--model.preset=demo"};
    assert_int_equal(ott_config_open(context, 2, arguments, &config), OTT_OK);
    assert_int_equal(ott_config_set(config, "train.seq_len", "16"), OTT_OK);
    assert_int_equal(ott_config_get(config, "train.seq_len", keep, value), OTT_OK);
    assert_string_equal(value, "16");
    assert_int_equal(ott_config_get(config, "model.preset", keep, value), OTT_OK);
    assert_string_equal(value, "\"demo\"");
    assert_error(ott_config_get(config, "train.seq_lem", keep, value), OTT_ERR_CONFIG, "train.seq_len");
    assert_error(ott_config_set(config, "train.seq_lem", "16"), OTT_ERR_CONFIG, "train.seq_len");
    assert_error(ott_config_set(config, "train.seq_len", "x"), OTT_ERR_CONFIG, "integer");
    ott_config_close(config);
    assert_int_equal(ott_config_help(context, count, &bytes), OTT_OK);
    assert_true(bytes > 5000);
    assert_int_equal(ott_config_complete(context, "--train.master_dtype=", keep, value), OTT_OK);
    assert_string_equal(value, "fp32\nbf16\n");
    bytes = 0;
    assert_int_equal(ott_config_complete(context, "--", count, &bytes), OTT_OK);
    assert_true(bytes > 5000);
    const char *const wrong[] = {"--train.max_steps=0"};
    assert_error(ott_config_open(context, 1, wrong, &config), OTT_ERR_CONFIG, "train.max_steps");
    assert_null(config);
    ott_context_close(context);
}

/* ---- training ---- */

typedef struct hearer {
    int lines, steps;
    ott_context *stop_at_two;
    ott_progress last;
} hearer;

static void capture_log(void *user, ott_log_level level, const char *text) {
    (void)level;
    assert_null(strchr(text, '\n'));
    ((hearer *)user)->lines++;
}

static void follow(void *user, const ott_progress *p) {
    hearer *h = user;
    h->steps++;
    assert_true(p->step == h->last.step + 1);
    h->last = *p;
    if (h->stop_at_two && p->step == 2) ott_stop(h->stop_at_two);
}

static ott_config *small_run(ott_context *context, const char *folder) {
    char run[128];
    ott_config *config;
    snprintf(run, sizeof run, "--run.dir=%s", folder);
    const char *const arguments[] = {run,
                                     "--model.dim=32",
                                     "--model.n_layers=1",
                                     "--model.n_heads=2",
                                     "--model.vocab_size=64",
                                     "--model.ffn_hidden_dim=64",
                                     "--train.seq_len=16",
                                     "--data.format=synthetic",
                                     "--train.batch_size=2",
                                     "--train.max_steps=5",
                                     "--train.threads=1",
                                     "--checkpoint.interval=100"};
    if (ott_config_open(context, sizeof arguments / sizeof *arguments, arguments, &config) != OTT_OK)
        fail_msg("%s", ott_error_text());
    return config;
}

static void remove_folder(const char *folder) {
    char command[160];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

static void train_small(const char *folder, bool stop, hearer *h) {
    ott_context_options options;
    ott_context *context;
    ott_context_options_init(&options);
    options.log = capture_log;
    options.user = h;
    assert_int_equal(ott_context_open(&options, &context), OTT_OK);
    ott_config *config = small_run(context, folder);
    ott_train_options train;
    ott_train_options_init(&train);
    train.progress = follow;
    train.user = h;
    h->stop_at_two = stop ? context : NULL;
    if (ott_train(context, config, &train) != OTT_OK) fail_msg("%s", ott_error_text());
    ott_config_close(config);
    ott_context_close(context);
}

static void test_training(void **state) {
    (void)state;
    hearer h = {0};
    char folder[] = "test-api-XXXXXX";
    assert_non_null(mkdtemp(folder));
    train_small(folder, false, &h);
    assert_int_equal(h.steps, 5);
    assert_int_equal(h.last.max_steps, 5);
    assert_true(h.last.loss > 0 && h.last.learning_rate > 0 && h.last.grad_norm > 0);
    assert_true(h.last.tokens_per_second > 0 && h.last.seconds_left == 0);
    assert_true(h.lines > 5);
    remove_folder(folder);
}

typedef struct worker {
    int calls;
    int64_t last, total;
} worker;

static void follow_work(void *user, const ott_work *w) {
    worker *seen = user;
    assert_int_equal(w->done, seen->last % w->total + 1);
    assert_true(w->seconds_left >= 0);
    seen->last = w->done;
    seen->total = w->total;
    seen->calls++;
}

/* The work callback is called within a step only if the step has several micro-batches. */
static void work_inside_steps(const char *accumulate, int calls) {
    worker seen = {0};
    char folder[] = "test-api-XXXXXX";
    ott_context *context;
    ott_train_options train;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(ott_context_open(NULL, &context), OTT_OK);
    ott_config *config = small_run(context, folder);
    assert_int_equal(ott_config_set(config, "train.grad_accum_steps", accumulate), OTT_OK);
    ott_train_options_init(&train);
    train.work = follow_work;
    train.user = &seen;
    assert_int_equal(ott_train(context, config, &train), OTT_OK);
    assert_int_equal(seen.calls, calls);
    ott_config_close(config);
    ott_context_close(context);
    remove_folder(folder);
}

static void test_work(void **state) {
    (void)state;
    work_inside_steps("3", 5 * 3);
    work_inside_steps("1", 0);
}

static void test_stopping(void **state) {
    (void)state;
    hearer h = {0};
    char folder[] = "test-api-XXXXXX", path[160];
    assert_non_null(mkdtemp(folder));
    train_small(folder, true, &h);
    assert_int_equal(h.steps, 2);
    snprintf(path, sizeof path, "%s/checkpoints/step-2/state.json", folder);
    assert_int_equal(access(path, R_OK), 0);
    remove_folder(folder);
}

/* Keys that are set after ott_config_open are checked too, before training begins. */
static void test_train_checks(void **state) {
    (void)state;
    ott_context *context = open_context();
    ott_config *config = small_run(context, "test-api-never");
    assert_int_equal(ott_config_set(config, "distributed.ep", "2"), OTT_OK);
    assert_error(ott_train(context, config, NULL), OTT_ERR_CONFIG, "do not match world_size (1)");
    assert_int_not_equal(access("test-api-never", F_OK), 0);
    ott_config_close(config);
    ott_context_close(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statuses),
        cmocka_unit_test(test_null_arguments),
        cmocka_unit_test(test_options_of_other_versions),
        cmocka_unit_test(test_configuration),
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_stopping),
        cmocka_unit_test(test_train_checks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
