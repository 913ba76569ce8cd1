/* fp8/scale: computes the scale of a group of values from their largest magnitude (amax). amax * scale is
   about `max`, the largest value of the FP8 format. Quantizing multiplies by scale. Dequantizing multiplies
   by scale_inv, which is 1/scale, rounded once. All functions are pure. */
#ifndef FP8_SCALE_H
#define FP8_SCALE_H

#include "fp8/cast.h"

/* X(constant, word, format in which scale_inv is stored, text).
   NONE: the scale is always 1.
   TORCHAO (float8_utils.amax_to_scale): max / amax, amax at least 1e-12; NaN gives NaN, infinity 0.
   TE (TransformerEngine, compute_scale_from_amax): max / amax, with amax at least eps; 0, infinity, NaN: 1.
   E8M0 (TransformerEngine MXFP8): scale_inv = amax / max, rounded up to a power of two.
   E8M0_FLOOR (OCP MX v1.0): scale_inv = 2^(floor(log2 amax) - floor(log2 max)); may saturate. */
#define SCALE_RULE_MAP(X)                                                                                    \
    X(NONE, "unit", F32, "1")                                                                                \
    X(TORCHAO, "torchao", F32, "max/amax")                                                                   \
    X(TE, "te", F32, "max/amax, else 1")                                                                     \
    X(E8M0, "e8m0", E8M0, "2^k, never saturates")                                                            \
    X(E8M0_FLOOR, "e8m0_floor", E8M0, "2^k, may saturate")

typedef enum scale_rule {
#define X(constant, word, format, text) SCALE_##constant,
    SCALE_RULE_MAP(X)
#undef X
        SCALE_RULES
} scale_rule;

/* Returns the format in which the rule's scale_inv is stored. */
static inline ott_dtype scale_rule_format(scale_rule rule) {
    static const ott_dtype formats[] = {
#define X(constant, word, format, text) OTT_##format,
        SCALE_RULE_MAP(X)
#undef X
    };
    return formats[rule];
}

#define BF16_MAX 0x1.fep127f

typedef struct scale_options {
    scale_rule rule;
    bool power_of_two; /* round scales down to powers of two, in torchao's or TransformerEngine's way */
    float epsilon;     /* lower bound of amax; only for SCALE_TE */
    int margin;        /* the scale is divided by 2^margin; only for SCALE_TE */
    /* replaces an infinite scale; only for SCALE_TE. It is FLT_MAX for scales of a tensor or a row, and the
       largest number of the source tensor's format for block scales */
    float infinite;
} scale_options;

/* torchao's exp2(floor(log2(scale))), from the bits of a positive normal scale. Clears the mantissa. But just
   below 2^k, log2 in fp32 rounds up to k, so the result is 2^k. This happens within ln(2) * 2^j ulp of 2^k,
   with 2^j < |log2(scale)| <= 2^(j + 1). Equals PyTorch 2.15 on a CPU, bit for bit, for every scale. */
ANYWHERE uint32_t scale_log2_floor_bits(uint32_t bits) {
    int k = (int)(bits >> 23) - 126; /* exponent of the next power of two */
    int log2_magnitude = k > 0 ? k - 1 : -k;
    uint32_t steps = 0x800000u - (bits & 0x7fffffu);
    uint32_t rounds_up = log2_magnitude >= 64   ? 44
                         : log2_magnitude >= 32 ? 22
                         : log2_magnitude >= 16 ? 11
                         : log2_magnitude >= 8  ? 5
                         : log2_magnitude >= 4  ? 2
                         : log2_magnitude >= 2  ? 1
                                                : 0;
    return (bits & 0xff800000u) + (steps <= rounds_up ? 0x800000u : 0u);
}
/* Rounds down to a power of two by clearing the mantissa. Keeps NaN and infinity; also rounds subnormals. */
ANYWHERE float scale_floor_power_of_two(float scale) {
    uint32_t bits = fmath_bits(scale);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude == 0 || magnitude >= 0x7f800000u) return scale;
    if (magnitude >= 0x00800000u) return fmath_from_bits(bits & 0xff800000u);
    uint32_t top = 0x00400000u; /* a subnormal's power of two is its highest set bit */
    while ((magnitude & top) == 0) top >>= 1;
    return fmath_from_bits((bits & 0x80000000u) | top);
}

/* torchao's float8_utils.amax_to_scale divides in double and rounds to fp32. This gives the bits of one fp32
   division. Only the lower bound 1e-12 needs double, because it is no fp32 number. */
ANYWHERE float scale_torchao(float amax, float max) {
    const double smallest = 1e-12;
    if ((double)amax < smallest) return (float)((double)max / smallest);
    return max / amax; /* NaN stays NaN, infinity gives 0 */
}

/* Rounds a scale down to a power of two. SCALE_TORCHAO's scales are 0, NaN or normal numbers. */
ANYWHERE float scale_power_of_two(float scale, scale_rule rule) {
    bool by_logarithm = rule == SCALE_TORCHAO && scale > 0;
    if (!by_logarithm) return scale_floor_power_of_two(scale);
    return fmath_from_bits(scale_log2_floor_bits(fmath_bits(scale)));
}

/* TransformerEngine compute_scale_from_amax. The division of max by 2^margin is exact. */
ANYWHERE float scale_te(float amax, float max, const scale_options *o) {
    if (amax < o->epsilon) amax = o->epsilon;
    if (amax == 0.0f || !isfinite(amax)) return 1.0f;
    float scale = ldexpf(max, -o->margin) / amax;
    return isinf(scale) ? o->infinite : scale;
}

/* MX: scale_e8m0_roundup and scale_e8m0_floor return the E8M0 code of scale_inv for a block's amax.
   scale_e8m0_multiplier returns the scale of a code: 2^(127 - code), NaN for code 255. */
ANYWHERE uint8_t scale_e8m0_roundup(float amax, ott_dtype d) {
    if (isnan(amax)) return 255;
    if (isinf(amax)) return 254;
    uint32_t bits =
        fmath_bits(amax * (1.0f / dtype_max(d))); /* TransformerEngine multiplies by the rounded reciprocal */
    uint32_t exponent = bits >> 23, mantissa = bits & 0x7fffffu;
    /* Code 0 is 2^-127, code 1 is 2^-126. Numbers between them have exponent field 0 and are rounded up. */
    bool up = exponent == 0 ? mantissa > 0x400000u : mantissa > 0;
    return (uint8_t)(exponent + (up ? 1u : 0u));
}
ANYWHERE uint8_t scale_e8m0_floor(float amax, ott_dtype d) {
    if (isnan(amax)) return 255;
    /* The largest power of two of the format: 2^8 (E4M3), 2^15 (E5M2). */
    int emax = ilogbf(dtype_max(d));
    /* OCP does not define the scale of an infinite amax. Here it is that of 2^128 (exponent field 255). */
    int code = (int)(fmath_bits(amax) >> 23) - emax;
    return (uint8_t)(code > 0 ? code : 0);
}
ANYWHERE float scale_e8m0_multiplier(uint8_t code) {
    return code == 255 ? NAN : cast_from_e8m0((uint8_t)(254 - code));
}
/* Returns the code of 1 / scale for a scale of scale_e8m0_multiplier. */
ANYWHERE uint8_t scale_e8m0_code(float scale) {
    return (uint8_t)(254u - (fmath_bits(scale) >> 23)); /* the exponent field is 254 - code; 255 for NaN */
}

/* Returns the scale of a group with this amax, for format d. */
ANYWHERE float scale_from_amax(float amax, ott_dtype d, const scale_options *options) {
    float scale = 1.0f;
    switch (options->rule) {
    case SCALE_NONE: return 1.0f;
    case SCALE_TORCHAO: scale = scale_torchao(amax, dtype_max(d)); break;
    case SCALE_TE: scale = scale_te(amax, dtype_max(d), options); break;
    case SCALE_E8M0: return scale_e8m0_multiplier(scale_e8m0_roundup(amax, d));
    case SCALE_E8M0_FLOOR: return scale_e8m0_multiplier(scale_e8m0_floor(amax, d));
    case SCALE_RULES: break;
    }
    return options->power_of_two ? scale_power_of_two(scale, options->rule) : scale;
}

ANYWHERE float scale_inverse(float scale) {
    return 1.0f / scale;
}

#endif
