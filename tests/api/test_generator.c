/* Generators of the public API: texts in several calls, wrong calls with the handle, wrong options. */
#define _GNU_SOURCE
#include "api/api_case.h"
#include "base/file/file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct trained {
    char folder[64], run[80];
} trained;

/* Trains a model on one repeated sentence. */
static int setup(void **state) {
    static trained t;
    char text[96], data[128], run[128];
    strcpy(t.folder, "/tmp/ottava-generator-XXXXXX");
    if (!mkdtemp(t.folder)) return -1;
    snprintf(text, sizeof text, "%s/text.txt", t.folder);
    snprintf(t.run, sizeof t.run, "%s/run", t.folder);
    snprintf(data, sizeof data, "--data.dataset_path=%s", text);
    snprintf(run, sizeof run, "--run.dir=%s", t.run);
    FILE *file = fopen(text, "w");
    for (int i = 0; file && i < 500; i++) fputs("abcdefghijklmnopqrstuvwxyz\n", file);
    if (!file || fclose(file)) return -1;
    const char *const argv[] = {data,
                                run,
                                "--model.dim=32",
                                "--model.n_layers=1",
                                "--model.n_heads=2",
                                "--model.ffn_hidden_dim=64",
                                "--model.vocab_size=256",
                                "--train.seq_len=32",
                                "--train.batch_size=8",
                                "--train.max_steps=80",
                                "--train.threads=1",
                                "--optimizer.lr=1e-2",
                                "--scheduler.warmup_steps=2",
                                "--checkpoint.interval=80"};
    ott_context *context = open_context();
    ott_config *config;
    succeed(ott_config_open(context, sizeof argv / sizeof *argv, argv, &config));
    succeed(ott_train(context, config, NULL));
    ott_config_close(config);
    ott_context_close(context);
    *state = &t;
    return 0;
}

static int teardown(void **state) {
    return file_remove_tree(((trained *)*state)->folder) == OTT_OK ? 0 : -1;
}

static ott_generate_options greedy(int64_t max_tokens) {
    ott_generate_options o;
    ott_generate_options_init(&o);
    o.temperature = 0;
    o.max_tokens = max_tokens;
    return o;
}

static void turns_continue_one_text(void **state) {
    const trained *t = *state;
    ott_context *context = open_context();
    ott_generator *generator;
    ott_generate_options o = greedy(3);
    char stop[] = "uv"; /* ott_generator_open copies the stop text, so the caller may change `stop` */
    o.stop = (const char *const[]){stop};
    o.stop_count = 1;
    collected text = {0};
    succeed(ott_generator_open(context, t->run, &o, &generator));
    strcpy(stop, "ef");
    succeed(ott_generator_continue(generator, "abc", collect, &text));
    succeed(ott_generator_continue(generator, "", collect, &text));
    assert_string_equal(text.text, "defghi");
    succeed(ott_generator_continue(generator, "jklmnopqrs", collect, &text));
    assert_string_equal(text.text, "defghit");
    ott_generator_close(generator);
    ott_context_close(context);
}

static void misuse_is_reported(void **state) {
    const trained *t = *state;
    ott_context *context = open_context();
    ott_generator *generator;
    collected text = {0};
    assert_error(ott_generator_open(NULL, t->run, NULL, &generator), OTT_ERR_ARGUMENT, "context is NULL");
    assert_error(ott_generator_open(context, NULL, NULL, &generator), OTT_ERR_ARGUMENT, "run is NULL");
    assert_error(ott_generator_open(context, t->run, NULL, NULL), OTT_ERR_ARGUMENT, "out is NULL");
    assert_error(ott_generator_open(context, "/nowhere", NULL, &generator), OTT_ERR_NOT_FOUND, "/nowhere");
    assert_null(generator);
    succeed(ott_generator_open(context, t->run, NULL, &generator));
    assert_error(ott_generator_continue(NULL, "a", collect, &text), OTT_ERR_ARGUMENT, "generator is NULL");
    assert_error(ott_generator_continue(generator, NULL, collect, &text), OTT_ERR_ARGUMENT, "text is NULL");
    assert_error(ott_generator_continue(generator, "a", NULL, &text), OTT_ERR_ARGUMENT, "write is NULL");
    assert_error(ott_generator_continue(generator, "", collect, &text), OTT_ERR_ARGUMENT,
                 "the prompt is empty");
    assert_string_equal(text.text, "");
    ott_generator_close(generator);
    ott_generator_close(generator);
    ott_generator_close(NULL);
    assert_error(ott_generator_continue(generator, "a", collect, &text), OTT_ERR_ARGUMENT,
                 "generator that has been closed");
    ott_context_close(context);
}

typedef struct closer {
    ott_generator *generator;
    char closed[160], nested[160];
} closer;

static void close_own(void *user, const char *text) {
    closer *c = user;
    (void)text;
    ott_generator_close(c->generator);
    snprintf(c->closed, sizeof c->closed, "%s", ott_error_text());
    assert_int_equal(ott_generator_continue(c->generator, "a", close_own, c), OTT_ERR_ARGUMENT);
    snprintf(c->nested, sizeof c->nested, "%s", ott_error_text());
}

static void is_not_closed_by_its_own_callback(void **state) {
    const trained *t = *state;
    closer c;
    collected text = {0};
    ott_context *context = open_context();
    ott_generate_options o = greedy(3);
    succeed(ott_generator_open(context, t->run, &o, &c.generator));
    succeed(ott_generator_continue(c.generator, "abc", close_own, &c));
    assert_non_null(strstr(c.closed, "ott_generator_close: cannot be called from a callback of the call"));
    assert_non_null(strstr(
        c.nested,
        "ott_generator_continue: cannot be called from a callback of the call that uses the generator"));
    succeed(ott_generator_continue(c.generator, "", collect, &text));
    assert_string_equal(text.text, "ghi");
    ott_generator_close(c.generator);
    assert_error(ott_generator_continue(c.generator, "a", collect, &text), OTT_ERR_ARGUMENT,
                 "has been closed");
    ott_context_close(context);
}

static void check_refused(ott_context *context, const trained *t, const ott_generate_options *o,
                          const char *part) {
    ott_generator *generator;
    assert_error(ott_generator_open(context, t->run, o, &generator), OTT_ERR_ARGUMENT, part);
    assert_null(generator);
}

static void wrong_options_are_reported(void **state) {
    ott_context *context = open_context();
    ott_generate_options o = greedy(1);
    o.top_k = -5;
    check_refused(context, *state, &o, "top_k = -5");
    o = greedy(1);
    o.repetition_penalty = 0;
    check_refused(context, *state, &o, "repetition_penalty = 0");
    o = greedy(1);
    o.precision = (ott_generate_precision)7;
    check_refused(context, *state, &o, "precision = 7");
    o = greedy(1);
    o.stop_count = 1;
    check_refused(context, *state, &o, "stop_count = 1");
    o.stop = (const char *const[]){""};
    check_refused(context, *state, &o, "stop[0] is empty");
    ott_context_close(context);
}

/* An option struct from before the members top_k, repetition_penalty, stop and precision existed. */
static void an_older_struct_works(void **state) {
    const trained *t = *state;
    ott_context *context = open_context();
    collected text = {0};
    ott_generate_options o = greedy(5);
    o.prompt = "fgh";
    o.struct_size = offsetof(ott_generate_options, top_k);
    o.top_k = -1;
    o.repetition_penalty = 0;
    succeed(ott_generate(context, t->run, &o, collect, &text));
    assert_string_equal(text.text, "fghijklm");
    ott_context_close(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_continue_one_text),
        cmocka_unit_test(misuse_is_reported),
        cmocka_unit_test(is_not_closed_by_its_own_callback),
        cmocka_unit_test(wrong_options_are_reported),
        cmocka_unit_test(an_older_struct_works),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
