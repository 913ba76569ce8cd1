/* Compares the activation functions of the MLP with double arithmetic and the C library's erf. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tensor/rules/activate.h"

/* *value, *slope: largest errors of an activation's value and derivative against GELU over [-14, 14]. */
static void distances(activate_kind kind, double *value, double *slope) {
    *value = *slope = 0;
    for (int i = -14000; i <= 14000; i++) {
        float x = (float)i / 1000.0f;
        double wide = (double)x, share = 0.5 * erfc(-wide / sqrt(2)),
               density = exp(-wide * wide / 2) / sqrt(2 * acos(-1));
        activated a = activate(kind, x);
        *value = fmax(*value, fabs((double)a.value - wide * share) / fmax(1, fabs(wide)));
        *slope = fmax(*slope, fabs((double)a.slope - (share + wide * density)));
    }
}

/* GELU by erf must be near GELU. The tanh approximation is another function: its error exceeds the bound. */
static void test_gelu_is_near_erf(void **state) {
    (void)state;
    double value, slope;
    distances(ACTIVATE_GELU_ERF, &value, &slope);
    if (!(value < 2e-7 && slope < 4e-7)) fail_msg("%g and %g off", value, slope);
    distances(ACTIVATE_GELU_TANH, &value, &slope);
    assert_true(value > 1e-4 && value < 1e-3);
}

/* Tests GELU of very negative numbers, where 1 + erf would lose all digits. */
static void test_the_tail_keeps_its_digits(void **state) {
    (void)state;
    for (int i = 2; i <= 5; i++) {
        double x = -i, wanted = x * 0.5 * erfc(-x / sqrt(2));
        assert_true(fabs((double)activate(ACTIVATE_GELU_ERF, (float)x).value / wanted - 1) < 1e-2);
    }
}

static void test_relu(void **state) {
    (void)state;
    const float in[] = {-2, -0.0f, 0, 0.5f, INFINITY}, out[] = {0, 0, 0, 0.5f, INFINITY};
    for (int i = 0; i < 5; i++) {
        activated a = activate(ACTIVATE_RELU, in[i]);
        assert_true(a.value == out[i] && a.slope == (i < 3 ? 0.0f : 1.0f));
    }
}

static void test_nan_stays(void **state) {
    (void)state;
    for (int kind = 0; kind <= ACTIVATE_RELU; kind++)
        assert_true(isnan(activate((activate_kind)kind, NAN).value));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gelu_is_near_erf),
        cmocka_unit_test(test_the_tail_keeps_its_digits),
        cmocka_unit_test(test_relu),
        cmocka_unit_test(test_nan_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
