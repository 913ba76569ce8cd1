/* Tests the op table: the texts of the fields of ops.def, and op_check, which names a wrong argument. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "tensor/exec.h"

#define T 3
#define D 4

static float floats[64];
static int32_t integers[64];

/* Expects a failure with that status, and a message with each of the words. */
static void refused(ott_status got, ott_status expected, const char *a, const char *b, const char *c) {
    const char *words[] = {a, b, c};
    if (got != expected)
        fail_msg("%s (%s), expected %s", status_name(got), status_text(), status_name(expected));
    for (int i = 0; i < 3; i++)
        if (words[i] && !strstr(status_text(), words[i]))
            fail_msg("\"%s\" does not contain \"%s\"", status_text(), words[i]);
}

static ott_status check(const char *op, const void *args) {
    return op_check(op_find(op), args);
}

static tensor matrix(ott_dtype d, int64_t rows, int64_t columns) {
    return tensor_matrix(floats, d, rows, columns);
}

/* ---- the list ---- */

static void test_list(void **state) {
    (void)state;
    assert_true(op_count() >= 20);
    assert_null(op_find("no_such_op"));
    for (int i = 0; i < op_count(); i++) {
        const op_info *op = op_at(i);
        assert_ptr_equal(op_find(op->name), op);
        assert_true(op->field_count > 0);
        for (int j = 0; j < op->field_count; j++) {
            const op_field *f = &op->fields[j];
            op_shape shape;
            assert_true(f->offset < op->args_size);
            if (f->kind != OP_SCALAR && !op_shape_parse(f->text, &shape))
                fail_msg("%s.%s: \"%s\" does not parse", op->name, f->name, f->text);
        }
    }
}

static void test_fields(void **state) {
    (void)state;
    const op_info *op = op_find("rmsnorm_forward");
    assert_int_equal(op->args_size, sizeof(rmsnorm_forward_args));
    assert_int_equal(op->field_count, 9);
    assert_string_equal(op->fields[1].name, "delta");
    assert_int_equal(op->fields[1].kind, OP_IN);
    assert_true(op->fields[1].optional);
    assert_int_equal(op->fields[1].offset, offsetof(rmsnorm_forward_args, delta));
    assert_int_equal(op->fields[4].kind, OP_OUT);
    assert_false(op->fields[4].optional);
    assert_int_equal(op->fields[6].kind, OP_QOUT);
    assert_true(op->fields[6].optional);
    assert_int_equal(op->fields[7].kind, OP_SCALAR);
    assert_string_equal(op->fields[7].text, "float");
}

static void test_shape_parse(void **state) {
    (void)state;
    op_shape s;
    assert_true(op_shape_parse("act[T,D]", &s));
    assert_string_equal(s.dtype, "act");
    assert_int_equal(s.rows, 'T');
    assert_int_equal(s.columns, 'D');
    assert_true(op_shape_parse("f32[V]", &s));
    assert_string_equal(s.dtype, "f32");
    assert_int_equal(s.rows, 0);
    assert_int_equal(s.rows_fixed, 1);
    assert_int_equal(s.columns, 'V');
    assert_true(op_shape_parse("i32[1]", &s));
    assert_int_equal(s.columns, 0);
    assert_int_equal(s.columns_fixed, 1);
    assert_true(op_shape_parse("hp[16,N]", &s));
    assert_int_equal(s.rows, 0);
    assert_int_equal(s.rows_fixed, 16);
    assert_true(op_shape_parse("[M,N]", &s));
    assert_string_equal(s.dtype, "");
    static const char *const malformed[] = {"",        "f32",    "f32[",        "f32[]",
                                            "f32[N",   "f32[n]", "f32[M,]",     "f32[M,N,K]",
                                            "f32[N]x", "f32 N",  "longdtype[N]"};
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++)
        if (op_shape_parse(malformed[i], &s)) fail_msg("\"%s\" parses", malformed[i]);
}

/* ---- tensors ---- */

static void test_tensors(void **state) {
    (void)state;
    tensor x = matrix(OTT_BF16, T, D), y = x, weight = tensor_vector(floats, OTT_F32, D);
    tensor rstd = tensor_vector(floats, OTT_F32, T), wrong;
    rmsnorm_forward_args good = {.x = &x, .weight = &weight, .y = &y, .rstd = &rstd, .eps = 1e-5f}, bad;
    assert_int_equal(check("rmsnorm_forward", &good), OTT_OK);

    bad = good;
    bad.y = NULL;
    refused(check("rmsnorm_forward", &bad), OTT_ERR_INTERNAL, "rmsnorm_forward", "y", "missing");

    bad = good;
    wrong = tensor_vector(floats, OTT_BF16, D);
    bad.weight = &wrong;
    refused(check("rmsnorm_forward", &bad), OTT_ERR_DTYPE, "rmsnorm_forward", "weight", dtype_name(OTT_BF16));

    bad = good;
    wrong = matrix(OTT_E4M3, T, D);
    bad.x = &wrong;
    refused(check("rmsnorm_forward", &bad), OTT_ERR_DTYPE, "rmsnorm_forward", "x", dtype_name(OTT_E4M3));

    bad = good;
    wrong = matrix(OTT_F16, T, D); /* fp16 is a valid format, but x is bf16 */
    bad.delta = &wrong;
    refused(check("rmsnorm_forward", &bad), OTT_ERR_DTYPE, "delta", dtype_name(OTT_F16),
            dtype_name(OTT_BF16));
}

static void test_shapes(void **state) {
    (void)state;
    tensor x = matrix(OTT_BF16, T, D), y = x, weight = tensor_vector(floats, OTT_F32, D);
    tensor rstd = tensor_vector(floats, OTT_F32, T), wrong = x;
    rmsnorm_forward_args good = {.x = &x, .weight = &weight, .y = &y, .rstd = &rstd, .eps = 1e-5f},
                         bad = good;
    wrong.columns = wrong.ld = D + 1;
    bad.y = &wrong;
    refused(check("rmsnorm_forward", &bad), OTT_ERR_SHAPE, "rmsnorm_forward", "y", "5");

    bad = good;
    wrong = matrix(OTT_BF16, T + 4, D);
    bad.y = &wrong;
    refused(check("rmsnorm_forward", &bad), OTT_ERR_SHAPE, "y", "7", "3");

    bad = good;
    wrong = matrix(OTT_F32, 2, D); /* a vector must have one row */
    bad.weight = &wrong;
    refused(check("rmsnorm_forward", &bad), OTT_ERR_SHAPE, "weight", "2", NULL);

    bad = good;
    wrong = x;
    wrong.ld = D - 1;
    bad.x = &wrong;
    refused(check("rmsnorm_forward", &bad), OTT_ERR_SHAPE, "x", "leading dimension", "3");

    bad = good;
    wrong = x;
    wrong.ld = D + 3;
    bad.x = &wrong;
    assert_int_equal(check("rmsnorm_forward", &bad), OTT_OK);
}

static void test_indices_and_fixed_sizes(void **state) {
    (void)state;
    tensor token = tensor_vector(integers, OTT_I32, T), table = matrix(OTT_F32, 5, D),
           y = matrix(OTT_F16, T, D);
    embedding_forward_args e = {.token = &token, .table = &table, .y = &y};
    assert_int_equal(check("embedding_forward", &e), OTT_OK);
    token.dtype = OTT_F32;
    refused(check("embedding_forward", &e), OTT_ERR_DTYPE, "embedding_forward", "token", "i32");

    tensor x = matrix(OTT_F32, T, D), sum = tensor_vector(floats, OTT_F32, 1);
    sum_args s = {.x = &x, .sum = &sum};
    assert_int_equal(check("sum", &s), OTT_OK);
    sum.columns = sum.ld = 2;
    refused(check("sum", &s), OTT_ERR_SHAPE, "sum", "2", "1");

    tensor count = tensor_vector(integers, OTT_I32, 1), codes = matrix(OTT_E5M2, T, D);
    assert_int_equal(check("count_nonfinite", &(count_nonfinite_args){.x = &codes, .count = &count}), OTT_OK);
    codes.dtype = OTT_I32;
    refused(check("count_nonfinite", &(count_nonfinite_args){.x = &codes, .count = &count}), OTT_ERR_DTYPE,
            "count_nonfinite", "x", NULL);
    codes.dtype = OTT_E5M2;
    refused(check("convert", &(convert_args){.x = &x, .y = &codes}), OTT_ERR_DTYPE, "convert", "y", "hp");
}

/* ---- quantized tensors and operands ---- */

static qtensor rowwise(int64_t rows, int64_t columns) {
    qdata use = {.data = floats, .ld = columns, .amax = floats, .scale = floats, .scale_inv = floats};
    cast_spec spec = {.format = OTT_E4M3, .grain = GRANULARITY_ROW, .scale = {.rule = SCALE_TORCHAO}};
    return (qtensor){
        .rows = rows, .columns = columns, .spec = {spec, spec}, .rowwise = use, .columnwise = use};
}

static void test_quantized(void **state) {
    (void)state;
    tensor x = matrix(OTT_BF16, T, D);
    qtensor q = rowwise(T, D);
    quantize_args a = {.x = &x, .q = &q};
    assert_int_equal(check("quantize", &a), OTT_OK);
    q.columns = D + 1;
    refused(check("quantize", &a), OTT_ERR_SHAPE, "quantize", "q", "5");
    q = rowwise(T, D);
    q.columnwise.ld++;
    refused(check("quantize", &a), OTT_ERR_SHAPE, "quantize", "q", "columnwise codes have leading dimension");
    q.columnwise.transposed = true;
    q.columnwise.ld = T - 1;
    refused(check("quantize", &a), OTT_ERR_SHAPE, "quantize", "q", "columnwise codes, transposed,");
    q.columnwise.ld = T;
    assert_int_equal(check("quantize", &a), OTT_OK);
    q.rowwise.transposed = true;
    refused(check("quantize", &a), OTT_ERR_SHAPE, "quantize", "q", "rowwise codes, transposed,");
    q = rowwise(T, D);
    q.columnwise.scale = NULL;
    refused(check("quantize", &a), OTT_ERR_INTERNAL, "quantize", "q", "column");
    q.spec.columnwise = (cast_spec){.format = OTT_BF16}; /* a copy that is not FP8 needs no buffers */
    assert_int_equal(check("quantize", &a), OTT_OK);
    a.q = NULL;
    refused(check("quantize", &a), OTT_ERR_INTERNAL, "quantize", "q", "missing");
    q.rowwise.amax = q.rowwise.scale = NULL; /* only casts need them */
    assert_int_equal(check("dequantize", &(dequantize_args){.q = &q, .y = &x}), OTT_OK);
    q.rowwise.scale_inv = NULL;
    refused(check("dequantize", &(dequantize_args){.q = &q, .y = &x}), OTT_ERR_INTERNAL, "dequantize", "q",
            "row");

    tensor y = x;
    qlist list = {.count = 2, .item = {rowwise(T, D), rowwise(T + 1, D)}};
    swiglu_forward_args s = {.gate = &x, .up = &x, .y = &y, .q = &list};
    refused(check("swiglu_forward", &s), OTT_ERR_SHAPE, "swiglu_forward", "q", "4");
    list.count = 1; /* list.item[1] is wrong, but is not checked, because the list has one copy */
    assert_int_equal(check("swiglu_forward", &s), OTT_OK);
}

static void test_operands(void **state) {
    (void)state;
    operand a = {.t = matrix(OTT_E4M3, 2, 5)}, b = {.t = matrix(OTT_E5M2, 3, 5)};
    tensor c = matrix(OTT_BF16, 2, 3), bias = tensor_vector(floats, OTT_F32, 3);
    gemm_args g = {.a = &a, .b = &b, .c = &c, .bias = &bias};
    assert_int_equal(check("gemm", &g), OTT_OK);
    b = (operand){.t = matrix(OTT_E5M2, 5, 3), .transposed = true};
    assert_int_equal(check("gemm", &g), OTT_OK);
    b.transposed = false; /* b is 5 x 3, but N x K is 3 x 5 */
    refused(check("gemm", &g), OTT_ERR_SHAPE, "gemm", "b", NULL);
    b = (operand){.t = matrix(OTT_BF16, 3, 6)};
    refused(check("gemm", &g), OTT_ERR_SHAPE, "gemm", "b", "6");
    b = (operand){.t = matrix(OTT_I32, 3, 5)};
    refused(check("gemm", &g), OTT_ERR_DTYPE, "gemm", "b", NULL);
    b = (operand){.t = matrix(OTT_BF16, 3, 5)};
    bias.columns = bias.ld = 4;
    refused(check("gemm", &g), OTT_ERR_SHAPE, "gemm", "4", "3");
    bias.columns = bias.ld = 3;
    g.a = NULL;
    refused(check("gemm", &g), OTT_ERR_INTERNAL, "gemm", "a", "missing");
}

/* The GEMMs of a linear layer get the right copies of its tensors as operands. */
static void test_operand_uses(void **state) {
    (void)state;
    tensor x = matrix(OTT_BF16, T, D);
    qtensor q = rowwise(T, D);
    float column_scale_inv[D];
    q.columnwise.scale_inv = column_scale_inv;
    operand rows = operand_rowwise(x, &q), columns = operand_columnwise(x, &q);
    assert_int_equal(operand_mn(&rows), T);
    assert_int_equal(operand_k(&rows), D);
    assert_int_equal(rows.t.dtype, OTT_E4M3);
    assert_int_equal(rows.grain, GRANULARITY_ROW);
    assert_int_equal(operand_mn(&columns), D);
    assert_int_equal(operand_k(&columns), T);
    assert_ptr_equal(columns.scale_inv, column_scale_inv);
    q.spec.columnwise = (cast_spec){.format = OTT_BF16};
    columns = operand_columnwise(x, &q);
    assert_int_equal(columns.t.dtype, OTT_BF16);
    assert_null(columns.scale_inv);
    assert_int_equal(operand_mn(&columns), D);
    rows = operand_rowwise(x, NULL);
    assert_int_equal(rows.t.dtype, OTT_BF16);
    assert_null(rows.scale_inv);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),         cmocka_unit_test(test_fields),
        cmocka_unit_test(test_shape_parse),  cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_shapes),       cmocka_unit_test(test_indices_and_fixed_sizes),
        cmocka_unit_test(test_quantized),    cmocka_unit_test(test_operands),
        cmocka_unit_test(test_operand_uses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
