/*
 * Stochastic rounding. Over a full period of updates, the draws that round an element of a weight take each
 * value once. The rounding errors of many small updates stay small, also if only every n-th update changes
 * the element. Decaying averages (moments) have no bias.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "tensor/rules/stochastic.h"

enum { PERIOD = 65536, NUMBERS = 4, SUMS = 2, UPDATES = 2000 };

static uint32_t number_of(uint64_t seed, uint64_t update, uint64_t index, int which) {
    return stochastic_number(stochastic_words_of(seed, update, index), update, index, which);
}

static void each_number_is_drawn_once_in_a_period(void **state) {
    (void)state;
    static uint8_t seen[SUMS][PERIOD];
    memset(seen, 0, sizeof seen);
    for (uint64_t update = 0; update < PERIOD; update++)
        for (int which = 0; which < SUMS; which++)
            seen[which][number_of(11, update + 5000000000u, 7, STOCHASTIC_SUM + which)]++;
    for (int which = 0; which < SUMS; which++)
        for (int i = 0; i < PERIOD; i++) assert_int_equal(seen[which][i], 1);
}

/* Of 4000 draws, about 1000 are in the lowest quarter of the range, within four standard deviations. Tests
   the elements of one update, and the updates of one element. */
static void draws_are_even(void **state) {
    (void)state;
    int counts[2 * NUMBERS] = {0}, count = 4000;
    for (uint64_t i = 0; i < (uint64_t)count; i++)
        for (int which = 0; which < NUMBERS; which++) {
            counts[which] += number_of(3, 9, i, which) < PERIOD / 4;
            counts[NUMBERS + which] += number_of(3, i, 9, which) < PERIOD / 4;
        }
    for (int i = 0; i < 2 * NUMBERS; i++) assert_in_range(counts[i], 1000 - 4 * 27, 1000 + 4 * 27);
}

/* Different numbers of a draw, and the same number of neighbouring elements, are not correlated: the sum of
   20,000 products of centered numbers is within four standard deviations of 0. */
static void numbers_are_independent(void **state) {
    (void)state;
    enum { COUNT = 20000 };
    for (int a = 0; a < NUMBERS; a++)
        for (int b = a; b < NUMBERS; b++) {
            double sum = 0;
            for (uint64_t i = 0; i < COUNT; i++)
                sum += ((double)number_of(13, 6, i, a) / PERIOD - 0.5) *
                       ((double)number_of(13, 6, i + (a == b), b) / PERIOD - 0.5);
            assert_true(fabs(sum * 12) < 4 * sqrt(COUNT)); /* the variance of a number is 1 / 12 */
        }
}

/* Adds `share` of a bf16 step in each of many updates. Returns the largest error of the sum after any update,
   in bf16 steps. independent: with independent draws. */
static double wander(double share, float sign, bool independent) {
    const float step = ldexpf(1.0f, -7);
    float x = sign * 1.5f;
    double exact = x, most = 0;
    for (uint64_t update = 0; update < UPDATES && fabsf(x) < 1.98f; update++) {
        uint32_t number = independent ? rng_philox(5, update, 0).word[0] & 0xffffu
                                      : number_of(5, update, 0, STOCHASTIC_SUM);
        float moved = x + (float)share * step;
        exact += (double)(moved - x);
        x = stochastic_bf16(moved, number);
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
    assert_true(most < 4);
    assert_true(independent > 2 * most);
}

/* Adds 400 half steps to each of many elements, in every `every`-th update. Returns the standard deviation of
   the sums over the elements, in steps. */
static double spread_of_sums(uint64_t every) {
    enum { ELEMENTS = 512, ADDED = 400 };
    double squares = 0;
    for (uint64_t i = 0; i < ELEMENTS; i++) {
        stochastic_words w = stochastic_words_of(21, 0, i); /* the start is the same in all updates */
        double sum = -ADDED / 2.0;
        for (uint64_t k = 1; k <= ADDED; k++)
            sum += stochastic_number(w, k * every, i, STOCHASTIC_SUM) >= PERIOD / 2;
        squares += sum * sum;
    }
    return sqrt(squares / ELEMENTS);
}

/* If only every n-th update changes an element, for each n up to 64, the sums must spread less than with
   independent draws, which spread by sqrt(400) / 2 = 10 steps. */
static void no_rhythm_resonates(void **state) {
    (void)state;
    double most = 0;
    for (uint64_t every = 1; every <= 64; every++) most = fmax(most, spread_of_sums(every));
    print_message("  off by %.2f steps; every 21 updates %.2f, every 55 %.2f\n", most, spread_of_sums(21),
                  spread_of_sums(55));
    assert_true(spread_of_sums(1) < 1.5);
    assert_true(spread_of_sums(21) < 3);
    assert_true(spread_of_sums(55) < 7);
    assert_true(most < 9);
}

/* Returns the relative error of the mean of second moments after 500 decays without a gradient. */
static double bias_of_decay(float beta2) {
    enum { ELEMENTS = 4096, DECAYS = 500 };
    double sum = 0, expected = 0;
    for (uint64_t i = 0; i < ELEMENTS; i++) {
        float v = 1.0f + (float)(i % 128) / 128;
        expected += (double)v * pow((double)beta2, DECAYS);
        for (uint64_t update = 1; update <= DECAYS; update++)
            v = stochastic_bf16(v * beta2, number_of(31, update, i, STOCHASTIC_AVERAGE + 1));
        sum += (double)v;
    }
    return sum / expected - 1;
}

/* The bound 0.0043 is five standard deviations of a mean over 4096 elements: 5 * 0.055 / sqrt(4096). */
static void averages_decay_without_bias(void **state) {
    (void)state;
    static const float betas[] = {0.9f, 0.95f, 0.98f, 0.99f, 0.999f};
    for (int i = 0; i < 5; i++) {
        double bias = bias_of_decay(betas[i]);
        print_message("  beta2 = %g: %+.2f%%\n", (double)betas[i], 100 * bias);
        assert_true(fabs(bias) < 0.0043);
    }
}

static void what_bf16_has_stays(void **state) {
    (void)state;
    static const float values[] = {0.0f, -0.0f, 1.0f, -3.140625f, INFINITY, -INFINITY};
    for (uint64_t update = 0; update < 300; update++) {
        uint32_t number = number_of(1, update, 2, STOCHASTIC_SUM);
        for (int i = 0; i < 6; i++) {
            float rounded = stochastic_bf16(values[i], number);
            assert_memory_equal(&rounded, &values[i], sizeof rounded);
        }
        assert_true(isnan(stochastic_bf16(NAN, number)));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_number_is_drawn_once_in_a_period),
        cmocka_unit_test(draws_are_even),
        cmocka_unit_test(numbers_are_independent),
        cmocka_unit_test(small_updates_add_up),
        cmocka_unit_test(no_rhythm_resonates),
        cmocka_unit_test(averages_decay_without_bias),
        cmocka_unit_test(what_bf16_has_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
