/* fp8/cast: conversions between fp32 and the narrow formats, in integer arithmetic. */
#include "fp8/cast.h"

/* A sign-magnitude format narrower than fp32; as codes ascend, so do the magnitudes they stand for. */
typedef struct narrow_format {
    int mantissa_bits, bias;
    uint32_t largest;  /* code of the largest finite magnitude */
    uint32_t overflow; /* code of what lies beyond it: infinity, or E4M3's NaN */
} narrow_format;

static const narrow_format narrow_e4m3 = {3, 7, 0x7e, 0x7f};
static const narrow_format narrow_e5m2 = {2, 15, 0x7b, 0x7c};
static const narrow_format narrow_f16 = {10, 15, 0x7bff, 0x7c00};

static const narrow_format *narrow_fp8(ott_dtype d) {
    return d == OTT_E4M3 ? &narrow_e4m3 : &narrow_e5m2;
}

/* The code at or below a non-NaN magnitude (fp32 bits without sign; the exponent has no upper bound here) and
   how far the magnitude lies towards the next code, in units of 2^-32: exact unless it is below 2^-8 of the
   way. */
static uint32_t narrow_truncate(uint32_t magnitude, const narrow_format *f, uint64_t *fraction) {
    int biased = (int)(magnitude >> 23);
    uint64_t significand = (magnitude & 0x7fffffu) | (biased > 0 ? 0x800000u : 0u);
    int exponent = (biased > 0 ? biased : 1) - 127;
    int kept = exponent > 1 - f->bias ? exponent : 1 - f->bias; /* subnormals share the smallest exponent */
    int shift = 23 - f->mantissa_bits + kept - exponent;
    if (shift > 63) shift = 63;
    uint64_t rest = significand & (((uint64_t)1 << shift) - 1);
    *fraction = (rest << 32) >> shift;
    /* A normal number's hidden bit adds one to the exponent field, a subnormal has none: hence the -1. */
    return ((uint32_t)(kept + f->bias - 1) << f->mantissa_bits) + (uint32_t)(significand >> shift);
}

static uint32_t narrow_limit(uint32_t code, const narrow_format *f, cast_mode mode) {
    if (code <= f->largest) return code;
    return mode == CAST_SATURATE ? f->largest : f->overflow;
}

/* Code of a non-NaN magnitude, to nearest even. */
static uint32_t narrow_nearest(uint32_t magnitude, const narrow_format *f, cast_mode mode) {
    const uint64_t half = (uint64_t)1 << 31;
    uint64_t fraction;
    uint32_t code = narrow_truncate(magnitude, f, &fraction);
    if (fraction > half || (fraction == half && (code & 1u))) code++;
    return narrow_limit(code, f, mode);
}

/* Value of a finite code without sign. */
static float narrow_widen(uint32_t code, const narrow_format *f) {
    uint32_t exponent = code >> f->mantissa_bits;
    uint32_t mantissa = code & ((1u << f->mantissa_bits) - 1);
    if (exponent == 0) /* mantissa times the smallest subnormal: exact */
        return (float)mantissa * fmath_from_bits((uint32_t)(128 - f->bias - f->mantissa_bits) << 23);
    return fmath_from_bits((exponent + (uint32_t)(127 - f->bias)) << 23 | mantissa
                                                                              << (23 - f->mantissa_bits));
}

/* Value of a code of an IEEE-like format: a full exponent means infinity or NaN. */
static float narrow_widen_ieee(uint32_t code, const narrow_format *f) {
    if (code > f->overflow) return NAN;
    return code == f->overflow ? INFINITY : narrow_widen(code, f);
}

static uint8_t fp8_nearest(float x, const narrow_format *f, cast_mode mode) {
    uint32_t bits = fmath_bits(x), magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7f;
    return (uint8_t)((bits >> 24 & 0x80u) | narrow_nearest(magnitude, f, mode));
}

uint8_t cast_to_e4m3(float x, cast_mode mode) {
    return fp8_nearest(x, &narrow_e4m3, mode);
}

uint8_t cast_to_e5m2(float x, cast_mode mode) {
    return fp8_nearest(x, &narrow_e5m2, mode);
}

uint8_t cast_to_fp8(float x, ott_dtype d, cast_mode mode) {
    return fp8_nearest(x, narrow_fp8(d), mode);
}

uint8_t cast_to_fp8_stochastic(float x, ott_dtype d, cast_mode mode, uint32_t random) {
    uint32_t bits = fmath_bits(x), magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7f;
    const narrow_format *f = narrow_fp8(d);
    uint64_t fraction;
    uint32_t code = narrow_truncate(magnitude, f, &fraction);
    if (random < fraction) code++;
    return (uint8_t)((bits >> 24 & 0x80u) | narrow_limit(code, f, mode));
}

float cast_from_e4m3(uint8_t code) {
    uint32_t magnitude = code & 0x7fu;
    if (magnitude == 0x7f) return NAN;
    float x = narrow_widen(magnitude, &narrow_e4m3);
    return code & 0x80u ? -x : x;
}

float cast_from_e5m2(uint8_t code) {
    float x = narrow_widen_ieee(code & 0x7fu, &narrow_e5m2);
    return code & 0x80u ? -x : x;
}

float cast_from_fp8(uint8_t code, ott_dtype d) {
    return d == OTT_E4M3 ? cast_from_e4m3(code) : cast_from_e5m2(code);
}

uint16_t cast_to_f16(float x) {
    uint32_t bits = fmath_bits(x), magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7fff;
    return (uint16_t)((bits >> 16 & 0x8000u) | narrow_nearest(magnitude, &narrow_f16, CAST_OVERFLOW));
}

float cast_from_f16(uint16_t h) {
    float x = narrow_widen_ieee(h & 0x7fffu, &narrow_f16);
    return h & 0x8000u ? -x : x;
}

float cast_from_e8m0(uint8_t code) {
    if (code == 255) return NAN;
    return fmath_from_bits(code == 0 ? 0x00400000u : (uint32_t)code << 23); /* 2^-127 is subnormal in fp32 */
}

/* The power of two nearest to x, a tie going to the even exponent byte; NaN for what has no logarithm (zero
 * is 2^-127). */
static uint8_t e8m0_from_float(float x) {
    uint32_t bits = fmath_bits(x);
    if (isnan(x) || x < 0.0f) return 255;
    uint32_t code = bits >> 23 & 0xffu, mantissa = bits & 0x7fffffu;
    /* Halfway to the next power: 1.5 * 2^e; among the subnormals 1.5 * 2^-127. */
    uint32_t halfway = code == 0 ? 0x600000u : 0x400000u;
    if (mantissa > halfway || (mantissa == halfway && (code & 1u))) code++;
    return (uint8_t)(code < 254 ? code : 254);
}

static int64_t integer_from_float(float x, int64_t low, int64_t high) {
    if (isnan(x)) return 0;
    if (x <= (float)low) return low;
    if (x >= (float)high) return high;
    return (int64_t)rintf(x);
}

float cast_load(const void *data, ott_dtype d, int64_t index) {
    switch (d) {
    case OTT_F32: return ((const float *)data)[index];
    case OTT_BF16: return cast_from_bf16(((const uint16_t *)data)[index]);
    case OTT_F16: return cast_from_f16(((const uint16_t *)data)[index]);
    case OTT_E4M3: return cast_from_e4m3(((const uint8_t *)data)[index]);
    case OTT_E5M2: return cast_from_e5m2(((const uint8_t *)data)[index]);
    case OTT_E8M0: return cast_from_e8m0(((const uint8_t *)data)[index]);
    case OTT_U8: return (float)((const uint8_t *)data)[index];
    case OTT_I32: return (float)((const int32_t *)data)[index];
    case OTT_I64: return (float)((const int64_t *)data)[index];
    case OTT_DTYPE_COUNT: break;
    }
    return NAN;
}

void cast_store(void *data, ott_dtype d, int64_t index, float value) {
    switch (d) {
    case OTT_F32: ((float *)data)[index] = value; break;
    case OTT_BF16: ((uint16_t *)data)[index] = cast_to_bf16(value); break;
    case OTT_F16: ((uint16_t *)data)[index] = cast_to_f16(value); break;
    case OTT_E4M3: ((uint8_t *)data)[index] = cast_to_e4m3(value, CAST_SATURATE); break;
    case OTT_E5M2: ((uint8_t *)data)[index] = cast_to_e5m2(value, CAST_SATURATE); break;
    case OTT_E8M0: ((uint8_t *)data)[index] = e8m0_from_float(value); break;
    case OTT_U8: ((uint8_t *)data)[index] = (uint8_t)integer_from_float(value, 0, UINT8_MAX); break;
    case OTT_I32: ((int32_t *)data)[index] = (int32_t)integer_from_float(value, INT32_MIN, INT32_MAX); break;
    case OTT_I64: ((int64_t *)data)[index] = integer_from_float(value, INT64_MIN, INT64_MAX); break;
    case OTT_DTYPE_COUNT: break;
    }
}
