/* fp8/scale: the tables of scales that TransformerEngine and torchao published, and torchao's division in
   double compared with Ottava's. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "fp8/cast.h"
#include "fp8/scale.h"
#include <float.h>

static const scale_options torchao = {.rule = SCALE_TORCHAO};
static const scale_options torchao_pow2 = {.rule = SCALE_TORCHAO, .power_of_two = true};
static const scale_options te = {.rule = SCALE_TE, .infinite = FLT_MAX};
static const scale_options te_pow2 = {.rule = SCALE_TE, .power_of_two = true, .infinite = FLT_MAX};

static void check_bits(float value, uint32_t expected, float amax) {
    if (fmath_bits(value) != expected)
        fail_msg("amax %a: %08x, expected %08x", (double)amax, fmath_bits(value), expected);
}

/* ---- TransformerEngine ---- */

/* Scales of chosen amaxes by compute_scale_from_amax (TransformerEngine) and by the MXFP8 rule. */
static void te_table(void **state) {
    (void)state;
    const struct {
        uint32_t amax, e4m3, e4m3_pow2, e5m2, e5m2_pow2;
        int mx;
    } rows[] = {
        {0x00000000, 0x3f800000, 0x3f800000, 0x3f800000, 0x3f800000, 0x00},
        {0x00000001, 0x7f7fffff, 0x7f000000, 0x7f7fffff, 0x7f000000, 0x00},
        {0x2b8cbccc, 0x57cbba10, 0x57800000, 0x5b4bba10, 0x5b000000, 0x4f}, /* amax 1e-12 */
        {0x38d1b717, 0x4a88b800, 0x4a800000, 0x4e08b800, 0x4e000000, 0x69}, /* amax 1e-4 */
        {0x3f800000, 0x43e00000, 0x43800000, 0x47600000, 0x47000000, 0x77}, /* amax 1 */
        {0x40400000, 0x43155555, 0x43000000, 0x46955555, 0x46800000, 0x78}, /* amax 3 */
        {0x43df8000, 0x3f80494e, 0x3f800000, 0x4300494e, 0x43000000, 0x7f}, /* amax 447 */
        {0x43e00000, 0x3f800000, 0x3f800000, 0x43000000, 0x43000000, 0x7f}, /* amax 448 */
        {0x43e08000, 0x3f7f6e0a, 0x3f000000, 0x42ff6e0a, 0x42800000, 0x80}, /* amax 449 */
        {0x47600000, 0x3c000000, 0x3c000000, 0x3f800000, 0x3f800000, 0x86}, /* amax 57344 */
        {0x7f800000, 0x3f800000, 0x3f800000, 0x3f800000, 0x3f800000, 0xfe},
        {0x7fc00000, 0x3f800000, 0x3f800000, 0x3f800000, 0x3f800000, 0xff},
    };
    scale_options block = te_pow2;
    block.infinite = dtype_max(OTT_BF16);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        float amax = fmath_from_bits(rows[i].amax);
        check_bits(scale_from_amax(amax, OTT_E4M3, &te), rows[i].e4m3, amax);
        check_bits(scale_from_amax(amax, OTT_E4M3, &te_pow2), rows[i].e4m3_pow2, amax);
        check_bits(scale_from_amax(amax, OTT_E4M3, &block), rows[i].e4m3_pow2, amax);
        check_bits(scale_from_amax(amax, OTT_E5M2, &te), rows[i].e5m2, amax);
        check_bits(scale_from_amax(amax, OTT_E5M2, &te_pow2), rows[i].e5m2_pow2, amax);
        assert_int_equal(scale_e8m0_roundup(amax, OTT_E4M3), rows[i].mx);
    }
}

static void te_epsilon_is_a_lower_bound(void **state) {
    (void)state;
    scale_options options = te;
    options.epsilon = 1e-4f;
    uint32_t bounded = fmath_bits(448.0f / 1e-4f);
    check_bits(scale_from_amax(0.0f, OTT_E4M3, &options), bounded, 0.0f);
    check_bits(scale_from_amax(1e-5f, OTT_E4M3, &options), bounded, 1e-5f);
    check_bits(scale_from_amax(1e-4f, OTT_E4M3, &options), bounded, 1e-4f);
    check_bits(scale_from_amax(2.0f, OTT_E4M3, &options), fmath_bits(224.0f), 2.0f);
    check_bits(scale_from_amax(NAN, OTT_E4M3, &options), fmath_bits(1.0f), NAN);
}

static void te_margin_halves(void **state) {
    (void)state;
    for (int margin = -2; margin <= 5; margin++) {
        scale_options options = te;
        options.margin = margin;
        float expected = ldexpf(448.0f / 3.0f, -margin);
        check_bits(scale_from_amax(3.0f, OTT_E4M3, &options), fmath_bits(expected), 3.0f);
        check_bits(scale_from_amax(0.0f, OTT_E4M3, &options), fmath_bits(1.0f), 0.0f);
    }
}

/* ---- torchao ---- */

/* torchao's rule as torchao computes it: divides in double, and rounds the result to fp32. */
static float torchao_in_double(float amax, ott_dtype d) {
    double max = d == OTT_E4M3 ? 448.0 : 57344.0, bounded = (double)amax;
    if (bounded < 1e-12) bounded = 1e-12; /* clamp keeps NaN */
    return (float)(max / bounded);
}

static void torchao_division_for_every_mantissa(void **state) {
    (void)state;
    for (uint32_t mantissa = 0; mantissa < 1u << 23; mantissa++) {
        /* the exponent depends on the mantissa, so that all exponents occur */
        uint32_t bits = (mantissa % 253 + 1) << 23 | mantissa;
        float near_one = fmath_from_bits(0x3f800000 | mantissa), anywhere = fmath_from_bits(bits);
        for (ott_dtype d = OTT_E4M3; d <= OTT_E5M2; d++) {
            float a = scale_from_amax(near_one, d, &torchao), b = scale_from_amax(anywhere, d, &torchao);
            if (fmath_bits(a) != fmath_bits(torchao_in_double(near_one, d)))
                fail_msg("amax %a", (double)near_one);
            if (fmath_bits(b) != fmath_bits(torchao_in_double(anywhere, d)))
                fail_msg("amax %a", (double)anywhere);
        }
    }
}

/* Computes exp2(floor(log2(scale))) as torchao does. As in PyTorch, log2 is rounded to fp32. */
static float torchao_power_of_two(float scale) {
    return exp2f(floorf((float)log2((double)scale)));
}

/* Compares the power-of-two rules for scales just below every power of two, where log2 in fp32 rounds up, and
   for every amax with some exponents. */
static void torchao_power_of_two_for_every_mantissa(void **state) {
    (void)state;
    const int binades[] = {-39, -12, 0, 3, 60, 126};
    for (int k = -125; k <= 127; k++)
        for (uint32_t steps = 0; steps < 200; steps++) {
            uint32_t bits = fmath_bits(ldexpf(1.0f, k)) - steps;
            float expected = torchao_power_of_two(fmath_from_bits(bits));
            if (scale_log2_floor_bits(bits) != fmath_bits(expected)) fail_msg("2^%d - %u steps", k, steps);
        }
    for (size_t b = 0; b < sizeof binades / sizeof *binades; b++)
        for (uint32_t mantissa = 0; mantissa < 1u << 23; mantissa++) {
            float amax = fmath_from_bits((uint32_t)(binades[b] + 127) << 23 | mantissa);
            float scale = scale_from_amax(amax, OTT_E4M3, &torchao_pow2), plain = 448.0f / amax;
            bool near = (fmath_bits(plain) & 0x7fffffu) > 0x7fff00u;
            float expected = near ? torchao_power_of_two(plain) : scale_floor_power_of_two(plain);
            if (amax > 1e-12f && scale != expected) fail_msg("amax %a", (double)amax);
        }
}

/* Results of torchao 0.18 with PyTorch 2.15 (CPU). The rows are pairs of consecutive fp32 amaxes. The first
   gives a scale that torchao rounds up to 2^k, the second gives a scale that torchao rounds down. */
static void torchao_power_of_two_of_chosen_amaxes(void **state) {
    (void)state;
    const struct {
        float amax;
        int k;
    } rows[] = {
        {0x1.c00026p-36f, 44},   {0x1.c00028p-36f, 43},   {0x1.c00014p-20f, 28}, {0x1.c00016p-20f, 27},
        {0x1.c00014p-12f, 20},   {0x1.c00016p-12f, 19},   {0x1.c00008p-3f, 11},  {0x1.c0000ap-3f, 10},
        {0x1.c00004p0f, 8},      {0x1.c00006p0f, 7},      {0x1.cp6f, 2},         {0x1.c00002p6f, 1},
        {0x1.c00008p20f, -12},   {0x1.c0000ap20f, -13},   {0x1.c00026p60f, -52}, {0x1.c00028p60f, -53},
        {0x1.c0004cp117f, -109}, {0x1.c0004ep117f, -110},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_bits(scale_from_amax(rows[i].amax, OTT_E4M3, &torchao_pow2),
                   fmath_bits(ldexpf(1.0f, rows[i].k)), rows[i].amax);
}

/* For every bf16 amax, clearing the mantissa gives the same power of two as torchao. */
static void torchao_power_of_two_for_every_bf16(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7f80; h++) {
        float amax = cast_from_bf16((uint16_t)h);
        for (ott_dtype d = OTT_E4M3; d <= OTT_E5M2; d++) {
            float scale = torchao_in_double(amax, d), expected = torchao_power_of_two(scale);
            if (amax < INFINITY) check_bits(scale_floor_power_of_two(scale), fmath_bits(expected), amax);
            check_bits(scale_from_amax(amax, d, &torchao_pow2), fmath_bits(expected), amax);
        }
    }
}

/* Tests clearing the mantissa, with the values of torchao's test_float8_utils.py and with more values. */
static void mask_power_of_two_table(void **state) {
    (void)state;
    const struct {
        float scale, expected;
    } rows[] = {
        {1.0f, 1.0f},
        {INFINITY, INFINITY},
        {0x1p-149f, 0x1p-149f},
        {0x1.fffffep127f, 0x1p127f},
        {0x1p-126f, 0x1p-126f},
        {0x1.fffffep-1f, 0.5f},
        {0x1.000002p0f, 1.0f},
        {0.0f, 0.0f},
        {0x1.8p-140f, 0x1p-140f},
        {0x1.fffffcp-127f, 0x1p-127f},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_bits(scale_floor_power_of_two(rows[i].scale), fmath_bits(rows[i].expected), rows[i].scale);
    assert_true(isnan(scale_floor_power_of_two(NAN)));
    assert_true(
        isnan(scale_floor_power_of_two(fmath_from_bits(0x7f800001)))); /* infinity plus a bit: a NaN */
}

static void torchao_special_values(void **state) {
    (void)state;
    const float tiny[] = {0.0f, 0x1p-149f, 1e-20f, 1e-12f}; /* 1e-12f is below the bound 1e-12 */
    for (size_t i = 0; i < sizeof tiny / sizeof tiny[0]; i++) {
        check_bits(scale_from_amax(tiny[i], OTT_E4M3, &torchao), fmath_bits((float)4.48e14), tiny[i]);
        check_bits(scale_from_amax(tiny[i], OTT_E5M2, &torchao), fmath_bits((float)5.7344e16), tiny[i]);
        check_bits(scale_from_amax(tiny[i], OTT_E4M3, &torchao_pow2), fmath_bits(0x1p48f), tiny[i]);
    }
    assert_true(isnan(scale_from_amax(NAN, OTT_E4M3, &torchao)));
    assert_true(isnan(scale_from_amax(NAN, OTT_E4M3, &torchao_pow2)));
    check_bits(scale_from_amax(INFINITY, OTT_E4M3, &torchao), 0, INFINITY);
    check_bits(scale_from_amax(INFINITY, OTT_E5M2, &torchao_pow2), 0, INFINITY);
}

/* torchao's test_float8_utils.py: log2 of the largest normal number rounds up, so the result is infinity. */
static void torchao_rounds_the_largest_up(void **state) {
    (void)state;
    check_bits(fmath_from_bits(scale_log2_floor_bits(0x7f7fffffu)), 0x7f800000u, FLT_MAX);
    check_bits(fmath_from_bits(scale_log2_floor_bits(0x00800000u)), 0x00800000u, 0x1p-126f);
    check_bits(fmath_from_bits(scale_log2_floor_bits(0x3f7fffffu)), 0x3f000000u, 0x1.fffffep-1f);
}

static void no_scale_is_one(void **state) {
    (void)state;
    const scale_options none = {.rule = SCALE_NONE};
    check_bits(scale_from_amax(3.0f, OTT_E4M3, &none), fmath_bits(1.0f), 3.0f);
    check_bits(scale_from_amax(NAN, OTT_E4M3, &none), fmath_bits(1.0f), NAN);
}

static void inverse_is_one_division(void **state) {
    (void)state;
    check_bits(scale_inverse(3.0f), 0x3eaaaaab, 3.0f);
    check_bits(scale_inverse(0.0f), 0x7f800000, 0.0f);
    check_bits(scale_inverse(INFINITY), 0, INFINITY);
    assert_true(isnan(scale_inverse(NAN)));
}

/* ---- MX ---- */

static void e8m0_multiplier_is_the_reciprocal(void **state) {
    (void)state;
    for (int code = 0; code < 255; code++)
        assert_true(scale_e8m0_multiplier((uint8_t)code) * cast_from_e8m0((uint8_t)code) == 1.0f);
    assert_true(scale_e8m0_multiplier(254) == 0x1p-127f);
    assert_true(isnan(scale_e8m0_multiplier(255)));
}

static void e8m0_roundup_is_the_least_that_fits(void **state) {
    (void)state;
    for (uint32_t h = 1; h < 0x7f80; h++) {
        float amax = cast_from_bf16((uint16_t)h);
        for (ott_dtype d = OTT_E4M3; d <= OTT_E5M2; d++) {
            uint8_t code = scale_e8m0_roundup(amax, d);
            double scaled = (double)amax * (double)scale_e8m0_multiplier(code), max = (double)dtype_max(d);
            assert_true(scaled <= max);
            if (code > 0) assert_true(2.0 * scaled > max);
        }
    }
}

/* OCP MX v1.0: the scale maps 2^floor(log2(amax)) to the largest power of two of the format. */
static void e8m0_floor_aligns_exponents(void **state) {
    (void)state;
    for (uint32_t h = 1; h < 0x7f80; h++) {
        float amax = cast_from_bf16((uint16_t)h);
        for (ott_dtype d = OTT_E4M3; d <= OTT_E5M2; d++) {
            int emax = d == OTT_E4M3 ? 8 : 15, exponent = ilogbf(amax);
            int expected = exponent - emax < -127 ? 0 : exponent - emax + 127;
            assert_int_equal(scale_e8m0_floor(amax, d), expected);
        }
    }
    assert_int_equal(scale_e8m0_floor(0.0f, OTT_E4M3), 0);
    assert_int_equal(scale_e8m0_floor(NAN, OTT_E4M3), 255);
    assert_int_equal(scale_e8m0_floor(INFINITY, OTT_E4M3), 247);
}

static void e8m0_rules_as_scales(void **state) {
    (void)state;
    const scale_options up = {.rule = SCALE_E8M0}, down = {.rule = SCALE_E8M0_FLOOR};
    /* 449 exceeds E4M3's 448. The round-up rule halves the scale. The floor rule does not, so 449
       saturates. */
    assert_true(scale_from_amax(449.0f, OTT_E4M3, &up) == 0.5f);
    assert_true(scale_from_amax(449.0f, OTT_E4M3, &down) == 1.0f);
    assert_true(scale_from_amax(1.0f, OTT_E4M3, &up) == 256.0f);
    assert_true(isnan(scale_from_amax(NAN, OTT_E4M3, &up)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(te_table),
        cmocka_unit_test(te_epsilon_is_a_lower_bound),
        cmocka_unit_test(te_margin_halves),
        cmocka_unit_test(torchao_division_for_every_mantissa),
        cmocka_unit_test(torchao_power_of_two_for_every_bf16),
        cmocka_unit_test(mask_power_of_two_table),
        cmocka_unit_test(torchao_rounds_the_largest_up),
        cmocka_unit_test(torchao_power_of_two_for_every_mantissa),
        cmocka_unit_test(torchao_power_of_two_of_chosen_amaxes),
        cmocka_unit_test(torchao_special_values),
        cmocka_unit_test(no_scale_is_one),
        cmocka_unit_test(inverse_is_one_division),
        cmocka_unit_test(e8m0_multiplier_is_the_reciprocal),
        cmocka_unit_test(e8m0_roundup_is_the_least_that_fits),
        cmocka_unit_test(e8m0_floor_aligns_exponents),
        cmocka_unit_test(e8m0_rules_as_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
