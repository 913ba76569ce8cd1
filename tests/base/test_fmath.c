/* base/fmath: compares exp and log with libm in double, over their whole ranges and at the ends. */
#include "base/fmath.h"
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static float from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

/* Returns |got - exact| in units in the last place of a float near `exact`. */
static double ulps(float got, double exact) {
    int exponent;
    frexp(exact, &exponent);
    return fabs((double)got - exact) / ldexp(1.0, exponent - 24);
}

static void test_log_is_rounded_once(void **state) {
    (void)state;
    double worst = 0.0;
    for (uint32_t u = 0x00800000u; u < 0x7f800000u; u += 509) {
        float x = from_bits(u);
        worst = fmax(worst, ulps(fmath_log(x), log((double)x)));
    }
    for (uint32_t u = 0x3f700000u; u < 0x3f900000u; u++) { /* x near 1, where log is near 0 */
        float x = from_bits(u);
        if (x != 1.0f) worst = fmax(worst, ulps(fmath_log(x), log((double)x)));
    }
    assert_true(worst < 0.500001);
    assert_true(fmath_log(1.0f) == 0.0f);
}

static void test_log_ends(void **state) {
    (void)state;
    assert_true(fmath_log(0.0f) == -INFINITY);
    assert_true(fmath_log(INFINITY) == INFINITY);
    assert_true(isnan(fmath_log(NAN)));
    assert_true(isnan(fmath_log(-1.0f)));
    assert_true(ulps(fmath_log(from_bits(1)), log(ldexp(1.0, -149))) < 0.500001);
}

static void test_exp_error(void **state) {
    (void)state;
    double worst = 0.0;
    for (uint32_t u = 0x30000000u; u <= 0x42b00000u; u += 101) { /* x from 2^-31 to 88 */
        float x = from_bits(u);
        worst = fmax(worst, ulps(fmath_exp(x), exp((double)x)));
        if (x <= 87.0f) worst = fmax(worst, ulps(fmath_exp(-x), exp(-(double)x)));
    }
    assert_true(worst <= 1.0);
}

/* fmath_exp_small has the bits of fmath_exp, also where results are subnormal, 0 or NaN. */
static void test_exp_small(void **state) {
    (void)state;
    for (uint32_t u = 0; u < 0x7fc00000u; u += 997) {
        float x = from_bits(u), both[2] = {fmath_exp_small(-x), fmath_exp(-x)};
        assert_memory_equal(&both[0], &both[1], sizeof both[0]);
        if (x > 40.0f && x < INFINITY) continue;
        both[0] = fmath_exp_small(x), both[1] = fmath_exp(x);
        if (x < INFINITY) assert_memory_equal(&both[0], &both[1], sizeof both[0]);
    }
    for (float x = -80.0f; x > -105.0f; x -= 1e-4f) assert_true(fmath_exp_small(x) == fmath_exp(x));
    assert_true(isnan(fmath_exp_small(NAN)));
}

static void test_exp_ends(void **state) {
    (void)state;
    assert_true(fmath_exp(0.0f) == 1.0f);
    assert_true(fmath_exp(-0.0f) == 1.0f);
    assert_true(fmath_exp(FMATH_EXP_MIN) == 0.0f);
    assert_true(fmath_exp(-INFINITY) == 0.0f);
    assert_true(fmath_exp(-FLT_MAX) == 0.0f);
    assert_true(fmath_exp(FMATH_EXP_MAX) == INFINITY);
    assert_true(fmath_exp(INFINITY) == INFINITY);
    assert_true(isnan(fmath_exp(NAN)));
    for (float x = -103.0f; x < -87.0f; x += 0.01f) /* results are subnormal, and so rounded once more */
        assert_true(fabs((double)fmath_exp(x) - exp((double)x)) <= 1.01 * FLT_TRUE_MIN);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_is_rounded_once),
        cmocka_unit_test(test_log_ends),
        cmocka_unit_test(test_exp_error),
        cmocka_unit_test(test_exp_small),
        cmocka_unit_test(test_exp_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
