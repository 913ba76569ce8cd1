/*
 * cpu/simd/scalar: the primitives of cpu/simd/simd.h as loops over an array of 16, for any machine.
 */
#ifndef CPU_SIMD_SCALAR_H
#define CPU_SIMD_SCALAR_H

#include "fp8/cast.h"
#include <math.h>
#include <string.h>

typedef struct v16 {
    float lane[16];
} v16;
typedef struct v16i {
    uint32_t lane[16];
} v16i;
typedef struct v16m {
    bool lane[16];
} v16m;

/* Returns a vector of the given type with lane i = `expression`. */
#define V16_LANES(type, expression)                                                                          \
    do {                                                                                                     \
        type result;                                                                                         \
        for (int i = 0; i < 16; i++) result.lane[i] = (expression);                                          \
        return result;                                                                                       \
    } while (0)

/* Define a primitive. `expression` computes lane i from the operands' lanes i. */
#define V16_UNARY(type, name, of, expression)                                                                \
    SIMD type name(of a) {                                                                                   \
        V16_LANES(type, expression);                                                                         \
    }
#define V16_BINARY(type, name, of, expression)                                                               \
    SIMD type name(of a, of b) {                                                                             \
        V16_LANES(type, expression);                                                                         \
    }
#define V16_TERNARY(type, name, of, expression)                                                              \
    SIMD type name(of a, of b, of c) {                                                                       \
        V16_LANES(type, expression);                                                                         \
    }

SIMD v16m v16m_first(int64_t n) {
    V16_LANES(v16m, i < n);
}

SIMD v16 v16_zero(void) {
    V16_LANES(v16, 0.0f);
}
SIMD v16 v16_set1(float x) {
    V16_LANES(v16, x);
}
SIMD v16 v16_load(const float *p) {
    V16_LANES(v16, p[i]);
}
SIMD v16 v16_load_n(const float *p, int64_t n) {
    V16_LANES(v16, i < n ? p[i] : 0.0f);
}
SIMD void v16_store(float *p, v16 x) {
    memcpy(p, x.lane, sizeof x.lane);
}
SIMD void v16_store_n(float *p, v16 x, int64_t n) {
    for (int i = 0; i < 16 && i < n; i++) p[i] = x.lane[i];
}

V16_BINARY(v16, v16_add, v16, a.lane[i] + b.lane[i])
V16_BINARY(v16, v16_sub, v16, a.lane[i] - b.lane[i])
V16_BINARY(v16, v16_mul, v16, a.lane[i] * b.lane[i])
V16_BINARY(v16, v16_div, v16, a.lane[i] / b.lane[i])
V16_TERNARY(v16, v16_fma, v16, fmaf(a.lane[i], b.lane[i], c.lane[i]))
V16_TERNARY(v16, v16_fnma, v16, fmaf(-a.lane[i], b.lane[i], c.lane[i]))
V16_BINARY(v16, v16_max, v16, a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i])
V16_BINARY(v16, v16_min, v16, a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i])
V16_UNARY(v16, v16_round, v16, rintf(a.lane[i]))

V16_UNARY(v16i, v16_bits, v16, fmath_bits(a.lane[i]))
V16_UNARY(v16, v16_from_bits, v16i, fmath_from_bits(a.lane[i]))
/* Gives the smallest int for numbers that do not fit, as x86 instructions do. */
V16_UNARY(v16i, v16_to_int, v16,
          a.lane[i] >= -0x1p31f && a.lane[i] < 0x1p31f ? (uint32_t)(int32_t)a.lane[i] : 0x80000000u)
V16_UNARY(v16, v16_from_int, v16i, (float)(int32_t)a.lane[i])

SIMD v16i v16i_set1(uint32_t x) {
    V16_LANES(v16i, x);
}
V16_BINARY(v16i, v16i_add, v16i, a.lane[i] + b.lane[i])
V16_BINARY(v16i, v16i_sub, v16i, a.lane[i] - b.lane[i])
V16_BINARY(v16i, v16i_and, v16i, a.lane[i] & b.lane[i])
V16_BINARY(v16i, v16i_or, v16i, a.lane[i] | b.lane[i])
V16_BINARY(v16i, v16i_xor, v16i, a.lane[i] ^ b.lane[i])
V16_BINARY(v16i, v16i_umax, v16i, a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i])
V16_BINARY(v16i, v16i_umin, v16i, a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i])
/* Returns the larger of a and b for each of 32 unsigned 16-bit numbers. */
SIMD v16i v16i_umax16(v16i a, v16i b) {
    v16i low = v16i_umax(v16i_and(a, v16i_set1(0xffffu)), v16i_and(b, v16i_set1(0xffffu)));
    v16i high = v16i_umax(v16i_and(a, v16i_set1(0xffff0000u)), v16i_and(b, v16i_set1(0xffff0000u)));
    return v16i_or(low, high);
}
SIMD v16i v16i_load(const void *p) {
    v16i x;
    memcpy(&x, p, sizeof x);
    return x;
}
SIMD void v16i_store(void *p, v16i x) {
    memcpy(p, &x, sizeof x);
}
SIMD v16i v16i_shl(v16i a, int count) {
    V16_LANES(v16i, a.lane[i] << count);
}
SIMD v16i v16i_shr(v16i a, int count) {
    V16_LANES(v16i, a.lane[i] >> count);
}
SIMD v16i v16i_sar(v16i a, int count) {
    V16_LANES(v16i, (uint32_t)((int32_t)a.lane[i] >> count));
}

V16_BINARY(v16m, v16_lt, v16, a.lane[i] < b.lane[i])
V16_BINARY(v16m, v16_le, v16, a.lane[i] <= b.lane[i])
V16_BINARY(v16m, v16_eq, v16, a.lane[i] == b.lane[i])
V16_UNARY(v16m, v16_isnan, v16, a.lane[i] != a.lane[i])
V16_BINARY(v16m, v16i_gt, v16i, (int32_t)a.lane[i] > (int32_t)b.lane[i])
V16_BINARY(v16m, v16i_eq, v16i, a.lane[i] == b.lane[i])
SIMD v16 v16_select(v16m m, v16 yes, v16 no) {
    V16_LANES(v16, m.lane[i] ? yes.lane[i] : no.lane[i]);
}
SIMD v16i v16i_select(v16m m, v16i yes, v16i no) {
    V16_LANES(v16i, m.lane[i] ? yes.lane[i] : no.lane[i]);
}
SIMD int v16m_count(v16m m) {
    int count = 0;
    for (int i = 0; i < 16; i++) count += m.lane[i];
    return count;
}

SIMD float v16_fold_sum(v16 x) {
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++) x.lane[i] += x.lane[i + half];
    return x.lane[0];
}
SIMD float v16_fold_max(v16 x) {
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            x.lane[i] = x.lane[i] > x.lane[i + half] ? x.lane[i] : x.lane[i + half];
    return x.lane[0];
}
SIMD uint32_t v16i_fold_umax(v16i x) {
    uint32_t most = 0;
    for (int i = 0; i < 16; i++) most = x.lane[i] > most ? x.lane[i] : most;
    return most;
}

/* Returns in lane i the largest lane of t[i]. halves: compares the 16-bit halves of lanes separately. */
SIMD v16i v16i_fold_rows(v16i t[16], bool halves) {
    v16i folded;
    for (int i = 0; i < 16; i++) {
        uint32_t most = t[i].lane[0];
        for (int j = 1; j < 16; j++) {
            uint32_t high = most & 0xffff0000u, low = most & 0xffffu, x = t[i].lane[j];
            if ((x & 0xffff0000u) > high) high = x & 0xffff0000u;
            if ((x & 0xffffu) > low) low = x & 0xffffu;
            most = halves ? high | low : x > most ? x : most;
        }
        folded.lane[i] = most;
    }
    return folded;
}

/* Transposes: lane j of t[i] becomes lane i of t[j]. */
SIMD void v16_transpose(v16 t[16]) {
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < i; j++) {
            float kept = t[i].lane[j];
            t[i].lane[j] = t[j].lane[i];
            t[j].lane[i] = kept;
        }
}

/* Returns x * 2^n, n an integer in [-252, 254]. Multiplies twice: only the second product can round. */
SIMD v16 v16_scale_by_power(v16 x, v16 n) {
    v16i integer = v16_to_int(n), half = v16i_sar(integer, 1), bias = v16i_set1(127);
    v16 low = v16_from_bits(v16i_shl(v16i_add(half, bias), 23));
    v16 high = v16_from_bits(v16i_shl(v16i_add(v16i_sub(integer, half), bias), 23));
    return v16_mul(v16_mul(x, low), high);
}

/* ---- 16-bit and 8-bit elements ---- */
SIMD v16i v16i_load_u16(const uint16_t *p) {
    V16_LANES(v16i, p[i]);
}
SIMD v16i v16i_load_u16_n(const uint16_t *p, int64_t n) {
    V16_LANES(v16i, i < n ? p[i] : 0u);
}
SIMD void v16i_store_u16_n(uint16_t *p, v16i x, int64_t n) {
    for (int i = 0; i < 16 && i < n; i++) p[i] = (uint16_t)x.lane[i];
}
SIMD void v16i_store_u16(uint16_t *p, v16i x) {
    v16i_store_u16_n(p, x, 16);
}
SIMD v16i v16i_load_u8(const uint8_t *p) {
    V16_LANES(v16i, p[i]);
}
SIMD void v16i_store_u8_n(uint8_t *p, v16i x, int64_t n) {
    for (int i = 0; i < 16 && i < n; i++) p[i] = (uint8_t)x.lane[i];
}
SIMD void v16i_store_u8(uint8_t *p, v16i x) {
    v16i_store_u8_n(p, x, 16);
}
/* Stores the 64 lanes of four vectors, which are at most 255, as bytes, in order. */
SIMD void v16i_store_u8x64(uint8_t *p, v16i a, v16i b, v16i c, v16i d) {
    v16i_store_u8(p, a);
    v16i_store_u8(p + 16, b);
    v16i_store_u8(p + 32, c);
    v16i_store_u8(p + 48, d);
}

SIMD v16 v16_load_f16(const uint16_t *p) {
    V16_LANES(v16, cast_from_f16(p[i]));
}
SIMD v16 v16_load_f16_n(const uint16_t *p, int64_t n) {
    V16_LANES(v16, i < n ? cast_from_f16(p[i]) : 0.0f);
}
SIMD void v16_store_f16_n(uint16_t *p, v16 x, int64_t n) {
    for (int i = 0; i < 16 && i < n; i++) p[i] = cast_to_f16(x.lane[i]);
}
SIMD void v16_store_f16(uint16_t *p, v16 x) {
    v16_store_f16_n(p, x, 16);
}

/* Sixteen FP8 codes. */
typedef struct codes16 {
    uint8_t lane[16];
} codes16;
SIMD codes16 codes16_load(const uint8_t *p) {
    V16_LANES(codes16, p[i]);
}
SIMD codes16 codes16_load_n(const uint8_t *p, int64_t n) {
    V16_LANES(codes16, (uint8_t)(i < n ? p[i] : 0));
}
SIMD v16 v16_from_e5m2(codes16 c) {
    V16_LANES(v16, cast_from_e5m2(c.lane[i]));
}
SIMD v16 v16_from_e4m3(codes16 c) {
    V16_LANES(v16, cast_from_e4m3(c.lane[i]));
}

#endif
