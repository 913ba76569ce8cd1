/* Tests both kernels of a product (src/cuda/gemm/gemm.h) on the emulated GPU: on the tensor cores, and exact.
   Both must give the reference's bits. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "backend/op_case.h"
#include "backend/open.h"
#include "cuda/cuda.h"
#include "cuda/gemm/gemm.h"
#include "fp8/narrow.h"
#include "reference/reference_ops.h"
#include "tensor/rules/route_check.h"
#include <math.h>
#include <string.h>

enum { CASES = 250 };

static mem *account;
static case_device reference, cuda;
static op_case c;

static void succeed(ott_status status) {
    if (status != OTT_OK) fail_msg("%s", status_text());
}

static int open_all(void **state) {
    (void)state;
    device *d;
    succeed(mem_open(&account));
    succeed(reference_device_open(account, &d));
    succeed(case_device_open(d, &reference));
    succeed(test_device_open_named("cuda", account, 0, NULL, &d));
    succeed(case_device_open(d, &cuda));
    succeed(case_memory_open(account, &c));
    return 0;
}

static int close_all(void **state) {
    (void)state;
    case_device_close(&cuda);
    case_memory_close(account, &c);
    case_device_close(&reference);
    mem_close(account);
    return 0;
}

static cudaStream_t stream(void) {
    exec cx = {.device = cuda.device};
    return cuda_stream(&cx);
}

static cudaError_t launch_gemm(const void *args, bool exact) {
    const gemm_args *g = args;
    return (exact ? gemm_exact_launch : gemm_launch)(g->a, g->b, g->bias, g->c, g->accumulate, g->spec.order,
                                                     stream());
}

static cudaError_t launch_grouped(const void *args, bool exact) {
    const grouped_gemm_args *g = args;
    return (exact ? gemm_exact_grouped_launch : gemm_grouped_launch)(g, route_experts_along_k(g), stream());
}

static cudaError_t launch_weight(const void *args, bool exact) {
    const grouped_gemm_weight_args *g = args;
    return (exact ? gemm_exact_weight_launch : gemm_grouped_weight_launch)(g, stream());
}

/* True if the device's kernels sum in the order that the case asks for. */
static bool is_in_order(const op_case *made) {
    const gemm_spec *spec = NULL;
    for (int i = 0; i < made->op->field_count; i++)
        if (strcmp(made->op->fields[i].name, "spec") == 0)
            spec = (const gemm_spec *)(const void *)(made->args + made->op->fields[i].offset);
    return spec && spec->accumulate == ACCUMULATE_FP32;
}

/* Compares generated calls of an op with the reference: all formats, granularities, layouts and orders of
   scales; shapes with tails; addresses and strides that are not aligned; extreme values, NaN and infinities. */
static void compare(const char *op, cudaError_t (*launch)(const void *args, bool exact)) {
    const op_info *info = op_find(op);
    static const ott_dtype formats[] = {OTT_F32, OTT_BF16, OTT_F16};
    for (int i = 0; i < CASES; i++) {
        int shape = i % case_shapes(info);
        assert_true(case_make(&c, info, formats[i % case_dtypes(info)], shape, (value_kind)(i % VALUE_KINDS),
                              (uint64_t)i));
        if (!is_in_order(&c)) continue;
        succeed(case_expect(&c, &reference));
        for (int exact = 0; exact < 2; exact++) {
            succeed(case_load(&c, &cuda, &c.loaded));
            assert_int_equal(launch(c.loaded.args, exact), cudaSuccess);
            succeed(device_synchronize(cuda.device));
            succeed(case_store(&c, &cuda));
            if (!case_compare(&c)) fail_msg("%s: %s", exact ? "exact" : "tensor cores", c.message);
        }
    }
}

static void products_have_the_references_bits(void **state) {
    (void)state;
    compare("gemm", launch_gemm);
}

static void grouped_products_have_the_references_bits(void **state) {
    (void)state;
    compare("grouped_gemm", launch_grouped);
    compare("grouped_gemm_weight", launch_weight);
}

/* Multiplies every code of both FP8 formats by 1. */
static void every_code_has_its_value(void **state) {
    (void)state;
    enum { CODES = 256 };
    static const ott_dtype formats[] = {OTT_E4M3, OTT_E5M2};
    for (int i = 0; i < 2; i++) {
        uint8_t codes[CODES + 1];
        float values[CODES];
        for (int code = 0; code < CODES; code++) codes[code] = (uint8_t)code;
        codes[CODES] = cast_to_fp8(1.0f, formats[i], CAST_SATURATE);
        uint8_t *data = cuda.block;
        succeed(device_copy_in(cuda.device, data, codes, sizeof codes));
        operand a = {.t = tensor_matrix(data, formats[i], CODES, 1)};
        operand b = {.t = tensor_matrix(data + CODES, formats[i], 1, 1)};
        tensor to = tensor_matrix(data + 2 * (ptrdiff_t)CODES, OTT_F32, CODES, 1);
        assert_int_equal(gemm_launch(&a, &b, NULL, &to, false, SCALE_PRODUCT, stream()), cudaSuccess);
        succeed(device_copy_out(cuda.device, values, to.data, sizeof values));
        for (int code = 0; code < CODES; code++) {
            float value = narrow_from_fp8((uint8_t)code, formats[i]);
            /* 0 + -0 is 0 */
            if (isnan(value) ? !isnan(values[code]) : values[code] != value)
                fail_msg("%s: code %d is %g, not %g", dtype_name(formats[i]), code, (double)values[code],
                         (double)value);
        }
    }
}

/* The gradients of weights, of groups that begin anywhere in aligned rows of the operands. */
static void groups_begin_anywhere(void **state) {
    (void)state;
    enum { M = 20, N = 24, R = 192, GROUPS = 3 };
    static const ott_dtype formats[] = {OTT_BF16, OTT_F16, OTT_E4M3, OTT_E4M3};
    static const int32_t ends[GROUPS] = {5, 91, 185};
    for (int i = 0; i < 4; i++) {
        granularity grain =
            i < 3 ? GRANULARITY_TENSOR : GRANULARITY_1X128; /* with blocks, chunks are not aligned */
        uint8_t values[(M + N) * R * 2];
        float sums[2][GROUPS * M * N] = {0};
        for (int at = 0; at < (M + N) * R; at++)
            if (formats[i] == OTT_E4M3)
                values[at] = cast_to_fp8((float)(at % 17 - 8), OTT_E4M3, CAST_SATURATE);
            else
                cast_store(values, formats[i], at, (float)(at % 17 - 8));
        char *data = cuda.block;
        int64_t row = R * dtype_bytes(formats[i]);
        succeed(device_copy_in(cuda.device, data, values, sizeof values));
        operand a = {.t = tensor_matrix(data, formats[i], M, R), .grain = grain};
        operand b = {.t = tensor_matrix(data + M * row, formats[i], N, R), .grain = grain};
        tensor end = tensor_vector(data + sizeof values, OTT_I32, GROUPS);
        tensor to = tensor_matrix(data + sizeof values + 64, OTT_F32, GROUPS * M, N);
        grouped_gemm_weight_args args = {.a = &a, .b = &b, .end = &end, .c = &to};
        for (int exact = 0; exact < 2; exact++) {
            succeed(device_copy_in(cuda.device, end.data, ends, sizeof ends));
            succeed(device_copy_in(cuda.device, to.data, sums[exact], sizeof sums[exact]));
            assert_int_equal(launch_weight(&args, exact), cudaSuccess);
            succeed(device_copy_out(cuda.device, sums[exact], to.data, sizeof sums[exact]));
        }
        assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_all, close_all)

int main(int count, char **arguments) {
    const struct CMUnitTest tests[] = {
        TEST(products_have_the_references_bits),
        TEST(grouped_products_have_the_references_bits),
        TEST(every_code_has_its_value),
        TEST(groups_begin_anywhere),
    };
    if (count > 1) cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
