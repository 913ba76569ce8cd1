/*
 * fp8/scale: from the largest magnitude of a group of values (amax) to the factor that brings it to the top
 * of the format's range. A scale multiplies on the way to FP8; its scale_inv, 1/scale rounded once, multiplies
 * on the way back. Pure functions; sources at each rule.
 */
#ifndef FP8_SCALE_H
#define FP8_SCALE_H

#include "fp8/dtype.h"

typedef enum scale_rule {
    SCALE_NONE,      /* 1: the tensor is stored as it is */
    SCALE_TORCHAO,   /* max / max(amax, 1e-12); NaN stays NaN, amax = inf gives 0 (torchao
                        float8_utils.amax_to_scale) */
    SCALE_TE,        /* max / max(amax, eps); amax of 0, inf or NaN gives 1 (TransformerEngine
                        compute_scale_from_amax) */
    SCALE_E8M0,      /* TransformerEngine MXFP8: roundup_e8m0(amax / max), never saturates */
    SCALE_E8M0_FLOOR /* OCP MX v1.0: floor(log2 amax) - emax, elements may saturate */
} scale_rule;

typedef struct scale_options {
    scale_rule rule;
    bool power_of_two; /* round the scale to 2^k: SCALE_TORCHAO by its logarithm, SCALE_TE by clearing the
                          mantissa */
    float epsilon;     /* lower bound of amax (SCALE_TE; SCALE_TORCHAO has 1e-12 built in) */
    int margin;        /* scale is divided by 2^margin (delayed scaling) */
    float infinite;    /* what an infinite scale becomes (SCALE_TE): FLT_MAX per tensor, the largest number of
                          the format that is cast per block */
} scale_options;

/* The scale of a group whose amax is given, for format d. */
float scale_from_amax(float amax, ott_dtype d, const scale_options *options);
/* 1/scale, one IEEE division. */
float scale_inverse(float scale);
/* Clears the mantissa: the largest power of two <= scale; NaN, inf and subnormals unchanged in kind. */
float scale_floor_power_of_two(float scale);

#ifdef __CUDACC__
#define SCALE_ANYWHERE static inline __host__ __device__
#else
#define SCALE_ANYWHERE static inline
#endif
/*
 * torchao's exp2(floor(log2(scale))), of the bits of a positive normal scale: the mantissa is cleared, except
 * just below 2^k, where log2 rounded to fp32 is k already: within ln(2) * 2^j steps, for |log2| in
 * (2^j, 2^(j + 1)]. Bit for bit torch.log2 and torch.exp2 of PyTorch 2.15 on a CPU, for every scale.
 */
SCALE_ANYWHERE uint32_t scale_log2_floor_bits(uint32_t bits) {
    int k = (int)(bits >> 23) - 126; /* of the power of two above */
    int whole = k > 0 ? k - 1 : -k;
    uint32_t steps = 0x800000u - (bits & 0x7fffffu);
    uint32_t rounds_up = whole >= 64   ? 44
                         : whole >= 32 ? 22
                         : whole >= 16 ? 11
                         : whole >= 8  ? 5
                         : whole >= 4  ? 2
                         : whole >= 2  ? 1
                                       : 0;
    return (bits & 0xff800000u) + (steps <= rounds_up ? 0x800000u : 0u);
}
/* MX shared exponent bytes and the element multiplier they stand for. */
uint8_t scale_e8m0_roundup(float amax, ott_dtype d);
uint8_t scale_e8m0_floor(float amax, ott_dtype d);
float scale_e8m0_multiplier(uint8_t code); /* exact reciprocal power of two; 254 -> 2^-127, 255 -> NaN */

#endif
