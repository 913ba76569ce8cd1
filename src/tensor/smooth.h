/*
 * tensor/smooth: channel scales of Smooth-SwiGLU (arXiv:2409.12517). Each channel is divided by its scale
 * before the cast to FP8, and the column of the next weight is multiplied by it. The scales are powers of
 * two, so neither rounds.
 *
 * A scale is near the square root of the channel's amax, so activation and weight share an outlier's excess.
 * The paper moves all of it to the weight, but the weight also has one scale for all channels.
 */
#ifndef TENSOR_SMOOTH_H
#define TENSOR_SMOOTH_H

#include "base/fmath.h"

/* Returns n of the scale 2^n, from the amax' bits: floor(exponent / 2); 0 if it is 0 or not finite. */
ANYWHERE int smooth_power(uint32_t amax) {
    int biased = (int)(amax >> 23);
    return amax == 0 || biased == 255 ? 0 : (biased + 1) / 2 - 64;
}

#endif
