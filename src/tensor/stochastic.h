/*
 * tensor/stochastic: rounding of fp32 to bf16 at random: up with probability (dropped bits) / (a step of bf16). A draw depends
 * on the seed, the element's place in the parameter and the update's number only, so instruction sets, threads, shards, ranks
 * and resumed runs round alike.
 *
 * A rule names the tensors that are sums: weights, to which each update adds a little. Others are averages that decay: moments.
 *
 * Draws of averages are as good as independent (splitmix32 from a random start), so each rounding is unbiased whatever the ones
 * before it did. An average forgets its rounding errors; a sum does not: after n independent roundings of a share f of a step it
 * is off by sqrt(n f (1 - f)) steps, more than small learning rates move it.
 *
 * The draw of a sum starts at random and advances by a fixed turn in each update (Weyl's sequence; Kuipers and Niederreiter 1974,
 * chapter 2). Of n consecutive updates by a share f of a step, n f round up to within a few steps. A turn resonates with updates
 * that come every s steps if s turns are nearly whole circles: for the golden ratio 21 and 55 steps. So elements have one of eight
 * turns, at random, which resonate with different s: for each s up to 64 the standard deviation over elements stays below that of
 * independent draws from about 200 updates on.
 */
#ifndef TENSOR_STOCHASTIC_H
#define TENSOR_STOCHASTIC_H

#include "base/fmath.h"
#include "base/rng.h"
#include <stdbool.h>

/* A draw is 64 bits: 16 for each of four numbers, the parameter's element and the elements of its state, from the first slot's
   on. */
enum { STOCHASTIC_PARAM, STOCHASTIC_SLOT };

/* Which numbers of a draw round sums: the parameter; schedule-free's iterate and average (its first two slots) too. */
#define STOCHASTIC_SUM_PARAM    UINT64_C(0x00000000ffff)
#define STOCHASTIC_SUM_ITERATES UINT64_C(0xffffffffffff)

/* Eight turns of 16 bits. All are odd, so that 2^16 updates draw each number once, and no quotient of their continued fractions is
   above 4, which spreads the draws of consecutive updates evenly. */
#define STOCHASTIC_TURNS_LOW  UINT64_C(0x5aa14c076301c655) /* 50773, 25345, 19463, 23201 */
#define STOCHASTIC_TURNS_HIGH UINT64_C(0x8c1d5f09b8b15c63) /* 23651, 47281, 24329, 35869 */

/* Random words that two neighbours share, of which `index` is one: the same in all updates. */
ANYWHERE rng_block stochastic_block(uint64_t seed, uint64_t index) {
    return rng_philox(seed, 0, index / 2);
}

/* How far `update` turns of number `kind` of eight have come. */
ANYWHERE uint32_t stochastic_turned(uint32_t kind, uint64_t update) {
    uint64_t turns = kind & 4 ? STOCHASTIC_TURNS_HIGH : STOCHASTIC_TURNS_LOW;
    return (uint32_t)update * (uint32_t)(turns >> 16 * (kind & 3) & 0xffff) & 0xffff;
}

/* Both halves by `turned`, without a carry between them. */
ANYWHERE uint32_t stochastic_turn(uint32_t word, uint32_t turned) {
    return ((word & 0xffff0000u) + (turned << 16)) | ((word + turned) & 0xffffu);
}

/* splitmix32: number `update` of the sequence that starts at `word`. */
ANYWHERE uint32_t stochastic_mix(uint32_t word, uint64_t update) {
    uint32_t x = word + (uint32_t)update * 0x9e3779b9u;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

/* The draw of element `index`, in its block; sums: STOCHASTIC_SUM_*. The turn's kind comes from bits of the last number, which is no
   sum. */
ANYWHERE uint64_t stochastic_draw(rng_block b, uint64_t update, uint64_t index, uint64_t sums) {
    uint32_t low = index % 2 ? b.word[2] : b.word[0], high = index % 2 ? b.word[3] : b.word[1];
    uint32_t turned = stochastic_turned(high >> 29, update);
    uint64_t sum = stochastic_turn(low, turned) | (uint64_t)stochastic_turn(high, turned) << 32;
    uint64_t average = stochastic_mix(low, update) | (uint64_t)stochastic_mix(high, update) << 32;
    return (sum & sums) | (average & ~sums);
}

/* x, whose lower 16 bits are then 0, by number `which` of a draw. */
ANYWHERE float stochastic_bf16(float x, uint64_t draw, int which) {
    uint32_t bits = fmath_bits(x), r = (uint32_t)(draw >> 16 * which) & 0xffffu;
    bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return is_nan ? x : fmath_from_bits((bits + r) & 0xffff0000u);
}

#endif
