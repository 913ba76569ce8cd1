/*
 * tensor/rules/stochastic: stochastic rounding of fp32 to bf16: rounds away from zero with probability
 * (dropped bits) / 2^16. A draw, the random number of a rounding, depends only on the seed, the element's
 * index in the full parameter and the update's index. So every instruction set, number of threads, sharding
 * and resumed run rounds the same. A "step" here is the distance between neighboring bf16 numbers.
 *
 * There are two kinds of tensors. Sums are weights, to which each update adds a little. Averages are moments,
 * which decay.
 *
 * Draws for averages are independent random numbers, so each rounding is unbiased. An average forgets its
 * rounding errors, but a sum does not. After n independent roundings of a fraction f of a step, a sum is off
 * by sqrt(n f (1 - f)) steps. An update at a small learning rate is smaller than this.
 *
 * Draws for sums therefore form a Weyl sequence: the first is random, and each update adds a constant, called
 * turn, modulo 2^16 (Kuipers and Niederreiter 1974, chapter 2). If n consecutive updates each add a fraction
 * f of a step, n f of them round up, give or take a few. If an element changes only in every s-th update, its
 * draws advance by s * turn. They are uneven if s * turn / 2^16 is nearly an integer: for the golden ratio,
 * if s is 21 or 55. So eight neighbouring elements have eight turns, each with other bad s. For each s up to
 * 64, from about 200 updates on, the standard deviation over elements is smaller than with independent draws.
 */
#ifndef TENSOR_RULES_STOCHASTIC_H
#define TENSOR_RULES_STOCHASTIC_H

#include "base/fmath.h"
#include "base/rng.h"
#include <stdbool.h>

/* A draw has four numbers of 16 bits: two for sums, then two for averages. STOCHASTIC_NONE: the tensor is not
   rounded stochastically. */
enum { STOCHASTIC_SUM, STOCHASTIC_AVERAGE = 2, STOCHASTIC_NONE = -1 };

/* The eight turns, constants of 16 bits. Element i has turn i % 8, which each update adds to its draw. All
   are odd, so that 2^16 updates draw each number once. The continued fractions of turn / 2^16 have no
   quotient above 4, which spreads consecutive draws evenly. */
#define STOCHASTIC_TURNS_LOW  UINT64_C(0x5aa14c076301c655) /* turns 50773, 25345, 19463, 23201 */
#define STOCHASTIC_TURNS_HIGH UINT64_C(0x8c1d5f09b8b15c63) /* turns 23651, 47281, 24329, 35869 */

/* The random words from which an element's draws for one update are made. */
typedef struct stochastic_words {
    uint32_t start;   /* the same in all updates; each half starts a sum's draws */
    uint32_t average; /* new in each update; each half is an average's draw */
} stochastic_words;

/* The random words of eight elements: half a word for an element's first sum (its second sum takes the
   half of element index ^ 1), and a word for its averages. Seven rounds of Philox pass the tests of BigCrush
   (Salmon et al. 2011). */
typedef struct stochastic_blocks {
    rng_block start, average[2];
} stochastic_blocks;

/* Returns the blocks of elements first to first + 7. first: a multiple of 8. */
ANYWHERE stochastic_blocks stochastic_blocks_of(uint64_t seed, uint64_t update, uint64_t first) {
    const stochastic_blocks b = {
        rng_philox_rounds(seed, 0, first, 7),
        {rng_philox_rounds(seed, update + 1, first, 7), rng_philox_rounds(seed, update + 1, first | 4, 7)}};
    return b;
}

/* Returns the words of element `index`, which is in the blocks. */
ANYWHERE stochastic_words stochastic_words_in(const stochastic_blocks *b, uint64_t index) {
    uint32_t pair = rng_word(&b->start, index / 2);
    const stochastic_words w = {index & 1 ? pair : pair << 16 | pair >> 16,
                                rng_word(&b->average[index / 4 & 1], index)};
    return w;
}

/* Returns the words of element `index` of a parameter for update number `update`. */
ANYWHERE stochastic_words stochastic_words_of(uint64_t seed, uint64_t update, uint64_t index) {
    stochastic_blocks b = stochastic_blocks_of(seed, update, index & ~UINT64_C(7));
    return stochastic_words_in(&b, index);
}

/* Returns number `which` (STOCHASTIC_SUM, STOCHASTIC_AVERAGE, or the next one) of the draw of element `index`
   for update number `update`. */
ANYWHERE uint32_t stochastic_number(stochastic_words w, uint64_t update, uint64_t index, int which) {
    uint64_t turns = index & 4 ? STOCHASTIC_TURNS_HIGH : STOCHASTIC_TURNS_LOW;
    uint32_t turn = (uint32_t)(turns >> 16 * (index & 3) & 0xffff), count = (uint32_t)update;
    if (which == STOCHASTIC_SUM) return (w.start + (count << 16) * turn) >> 16;
    if (which == STOCHASTIC_SUM + 1) return (w.start + count * turn) & 0xffffu;
    return which == STOCHASTIC_AVERAGE ? w.average >> 16 : w.average & 0xffffu;
}

/* Rounds x to bf16 (the low 16 bits become 0) with a number of 16 bits. A NaN stays unchanged. */
ANYWHERE float stochastic_bf16(float x, uint32_t number) {
    uint32_t bits = fmath_bits(x);
    bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return is_nan ? x : fmath_from_bits((bits + number) & 0xffff0000u);
}

#endif
