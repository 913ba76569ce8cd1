/* Evaluation and tokenizing through the public API: errors found before any file is read, and results. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <ottava/ottava.h>

static ott_context *context;

static int setup(void **state) {
    (void)state;
    return ott_context_open(NULL, &context) == OTT_OK ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    ott_context_close(context);
    return 0;
}

static void refused(ott_status status, const char *part) {
    assert_int_equal(status, OTT_ERR_ARGUMENT);
    if (!strstr(ott_error_text(), part)) fail_msg("\"%s\" does not contain \"%s\"", ott_error_text(), part);
}

static ott_eval_options good(void) {
    ott_eval_options o;
    ott_eval_options_init(&o);
    o.data = "data.txt";
    return o;
}

#define REFUSED(change, part)                                                                                \
    do {                                                                                                     \
        ott_eval_options o = good();                                                                         \
        change;                                                                                              \
        refused(ott_eval(context, "run", &o, &result), part);                                                \
    } while (0)

static void bad_options_are_refused(void **state) {
    (void)state;
    static const char *const filter[] = {"a", ""};
    ott_eval_result result;
    ott_eval_result_init(&result);
    REFUSED(o.data = NULL, "data is missing");
    REFUSED(o.data = "", "data is missing");
    REFUSED(o.task = (ott_eval_task)7, "task = 7");
    REFUSED(o.task = OTT_EVAL_COMPARE, "against is missing");
    REFUSED(o.against = "b", "against is only for the task");
    REFUSED(o.threads = -1, "threads = -1");
    REFUSED(o.device = "cpi", "there is no device \"cpi\"; did you mean \"cpu\"?");
    REFUSED(o.limit = -1, "limit = -1");
    REFUSED(o.seq_len = -1, "seq_len = -1");
    REFUSED(o.kl_max = -1, "kl_max = -1");
    REFUSED(o.cosine = 2, "cosine = 2");
    REFUSED(o.hellaswag_forms = 0, "hellaswag_forms = 0");
    REFUSED(o.hellaswag_forms = 4, "hellaswag_forms = 4");
    REFUSED(o.filter_count = 1, "filter_count = 1");
    REFUSED((o.filter = filter, o.filter_count = 2), "filter[1] is empty");
    REFUSED(o.text_field = "", "text_field is empty");
    REFUSED(o.struct_size = 0, "ott_eval_options_init");
}

static void missing_arguments_are_named(void **state) {
    (void)state;
    ott_eval_options o = good();
    ott_eval_result result;
    ott_eval_result_init(&result);
    refused(ott_eval(NULL, "run", &o, &result), "context is NULL");
    refused(ott_eval(context, NULL, &o, &result), "path is NULL");
    refused(ott_eval(context, "run", NULL, &result), "options is NULL");
    refused(ott_eval(context, "run", &o, NULL), "result is NULL");
    assert_int_equal(ott_eval(context, "no such run", &o, &result), OTT_ERR_NOT_FOUND);
    ott_eval_options_init(NULL);
    ott_eval_result_init(NULL);
}

/* ---- tokenizing ---- */

static int64_t read_nothing(void *user, void *buffer, int64_t bytes) {
    (void)user, (void)buffer, (void)bytes;
    return 0;
}

static void write_nothing(void *user, const void *data, int64_t bytes) {
    (void)user, (void)data, (void)bytes;
}

static void tokenizing_is_checked(void **state) {
    (void)state;
    ott_tokenize_options o;
    ott_tokenize_result result;
    ott_tokenize_options_init(&o);
    ott_tokenize_result_init(&result);
    refused(ott_tokenize(NULL, "t", &o, read_nothing, NULL, write_nothing, NULL), "context is NULL");
    refused(ott_tokenize(context, NULL, &o, read_nothing, NULL, write_nothing, NULL),
            "tokenizer_path is NULL");
    refused(ott_tokenize(context, "t", &o, NULL, NULL, write_nothing, NULL), "read is NULL");
    refused(ott_tokenize(context, "t", &o, read_nothing, NULL, NULL, NULL), "write is NULL");
    assert_int_equal(ott_tokenize(context, "no such file", NULL, read_nothing, NULL, write_nothing, NULL),
                     OTT_ERR_NOT_FOUND);
    refused(ott_tokenize_file(context, "t", NULL, "out", &o, &result), "input is NULL");
    refused(ott_tokenize_file(context, "t", "in", NULL, &o, &result), "output is NULL");
    o.decode = 1;
    refused(ott_tokenize_file(context, "t", "in", "out", &o, &result), "are options of ott_tokenize");
    ott_tokenize_options_init(&o);
    o.threads = -1;
    refused(ott_tokenize_file(context, "t", "in", "out", &o, NULL), "threads = -1");
    ott_tokenize_options_init(&o);
    o.text_field = NULL;
    refused(ott_tokenize(context, "t", &o, read_nothing, NULL, write_nothing, NULL), "text_field is empty");
    ott_tokenize_options_init(NULL);
    ott_tokenize_result_init(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(missing_arguments_are_named),
        cmocka_unit_test(tokenizing_is_checked),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
