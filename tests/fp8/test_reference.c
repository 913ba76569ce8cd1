/* fp8/reference: tests small cases with known results, compares layouts with each other, and compares the
   quality of casts with theory. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/rng.h"
#include "fp8/reference.h"
#include "fp8/tensorcore.h"
#include <stdlib.h>

static const gemm_spec plain = {.accumulate = ACCUMULATE_FP32, .order = SCALE_PRODUCT};

static cast_spec use(ott_dtype d, granularity grain, bool pow2) {
    return (cast_spec){.format = d, .grain = grain, .scale = {.rule = SCALE_TORCHAO, .power_of_two = pow2}};
}

static void fill_normal(float *x, int64_t count, uint64_t stream) {
    for (int64_t i = 0; i < count; i++) x[i] = rng_normal(42, stream, (uint64_t)i);
}

static void assert_same_bits(float a, float b) {
    if (isnan(a) && isnan(b)) return;
    if (fmath_bits(a) != fmath_bits(b)) fail_msg("%a, expected %a", (double)a, (double)b);
}

/* ---- amax ---- */

static void amax_is_the_largest_magnitude(void **state) {
    (void)state;
    /* leading dimension 4, 3 columns: the last number of each row is padding */
    const float x[] = {1.0f, -7.0f, 3.0f, NAN, -0.0f, 2.0f, -4.0f, INFINITY};
    float by_row[2], by_column[3];
    assert_same_bits(reference_amax(x, OTT_F32, 2, 3, 4), 7.0f);
    reference_amax_rows(x, OTT_F32, 2, 3, 4, by_row);
    reference_amax_columns(x, OTT_F32, 2, 3, 4, by_column);
    assert_same_bits(by_row[0], 7.0f);
    assert_same_bits(by_row[1], 4.0f);
    assert_same_bits(by_column[0], 1.0f);
    assert_same_bits(by_column[1], 7.0f);
    assert_same_bits(by_column[2], 4.0f);
}

static void amax_keeps_nan_and_infinity(void **state) {
    (void)state;
    float x[] = {1.0f, NAN, -INFINITY, 2.0f, 5.0f, 6.0f};
    float by_row[2], by_column[3];
    assert_true(isnan(reference_amax(x, OTT_F32, 2, 3, 3)));
    reference_amax_rows(x, OTT_F32, 2, 3, 3, by_row);
    reference_amax_columns(x, OTT_F32, 2, 3, 3, by_column);
    assert_true(isnan(by_row[0]));
    assert_same_bits(by_row[1], 6.0f);
    assert_true(isnan(by_column[1]));
    assert_same_bits(by_column[2], INFINITY);
    for (int i = 0; i < 6; i++) { /* a NaN at each position, one after the other */
        float y[] = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f};
        y[i] = NAN;
        assert_true(isnan(reference_amax(y, OTT_F32, 2, 3, 3)));
    }
}

static void amax_of_nothing_is_zero(void **state) {
    (void)state;
    float x = 3.0f, amaxes[3] = {9.0f, 9.0f, 9.0f};
    assert_same_bits(reference_amax(&x, OTT_F32, 0, 3, 3), 0.0f);
    assert_same_bits(reference_amax(&x, OTT_F32, 3, 0, 0), 0.0f);
    reference_amax_columns(&x, OTT_F32, 0, 3, 3, amaxes);
    for (int i = 0; i < 3; i++) assert_same_bits(amaxes[i], 0.0f);
}

static void amax_reads_every_format(void **state) {
    (void)state;
    const ott_dtype formats[] = {OTT_F32, OTT_BF16, OTT_F16};
    for (int f = 0; f < 3; f++) {
        _Alignas(8) uint8_t data[4 * 4];
        const float values[] = {0.5f, -3.0f, 2.0f, 1.0f};
        for (int i = 0; i < 4; i++) cast_store(data, formats[f], i, values[i]);
        assert_same_bits(reference_amax(data, formats[f], 2, 2, 2), 3.0f);
    }
}

/* ---- quantize ---- */

static void quantize_by_hand(void **state) {
    (void)state;
    const float x[] = {1.0f, -2.0f, /**/ 0.5f, 4.0f};
    float amax[2], scale[2], scale_inv[2];
    uint8_t codes[4];

    cast_spec s = use(OTT_E4M3, GRANULARITY_TENSOR, false);
    reference_quantize(x, OTT_F32, 2, 2, 2, &s, false, amax, scale, scale_inv, codes);
    assert_same_bits(amax[0], 4.0f);
    assert_same_bits(scale[0], 112.0f);
    assert_same_bits(scale_inv[0], 1.0f / 112.0f);
    const float tensorwise[] = {112.0f, -224.0f, 56.0f, 448.0f};
    for (int i = 0; i < 4; i++) assert_same_bits(cast_from_e4m3(codes[i]), tensorwise[i]);

    s = use(OTT_E4M3, GRANULARITY_ROW, true);
    reference_quantize(x, OTT_F32, 2, 2, 2, &s, false, amax, scale, scale_inv, codes);
    const float by_row[] = {128.0f, -256.0f, 32.0f, 256.0f}; /* scales 224 and 112 become 2^7 and 2^6 */
    for (int i = 0; i < 4; i++) assert_same_bits(cast_from_e4m3(codes[i]), by_row[i]);
    assert_same_bits(scale_inv[1], 0x1p-6f);

    reference_quantize(x, OTT_F32, 2, 2, 2, &s, true, amax, scale, scale_inv, codes);
    const float by_column[] = {256.0f, -128.0f, 128.0f, 256.0f}; /* scales 448 and 112 become 2^8 and 2^6 */
    for (int i = 0; i < 4; i++) assert_same_bits(cast_from_e4m3(codes[i]), by_column[i]);
    assert_same_bits(amax[0], 1.0f);
    assert_same_bits(amax[1], 4.0f);
}

/* The columnwise copy of a matrix has the codes of the rowwise copy of its transpose. */
static void columns_are_rows_of_the_transpose(void **state) {
    (void)state;
    enum { M = 13, N = 7, LD = 9 };
    uint16_t x[M * LD], t[N * M];
    for (int i = 0; i < M * LD; i++)
        x[i] = cast_to_bf16(rng_normal(1, 1, (uint64_t)i) * expf((float)(i % 11)));
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) t[j * M + i] = x[i * LD + j];
    const granularity grains[] = {GRANULARITY_TENSOR, GRANULARITY_ROW};
    for (int g = 0; g < 2; g++) {
        cast_spec s = use(OTT_E5M2, grains[g], g == 0);
        float amax[2][M], scale[2][M], scale_inv[2][M];
        uint8_t codes[2][M * N];
        reference_quantize(x, OTT_BF16, M, N, LD, &s, true, amax[0], scale[0], scale_inv[0], codes[0]);
        reference_quantize(t, OTT_BF16, N, M, M, &s, false, amax[1], scale[1], scale_inv[1], codes[1]);
        for (int j = 0; j < (g == 0 ? 1 : N); j++) {
            assert_same_bits(amax[0][j], amax[1][j]);
            assert_same_bits(scale[0][j], scale[1][j]);
            assert_same_bits(scale_inv[0][j], scale_inv[1][j]);
        }
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) assert_int_equal(codes[0][i * N + j], codes[1][j * M + i]);
    }
}

/* Under torchao's rules zeros stay zeros, and NaN and infinity affect only their own row. */
static void quantize_special_rows(void **state) {
    (void)state;
    const float x[] = {0.0f,      -0.0f,     0.0f,  /**/ 1.0f, NAN,  2.0f,
                       /**/ 1.0f, -INFINITY, -2.0f, /**/ 1.0f, 2.0f, -4.0f};
    const uint8_t expected[] = {0x00,      0x80, 0x00, /**/ 0x7f, 0x7f, 0x7f,
                                /**/ 0x00, 0x7f, 0x80, /**/ 0x6e, 0x76, 0xfe};
    float amax[4], scale[4], scale_inv[4];
    uint8_t codes[12];
    cast_spec s = use(OTT_E4M3, GRANULARITY_ROW, false);
    reference_quantize(x, OTT_F32, 4, 3, 3, &s, false, amax, scale, scale_inv, codes);
    assert_memory_equal(codes, expected, sizeof codes);
    assert_same_bits(scale[0], (float)4.48e14);
    assert_true(isnan(scale[1]) && isnan(scale_inv[1]));
    assert_true(scale[2] == 0.0f && scale_inv[2] == INFINITY);
}

static void quantize_follows_the_cast_mode(void **state) {
    (void)state;
    const float x[] = {500.0f, -INFINITY};
    float amax, scale, scale_inv;
    uint8_t codes[2];
    cast_spec s = {.format = OTT_E4M3, .grain = GRANULARITY_TENSOR, .scale = {.rule = SCALE_NONE}};
    reference_quantize(x, OTT_F32, 1, 2, 2, &s, false, &amax, &scale, &scale_inv, codes);
    assert_true(codes[0] == 0x7e && codes[1] == 0xfe && scale == 1.0f);
    s.mode = CAST_OVERFLOW;
    reference_quantize(x, OTT_F32, 1, 2, 2, &s, false, &amax, &scale, &scale_inv, codes);
    assert_true(codes[0] == 0x7f && codes[1] == 0xff);
}

static void quantize_of_nothing(void **state) {
    (void)state;
    float amax = 9.0f, scale = 9.0f, scale_inv = 9.0f;
    uint8_t code = 77;
    cast_spec s = use(OTT_E4M3, GRANULARITY_TENSOR, false);
    reference_quantize(&amax, OTT_F32, 0, 5, 5, &s, false, &amax, &scale, &scale_inv, &code);
    assert_same_bits(amax, 0.0f);
    assert_same_bits(scale, (float)4.48e14);
    assert_int_equal(code, 77);
}

/* ---- GEMM ---- */

/* Multiplies matrices of small integers. Sums are exact in any order, so every layout must give the integer
   product. */
static void gemm_in_every_layout(void **state) {
    (void)state;
    enum { M = 3, N = 4, K = 5 };
    float a[M][K], at[K][M], b[N][K], bt[K][N];
    for (int i = 0; i < M; i++)
        for (int k = 0; k < K; k++) a[i][k] = at[k][i] = (float)(i - k);
    for (int j = 0; j < N; j++)
        for (int k = 0; k < K; k++) b[j][k] = bt[k][j] = (float)(2 * j + k - 3);
    for (int layout = 0; layout < 4; layout++) {
        bool ta = layout & 1, tb = layout & 2;
        reference_operand left = {
            ta ? (void *)at : (void *)a, OTT_F32, ta ? M : K, ta, GRANULARITY_TENSOR, NULL, 1, 0, {0}};
        reference_operand right = {
            tb ? (void *)bt : (void *)b, OTT_F32, tb ? N : K, tb, GRANULARITY_TENSOR, NULL, 1, 0, {0}};
        float c[M][N + 2]; /* the leading dimension exceeds N */
        reference_gemm(M, N, K, &left, &right, &plain, NULL, false, c, OTT_F32, N + 2);
        for (int i = 0; i < M; i++) {
            for (int j = 0; j < N; j++) {
                float expected = 0.0f;
                for (int k = 0; k < K; k++) expected += a[i][k] * b[j][k];
                assert_same_bits(c[i][j], expected);
            }
        }
    }
}

static float dot(const float *a, const float *b, int64_t k) {
    reference_operand left = {a, OTT_F32, k, false, GRANULARITY_TENSOR, NULL, 1, 0, {0}},
                      right = {b, OTT_F32, k, false, GRANULARITY_TENSOR, NULL, 1, 0, {0}};
    float c = 77.0f;
    reference_gemm(1, 1, k, &left, &right, &plain, NULL, false, &c, OTT_F32, 1);
    return c;
}

static void gemm_is_one_fused_ascending_chain(void **state) {
    (void)state;
    const float one[] = {1.0f, 1.0f, 1.0f};
    /* 2^24 + 1 is a tie that rounds to 2^24, so both ones are lost. Adding the ones first gives 2^24 + 2. */
    const float ascending[] = {0x1p24f, 1.0f, 1.0f}, descending[] = {1.0f, 1.0f, 0x1p24f};
    assert_same_bits(dot(ascending, one, 3), 0x1p24f);
    assert_same_bits(dot(descending, one, 3), 0x1p24f + 2.0f);
    /* (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24 only if the product is not rounded before the addition. */
    const float x[] = {1.0f + 0x1p-11f, 1.0f + 0x1p-12f}, y[] = {-1.0f, 1.0f + 0x1p-12f};
    assert_same_bits(dot(x, y, 2), 0x1p-24f);
    assert_same_bits(dot(x, y, 0), 0.0f);
}

static void gemm_applies_scales_in_order(void **state) {
    (void)state;
    const float three = 3.0f, one = 1.0f, large = 0x1p100f, third = 1.0f / 3.0f;
    const struct {
        const float *scale_inv_a, *scale_inv_b;
        scale_order order;
        float expected;
    } rows[] = {
        {NULL, NULL, SCALE_PRODUCT, 3.0f},
        {&third, NULL, SCALE_PRODUCT, 3.0f * (1.0f / 3.0f)},
        {NULL, &third, SCALE_A_THEN_B, 3.0f * (1.0f / 3.0f)},
        {&large, &large, SCALE_PRODUCT, INFINITY},
        {&large, &third, SCALE_A_THEN_B, (3.0f * 0x1p100f) * (1.0f / 3.0f)},
        {&third, &third, SCALE_PRODUCT, 3.0f * ((1.0f / 3.0f) * (1.0f / 3.0f))},
        {&third, &third, SCALE_A_THEN_B, (3.0f * (1.0f / 3.0f)) * (1.0f / 3.0f)},
    };
    /* so the two orders of scaling have different results */
    assert_true(3.0f * (third * third) != (3.0f * third) * third);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        reference_operand left = {&three, OTT_F32, 1,  false, GRANULARITY_TENSOR, rows[i].scale_inv_a,
                                  1,      0,       {0}};
        reference_operand right = {&one, OTT_F32, 1, false, GRANULARITY_ROW, rows[i].scale_inv_b, 1, 0, {0}};
        gemm_spec spec = {.order = rows[i].order};
        float c;
        reference_gemm(1, 1, 1, &left, &right, &spec, NULL, false, &c, OTT_F32, 1);
        assert_same_bits(c, rows[i].expected);
    }
}

static void gemm_scales_rows(void **state) {
    (void)state;
    const float ones[] = {1.0f, 1.0f, 1.0f}, by_line[] = {2.0f, 4.0f}, tensor = 16.0f;
    reference_operand left = {ones, OTT_F32, 1, false, GRANULARITY_ROW, by_line, 1, 0, {0}};
    reference_operand right = {ones, OTT_F32, 1, false, GRANULARITY_TENSOR, &tensor, 1, 0, {0}};
    float c[6];
    reference_gemm(2, 3, 1, &left, &right, &plain, NULL, false, c, OTT_F32, 3);
    for (int i = 0; i < 6; i++) assert_same_bits(c[i], i < 3 ? 32.0f : 64.0f);
    reference_gemm(3, 2, 1, &right, &left, &plain, NULL, false, c, OTT_F32, 2);
    for (int i = 0; i < 6; i++) assert_same_bits(c[i], i % 2 == 0 ? 32.0f : 64.0f);
}

/* Tests that bias, then C, are added in fp32, and that the result is rounded once to the format of C. */
static void gemm_adds_bias_then_c(void **state) {
    (void)state;
    const float one = 1.0f, big = 0x1p24f, bias = 1.0f;
    reference_operand left = {&big, OTT_F32, 1, false, GRANULARITY_TENSOR, NULL, 1, 0, {0}},
                      right = {&one, OTT_F32, 1, false, GRANULARITY_TENSOR, NULL, 1, 0, {0}};
    float c = 1.0f;
    reference_gemm(1, 1, 1, &left, &right, &plain, &bias, true, &c, OTT_F32, 1);
    assert_same_bits(c, 0x1p24f); /* with the bias 1 and with c = 1: 2^24 + 1 is a tie that rounds to 2^24 */
    c = 5.0f;
    reference_gemm(1, 1, 1, &left, &right, &plain, NULL, false, &c, OTT_F32, 1);
    assert_same_bits(c, 0x1p24f);

    uint16_t h = cast_to_bf16(-2.0f);
    const float x = 1.0f + 0x1p-8f;
    left.data = &x;
    reference_gemm(1, 1, 1, &left, &right, &plain, &bias, true, &h, OTT_BF16, 1);
    assert_int_equal(h, cast_to_bf16(0x1p-8f)); /* rounding 1 + 2^-8 to bf16 first would have given 0 */
}

static void gemm_of_nothing_is_the_bias(void **state) {
    (void)state;
    const float bias[] = {1.5f, -2.5f};
    reference_operand none = {bias, OTT_F32, 0, false, GRANULARITY_TENSOR, NULL, 1, 0, {0}};
    float c[2] = {1.0f, 1.0f};
    reference_gemm(1, 2, 0, &none, &none, &plain, bias, true, c, OTT_F32, 2);
    assert_same_bits(c[0], 2.5f);
    assert_same_bits(c[1], -1.5f);
}

static void gemm_nan_is_canonical_in_narrow_results(void **state) {
    (void)state;
    const float nan = fmath_from_bits(0xffc12345), one = 1.0f;
    reference_operand left = {&nan, OTT_F32, 1, false, GRANULARITY_TENSOR, NULL, 1, 0, {0}},
                      right = {&one, OTT_F32, 1, false, GRANULARITY_TENSOR, NULL, 1, 0, {0}};
    uint16_t h = 0;
    reference_gemm(1, 1, 1, &left, &right, &plain, NULL, false, &h, OTT_BF16, 1);
    assert_int_equal(h, 0x7fff);
    reference_gemm(1, 1, 1, &left, &right, &plain, NULL, false, &h, OTT_F16, 1);
    assert_int_equal(h, 0x7fff);
}

static void gemm_with_the_tensor_core_rule(void **state) {
    (void)state;
    enum { M = 3, N = 2, K = 300 };
    uint8_t a[M][K], at[K][M], b[N][K], bt[K][N];
    for (int k = 0; k < K; k++) {
        for (int i = 0; i < M; i++)
            a[i][k] = at[k][i] = cast_to_e5m2(rng_normal(8, (uint64_t)i, (uint64_t)k), CAST_SATURATE);
        for (int j = 0; j < N; j++)
            b[j][k] = bt[k][j] = cast_to_e4m3(rng_normal(9, (uint64_t)j, (uint64_t)k), CAST_SATURATE);
    }
    const int lengths[] = {0, 1, 32, 33, 128, 129, 256, 300};
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
        for (int variant = 0; variant < 4; variant++) {
            bool transposed = variant & 1, split = variant & 2;
            reference_operand left = {transposed ? (void *)at : (void *)a,
                                      OTT_E5M2,
                                      transposed ? M : K,
                                      transposed,
                                      GRANULARITY_TENSOR,
                                      NULL,
                                      1,
                                      0,
                                      {0}};
            reference_operand right = {transposed ? (void *)bt : (void *)b,
                                       OTT_E4M3,
                                       transposed ? N : K,
                                       transposed,
                                       GRANULARITY_TENSOR,
                                       NULL,
                                       1,
                                       0,
                                       {0}};
            gemm_spec spec = {.accumulate = split ? ACCUMULATE_HOPPER_SPLIT : ACCUMULATE_HOPPER_FAST};
            float c[M][N];
            reference_gemm(M, N, lengths[l], &left, &right, &spec, NULL, false, c, OTT_F32, N);
            for (int i = 0; i < M; i++) {
                for (int j = 0; j < N; j++) {
                    float fast = tensorcore_fp8_dot_fast(a[i], OTT_E5M2, b[j], OTT_E4M3, lengths[l]);
                    float parts = tensorcore_fp8_dot_split(a[i], OTT_E5M2, b[j], OTT_E4M3, lengths[l]);
                    assert_same_bits(c[i][j], split ? parts : fast);
                }
            }
        }
    }
}

/* A second implementation of tile32, as Intel documents TDPBF16PS: C = C + (even + odd). even is the sum of a
   tile's even terms, odd the sum of its odd terms, both added one by one. */
static float tile32_sum(const float *a, const float *b, int64_t k) {
    float sum = 0.0f;
    for (int64_t tile = 0; tile < k; tile += 32) {
        float part[2] = {0.0f, 0.0f};
        for (int64_t t = tile; t < tile + 32 && t < k; t++) part[t % 2] = fmaf(a[t], b[t], part[t % 2]);
        sum = sum + (part[0] + part[1]);
    }
    return sum;
}

static void gemm_in_tiles_of_32(void **state) {
    (void)state;
    enum { K = 200 };
    const int64_t lengths[] = {0, 1, 2, 31, 32, 33, 64, 65, 199, 200};
    float a[K], b[K], c, one = 1.0f;
    int differ = 0;
    fill_normal(a, K, 21);
    fill_normal(b, K, 22);
    const reference_operand left = {.data = a, .format = OTT_F32, .ld = K},
                            right = {.data = b, .format = OTT_F32, .ld = K};
    const gemm_spec tiles = {.accumulate = ACCUMULATE_TILE32}, chain = {.accumulate = ACCUMULATE_FP32};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        reference_gemm(1, 1, lengths[i], &left, &right, &tiles, NULL, false, &c, OTT_F32, 1);
        assert_same_bits(c, tile32_sum(a, b, lengths[i]));
        float sequential;
        reference_gemm(1, 1, lengths[i], &left, &right, &chain, NULL, false, &sequential, OTT_F32, 1);
        differ += fmath_bits(c) != fmath_bits(sequential);
    }
    assert_true(differ > 0);
    /* With block scales, the sum of each block begins with 0. */
    const reference_operand
        blocks_left = {.data = a, .format = OTT_F32, .ld = K, .grain = GRANULARITY_1X128, .scale_inv = &one},
        blocks_right = {.data = b, .format = OTT_F32, .ld = K, .grain = GRANULARITY_1X128, .scale_inv = &one};
    reference_gemm(1, 1, K, &blocks_left, &blocks_right, &tiles, NULL, false, &c, OTT_F32, 1);
    assert_same_bits(c, tile32_sum(a, b, 128) + tile32_sum(a + 128, b + 128, K - 128));
}

/* ---- quality ---- */

static double decibel(double signal, double noise) {
    return 10.0 * log10(signal / noise);
}

/* The SQNR of casts of N(0,1) numbers is 31.5 dB in E4M3 and 25.6 dB in E5M2 for every recipe, within the
   variation of samples. */
static void cast_quality(void **state) {
    (void)state;
    enum { M = 128, K = 512 };
    float *x = malloc(sizeof(float) * M * K), amax[M], scale[M], scale_inv[M];
    uint8_t *codes = malloc(M * K);
    fill_normal(x, M * K, 1);
    const struct {
        cast_spec spec;
        double expected;
    } rows[] = {{use(OTT_E4M3, GRANULARITY_TENSOR, false), 31.5},
                {use(OTT_E4M3, GRANULARITY_ROW, true), 31.5},
                {use(OTT_E5M2, GRANULARITY_TENSOR, false), 25.6}};
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        reference_quantize(x, OTT_F32, M, K, K, &rows[r].spec, false, amax, scale, scale_inv, codes);
        double signal = 0, noise = 0;
        for (int i = 0; i < M * K; i++) {
            int group = rows[r].spec.grain == GRANULARITY_ROW ? i / K : 0;
            double error =
                (double)(cast_from_fp8(codes[i], rows[r].spec.format) * scale_inv[group]) - (double)x[i];
            signal += (double)x[i] * (double)x[i];
            noise += error * error;
        }
        assert_true(fabs(decibel(signal, noise) - rows[r].expected) < 0.3);
    }
    free(x);
    free(codes);
}

typedef struct quantized {
    uint8_t *codes;
    float *amax, *scale, *scale_inv;
} quantized;

static reference_operand quantize_operand(const float *x, int64_t rows, int64_t k, const cast_spec *s,
                                          quantized *q) {
    q->codes = malloc((size_t)(rows * k));
    q->amax = malloc(sizeof(float) * 3 * (size_t)rows);
    q->scale = q->amax + rows;
    q->scale_inv = q->scale + rows;
    reference_quantize(x, OTT_F32, rows, k, k, s, false, q->amax, q->scale, q->scale_inv, q->codes);
    return (reference_operand){q->codes, s->format, k, false, s->grain, q->scale_inv, 1, 0, {0}};
}

/* Returns the SQNR of an FP8 GEMM of two N(0,1) matrices, relative to the same product in double. */
static double gemm_decibel(const cast_spec *left, const cast_spec *right) {
    enum { M = 48, N = 40, K = 512 };
    float *x = malloc(sizeof(float) * M * K), *w = malloc(sizeof(float) * N * K), c[M * N];
    fill_normal(x, M * K, 2);
    fill_normal(w, N * K, 3);
    quantized qx, qw;
    reference_operand a = quantize_operand(x, M, K, left, &qx), b = quantize_operand(w, N, K, right, &qw);
    reference_gemm(M, N, K, &a, &b, &plain, NULL, false, c, OTT_F32, N);
    double signal = 0, noise = 0;
    for (int i = 0; i < M; i++) {
        for (int j = 0; j < N; j++) {
            double exact = 0;
            for (int k = 0; k < K; k++) exact += (double)x[i * K + k] * (double)w[j * K + k];
            signal += exact * exact;
            noise += ((double)c[i * N + j] - exact) * ((double)c[i * N + j] - exact);
        }
    }
    free(qx.codes), free(qx.amax), free(qw.codes), free(qw.amax), free(x), free(w);
    return decibel(signal, noise);
}

/* The SQNR of products is 28.5 dB for E4M3 x E4M3 and 24.6 dB for E5M2 x E4M3. With 1920 outputs it varies by
   a few tenths. */
static void gemm_quality(void **state) {
    (void)state;
    cast_spec tensorwise = use(OTT_E4M3, GRANULARITY_TENSOR, false),
              gradient = use(OTT_E5M2, GRANULARITY_TENSOR, false);
    cast_spec rowwise = use(OTT_E4M3, GRANULARITY_ROW, true);
    assert_true(fabs(gemm_decibel(&tensorwise, &tensorwise) - 28.5) < 0.6);
    assert_true(fabs(gemm_decibel(&rowwise, &rowwise) - 28.5) < 0.6);
    assert_true(fabs(gemm_decibel(&rowwise, &tensorwise) - 28.5) < 0.6);
    assert_true(fabs(gemm_decibel(&gradient, &tensorwise) - 24.6) < 0.6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(amax_is_the_largest_magnitude),
        cmocka_unit_test(amax_keeps_nan_and_infinity),
        cmocka_unit_test(amax_of_nothing_is_zero),
        cmocka_unit_test(amax_reads_every_format),
        cmocka_unit_test(quantize_by_hand),
        cmocka_unit_test(columns_are_rows_of_the_transpose),
        cmocka_unit_test(quantize_special_rows),
        cmocka_unit_test(quantize_follows_the_cast_mode),
        cmocka_unit_test(quantize_of_nothing),
        cmocka_unit_test(gemm_in_every_layout),
        cmocka_unit_test(gemm_is_one_fused_ascending_chain),
        cmocka_unit_test(gemm_applies_scales_in_order),
        cmocka_unit_test(gemm_scales_rows),
        cmocka_unit_test(gemm_adds_bias_then_c),
        cmocka_unit_test(gemm_of_nothing_is_the_bias),
        cmocka_unit_test(gemm_nan_is_canonical_in_narrow_results),
        cmocka_unit_test(gemm_with_the_tensor_core_rule),
        cmocka_unit_test(gemm_in_tiles_of_32),
        cmocka_unit_test(cast_quality),
        cmocka_unit_test(gemm_quality),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
