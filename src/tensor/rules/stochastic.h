/*
 * tensor/rules/stochastic: stochastic rounding of fp32 to bf16: rounds away from zero with probability
 * (dropped bits) / 2^16. A draw, the random number of a rounding, depends only on the seed, the element's
 * index in the full parameter and the update's index. So every instruction set, number of threads, sharding
 * and resumed run rounds the same. A "step" here is the distance between neighboring bf16 numbers.
 *
 * There are two kinds of tensors. Sums are weights, to which each update adds a little. Averages are moments,
 * which decay.
 *
 * Draws for averages are practically independent (splitmix32 from a random start), so each rounding is
 * unbiased. An average forgets its rounding errors, but a sum does not. After n independent roundings of a
 * fraction f of a step, a sum is off by sqrt(n f (1 - f)) steps. An update at a small learning rate is
 * smaller than this.
 *
 * Draws for sums therefore form a Weyl sequence: the first is random, and each update adds a constant, called
 * turn, modulo 2^16 (Kuipers and Niederreiter 1974, chapter 2). If n consecutive updates each add a fraction
 * f of a step, n f of them round up, give or take a few. If an element changes only in every s-th update, its
 * draws advance by s * turn. They are uneven if s * turn / 2^16 is nearly an integer: for the golden ratio,
 * if s is 21 or 55. So each element randomly gets one of eight turns, each with other bad s. For each s up to
 * 64, from about 200 updates on, the standard deviation over elements is smaller than with independent draws.
 */
#ifndef TENSOR_RULES_STOCHASTIC_H
#define TENSOR_RULES_STOCHASTIC_H

#include "base/fmath.h"
#include "base/rng.h"
#include <stdbool.h>

/* A draw has four numbers of 16 bits: one for the parameter, and one for each of three state slots. */
enum { STOCHASTIC_PARAM, STOCHASTIC_SLOT };

/* Masks of the numbers in a draw that round sums (weights, see above). SUM_PARAM: only the parameter's
   number. SUM_ITERATES (schedule-free): also the numbers of slots 0 and 1. */
#define STOCHASTIC_SUM_PARAM    UINT64_C(0x00000000ffff)
#define STOCHASTIC_SUM_ITERATES UINT64_C(0xffffffffffff)

/* The eight turns, constants of 16 bits. An element has one of them, which each update adds to its draw. All
   are odd, so that 2^16 updates draw each number once. The continued fractions of turn / 2^16 have no
   quotient above 4, which spreads consecutive draws evenly. */
#define STOCHASTIC_TURNS_LOW  UINT64_C(0x5aa14c076301c655) /* turns 50773, 25345, 19463, 23201 */
#define STOCHASTIC_TURNS_HIGH UINT64_C(0x8c1d5f09b8b15c63) /* turns 23651, 47281, 24329, 35869 */

/* Returns the random words that start the draws of elements index and index ^ 1, the same in all updates. */
ANYWHERE rng_block stochastic_block(uint64_t seed, uint64_t index) {
    return rng_philox(seed, 0, index / 2);
}

/* Returns update * turn modulo 2^16, for turn number `kind`, 0 to 7. */
ANYWHERE uint32_t stochastic_turned(uint32_t kind, uint64_t update) {
    uint64_t turns = kind & 4 ? STOCHASTIC_TURNS_HIGH : STOCHASTIC_TURNS_LOW;
    return (uint32_t)update * (uint32_t)(turns >> 16 * (kind & 3) & 0xffff) & 0xffff;
}

/* Adds `turned` to each 16-bit half of a word, modulo 2^16. */
ANYWHERE uint32_t stochastic_turn(uint32_t word, uint32_t turned) {
    return ((word & 0xffff0000u) + (turned << 16)) | ((word + turned) & 0xffffu);
}

/* Returns number `update` of the splitmix32 sequence that starts at `word`. */
ANYWHERE uint32_t stochastic_mix(uint32_t word, uint64_t update) {
    uint32_t x = word + (uint32_t)update * 0x9e3779b9u;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

/* Returns the draw of element `index` for update number `update`. b: the element's stochastic_block; sums:
   STOCHASTIC_SUM_PARAM or _ITERATES. Bits of the draw's last number choose the element's turn, one of eight
   constants, because this number never rounds a sum. */
ANYWHERE uint64_t stochastic_draw(rng_block b, uint64_t update, uint64_t index, uint64_t sums) {
    uint32_t low = index % 2 ? b.word[2] : b.word[0], high = index % 2 ? b.word[3] : b.word[1];
    uint32_t turned = stochastic_turned(high >> 29, update);
    uint64_t sum = stochastic_turn(low, turned) | (uint64_t)stochastic_turn(high, turned) << 32;
    uint64_t average = stochastic_mix(low, update) | (uint64_t)stochastic_mix(high, update) << 32;
    return (sum & sums) | (average & ~sums);
}

/* Rounds x to bf16 (the low 16 bits become 0) with number `which` of a draw. A NaN stays unchanged. */
ANYWHERE float stochastic_bf16(float x, uint64_t draw, int which) {
    uint32_t bits = fmath_bits(x), r = (uint32_t)(draw >> 16 * which) & 0xffffu;
    bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return is_nan ? x : fmath_from_bits((bits + r) & 0xffff0000u);
}

#endif
