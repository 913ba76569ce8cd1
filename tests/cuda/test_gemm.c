/* Products on the emulated GPU: what cuBLASLt takes goes there, and has the reference's bits as what does not; a library that
   refuses is said once and replaced. (That all shapes and formats are right is cuda.ops.) */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "backend/op_case.h"
#include "backend/open.h"
#include "cudart.h"
#include "reference/reference_ops.h"
#include <stdio.h>
#include <string.h>

enum { CASES = 300, ALIGNED = 12 /* the shape whose sizes are multiples of 16 */ };

static mem *account;
static case_device reference, gpu;
static op_case c;
static char logged[2048];
static int lines;

static void note(void *user, ott_log_level level, const char *text) {
    (void)user, (void)level;
    snprintf(logged, sizeof logged, "%s", text);
    lines++;
}

static const logger lg = {.callback = note, .level = OTT_LOG_WARNING};

static void succeed(ott_status status) {
    if (status != OTT_OK) fail_msg("%s", status_text());
}

static int open_all(void **state) {
    (void)state;
    device *d;
    cublaslt_products = 0;
    cublaslt_refuses = false;
    lines = 0;
    succeed(mem_open(&account));
    succeed(reference_device_open(account, &d));
    succeed(case_device_open(d, &reference));
    succeed(test_device_open_named("cuda", account, 0, NULL, &d));
    succeed(case_device_open(d, &gpu));
    succeed(case_memory_open(account, &c));
    return 0;
}

static int close_all(void **state) {
    (void)state;
    case_device_close(&gpu);
    case_memory_close(account, &c);
    case_device_close(&reference);
    int left = mem_read(account).now != 0;
    mem_close(account);
    return left;
}

static const gemm_args *args(void) {
    return (const gemm_args *)(const void *)c.args;
}

/* The n-th product that the device can make. */
static void make_product(uint64_t *number) {
    do {
        assert_true(case_make(&c, op_find("gemm"), OTT_BF16, ALIGNED, VALUES_NORMAL, (*number)++));
    } while (args()->spec.accumulate != ACCUMULATE_FP32);
    assert_int_equal(args()->c->columns % 16, 0);
}

static void compare(void) {
    succeed(case_expect(&c, &reference));
    succeed(case_run(&c, &gpu));
    if (!case_compare(&c)) fail_msg("%s", c.message);
}

static void what_the_library_takes_goes_there(void **state) {
    (void)state;
    int of_fp8 = 0;
    for (uint64_t number = 0; number < CASES;) {
        make_product(&number);
        int before = cublaslt_products;
        compare();
        of_fp8 += dtype_is_fp8(args()->a->t.dtype) && cublaslt_products > before;
    }
    assert_true(of_fp8 >= 3); /* most of the drawn ones are as no recipe has them */
    assert_true(cublaslt_products - of_fp8 >= 3);
    assert_int_equal(lines, 0);
}

static void a_refusal_is_said_once_and_replaced(void **state) {
    (void)state;
    cublaslt_refuses = true;
    for (uint64_t number = 0; number < CASES;) {
        make_product(&number);
        compare();
    }
    assert_int_equal(cublaslt_products, 0);
    exec cx = {.device = gpu.device, .log = &lg};
    float one[16] = {1, 1, 1, 1};
    void *data;
    succeed(device_allocate(gpu.device, MEM_OTHER, sizeof one, "four numbers", &data));
    succeed(device_copy_in(gpu.device, data, one, sizeof one));
    tensor x = tensor_matrix(data, OTT_F32, 2, 2), y = tensor_matrix((char *)data + 16, OTT_F32, 2, 2);
    operand o = {.t = x};
    for (int i = 0; i < 3; i++) succeed(op_gemm(&cx, &(gemm_args){.a = &o, .b = &o, .c = &y}));
    succeed(device_copy_out(gpu.device, one, y.data, 16));
    assert_true(one[0] == 2 && one[3] == 2);
    assert_int_equal(lines, 1);
    assert_non_null(strstr(logged, "cuBLASLt has no product 2 x 2 x 2 of fp32 and fp32"));
    device_release(gpu.device, data);
}

static void an_accumulator_of_the_host_is_refused(void **state) {
    (void)state;
    exec cx = {.device = gpu.device};
    tensor t = tensor_matrix(gpu.block, OTT_F32, 2, 2);
    operand o = {.t = t};
    gemm_args g = {.a = &o, .b = &o, .c = &t, .spec.accumulate = ACCUMULATE_HOPPER_FAST};
    assert_int_equal(op_gemm(&cx, &g), OTT_ERR_UNSUPPORTED);
    assert_non_null(strstr(status_text(), "float8.accumulate"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_all, close_all)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(what_the_library_takes_goes_there),
        TEST(a_refusal_is_said_once_and_replaced),
        TEST(an_accumulator_of_the_host_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
