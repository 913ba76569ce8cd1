/*
 * Tests the fence itself. An access to device memory without an op or a copy must end the program. A wrong
 * address in an op's arguments is reported. Results are bit-identical to the inner device's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "backend/fenced.h"
#include "backend/open.h"
#include "base/dies.h"
#include "cpu/cpu.h"
#include "reference/reference_ops.h"
#include "tensor/exec.h"

enum { ROWS = 3, COLUMNS = 5, COUNT = ROWS * COLUMNS };

static struct {
    mem *account;
    device *d;
    float *data; /* COUNT floats in device memory */
} fence;

static void succeed(ott_status status) {
    if (status != OTT_OK) fail_msg("%s", status_text());
}

static void expect_failure(ott_status status, const char *part, const char *other) {
    assert_int_equal(status, OTT_ERR_DEVICE);
    if (!strstr(status_text(), part) || !strstr(status_text(), other))
        fail_msg("\"%s\" does not contain \"%s\" and \"%s\"", status_text(), part, other);
}

static float *allocate(device *d, int64_t floats) {
    void *data;
    succeed(device_allocate(d, MEM_OTHER, floats * (int64_t)sizeof(float), "a test's tensor", &data));
    return data;
}

static int setup(void **state) {
    (void)state;
    succeed(mem_open(&fence.account));
    succeed(test_device_open_named("fenced", fence.account, 2, NULL, &fence.d));
    fence.data = allocate(fence.d, COUNT);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    device_release(fence.d, fence.data);
    device_close(fence.d);
    assert_int_equal(mem_read(fence.account).now, 0);
    mem_close(fence.account);
    return 0;
}

static ott_status convert(float *from, float *to) {
    exec cx = {.device = fence.d};
    tensor x = tensor_matrix(from, OTT_F32, ROWS, COLUMNS), y = tensor_matrix(to, OTT_F32, ROWS, COLUMNS);
    return op_convert(&cx, &(convert_args){.x = &x, .y = &y});
}

/* ---- the host ---- */

static void read_it(void) {
    float x = *(volatile float *)fence.data;
    (void)x;
}
static void write_it(void) {
    *(volatile float *)fence.data = 1.0f;
}
static void read_beyond(void) {
    char c = *((volatile char *)fence.data + COUNT * sizeof(float));
    (void)c;
}
static void touch_nothing(void) {}

static void the_host_cannot_touch_it(void **state) {
    (void)state;
    assert_true(dies(read_it));
    assert_true(dies(write_it));
    assert_true(dies(read_beyond));
    assert_false(dies(touch_nothing));
}

/* ---- ops ---- */

static void an_op_runs_behind_it(void **state) {
    (void)state;
    float values[COUNT], back[COUNT];
    float *to = allocate(fence.d, COUNT);
    for (int i = 0; i < COUNT; i++) values[i] = (float)i / 7.0f;
    succeed(device_copy_in(fence.d, fence.data, values, sizeof values));
    succeed(convert(fence.data, to));
    succeed(device_copy_out(fence.d, back, to, sizeof back));
    assert_memory_equal(back, values, sizeof back);
    succeed(device_zero(fence.d, to + 1, sizeof(float)));
    succeed(device_copy(fence.d, fence.data, to, sizeof values));
    succeed(device_copy_out(fence.d, back, fence.data, sizeof back));
    values[1] = 0;
    assert_memory_equal(back, values, sizeof back);
    device_release(fence.d, to);
}

static void an_op_refuses_host_memory(void **state) {
    (void)state;
    float host[COUNT] = {0};
    expect_failure(convert(fence.data, host), "convert: y:", "not an address of this device");
    expect_failure(convert(host, fence.data), "convert: x:", "not an address of this device");
}

static void an_op_refuses_what_is_given_back(void **state) {
    (void)state;
    float *gone = allocate(fence.d, COUNT);
    device_release(fence.d, gone);
    expect_failure(convert(fence.data, gone), "convert: y:", "not an address of this device");
}

static void an_op_stays_within_its_memory(void **state) {
    (void)state;
    expect_failure(convert(fence.data + 1, fence.data),
                   "convert: x: 60 bytes from byte 4 on end beyond the 60 bytes", "a test's tensor");
}

/* An op call fails if the address of any array of a quantized copy is wrong. */
static void a_quantized_copy_is_checked(void **state) {
    (void)state;
    exec cx = {.device = fence.d};
    float host[COUNT] = {0}, *block = allocate(fence.d, COUNT);
    tensor x = tensor_matrix(fence.data, OTT_F32, ROWS, COLUMNS);
    qtensor q = {.rows = ROWS, .columns = COLUMNS, .spec = {.rowwise = {.format = OTT_E4M3}}};
    qtensor_order(&q.rowwise, GRANULARITY_TENSOR, (scale_grid){1, 1});
    q.rowwise.data = block;
    q.rowwise.ld = COLUMNS;
    q.rowwise.amax = block + 8;
    q.rowwise.scale = block + 9;
    q.rowwise.scale_inv = host;
    expect_failure(op_quantize(&cx, &(quantize_args){.x = &x, .q = &q}),
                   "quantize: q.rowwise.scale_inv:", "not an address of this device");
    q.rowwise.scale_inv = block + 10;
    succeed(op_quantize(&cx, &(quantize_args){.x = &x, .q = &q}));
    q.rowwise.data = (char *)block + COUNT * (int)sizeof(float) - COUNT + 1;
    expect_failure(op_quantize(&cx, &(quantize_args){.x = &x, .q = &q}),
                   "quantize: q.rowwise.codes:", "beyond");
    device_release(fence.d, block);
}

/* ---- copies ---- */

static void copies_know_which_side_is_which(void **state) {
    (void)state;
    float host[COUNT] = {0};
    expect_failure(device_copy_in(fence.d, host, host, 4), "not an address of this device", "copy");
    expect_failure(device_copy_in(fence.d, fence.data, fence.data, 4), "two device addresses",
                   "a test's tensor");
    expect_failure(device_copy_out(fence.d, fence.data, fence.data, 4), "two device addresses",
                   "a test's tensor");
    expect_failure(device_copy(fence.d, fence.data, host, 4), "not an address of this device", "copy");
    expect_failure(device_zero(fence.d, fence.data, 61 * 4), "end beyond the 60 bytes", "a test's tensor");
}

/* ---- the inner device ---- */

static ott_status call_an_op(exec *cx, const add_args *a) {
    return op_convert(cx, &(convert_args){.x = a->x, .y = a->y});
}

/* An op of the inner device must call functions of its backend. A call through the op table fails. */
static void a_backend_does_not_call_ops(void **state) {
    (void)state;
    device *reference, *d;
    op_table nesting = reference_ops;
    nesting.add = call_an_op;
    succeed(reference_device_open(fence.account, &reference));
    reference->ops = &nesting;
    succeed(fenced_open(reference, false, &d));
    float *data = allocate(d, COUNT);
    exec cx = {.device = d};
    tensor t = tensor_matrix(data, OTT_F32, ROWS, COLUMNS);
    assert_int_equal(op_add(&cx, &(add_args){.x = &t, .delta = &t, .y = &t}), OTT_ERR_UNSUPPORTED);
    assert_non_null(strstr(status_text(), "convert"));
    device_release(d, data);
    device_close(d);
}

static void its_capabilities_are_chosen(void **state) {
    (void)state;
    device *transposed;
    succeed(test_device_open_named("fenced_transposed", fence.account, 1, NULL, &transposed));
    assert_false(fence.d->can->contiguous_contraction);
    assert_true(transposed->can->contiguous_contraction);
    assert_int_equal(transposed->can->alignment, fence.d->can->alignment);
    device_close(transposed);
    assert_int_equal(test_device_open_named("fence", fence.account, 1, NULL, &transposed), OTT_ERR_ARGUMENT);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_host_cannot_touch_it),        TEST(an_op_runs_behind_it),
        TEST(an_op_refuses_host_memory),       TEST(an_op_refuses_what_is_given_back),
        TEST(an_op_stays_within_its_memory),   TEST(a_quantized_copy_is_checked),
        TEST(copies_know_which_side_is_which), TEST(a_backend_does_not_call_ops),
        TEST(its_capabilities_are_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
