/*
 * tensor/stochastic: rounding of fp32 to bf16 at random, so that sums of many small updates stay right on average: up with
 * the probability that the dropped bits are of a whole step. A draw belongs to an element of a parameter and to an update, so
 * instruction sets, threads, shards, ranks and resumed runs round alike.
 *
 * Only where an element begins is random. From update to update its draw goes on by the golden ratio of the range (Weyl's
 * sequence, of low discrepancy; Kuipers and Niederreiter 1974, chapter 2): each draw is as likely as before, but of n
 * updates by a share f of a step n f round up to within a few steps, where independent draws are off by sqrt(n f (1 - f)).
 * That error would stay in a master, and be more than what a small learning rate still moves it by.
 */
#ifndef TENSOR_STOCHASTIC_H
#define TENSOR_STOCHASTIC_H

#include "base/fmath.h"
#include "base/rng.h"
#include <stdbool.h>

/* A draw is 64 bits: 16 for each of four numbers, which are a parameter's element and those of its state, from the first slot's
   on. */
enum { STOCHASTIC_PARAM, STOCHASTIC_SLOT };

/* Near the golden ratio of 2^16; odd, so that as many updates draw every number once; and no quotient of its continued fraction
   is above 3 (of 40503/65536 one is 18), which keeps draws apart however many there are. */
#define STOCHASTIC_GOLDEN 40521u

/* That of element `index` in update `update`, of the block that two neighbours share. */
ANYWHERE rng_block stochastic_block(uint64_t seed, uint64_t update, uint64_t index) {
    rng_block b = rng_philox(seed, 0, index / 2);
    uint32_t turn = (uint32_t)(update * STOCHASTIC_GOLDEN) & 0xffffu;
    for (int i = 0; i < 4; i++) /* both halves, without a carry between them */
        b.word[i] = ((b.word[i] & 0xffff0000u) + (turn << 16)) | ((b.word[i] + turn) & 0xffffu);
    return b;
}
ANYWHERE uint64_t stochastic_draw(rng_block b, uint64_t index) {
    return index % 2 ? b.word[2] | (uint64_t)b.word[3] << 32 : b.word[0] | (uint64_t)b.word[1] << 32;
}

/* x, whose lower 16 bits are then 0, by number `which` of a draw. */
ANYWHERE float stochastic_bf16(float x, uint64_t draw, int which) {
    uint32_t bits = fmath_bits(x), r = (uint32_t)(draw >> 16 * which) & 0xffffu;
    bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return is_nan ? x : fmath_from_bits((bits + r) & 0xffff0000u);
}

#endif
