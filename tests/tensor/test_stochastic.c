/* Stochastic rounding: each draw of an element comes once in a period, and what rounding adds to many small updates stays small. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "tensor/stochastic.h"

enum { PERIOD = 65536, LANES = 4, UPDATES = 2000 };

static void each_number_is_drawn_once_in_a_period(void **state) {
    (void)state;
    static uint8_t seen[LANES][PERIOD];
    memset(seen, 0, sizeof seen);
    for (uint64_t update = 0; update < PERIOD; update++) {
        uint64_t draw = stochastic_draw(stochastic_block(11, update + 5000000000u, 7), 7);
        for (int lane = 0; lane < LANES; lane++) seen[lane][draw >> 16 * lane & 0xffff]++;
    }
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < PERIOD; i++) assert_int_equal(seen[lane][i], 1);
}

/* A quarter of 4000 elements' draws is below a quarter of the range: within four standard deviations. */
static void elements_begin_at_random(void **state) {
    (void)state;
    int below[LANES] = {0}, count = 4000;
    for (uint64_t i = 0; i < (uint64_t)count; i++)
        for (int lane = 0; lane < LANES; lane++)
            below[lane] += (stochastic_draw(stochastic_block(3, 9, i), i) >> 16 * lane & 0xffff) < PERIOD / 4;
    for (int lane = 0; lane < LANES; lane++) assert_in_range(below[lane], 1000 - 4 * 27, 1000 + 4 * 27);
}

/* How many steps of bf16 a number is off, at most, of where it would be after each of many updates by `share` of a step. */
static double wander(double share, float sign, bool independent) {
    const float step = ldexpf(1.0f, -7);
    float x = sign * 1.5f;
    double exact = x, most = 0;
    for (uint64_t update = 0; update < UPDATES && fabsf(x) < 1.98f; update++) {
        rng_block b = independent ? rng_philox(5, update, 0) : stochastic_block(5, update, 0);
        float moved = x + (float)share * step;
        exact += (double)(moved - x);
        x = stochastic_bf16(moved, stochastic_draw(b, 0), STOCHASTIC_PARAM);
        most = fmax(most, fabs((double)x - exact) / step);
    }
    return most;
}

static void small_updates_add_up(void **state) {
    (void)state;
    static const double shares[] = {0.004, 0.013, 0.02, 0.029};
    double most = 0, independent = 0;
    for (int i = 0; i < 4; i++) {
        most = fmax(most, fmax(wander(shares[i], 1, false), wander(shares[i], -1, false)));
        independent = fmax(independent, fmax(wander(shares[i], 1, true), wander(shares[i], -1, true)));
    }
    print_message("  off by at most %.2f steps; with independent draws %.2f\n", most, independent);
    assert_true(most < 2.5);
    assert_true(independent > 2 * most);
}

static void what_bf16_has_stays(void **state) {
    (void)state;
    static const float numbers[] = {0.0f, -0.0f, 1.0f, -3.140625f, INFINITY, -INFINITY};
    for (uint64_t update = 0; update < 300; update++) {
        uint64_t draw = stochastic_draw(stochastic_block(1, update, 2), 2);
        for (int i = 0; i < 6; i++) {
            float rounded = stochastic_bf16(numbers[i], draw, STOCHASTIC_PARAM);
            assert_memory_equal(&rounded, &numbers[i], sizeof rounded);
        }
        assert_true(isnan(stochastic_bf16(NAN, draw, STOCHASTIC_PARAM)));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_number_is_drawn_once_in_a_period),
        cmocka_unit_test(elements_begin_at_random),
        cmocka_unit_test(small_updates_add_up),
        cmocka_unit_test(what_bf16_has_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
