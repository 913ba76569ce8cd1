/*
 * cpu/optimizer/stochastic: stochastic rounding (tensor/rules/stochastic.h) of consecutive elements, and
 * helpers that the optimizer ops share.
 */
#ifndef CPU_OPTIMIZER_STOCHASTIC_H
#define CPU_OPTIMIZER_STOCHASTIC_H

#include "cpu/rows.h"
#include "tensor/rules/stochastic.h"
#include "tensor/rules/update.h"

enum { DRAWS = 256 /* elements at most */ };

/* The draws of up to DRAWS elements. Element i has words i + offset: the upper half of word[0] is number
   STOCHASTIC_SUM, the lower half the next number, and word[1] has the numbers of averages. */
typedef struct draws {
    uint32_t word[2][DRAWS + 16];
    int64_t offset;
} draws;

/* Takes the draws of elements [index, index + count). averages: also numbers STOCHASTIC_AVERAGE and the
   next. */
static inline void draws_take(draws *d, uint64_t seed, uint64_t update, int64_t index, int64_t count,
                              bool averages) {
    d->offset = index % 8;
    for (int64_t i = 0; i < d->offset + count; i += 8) {
        stochastic_blocks b = stochastic_blocks_of(seed, update, (uint64_t)(index - d->offset + i));
        for (unsigned lane = 0; lane < 8; lane++) {
            stochastic_words w = stochastic_words_in(&b, lane);
            d->word[0][i + lane] = stochastic_number(w, update, lane, STOCHASTIC_SUM) << 16 |
                                   stochastic_number(w, update, lane, STOCHASTIC_SUM + 1);
            if (averages) d->word[1][i + lane] = w.average;
        }
    }
}

/* Rounds elements [i, i + 16) to bf16 stochastically with number `which` of their draws. */
SIMD v16 draws_round(draws *d, int64_t i, v16 x, int which) {
    v16i draw = v16i_load(d->word[which / STOCHASTIC_AVERAGE] + d->offset + i);
    draw = which % 2 ? v16i_and(draw, v16i_set1(0xffffu)) : v16i_shr(draw, 16);
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
