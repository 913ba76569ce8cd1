/*
 * tensor/rules/moment: FP8 optimizer moments with COAT's dynamic range expansion (Xi et al. 2024).
 * MOMENT_GROUP elements of a row (or the remaining ones) are a group: E4M3 codes and two fp32 group scales,
 * the largest magnitude a and a power p. A code with value c decodes to a * (|c| / 448)^p with c's sign. p
 * (1/16 to 2) is chosen so that the group's smallest magnitude becomes E4M3's smallest one, 2^-9. So a group
 * of similar magnitudes has relative steps below E4M3's 1/8, and in a group of very different magnitudes none
 * becomes 0.
 *
 * All operations are single fp32 operations, so every backend gives the same bits. Magnitudes below FLT_MIN
 * are encoded as 0.
 */
#ifndef TENSOR_RULES_MOMENT_H
#define TENSOR_RULES_MOMENT_H

#include "fp8/narrow.h"
#include <float.h>

enum {
    MOMENT_GROUP = 128,
    MOMENT_SCALES = 2 /* group scales of a group: a and p */
};
#define MOMENT_LARGEST   448.0f /* E4M3's largest number; next line: smallest positive number */
#define MOMENT_SMALLEST  0x1p-9f
#define MOMENT_NORMAL    0x1p-6f     /* E4M3's smallest normal number */
#define MOMENT_LOG_RANGE 12.3431179f /* log(448 / 2^-9) */
#define MOMENT_POWER_MIN 0.0625f
#define MOMENT_POWER_MAX 2.0f

/* Number of group scales of a row of `columns`. */
ANYWHERE int64_t moment_scale_count(int64_t columns) {
    return MOMENT_SCALES * ((columns + MOMENT_GROUP - 1) / MOMENT_GROUP);
}

/* Cephes logf coefficients, highest degree first: log(1 + f) = f - f^2/2 + f^3 * P(f). */
#define MOMENT_LOG_P0 7.0376836292e-2f
#define MOMENT_LOG_P1 -1.1514610310e-1f
#define MOMENT_LOG_P2 1.1676998740e-1f
#define MOMENT_LOG_P3 -1.2420140846e-1f
#define MOMENT_LOG_P4 1.4249322787e-1f
#define MOMENT_LOG_P5 -1.6668057665e-1f
#define MOMENT_LOG_P6 2.0000714765e-1f
#define MOMENT_LOG_P7 -2.4999993993e-1f
#define MOMENT_LOG_P8 3.3333331174e-1f

/* Returns the natural logarithm of a positive normal x, within a few ulp; a finite number for any other x. */
ANYWHERE float moment_log(float x) {
    uint32_t bits = fmath_bits(x);
    /* x / 2^exponent is in [sqrt(1/2), sqrt(2)) */
    uint32_t exponent = ((bits + 0xcafb0du) >> 23) - 128;
    /* the exponent as a float, without the conversion, which is slow on a GPU: 1.5 * 2^23 + exponent */
    float e = fmath_from_bits(0x4b400000u + exponent) - 12582912.0f;
    float f = fmath_from_bits(bits - (exponent << 23)) - 1.0f, square = f * f;
    float p = MOMENT_LOG_P0;
    p = fmaf(p, f, MOMENT_LOG_P1);
    p = fmaf(p, f, MOMENT_LOG_P2);
    p = fmaf(p, f, MOMENT_LOG_P3);
    p = fmaf(p, f, MOMENT_LOG_P4);
    p = fmaf(p, f, MOMENT_LOG_P5);
    p = fmaf(p, f, MOMENT_LOG_P6);
    p = fmaf(p, f, MOMENT_LOG_P7);
    p = fmaf(p, f, MOMENT_LOG_P8);
    p = fmaf(p * f, square, e * FMATH_LN2_LO);
    p = fmaf(-0.5f, square, p) + f;
    return fmaf(e, FMATH_LN2_HI, p);
}

/* The group scales of a group, and values derived from them. */
typedef struct moment_scale {
    float largest, power;
    /* log(largest), 1 / power; valid if moment_has_scales(largest) */
    float log_largest, expansion;
} moment_scale;

/* False if the group has no scales: all elements are 0 (largest = 0) or one is not finite (largest = NaN). */
ANYWHERE bool moment_has_scales(float largest) {
    return largest > 0.0f;
}

/* Computes the scales from a group's largest magnitude (NaN if an element is NaN) and its smallest magnitude
   that is at least FLT_MIN. A NaN or an infinity makes all elements of the group NaN. */
ANYWHERE moment_scale moment_scale_of(float largest, float smallest) {
    moment_scale s = {largest < FLT_MIN ? 0.0f : largest < INFINITY ? largest : NAN, 1.0f, 0.0f, 1.0f};
    if (!moment_has_scales(s.largest)) return s;
    s.log_largest = moment_log(largest);
    float power = (s.log_largest - moment_log(smallest)) / MOMENT_LOG_RANGE;
    s.power = power < MOMENT_POWER_MIN   ? MOMENT_POWER_MIN
              : power > MOMENT_POWER_MAX ? MOMENT_POWER_MAX
                                         : power;
    s.expansion = 1.0f / s.power;
    return s;
}

/* Returns what moment_encode rounds to E4M3: 0, or 2^-9 to 448 with x's sign. Requires moment_has_scales. */
ANYWHERE float moment_expanded(float x, const moment_scale *s) {
    float magnitude = fabsf(x);
    float y = fmath_exp_small((moment_log(magnitude) - s->log_largest) * s->expansion) * MOMENT_LARGEST;
    y = y < MOMENT_SMALLEST ? MOMENT_SMALLEST : y > MOMENT_LARGEST ? MOMENT_LARGEST : y;
    return magnitude < FLT_MIN ? 0.0f : x < 0.0f ? -y : y;
}

ANYWHERE uint8_t moment_encode(float x, const moment_scale *s) {
    if (!moment_has_scales(s->largest)) return s->largest == 0.0f ? 0 : 0x7f;
    return narrow_to_fp8(moment_expanded(x, s), OTT_E4M3, CAST_SATURATE);
}

/* Returns the logarithm of a code's magnitude / 448: -infinity for 0, NaN for NaN. */
ANYWHERE float moment_log_ratio(uint8_t code) {
    float c = narrow_from_fp8(code & 0x7fu, OTT_E4M3);
    return c > 0.0f ? moment_log(c) - moment_log(MOMENT_LARGEST) : c == 0.0f ? -INFINITY : NAN;
}

/* Decodes a code. log_ratio: its moment_log_ratio. */
ANYWHERE float moment_decode_ratio(uint8_t code, float log_ratio, float largest, float power) {
    uint32_t magnitude = fmath_bits(largest * fmath_exp_small(log_ratio * power));
    return log_ratio == -INFINITY ? 0.0f : fmath_from_bits(magnitude ^ (uint32_t)(code & 0x80u) << 24);
}

ANYWHERE float moment_decode(uint8_t code, float largest, float power) {
    return moment_decode_ratio(code, moment_log_ratio(code), largest, power);
}

#endif
