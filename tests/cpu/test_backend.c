/* cpu/backend: tests the choice of an ISA level, opening and closing, the device table and device_peak. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "cpu/cpu.h"
#include "cpu/tiles.h"
#include "tensor/exec.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool cpu_tiles_fault;

static mem *account;

static int setup(void **state) {
    (void)state;
    unsetenv(CPU_ISA_VARIABLE);
    return mem_open(&account) == OTT_OK ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    unsetenv(CPU_ISA_VARIABLE);
    if (mem_read(account).now != 0) return -1;
    mem_close(account);
    return 0;
}

static void scalar_is_always_there(void **state) {
    (void)state;
    const char *names[CPU_ISAS_MAX];
    int count = cpu_isas(names);
    assert_in_range(count, 1, CPU_ISAS_MAX);
    assert_string_equal(names[0], "scalar");
}

static void opens_every_isa_and_the_best_without_a_name(void **state) {
    (void)state;
    const char *names[CPU_ISAS_MAX];
    int count = cpu_isas(names);
    device *d;
    for (int i = 0; i < count; i++) {
        char expected[64];
        snprintf(expected, sizeof expected, "cpu %s, 3 threads", names[i]);
        assert_int_equal(cpu_open(account, 3, names[i], &d), OTT_OK);
        assert_string_equal(d->name, expected);
        device_close(d);
    }
    assert_int_equal(cpu_open(account, 1, NULL, &d), OTT_OK);
    /* Even if avx512bf16 is available, avx512 is chosen if bf16 dot products are slower. */
    bool has_pairs = strcmp(names[count - 1], "avx512bf16") == 0;
    bool has_tiles = strcmp(names[count - 1], "amx") == 0;
    assert_int_equal(cpu_has_tiles(d), has_tiles);
    assert_non_null(strstr(d->name, has_pairs ? "avx512" : names[count - 1]));
    assert_non_null(strstr(d->name, ", 1 thread"));
    assert_null(strstr(d->name, "threads"));
    device_close(d);
}

static void the_environment_names_a_isa(void **state) {
    (void)state;
    device *d;
    setenv(CPU_ISA_VARIABLE, "scalar", 1);
    assert_int_equal(cpu_open(account, 1, NULL, &d), OTT_OK);
    assert_non_null(strstr(d->name, "scalar"));
    device_close(d);
    setenv(CPU_ISA_VARIABLE, "", 1); /* an empty variable counts as unset */
    assert_int_equal(cpu_open(account, 1, NULL, &d), OTT_OK);
    device_close(d);
    setenv(CPU_ISA_VARIABLE, "sse9", 1);
    assert_int_equal(cpu_open(account, 1, NULL, &d), OTT_ERR_ARGUMENT);
    assert_null(d);
    assert_non_null(strstr(status_text(), "sse9"));
    assert_non_null(strstr(status_text(), "environment variable " CPU_ISA_VARIABLE));
    /* an argument has priority over the variable */
    assert_int_equal(cpu_open(account, 1, "scalar", &d), OTT_OK);
    device_close(d);
}

static void a_wrong_isa_lists_the_levels(void **state) {
    (void)state;
    device *d;
    assert_int_equal(cpu_open(account, 1, "avx51", &d), OTT_ERR_ARGUMENT);
    assert_non_null(strstr(status_text(), "'avx51'"));
    assert_non_null(strstr(status_text(), "available: scalar"));
    assert_non_null(strstr(status_text(), "did you mean 'avx512'?"));
    assert_non_null(strstr(status_text(), CPU_ISA_VARIABLE));
    assert_int_equal(cpu_open(account, 1, "", &d), OTT_ERR_ARGUMENT);
}

static void a_wrong_number_of_threads_is_refused(void **state) {
    (void)state;
    device *d;
    assert_int_equal(cpu_open(account, -1, "scalar", &d), OTT_ERR_ARGUMENT);
    assert_null(d);
}

static void every_failed_allocation_is_undone(void **state) {
    (void)state;
    for (int64_t n = 1;; n++) {
        device *d;
        mem_fail_after(account, n);
        ott_status status = cpu_open(account, 2, "scalar", &d);
        mem_fail_after(account, 0);
        if (status == OTT_OK) {
            assert_true(n > 3); /* the device, the pool and the scratch memory are separate allocations */
            device_close(d);
            return;
        }
        assert_int_equal(status, OTT_ERR_MEMORY);
        assert_null(d);
        assert_int_equal(mem_read(account).now, 0);
    }
}

static void scratch_is_accounted_for(void **state) {
    (void)state;
    device *one, *four;
    assert_int_equal(cpu_open(account, 1, "scalar", &one), OTT_OK);
    int64_t one_thread = mem_read(account).now_of[MEM_SCRATCH];
    assert_true(one_thread > 0);
    assert_int_equal(cpu_open(account, 4, "scalar", &four), OTT_OK); /* now two devices are open */
    assert_int_equal(mem_read(account).now_of[MEM_SCRATCH], 5 * one_thread);
    device_close(one);
    device_close(four);
}

static void memory_goes_in_and_out(void **state) {
    (void)state;
    device *d;
    void *block;
    char text[6] = "";
    assert_int_equal(cpu_open(account, 1, NULL, &d), OTT_OK);
    assert_int_equal(device_allocate(d, MEM_PARAM, 6, "a test", &block), OTT_OK);
    assert_int_equal(mem_read(account).now_of[MEM_PARAM], 6);
    assert_int_equal(device_copy_in(d, block, "hello", 6), OTT_OK);
    assert_int_equal(device_synchronize(d), OTT_OK);
    assert_int_equal(device_copy_out(d, text, block, 6), OTT_OK);
    assert_string_equal(text, "hello");
    assert_int_equal(device_zero(d, block, 6), OTT_OK);
    assert_int_equal(device_copy_out(d, text, block, 6), OTT_OK);
    assert_string_equal(text, "");
    device_release(d, block);
    device_close(d);
}

static void every_op_is_there_in_every_isa(void **state) {
    (void)state;
    const char *names[CPU_ISAS_MAX];
    int count = cpu_isas(names);
    for (int i = 0; i < count; i++) {
        device *d;
        assert_int_equal(cpu_open(account, 1, names[i], &d), OTT_OK);
#define OP(name, fields) assert_non_null(d->ops->name);
#include "tensor/ops.def"
#undef OP
        device_close(d);
    }
}

static void the_peak_is_measured(void **state) {
    (void)state;
    device *d;
    assert_int_equal(cpu_open(account, 2, NULL, &d), OTT_OK);
    double peak = device_peak(d, OTT_F32);
    assert_true(peak > 1e6 && peak < 1e15); /* bounds of any machine's FLOP/s */
    device_close(d);
}

/* The level with an emulated tile unit opens only by its name. cpu_isas does not list it. */
static void the_emulated_tile_unit_is_for_tests(void **state) {
    (void)state;
    const char *names[CPU_ISAS_MAX];
    int count = cpu_isas(names);
    device *d;
    for (int i = 0; i < count; i++) assert_string_not_equal(names[i], "amx_emulated");
    setenv(CPU_ISA_VARIABLE, "amx_emulated", 1);
    ott_status status = cpu_open(account, 2, NULL, &d);
    if (status == OTT_ERR_UNSUPPORTED) {
        assert_null(strstr(strstr(status_text(), "available:"), "amx_emulated"));
        skip();
    }
    assert_int_equal(status, OTT_OK);
    assert_string_equal(d->name, "cpu amx_emulated, 2 threads");
    assert_true(cpu_has_tiles(d));
    assert_null(cpu_warning(d));
    double speed;
    assert_int_equal(cpu_tiles_speed(d, &speed), OTT_OK);
    assert_true(speed > 0 && speed < 1e6);
    device_close(d);
    assert_int_equal(cpu_open(account, 1, "scalar", &d), OTT_OK);
    assert_int_equal(cpu_tiles_speed(d, &speed), OTT_OK);
    assert_true(speed == 0 && !cpu_has_tiles(d) && !cpu_warning(d));
    device_close(d);
}

/* A tile unit that adds in another order changes some last bits. It must not be used. */
static void a_tile_unit_with_other_bits_is_not_used(void **state) {
    (void)state;
    device *d;
    cpu_tiles_fault = true;
    ott_status status = cpu_open(account, 2, "amx_emulated", &d);
    cpu_tiles_fault = false;
    if (status == OTT_ERR_UNSUPPORTED) skip();
    assert_int_equal(status, OTT_OK);
    assert_false(cpu_has_tiles(d));
    assert_non_null(strstr(cpu_warning(d), "other results"));
    assert_non_null(strstr(d->name, "cpu avx512"));
    device_close(d);
}

/* Only level avx512bf16 has special instructions for products of FP8 and BF16 operands. */
static void peaks_have_units(void **state) {
    (void)state;
    static const ott_dtype narrow[] = {OTT_E4M3, OTT_E5M2, OTT_BF16};
    const char *names[CPU_ISAS_MAX];
    int count = cpu_isas(names);
    for (int i = 0; i < count; i++) {
        device *d;
        if (strcmp(names[i], "amx") == 0) continue; /* amx has the peaks of the level that amx extends */
        bool pairs = strcmp(names[i], "avx512bf16") == 0;
        assert_int_equal(cpu_open(account, 1, names[i], &d), OTT_OK);
        assert_string_equal(cpu_peak_unit(d, OTT_F32), "fp32 multiply-add");
        assert_string_equal(cpu_peak_unit(d, OTT_F16), "fp32 multiply-add");
        for (int f = 0; f < 3; f++) {
            assert_string_equal(cpu_peak_unit(d, narrow[f]),
                                pairs ? "bf16 dot product" : "fp32 multiply-add");
            assert_true(device_peak(d, narrow[f]) > 1e6);
        }
        device_close(d);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(scalar_is_always_there),
        TEST(opens_every_isa_and_the_best_without_a_name),
        TEST(the_environment_names_a_isa),
        TEST(a_wrong_isa_lists_the_levels),
        TEST(a_wrong_number_of_threads_is_refused),
        TEST(every_failed_allocation_is_undone),
        TEST(scratch_is_accounted_for),
        TEST(memory_goes_in_and_out),
        TEST(every_op_is_there_in_every_isa),
        TEST(the_peak_is_measured),
        TEST(peaks_have_units),
        TEST(the_emulated_tile_unit_is_for_tests),
        TEST(a_tile_unit_with_other_bits_is_not_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
