/* fp8/cast: tests all codes, casts against a search in double, ties, saturation, stochastic rounding. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/rng.h"
#include "formats.h"

static const cast_mode modes[] = {CAST_SATURATE, CAST_OVERFLOW};

#define EACH_FORMAT(d) for (ott_dtype d = OTT_E4M3; d <= OTT_E5M2; d++)

static void check_cast(float x, ott_dtype d, cast_mode mode, int expected) {
    int code = cast_to_fp8(x, d, mode);
    if (code != expected)
        fail_msg("%s of %a (mode %d): 0x%02x, expected 0x%02x", dtype_name(d), (double)x, (int)mode, code,
                 expected);
}

/* ---- FP8, to nearest ---- */

static void every_code_decodes_to_its_definition(void **state) {
    (void)state;
    EACH_FORMAT(d) {
        int top = format_top(d);
        for (int code = 0; code < 256; code++) {
            int magnitude = code & 0x7f;
            double sign = code & 0x80 ? -1.0 : 1.0;
            float x = cast_from_fp8((uint8_t)code, d);
            if (magnitude <= top)
                assert_true(x == sign * format_value(magnitude, d));
            else if (d == OTT_E5M2 && magnitude == 0x7c)
                assert_true(x == sign * INFINITY);
            else
                assert_true(isnan(x));
            if (!isnan(x)) assert_int_equal(signbit(x) != 0, code >> 7);
        }
    }
}

static void every_code_round_trips(void **state) {
    (void)state;
    EACH_FORMAT(d) for (int m = 0; m < 2; m++) for (int code = 0; code < 256; code++) {
        float x = cast_from_fp8((uint8_t)code, d);
        int expected = code;
        if (isnan(x)) expected = 0x7f;
        if (isinf(x) && modes[m] == CAST_SATURATE) expected = (code & 0x80) | format_top(d);
        check_cast(x, d, modes[m], expected);
    }
}

static void every_bf16_equals_the_search(void **state) {
    (void)state;
    EACH_FORMAT(d) for (int m = 0; m < 2; m++) for (uint32_t h = 0; h < 65536; h++) {
        float x = cast_from_bf16((uint16_t)h);
        check_cast(x, d, modes[m], format_search(x, d, modes[m]));
    }
}

static void the_two_formats_have_their_own_entries(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float x = cast_from_bf16((uint16_t)h);
        assert_int_equal(cast_to_e4m3(x, CAST_OVERFLOW), cast_to_fp8(x, OTT_E4M3, CAST_OVERFLOW));
        assert_int_equal(cast_to_e5m2(x, CAST_OVERFLOW), cast_to_fp8(x, OTT_E5M2, CAST_OVERFLOW));
    }
}

/* Every midpoint of two neighboring values goes to the even code. One fp32 step away from it, x goes to the
   nearer code. */
static void ties_go_to_even(void **state) {
    (void)state;
    EACH_FORMAT(d) for (int code = 0; code < format_top(d); code++) {
        float middle = (float)((format_value(code, d) + format_value(code + 1, d)) / 2);
        int even = code % 2 == 0 ? code : code + 1;
        check_cast(middle, d, CAST_SATURATE, even);
        check_cast(-middle, d, CAST_SATURATE, even | 0x80);
        check_cast(nextafterf(middle, 0.0f), d, CAST_SATURATE, code);
        check_cast(nextafterf(middle, INFINITY), d, CAST_SATURATE, code + 1);
    }
}

/* Checks results of CUDA's conversion, which users of TransformerEngine measured. Table 3 of OCP OFP8 v1.0
   agrees with them. */
static void overflow_and_special_values(void **state) {
    (void)state;
    const struct {
        float x;
        int e4m3_saturate, e4m3_overflow, e5m2_saturate, e5m2_overflow;
    } rows[] = {
        {448.0f, 0x7e, 0x7e, 0x5f, 0x5f},
        {464.0f, 0x7e, 0x7e, 0x5f, 0x5f}, /* midpoint of 448 and 480: goes to the even code */
        {0x1.d00002p8f, 0x7e, 0x7f, 0x5f, 0x5f},
        {57344.0f, 0x7e, 0x7f, 0x7b, 0x7b},
        {0x1.dffffep15f, 0x7e, 0x7f, 0x7b, 0x7b}, /* a little below 61440, where E5M2 overflows */
        {61440.0f, 0x7e, 0x7f, 0x7b, 0x7c},
        {0x1.fffffep127f, 0x7e, 0x7f, 0x7b, 0x7c},
        {INFINITY, 0x7e, 0x7f, 0x7b, 0x7c},
        {0x1p-10f, 0x00, 0x00, 0x14, 0x14}, /* half of E4M3's smallest value: a tie, which goes to 0 */
        {0x1.000002p-10f, 0x01, 0x01, 0x14, 0x14},
        {0x1p-17f, 0x00, 0x00, 0x00, 0x00}, /* half of E5M2's smallest value */
        {0x1.000002p-17f, 0x00, 0x00, 0x01, 0x01},
        {0x1p-149f, 0x00, 0x00, 0x00, 0x00},
        {0.0f, 0x00, 0x00, 0x00, 0x00},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int sign = 0; sign < 2; sign++) {
            float x = sign ? -rows[i].x : rows[i].x;
            int bit = sign << 7;
            check_cast(x, OTT_E4M3, CAST_SATURATE, bit | rows[i].e4m3_saturate);
            check_cast(x, OTT_E4M3, CAST_OVERFLOW, bit | rows[i].e4m3_overflow);
            check_cast(x, OTT_E5M2, CAST_SATURATE, bit | rows[i].e5m2_saturate);
            check_cast(x, OTT_E5M2, CAST_OVERFLOW, bit | rows[i].e5m2_overflow);
        }
    }
}

static void every_nan_becomes_7f(void **state) {
    (void)state;
    const uint32_t nans[] = {0x7f800001, 0x7fc00000, 0x7fffffff, 0xff800001, 0xffc00000, 0xffffffff};
    for (size_t i = 0; i < sizeof nans / sizeof nans[0]; i++) {
        EACH_FORMAT(d) for (int m = 0; m < 2; m++) {
            check_cast(fmath_from_bits(nans[i]), d, modes[m], 0x7f);
            assert_int_equal(cast_to_fp8_stochastic(fmath_from_bits(nans[i]), d, modes[m], 0xffffffff), 0x7f);
        }
        assert_int_equal(cast_to_bf16(fmath_from_bits(nans[i])), 0x7fff);
        assert_int_equal(cast_to_f16(fmath_from_bits(nans[i])), 0x7fff);
    }
}

/* ---- FP8, stochastic ---- */

static void stochastic_keeps_what_is_representable(void **state) {
    (void)state;
    EACH_FORMAT(d) for (int code = 0; code < 256; code++) {
        if ((code & 0x7f) > format_top(d)) continue;
        float x = cast_from_fp8((uint8_t)code, d);
        for (uint32_t i = 0; i < 64; i++) {
            uint32_t word = i == 0 ? 0 : i == 1 ? 0xffffffff : rng_u32(1, 2, i);
            assert_int_equal(cast_to_fp8_stochastic(x, d, CAST_SATURATE, word), code);
        }
    }
}

/* Checks for which random words x is rounded up. If x is a fraction f of the way between two values, exactly
   f * 2^32 of the 2^32 random words must round it away from zero. */
static void check_threshold(float x, ott_dtype d, int low_code) {
    double low = format_value(low_code, d), high = format_value(low_code + 1, d);
    double words = ldexp(((double)x - low) / (high - low), 32);
    uint64_t threshold = (uint64_t)words;
    for (int sign = 0; sign < 2; sign++) {
        float signed_x = sign ? -x : x;
        int bit = sign << 7;
        if (threshold > 0)
            assert_int_equal(cast_to_fp8_stochastic(signed_x, d, CAST_SATURATE, (uint32_t)(threshold - 1)),
                             bit | (low_code + 1));
        assert_int_equal(cast_to_fp8_stochastic(signed_x, d, CAST_SATURATE, (uint32_t)threshold),
                         bit | low_code);
        assert_int_equal(cast_to_fp8_stochastic(signed_x, d, CAST_SATURATE, 0xffffffff), bit | low_code);
    }
}

static void stochastic_probability_is_the_distance(void **state) {
    (void)state;
    EACH_FORMAT(d) for (int code = 0; code < format_top(d); code++) { /* the first codes are subnormals */
        double low = format_value(code, d), high = format_value(code + 1, d);
        for (uint32_t i = 0; i < 16; i++)
            check_threshold((float)(low + (high - low) * rng_uniform(3, (uint64_t)code, i) * 0.999), d, code);
        check_threshold(nextafterf((float)high, 0.0f), d, code);
        check_threshold(nextafterf((float)low, INFINITY), d, code);
    }
    check_threshold(0x1p-149f, OTT_E4M3, 0);
    check_threshold(0x1p-42f, OTT_E4M3, 0);
    /* 2^-41 is 2^-32 times the smallest E4M3 number: the smallest x that some random word rounds up */
    check_threshold(0x1p-41f, OTT_E4M3, 0);
}

/* A rounded x is one of two values, `gap` apart, the upper with probability p. The mean of n such numbers has
   the standard deviation gap*sqrt(p(1-p)/n) <= gap/(2 sqrt n). The bound for random words is six standard
   deviations. */
static void stochastic_mean_is_unbiased(void **state) {
    (void)state;
    enum { N = 20000 };
    const float values[] = {0.3f, 1.03f, 17.9f, 300.1f, 0.0031f, 0.0007f};
    EACH_FORMAT(d) for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
        int low_code = 0;
        while (format_value(low_code + 1, d) <= (double)values[v]) low_code++;
        double gap = format_value(low_code + 1, d) - format_value(low_code, d), sum = 0;
        for (uint32_t i = 0; i < N; i++) {
            uint8_t code = cast_to_fp8_stochastic(values[v], d, CAST_SATURATE, rng_u32(5, v, i));
            assert_in_range(code, low_code, low_code + 1);
            sum += (double)cast_from_fp8(code, d);
        }
        assert_true(fabs(sum / N - (double)values[v]) <= 6.0 * gap / (2.0 * sqrt(N)));
    }
}

static void stochastic_saturates(void **state) {
    (void)state;
    const float large[] = {449.0f, 479.0f, 61439.0f, 65535.0f, 1e30f, INFINITY};
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
        EACH_FORMAT(d) {
            if (large[i] < dtype_max(d)) continue;
            for (uint32_t word = 0; word < 64; word++) {
                uint32_t random = word * 0x04104104u;
                assert_int_equal(cast_to_fp8_stochastic(large[i], d, CAST_SATURATE, random), format_top(d));
                assert_int_equal(cast_to_fp8_stochastic(-large[i], d, CAST_SATURATE, random),
                                 0x80 | format_top(d));
            }
        }
    }
    /* Without saturation, the next code above the largest value is the code for overflow. */
    assert_int_equal(cast_to_fp8_stochastic(464.0f, OTT_E4M3, CAST_OVERFLOW, 0x7fffffff), 0x7f);
    assert_int_equal(cast_to_fp8_stochastic(464.0f, OTT_E4M3, CAST_OVERFLOW, 0x80000000), 0x7e);
    assert_int_equal(cast_to_fp8_stochastic(-INFINITY, OTT_E5M2, CAST_OVERFLOW, 0xffffffff), 0xfc);
}

/* ---- fp16 and bf16 ---- */

static void every_f16_round_trips(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float x = cast_from_f16((uint16_t)h);
        uint32_t exponent = h >> 10 & 31, mantissa = h & 1023;
        if (exponent == 31 && mantissa != 0) {
            assert_true(isnan(x));
            assert_int_equal(cast_to_f16(x), 0x7fff);
            continue;
        }
        double value = exponent == 0    ? ldexp(mantissa, -24)
                       : exponent == 31 ? (double)INFINITY
                                        : ldexp(1024 + mantissa, (int)exponent - 25);
        assert_true((double)x == (h >> 15 ? -value : value));
        assert_int_equal(cast_to_f16(x), h);
    }
}

static void f16_ties_and_overflow(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        /* after the largest number comes infinity, which counts as 65536 */
        double next = h == 0x7bff ? 65536.0 : (double)cast_from_f16((uint16_t)(h + 1));
        float middle = (float)(((double)cast_from_f16((uint16_t)h) + next) / 2);
        assert_int_equal(cast_to_f16(middle), h % 2 == 0 ? h : h + 1);
        assert_int_equal(cast_to_f16(-middle), 0x8000 | (h % 2 == 0 ? h : h + 1));
        assert_int_equal(cast_to_f16(nextafterf(middle, 0.0f)), h);
        assert_int_equal(cast_to_f16(nextafterf(middle, INFINITY)), h + 1);
    }
    assert_int_equal(cast_to_f16(0x1.fffffep127f), 0x7c00);
    assert_int_equal(cast_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(cast_to_f16(0x1p-149f), 0);
}

static void bf16_round_trips_and_ties(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float x = cast_from_bf16((uint16_t)h);
        assert_int_equal(cast_to_bf16(x), isnan(x) ? 0x7fff : h);
        if ((h & 0x7fff) >= 0x7f80) continue;
        /* halfway between h and h + 1; if h is the largest number, h + 1 is infinity */
        uint32_t middle = h << 16 | 0x8000;
        assert_int_equal(cast_to_bf16(fmath_from_bits(middle)), h + (h & 1));
        assert_int_equal(cast_to_bf16(fmath_from_bits(middle - 1)), h);
        assert_int_equal(cast_to_bf16(fmath_from_bits(middle + 1)), h + 1);
    }
}

/* ---- arrays of any format ---- */

static void e8m0_values(void **state) {
    (void)state;
    for (int code = 0; code < 255; code++) {
        uint8_t back = 0;
        assert_true((double)cast_from_e8m0((uint8_t)code) == ldexp(1.0, code - 127));
        cast_store(&back, OTT_E8M0, 0, cast_from_e8m0((uint8_t)code));
        assert_int_equal(back, code);
    }
    assert_true(isnan(cast_from_e8m0(255)));
}

static void e8m0_stores_the_nearest_power(void **state) {
    (void)state;
    const struct {
        float x;
        int code;
    } rows[] = {
        {1.49f, 127},     {1.5f, 128},
        {1.51f, 128},     {2.99f, 128},
        {3.0f, 128},      {3.01f, 129},
        {0.0f, 0},        {-1.0f, 255},
        {NAN, 255},       {INFINITY, 254},
        {0x1p-149f, 0},   {0x1.8p-127f, 0},
        {0x1.9p-127f, 1}, {0x1.fffffep127f, 254},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t code = 77;
        cast_store(&code, OTT_E8M0, 0, rows[i].x);
        assert_int_equal(code, rows[i].code);
    }
}

static void arrays_load_what_was_stored(void **state) {
    (void)state;
    const float values[] = {0.0f, 1.0f, 3.0f, 96.0f};
    for (int d = 0; d < OTT_DTYPE_COUNT; d++) {
        _Alignas(8) uint8_t data[4 * 8];
        for (int i = 0; i < 4; i++) cast_store(data, (ott_dtype)d, i, values[i]);
        for (int i = 0; i < 4; i++)
            if (d != OTT_E8M0) assert_true(cast_load(data, (ott_dtype)d, i) == values[i]);
    }
}

static void stores_round_and_saturate(void **state) {
    (void)state;
    uint8_t u8[3], fp8[2];
    const float inputs[] = {-3.0f, 2.5f, 300.0f};
    for (int i = 0; i < 3; i++) cast_store(u8, OTT_U8, i, inputs[i]);
    assert_int_equal(u8[0], 0);
    assert_int_equal(u8[1], 2);
    assert_int_equal(u8[2], 255);
    cast_store(fp8, OTT_E4M3, 0, 1e9f);
    cast_store(fp8, OTT_E5M2, 1, -1e9f);
    assert_int_equal(fp8[0], 0x7e);
    assert_int_equal(fp8[1], 0xfb);
    int32_t i32[3];
    int64_t i64[2];
    cast_store(i32, OTT_I32, 0, 3e9f);
    cast_store(i32, OTT_I32, 1, -3e9f);
    cast_store(i32, OTT_I32, 2, NAN);
    cast_store(i64, OTT_I64, 0, INFINITY);
    cast_store(i64, OTT_I64, 1, -INFINITY);
    assert_true(i32[0] == INT32_MAX && i32[1] == INT32_MIN && i32[2] == 0);
    assert_true(i64[0] == INT64_MAX && i64[1] == INT64_MIN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_decodes_to_its_definition),
        cmocka_unit_test(every_code_round_trips),
        cmocka_unit_test(every_bf16_equals_the_search),
        cmocka_unit_test(the_two_formats_have_their_own_entries),
        cmocka_unit_test(ties_go_to_even),
        cmocka_unit_test(overflow_and_special_values),
        cmocka_unit_test(every_nan_becomes_7f),
        cmocka_unit_test(stochastic_keeps_what_is_representable),
        cmocka_unit_test(stochastic_probability_is_the_distance),
        cmocka_unit_test(stochastic_mean_is_unbiased),
        cmocka_unit_test(stochastic_saturates),
        cmocka_unit_test(every_f16_round_trips),
        cmocka_unit_test(f16_ties_and_overflow),
        cmocka_unit_test(bf16_round_trips_and_ties),
        cmocka_unit_test(e8m0_values),
        cmocka_unit_test(e8m0_stores_the_nearest_power),
        cmocka_unit_test(arrays_load_what_was_stored),
        cmocka_unit_test(stores_round_and_saturate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
