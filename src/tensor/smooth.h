/*
 * tensor/smooth: by what Smooth-SwiGLU (arXiv:2409.12517) divides a channel before the cast that all channels share, and
 * multiplies the column of the next weight: a power of two, so that neither rounds.
 *
 * The root of the channel's amax: what an outlier has more than others then lies half on the one side and half on the other. All of
 * it on the weight's, as in the paper, would only move it, for the weight has one scale too.
 */
#ifndef TENSOR_SMOOTH_H
#define TENSOR_SMOOTH_H

#include "base/fmath.h"

/* 2^n, from the bits of the amax. n = floor(e / 2), e being its exponent as its bits have it; 0 where it is 0 or not finite. */
ANYWHERE int smooth_power(uint32_t amax) {
    int biased = (int)(amax >> 23);
    return amax == 0 || biased == 255 ? 0 : (biased + 1) / 2 - 64;
}

#endif
