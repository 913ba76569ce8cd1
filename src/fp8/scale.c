/* fp8/scale: the published scale rules, each a pure function of amax. */
#include "fp8/scale.h"
#include "fp8/cast.h"

float scale_floor_power_of_two(float scale) {
    uint32_t bits = fmath_bits(scale);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude == 0 || magnitude >= 0x7f800000u) return scale;
    if (magnitude >= 0x00800000u) return fmath_from_bits(bits & 0xff800000u);
    uint32_t top = 0x00400000u; /* a subnormal's power of two is its highest set bit */
    while ((magnitude & top) == 0) top >>= 1;
    return fmath_from_bits((bits & 0x80000000u) | top);
}

/* torchao float8_utils.amax_to_scale divides in double and rounds to fp32. Double carries more than 2*24+2
   bits, so rounding twice equals one fp32 division; only the lower bound 1e-12, which no fp32 number is,
   needs the double. */
static float scale_torchao(float amax, float max) {
    const double smallest = 1e-12;
    if ((double)amax < smallest) return (float)((double)max / smallest);
    return max / amax; /* NaN stays NaN, infinity gives 0 */
}

/* Its scales are 0, NaN or normal: 448 / FLT_MAX to 57344 / 1e-12. */
static float power_of_two(float scale, scale_rule rule) {
    bool by_logarithm = rule == SCALE_TORCHAO && scale > 0;
    if (!by_logarithm) return scale_floor_power_of_two(scale);
    return fmath_from_bits(scale_log2_floor_bits(fmath_bits(scale)));
}

/* TransformerEngine compute_scale_from_amax; the margin divides the format's maximum, which is exact. */
static float scale_te(float amax, float max, const scale_options *o) {
    if (amax < o->epsilon) amax = o->epsilon;
    if (amax == 0.0f || !isfinite(amax)) return 1.0f;
    float scale = ldexpf(max, -o->margin) / amax;
    return isinf(scale) ? o->infinite : scale;
}

float scale_from_amax(float amax, ott_dtype d, const scale_options *options) {
    float scale = 1.0f;
    switch (options->rule) {
    case SCALE_NONE: return 1.0f;
    case SCALE_TORCHAO: scale = scale_torchao(amax, dtype_max(d)); break;
    case SCALE_TE: scale = scale_te(amax, dtype_max(d), options); break;
    case SCALE_E8M0: return scale_e8m0_multiplier(scale_e8m0_roundup(amax, d));
    case SCALE_E8M0_FLOOR: return scale_e8m0_multiplier(scale_e8m0_floor(amax, d));
    }
    return options->power_of_two ? power_of_two(scale, options->rule) : scale;
}

float scale_inverse(float scale) {
    return 1.0f / scale;
}

uint8_t scale_e8m0_roundup(float amax, ott_dtype d) {
    if (isnan(amax)) return 255;
    if (isinf(amax)) return 254;
    uint32_t bits =
        fmath_bits(amax * (1.0f / dtype_max(d))); /* TransformerEngine multiplies by the rounded reciprocal */
    uint32_t exponent = bits >> 23, mantissa = bits & 0x7fffffu;
    /* Exponent 0 holds everything up to 2^-127, the value of code 0; above it the next power is 2^-126. */
    bool up = exponent == 0 ? mantissa > 0x400000u : mantissa > 0;
    return (uint8_t)(exponent + (up ? 1u : 0u));
}

uint8_t scale_e8m0_floor(float amax, ott_dtype d) {
    if (isnan(amax)) return 255;
    /* The largest power of two of the format: 2^8 (E4M3), 2^15 (E5M2). */
    int emax = ilogbf(dtype_max(d));
    /* OCP leaves infinity open: its exponent field, 255, is taken as one more than the largest finite one. */
    int code = (int)(fmath_bits(amax) >> 23) - emax;
    return (uint8_t)(code > 0 ? code : 0);
}

float scale_e8m0_multiplier(uint8_t code) {
    return code == 255 ? NAN : cast_from_e8m0((uint8_t)(254 - code));
}
