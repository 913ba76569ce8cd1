/*
 * cpu/simd/simd: a vector of 16 floats, `v16`, for every ISA level. It is one 512-bit register
 * (CPU_ISA_avx512), two 256-bit registers (CPU_ISA_avx2), four 128-bit registers (CPU_ISA_neon) or a
 * float[16] (CPU_ISA_scalar). Every function gives the same bits at every level, except for the payload of a
 * NaN. So a kernel that is written with v16 gives the same bits everywhere.
 *
 *   v16   16 floats        v16i  16 unsigned 32-bit integers          v16m  16 booleans
 *
 * Each level's header defines these functions (the prefix v16_ is written once in a line):
 *   v16_zero set1 load load_n store store_n   load_n and store_n: only lanes [0, n); load_n: 0 in the others
 *   v16_add sub mul div                   IEEE, rounded to nearest even
 *   v16_fma(a,b,c) fnma                   a*b+c and -(a*b)+c; each result is rounded once
 *   v16_max(a,b) min(a,b)                 a > b ? a : b, and a < b ? a : b; b if a or b is NaN
 *   v16_round                             to the nearest integer, ties to even
 *   v16_bits from_bits to_int (truncates) from_int
 *   v16_lt le eq isnan, v16i_gt (signed) eq, v16_select(m, yes, no), v16i_select, v16m_first(n), v16m_count
 *   v16_fold_sum                          SUM16 of tensor/ops.def: lane[i] += lane[i+8], [i+4], [i+2], [i+1]
 *   v16_fold_max                          the same order, with v16_max
 *   v16i_set1 add sub and or xor umax umin umax16 shl shr sar fold_umax fold_rows; load store;
 *   load_u16 store_u16 load_u8 store_u8 (and _n)
 *
 * The level avx512bf16 is avx512 with dot products of pairs of bf16 numbers (SIMD_HAS_PAIRS). The level amx
 * is avx512bf16 with a tile unit (SIMD_HAS_TILES). The level amx_emulated is amx with a tile unit in C.
 */
#ifndef CPU_SIMD_H
#define CPU_SIMD_H

#include "base/fmath.h"
#include "fp8/cast.h"

/* SIMD functions are one or a few instructions and must be inlined. SIMD_UNROLL unrolls loops over arrays of
   vectors, so that the arrays stay in registers. With a sanitizer this takes minutes to compile. So then only
   SIMD_PRIMITIVE functions, one intrinsic per register, are inlined: calling them would double test time. */
#define SIMD_PRIMITIVE static inline __attribute__((always_inline, unused))
#if defined(OTT_SANITIZED)
#define SIMD static __attribute__((noinline, unused))
#define SIMD_UNROLL
#else
#define SIMD SIMD_PRIMITIVE
#if defined(__clang__)
#define SIMD_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SIMD_UNROLL _Pragma("GCC unroll 24")
#endif
#endif

#if defined(CPU_ISA_avx512)
#include "cpu/simd/avx512.h"
#elif defined(CPU_ISA_avx2)
#include "cpu/simd/avx2.h"
#elif defined(CPU_ISA_neon)
#include "cpu/simd/neon.h"
#elif defined(CPU_ISA_scalar)
#include "cpu/simd/scalar.h"
#else
#error "this file is compiled once per ISA level, with CPU_ISA_<ISA level> defined: cmake/cpu_isas.cmake"
#endif

#if defined(CPU_ISA_avx512bf16)
#define SIMD_HAS_PAIRS 1
#include "cpu/simd/avx512bf16.h"
#else
#define SIMD_HAS_PAIRS 0
#endif

#if defined(CPU_ISA_amx) || defined(CPU_ISA_amx_emulated)
#define SIMD_HAS_TILES 1
#include "cpu/simd/tiles.h"
#else
#define SIMD_HAS_TILES 0
#endif

SIMD v16 v16_abs(v16 a) {
    return v16_from_bits(v16i_and(v16_bits(a), v16i_set1(0x7fffffffu)));
}
SIMD v16 v16_neg(v16 a) {
    return v16_from_bits(v16i_xor(v16_bits(a), v16i_set1(0x80000000u)));
}
/* Sets lanes from n on to 0. */
SIMD v16 v16_keep_n(v16 a, int64_t n) {
    return v16_select(v16m_first(n), a, v16_zero());
}

/* ---- amax: the largest magnitude. Bits are compared: a NaN is larger than infinity, so it is kept. ---- */
/* Returns the larger of amax and |x| in each lane. A running amax starts as v16_zero(). */
SIMD v16 v16_amax(v16 amax, v16 x) {
    return v16_from_bits(v16i_umax(v16_bits(amax), v16i_and(v16_bits(x), v16i_set1(0x7fffffffu))));
}
SIMD float v16_fold_amax(v16 amax) {
    return fmath_from_bits(v16i_fold_umax(v16_bits(amax)));
}
/* Returns the larger of amax and |x|. */
SIMD float amax_of(float amax, float x) {
    uint32_t a = fmath_bits(amax), b = fmath_bits(x) & 0x7fffffffu;
    return fmath_from_bits(a > b ? a : b);
}

/* ---- amax of bf16: two numbers in each lane, compared by their 16 bits ---- */
SIMD v16i v16i_amax_bf16(v16i amax, const void *two_each) {
    return v16i_umax16(amax, v16i_and(v16i_load(two_each), v16i_set1(0x7fff7fffu)));
}
/* Returns the larger of the two bf16 numbers in each lane, in fp32. */
SIMD v16 v16_larger_bf16(v16i amax) {
    return v16_from_bits(v16i_umax(v16i_shl(amax, 16), v16i_and(amax, v16i_set1(0xffff0000u))));
}
/* Returns in lane i the largest number of amax[i], one of 16 in fp32, or of 32 in bf16 if `bf16`. */
SIMD v16 v16_fold_rows_amax(v16i amax[16], bool bf16) {
    v16i folded = v16i_fold_rows(amax, bf16);
    return bf16 ? v16_larger_bf16(folded) : v16_from_bits(folded);
}

/* ---- exp, with the bits of fmath_exp ---- */
SIMD v16 v16_exp(v16 given) {
    v16 x = v16_max(v16_set1(FMATH_EXP_MIN), given); /* a NaN stays NaN */
    x = v16_min(v16_set1(FMATH_EXP_MAX), x);
    v16 n = v16_round(v16_mul(x, v16_set1(FMATH_LOG2E)));
    v16 r = v16_fnma(n, v16_set1(FMATH_LN2_HI), x);
    r = v16_fnma(n, v16_set1(FMATH_LN2_LO), r);
    v16 p = v16_set1(FMATH_EXP_P0);
    p = v16_fma(p, r, v16_set1(FMATH_EXP_P1));
    p = v16_fma(p, r, v16_set1(FMATH_EXP_P2));
    p = v16_fma(p, r, v16_set1(FMATH_EXP_P3));
    p = v16_fma(p, r, v16_set1(FMATH_EXP_P4));
    p = v16_fma(p, r, v16_set1(FMATH_EXP_P5));
    p = v16_add(v16_fma(p, v16_mul(r, r), r), v16_set1(1.0f));
    /* exp(FMATH_EXP_MIN) rounds to 0. Selecting 0 directly avoids subnormal numbers, which are slow in the
       processor and would occur for every masked score (-inf). */
    p = v16_select(v16_le(x, v16_set1(FMATH_EXP_MIN)), v16_zero(), p);
    return v16_scale_by_power(p, n);
}

/* ---- log, with the bits of fmath_log ---- */
SIMD v16 v16_log(v16 x) {
    float lane[16];
    v16_store(lane, x);
    for (int i = 0; i < 16; i++) lane[i] = fmath_log_of_positive(lane[i]);
    v16 log = v16_select(v16_lt(x, v16_zero()), v16_set1(NAN), v16_load(lane));
    log = v16_select(v16_eq(x, v16_zero()), v16_set1(-INFINITY), log);
    return v16_select(v16_lt(x, v16_set1(INFINITY)), log, x);
}

/* ---- bf16 ---- */
SIMD v16 v16_load_bf16(const uint16_t *p) {
    return v16_from_bits(v16i_shl(v16i_load_u16(p), 16));
}
SIMD v16 v16_load_bf16_n(const uint16_t *p, int64_t n) {
    return v16_from_bits(v16i_shl(v16i_load_u16_n(p, n), 16));
}
/* Uses integer arithmetic, which is correct for all numbers at every ISA level. */
SIMD v16i v16_to_bf16(v16 x) {
    v16i u = v16_bits(x);
    v16i odd = v16i_and(v16i_shr(u, 16), v16i_set1(1));
    v16i h = v16i_shr(v16i_add(u, v16i_add(odd, v16i_set1(0x7fff))), 16);
    return v16i_select(v16_isnan(x), v16i_set1(0x7fff), h);
}
SIMD void v16_store_bf16(uint16_t *p, v16 x) {
#if SIMD_HAS_PAIRS
    if (v16_store_ordinary_bf16(p, x)) return;
#endif
    v16i_store_u16(p, v16_to_bf16(x));
}
SIMD void v16_store_bf16_n(uint16_t *p, v16 x, int64_t n) {
    v16i_store_u16_n(p, v16_to_bf16(x), n);
}

/* ---- FP8 ---- */
/* Decodes 16 codes exactly; d is OTT_E4M3 or OTT_E5M2. */
SIMD v16 v16_from_codes(codes16 c, ott_dtype d) {
    return d == OTT_E4M3 ? v16_from_e4m3(c) : v16_from_e5m2(c);
}
SIMD v16 v16_load_fp8(const uint8_t *p, ott_dtype d) {
    return v16_from_codes(codes16_load(p), d);
}
SIMD v16 v16_load_fp8_n(const uint8_t *p, ott_dtype d, int64_t n) {
    return v16_from_codes(codes16_load_n(p, n), d);
}

/* Returns the FP8 code (0..255) of each lane, rounded to nearest even. d and mode should be constants. */
SIMD v16i v16_to_fp8(v16 x, ott_dtype d, cast_mode mode) {
    const int mantissa = d == OTT_E4M3 ? 3 : 2, bias = d == OTT_E4M3 ? 7 : 15;
    const uint32_t largest = d == OTT_E4M3 ? 0x7e : 0x7b;
    const uint32_t most = mode == CAST_SATURATE ? largest : largest + 1; /* largest + 1 is NaN or infinity */
    const uint32_t smallest_normal = (uint32_t)(127 + 1 - bias) << 23;
    v16i u = v16_bits(x), a = v16i_and(u, v16i_set1(0x7fffffffu));
    /* Normal FP8 numbers: rounds the fp32 bits at FP8's last mantissa bit, then changes the bias. */
    v16i odd = v16i_and(v16i_shr(a, 23 - mantissa), v16i_set1(1));
    const uint32_t round_half = (1u << (22 - mantissa)) - 1;
    v16i normal = v16i_add(v16i_add(a, odd), v16i_set1(round_half - ((uint32_t)(127 - bias) << 23)));
    normal = v16i_sar(normal, 23 - mantissa);
    /* Subnormal FP8 numbers: adds a power of two so large that the sum is rounded at FP8's last bit. */
    const uint32_t magic = (uint32_t)(127 + 1 - bias + 23 - mantissa) << 23;
    v16 sum = v16_add(v16_from_bits(a), v16_from_bits(v16i_set1(magic)));
    v16i subnormal = v16i_sub(v16_bits(sum), v16i_set1(magic));
    v16i code = v16i_select(v16i_gt(v16i_set1(smallest_normal), a), subnormal, normal);
    code = v16i_umin(code, v16i_set1(most));
    code = v16i_or(code, v16i_and(v16i_shr(u, 24), v16i_set1(0x80)));
    return v16i_select(v16i_gt(a, v16i_set1(0x7f800000u)), v16i_set1(0x7f), code);
}
SIMD void v16_store_fp8(uint8_t *p, v16 x, ott_dtype d, cast_mode mode) {
    v16i_store_u8(p, v16_to_fp8(x, d, mode));
}
SIMD void v16_store_fp8_n(uint8_t *p, v16 x, ott_dtype d, cast_mode mode, int64_t n) {
    v16i_store_u8_n(p, v16_to_fp8(x, d, mode), n);
}

/* Returns the limit to which magnitudes are clamped before a cast: the largest FP8 value, or with
   CAST_OVERFLOW the next number above it: NaN in E4M3, infinity in E5M2. */
SIMD v16 v16_fp8_limit(ott_dtype d, cast_mode mode) {
    if (d == OTT_E4M3) return v16_set1(mode == CAST_SATURATE ? 448.0f : 480.0f);
    return v16_set1(mode == CAST_SATURATE ? 57344.0f : 65536.0f);
}

/* Stores 64 codes, with the bits of v16_to_fp8. Vectors without NaN use a faster method. It adds to each
   magnitude a power of two so large that the fp32 sum is rounded at FP8's last bit. The sum's upper 16 bits
   then have its exponent, its lower 16 bits the FP8 significand. A multiply-add of both halves gives the code
   without sign, plus a constant, times a power of two. */
SIMD void v16_store_fp8x64(uint8_t *p, const v16 x[4], ott_dtype d, cast_mode mode) {
    v16i code[4];
#ifndef CPU_ISA_scalar
    const int mantissa = d == OTT_E4M3 ? 3 : 2, bias = d == OTT_E4M3 ? 7 : 15;
    const v16i smallest_normal = v16i_set1((uint32_t)(127 + 1 - bias) << 23);
    const v16i halves = v16i_set1((1u << 16) + (128u >> mantissa));
    if (v16_have_no_nan(x)) {
        for (int v = 0; v < 4; v++) {
            v16 a = v16_magnitude(x[v], v16_fp8_limit(d, mode));
            v16i power = v16i_umax(v16i_and(v16_bits(a), v16i_set1(0x7f800000u)), smallest_normal);
            power = v16i_add(power, v16i_set1((uint32_t)(23 - mantissa) << 23));
            code[v] = v16i_madd16(v16_bits(v16_add(a, v16_from_bits(power))), halves);
        }
        v16i_store_signed_u8x64(p, code, (127 + 1 - bias + 23 - mantissa) << 7, 7 - mantissa, x);
        return;
    }
#endif
    for (int v = 0; v < 4; v++) code[v] = v16_to_fp8(x[v], d, mode);
    v16i_store_u8x64(p, code[0], code[1], code[2], code[3]);
}

/* ---- any high-precision format; `index` counts elements ---- */
SIMD v16 v16_load_any(const void *p, ott_dtype d, int64_t index) {
    if (d == OTT_F32) return v16_load((const float *)p + index);
    if (d == OTT_BF16) return v16_load_bf16((const uint16_t *)p + index);
    return v16_load_f16((const uint16_t *)p + index);
}
SIMD v16 v16_load_any_n(const void *p, ott_dtype d, int64_t index, int64_t n) {
    if (d == OTT_F32) return v16_load_n((const float *)p + index, n);
    if (d == OTT_BF16) return v16_load_bf16_n((const uint16_t *)p + index, n);
    return v16_load_f16_n((const uint16_t *)p + index, n);
}
SIMD void v16_store_any(void *p, ott_dtype d, int64_t index, v16 x) {
    if (d == OTT_F32)
        v16_store((float *)p + index, x);
    else if (d == OTT_BF16)
        v16_store_bf16((uint16_t *)p + index, x);
    else
        v16_store_f16((uint16_t *)p + index, x);
}
SIMD void v16_store_any_n(void *p, ott_dtype d, int64_t index, v16 x, int64_t n) {
    if (d == OTT_F32)
        v16_store_n((float *)p + index, x, n);
    else if (d == OTT_BF16)
        v16_store_bf16_n((uint16_t *)p + index, x, n);
    else
        v16_store_f16_n((uint16_t *)p + index, x, n);
}

#endif
