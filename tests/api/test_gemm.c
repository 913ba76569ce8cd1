/* The three GEMMs of the public API: every recipe compared with the scalar reference, and wrong calls. */
#include "api/api_case.h"
#include "fp8/reference.h"
#include <stdbool.h>
#include <string.h>

enum { M = 48, N = 160, K = 96 };

/* The quantized tensors of a linear layer. */
typedef struct fixture {
    ott_context *context;
    ott_recipe *r;
    const recipe *row;
    ott_tensor *x, *w, *g;
    ott_qtensor *qx, *qw, *qg;
} fixture;

static fixture open_fixture_as(const char *name, bool contiguous) {
    fixture f = {.context = open_context(), .row = recipe_find(name)};
    if (contiguous) set_contiguous_contraction(f.context);
    f.r = open_recipe(f.context, name);
    f.x = open_normal(f.context, f.row->activation, M, K, 1);
    f.w = open_normal(f.context, f.row->activation, N, K, 2);
    f.g = open_normal(f.context, f.row->activation, M, N, 3);
    f.qx = open_qtensor(f.context, M, K, f.r, OTT_INPUT);
    f.qw = open_qtensor(f.context, N, K, f.r, OTT_WEIGHT);
    f.qg = open_qtensor(f.context, M, N, f.r, OTT_GRAD_OUTPUT);
    succeed(ott_quantize(f.qx, f.x));
    succeed(ott_quantize(f.qw, f.w));
    succeed(ott_quantize(f.qg, f.g));
    return f;
}

static fixture open_fixture(const char *name) {
    return open_fixture_as(name, false);
}

/* ---- against the definition ---- */

static granularity grain_of(const ott_qdata *v) {
    for (int g = 0; g < GRANULARITY_COUNT; g++) {
        scale_block block = granularity_block((granularity)g);
        if (block.mn == v->block_mn && block.k == v->block_depth) return (granularity)g;
    }
    fail_msg("no granularity");
    return GRANULARITY_TENSOR;
}

static reference_operand operand_of(ott_tensor *t, ott_qtensor *q, ott_usage use) {
    ott_qdata v = use_on_host(q, use);
    bool columnwise = use == OTT_COLUMNWISE, by_rows = v.column_step == 1;
    if (!v.codes)
        return (reference_operand){.data = tensor_on_host(t),
                                   .format = ott_tensor_dtype(t),
                                   .ld = ott_tensor_columns(t),
                                   .transposed = columnwise};
    return (reference_operand){.data = v.codes,
                               .format = v.format,
                               .ld = by_rows ? v.row_step : v.column_step,
                               .transposed = columnwise == by_rows,
                               .grain = grain_of(&v),
                               .scale_inv = v.scale_inv,
                               .mn_step = v.mn_step,
                               .k_step = v.k_step,
                               .tiles = {.along_k = v.tiles_along_k, .format = v.scale_inv_format}};
}

static void check_product(const fixture *f, ott_gemm_kind which, bool accumulate) {
    static float bias[N + K], c[N * K], expected[N * K];
    const int64_t rows = which == OTT_GEMM_GRAD_WEIGHT ? N : M, columns = which == OTT_GEMM_OUTPUT ? N : K,
                  depth = which == OTT_GEMM_OUTPUT       ? K
                          : which == OTT_GEMM_GRAD_INPUT ? N
                                                         : M;
    ott_tensor *at[2] = {which == OTT_GEMM_OUTPUT ? f->x : f->g, which == OTT_GEMM_GRAD_WEIGHT ? f->x : f->w};
    ott_qtensor *aq[2] = {which == OTT_GEMM_OUTPUT ? f->qx : f->qg,
                          which == OTT_GEMM_GRAD_WEIGHT ? f->qx : f->qw};
    ott_usage uses[2] = {which == OTT_GEMM_GRAD_WEIGHT ? OTT_COLUMNWISE : OTT_ROWWISE,
                         which == OTT_GEMM_OUTPUT ? OTT_ROWWISE : OTT_COLUMNWISE};
    const ott_operand a = {at[0], aq[0]}, b = {at[1], aq[1]};
    ott_tensor *to = open_normal(f->context, OTT_F32, rows, columns, 9),
               *add = open_normal(f->context, OTT_F32, 1, columns, 10);
    succeed(ott_tensor_read(to, expected, rows * columns));
    succeed(ott_tensor_read(add, bias, columns));
    const reference_operand ra = operand_of(at[0], aq[0], uses[0]), rb = operand_of(at[1], aq[1], uses[1]);
    reference_gemm(rows, columns, depth, &ra, &rb, &f->row->gemm[which], bias, accumulate, expected, OTT_F32,
                   columns);
    succeed(ott_gemm(f->r, which, &a, &b, add, accumulate, to));
    succeed(ott_tensor_read(to, c, rows * columns));
    assert_memory_equal(c, expected, (size_t)(rows * columns) * sizeof *c);
    ott_tensor_close(to);
    ott_tensor_close(add);
}

static void test_products_by_the_definition(void **state) {
    (void)state;
    int count;
    const recipe *table = recipe_table(&count);
    for (int i = 0; i < 2 * count; i++) {
        fixture f = open_fixture_as(table[i / 2].name, i % 2);
        for (int which = 0; which < 3; which++) check_product(&f, (ott_gemm_kind)which, which == 1);
        ott_context_close(f.context);
    }
}

/* A recipe may select GEMMs that add products in the order of a tensor core. The result then equals the
   reference in this order, and differs from an fp32 sum. */
static void test_recipe_keys_apply(void **state) {
    (void)state;
    fixture f = open_fixture("tensorwise");
    recipe row = *f.row;
    succeed(ott_recipe_set(f.r, "accumulate", "hopper_split"));
    for (int g = 0; g < GEMM_COUNT; g++) row.gemm[g].accumulate = ACCUMULATE_HOPPER_SPLIT;
    f.row = &row;
    check_product(&f, OTT_GEMM_OUTPUT, false);
    check_product(&f, OTT_GEMM_GRAD_WEIGHT, true);
    ott_context_close(f.context);
}

/* A quantized tensor has a rowwise and a columnwise copy. The copy that a GEMM does not read may be NULL. */
static void test_unused_operand_may_be_null(void **state) {
    (void)state;
    fixture f = open_fixture("rowwise_with_gw_hp");
    ott_tensor *y = open_tensor(f.context, OTT_BF16, M, N), *dw = open_tensor(f.context, OTT_F32, N, K);
    succeed(ott_gemm(f.r, OTT_GEMM_OUTPUT, &(ott_operand){.quantized = f.qx},
                     &(ott_operand){.quantized = f.qw}, NULL, 0, y));
    succeed(ott_gemm(f.r, OTT_GEMM_GRAD_WEIGHT, &(ott_operand){.tensor = f.g}, &(ott_operand){.tensor = f.x},
                     NULL, 0, dw));
    ott_context_close(f.context);
}

/* ---- misuse ---- */

static void test_wrong_handles(void **state) {
    (void)state;
    fixture f = open_fixture("tensorwise"), other = open_fixture("tensorwise");
    const ott_operand x = {f.x, f.qx}, w = {f.w, f.qw}, foreign = {other.x, other.qx};
    ott_tensor *y = open_tensor(f.context, OTT_F32, M, N);
    assert_error(ott_gemm(NULL, OTT_GEMM_OUTPUT, &x, &w, NULL, 0, y), OTT_ERR_ARGUMENT,
                 "ott_gemm: r is NULL");
    assert_error(ott_gemm(f.r, OTT_GEMM_OUTPUT, NULL, &w, NULL, 0, y), OTT_ERR_ARGUMENT,
                 "ott_gemm: a is NULL");
    assert_error(ott_gemm(f.r, OTT_GEMM_OUTPUT, &x, NULL, NULL, 0, y), OTT_ERR_ARGUMENT,
                 "ott_gemm: b is NULL");
    assert_error(ott_gemm(f.r, OTT_GEMM_OUTPUT, &x, &w, NULL, 0, NULL), OTT_ERR_ARGUMENT,
                 "ott_gemm: c is NULL");
    assert_error(ott_gemm(f.r, (ott_gemm_kind)3, &x, &w, NULL, 0, y), OTT_ERR_ARGUMENT, "which = 3");
    assert_error(ott_gemm(f.r, OTT_GEMM_OUTPUT, &(ott_operand){.tensor = f.x}, &w, NULL, 0, y),
                 OTT_ERR_ARGUMENT,
                 "ott_gemm: a.quantized is NULL, but recipe tensorwise computes the output product in FP8");
    assert_error(ott_gemm(f.r, OTT_GEMM_OUTPUT, &foreign, &w, NULL, 0, y), OTT_ERR_ARGUMENT,
                 "ott_gemm: a.quantized belongs to another context");
    assert_error(ott_gemm(f.r, OTT_GEMM_OUTPUT, &x, &w, NULL, 0, other.x), OTT_ERR_ARGUMENT,
                 "ott_gemm: c belongs to another context");
    assert_error(ott_gemm(f.r, OTT_GEMM_OUTPUT, &x, &(ott_operand){f.w, (ott_qtensor *)f.w}, NULL, 0, y),
                 OTT_ERR_ARGUMENT, "b.quantized is a tensor; give a quantized tensor");
    ott_qtensor_close(f.qw);
    assert_error(ott_gemm(f.r, OTT_GEMM_OUTPUT, &x, &w, NULL, 0, y), OTT_ERR_ARGUMENT,
                 "b.quantized is a quantized tensor that has been closed");
    ott_recipe_close(f.r);
    assert_error(ott_gemm(f.r, OTT_GEMM_OUTPUT, &x, &w, NULL, 0, y), OTT_ERR_ARGUMENT,
                 "ott_gemm: r is a recipe that has been closed");
    ott_context_close(f.context);
    ott_context_close(other.context);
}

static void test_wrong_operands(void **state) {
    (void)state;
    fixture f = open_fixture("tensorwise");
    const ott_operand x = {f.x, f.qx}, w = {f.w, f.qw};
    ott_tensor *y = open_tensor(f.context, OTT_F32, M, N);
    assert_error(ott_gemm(f.r, OTT_GEMM_OUTPUT, &w, &x, NULL, 0, y), OTT_ERR_ARGUMENT,
                 "a.quantized is a quantized weight, but the output product needs a quantized input here");
    ott_qtensor *empty = open_qtensor(f.context, M, K, f.r, OTT_INPUT);
    assert_error(ott_gemm(f.r, OTT_GEMM_OUTPUT, &(ott_operand){.quantized = empty}, &w, NULL, 0, y),
                 OTT_ERR_ARGUMENT, "a.quantized is empty: call ott_quantize first");
    ott_recipe *rowwise = open_recipe(f.context, "rowwise"), *bf16 = open_recipe(f.context, "bf16");
    assert_error(ott_gemm(rowwise, OTT_GEMM_OUTPUT, &x, &w, NULL, 0, y), OTT_ERR_ARGUMENT,
                 "a.quantized was made with another recipe than rowwise");
    assert_error(ott_gemm(bf16, OTT_GEMM_OUTPUT, &(ott_operand){.quantized = f.qx}, &w, NULL, 0, y),
                 OTT_ERR_ARGUMENT, "a.tensor is NULL, but recipe bf16 computes the output product in bf16");
    ott_tensor *master = open_tensor(f.context, OTT_F32, N, K);
    assert_error(ott_gemm(bf16, OTT_GEMM_OUTPUT, &x, &(ott_operand){.tensor = master}, NULL, 0, y),
                 OTT_ERR_DTYPE, "b.tensor is fp32, but recipe bf16 computes the output product in bf16");
    ott_context_close(f.context);
}

static void test_wrong_shapes_and_formats(void **state) {
    (void)state;
    fixture f = open_fixture("bf16");
    ott_context *c = f.context;
    const ott_operand x = {.tensor = f.x}, w = {.tensor = f.w}, g = {.tensor = f.g},
                      narrow = {.tensor = open_tensor(c, OTT_BF16, N, K - 1)};
    ott_tensor *y = open_tensor(c, OTT_F32, M, N), *turned = open_tensor(c, OTT_F32, N, M),
               *tokens = open_tensor(c, OTT_I32, M, N), *bias = open_tensor(c, OTT_F32, 1, M),
               *half = open_tensor(c, OTT_BF16, 1, N);
    assert_error(
        ott_gemm(f.r, OTT_GEMM_OUTPUT, &x, &narrow, NULL, 0, y), OTT_ERR_SHAPE,
        "a is [48, 96] and b is [160, 95]: the output product contracts the columns of a with the columns");
    assert_error(
        ott_gemm(f.r, OTT_GEMM_GRAD_WEIGHT, &g, &w, NULL, 0, y), OTT_ERR_SHAPE,
        "a is [48, 160] and b is [160, 96]: the grad_weight product contracts the rows of a with the rows");
    assert_error(ott_gemm(f.r, OTT_GEMM_OUTPUT, &x, &w, NULL, 0, turned), OTT_ERR_SHAPE,
                 "c is [160, 48], but the output product of a [48, 96] and b [160, 96] is [48, 160]");
    assert_error(ott_gemm(f.r, OTT_GEMM_OUTPUT, &x, &w, NULL, 0, tokens), OTT_ERR_DTYPE,
                 "ott_gemm: c is i32");
    assert_error(ott_gemm(f.r, OTT_GEMM_OUTPUT, &x, &w, bias, 0, y), OTT_ERR_SHAPE, "bias is [1, 48], but");
    assert_error(ott_gemm(f.r, OTT_GEMM_OUTPUT, &x, &w, half, 0, y), OTT_ERR_DTYPE,
                 "bias is bf16; give fp32");
    ott_tensor *square = open_tensor(c, OTT_BF16, N, N), *inside;
    const ott_operand s = {.tensor = square};
    assert_error(ott_gemm(f.r, OTT_GEMM_OUTPUT, &s, &s, NULL, 0, square), OTT_ERR_ARGUMENT,
                 "ott_gemm: c overlaps a");
    succeed(ott_tensor_wrap(c, (char *)ott_tensor_data(f.w) + 64, OTT_BF16, M, N, &inside));
    assert_error(ott_gemm(f.r, OTT_GEMM_OUTPUT, &x, &w, NULL, 0, inside), OTT_ERR_ARGUMENT,
                 "ott_gemm: c overlaps b");
    ott_context_close(f.context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_by_the_definition),
        cmocka_unit_test(test_recipe_keys_apply),
        cmocka_unit_test(test_unused_operand_may_be_null),
        cmocka_unit_test(test_wrong_handles),
        cmocka_unit_test(test_wrong_operands),
        cmocka_unit_test(test_wrong_shapes_and_formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
