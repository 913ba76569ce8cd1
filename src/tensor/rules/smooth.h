/*
 * tensor/rules/smooth: channel scales of Smooth-SwiGLU (arXiv:2409.12517). Each channel (column) of the
 * activation is divided by its channel scale before the cast to FP8. The same column of the next weight is
 * multiplied by the channel scale. Channel scales are powers of two, so neither operation rounds.
 *
 * A channel scale is near the square root of the channel's amax. So an outlier channel enlarges the amax of
 * activation and weight equally. The paper divides by the full amax. Here this would only move the outlier to
 * the weight, which also has a single FP8 scale.
 */
#ifndef TENSOR_RULES_SMOOTH_H
#define TENSOR_RULES_SMOOTH_H

#include "base/fmath.h"

/* Returns n of the channel scale 2^n: half the exponent of amax, rounded down. amax is given as bits of an
   fp32 number. 0 if amax is 0 or not finite. */
ANYWHERE int smooth_power(uint32_t amax) {
    int biased = (int)(amax >> 23);
    return amax == 0 || biased == 255 ? 0 : (biased + 1) / 2 - 64;
}

#endif
