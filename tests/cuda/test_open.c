/*
 * Opens a GPU as a user does: loads the plugin, with the stand-ins linked in, from the folder that an
 * environment variable names. Tests which GPU a name, a rank or auto selects, and the messages of failures.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backend/backend.h"
#include "backend/loader.h"
#include "cudart.h"

static mem *account;
static char logged[1024];
static int lines;

static void note(void *user, ott_log_level level, const char *text) {
    (void)user, (void)level;
    snprintf(logged, sizeof logged, "%s", text);
    lines++;
}

static const logger lg = {.callback = note, .level = OTT_LOG_INFO};

static int setup(void **state) {
    (void)state;
    logged[0] = '\0';
    lines = 0;
    unsetenv(CUDART_DEVICES);
    unsetenv(CUDART_CAPABILITY);
    unsetenv(CUDART_DRIVER);
    return mem_open(&account) == OTT_OK ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    if (mem_read(account).now != 0) return -1;
    mem_close(account);
    return 0;
}

static void expect_part(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("\"%s\" is not in \"%s\"", part, text);
}

/* Expects that the opened device's name begins with `name`. */
static void opens(backend_choice choice, const char *name) {
    device *d;
    choice.log = &lg;
    if (backend_open(&choice, account, &d) != OTT_OK) fail_msg("%s", status_text());
    if (strncmp(d->name, name, strlen(name)) != 0) fail_msg("\"%s\" is not %s", d->name, name);
    device_close(d);
}

static void refuses(backend_choice choice, ott_status code, const char *why) {
    device *d;
    choice.log = &lg;
    assert_int_equal(backend_open(&choice, account, &d), code);
    assert_null(d);
    expect_part(status_text(), why);
}

static void lists_its_libraries_and_reserves_memory(void **state) {
    (void)state;
    device *d;
    device_memory memory;
    assert_int_equal(backend_open(&(backend_choice){.name = "cuda"}, account, &d), OTT_OK);
    expect_part(d->name, "cuda:0 CPU shim, driver for CUDA ");
    expect_part(d->name, ", cuBLASLt ");
    device_read_memory(d, &memory);
    assert_true(memory.total - memory.limit.left >= (int64_t)2 << 30);
    device_close(d);
}

/* Returns how many more bytes of the GPU's memory a run could use. */
static int64_t free_bytes(device *d) {
    device_memory memory;
    device_read_memory(d, &memory);
    return memory.limit.left;
}

static void memory_given_back_can_be_taken_again(void **state) {
    (void)state;
    device *first, *second;
    void *data;
    assert_int_equal(backend_open(&(backend_choice){.name = "cuda"}, account, &first), OTT_OK);
    int64_t before = free_bytes(first);
    assert_int_equal(device_allocate(first, MEM_OTHER, 4096, "what a run takes", &data), OTT_OK);
    assert_int_equal(free_bytes(first), before - 4096);
    device_release(first, data);
    assert_int_equal(device_synchronize(first), OTT_OK);
    assert_int_equal(free_bytes(first), before);
    device_close(first);
    assert_int_equal(backend_open(&(backend_choice){.name = "cuda"}, account, &second), OTT_OK);
    assert_int_equal(free_bytes(second), before);
    device_close(second);
}

static void each_rank_takes_its_own(void **state) {
    (void)state;
    opens((backend_choice){.name = "cuda", .local_rank = 3, .local_ranks = 4},
          "cuda:0 "); /* only one GPU is visible */
    setenv(CUDART_DEVICES, "4", 1);
    opens((backend_choice){.name = "cuda", .local_rank = 2, .local_ranks = 4}, "cuda:2 ");
    opens((backend_choice){.name = "cuda:1"}, "cuda:1 ");
    refuses((backend_choice){.name = "cuda", .local_rank = 4, .local_ranks = 8}, OTT_ERR_DEVICE,
            "process 5 of this machine finds 4 GPUs");
    refuses((backend_choice){.name = "cuda:0", .local_ranks = 2}, OTT_ERR_ARGUMENT,
            "cuda:0 is one GPU, and 2 processes");
    refuses((backend_choice){.name = "cuda:1", .local_ranks = 4}, OTT_ERR_ARGUMENT,
            "cuda:1 is one GPU, and 4 processes");
    refuses((backend_choice){.name = "cuda:4"}, OTT_ERR_DEVICE,
            "cuda:4: there are 4 GPUs here, counted from 0");
}

static void missing_parts_are_reported(void **state) {
    (void)state;
    setenv(CUDART_CAPABILITY, "75", 1);
    refuses((backend_choice){.name = "cuda"}, OTT_ERR_UNSUPPORTED, "has no code for compute capability 7.5");
    setenv(CUDART_DEVICES, "0", 1);
    refuses((backend_choice){.name = "cuda"}, OTT_ERR_DEVICE, "no GPU can be used: ");
    refuses((backend_choice){.name = "cuda"}, OTT_ERR_DEVICE, "`ottava doctor` shows what is missing");
}

/* A line that `ottava doctor` prints: "ok" or "missing", what was found, and what to do. */
static char finding[1024];

static void keep_finding(void *user, bool good, const char *what, const char *found, const char *way_out) {
    if (strcmp(what, user) == 0)
        snprintf(finding, sizeof finding, "%s: %s -> %s", good ? "ok" : "missing", found,
                 good ? "" : way_out);
}

static void inspect(const char *what) {
    const plugin *p;
    assert_int_equal(loader_find(backend_of_name("cuda"), &p), OTT_OK);
    strcpy(finding, "nothing");
    p->inspect(keep_finding, (void *)what);
}

static void the_doctor_sees_what_a_gpu_can(void **state) {
    (void)state;
    inspect("cuda:0");
    expect_part(finding, "ok: CPU shim, compute capability 9.0, ");
    expect_part(finding, " GiB; recipes: fp32, bf16, fp16, tensorwise, rowwise, ");
    setenv(CUDART_CAPABILITY, "100", 1);
    inspect("cuda:0");
    expect_part(
        finding,
        "; recipes: fp32, bf16, fp16, tensorwise, rowwise, rowwise_with_gw_hp, delayed, current, mxfp8 ");
    inspect("NCCL");
    expect_part(finding, "nothing"); /* one GPU needs no NCCL */
    setenv(CUDART_DEVICES, "2", 1);
    setenv(CUDART_CAPABILITY, "80", 1);
    inspect("cuda:1");
    expect_part(finding, "ok: CPU shim, compute capability 8.0 (no FP8), ");
    inspect("NCCL");
    expect_part(finding, ": ");
    setenv(CUDART_DRIVER, "12040", 1);
    inspect("driver");
    expect_part(finding, "missing: for CUDA 12.4; ");
    expect_part(finding, "driver 580 or later; or, for a data-center GPU, cuda-compat-13-");
    expect_part(finding, "CUDA 12.9 (CUDA_HOME), nvidia-cudnn-cu12");
    setenv(CUDART_DRIVER, "11080", 1);
    inspect("driver");
    expect_part(finding, "-> install driver 580 or later");
    setenv(CUDART_CAPABILITY, "75", 1);
    inspect("cuda:0");
    expect_part(finding, "missing: CPU shim, compute capability 7.5 (no FP8), ");
    expect_part(finding, "this backend's kernels: no kernel image is available");
    expect_part(finding, "-DCMAKE_CUDA_ARCHITECTURES=75");
}

static void auto_takes_a_gpu_that_can(void **state) {
    (void)state;
    const recipe *block = recipe_find("block"), *mx = recipe_find("mxfp8");
    opens((backend_choice){.recipe = block}, "cuda:0 ");
    expect_part(logged, "Device auto: cuda:0 CPU shim");
    assert_int_equal(lines, 1);
    opens((backend_choice){.name = "auto", .recipe = mx}, "cpu ");
    expect_part(logged, "Device auto: the CPU, though there is a GPU: recipe mxfp8 cannot run");
    expect_part(logged, "needs compute capability 10.0");
    assert_int_equal(lines, 2);
    opens((backend_choice){.recipe = block, .second_recipe = mx}, "cpu ");
    expect_part(logged, "recipe mxfp8 cannot run");
    setenv(CUDART_CAPABILITY, "75", 1);
    opens((backend_choice){.recipe = block}, "cpu ");
    expect_part(logged, "has no code for");
    setenv(CUDART_DEVICES, "0", 1);
    opens((backend_choice){.recipe = block}, "cpu ");
    assert_int_equal(lines, 4); /* without a GPU the doctor reports nothing more about CUDA */
}

static void fp8_is_emulated_where_it_is_asked_for(void **state) {
    (void)state;
    device *d;
    const recipe *tensorwise = recipe_find("tensorwise");
    setenv(CUDART_CAPABILITY, "80", 1);
    assert_int_equal(backend_check("cuda", tensorwise), OTT_ERR_UNSUPPORTED);
    expect_part(status_text(), "FP8 is only supported on SM89 or later GPUs");
    expect_part(status_text(), "float8.emulate=true");
    assert_int_equal(backend_open(&(backend_choice){.name = "cuda", .emulates = true}, account, &d), OTT_OK);
    assert_int_equal(backend_check_recipe(d->can, tensorwise), OTT_OK);
    device_close(d);
    opens((backend_choice){.recipe = tensorwise, .emulates = true}, "cuda:0 ");
    opens((backend_choice){.recipe = tensorwise}, "cpu ");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(lists_its_libraries_and_reserves_memory),
        TEST(memory_given_back_can_be_taken_again),
        TEST(each_rank_takes_its_own),
        TEST(missing_parts_are_reported),
        TEST(the_doctor_sees_what_a_gpu_can),
        TEST(auto_takes_a_gpu_that_can),
        TEST(fp8_is_emulated_where_it_is_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
