/*
 * cpu/optimizer/stochastic: stochastic rounding (tensor/rules/stochastic.h) of 16 consecutive elements, and
 * helpers that the optimizer ops share.
 */
#ifndef CPU_OPTIMIZER_STOCHASTIC_H
#define CPU_OPTIMIZER_STOCHASTIC_H

#include "cpu/rows.h"
#include "tensor/rules/stochastic.h"
#include "tensor/rules/update.h"

/* A 64-bit random draw for each of 16 elements: word[0] has the lower 32 bits, word[1] the upper 32 bits. */
typedef struct draws16 {
    uint32_t word[2][16];
} draws16;

/* Draws random bits for elements [index, index + 16). sums: which bits round sums (STOCHASTIC_SUM_*). */
static inline void draws16_take(draws16 *d, uint64_t seed, uint64_t update, int64_t index, uint64_t sums) {
    for (int lane = 0; lane < 16; lane++) {
        uint64_t at = (uint64_t)(index + lane);
        uint64_t draw = stochastic_draw(stochastic_block(seed, at), update, at, sums);
        d->word[0][lane] = (uint32_t)draw;
        d->word[1][lane] = (uint32_t)(draw >> 32);
    }
}

/* Rounds 16 numbers to bf16 stochastically. Each uses 16 of its draw's 64 bits: number `which`, 0 to 3. */
SIMD v16 draws16_round(draws16 *d, v16 x, int which) {
    v16i draw = v16i_load(d->word[which / 2]);
    draw = which % 2 ? v16i_shr(draw, 16) : v16i_and(draw, v16i_set1(0xffffu));
    v16i bits = v16i_and(v16i_add(v16_bits(x), draw), v16i_set1(0xffff0000u));
    return v16_select(v16_isnan(x), x, v16_from_bits(bits));
}

/* Options of the ops adamw, adamw_fp8, adam and schedule_free with arguments `a`. */
#define ADAM_OPTIONS(a)                                                                                      \
    { .beta1 = (a)->beta1, .beta2 = (a)->beta2, .epsilon = (a)->epsilon, .weight_decay = (a)->weight_decay }

static inline void *row_element(const tensor *t, int64_t row, int64_t column) {
    return (char *)row_of(t, row) + column * dtype_bytes(t->dtype);
}

#endif
