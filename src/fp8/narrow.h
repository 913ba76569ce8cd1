/* fp8/narrow: conversions between fp32 and narrower formats in integer arithmetic, for CPU and GPU. */
#ifndef FP8_NARROW_H
#define FP8_NARROW_H

#include "fp8/cast.h"

/* A sign-magnitude format narrower than fp32. Larger codes (without sign bit) have larger magnitudes. */
typedef struct narrow_format {
    int mantissa_bits, bias;
    uint32_t largest;  /* code of the largest finite magnitude */
    uint32_t overflow; /* code of any larger magnitude: infinity, or E4M3's NaN */
} narrow_format;

/* Returns the properties of format d: E4M3, E5M2 or F16. */
ANYWHERE narrow_format narrow_of(ott_dtype d) {
    const narrow_format e4m3 = {3, 7, 0x7e, 0x7f}, e5m2 = {2, 15, 0x7b, 0x7c}, f16 = {10, 15, 0x7bff, 0x7c00};
    return d == OTT_E4M3 ? e4m3 : d == OTT_E5M2 ? e5m2 : f16;
}

/* Returns the largest code that is not above `magnitude`, the fp32 bits of a number without sign, not NaN.
   The code may exceed f.largest, as if the exponent field were wider. *fraction: where `magnitude` is between
   this code's value (0) and the next one (2^32), rounded down. It is exact if it is at least 2^24. */
ANYWHERE uint32_t narrow_truncate(uint32_t magnitude, narrow_format f, uint64_t *fraction) {
    int biased = (int)(magnitude >> 23);
    uint64_t significand = (magnitude & 0x7fffffu) | (biased > 0 ? 0x800000u : 0u);
    int exponent = (biased > 0 ? biased : 1) - 127;
    int kept = exponent > 1 - f.bias ? exponent : 1 - f.bias; /* subnormals have the smallest exponent */
    int shift = 23 - f.mantissa_bits + kept - exponent;
    if (shift > 63) shift = 63;
    uint64_t rest = significand & (((uint64_t)1 << shift) - 1);
    *fraction = (rest << 32) >> shift;
    /* Subtracts 1, because a normal number's hidden bit adds 1 to the exponent field. A subnormal number has
       no hidden bit, so its exponent field becomes 0. */
    return ((uint32_t)(kept + f.bias - 1) << f.mantissa_bits) + (uint32_t)(significand >> shift);
}

ANYWHERE uint32_t narrow_limit(uint32_t code, narrow_format f, cast_mode mode) {
    if (code <= f.largest) return code;
    return mode == CAST_SATURATE ? f.largest : f.overflow;
}

/* Returns the code of a non-NaN magnitude, rounded to nearest even. */
ANYWHERE uint32_t narrow_nearest(uint32_t magnitude, narrow_format f, cast_mode mode) {
    const uint64_t middle = (uint64_t)1 << 31;
    uint64_t fraction;
    uint32_t code = narrow_truncate(magnitude, f, &fraction);
    if (fraction > middle || (fraction == middle && (code & 1u))) code++;
    return narrow_limit(code, f, mode);
}

/* Returns the value of a finite code without sign. */
ANYWHERE float narrow_widen(uint32_t code, narrow_format f) {
    uint32_t exponent = code >> f.mantissa_bits;
    uint32_t mantissa = code & ((1u << f.mantissa_bits) - 1);
    if (exponent == 0) /* mantissa times the smallest subnormal, which is exact */
        return (float)mantissa * fmath_from_bits((uint32_t)(128 - f.bias - f.mantissa_bits) << 23);
    return fmath_from_bits((exponent + (uint32_t)(127 - f.bias)) << 23 | mantissa << (23 - f.mantissa_bits));
}

/* Returns the value of a code of an IEEE-like format: f.overflow is infinity, larger codes are NaN. */
ANYWHERE float narrow_widen_ieee(uint32_t code, narrow_format f) {
    if (code > f.overflow) return NAN;
    return code == f.overflow ? INFINITY : narrow_widen(code, f);
}

/* Convert x to the nearest FP8 code of format d (ties to even), or a code to its value. */
ANYWHERE uint8_t narrow_to_fp8(float x, ott_dtype d, cast_mode mode) {
    uint32_t bits = fmath_bits(x), magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7f;
    return (uint8_t)((bits >> 24 & 0x80u) | narrow_nearest(magnitude, narrow_of(d), mode));
}
ANYWHERE float narrow_from_fp8(uint8_t code, ott_dtype d) {
    uint32_t magnitude = code & 0x7fu;
    if (d == OTT_E4M3 && magnitude == 0x7f) return NAN;
    float x =
        d == OTT_E4M3 ? narrow_widen(magnitude, narrow_of(d)) : narrow_widen_ieee(magnitude, narrow_of(d));
    return code & 0x80u ? -x : x;
}

#endif
