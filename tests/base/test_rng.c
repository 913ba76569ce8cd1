/* Random numbers: published results of Philox, draws by index, mean and variance, permutations. */
#include "base/rng.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* The results of philox4x32 with 10 rounds in Random123's file kat_vectors. */
static void test_known_answers(void **state) {
    (void)state;
    static const struct {
        uint64_t seed, stream, index;
        uint32_t word[4];
    } known[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822,
         0x0370734413198a2e,
         0x85a308d3243f6a88,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        rng_block b = rng_philox(known[i].seed, known[i].stream, known[i].index);
        assert_memory_equal(b.word, known[i].word, sizeof b.word);
    }
}

static void test_words_and_uniforms(void **state) {
    (void)state;
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        uint32_t word = rng_philox(7, 9, i / 4).word[i % 4];
        float u = rng_uniform(7, 9, i);
        assert_int_equal(rng_u32(7, 9, i), word);
        assert_true(u >= 0 && u < 1 && u == (float)(word >> 8) / 16777216.0f);
        sum += u;
        squares += (double)u * u;
    }
    assert_true(fabs(sum / 1e5 - 0.5) < 0.004); /* 4 standard errors */
    assert_true(fabs(squares / 1e5 - 1.0 / 3) < 0.004);
}

/* Computes the same draws with the functions of the C library. They are equal up to rounding. */
static void test_normal_is_box_muller(void **state) {
    (void)state;
    const double pi = 3.14159265358979323846;
    for (uint64_t i = 0; i < 20000; i++) {
        rng_block b = rng_philox(3, 5, i / 2);
        double u = (double)((((uint64_t)b.word[0] << 32 | b.word[1]) >> 11) + 1) * 0x1p-53;
        double angle = 2 * pi * (double)(((uint64_t)b.word[2] << 32 | b.word[3]) >> 11) * 0x1p-53;
        double expected = sqrt(-2 * log(u)) * (i % 2 ? sin(angle) : cos(angle));
        double got = rng_normal(3, 5, i);
        assert_true(fabs(got - expected) <= 0x1p-24 * fabs(expected) * 1.0001 + 1e-13);
    }
}

static void test_normal_moments_and_tail(void **state) {
    (void)state;
    enum { DRAWS = 1000000 };
    double sum = 0, power2 = 0, power3 = 0, power4 = 0, neighbours = 0, before = 0, largest = 0;
    int beyond1 = 0, beyond3 = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        double x = rng_normal(42, rng_stream("moments"), i);
        sum += x;
        power2 += x * x;
        power3 += x * x * x;
        power4 += x * x * x * x;
        neighbours += x * before;
        before = x;
        beyond1 += fabs(x) > 1;
        beyond3 += fabs(x) > 3;
        largest = fmax(largest, fabs(x));
    }
    /* each bound is five standard errors */
    assert_true(fabs(sum / DRAWS) < 0.005);
    assert_true(fabs(power2 / DRAWS - 1) < 0.0071);
    assert_true(fabs(power3 / DRAWS) < 0.0194);
    assert_true(fabs(power4 / DRAWS - 3) < 0.049);
    assert_true(fabs(neighbours / DRAWS) < 0.005);
    assert_true(abs(beyond1 - 317311) < 2330);
    assert_true(abs(beyond3 - 2700) < 260);
    assert_true(largest > 4.2 && largest < 6.5);
}

/* Compares a hash of many draws with a constant, because with other draws resumed runs would differ. */
static void test_normal_bits_never_change(void **state) {
    (void)state;
    uint64_t digest = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        float x = rng_normal(20261120, 1, i);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        digest = (digest ^ bits) * UINT64_C(0x100000001b3);
    }
    assert_int_equal(digest, UINT64_C(0x9b672a8ac022a7c7));
}

static void check_bijection(uint64_t seed, uint64_t count) {
    unsigned char *seen = calloc(count, 1);
    assert_non_null(seen);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t place = rng_permute(seed, 11, i, count);
        assert_true(place < count);
        assert_int_equal(seen[place], 0);
        seen[place] = 1;
    }
    free(seen);
}

static void test_permute_is_a_bijection(void **state) {
    (void)state;
    for (uint64_t count = 1; count <= 260; count++) check_bijection(count, count);
    static const uint64_t counts[] = {509, 512, 513, 1023, 1024, 1025, 4093, 4096, 4097, 65536, 65537, 99991};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) check_bijection(1, counts[i]);
}

static void test_permute_of_huge_counts(void **state) {
    (void)state;
    static const uint64_t counts[] = {(UINT64_C(1) << 32) + 1, (UINT64_C(1) << 62) + 1, UINT64_MAX};
    for (size_t c = 0; c < 3; c++) {
        uint64_t place[100];
        for (uint64_t i = 0; i < 100; i++) {
            place[i] = rng_permute(1, 2, i, counts[c]);
            assert_true(place[i] < counts[c]);
            for (uint64_t j = 0; j < i; j++) assert_true(place[i] != place[j]);
        }
    }
    /* an index out of range is returned unchanged, and does not cause an endless loop */
    assert_int_equal(rng_permute(1, 2, 9, 5), 9);
}

/* Over many seeds, each of the 6 orders of 3 items must occur about equally often. */
static void test_permute_is_uniform(void **state) {
    (void)state;
    enum { SEEDS = 12000 };
    int orders[9] = {0};
    for (uint64_t seed = 0; seed < SEEDS; seed++)
        orders[3 * rng_permute(seed, 0, 0, 3) + rng_permute(seed, 0, 1, 3)]++;
    double chi2 = 0;
    for (int i = 0; i < 9; i++)
        if (i % 4 != 0) chi2 += (orders[i] - SEEDS / 6.0) * (orders[i] - SEEDS / 6.0) / (SEEDS / 6.0);
    assert_true(chi2 < 25.7); /* chi-squared with 5 degrees of freedom: p = 1e-4 */
}

static void test_streams(void **state) {
    (void)state;
    assert_true(rng_stream("") == UINT64_C(0xcbf29ce484222325)); /* published values of FNV-1a */
    assert_true(rng_stream("a") == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(rng_stream("foobar") == UINT64_C(0x85944171f73967e8));
    assert_true(rng_u32(1, 2, 3) != rng_u32(2, 2, 3));
    assert_true(rng_u32(1, 2, 3) != rng_u32(1, 3, 3));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_words_and_uniforms),
        cmocka_unit_test(test_normal_is_box_muller),
        cmocka_unit_test(test_normal_moments_and_tail),
        cmocka_unit_test(test_normal_bits_never_change),
        cmocka_unit_test(test_permute_is_a_bijection),
        cmocka_unit_test(test_permute_of_huge_counts),
        cmocka_unit_test(test_permute_is_uniform),
        cmocka_unit_test(test_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
