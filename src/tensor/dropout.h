/* tensor/dropout: which elements dropout keeps: a draw belongs to an element's place in a run, so that ranks, recomputation and
   resumed runs keep the same. */
#ifndef TENSOR_DROPOUT_H
#define TENSOR_DROPOUT_H

#include "base/rng.h"

/* Number of the element in row t and column 0 (tensor/ops.def). */
ANYWHERE uint64_t dropout_row(const int32_t token[2], int64_t t, int64_t first, int64_t row_step) {
    uint64_t number = (uint32_t)token[0] | (uint64_t)(uint32_t)token[1] << 32;
    return (number + (uint64_t)t) * (uint64_t)row_step + (uint64_t)first;
}

/* What x is multiplied by; `draws`: the block that the number's draw is in. */
ANYWHERE float dropout_factor(rng_block draws, uint64_t number, float rate, float scale) {
    float draw = (float)(draws.word[number % 4] >> 8) * 0x1p-24f;
    return draw < rate ? 0.0f : scale;
}

#endif
