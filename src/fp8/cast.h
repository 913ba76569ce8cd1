/*
 * fp8/cast: casts of single numbers between formats. All backends must give the same bits.
 *
 * Rounding is to nearest even or stochastic. Subnormals and -0 are kept. Overflow and infinity saturate to
 * the largest finite value (CAST_SATURATE) or follow OCP OFP8 (CAST_OVERFLOW: E4M3 gives NaN with the sign
 * kept, E5M2 infinity). A NaN becomes 0x7F in both modes, as in the GPU's conversion (OCP OFP8 v1.0;
 * cuda_fp8.h).
 */
#ifndef FP8_CAST_H
#define FP8_CAST_H

#include "base/fmath.h"
#include "fp8/dtype.h"

typedef enum cast_mode { CAST_SATURATE, CAST_OVERFLOW } cast_mode;
typedef enum cast_rounding { ROUND_NEAREST, ROUND_STOCHASTIC } cast_rounding;

/* In bf16 and fp16 a NaN becomes 0x7FFF, as in CUDA, and overflow gives infinity. */
ANYWHERE uint16_t cast_to_bf16(float x) {
    uint32_t u = fmath_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
ANYWHERE float cast_from_bf16(uint16_t h) {
    return fmath_from_bits((uint32_t)h << 16);
}
uint16_t cast_to_f16(float x);
float cast_from_f16(uint16_t h);

uint8_t cast_to_e4m3(float x, cast_mode mode);
uint8_t cast_to_e5m2(float x, cast_mode mode);
float cast_from_e4m3(uint8_t code);
float cast_from_e5m2(uint8_t code);
/* Returns the FP8 code of x in format d (E4M3 or E5M2). */
uint8_t cast_to_fp8(float x, ott_dtype d, cast_mode mode);
float cast_from_fp8(uint8_t code, ott_dtype d);
/* Rounds stochastically: x between two neighboring values of format d becomes the one with the larger
   magnitude, with probability (|x| - smaller) / (larger - smaller). `random`: 32 uniform random bits. */
uint8_t cast_to_fp8_stochastic(float x, ott_dtype d, cast_mode mode, uint32_t random);

/* Returns the value of an E8M0 code: 2^(code - 127); NaN for code 255. */
ANYWHERE float cast_from_e8m0(uint8_t code) {
    if (code == 255) return NAN;
    return fmath_from_bits(code == 0 ? 0x00400000u : (uint32_t)code << 23); /* 2^-127 is subnormal in fp32 */
}

/* Read an element of an array of format d, or write it, rounded to nearest even. FP8 saturates. */
float cast_load(const void *data, ott_dtype d, int64_t index);
void cast_store(void *data, ott_dtype d, int64_t index, float value);
/* Converts an array in place. `data` must be large enough for `count` elements of either format. */
void cast_in_place(void *data, ott_dtype from, ott_dtype to, int64_t count);

#endif
