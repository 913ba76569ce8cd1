/* fp8/cast: casts of numbers and arrays of any format. FP8 and fp16 use fp8/narrow. */
#include "fp8/codes.h"
#include "fp8/narrow.h"

uint8_t cast_to_e4m3(float x, cast_mode mode) {
    return narrow_to_fp8(x, OTT_E4M3, mode);
}

uint8_t cast_to_e5m2(float x, cast_mode mode) {
    return narrow_to_fp8(x, OTT_E5M2, mode);
}

uint8_t cast_to_fp8(float x, ott_dtype d, cast_mode mode) {
    return narrow_to_fp8(x, d, mode);
}

uint8_t cast_to_fp8_stochastic(float x, ott_dtype d, cast_mode mode, uint32_t random) {
    uint32_t bits = fmath_bits(x), magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7f;
    narrow_format f = narrow_of(d);
    uint64_t fraction;
    uint32_t code = narrow_truncate(magnitude, f, &fraction);
    if (random < fraction) code++;
    return (uint8_t)((bits >> 24 & 0x80u) | narrow_limit(code, f, mode));
}

float cast_from_e4m3(uint8_t code) {
    return narrow_from_fp8(code, OTT_E4M3);
}

float cast_from_e5m2(uint8_t code) {
    return narrow_from_fp8(code, OTT_E5M2);
}

float cast_from_fp8(uint8_t code, ott_dtype d) {
    return narrow_from_fp8(code, d);
}

uint16_t cast_to_f16(float x) {
    uint32_t bits = fmath_bits(x), magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7fff;
    return (uint16_t)((bits >> 16 & 0x8000u) | narrow_nearest(magnitude, narrow_of(OTT_F16), CAST_OVERFLOW));
}

float cast_from_f16(uint16_t h) {
    float x = narrow_widen_ieee(h & 0x7fffu, narrow_of(OTT_F16));
    return h & 0x8000u ? -x : x;
}

/* Rounds x to the nearest power of two, at most 2^127; a tie goes to the even exponent byte. Zero gives
   2^-127, negative numbers and NaN give NaN. */
static uint8_t e8m0_from_float(float x) {
    uint32_t bits = fmath_bits(x);
    if (isnan(x) || x < 0.0f) return 255;
    uint32_t code = bits >> 23 & 0xffu, mantissa = bits & 0x7fffffu;
    /* Mantissa halfway between two powers of two: of 1.5 * 2^e, or if code is 0, of 1.5 * 2^-127. */
    uint32_t halfway = code == 0 ? 0x600000u : 0x400000u;
    if (mantissa > halfway || (mantissa == halfway && (code & 1u))) code++;
    return (uint8_t)(code < 254 ? code : 254);
}

static int64_t integer_from_float(float x, int64_t low, int64_t high) {
    if (isnan(x)) return 0;
    if (x <= (float)low) return low;
    return x >= (float)high ? high : (int64_t)rintf(x);
}

float cast_load(const void *data, ott_dtype d, int64_t index) {
    switch (d) {
    case OTT_F32: return ((const float *)data)[index];
    case OTT_BF16: return cast_from_bf16(((const uint16_t *)data)[index]);
    case OTT_F16: return cast_from_f16(((const uint16_t *)data)[index]);
    case OTT_E8M0: return cast_from_e8m0(((const uint8_t *)data)[index]);
    case OTT_U8: return (float)((const uint8_t *)data)[index];
    case OTT_I32: return (float)((const int32_t *)data)[index];
    case OTT_I64: return (float)((const int64_t *)data)[index];
    case OTT_DTYPE_COUNT: return NAN;
    default: return narrow_from_fp8(codes_get(data, d, index), d);
    }
}

void cast_store(void *data, ott_dtype d, int64_t index, float value) {
    switch (d) {
    case OTT_F32: ((float *)data)[index] = value; break;
    case OTT_BF16: ((uint16_t *)data)[index] = cast_to_bf16(value); break;
    case OTT_F16: ((uint16_t *)data)[index] = cast_to_f16(value); break;
    case OTT_E8M0: ((uint8_t *)data)[index] = e8m0_from_float(value); break;
    case OTT_U8: ((uint8_t *)data)[index] = (uint8_t)integer_from_float(value, 0, UINT8_MAX); break;
    case OTT_I32: ((int32_t *)data)[index] = (int32_t)integer_from_float(value, INT32_MIN, INT32_MAX); break;
    case OTT_I64: ((int64_t *)data)[index] = integer_from_float(value, INT64_MIN, INT64_MAX); break;
    case OTT_DTYPE_COUNT: break;
    default: codes_put(data, d, index, narrow_to_fp8(value, d, CAST_SATURATE));
    }
}

void cast_in_place(void *data, ott_dtype from, ott_dtype to, int64_t count) {
    if (from == to) return;
    bool widens = dtype_bytes(to) > dtype_bytes(from);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = widens ? count - 1 - i : i; /* in this order no unread element is overwritten */
        cast_store(data, to, at, cast_load(data, from, at));
    }
}
