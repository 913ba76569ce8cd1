/* Wrong calls with contexts and configurations: with closed handles, with handles of another context, from
   callbacks, from a child of fork, with uninitialized structs. Also tests a program with another locale. */
#define _GNU_SOURCE
#include "api/api_case.h"
#include "base/comma_locale.h"
#include "base/file/file.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[40], run_argument[96], data_argument[96];

static int make_folder(void **state) {
    (void)state;
    char path[64];
    strcpy(folder, "/tmp/ottava-misuse-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/text.txt", folder);
    snprintf(run_argument, sizeof run_argument, "--run.dir=%s/run", folder);
    snprintf(data_argument, sizeof data_argument, "--data.dataset_path=%s", path);
    FILE *file = fopen(path, "w");
    for (int i = 0; file && i < 200; i++) fputs("abcdefghijklmnopqrstuvwxyz\n", file);
    return file && fclose(file) == 0 ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    return file_remove_tree(folder) == OTT_OK ? 0 : -1;
}

static ott_config *open_config(ott_context *context) {
    const char *const argv[] = {data_argument,
                                run_argument,
                                "--model.dim=32",
                                "--model.n_layers=1",
                                "--model.n_heads=2",
                                "--model.ffn_hidden_dim=64",
                                "--model.vocab_size=256",
                                "--train.seq_len=32",
                                "--train.batch_size=2",
                                "--train.max_steps=3",
                                "--train.threads=1",
                                "--profiling.enable=true",
                                "--profiling.start_step=1",
                                "--profiling.end_step=3",
                                "--checkpoint.interval=0"};
    ott_config *config;
    succeed(ott_config_open(context, sizeof argv / sizeof *argv, argv, &config));
    return config;
}

/* ---- configurations ---- */

static void test_config_is_a_checked_handle(void **state) {
    (void)state;
    ott_context *context = open_context(), *other = open_context();
    ott_config *config = open_config(context), *none = NULL;
    ott_recipe *recipe = open_recipe(context, "block");
    const char *const gap[] = {"--train.max_steps=1", NULL, "--train.threads=1"};
    assert_error(ott_config_open(context, 3, gap, &none), OTT_ERR_ARGUMENT,
                 "ott_config_open: argv[1] is NULL; argc is 3");
    assert_error(ott_config_open(context, -1, gap, &none), OTT_ERR_ARGUMENT, "argc = -1");
    assert_null(none);
    assert_error(ott_train(other, config, NULL), OTT_ERR_ARGUMENT,
                 "ott_train: config belongs to another context");
    assert_error(ott_config_set((ott_config *)(void *)recipe, "train.max_steps", "1"), OTT_ERR_ARGUMENT,
                 "config is a recipe; give a configuration");
    ott_config_close(config);
    ott_config_close(config);
    assert_error(ott_train(context, config, NULL), OTT_ERR_ARGUMENT,
                 "ott_train: config is a configuration that has been closed");
    assert_error(ott_config_set(config, "train.max_steps", "1"), OTT_ERR_ARGUMENT, "that has been closed");
    ott_context_close(other);
    ott_context_close(context);
}

typedef struct inside {
    ott_context *context;
    ott_config *config;
    ott_status set;
    char set_text[160], close_text[160], context_text[160];
} inside;

static void meddle(void *user, const ott_progress *progress) {
    inside *m = user;
    (void)progress;
    m->set = ott_config_set(m->config, "train.max_steps", "1");
    snprintf(m->set_text, sizeof m->set_text, "%s", ott_error_text());
    ott_config_close(m->config);
    snprintf(m->close_text, sizeof m->close_text, "%s", ott_error_text());
    ott_context_close(m->context);
    snprintf(m->context_text, sizeof m->context_text, "%s", ott_error_text());
}

static void test_no_close_while_training(void **state) {
    (void)state;
    ott_train_options o;
    inside m = {.context = open_context()};
    m.config = open_config(m.context);
    ott_train_options_init(&o);
    o.progress = meddle;
    o.user = &m;
    succeed(ott_train(m.context, m.config, &o));
    assert_int_equal(m.set, OTT_ERR_ARGUMENT);
    assert_non_null(strstr(m.set_text, "ott_config_set: cannot be called from a callback of the call"));
    assert_non_null(
        strstr(m.close_text,
               "ott_config_close: cannot be called from a callback of the call that uses the configuration"));
    assert_non_null(strstr(m.context_text, "ott_context_close: cannot be called from a callback"));
    succeed(ott_config_set(m.config, "train.max_steps", "1"));
    ott_config_close(m.config);
    ott_context_close(m.context);
}

/* ---- contexts ---- */

static void test_closed_twice(void **state) {
    (void)state;
    ott_context *context = open_context(), *other;
    ott_recipe *r;
    ott_context_close(context);
    ott_context_close(context);
    assert_non_null(strstr(ott_error_text(), "ott_context_close: the context has been closed"));
    assert_error(ott_recipe_open(context, "block", &r), OTT_ERR_ARGUMENT, "the context has been closed");
    ott_stop(context);
    other = open_context();
    ott_context_close(context); /* the other context stays open */
    succeed(ott_recipe_open(other, "block", &r));
    ott_recipe_close(r);
    ott_context_close(other);
}

typedef struct last_words {
    ott_context *context;
    ott_tensor *tensor;
    int lines;
    char text[160];
} last_words;

/* A log callback that closes the context that is being closed. It has no effect, and other calls work. */
static void close_again(void *user, ott_log_level level, const char *text) {
    last_words *w = user;
    if (level != OTT_LOG_WARNING || !strstr(text, "still open")) return;
    w->lines++;
    ott_context_close(w->context);
    snprintf(w->text, sizeof w->text, "%s", ott_error_text());
    succeed(ott_tensor_fill(w->tensor, 1));
    ott_tensor_close(w->tensor);
}

static void test_closed_by_its_log_callback(void **state) {
    (void)state;
    last_words w = {0};
    ott_context_options o;
    ott_context_options_init(&o);
    o.log = close_again;
    o.user = &w;
    o.threads = 1;
    succeed(ott_context_open(&o, &w.context));
    w.tensor = open_tensor(w.context, OTT_F32, 4, 4);
    ott_context_close(w.context);
    assert_int_equal(w.lines, 1);
    assert_non_null(strstr(w.text, "ott_context_close: cannot be called from a callback"));
}

static void test_options_out_of_range(void **state) {
    (void)state;
    ott_context *context = NULL;
    ott_context_options o;
    ott_context_options_init(&o);
    o.threads = 100000;
    assert_error(ott_context_open(&o, &context), OTT_ERR_ARGUMENT, "threads = 100000: give 1 to 4096");
    o.threads = -1;
    assert_error(ott_context_open(&o, &context), OTT_ERR_ARGUMENT, "threads = -1");
    o.threads = 1;
    for (int level = -1; level < 200; level += 100) {
        o.log_level = (ott_log_level)level;
        assert_error(ott_context_open(&o, &context), OTT_ERR_ARGUMENT,
                     "is not a log level: give 0 (error) to 3 (debug)");
    }
    assert_null(context);
}

/* ---- fork ---- */

/* Under the thread sanitizer a child of fork cannot start threads, so it computes with one thread. */
#ifdef __SANITIZE_THREAD__
enum { THREADS_OF_CHILD = 1 };
#else
enum { THREADS_OF_CHILD = 2 };
#endif

static int in_child(ott_context *context, ott_tensor *t, ott_config *config) {
    float value;
    ott_recipe *r;
    ott_context *own;
    ott_context_options o;
    alarm(300); /* a sanitizer on a busy machine is slow */
    if (ott_tensor_fill(t, 1) != OTT_ERR_ARGUMENT) return 1;
    if (!strstr(ott_error_text(),
                "ott_tensor_fill: the context was opened by the process that forked this one"))
        return 2;
    if (ott_recipe_open(context, "block", &r) != OTT_ERR_ARGUMENT) return 3;
    if (ott_train(context, config, NULL) != OTT_ERR_ARGUMENT) return 4;
    ott_tensor_close(t);
    ott_config_close(config);
    ott_context_close(context);
    ott_context_options_init(&o);
    o.threads = THREADS_OF_CHILD;
    if (ott_context_open(&o, &own) != OTT_OK || ott_tensor_open(own, OTT_F32, 64, 64, &t) != OTT_OK) return 5;
    if (ott_tensor_fill(t, 3) != OTT_OK || ott_tensor_read(t, &value, 1) != OTT_ERR_SHAPE) return 6;
    ott_context_close(own);
    return 0;
}

/* A program that was compiled with an older header has shorter option structs. */
static void test_structs_of_an_older_header(void **state) {
    (void)state;
    ott_context *context;
    struct {
        ott_context_options options;
        char after[8];
    } old;
    const size_t size = offsetof(ott_context_options, device);
    memset(&old, 0x55, sizeof old);
    (ott_context_options_init)(&old.options, size);
    assert_int_equal(old.options.struct_size, size);
    assert_int_equal(old.options.log_level, OTT_LOG_INFO);
    for (const char *at = (const char *)&old + size; at < (const char *)(&old + 1); at++)
        assert_int_equal(*at, 0x55);
    old.options.threads = 1;
    succeed(ott_context_open(&old.options, &context));
    ott_context_close(context);
    (ott_context_options_init)(&old.options, 4); /* too small for struct_size: changes nothing */
    assert_int_equal(old.options.struct_size, size);
}

static void test_child_of_fork(void **state) {
    (void)state;
    int status = 0;
    ott_context *context = open_context();
    ott_tensor *t = open_tensor(context, OTT_F32, 64, 64);
    ott_config *config = open_config(context);
    pid_t child = fork();
    if (child == 0) _exit(in_child(context, t, config));
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    succeed(ott_tensor_fill(t, 2)); /* the parent process can still use the tensor */
    ott_config_close(config);
    ott_context_close(context);
}

/* ---- a refused call does nothing ---- */

static void test_results_are_checked_before_the_work(void **state) {
    (void)state;
    ott_linear_options o;
    ott_module *m;
    ott_optimizer *optimizer;
    ott_step_info info = {.struct_size = 3};
    ott_convert_summary summary = {.struct_size = 0};
    ott_tensor *value;
    float before[64], after[64];
    ott_context *context = open_context();
    ott_linear_options_init(&o);
    o.in_features = 8, o.out_features = 8, o.bias = 0;
    succeed(ott_linear_open(context, &o, &m));
    succeed(ott_adamw_open(context, m, NULL, &optimizer));
    succeed(ott_module_parameter_value(m, 0, &value));
    succeed(ott_tensor_read(value, before, 64));
    assert_error(ott_convert_to_float8_training(m, NULL, &summary), OTT_ERR_ARGUMENT,
                 "ott_convert_summary_init");
    assert_int_equal(ott_module_is_float8(m), 0);
    assert_error(ott_optimizer_step(optimizer, &info), OTT_ERR_ARGUMENT, "ott_step_info_init");
    succeed(ott_tensor_read(value, after, 64));
    assert_memory_equal(before, after, sizeof before);
    ott_step_info_init(&info);
    succeed(ott_optimizer_step(optimizer, &info));
    assert_int_equal(info.updates, 1);
    ott_context_close(context);
}

/* ---- callbacks ---- */

/* A tokenizer of single letters. */
static const char tokenizer_json[] =
    "{\"added_tokens\": [], \"normalizer\": null, \"post_processor\": null,"
    " \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true,"
    " \"use_regex\": true},"
    " \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, "
    "\"use_regex\": "
    "true},"
    " \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"fuse_unk\": false, "
    "\"byte_fallback\": "
    "false, \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null,"
    " \"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []}}";

static int64_t read_too_much(void *user, void *buffer, int64_t bytes) {
    int *calls = user;
    memset(buffer, 'a', 4);
    return (*calls)++ ? bytes + 1 : 4;
}

static void ignore_bytes(void *user, const void *data, int64_t bytes) {
    (void)user, (void)data, (void)bytes;
}

static void test_read_callback_that_returns_too_much(void **state) {
    (void)state;
    int calls = 0;
    char path[96];
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(tokenizer_json, file);
    assert_int_equal(fclose(file), 0);
    ott_context *context = open_context();
    assert_error(ott_tokenize(context, path, NULL, read_too_much, &calls, ignore_bytes, NULL),
                 OTT_ERR_ARGUMENT, "ott_tokenize: read returned");
    assert_int_equal(calls, 2);
    ott_context_close(context);
}

/* ---- locale ---- */

/* Fails if a file has a decimal comma: a comma between digits that separates no elements, "ts":107,480. */
static void assert_points(const char *path) {
    static char text[1 << 20];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[bytes] = '\0';
    assert_true(bytes > 100);
    for (const char *at = strstr(text, "\":"); at; at = strstr(at + 1, "\":")) {
        const char *number = at + 2 + strspn(at + 2, " "), *end = number + strspn(number, "-0123456789");
        if (end > number && *end == ',' && isdigit((unsigned char)end[1])) fail_msg("%s: %.40s", path, at);
    }
}

static void test_files_of_a_program_with_a_comma(void **state) {
    (void)state;
    char path[128];
    static const char *const files[] = {"metrics.jsonl", "summary.json",
                                        "profiler_traces/iteration_2/rank0_trace.json"};
    if (!comma_locale_enter()) {
        print_message("SKIPPED: no locale has a decimal comma, and localedef cannot make one\n");
        skip();
    }
    file_remove_tree(run_argument + strlen("--run.dir="));
    ott_context *context = open_context();
    ott_config *config = open_config(context);
    succeed(ott_config_set(config, "optimizer.lr", "1.5e-3"));
    succeed(ott_train(context, config, NULL));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", run_argument + strlen("--run.dir="), files[i]);
        assert_points(path);
    }
    ott_config_close(config);
    ott_context_close(context);
    comma_locale_leave();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_is_a_checked_handle),
        cmocka_unit_test(test_no_close_while_training),
        cmocka_unit_test(test_closed_twice),
        cmocka_unit_test(test_closed_by_its_log_callback),
        cmocka_unit_test(test_options_out_of_range),
        cmocka_unit_test(test_structs_of_an_older_header),
        cmocka_unit_test(test_child_of_fork),
        cmocka_unit_test(test_results_are_checked_before_the_work),
        cmocka_unit_test(test_read_callback_that_returns_too_much),
        cmocka_unit_test(test_files_of_a_program_with_a_comma),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
