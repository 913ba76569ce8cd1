/* tensor/rules/dropout: which elements dropout keeps. The choice depends only on the seed, the random stream
   and the element's index, which counts all elements of a run. So recomputation, a resumed run and any number
   of ranks keep the same elements. */
#ifndef TENSOR_RULES_DROPOUT_H
#define TENSOR_RULES_DROPOUT_H

#include "base/rng.h"

/* Returns the index, counted over the run, of the element in row t and column 0 (tensor/ops.def: dropout). */
ANYWHERE uint64_t dropout_row(const int32_t token[2], int64_t t, int64_t first, int64_t row_step) {
    uint64_t number = (uint32_t)token[0] | (uint64_t)(uint32_t)token[1] << 32;
    return (number + (uint64_t)t) * (uint64_t)row_step + (uint64_t)first;
}

/* Returns 0 if dropout drops element `number` of the run, else `scale`. draws: the random stream's block with
   index number / 4. */
ANYWHERE float dropout_factor(rng_block draws, uint64_t number, float rate, float scale) {
    float draw = (float)(draws.word[number % 4] >> 8) * 0x1p-24f;
    return draw < rate ? 0.0f : scale;
}

#endif
