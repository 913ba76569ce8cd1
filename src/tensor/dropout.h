/* tensor/dropout: which elements dropout keeps. The draw depends only on an element's index in the run, so
   that any ranks, recomputation and a resumed run keep the same elements. */
#ifndef TENSOR_DROPOUT_H
#define TENSOR_DROPOUT_H

#include "base/rng.h"

/* Index of the element in row t and column 0 (tensor/ops.def). */
ANYWHERE uint64_t dropout_row(const int32_t token[2], int64_t t, int64_t first, int64_t row_step) {
    uint64_t number = (uint32_t)token[0] | (uint64_t)(uint32_t)token[1] << 32;
    return (number + (uint64_t)t) * (uint64_t)row_step + (uint64_t)first;
}

/* The factor of an element: 0 or scale. `draws`: the random block that contains the draw of `number`. */
ANYWHERE float dropout_factor(rng_block draws, uint64_t number, float rate, float scale) {
    float draw = (float)(draws.word[number % 4] >> 8) * 0x1p-24f;
    return draw < rate ? 0.0f : scale;
}

#endif
