/*
 * cpu/simd/neon: the primitives of cpu/simd/simd.h on four 128-bit registers (ARMv8-A, every aarch64).
 *
 * Uses only fp32 multiply-adds, because the rounding of BFMLALB/T and BFDOT differs between cores.
 */
#ifndef CPU_SIMD_NEON_H
#define CPU_SIMD_NEON_H

#include <arm_neon.h>
#include <string.h>

typedef struct v16 {
    float32x4_t a, b, c, d;
} v16; /* a: lanes 0 to 3, b: 4 to 7, c: 8 to 11, d: 12 to 15 */
typedef struct v16i {
    uint32x4_t a, b, c, d;
} v16i;
typedef v16i v16m; /* all bits of a lane are 1 (true) or 0 (false) */

/* Define a primitive that applies one intrinsic to each quarter (register) of its arguments. */
#define V16_UNARY(type, name, of, f)                                                                         \
    SIMD_PRIMITIVE type name(of x) {                                                                         \
        return (type){f(x.a), f(x.b), f(x.c), f(x.d)};                                                       \
    }
#define V16_BINARY(type, name, of, f)                                                                        \
    SIMD_PRIMITIVE type name(of x, of y) {                                                                   \
        return (type){f(x.a, y.a), f(x.b, y.b), f(x.c, y.c), f(x.d, y.d)};                                   \
    }
#define V16_TERNARY(type, name, of, f)                                                                       \
    SIMD_PRIMITIVE type name(of x, of y, of z) {                                                             \
        return (type){f(x.a, y.a, z.a), f(x.b, y.b, z.b), f(x.c, y.c, z.c), f(x.d, y.d, z.d)};               \
    }
#define V16I_SHIFT(name, f)                                                                                  \
    SIMD_PRIMITIVE v16i name(v16i x, int count) {                                                            \
        return (v16i){f(x.a, count), f(x.b, count), f(x.c, count), f(x.d, count)};                           \
    }
#define V16_SELECT(type, name, f)                                                                            \
    SIMD_PRIMITIVE type name(v16m m, type x, type y) {                                                       \
        return (type){f(m.a, x.a, y.a), f(m.b, x.b, y.b), f(m.c, x.c, y.c), f(m.d, x.d, y.d)};               \
    }

SIMD_PRIMITIVE v16i v16i_set1(uint32_t x) {
    return (v16i){vdupq_n_u32(x), vdupq_n_u32(x), vdupq_n_u32(x), vdupq_n_u32(x)};
}
SIMD_PRIMITIVE v16m v16m_first(int64_t n) {
    static const uint32_t lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    uint32x4_t count = vdupq_n_u32((uint32_t)n);
    return (v16m){vcltq_u32(vld1q_u32(lane), count), vcltq_u32(vld1q_u32(lane + 4), count),
                  vcltq_u32(vld1q_u32(lane + 8), count), vcltq_u32(vld1q_u32(lane + 12), count)};
}

SIMD_PRIMITIVE v16 v16_set1(float x) {
    return (v16){vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x), vdupq_n_f32(x)};
}
SIMD_PRIMITIVE v16 v16_zero(void) {
    return v16_set1(0.0f);
}
SIMD_PRIMITIVE v16 v16_load(const float *p) {
    return (v16){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
SIMD_PRIMITIVE v16 v16_load_n(const float *p, int64_t n) {
    float part[16] = {0};
    memcpy(part, p, (size_t)(n < 16 ? n : 16) * 4);
    return v16_load(part);
}
SIMD_PRIMITIVE void v16_store(float *p, v16 x) {
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
}
SIMD_PRIMITIVE void v16_store_n(float *p, v16 x, int64_t n) {
    float part[16];
    v16_store(part, x);
    memcpy(p, part, (size_t)(n < 16 ? n : 16) * 4);
}

/* ---- one register, with the arguments of cpu/simd/simd.h: NEON's intrinsics have other ones ---- */

SIMD_PRIMITIVE float32x4_t neon_fma(float32x4_t x, float32x4_t y, float32x4_t z) {
    return vfmaq_f32(z, x, y);
}
SIMD_PRIMITIVE float32x4_t neon_fnma(float32x4_t x, float32x4_t y, float32x4_t z) {
    return vfmsq_f32(z, x, y);
}
/* NEON's max and min differ from v16_max and v16_min for NaN, and treat -0 as smaller than 0. */
SIMD_PRIMITIVE float32x4_t neon_max(float32x4_t x, float32x4_t y) {
    return vbslq_f32(vcgtq_f32(x, y), x, y);
}
SIMD_PRIMITIVE float32x4_t neon_min(float32x4_t x, float32x4_t y) {
    return vbslq_f32(vcltq_f32(x, y), x, y);
}
/* NEON's conversion saturates and gives 0 for a NaN. Here numbers that do not fit and NaN give INT_MIN. */
SIMD_PRIMITIVE uint32x4_t neon_to_int(float32x4_t x) {
    uint32x4_t fits = vandq_u32(vcgeq_f32(x, vdupq_n_f32(-0x1p31f)), vcltq_f32(x, vdupq_n_f32(0x1p31f)));
    return vbslq_u32(fits, vreinterpretq_u32_s32(vcvtq_s32_f32(x)), vdupq_n_u32(0x80000000u));
}
SIMD_PRIMITIVE float32x4_t neon_from_int(uint32x4_t x) {
    return vcvtq_f32_s32(vreinterpretq_s32_u32(x));
}
SIMD_PRIMITIVE uint32x4_t neon_isnan(float32x4_t x) {
    return vmvnq_u32(vceqq_f32(x, x));
}
SIMD_PRIMITIVE uint32x4_t neon_gt(uint32x4_t x, uint32x4_t y) {
    return vcgtq_s32(vreinterpretq_s32_u32(x), vreinterpretq_s32_u32(y));
}
SIMD_PRIMITIVE uint32x4_t neon_umax16(uint32x4_t x, uint32x4_t y) {
    return vreinterpretq_u32_u16(vmaxq_u16(vreinterpretq_u16_u32(x), vreinterpretq_u16_u32(y)));
}
/* Shifts by a constant: the compiler emits immediate shifts. */
SIMD_PRIMITIVE uint32x4_t neon_shl(uint32x4_t x, int count) {
    return x << vdupq_n_u32((uint32_t)count);
}
SIMD_PRIMITIVE uint32x4_t neon_shr(uint32x4_t x, int count) {
    return x >> vdupq_n_u32((uint32_t)count);
}
SIMD_PRIMITIVE uint32x4_t neon_sar(uint32x4_t x, int count) {
    return vreinterpretq_u32_s32(vreinterpretq_s32_u32(x) >> vdupq_n_s32(count));
}

V16_BINARY(v16, v16_add, v16, vaddq_f32)
V16_BINARY(v16, v16_sub, v16, vsubq_f32)
V16_BINARY(v16, v16_mul, v16, vmulq_f32)
V16_BINARY(v16, v16_div, v16, vdivq_f32)
V16_TERNARY(v16, v16_fma, v16, neon_fma)
V16_TERNARY(v16, v16_fnma, v16, neon_fnma)
V16_BINARY(v16, v16_max, v16, neon_max)
V16_BINARY(v16, v16_min, v16, neon_min)
V16_UNARY(v16, v16_round, v16, vrndnq_f32)

V16_UNARY(v16i, v16_bits, v16, vreinterpretq_u32_f32)
V16_UNARY(v16, v16_from_bits, v16i, vreinterpretq_f32_u32)
V16_UNARY(v16i, v16_to_int, v16, neon_to_int)
V16_UNARY(v16, v16_from_int, v16i, neon_from_int)

V16_BINARY(v16i, v16i_add, v16i, vaddq_u32)
V16_BINARY(v16i, v16i_sub, v16i, vsubq_u32)
V16_BINARY(v16i, v16i_and, v16i, vandq_u32)
V16_BINARY(v16i, v16i_or, v16i, vorrq_u32)
V16_BINARY(v16i, v16i_xor, v16i, veorq_u32)
V16_BINARY(v16i, v16i_umax, v16i, vmaxq_u32)
V16_BINARY(v16i, v16i_umin, v16i, vminq_u32)
/* Returns the larger of x and y for each of 32 unsigned 16-bit numbers. */
V16_BINARY(v16i, v16i_umax16, v16i, neon_umax16)
SIMD_PRIMITIVE v16i v16i_load(const void *p) {
    const uint32_t *q = p;
    return (v16i){vld1q_u32(q), vld1q_u32(q + 4), vld1q_u32(q + 8), vld1q_u32(q + 12)};
}
SIMD_PRIMITIVE void v16i_store(void *p, v16i x) {
    uint32_t *q = p;
    vst1q_u32(q, x.a);
    vst1q_u32(q + 4, x.b);
    vst1q_u32(q + 8, x.c);
    vst1q_u32(q + 12, x.d);
}
V16I_SHIFT(v16i_shl, neon_shl)
V16I_SHIFT(v16i_shr, neon_shr)
V16I_SHIFT(v16i_sar, neon_sar)

V16_BINARY(v16m, v16_lt, v16, vcltq_f32)
V16_BINARY(v16m, v16_le, v16, vcleq_f32)
V16_BINARY(v16m, v16_eq, v16, vceqq_f32)
V16_UNARY(v16m, v16_isnan, v16, neon_isnan)
V16_BINARY(v16m, v16i_gt, v16i, neon_gt)
V16_BINARY(v16m, v16i_eq, v16i, vceqq_u32)
V16_SELECT(v16, v16_select, vbslq_f32)
V16_SELECT(v16i, v16i_select, vbslq_u32)
SIMD_PRIMITIVE int v16m_count(v16m m) {
    return -(int)vaddvq_u32(vaddq_u32(vaddq_u32(m.a, m.b), vaddq_u32(m.c, m.d)));
}

SIMD_PRIMITIVE float v16_fold_sum(v16 x) {
    float32x4_t a = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
    return vpadds_f32(vadd_f32(vget_low_f32(a), vget_high_f32(a)));
}
SIMD_PRIMITIVE float v16_fold_max(v16 x) {
    float32x4_t a = neon_max(neon_max(x.a, x.c), neon_max(x.b, x.d));
    a = neon_max(a, vextq_f32(a, a, 2));
    a = neon_max(a, vextq_f32(a, a, 1));
    return vgetq_lane_f32(a, 0);
}
SIMD_PRIMITIVE uint32_t v16i_fold_umax(v16i x) {
    return vmaxvq_u32(vmaxq_u32(vmaxq_u32(x.a, x.b), vmaxq_u32(x.c, x.d)));
}

/* Returns max(x0, x1), max(x2, x3), max(y0, y1), max(y2, y3). halves: compares 16-bit halves separately. */
SIMD_PRIMITIVE uint32x4_t neon_fold_pairs(uint32x4_t x, uint32x4_t y, bool halves) {
    return halves ? neon_umax16(vuzp1q_u32(x, y), vuzp2q_u32(x, y)) : vpmaxq_u32(x, y);
}
/* Returns in lane i the largest lane of t[i], for 4 vectors. */
SIMD_PRIMITIVE uint32x4_t neon_fold_rows4(const v16i t[4], bool halves) {
    uint32x4_t m[4];
    SIMD_UNROLL for (int i = 0; i < 4; i++) {
        v16i x = t[i];
        m[i] = halves ? neon_umax16(neon_umax16(x.a, x.b), neon_umax16(x.c, x.d))
                      : vmaxq_u32(vmaxq_u32(x.a, x.b), vmaxq_u32(x.c, x.d));
    }
    return neon_fold_pairs(neon_fold_pairs(m[0], m[1], halves), neon_fold_pairs(m[2], m[3], halves), halves);
}
/* Returns in lane i the largest lane of t[i]. halves: compares the 16-bit halves of lanes separately. */
SIMD_PRIMITIVE v16i v16i_fold_rows(v16i t[16], bool halves) {
    return (v16i){neon_fold_rows4(t, halves), neon_fold_rows4(t + 4, halves), neon_fold_rows4(t + 8, halves),
                  neon_fold_rows4(t + 12, halves)};
}

/* Transposes a 4 x 4 block with rows a, b, c, d. */
SIMD_PRIMITIVE v16 neon_transpose4(float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d) {
    float64x2_t ab = vreinterpretq_f64_f32(vtrn1q_f32(a, b)), ba = vreinterpretq_f64_f32(vtrn2q_f32(a, b));
    float64x2_t cd = vreinterpretq_f64_f32(vtrn1q_f32(c, d)), dc = vreinterpretq_f64_f32(vtrn2q_f32(c, d));
    return (v16){vreinterpretq_f32_f64(vtrn1q_f64(ab, cd)), vreinterpretq_f32_f64(vtrn1q_f64(ba, dc)),
                 vreinterpretq_f32_f64(vtrn2q_f64(ab, cd)), vreinterpretq_f32_f64(vtrn2q_f64(ba, dc))};
}
/* Transposes: lane j of t[i] becomes lane i of t[j]. Works on 4 x 4 blocks. */
SIMD_PRIMITIVE void v16_transpose(v16 t[16]) {
    v16 block[4][4];
    SIMD_UNROLL for (int i = 0; i < 4; i++) {
        const v16 *r = t + 4 * i;
        block[0][i] = neon_transpose4(r[0].a, r[1].a, r[2].a, r[3].a);
        block[1][i] = neon_transpose4(r[0].b, r[1].b, r[2].b, r[3].b);
        block[2][i] = neon_transpose4(r[0].c, r[1].c, r[2].c, r[3].c);
        block[3][i] = neon_transpose4(r[0].d, r[1].d, r[2].d, r[3].d);
    }
    SIMD_UNROLL for (int j = 0; j < 4; j++) {
        const v16 *q = block[j];
        t[4 * j] = (v16){q[0].a, q[1].a, q[2].a, q[3].a};
        t[4 * j + 1] = (v16){q[0].b, q[1].b, q[2].b, q[3].b};
        t[4 * j + 2] = (v16){q[0].c, q[1].c, q[2].c, q[3].c};
        t[4 * j + 3] = (v16){q[0].d, q[1].d, q[2].d, q[3].d};
    }
}

/* Returns x * 2^n, n an integer in [-252, 254]. Multiplies twice: only the second product can round. */
SIMD_PRIMITIVE float32x4_t neon_scale_by_power(float32x4_t x, float32x4_t n) {
    uint32x4_t integer = vreinterpretq_u32_s32(vcvtq_s32_f32(n)), half = neon_sar(integer, 1);
    const uint32x4_t bias = vdupq_n_u32(127);
    float32x4_t low = vreinterpretq_f32_u32(neon_shl(vaddq_u32(half, bias), 23));
    float32x4_t high = vreinterpretq_f32_u32(neon_shl(vaddq_u32(vsubq_u32(integer, half), bias), 23));
    return vmulq_f32(vmulq_f32(x, low), high);
}
V16_BINARY(v16, v16_scale_by_power, v16, neon_scale_by_power)

/* ---- 16-bit and 8-bit elements ---- */
SIMD_PRIMITIVE v16i neon_from_u16(uint16x8_t low, uint16x8_t high) {
    return (v16i){vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low), vmovl_u16(vget_low_u16(high)),
                  vmovl_high_u16(high)};
}
SIMD_PRIMITIVE v16i v16i_load_u16(const uint16_t *p) {
    return neon_from_u16(vld1q_u16(p), vld1q_u16(p + 8));
}
SIMD_PRIMITIVE v16i v16i_load_u16_n(const uint16_t *p, int64_t n) {
    uint16_t part[16] = {0};
    memcpy(part, p, (size_t)(n < 16 ? n : 16) * 2);
    return v16i_load_u16(part);
}
/* Return the low, or the high, 16 bits of each lane. */
SIMD_PRIMITIVE uint16x8_t neon_low16(uint32x4_t x, uint32x4_t y) {
    return vuzp1q_u16(vreinterpretq_u16_u32(x), vreinterpretq_u16_u32(y));
}
SIMD_PRIMITIVE uint16x8_t neon_high16(uint32x4_t x, uint32x4_t y) {
    return vuzp2q_u16(vreinterpretq_u16_u32(x), vreinterpretq_u16_u32(y));
}
/* Return the low, or the high, 8 bits of each 16 bits. */
SIMD_PRIMITIVE uint8x16_t neon_low8(uint16x8_t x, uint16x8_t y) {
    return vuzp1q_u8(vreinterpretq_u8_u16(x), vreinterpretq_u8_u16(y));
}
SIMD_PRIMITIVE uint8x16_t neon_high8(uint16x8_t x, uint16x8_t y) {
    return vuzp2q_u8(vreinterpretq_u8_u16(x), vreinterpretq_u8_u16(y));
}
SIMD_PRIMITIVE void v16i_store_u16(uint16_t *p, v16i x) {
    vst1q_u16(p, neon_low16(x.a, x.b));
    vst1q_u16(p + 8, neon_low16(x.c, x.d));
}
SIMD_PRIMITIVE void v16i_store_u16_n(uint16_t *p, v16i x, int64_t n) {
    uint16_t part[16];
    v16i_store_u16(part, x);
    memcpy(p, part, (size_t)(n < 16 ? n : 16) * 2);
}
SIMD_PRIMITIVE v16i v16i_load_u8(const uint8_t *p) {
    uint8x16_t c = vld1q_u8(p);
    return neon_from_u16(vmovl_u8(vget_low_u8(c)), vmovl_high_u8(c));
}
SIMD_PRIMITIVE void v16i_store_u8(uint8_t *p, v16i x) {
    vst1q_u8(p, neon_low8(neon_low16(x.a, x.b), neon_low16(x.c, x.d)));
}
SIMD_PRIMITIVE void v16i_store_u8_n(uint8_t *p, v16i x, int64_t n) {
    uint8_t part[16];
    v16i_store_u8(part, x);
    memcpy(p, part, (size_t)(n < 16 ? n : 16));
}
/* Stores the 64 lanes of four vectors, which are at most 255, as bytes, in order. */
SIMD_PRIMITIVE void v16i_store_u8x64(uint8_t *p, v16i a, v16i b, v16i c, v16i d) {
    v16i_store_u8(p, a);
    v16i_store_u8(p + 16, b);
    v16i_store_u8(p + 32, c);
    v16i_store_u8(p + 48, d);
}

/* ---- helpers of v16_store_fp8x64 (cpu/simd/simd.h) ---- */
SIMD_PRIMITIVE uint32x4_t neon_no_nan(v16 x) {
    return vandq_u32(vandq_u32(vceqq_f32(x.a, x.a), vceqq_f32(x.b, x.b)),
                     vandq_u32(vceqq_f32(x.c, x.c), vceqq_f32(x.d, x.d)));
}
SIMD_PRIMITIVE bool v16_have_no_nan(const v16 x[4]) {
    return vminvq_u32(vandq_u32(vandq_u32(neon_no_nan(x[0]), neon_no_nan(x[1])),
                                vandq_u32(neon_no_nan(x[2]), neon_no_nan(x[3])))) != 0;
}
/* Returns the smaller of |x| and `limit` in each lane. */
SIMD_PRIMITIVE float32x4_t neon_magnitude(float32x4_t x, float32x4_t limit) {
    return vminq_f32(vabsq_f32(x), limit);
}
V16_BINARY(v16, v16_magnitude, v16, neon_magnitude)
/* Multiplies the signed 16-bit halves of each lane and adds the two products. */
SIMD_PRIMITIVE uint32x4_t neon_madd16(uint32x4_t x, uint32x4_t y) {
    int16x8_t a = vreinterpretq_s16_u32(x), b = vreinterpretq_s16_u32(y);
    return vreinterpretq_u32_s32(
        vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b)));
}
V16_BINARY(v16i, v16i_madd16, v16i, neon_madd16)
SIMD_PRIMITIVE uint16x8_t neon_shifted_low16(uint32x4_t x, uint32x4_t y, int offset, int shift) {
    return vsubq_u16(neon_low16(x, y), vdupq_n_u16((uint16_t)offset)) >> vdupq_n_u16((uint16_t)shift);
}
/* Stores 64 bytes, one for each lane: (word - offset) >> shift in bits 0 to 6, the sign of x in bit 7. */
SIMD_PRIMITIVE void v16i_store_signed_u8x64(uint8_t *p, const v16i word[4], int offset, int shift,
                                            const v16 x[4]) {
    SIMD_UNROLL for (int v = 0; v < 4; v++) {
        uint8x16_t bytes = neon_low8(neon_shifted_low16(word[v].a, word[v].b, offset, shift),
                                     neon_shifted_low16(word[v].c, word[v].d, offset, shift));
        v16i sign = v16_bits(x[v]);
        uint8x16_t signs = neon_high8(neon_high16(sign.a, sign.b), neon_high16(sign.c, sign.d));
        vst1q_u8(p + 16 * v, vbslq_u8(vdupq_n_u8(0x80), signs, bytes));
    }
}

/* Converts 16 fp16 numbers, given as bits in two registers, to fp32. */
SIMD_PRIMITIVE v16 neon_from_f16(uint16x8_t low, uint16x8_t high) {
    float16x8_t a = vreinterpretq_f16_u16(low), b = vreinterpretq_f16_u16(high);
    return (v16){vcvt_f32_f16(vget_low_f16(a)), vcvt_high_f32_f16(a), vcvt_f32_f16(vget_low_f16(b)),
                 vcvt_high_f32_f16(b)};
}
SIMD_PRIMITIVE v16 v16_load_f16(const uint16_t *p) {
    return neon_from_f16(vld1q_u16(p), vld1q_u16(p + 8));
}
SIMD_PRIMITIVE v16 v16_load_f16_n(const uint16_t *p, int64_t n) {
    uint16_t part[16] = {0};
    memcpy(part, p, (size_t)(n < 16 ? n : 16) * 2);
    return v16_load_f16(part);
}
/* Converts to fp16. A NaN becomes 0x7fff. */
SIMD_PRIMITIVE uint16x8_t neon_to_f16(float32x4_t x, float32x4_t y) {
    uint16x8_t h = vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x), y));
    const uint16x8_t magnitude = vdupq_n_u16(0x7fff), infinity = vdupq_n_u16(0x7c00);
    return vbslq_u16(vcgtq_u16(vandq_u16(h, magnitude), infinity), magnitude, h);
}
SIMD_PRIMITIVE void v16_store_f16(uint16_t *p, v16 x) {
    vst1q_u16(p, neon_to_f16(x.a, x.b));
    vst1q_u16(p + 8, neon_to_f16(x.c, x.d));
}
SIMD_PRIMITIVE void v16_store_f16_n(uint16_t *p, v16 x, int64_t n) {
    uint16_t part[16];
    v16_store_f16(part, x);
    memcpy(p, part, (size_t)(n < 16 ? n : 16) * 2);
}

/* Sixteen FP8 codes held in one register. */
typedef uint8x16_t codes16;
SIMD_PRIMITIVE codes16 codes16_load(const uint8_t *p) {
    return vld1q_u8(p);
}
SIMD_PRIMITIVE codes16 codes16_load_n(const uint8_t *p, int64_t n) {
    uint8_t part[16] = {0};
    memcpy(part, p, (size_t)(n < 16 ? n : 16));
    return codes16_load(part);
}
#define codes16_zip_low(x, y)  vzip1q_u8(x, y)
#define codes16_zip_high(x, y) vzip2q_u8(x, y)
SIMD_PRIMITIVE v16 v16_from_e5m2(codes16 c) {
    return neon_from_f16(vshll_n_u8(vget_low_u8(c), 8), vshll_high_n_u8(c, 8));
}
/* Returns the fp16 numbers with the sign, exponent and mantissa of E4M3 codes. They are the codes' values
   divided by 2^8. For the NaN code this fp16 number would be finite, so its exponent is set to 31. */
SIMD_PRIMITIVE uint16x8_t neon_e4m3_as_f16(int16x8_t wide) {
    uint16x8_t half = vandq_u16(vreinterpretq_u16_s16(vshlq_n_s16(wide, 7)), vdupq_n_u16(0xbf80));
    const uint16x8_t top = vdupq_n_u16(0x7f);
    uint16x8_t nan = vceqq_u16(vandq_u16(vreinterpretq_u16_s16(wide), top), top);
    return vorrq_u16(half, vandq_u16(nan, vdupq_n_u16(0x7e00)));
}
SIMD_PRIMITIVE v16 v16_from_e4m3(codes16 c) {
    int8x16_t codes = vreinterpretq_s8_u8(c);
    v16 x =
        neon_from_f16(neon_e4m3_as_f16(vmovl_s8(vget_low_s8(codes))), neon_e4m3_as_f16(vmovl_high_s8(codes)));
    return v16_mul(x, v16_set1(256.0f));
}

#endif
