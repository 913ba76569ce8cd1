/*
 * Products on the emulated GPU. The stand-in for cuBLASLt and Ottava's kernel both give the reference's bits.
 * If cuBLASLt refuses a product, Ottava's kernel computes it, and the log reports this once. (The test
 * cuda.ops has all shapes and formats.)
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "backend/op_case.h"
#include "backend/open.h"
#include "cudart.h"
#include "fp8/reference.h"
#include "reference/reference_ops.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASES = 300, ALIGNED = 12 /* number of a shape with multiples of 16 */ };

static mem *account;
static case_device reference, gpu;
static op_case c;
static char logged[2048];
static int warnings;

static void note(void *user, ott_log_level level, const char *text) {
    (void)user, (void)level;
    snprintf(logged, sizeof logged, "%s", text);
    warnings++;
}

static const logger lg = {.callback = note, .level = OTT_LOG_WARNING};

static void succeed(ott_status status) {
    if (status != OTT_OK) fail_msg("%s", status_text());
}

static int open_all(void **state) {
    (void)state;
    device *d;
    cublaslt_products = 0;
    cublaslt_refuses = 0;
    cublaslt_wrong_results = false;
    warnings = 0;
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

/* Makes the n-th product that the device supports. */
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

/* ---- FP8 products of recipes ---- */

enum { M = 32, N = 144, LONG = 272, ODD = 200 /* no multiple of 16, so codes are copied */ };

typedef struct product {
    granularity a, b;
    ott_dtype format; /* format of operand a; operand b is E4M3 */
    ott_dtype d;
    int64_t k;
    int shift; /* number of scales between an aligned address and the scales */
    bool accumulate, bias;
} product;

static uint8_t codes[2][N * LONG];
static union {
    float inverse[N * 12 + 1];
    uint8_t codes[4 * (N * 12 + 1)]; /* E8M0 */
} scales[2];
static float bias[N], before[M * N], expected[M * N], got[M * N];

static void draw_operands(const product *p) {
    for (int i = 0; i < N * LONG; i++) {
        codes[0][i] = cast_to_fp8((float)(i * 37 % 101 - 50) / 8, p->format, CAST_SATURATE);
        codes[1][i] = cast_to_fp8((float)(i * 53 % 89 - 44) / 16, OTT_E4M3, CAST_SATURATE);
    }
    for (int i = 0; i < N * 12 + 1; i++) {
        scales[0].inverse[i] = 0.3f + (float)(i * 7 % 13) / 10;
        scales[1].inverse[i] = 0.2f + (float)(i * 5 % 11) / 9;
    }
    for (int i = 0; p->a == GRANULARITY_1X32 && i < (int)sizeof scales[0].codes; i++) {
        scales[0].codes[i] = (uint8_t)(121 + i * 7 % 13);
        scales[1].codes[i] = (uint8_t)(122 + i * 5 % 11);
    }
    for (int i = 0; i < N; i++) bias[i] = (float)i / 7;
    for (int i = 0; i < M * N; i++) cast_store(before, p->d, i, (float)(i % 19) / 3);
    memcpy(expected, before, sizeof before);
}

static void *to_device(const void *data, int64_t bytes) {
    void *block;
    succeed(device_allocate(gpu.device, MEM_OTHER, bytes, "a test's array", &block));
    succeed(device_copy_in(gpu.device, block, data, bytes));
    return block;
}

/* array: the memory of the scales, which begin p->shift scales after its start. */
static operand operand_of(const product *p, bool of_b, void *data, void *array) {
    granularity grain = of_b ? p->b : p->a;
    char *scale = (char *)array + p->shift * dtype_bytes(granularity_scale_format(grain));
    int64_t mn = of_b ? N : M;
    operand o = {
        .t = tensor_matrix(data, of_b ? OTT_E4M3 : p->format, mn, p->k), .grain = grain, .scale_inv = scale};
    qdata use = {0};
    qtensor_order(&use, grain, granularity_grid(grain, mn, p->k));
    o.mn_step = use.mn_step;
    o.k_step = use.k_step;
    o.tiles = use.tiles;
    return o;
}

static reference_operand reference_of(const operand *o) {
    return (reference_operand){o->t.data,    o->t.dtype, o->t.ld,   false,   o->grain,
                               o->scale_inv, o->mn_step, o->k_step, o->tiles};
}

static gemm_spec spec_of(const product *p) {
    return (gemm_spec){.order = granularity_is_block(p->a) ? SCALE_A_THEN_B : SCALE_PRODUCT,
                       .fast_accumulate = true};
}

static void expect_product(const product *p) {
    operand a = operand_of(p, false, codes[0], &scales[0]);
    operand b = operand_of(p, true, codes[1], &scales[1]);
    reference_operand ra = reference_of(&a), rb = reference_of(&b);
    gemm_spec spec = spec_of(p);
    reference_gemm(M, N, p->k, &ra, &rb, &spec, p->bias ? bias : NULL, p->accumulate, expected, p->d, N);
}

static ott_status multiply(void *args, exec *cx) {
    return op_gemm(cx, args);
}

/* Runs a product. The scales begin p->shift elements after an aligned address: they need no alignment. */
static void run_product(const product *p) {
    exec cx = {.device = gpu.device, .log = &lg};
    void *data[6] = {to_device(codes[0], sizeof codes[0]),
                     to_device(codes[1], sizeof codes[1]),
                     to_device(&scales[0], sizeof scales[0]),
                     to_device(&scales[1], sizeof scales[1]),
                     to_device(bias, sizeof bias),
                     to_device(before, sizeof before)};
    operand a = operand_of(p, false, data[0], data[2]);
    operand b = operand_of(p, true, data[1], data[3]);
    tensor added = tensor_vector(data[4], OTT_F32, N), c_ = tensor_matrix(data[5], p->d, M, N);
    gemm_args g = {.a = &a,
                   .b = &b,
                   .bias = p->bias ? &added : NULL,
                   .c = &c_,
                   .accumulate = p->accumulate,
                   .spec = spec_of(p)};
    succeed(case_in_plan(&cx, multiply, &g));
    succeed(device_copy_out(gpu.device, got, data[5], sizeof got));
    for (int i = 0; i < 6; i++) device_release(gpu.device, data[i]);
}

static void check_product(const product *p) {
    int products = cublaslt_products;
    draw_operands(p);
    expect_product(p);
    run_product(p);
    if (cublaslt_products != products + 1 || memcmp(got, expected, sizeof got) != 0)
        fail_msg("%s x %s of %s to %s, k %d, accumulate %d, bias %d: %s", granularity_name(p->a),
                 granularity_name(p->b), dtype_name(p->format), dtype_name(p->d), (int)p->k, p->accumulate,
                 p->bias, cublaslt_products == products + 1 ? "other bits" : "not by the library");
}

/* Checks products in all formats, with and without accumulation, bias, and codes that must be copied. */
static void check_all_products(granularity a, granularity b) {
    static const ott_dtype results[] = {OTT_BF16, OTT_F16, OTT_F32};
    for (int i = 0; i < 2 * 3 * 8; i++) {
        product p = {.a = a,
                     .b = b,
                     .format = i / 24 % 2 ? OTT_E5M2 : OTT_E4M3,
                     .d = results[i / 8 % 3],
                     .k = i & 1 ? ODD : LONG,
                     .shift = i % 3 == 0,
                     .accumulate = i & 2,
                     .bias = i & 4};
        check_product(&p);
    }
}

static void check_products(granularity a, granularity b) {
    check_all_products(a, b);
    assert_int_equal(warnings, 0);
}

static void what_recipes_multiply_goes_to_the_library(void **state) {
    (void)state;
    check_products(GRANULARITY_TENSOR, GRANULARITY_TENSOR);
    check_products(GRANULARITY_ROW, GRANULARITY_ROW);
    check_products(GRANULARITY_1X128, GRANULARITY_1X128);
    check_products(GRANULARITY_1X128, GRANULARITY_128X128);
}

static int open_blackwell(void **state) {
    setenv(CUDART_CAPABILITY, "100", 1);
    return open_all(state);
}
static int close_blackwell(void **state) {
    unsetenv(CUDART_CAPABILITY);
    return close_all(state);
}

static void mx_goes_to_the_library_on_blackwell(void **state) {
    (void)state;
    check_products(GRANULARITY_1X32, GRANULARITY_1X32);
}

/* A product of two tensors that are quantized first. */
typedef struct quantized_product {
    tensor x[2], c;
    const void *scales[2]; /* addresses of the operands' scale_inv */
} quantized_product;

static ott_status quantize_and_multiply(void *user, exec *cx) {
    quantized_product *p = user;
    qtensor q[2];
    plan_buffer buffers[2];
    for (int i = 0; i < 2; i++) {
        qblocks blocks = {0};
        q[i] =
            (qtensor){.rows = p->x[i].rows, .columns = p->x[i].columns, .spec = recipe_find("mxfp8")->input};
        TRY(qtensor_lay_out(&q[i], cx->device->can, &blocks));
        TRY(plan_open(cx->plan, "a test's operand", blocks.rowwise.bytes + blocks.columnwise.bytes,
                      &buffers[i]));
        blocks.rowwise.data = buffers[i].data;
        blocks.columnwise.data = (char *)buffers[i].data + blocks.rowwise.bytes;
        TRY(qtensor_lay_out(&q[i], cx->device->can, &blocks));
        TRY(op_quantize(cx, &(quantize_args){.x = &p->x[i], .q = &q[i]}));
        p->scales[i] = q[i].rowwise.scale_inv;
    }
    operand a = operand_rowwise((tensor){0}, &q[0]), b = operand_rowwise((tensor){0}, &q[1]);
    TRY(op_gemm(cx, &(gemm_args){.a = &a, .b = &b, .c = &p->c, .spec = {.order = SCALE_A_THEN_B}}));
    for (int i = 0; i < 2; i++) TRY(plan_close(cx->plan, &buffers[i]));
    return OTT_OK;
}

static quantized_product run_quantized(device *d, float *result) {
    static float values[N * ODD];
    exec cx = {.device = d, .log = &lg};
    quantized_product p;
    void *data[3];
    for (int i = 0; i < N * ODD; i++) values[i] = (float)(i * 37 % 101 - 50) / 8;
    for (int i = 0; i < 3; i++)
        succeed(device_allocate(d, MEM_OTHER, sizeof values, "a test's array", &data[i]));
    for (int i = 0; i < 2; i++) succeed(device_copy_in(d, data[i], values, sizeof values));
    p.x[0] = tensor_matrix(data[0], OTT_F32, M, ODD);
    p.x[1] = tensor_matrix(data[1], OTT_F32, N, ODD);
    p.c = tensor_matrix(data[2], OTT_F32, M, N);
    succeed(case_in_plan(&cx, quantize_and_multiply, &p));
    succeed(device_copy_out(d, result, data[2], tensor_bytes(p.c)));
    for (int i = 0; i < 3; i++) device_release(d, data[i]);
    return p;
}

/* cuBLASLt reads MX scales where `quantize` has stored them. Their padding is not NaN, although the memory
   was NaN before. */
static void mx_scales_are_read_in_place(void **state) {
    (void)state;
    quantized_product p = run_quantized(gpu.device, got);
    assert_int_equal(cublaslt_products, 1);
    for (int i = 0; i < 2; i++) assert_ptr_equal(cublaslt_scales[i], p.scales[i]);
    run_quantized(reference.device, expected);
    assert_memory_equal(got, expected, sizeof got);
}

/* With each refusal, FP8 products of tensors and of rows have the reference's bits, computed by cuBLASLt. */
static void each_refusal_has_a_fallback(void **state) {
    static const unsigned refusals[] = {CUBLASLT_REFUSES_16_BIT, CUBLASLT_REFUSES_SCALES,
                                        CUBLASLT_REFUSES_FP8, CUBLASLT_REFUSES_FIRST};
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        if (i > 0) close_all(NULL), open_all(NULL);
        cublaslt_refuses = refusals[i];
        check_all_products(GRANULARITY_TENSOR, GRANULARITY_TENSOR);
        check_all_products(GRANULARITY_ROW, GRANULARITY_ROW);
        bool is_reported = refusals[i] != CUBLASLT_REFUSES_FIRST;
        assert_int_equal(warnings > 0, is_reported);
        if (is_reported) assert_non_null(strstr(logged, "cuBLASLt has no product 32 x 144 x "));
    }
}

/* A refusal when the product runs, when the workspace for other methods is not there. */
static void a_refusal_to_run_takes_the_own_kernel(void **state) {
    product p = {.a = GRANULARITY_ROW, .b = GRANULARITY_ROW, .format = OTT_E4M3, .d = OTT_BF16, .k = LONG};
    (void)state;
    cublaslt_refuses = CUBLASLT_REFUSES_RUN;
    draw_operands(&p);
    expect_product(&p);
    run_product(&p);
    run_product(&p);
    assert_memory_equal(got, expected, sizeof got);
    assert_int_equal(cublaslt_products, 0);
    assert_int_equal(warnings, 1);
    assert_non_null(
        strstr(logged, "scales of rows (CUBLAS_STATUS_NOT_SUPPORTED): a slower kernel of Ottava"));
}

static void a_refusal_is_logged_once_and_replaced(void **state) {
    (void)state;
    cublaslt_refuses = CUBLASLT_REFUSES_ALL;
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
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(logged, "cuBLASLt has no product 2 x 2 x 2 of fp32 and fp32"));
    device_release(gpu.device, data);
}

/* The backend compares the first product of each matmul_spec with the host, and no later one of that spec. */
static void a_wrong_product_is_found(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        float four[8] = {1, 2, 3, 4, 5, 6, 7, 8};
        bool accumulate = i & 1, added = i & 2, bf16 = i & 4;
        exec cx = {.device = gpu.device, .log = &lg};
        /* A product with bias has the same spec as one without. The backend compares only the first product
           of a spec with the host. So another k gives each product its own spec. */
        int64_t k = i % 4 + 1;
        tensor x = tensor_matrix(to_device(four, sizeof four), bf16 ? OTT_BF16 : OTT_F32, bf16 ? k : 2,
                                 bf16 ? 2 : k);
        tensor y = tensor_matrix(NULL, x.dtype, 2, 2);
        tensor one = tensor_vector(to_device(four, sizeof four), OTT_F32, 2);
        y.data = to_device(four, sizeof four);
        operand o = {.t = x, .transposed = bf16};
        gemm_args g = {.a = &o, .b = &o, .c = &y, .bias = added ? &one : NULL, .accumulate = accumulate};
        void *workspace = to_device(codes, sizeof codes);
        cx.workspace = workspace;
        cublaslt_wrong_results = true;
        assert_int_equal(op_gemm(&cx, &g), OTT_ERR_DEVICE);
        assert_non_null(strstr(status_text(), "product 2 x 2 x "));
        assert_non_null(strstr(status_text(), "OTTAVA_CUDA_GEMM=own"));
        cublaslt_wrong_results = false;
        succeed(op_gemm(&cx, &g));
        succeed(op_gemm(&cx, &g));
        device_release(gpu.device, x.data);
        device_release(gpu.device, one.data);
        device_release(gpu.device, y.data);
        device_release(gpu.device, workspace);
    }
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

/* An argument selects one test by name. */
int main(int count, char **arguments) {
    const struct CMUnitTest tests[] = {
        TEST(what_recipes_multiply_goes_to_the_library),
        cmocka_unit_test_setup_teardown(mx_goes_to_the_library_on_blackwell, open_blackwell, close_blackwell),
        cmocka_unit_test_setup_teardown(mx_scales_are_read_in_place, open_blackwell, close_blackwell),
        TEST(each_refusal_has_a_fallback),
        TEST(a_refusal_to_run_takes_the_own_kernel),
        TEST(a_refusal_is_logged_once_and_replaced),
        TEST(a_wrong_product_is_found),
        TEST(an_accumulator_of_the_host_is_refused),
    };
    if (count > 1) cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
