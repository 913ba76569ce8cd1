/* One context used by two threads, callbacks that call the library, contexts closed with open objects. */
#include "api/api_case.h"
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

/* Results of calls that a second thread makes while the first thread is inside a call. */
typedef struct meeting {
    ott_context *context;
    ott_tensor *t;
    ott_recipe *r;
    bool met;
    ott_status opened, read, described, configured;
    char text[256], config_text[256];
    ott_status nested;
} meeting;

static void ignore(void *user, const char *text) {
    (void)user, (void)text;
}

static void *intrude(void *user) {
    meeting *m = user;
    float value = 0;
    ott_tensor *t;
    ott_config *config;
    m->opened = ott_tensor_open(m->context, OTT_F32, 1, 1, &t);
    strncpy(m->text, ott_error_text(), sizeof m->text - 1);
    m->read = ott_tensor_read(m->t, &value, 1);
    m->described = ott_recipe_describe(m->r, ignore, NULL);
    m->configured = ott_config_open(m->context, 0, NULL, &config);
    strncpy(m->config_text, ott_error_text(), sizeof m->config_text - 1);
    ott_tensor_close(m->t); /* closing the tensor has no effect, and returns no status */
    return NULL;
}

static void meet(void *user, const char *text) {
    meeting *m = user;
    pthread_t thread;
    float value = 0;
    (void)text;
    if (m->met) return;
    m->met = true;
    assert_int_equal(pthread_create(&thread, NULL, intrude, m), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    m->nested = ott_tensor_read(m->t, &value, 1);
}

static void test_second_thread_is_refused(void **state) {
    (void)state;
    float value;
    meeting m = {.context = open_context()};
    m.t = open_tensor(m.context, OTT_F32, 1, 1);
    m.r = open_recipe(m.context, "rowwise");
    succeed(ott_recipe_table(m.context, 0, meet, &m));
    assert_true(m.met);
    assert_int_equal(m.opened, OTT_ERR_ARGUMENT);
    assert_non_null(strstr(m.text, "ott_tensor_open: the context is in use by another thread"));
    assert_int_equal(m.read, OTT_ERR_ARGUMENT);
    assert_int_equal(m.described, OTT_ERR_ARGUMENT);
    assert_int_equal(m.configured, OTT_ERR_ARGUMENT);
    assert_non_null(strstr(m.config_text, "ott_config_open: the context is in use by another thread"));
    assert_int_equal(m.nested, OTT_OK); /* a callback may call the library in the first thread */
    succeed(ott_tensor_read(m.t, &value, 1));
    ott_context_close(m.context);
}

static void *use(void *user) {
    meeting *m = user;
    m->opened = ott_tensor_open(m->context, OTT_F32, 4, 4, &m->t);
    return NULL;
}

/* Several threads may use a context one after the other, also after a call that failed. */
static void test_threads_take_turns(void **state) {
    (void)state;
    pthread_t thread;
    meeting m = {.context = open_context()};
    ott_tensor *t = open_tensor(m.context, OTT_F32, 2, 2), *none;
    float values[4];
    assert_error(ott_tensor_open(m.context, OTT_F32, INT64_C(1) << 50, 16, &none), OTT_ERR_MEMORY,
                 "a tensor");
    assert_int_equal(pthread_create(&thread, NULL, use, &m), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    succeed(m.opened);
    succeed(ott_tensor_read(t, values, 4));
    ott_tensor_close(m.t);
    ott_tensor_close(t);
    ott_context_close(m.context);
}

static void *work(void *user) {
    float sum = 0, values[64];
    ott_context *context = open_context();
    for (int i = 0; i < 50; i++) {
        ott_tensor *t = open_normal(context, OTT_F32, 8, 8, (uint64_t)i);
        succeed(ott_tensor_read(t, values, 64));
        sum += values[i];
        ott_tensor_close(t);
    }
    ott_context_close(context);
    *(float *)user = sum;
    return NULL;
}

static void test_two_contexts(void **state) {
    (void)state;
    pthread_t thread;
    float theirs = 0, mine = 0;
    assert_int_equal(pthread_create(&thread, NULL, work, &theirs), 0);
    work(&mine);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(mine == theirs && mine != 0);
}

/* ---- closing ---- */

static void capture_log(void *user, ott_log_level level, const char *text) {
    assert_int_equal(level, OTT_LOG_WARNING);
    strncpy(user, text, 255);
}

/* Closing a context frees its open objects. A debug build aborts on a leak. */
static void test_closing_with_objects_open(void **state) {
    (void)state;
    char logged[256] = "";
    ott_context *context;
    ott_context_options options;
    ott_context_options_init(&options);
    options.log = capture_log;
    options.user = logged;
    options.threads = 1;
    succeed(ott_context_open(&options, &context));
    ott_recipe *r = open_recipe(context, "delayed");
    ott_qtensor *q = open_qtensor(context, 32, 32, r, OTT_INPUT);
    succeed(ott_quantize(q, open_normal(context, OTT_BF16, 32, 32, 1)));
    ott_tensor_close(open_tensor(context, OTT_F32, 1, 1));
    ott_context_close(context);
    assert_non_null(strstr(logged, "3 objects made with the context are still open"));
}

static void test_context_options(void **state) {
    (void)state;
    ott_context *context;
    ott_context_options options;
    ott_context_options_init(&options);
    assert_int_equal(options.threads, 0);
    options.threads = -2;
    assert_error(ott_context_open(&options, &context), OTT_ERR_ARGUMENT, "ott_context_open: threads = -2");
    assert_null(context);
    /* an older header has a shorter struct */
    options.struct_size = offsetof(ott_context_options, threads);
    succeed(ott_context_open(&options, &context));
    ott_context_close(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_second_thread_is_refused),
        cmocka_unit_test(test_threads_take_turns),
        cmocka_unit_test(test_two_contexts),
        cmocka_unit_test(test_closing_with_objects_open),
        cmocka_unit_test(test_context_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
