/*
 * The execution context. While the plan is recorded, ops are checked but not run. GEMMs are counted by role.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tensor/exec.h"

static struct {
    int converts, gemms, probes;
    const void *args, *workspace;
} seen;

static ott_status fake_convert(exec *cx, const convert_args *a) {
    (void)cx;
    seen.converts++;
    seen.args = a;
    return OTT_OK;
}

static ott_status fake_gemm(exec *cx, const gemm_args *a) {
    (void)cx;
    seen.gemms++;
    return a->accumulate ? status_fail(OTT_ERR_DEVICE, "fake") : OTT_OK;
}

/* An op that copies cx->workspace to `seen`. It requests workspace in proportion to its columns. */
static ott_status fake_add(exec *cx, const add_args *a) {
    (void)a;
    seen.workspace = cx->workspace;
    return OTT_OK;
}

static int64_t fake_workspace(const device *d, enum op_index op, const void *args) {
    (void)d;
    return op == OP_INDEX_add ? 100 * ((const add_args *)args)->x->columns : 0;
}

static const op_table fake_ops = {
    .convert = fake_convert, .gemm = fake_gemm, .add = fake_add, .workspace = fake_workspace};

static const backend_capabilities fake_can = {.alignment = MEM_ALIGNMENT};

typedef struct fixture {
    mem *account;
    device device;
    exec cx;
    float data[64];
    tensor x, y;
} fixture;

static int setup(void **state) {
    static fixture f;
    f = (fixture){.device = {.ops = &fake_ops, .can = &fake_can, .name = "fake device"}};
    assert_int_equal(mem_open(&f.account), OTT_OK);
    f.device.account = f.account;
    f.cx.device = &f.device;
    assert_int_equal(plan_create(&f.device, &f.cx.plan), OTT_OK);
    f.x = f.y = tensor_matrix(f.data, OTT_F32, 2, 3);
    memset(&seen, 0, sizeof seen);
    *state = &f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    plan_destroy(f->cx.plan);
    mem_close(f->account);
    return 0;
}

static void test_ops_do_nothing_while_recording(void **state) {
    fixture *f = *state;
    convert_args a = {.x = &f->x, .y = &f->y};
    plan_record(f->cx.plan);
    assert_int_equal(op_convert(&f->cx, &a), OTT_OK);
    assert_int_equal(seen.converts, 0);
    assert_int_equal(plan_seal(f->cx.plan), OTT_OK);
    assert_int_equal(op_convert(&f->cx, &a), OTT_OK);
    assert_int_equal(seen.converts, 1);
    assert_ptr_equal(seen.args, &a);
}

/* Wrong arguments are found while the plan is recorded. */
static void test_arguments_are_checked_while_recording(void **state) {
    fixture *f = *state;
    convert_args a = {.x = &f->x, .y = &f->y};
    for (int recording = 1; recording >= 0; recording--) {
        if (recording)
            plan_record(f->cx.plan);
        else
            assert_int_equal(plan_seal(f->cx.plan), OTT_OK);
        f->y.rows = 1;
        assert_int_equal(op_convert(&f->cx, &a), OTT_ERR_SHAPE);
        assert_non_null(strstr(status_text(), "convert"));
        f->y.rows = 2;
        tensor sum = tensor_vector(f->data, OTT_F32, 3);
        assert_int_equal(op_column_sum(&f->cx, &(column_sum_args){.x = &f->x, .sum = &sum}),
                         OTT_ERR_UNSUPPORTED);
        assert_non_null(strstr(status_text(), "column_sum"));
        assert_non_null(strstr(status_text(), "fake device"));
    }
    assert_int_equal(seen.converts, 0);
}

/* A recorded op has its workspace in the plan, and a replay passes it to the op. Other ops get NULL. */
static void test_an_op_has_the_workspace_it_asks_for(void **state) {
    fixture *f = *state;
    static char arena[4096];
    add_args add = {.x = &f->x, .delta = &f->x, .y = &f->y};
    convert_args convert = {.x = &f->x, .y = &f->y};
    plan_record(f->cx.plan);
    assert_int_equal(op_add(&f->cx, &add), OTT_OK);
    assert_null(seen.workspace);
    assert_int_equal(plan_seal(f->cx.plan), OTT_OK);
    assert_int_equal(plan_bytes(f->cx.plan), 320); /* 300 bytes for 3 columns, aligned to 64 */
    plan_bind(f->cx.plan, arena);
    plan_replay(f->cx.plan);
    assert_int_equal(op_add(&f->cx, &add), OTT_OK);
    assert_ptr_equal(seen.workspace, arena);
    assert_int_equal(op_convert(&f->cx, &convert), OTT_OK);
    assert_null(f->cx.workspace);
}

static void test_op_call_runs_by_description(void **state) {
    fixture *f = *state;
    convert_args a = {.x = &f->x, .y = &f->y};
    assert_int_equal(op_call(&fake_ops, &f->cx, op_find("convert"), &a), OTT_OK);
    assert_int_equal(seen.converts, 1);
    assert_ptr_equal(seen.args, &a);
    assert_int_equal(op_call(&fake_ops, &f->cx, op_find("sum"), &a), OTT_ERR_UNSUPPORTED);
    assert_non_null(strstr(status_text(), "sum"));
}

static void test_gemms_are_counted_by_role(void **state) {
    fixture *f = *state;
    operand high = {.t = tensor_matrix(f->data, OTT_BF16, 2, 2)},
            codes = {.t = tensor_matrix(f->data, OTT_E4M3, 2, 2)};
    tensor c = tensor_matrix(f->data, OTT_BF16, 2, 2);
    gemm_args bf16 = {.a = &high, .b = &high, .c = &c}, fp8 = {.a = &codes, .b = &codes, .c = &c};
    plan_record(f->cx.plan);
    assert_int_equal(op_counted_gemm(&f->cx, GEMM_OUTPUT, &fp8), OTT_OK);
    assert_int_equal(seen.gemms, 0);
    assert_int_equal(f->cx.gemms[GEMM_OUTPUT][1], 0); /* the GEMM was only recorded, so it is not counted */
    assert_int_equal(plan_seal(f->cx.plan), OTT_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(op_counted_gemm(&f->cx, GEMM_OUTPUT, &fp8), OTT_OK);
    assert_int_equal(op_counted_gemm(&f->cx, GEMM_GRAD_WEIGHT, &bf16), OTT_OK);
    assert_int_equal(seen.gemms, 3);
    static const int64_t expected[GEMM_COUNT][2] = {
        [GEMM_OUTPUT] = {0, 2}, [GEMM_GRAD_INPUT] = {0, 0}, [GEMM_GRAD_WEIGHT] = {1, 0}};
    assert_memory_equal(f->cx.gemms, expected, sizeof expected);
    fp8.accumulate = true; /* the fake op fails if accumulate is true, so this GEMM is not counted */
    assert_int_equal(op_counted_gemm(&f->cx, GEMM_GRAD_INPUT, &fp8), OTT_ERR_DEVICE);
    assert_memory_equal(f->cx.gemms, expected, sizeof expected);
}

static ott_status see(void *user, exec *cx, const char *module, const char *what, const tensor *t) {
    (void)cx;
    assert_ptr_equal(user, &seen);
    assert_string_equal(module, "model.norm");
    assert_string_equal(what, "output");
    assert_int_equal(t->columns, 3);
    seen.probes++;
    return OTT_OK;
}

static void test_probe(void **state) {
    fixture *f = *state;
    hook observing = {.observe = see, .user = &seen};
    assert_int_equal(exec_hook(&f->cx, "model.norm", "output", &f->x), OTT_OK);
    f->cx.hook = &observing;
    plan_record(f->cx.plan);
    assert_int_equal(exec_hook(&f->cx, "model.norm", "output", &f->x), OTT_OK);
    assert_int_equal(seen.probes, 0);
    assert_int_equal(plan_seal(f->cx.plan), OTT_OK);
    assert_int_equal(exec_hook(&f->cx, "model.norm", "output", &f->x), OTT_OK);
    assert_int_equal(seen.probes, 1);
}

static void test_planned_tensors(void **state) {
    fixture *f = *state;
    _Alignas(MEM_ALIGNMENT) static char arena[4096];
    tensor t;
    for (int replay = 0; replay < 2; replay++) {
        if (replay)
            plan_replay(f->cx.plan);
        else
            plan_record(f->cx.plan);
        plan_buffer b;
        assert_int_equal(exec_open(&f->cx, "hidden", OTT_BF16, 5, 7, &t, &b), OTT_OK);
        assert_ptr_equal(t.data, b.data);
        assert_int_equal(t.dtype, OTT_BF16);
        assert_int_equal(t.rows, 5);
        assert_int_equal(t.columns, 7);
        assert_int_equal(t.ld, 7);
        assert_int_equal(plan_close(f->cx.plan, &b), OTT_OK);
        if (!replay) assert_int_equal(plan_seal(f->cx.plan), OTT_OK);
        plan_bind(f->cx.plan, arena);
    }
    assert_true(plan_bytes(f->cx.plan) >= 5 * 7 * 2 && plan_bytes(f->cx.plan) <= (int64_t)sizeof arena);
    assert_ptr_equal(t.data, arena);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_ops_do_nothing_while_recording),
        TEST(test_arguments_are_checked_while_recording),
        TEST(test_an_op_has_the_workspace_it_asks_for),
        TEST(test_op_call_runs_by_description),
        TEST(test_gemms_are_counted_by_role),
        TEST(test_probe),
        TEST(test_planned_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
