/* Tests opening a device by name, an unknown name, and a test's own backend in place of the CPU. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "backend/backend.h"
#include "backend/loader.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mem *account;
static char logged[256];
static backend_open_fn *fake_open;

backend_open_fn *backend_for_tests(void) {
    return fake_open;
}

static void note(void *user, ott_log_level level, const char *text) {
    (void)user, (void)level;
    snprintf(logged, sizeof logged, "%s", text);
}

static const logger lg = {.callback = note, .level = OTT_LOG_DEBUG};

static ott_status open_named(const char *name, int threads, device **out) {
    return backend_open(&(backend_choice){.name = name, .threads = threads, .log = &lg}, account, out);
}

static int setup(void **state) {
    (void)state;
    fake_open = NULL;
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
    assert_int_equal(open_named("cpu", 2, &d), OTT_OK);
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
        assert_int_equal(open_named(names[i], 1, &d), OTT_OK);
        assert_memory_equal(logged, "Device auto: the CPU: ", 22);
        device_close(d);
    }
}

static void refused(const char *name, ott_status code, const char *why) {
    device *d = (device *)&account;
    assert_int_equal(open_named(name, 1, &d), code);
    assert_null(d);
    if (!strstr(status_text(), why)) fail_msg("\"%s\" is not in \"%s\"", why, status_text());
}

static void a_gpu_needs_the_plugin(void **state) {
    (void)state;
    const library_name cuda = backend_of_name("cuda")->plugin;
    setenv(cuda.variable, "/nowhere", 1);
    refused("cuda", OTT_ERR_UNSUPPORTED, "no CUDA backend was found (/nowhere is not there); \"make cuda\"");
    refused("cuda:1", OTT_ERR_UNSUPPORTED, "\"ottava doctor\" lists other missing parts");
    setenv(cuda.variable, TEST_SOURCE_DIR, 1); /* the folder has no plugin */
    refused("cuda", OTT_ERR_UNSUPPORTED, TEST_SOURCE_DIR "/libottava_cuda.so");
    setenv(cuda.variable, TEST_SOURCE_DIR "/CMakeLists.txt", 1);
    refused("cuda", OTT_ERR_UNSUPPORTED, "invalid ELF header");
    assert_int_equal(backend_check("cuda", NULL), OTT_ERR_UNSUPPORTED);
    assert_int_equal(backend_check("cpu", NULL), OTT_OK);
}

static void ops_that_a_plugin_lacks_are_named(void **state) {
    (void)state;
    op_table ops = {0};
    plugin p = {.ops = &ops};
    char text[LIBRARY_TEXT];
    assert_int_equal(loader_list_missing(&p, text), OP_COUNT);
    assert_memory_equal(text, "convert, quantize, amax", 23);
}

static void a_name_nobody_has(void **state) {
    (void)state;
    refused("cpi", OTT_ERR_ARGUMENT, "there is no device \"cpi\"; did you mean \"cpu\"?");
    refused("", OTT_ERR_ARGUMENT, "give auto, cpu or cuda");
    refused("gpu", OTT_ERR_ARGUMENT, "a GPU is cuda, or cuda:1");
    refused("cuda:", OTT_ERR_ARGUMENT, "there is no device \"cuda:\"");
    refused("cuda:1x", OTT_ERR_ARGUMENT, "there is no device");
    refused("CPU", OTT_ERR_ARGUMENT, "there is no device \"CPU\"");
    refused("cpu:0", OTT_ERR_ARGUMENT, "there is no device \"cpu:0\"");
}

static ott_status open_nothing(mem *given, int threads, device **out) {
    (void)given, (void)out;
    return status_fail(OTT_ERR_DEVICE, "the test's backend, %d threads", threads);
}

static void a_test_has_its_own_backend_opened(void **state) {
    (void)state;
    device *d;
    fake_open = open_nothing;
    assert_int_equal(open_named("cpu", 3, &d), OTT_ERR_DEVICE);
    assert_string_equal(status_text(), "the test's backend, 3 threads");
    assert_int_equal(open_named("auto", 3, &d), OTT_ERR_DEVICE);
    refused("cuda", OTT_ERR_UNSUPPORTED, "no CUDA backend was found");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_cpu_has_a_name),     TEST(auto_is_the_best_there_is_and_says_which),
        TEST(a_gpu_needs_the_plugin), TEST(ops_that_a_plugin_lacks_are_named),
        TEST(a_name_nobody_has),      TEST(a_test_has_its_own_backend_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
