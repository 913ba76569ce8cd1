/* A device by its name; what is said of a name that no backend answers to; a test's own backend in the CPU's place. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "backend/backend.h"
#include <stdio.h>
#include <string.h>

static mem *account;
static char logged[256];
static const backend_driver *stand_in;

const backend_driver *backend_for_tests(void) {
    return stand_in;
}

static void note(void *user, ott_log_level level, const char *text) {
    (void)user, (void)level;
    snprintf(logged, sizeof logged, "%s", text);
}

static const logger lg = {.callback = note, .level = OTT_LOG_DEBUG};

static int setup(void **state) {
    (void)state;
    stand_in = NULL;
    logged[0] = '\0';
    return mem_open(&account) == OTT_OK ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    if (mem_read(account).now != 0) return -1;
    mem_close(account);
    return 0;
}

static void the_cpu_has_a_name(void **state) {
    (void)state;
    device *d;
    assert_int_equal(backend_open("cpu", 2, account, &lg, &d), OTT_OK);
    assert_non_null(strstr(d->name, "2 threads"));
    assert_int_equal(d->threads, 2);
    assert_string_equal(logged, "");
    device_close(d);
}

static void auto_is_the_best_there_is_and_says_which(void **state) {
    (void)state;
    static const char *const names[] = {"auto", NULL};
    for (int i = 0; i < 2; i++) {
        device *d;
        assert_int_equal(backend_open(names[i], 1, account, &lg, &d), OTT_OK);
        assert_memory_equal(logged, "Device auto: cpu ", 17);
        device_close(d);
    }
}

static void refused(const char *name, ott_status code, const char *why) {
    device *d = (device *)&account;
    assert_int_equal(backend_open(name, 1, account, &lg, &d), code);
    assert_null(d);
    if (!strstr(status_text(), why)) fail_msg("\"%s\" is not in \"%s\"", why, status_text());
}

static void a_gpu_is_not_there_yet(void **state) {
    (void)state;
    refused("cuda", OTT_ERR_UNSUPPORTED, "GPUs are not built yet: this build has no backend for \"cuda\"");
    refused("cuda:0", OTT_ERR_UNSUPPORTED, "\"cpu\" and \"auto\" compute on the CPU");
    refused("gpu", OTT_ERR_UNSUPPORTED, "GPUs are not built yet");
}

static void a_name_nobody_has(void **state) {
    (void)state;
    refused("cpi", OTT_ERR_ARGUMENT, "there is no device \"cpi\"; did you mean \"cpu\"?");
    refused("", OTT_ERR_ARGUMENT, "give auto or cpu");
    refused("CPU", OTT_ERR_ARGUMENT, "there is no device \"CPU\"");
    refused("cpu:0", OTT_ERR_ARGUMENT, "there is no device \"cpu:0\"");
}

static ott_status open_nothing(mem *given, int threads, device **out) {
    (void)given, (void)out;
    return status_fail(OTT_ERR_DEVICE, "the test's backend, %d threads", threads);
}

static void a_test_has_its_own_backend_opened(void **state) {
    (void)state;
    static const backend_driver own = {.name = "test", .open = open_nothing};
    device *d;
    stand_in = &own;
    assert_int_equal(backend_open("cpu", 3, account, NULL, &d), OTT_ERR_DEVICE);
    assert_string_equal(status_text(), "the test's backend, 3 threads");
    assert_int_equal(backend_open("auto", 3, account, NULL, &d), OTT_ERR_DEVICE);
    refused("cuda", OTT_ERR_UNSUPPORTED, "GPUs");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_cpu_has_a_name),
        TEST(auto_is_the_best_there_is_and_says_which),
        TEST(a_gpu_is_not_there_yet),
        TEST(a_name_nobody_has),
        TEST(a_test_has_its_own_backend_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
