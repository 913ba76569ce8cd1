/*
 * fp8/tensorcore: compares the model with dot products that were measured on GPUs, if their files are
 * available, and tests cases that the measurements do not cover. The files are in the folder OTTAVA_SHARED,
 * or in ../shared next to the project. gzip unpacks them.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/rng.h"
#include "fp8/tensorcore.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PRODUCTS = 32, MEASURED_ROWS = 5000 };

/* ---- measured on an H200 ---- */

static const char *measured_path(char *out, size_t size, const char *format, const char *file) {
    const char *shared = getenv("OTTAVA_SHARED");
    snprintf(out, size, "%s/data/tensorcore/%s/%s.txt.gz", shared ? shared : TEST_SOURCE_DIR "/../shared",
             format, file);
    return out;
}

static FILE *open_measured(const char *format, const char *file) {
    char path[1024], command[1100];
    snprintf(command, sizeof command, "gzip -dc '%s'", measured_path(path, sizeof path, format, file));
    FILE *stream = popen(command, "r");
    assert_non_null(stream);
    return stream;
}

/* Reads one row of operands: fp32 numbers in hexadecimal, which the format represents exactly. */
static void read_codes(FILE *stream, ott_dtype d, uint8_t codes[PRODUCTS]) {
    for (int i = 0; i < PRODUCTS; i++) {
        uint32_t bits;
        assert_int_equal(fscanf(stream, "%x", &bits), 1);
        codes[i] = cast_to_fp8(fmath_from_bits(bits), d, CAST_SATURATE);
        assert_int_equal(fmath_bits(cast_from_fp8(codes[i], d)), bits);
    }
}

/* Reads one result: 32 binary digits. */
static uint32_t read_binary(FILE *stream) {
    char digits[40];
    assert_int_equal(fscanf(stream, "%39s", digits), 1);
    return (uint32_t)strtoul(digits, NULL, 2);
}

static void compare_with_measured(const char *format, ott_dtype d) {
    char path[1024];
    if (access(measured_path(path, sizeof path, format, "d"), R_OK) != 0) {
        print_message("SKIPPED: the measured dot products are missing: %s (set OTTAVA_SHARED)\n", path);
        skip();
    }
    FILE *left = open_measured(format, "a"), *right = open_measured(format, "b"),
         *result = open_measured(format, "d");
    int same = 0;
    for (int row = 0; row < MEASURED_ROWS; row++) {
        uint8_t a[PRODUCTS], b[PRODUCTS];
        read_codes(left, d, a);
        read_codes(right, d, b);
        same += fmath_bits(tensorcore_fp8_step(a, d, b, d, PRODUCTS, 0.0f)) == read_binary(result);
    }
    pclose(left);
    pclose(right);
    pclose(result);
    print_message("%s: %d of %d measured dot products\n", format, same, MEASURED_ROWS);
    assert_int_equal(same, MEASURED_ROWS);
}

static void e4m3_equals_the_measured(void **state) {
    (void)state;
    compare_with_measured("E4M3", OTT_E4M3);
}

static void e5m2_equals_the_measured(void **state) {
    (void)state;
    compare_with_measured("E5M2", OTT_E5M2);
}

/* ---- hand-made cases, from the rule instead of measurements ---- */

/* Up to four products a * b, which are added to the accumulator. All a and b are exact in format d. */
typedef struct step_case {
    const char *what;
    ott_dtype d;
    float a[4], b[4];
    float accumulator, expected;
} step_case;

static const step_case step_cases[] = {
    /* A subnormal has the format's smallest exponent: 2^-9 has exponent -6. So the product 2^-9 * 2^8 = 0.5
       has exponent 2. All terms are aligned to this exponent. Their last bit is then 2^-11, so the term 2^-12
       is lost. With exponent -1, which 0.5 normally has, 2^-12 would be kept. */
    {"e4m3 emin clamp", OTT_E4M3, {0x1p-9f, 0x1p-6f}, {0x1p8f, 0x1p-6f}, 0.0f, 0.5f},
    {"e4m3 without the clamp", OTT_E4M3, {0x1p-6f, 0x1p-6f}, {0x1p5f, 0x1p-6f}, 0.0f, 0x1.002p-1f},
    {"e5m2 emin clamp", OTT_E5M2, {0x1p-16f, 0x1p-6f}, {0x1p15f, 0x1p-7f}, 0.0f, 0.5f},
    {"e5m2 without the clamp", OTT_E5M2, {0x1p-14f, 0x1p-6f}, {0x1p13f, 0x1p-7f}, 0.0f, 0x1.001p-1f},
    /* The accumulator's exponent is at least -126. So the last bit of an aligned term is at least 2^-139. */
    {"fp32 emin clamp loses", OTT_E4M3, {0}, {0}, 0x1p-140f, 0.0f},
    {"fp32 emin clamp keeps", OTT_E4M3, {0}, {0}, 0x1.8p-138f, 0x1.8p-138f},
    {"fp32 emin clamp truncates", OTT_E4M3, {0}, {0}, -0x1.9p-138f, -0x1.8p-138f},
    /* In the model, terms are aligned to an exponent of at least -133. This limit has no effect: products and
       accumulators have larger exponents. */
    {"exponent floor, accumulator", OTT_E4M3, {0}, {0}, 0x1p-139f, 0x1p-139f},
    {"exponent floor, product", OTT_E5M2, {0x1p-16f}, {0x1p-16f}, 0.0f, 0x1p-32f},
    /* A sum that is zero is always +0. */
    {"zero without products", OTT_E4M3, {0}, {0}, 0.0f, 0.0f},
    {"zero of negative zeros", OTT_E4M3, {-0.0f, -0.0f}, {1.0f, 448.0f}, -0.0f, 0.0f},
    {"zero of cancellation", OTT_E4M3, {3.5f, -3.5f}, {2.0f, 2.0f}, 0.0f, 0.0f},
    {"zero of cancellation with the accumulator", OTT_E5M2, {1.0f}, {1.0f}, -1.0f, 0.0f},
    {"zero of a truncated remainder", OTT_E4M3, {1.0f, -1.0f, 0x1p-7f}, {1.0f, 1.0f, 0x1p-7f}, 0.0f, 0.0f},
    /* Each term is truncated towards zero. This includes negative terms and the accumulator. */
    {"terms below the grid vanish", OTT_E4M3, {1.0f, 0x1p-7f, 0x1p-7f}, {1.0f, 0x1p-7f, 0x1p-7f}, 0.0f, 1.0f},
    {"negative terms below the grid vanish", OTT_E4M3, {1.0f, -0x1p-7f}, {1.0f, 0x1p-7f}, 0.0f, 1.0f},
    {"a term on the grid stays", OTT_E4M3, {1.0f, 0x1p-6f}, {1.0f, 0x1p-7f}, 0.0f, 0x1.0008p0f},
    {"the accumulator is truncated", OTT_E4M3, {0}, {0}, 0x1.00fffep0f, 0x1.00f8p0f},
    {"a small accumulator is aligned", OTT_E4M3, {1.0f}, {1.0f}, 0x1.8p-12f, 0x1.0018p0f},
    {"a small accumulator is truncated towards zero", OTT_E4M3, {0}, {0}, -0x1.00fffep0f, -0x1.00f8p0f},
    /* Products are not normalized before they are aligned. 1.75 * 1.75 = 3.0625 has exponent 0, not 1, so its
       last bit is 2^-13. */
    {"an unnormalised product",
     OTT_E4M3,
     {1.75f, 0x1p-6f, -1.0f},
     {1.75f, 0x1p-7f, 1.0f},
     -1.0625f,
     0x1.0008p0f},
    /* The result has 13 bits after its leading one, so 2 + 2^-13 is truncated. */
    {"the result is truncated", OTT_E4M3, {1.0f, 1.0f, 0x1p-6f}, {1.0f, 1.0f, 0x1p-7f}, 0.0f, 2.0f},
    {"the negative result is truncated towards zero",
     OTT_E4M3,
     {-1.0f, -1.0f, -0x1p-6f},
     {1.0f, 1.0f, 0x1p-7f},
     0.0f,
     -2.0f},
    {"a small term against a large accumulator", OTT_E5M2, {57344.0f}, {57344.0f}, 0x1p100f, 0x1p100f},
    {"the largest accumulator stays finite", OTT_E5M2, {57344.0f}, {57344.0f}, 0x1.fff8p127f, 0x1.fff8p127f},
    /* Infinity and NaN follow IEEE's rules. */
    {"infinity", OTT_E5M2, {INFINITY, 1.0f}, {2.0f, 1.0f}, 0.0f, INFINITY},
    {"minus infinity", OTT_E5M2, {INFINITY, 1.0f}, {-2.0f, 1.0f}, 0.0f, -INFINITY},
    {"infinity times zero", OTT_E5M2, {INFINITY}, {0.0f}, 0.0f, NAN},
    {"infinity minus infinity", OTT_E5M2, {INFINITY, -INFINITY}, {1.0f, 1.0f}, 0.0f, NAN},
    {"an infinite accumulator", OTT_E4M3, {1.0f}, {1.0f}, -INFINITY, -INFINITY},
    {"infinity against the accumulator", OTT_E5M2, {INFINITY}, {1.0f}, -INFINITY, NAN},
    {"e4m3 NaN", OTT_E4M3, {NAN, 1.0f}, {0.0f, 1.0f}, 0.0f, NAN},
    {"e5m2 NaN", OTT_E5M2, {1.0f, 1.0f}, {1.0f, NAN}, 0.0f, NAN},
    {"a NaN accumulator", OTT_E4M3, {1.0f}, {1.0f}, NAN, NAN},
};

static void cases_of_the_rule(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof step_cases / sizeof step_cases[0]; i++) {
        const step_case *c = &step_cases[i];
        uint8_t a[4], b[4];
        for (int j = 0; j < 4; j++) {
            a[j] = cast_to_fp8(c->a[j], c->d, CAST_OVERFLOW);
            b[j] = cast_to_fp8(c->b[j], c->d, CAST_OVERFLOW);
            assert_true(isnan(c->a[j]) || cast_from_fp8(a[j], c->d) == c->a[j]);
            assert_true(isnan(c->b[j]) || cast_from_fp8(b[j], c->d) == c->b[j]);
        }
        float result = tensorcore_fp8_step(a, c->d, b, c->d, 4, c->accumulator);
        bool same = isnan(c->expected) ? isnan(result) : fmath_bits(result) == fmath_bits(c->expected);
        if (!same) fail_msg("%s: %a, expected %a", c->what, (double)result, (double)c->expected);
    }
}

static void formats_may_be_mixed(void **state) {
    (void)state;
    /* a is E5M2, as gradients are (2 fraction bits); b is E4M3, as weights are (3 fraction bits) */
    const uint8_t a[] = {cast_to_e5m2(1.75f, CAST_OVERFLOW), cast_to_e5m2(-40960.0f, CAST_OVERFLOW)};
    const uint8_t b[] = {cast_to_e4m3(1.875f, CAST_OVERFLOW), cast_to_e4m3(0x1p-9f, CAST_OVERFLOW)};
    assert_true(tensorcore_fp8_step(a, OTT_E5M2, b, OTT_E4M3, 1, 0.0f) == 3.28125f);
    assert_true(tensorcore_fp8_step(b, OTT_E4M3, a, OTT_E5M2, 1, 0.0f) == 3.28125f);
    assert_true(tensorcore_fp8_step(a + 1, OTT_E5M2, b + 1, OTT_E4M3, 1, 0.0f) == -80.0f);
}

/* Sums that fit into 13 bits, such as sums of small integers, are exact. */
static void exact_sums_stay_exact(void **state) {
    (void)state;
    for (uint32_t trial = 0; trial < 200; trial++) {
        uint8_t a[PRODUCTS], b[PRODUCTS];
        int sum = 0;
        for (uint32_t i = 0; i < PRODUCTS; i++) {
            int x = (int)(rng_u32(7, trial, 2 * i) % 17) - 8,
                y = (int)(rng_u32(7, trial, 2 * i + 1) % 17) - 8;
            a[i] = cast_to_e4m3((float)x, CAST_SATURATE);
            b[i] = cast_to_e4m3((float)y, CAST_SATURATE);
            sum += x * y;
        }
        assert_true(tensorcore_fp8_step(a, OTT_E4M3, b, OTT_E4M3, PRODUCTS, 0.0f) == (float)sum);
    }
}

/* ---- full dot products ---- */

/* A product 2^-14 is lost if it is added to an accumulator of 1. The sum 2^-7 of 128 such products in another
   accumulator is kept. */
static void split_keeps_what_fast_loses(void **state) {
    (void)state;
    uint8_t a[256];
    for (int i = 0; i < 256; i++) a[i] = cast_to_e4m3(0x1p-7f, CAST_SATURATE);
    a[0] = cast_to_e4m3(1.0f, CAST_SATURATE);
    assert_true(tensorcore_fp8_dot_fast(a, OTT_E4M3, a, OTT_E4M3, 256) == 1.0f);
    assert_true(tensorcore_fp8_dot_split(a, OTT_E4M3, a, OTT_E4M3, 256) == 1.0f + 0x1p-7f);
    assert_true(tensorcore_fp8_dot_split(a, OTT_E4M3, a, OTT_E4M3, 128) == 1.0f);
    assert_true(tensorcore_fp8_dot_split(a, OTT_E4M3, a, OTT_E4M3, 129) == 1.0f + 0x1p-14f);
}

static void dots_are_chains_of_steps(void **state) {
    (void)state;
    enum { K = 300 };
    uint8_t a[K], b[K];
    for (uint32_t i = 0; i < K; i++) {
        a[i] = cast_to_e5m2(rng_normal(11, 0, i), CAST_SATURATE);
        b[i] = cast_to_e4m3(rng_normal(11, 1, i), CAST_SATURATE);
    }
    for (int k = 0; k <= K; k++) {
        float fast = 0.0f, split = 0.0f;
        for (int i = 0; i < k; i += 32)
            fast = tensorcore_fp8_step(a + i, OTT_E5M2, b + i, OTT_E4M3, k - i < 32 ? k - i : 32, fast);
        for (int i = 0; i < k; i += 128)
            split += tensorcore_fp8_dot_fast(a + i, OTT_E5M2, b + i, OTT_E4M3, k - i < 128 ? k - i : 128);
        assert_int_equal(fmath_bits(tensorcore_fp8_dot_fast(a, OTT_E5M2, b, OTT_E4M3, k)), fmath_bits(fast));
        assert_int_equal(fmath_bits(tensorcore_fp8_dot_split(a, OTT_E5M2, b, OTT_E4M3, k)),
                         fmath_bits(split));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(e4m3_equals_the_measured), cmocka_unit_test(e5m2_equals_the_measured),
        cmocka_unit_test(cases_of_the_rule),        cmocka_unit_test(formats_may_be_mixed),
        cmocka_unit_test(exact_sums_stay_exact),    cmocka_unit_test(split_keeps_what_fast_loses),
        cmocka_unit_test(dots_are_chains_of_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
