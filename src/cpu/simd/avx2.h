/*
 * cpu/simd/avx2: the primitives of cpu/simd/simd.h on two 256-bit registers (x86-64-v3: AVX2, FMA, F16C).
 */
#ifndef CPU_SIMD_AVX2_H
#define CPU_SIMD_AVX2_H

#include <immintrin.h>
#include <string.h>

typedef struct v16 {
    __m256 a, b;
} v16; /* a: lanes 0 to 7, b: lanes 8 to 15 */
typedef struct v16i {
    __m256i a, b;
} v16i;
typedef v16i v16m; /* all bits of a lane are 1 (true) or 0 (false) */

/* Define a primitive that is one intrinsic for each half. */
#define V16_UNARY(type, name, of, f)                                                                         \
    SIMD_PRIMITIVE type name(of x) {                                                                         \
        return (type){f(x.a), f(x.b)};                                                                       \
    }
#define V16_BINARY(type, name, of, f)                                                                        \
    SIMD_PRIMITIVE type name(of x, of y) {                                                                   \
        return (type){f(x.a, y.a), f(x.b, y.b)};                                                             \
    }
#define V16_TERNARY(type, name, of, f)                                                                       \
    SIMD_PRIMITIVE type name(of x, of y, of z) {                                                             \
        return (type){f(x.a, y.a, z.a), f(x.b, y.b, z.b)};                                                   \
    }
#define V16I_SHIFT(name, f)                                                                                  \
    SIMD_PRIMITIVE v16i name(v16i x, int count) {                                                            \
        return (v16i){f(x.a, count), f(x.b, count)};                                                         \
    }
#define V16_COMPARE(name, how)                                                                               \
    SIMD_PRIMITIVE v16m name(v16 x, v16 y) {                                                                 \
        return (v16m){_mm256_castps_si256(_mm256_cmp_ps(x.a, y.a, how)),                                     \
                      _mm256_castps_si256(_mm256_cmp_ps(x.b, y.b, how))};                                    \
    }

SIMD_PRIMITIVE v16m v16m_first(int64_t n) {
    __m256i count = _mm256_set1_epi32((int)n);
    return (v16m){_mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
                  _mm256_cmpgt_epi32(count, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}

SIMD_PRIMITIVE v16 v16_zero(void) {
    return (v16){_mm256_setzero_ps(), _mm256_setzero_ps()};
}
SIMD_PRIMITIVE v16 v16_set1(float x) {
    return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
SIMD_PRIMITIVE v16 v16_load(const float *p) {
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
SIMD_PRIMITIVE v16 v16_load_n(const float *p, int64_t n) {
    v16m m = v16m_first(n);
    return (v16){_mm256_maskload_ps(p, m.a), _mm256_maskload_ps(p + 8, m.b)};
}
SIMD_PRIMITIVE void v16_store(float *p, v16 x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
SIMD_PRIMITIVE void v16_store_n(float *p, v16 x, int64_t n) {
    v16m m = v16m_first(n);
    _mm256_maskstore_ps(p, m.a, x.a);
    _mm256_maskstore_ps(p + 8, m.b, x.b);
}

V16_BINARY(v16, v16_add, v16, _mm256_add_ps)
V16_BINARY(v16, v16_sub, v16, _mm256_sub_ps)
V16_BINARY(v16, v16_mul, v16, _mm256_mul_ps)
V16_BINARY(v16, v16_div, v16, _mm256_div_ps)
V16_TERNARY(v16, v16_fma, v16, _mm256_fmadd_ps)
V16_TERNARY(v16, v16_fnma, v16, _mm256_fnmadd_ps)
V16_BINARY(v16, v16_max, v16, _mm256_max_ps)
V16_BINARY(v16, v16_min, v16, _mm256_min_ps)
SIMD_PRIMITIVE v16 v16_round(v16 x) {
    return (v16){_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                 _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

V16_UNARY(v16i, v16_bits, v16, _mm256_castps_si256)
V16_UNARY(v16, v16_from_bits, v16i, _mm256_castsi256_ps)
V16_UNARY(v16i, v16_to_int, v16, _mm256_cvttps_epi32)
V16_UNARY(v16, v16_from_int, v16i, _mm256_cvtepi32_ps)

SIMD_PRIMITIVE v16i v16i_set1(uint32_t x) {
    return (v16i){_mm256_set1_epi32((int)x), _mm256_set1_epi32((int)x)};
}
V16_BINARY(v16i, v16i_add, v16i, _mm256_add_epi32)
V16_BINARY(v16i, v16i_sub, v16i, _mm256_sub_epi32)
V16_BINARY(v16i, v16i_and, v16i, _mm256_and_si256)
V16_BINARY(v16i, v16i_or, v16i, _mm256_or_si256)
V16_BINARY(v16i, v16i_xor, v16i, _mm256_xor_si256)
V16_BINARY(v16i, v16i_umax, v16i, _mm256_max_epu32)
V16_BINARY(v16i, v16i_umin, v16i, _mm256_min_epu32)
/* Returns the larger of x and y for each of 32 unsigned 16-bit numbers. */
V16_BINARY(v16i, v16i_umax16, v16i, _mm256_max_epu16)
SIMD_PRIMITIVE v16i v16i_load(const void *p) {
    return (v16i){_mm256_loadu_si256(p), _mm256_loadu_si256((const __m256i *)p + 1)};
}
SIMD_PRIMITIVE void v16i_store(void *p, v16i x) {
    _mm256_storeu_si256(p, x.a);
    _mm256_storeu_si256((__m256i *)p + 1, x.b);
}
V16I_SHIFT(v16i_shl, _mm256_slli_epi32)
V16I_SHIFT(v16i_shr, _mm256_srli_epi32)
V16I_SHIFT(v16i_sar, _mm256_srai_epi32)

V16_COMPARE(v16_lt, _CMP_LT_OQ)
V16_COMPARE(v16_le, _CMP_LE_OQ)
V16_COMPARE(v16_eq, _CMP_EQ_OQ)
V16_COMPARE(v16_unordered, _CMP_UNORD_Q)
SIMD_PRIMITIVE v16m v16_isnan(v16 a) {
    return v16_unordered(a, a);
}
V16_BINARY(v16m, v16i_gt, v16i, _mm256_cmpgt_epi32)
V16_BINARY(v16m, v16i_eq, v16i, _mm256_cmpeq_epi32)
SIMD_PRIMITIVE v16 v16_select(v16m m, v16 yes, v16 no) {
    return (v16){_mm256_blendv_ps(no.a, yes.a, _mm256_castsi256_ps(m.a)),
                 _mm256_blendv_ps(no.b, yes.b, _mm256_castsi256_ps(m.b))};
}
SIMD_PRIMITIVE v16i v16i_select(v16m m, v16i yes, v16i no) {
    return (v16i){_mm256_blendv_epi8(no.a, yes.a, m.a), _mm256_blendv_epi8(no.b, yes.b, m.b)};
}
SIMD_PRIMITIVE int v16m_count(v16m m) {
    return __builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(m.a))) +
           __builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(m.b)));
}

SIMD_PRIMITIVE float v16_fold_sum(v16 x) {
    __m256 a = _mm256_add_ps(x.a, x.b);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
SIMD_PRIMITIVE float v16_fold_max(v16 x) {
    __m256 a = _mm256_max_ps(x.a, x.b);
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}
SIMD_PRIMITIVE uint32_t v16i_fold_umax(v16i x) {
    __m256i a = _mm256_max_epu32(x.a, x.b);
    __m128i b = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0x4e));
    b = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(b);
}

/* Returns in lane i the largest lane of t[i], for 8 vectors. halves: compares 16-bit halves separately. */
SIMD_PRIMITIVE __m256i v16i_fold_rows8(v16i t[8], bool halves) {
#define LARGER(x, y) (halves ? _mm256_max_epu16(x, y) : _mm256_max_epu32(x, y))
#define LANES(x, y, which)                                                                                   \
    _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(y), which))
    __m256i m[8];
    for (int i = 0; i < 8; i++) m[i] = LARGER(t[i].a, t[i].b);
    for (int i = 0; i < 4; i++)
        m[i] = LARGER(_mm256_permute2x128_si256(m[i], m[i + 4], 0x20),
                      _mm256_permute2x128_si256(m[i], m[i + 4], 0x31));
    for (int i = 0; i < 2; i++)
        m[i] = LARGER(_mm256_unpacklo_epi64(m[i], m[i + 2]), _mm256_unpackhi_epi64(m[i], m[i + 2]));
    __m256i folded = LARGER(LANES(m[0], m[1], 0x88), LANES(m[0], m[1], 0xdd));
#undef LARGER
#undef LANES
    return _mm256_permutevar8x32_epi32(folded, _mm256_setr_epi32(0, 2, 1, 3, 4, 6, 5, 7));
}
/* Returns in lane i the largest lane of t[i]. halves: compares the 16-bit halves of lanes separately. */
SIMD_PRIMITIVE v16i v16i_fold_rows(v16i t[16], bool halves) {
    return (v16i){v16i_fold_rows8(t, halves), v16i_fold_rows8(t + 8, halves)};
}

SIMD_PRIMITIVE void v16_transpose8(__m256 t[8]) {
    __m256 u[8];
    SIMD_UNROLL for (int i = 0; i < 8; i += 2) {
        u[i] = _mm256_unpacklo_ps(t[i], t[i + 1]);
        u[i + 1] = _mm256_unpackhi_ps(t[i], t[i + 1]);
    }
    SIMD_UNROLL for (int i = 0; i < 8; i += 4) {
        t[i] = _mm256_shuffle_ps(u[i], u[i + 2], 0x44);
        t[i + 1] = _mm256_shuffle_ps(u[i], u[i + 2], 0xee);
        t[i + 2] = _mm256_shuffle_ps(u[i + 1], u[i + 3], 0x44);
        t[i + 3] = _mm256_shuffle_ps(u[i + 1], u[i + 3], 0xee);
    }
    SIMD_UNROLL for (int i = 0; i < 4; i++) {
        u[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
        u[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
    for (int i = 0; i < 8; i++) t[i] = u[i];
}
/* Transposes: lane j of t[i] becomes lane i of t[j]. Works on 8 x 8 blocks. */
SIMD_PRIMITIVE void v16_transpose(v16 t[16]) {
    __m256 block[4][8];
    for (int i = 0; i < 8; i++) {
        block[0][i] = t[i].a, block[1][i] = t[i].b;
        block[2][i] = t[i + 8].a, block[3][i] = t[i + 8].b;
    }
    for (int i = 0; i < 4; i++) v16_transpose8(block[i]);
    for (int i = 0; i < 8; i++) {
        t[i] = (v16){block[0][i], block[2][i]};
        t[i + 8] = (v16){block[1][i], block[3][i]};
    }
}

SIMD_PRIMITIVE __m256 v16_half_scale(__m256 x, __m256i n) {
    const __m256i bias = _mm256_set1_epi32(127);
    __m256i half = _mm256_srai_epi32(n, 1);
    __m256 low = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    __m256 high =
        _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(n, half), bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(x, low), high);
}
/* Returns x * 2^n, n an integer in [-252, 254]. Multiplies twice: only the second product can round. */
SIMD_PRIMITIVE v16 v16_scale_by_power(v16 x, v16 n) {
    v16i integer = v16_to_int(n);
    return (v16){v16_half_scale(x.a, integer.a), v16_half_scale(x.b, integer.b)};
}

/* ---- 16-bit and 8-bit elements ---- */
SIMD_PRIMITIVE v16i v16i_load_u16(const uint16_t *p) {
    return (v16i){_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)),
                  _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(p + 8)))};
}
SIMD_PRIMITIVE v16i v16i_load_u16_n(const uint16_t *p, int64_t n) {
    uint16_t part[16] = {0};
    memcpy(part, p, (size_t)(n < 16 ? n : 16) * 2);
    return v16i_load_u16(part);
}
/* Returns the low 16 bits of each lane, in order. Lanes must be at most 0xffff. */
SIMD_PRIMITIVE __m256i v16i_u16_lanes(v16i x) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(x.a, x.b), 0xd8);
}
SIMD_PRIMITIVE void v16i_store_u16(uint16_t *p, v16i x) {
    _mm256_storeu_si256((void *)p, v16i_u16_lanes(x));
}
SIMD_PRIMITIVE void v16i_store_u16_n(uint16_t *p, v16i x, int64_t n) {
    uint16_t part[16];
    v16i_store_u16(part, x);
    memcpy(p, part, (size_t)(n < 16 ? n : 16) * 2);
}
SIMD_PRIMITIVE v16i v16i_load_u8(const uint8_t *p) {
    __m128i c = _mm_loadu_si128((const void *)p);
    return (v16i){_mm256_cvtepu8_epi32(c), _mm256_cvtepu8_epi32(_mm_srli_si128(c, 8))};
}
SIMD_PRIMITIVE void v16i_store_u8(uint8_t *p, v16i x) {
    __m256i words = v16i_u16_lanes(x);
    _mm_storeu_si128((void *)p,
                     _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
SIMD_PRIMITIVE void v16i_store_u8_n(uint8_t *p, v16i x, int64_t n) {
    uint8_t part[16];
    v16i_store_u8(part, x);
    memcpy(p, part, (size_t)(n < 16 ? n : 16));
}
SIMD_PRIMITIVE __m256i v16i_u8_lanes(v16i x, v16i y) {
    __m256i bytes = _mm256_packus_epi16(_mm256_packus_epi32(x.a, x.b), _mm256_packus_epi32(y.a, y.b));
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
/* Stores the 64 lanes of four vectors, which are at most 255, as bytes, in order. */
SIMD_PRIMITIVE void v16i_store_u8x64(uint8_t *p, v16i a, v16i b, v16i c, v16i d) {
    _mm256_storeu_si256((void *)p, v16i_u8_lanes(a, b));
    _mm256_storeu_si256((void *)(p + 32), v16i_u8_lanes(c, d));
}

/* ---- helpers of v16_store_fp8x64 (cpu/simd/simd.h) ---- */
SIMD_PRIMITIVE bool v16_have_no_nan(const v16 x[4]) {
    __m256 nan = _mm256_cmp_ps(x[0].a, x[0].b, _CMP_UNORD_Q);
    for (int v = 1; v < 4; v++) nan = _mm256_or_ps(nan, _mm256_cmp_ps(x[v].a, x[v].b, _CMP_UNORD_Q));
    return _mm256_movemask_ps(nan) == 0;
}
/* Returns the smaller of |x| and `limit` in each lane. */
SIMD_PRIMITIVE v16 v16_magnitude(v16 x, v16 limit) {
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    return (v16){_mm256_min_ps(_mm256_and_ps(x.a, magnitude), limit.a),
                 _mm256_min_ps(_mm256_and_ps(x.b, magnitude), limit.b)};
}
/* Multiplies the signed 16-bit halves of each lane and adds the two products. */
V16_BINARY(v16i, v16i_madd16, v16i, _mm256_madd_epi16)
SIMD_PRIMITIVE __m256i v16i_signed_u8_lanes(v16i a, v16i b, int offset, int shift, v16 x, v16 y) {
    const __m256i from = _mm256_set1_epi16((short)offset), sign = _mm256_set1_epi8((char)0x80);
    __m256i low = _mm256_sub_epi16(_mm256_packs_epi32(a.a, a.b), from);
    __m256i high = _mm256_sub_epi16(_mm256_packs_epi32(b.a, b.b), from);
    __m256i bytes = _mm256_packus_epi16(_mm256_srli_epi16(low, shift), _mm256_srli_epi16(high, shift));
    v16i left = v16_bits(x), right = v16_bits(y);
    __m256i signs =
        _mm256_packs_epi16(_mm256_packs_epi32(left.a, left.b), _mm256_packs_epi32(right.a, right.b));
    bytes = _mm256_or_si256(bytes, _mm256_and_si256(signs, sign));
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
/* Stores 64 bytes, one for each lane: (word - offset) >> shift in bits 0 to 6, the sign of x in bit 7. */
SIMD_PRIMITIVE void v16i_store_signed_u8x64(uint8_t *p, const v16i word[4], int offset, int shift,
                                            const v16 x[4]) {
    _mm256_storeu_si256((void *)p, v16i_signed_u8_lanes(word[0], word[1], offset, shift, x[0], x[1]));
    _mm256_storeu_si256((void *)(p + 32), v16i_signed_u8_lanes(word[2], word[3], offset, shift, x[2], x[3]));
}

SIMD_PRIMITIVE v16 v16_load_f16(const uint16_t *p) {
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const void *)p)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p + 8)))};
}
SIMD_PRIMITIVE v16 v16_load_f16_n(const uint16_t *p, int64_t n) {
    uint16_t part[16] = {0};
    memcpy(part, p, (size_t)(n < 16 ? n : 16) * 2);
    return v16_load_f16(part);
}
SIMD_PRIMITIVE __m128i v16_to_f16_half(__m256 x) {
    __m128i h = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m128i magnitude = _mm_set1_epi16(0x7fff), infinity = _mm_set1_epi16(0x7c00);
    return _mm_blendv_epi8(h, magnitude, _mm_cmpgt_epi16(_mm_and_si128(h, magnitude), infinity));
}
SIMD_PRIMITIVE void v16_store_f16(uint16_t *p, v16 x) {
    _mm_storeu_si128((void *)p, v16_to_f16_half(x.a));
    _mm_storeu_si128((void *)(p + 8), v16_to_f16_half(x.b));
}
SIMD_PRIMITIVE void v16_store_f16_n(uint16_t *p, v16 x, int64_t n) {
    uint16_t part[16];
    v16_store_f16(part, x);
    memcpy(p, part, (size_t)(n < 16 ? n : 16) * 2);
}

/* Sixteen FP8 codes held in one 128-bit register. */
typedef __m128i codes16;
SIMD_PRIMITIVE codes16 codes16_load(const uint8_t *p) {
    return _mm_loadu_si128((const void *)p);
}
SIMD_PRIMITIVE codes16 codes16_load_n(const uint8_t *p, int64_t n) {
    uint8_t part[16] = {0};
    memcpy(part, p, (size_t)(n < 16 ? n : 16));
    return codes16_load(part);
}
#define codes16_zip_low(x, y)  _mm_unpacklo_epi8(x, y)
#define codes16_zip_high(x, y) _mm_unpackhi_epi8(x, y)
SIMD_PRIMITIVE v16 v16_from_f16_lanes(__m256i h) {
    return (v16){_mm256_cvtph_ps(_mm256_castsi256_si128(h)), _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1))};
}
SIMD_PRIMITIVE v16 v16_from_e5m2(codes16 c) {
    return v16_from_f16_lanes(_mm256_slli_epi16(_mm256_cvtepu8_epi16(c), 8));
}
/* Decodes to fp16 first. An E4M3 number is 2^8 times the fp16 number with the same sign, exponent and
   mantissa. For the NaN code this fp16 number is finite, so its exponent is set to 31. */
SIMD_PRIMITIVE v16 v16_from_e4m3(codes16 c) {
    __m256i wide = _mm256_cvtepi8_epi16(c);
    __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((short)0xbf80));
    const __m256i top = _mm256_set1_epi16(0x7f);
    __m256i nan = _mm256_cmpeq_epi16(_mm256_and_si256(wide, top), top);
    v16 x = v16_from_f16_lanes(_mm256_or_si256(half, _mm256_and_si256(nan, _mm256_set1_epi16(0x7e00))));
    return v16_mul(x, v16_set1(256.0f));
}

#endif
