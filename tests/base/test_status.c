/* The error text: setting it, adding context, truncation, threads. Texts of error codes, and log lines. */
#include "base/log.h"
#include "base/status.h"
#include <pthread.h>
#include <string.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void test_fail_sets_text_and_returns_code(void **state) {
    (void)state;
    assert_int_equal(status_fail(OTT_ERR_SHAPE, "k is %d, not %d", 7, 16), OTT_ERR_SHAPE);
    assert_string_equal(status_text(), "k is 7, not 16");
    /* the old error text may be an argument of the new one */
    status_fail(OTT_ERR_IO, "again: %s", status_text());
    assert_string_equal(status_text(), "again: k is 7, not 16");
}

static void test_context_prepends(void **state) {
    (void)state;
    status_fail(OTT_ERR_FORMAT, "truncated at byte 812");
    assert_int_equal(status_context(OTT_ERR_FORMAT, "%s", "model.safetensors"), OTT_ERR_FORMAT);
    status_context(OTT_ERR_FORMAT, "run/step-%d", 20);
    assert_string_equal(status_text(), "run/step-20: model.safetensors: truncated at byte 812");
    assert_int_equal(status_context(OTT_OK, "nothing failed"), OTT_OK);
    assert_string_equal(status_text(), "run/step-20: model.safetensors: truncated at byte 812");
}

static void test_long_texts_are_truncated_and_marked(void **state) {
    (void)state;
    char large[20000];
    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    status_fail(OTT_ERR_IO, "%s", large);
    size_t length = strlen(status_text());
    assert_in_range(length, 2047, sizeof large - 2);
    assert_string_equal(status_text() + length - 3, "...");
    status_context(OTT_ERR_IO, "outer");
    assert_int_equal(strlen(status_text()), length);
    assert_memory_equal(status_text(), "outer: xxx", 10);
    assert_string_equal(status_text() + length - 3, "...");
    status_context(OTT_ERR_IO, "%s", large);
    assert_int_equal(strlen(status_text()), length);
}

static void *fail_elsewhere(void *argument) {
    strcpy(argument, status_text());
    status_fail(OTT_ERR_IO, "elsewhere");
    return NULL;
}

static void test_text_belongs_to_its_thread(void **state) {
    (void)state;
    char seen[64] = "unset";
    pthread_t thread;
    status_fail(OTT_ERR_IO, "here");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, seen), 0);
    pthread_join(thread, NULL);
    assert_string_equal(seen, "");
    assert_string_equal(status_text(), "here");
}

static void test_codes_have_texts(void **state) {
    (void)state;
    assert_string_equal(status_name(OTT_OK), "OK");
    assert_string_equal(status_name(OTT_ERR_SHAPE), "ERR_SHAPE");
    assert_string_equal(status_meaning(OTT_ERR_DIVERGED), "training diverged");
    assert_int_equal(status_exit_code(OTT_OK), 0);
    assert_int_equal(status_exit_code(OTT_ERR_DIVERGED), 1);
    assert_int_equal(status_exit_code(OTT_ERR_CONFIG), 2);
    assert_string_equal(status_name((ott_status)999), "ERR_INTERNAL");
    assert_int_equal(status_exit_code((ott_status)-1), 1);
}

/* An errno for a name that the user gave, such as ENOENT, is bad input. An errno for the state of the
   machine, such as ENOSPC, is not. */
static void test_system_errors(void **state) {
    (void)state;
    static const int machine[] = {ENOSPC, EDQUOT, EIO, EMFILE, ENFILE, EFBIG, EAGAIN};
    static const int named[] = {EACCES, EISDIR, ENAMETOOLONG, ENOENT, ENOTDIR, EROFS};
    for (size_t i = 0; i < sizeof machine / sizeof *machine; i++)
        assert_int_equal(status_exit_code(status_from_errno(machine[i])), 1);
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        assert_int_equal(status_exit_code(status_from_errno(named[i])), 2);
    assert_int_equal(status_from_errno(ENOENT), OTT_ERR_NOT_FOUND);
    assert_int_equal(status_from_errno(ENOMEM), OTT_ERR_MEMORY);
}

static ott_status broken(int value) {
    STATUS_REQUIRE(value > 0);
    return OTT_OK;
}

static ott_status tries(int value) {
    TRY(broken(value));
    return OTT_ERR_ARGUMENT;
}

static void test_macros(void **state) {
    (void)state;
    assert_int_equal(tries(1), OTT_ERR_ARGUMENT);
    assert_int_equal(tries(0), OTT_ERR_INTERNAL);
    assert_non_null(strstr(status_text(), "broken invariant: value > 0"));
}

typedef struct captured_message {
    int lines;
    ott_log_level level;
    char last[8192];
} captured_message;

static void capture_message(void *user, ott_log_level level, const char *text) {
    captured_message *h = user;
    h->lines++;
    h->level = level;
    strcpy(h->last, text);
}

static void test_log_filters_and_keeps_to_one_line(void **state) {
    (void)state;
    captured_message h = {0};
    logger lg = {capture_message, &h, OTT_LOG_INFO};
    log_debug(&lg, "dropped");
    assert_int_equal(h.lines, 0);
    log_warning(&lg, "loss %.1f\n2026 forged\r\033[2J", 2.5);
    assert_int_equal(h.lines, 1);
    assert_int_equal(h.level, OTT_LOG_WARNING);
    assert_string_equal(h.last, "loss 2.5 2026 forged  [2J");
    log_info(&lg, "%8000d", 1);
    assert_string_equal(h.last + strlen(h.last) - 4, " ...");
    log_error(NULL, "nobody listens");
    log_error(&(logger){0}, "nobody listens");
    assert_int_equal(h.lines, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail_sets_text_and_returns_code),
        cmocka_unit_test(test_context_prepends),
        cmocka_unit_test(test_long_texts_are_truncated_and_marked),
        cmocka_unit_test(test_text_belongs_to_its_thread),
        cmocka_unit_test(test_codes_have_texts),
        cmocka_unit_test(test_system_errors),
        cmocka_unit_test(test_macros),
        cmocka_unit_test(test_log_filters_and_keeps_to_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
