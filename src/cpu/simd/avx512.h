/*
 * cpu/simd/avx512: the primitives of cpu/simd/simd.h on one 512-bit register (x86-64-v4: F, BW, DQ, VL).
 */
#ifndef CPU_SIMD_AVX512_H
#define CPU_SIMD_AVX512_H

#include <immintrin.h>

typedef __m512 v16;
typedef __m512i v16i;
typedef __mmask16 v16m;

/* Define a primitive that is one intrinsic. */
#define V16_UNARY(type, name, of, f)                                                                         \
    SIMD_PRIMITIVE type name(of a) {                                                                         \
        return f(a);                                                                                         \
    }
#define V16_BINARY(type, name, of, f)                                                                        \
    SIMD_PRIMITIVE type name(of a, of b) {                                                                   \
        return f(a, b);                                                                                      \
    }
#define V16_TERNARY(type, name, of, f)                                                                       \
    SIMD_PRIMITIVE type name(of a, of b, of c) {                                                             \
        return f(a, b, c);                                                                                   \
    }
#define V16_COMPARE(name, how)                                                                               \
    SIMD_PRIMITIVE v16m name(v16 a, v16 b) {                                                                 \
        return _mm512_cmp_ps_mask(a, b, how);                                                                \
    }

SIMD_PRIMITIVE v16m v16m_first(int64_t n) {
    return n >= 16 ? (v16m)0xffff : (v16m)((1u << n) - 1);
}

SIMD_PRIMITIVE v16 v16_zero(void) {
    return _mm512_setzero_ps();
}
SIMD_PRIMITIVE v16 v16_set1(float x) {
    return _mm512_set1_ps(x);
}
SIMD_PRIMITIVE v16 v16_load(const float *p) {
    return _mm512_loadu_ps(p);
}
SIMD_PRIMITIVE v16 v16_load_n(const float *p, int64_t n) {
    return _mm512_maskz_loadu_ps(v16m_first(n), p);
}
SIMD_PRIMITIVE void v16_store(float *p, v16 x) {
    _mm512_storeu_ps(p, x);
}
SIMD_PRIMITIVE void v16_store_n(float *p, v16 x, int64_t n) {
    _mm512_mask_storeu_ps(p, v16m_first(n), x);
}

V16_BINARY(v16, v16_add, v16, _mm512_add_ps)
V16_BINARY(v16, v16_sub, v16, _mm512_sub_ps)
V16_BINARY(v16, v16_mul, v16, _mm512_mul_ps)
V16_BINARY(v16, v16_div, v16, _mm512_div_ps)
V16_TERNARY(v16, v16_fma, v16, _mm512_fmadd_ps)
V16_TERNARY(v16, v16_fnma, v16, _mm512_fnmadd_ps)
V16_BINARY(v16, v16_max, v16, _mm512_max_ps)
V16_BINARY(v16, v16_min, v16, _mm512_min_ps)
SIMD_PRIMITIVE v16 v16_round(v16 a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

V16_UNARY(v16i, v16_bits, v16, _mm512_castps_si512)
V16_UNARY(v16, v16_from_bits, v16i, _mm512_castsi512_ps)
V16_UNARY(v16i, v16_to_int, v16, _mm512_cvttps_epi32)
V16_UNARY(v16, v16_from_int, v16i, _mm512_cvtepi32_ps)

SIMD_PRIMITIVE v16i v16i_set1(uint32_t x) {
    return _mm512_set1_epi32((int)x);
}
V16_BINARY(v16i, v16i_add, v16i, _mm512_add_epi32)
V16_BINARY(v16i, v16i_sub, v16i, _mm512_sub_epi32)
V16_BINARY(v16i, v16i_and, v16i, _mm512_and_si512)
V16_BINARY(v16i, v16i_or, v16i, _mm512_or_si512)
V16_BINARY(v16i, v16i_xor, v16i, _mm512_xor_si512)
V16_BINARY(v16i, v16i_umax, v16i, _mm512_max_epu32)
V16_BINARY(v16i, v16i_umin, v16i, _mm512_min_epu32)
/* Returns the larger of x and y for each of 32 unsigned 16-bit numbers. */
V16_BINARY(v16i, v16i_umax16, v16i, _mm512_max_epu16)
SIMD_PRIMITIVE v16i v16i_load(const void *p) {
    return _mm512_loadu_si512(p);
}
SIMD_PRIMITIVE void v16i_store(void *p, v16i x) {
    _mm512_storeu_si512(p, x);
}
#define v16i_shl(a, count) _mm512_slli_epi32(a, count)
#define v16i_shr(a, count) _mm512_srli_epi32(a, count)
#define v16i_sar(a, count) _mm512_srai_epi32(a, count)

V16_COMPARE(v16_lt, _CMP_LT_OQ)
V16_COMPARE(v16_le, _CMP_LE_OQ)
V16_COMPARE(v16_eq, _CMP_EQ_OQ)
SIMD_PRIMITIVE v16m v16_isnan(v16 a) {
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}
V16_BINARY(v16m, v16i_gt, v16i, _mm512_cmpgt_epi32_mask)
V16_BINARY(v16m, v16i_eq, v16i, _mm512_cmpeq_epi32_mask)
SIMD_PRIMITIVE v16 v16_select(v16m m, v16 yes, v16 no) {
    return _mm512_mask_blend_ps(m, no, yes);
}
SIMD_PRIMITIVE v16i v16i_select(v16m m, v16i yes, v16i no) {
    return _mm512_mask_blend_epi32(m, no, yes);
}
SIMD_PRIMITIVE int v16m_count(v16m m) {
    return __builtin_popcount(m);
}

SIMD_PRIMITIVE float v16_fold_sum(v16 x) {
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
SIMD_PRIMITIVE float v16_fold_max(v16 x) {
    __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}
SIMD_PRIMITIVE uint32_t v16i_fold_umax(v16i x) {
    return _mm512_reduce_max_epu32(x);
}

/* Returns in lane i the largest lane of t[i]. halves: compares the 16-bit halves of lanes separately. */
SIMD_PRIMITIVE v16i v16i_fold_rows(v16i t[16], bool halves) {
#define LARGER(a, b)       (halves ? _mm512_max_epu16(a, b) : _mm512_max_epu32(a, b))
#define UNITS(a, b, which) _mm512_shuffle_i32x4(a, b, which)
#define LANES(a, b, which)                                                                                   \
    _mm512_castps_si512(_mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), which))
    SIMD_UNROLL for (int i = 0; i < 8; i++) t[i] =
        LARGER(UNITS(t[i], t[i + 8], 0x44), UNITS(t[i], t[i + 8], 0xee));
    SIMD_UNROLL for (int i = 0; i < 4; i++) t[i] =
        LARGER(UNITS(t[i], t[i + 4], 0x88), UNITS(t[i], t[i + 4], 0xdd));
    for (int i = 0; i < 2; i++)
        t[i] = LARGER(_mm512_unpacklo_epi64(t[i], t[i + 2]), _mm512_unpackhi_epi64(t[i], t[i + 2]));
    v16i folded = LARGER(LANES(t[0], t[1], 0x88), LANES(t[0], t[1], 0xdd));
#undef LARGER
#undef UNITS
#undef LANES
    const __m512i order = _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);
    return _mm512_permutexvar_epi32(order, folded);
}

/* Transposes: lane j of t[i] becomes lane i of t[j]. Transposes 4 x 4 blocks, then moves the blocks. */
SIMD_PRIMITIVE void v16_transpose(v16 t[16]) {
    __m512 u[16];
    SIMD_UNROLL for (int i = 0; i < 16; i += 2) {
        u[i] = _mm512_unpacklo_ps(t[i], t[i + 1]);
        u[i + 1] = _mm512_unpackhi_ps(t[i], t[i + 1]);
    }
    SIMD_UNROLL for (int i = 0; i < 16; i += 4) {
        __m512d a = _mm512_castps_pd(u[i]), b = _mm512_castps_pd(u[i + 1]);
        __m512d c = _mm512_castps_pd(u[i + 2]), d = _mm512_castps_pd(u[i + 3]);
        t[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
        t[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
        t[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
        t[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
    SIMD_UNROLL for (int i = 0; i < 4; i++) {
        u[i] = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
        u[i + 4] = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        u[i + 8] = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
        u[i + 12] = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
    }
    SIMD_UNROLL for (int i = 0; i < 8; i++) {
        t[i] = _mm512_shuffle_f32x4(u[i], u[i + 8], 0x88);
        t[i + 8] = _mm512_shuffle_f32x4(u[i], u[i + 8], 0xdd);
    }
}

/* Returns x * 2^n for integers n, rounded once. */
SIMD_PRIMITIVE v16 v16_scale_by_power(v16 x, v16 n) {
    return _mm512_scalef_ps(x, n);
}

/* ---- 16-bit and 8-bit elements ---- */
SIMD_PRIMITIVE v16i v16i_load_u16(const uint16_t *p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));
}
SIMD_PRIMITIVE v16i v16i_load_u16_n(const uint16_t *p, int64_t n) {
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(v16m_first(n), p));
}
SIMD_PRIMITIVE void v16i_store_u16(uint16_t *p, v16i x) {
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(x));
}
SIMD_PRIMITIVE void v16i_store_u16_n(uint16_t *p, v16i x, int64_t n) {
    _mm512_mask_cvtepi32_storeu_epi16(p, v16m_first(n), x);
}
SIMD_PRIMITIVE v16i v16i_load_u8(const uint8_t *p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p));
}
SIMD_PRIMITIVE void v16i_store_u8(uint8_t *p, v16i x) {
    _mm_storeu_si128((void *)p, _mm512_cvtepi32_epi8(x));
}
SIMD_PRIMITIVE void v16i_store_u8_n(uint8_t *p, v16i x, int64_t n) {
    _mm512_mask_cvtepi32_storeu_epi8(p, v16m_first(n), x);
}
/* Stores the 64 lanes of four vectors, which are at most 255, as bytes, in order. */
SIMD_PRIMITIVE void v16i_store_u8x64(uint8_t *p, v16i a, v16i b, v16i c, v16i d) {
    __m512i bytes = _mm512_packus_epi16(_mm512_packus_epi32(a, b), _mm512_packus_epi32(c, d));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi32(order, bytes));
}

/* ---- helpers of v16_store_fp8x64 (cpu/simd/simd.h) ---- */
SIMD_PRIMITIVE bool v16_have_no_nan(const v16 x[4]) {
    __mmask16 nan = _mm512_cmp_ps_mask(x[0], x[1], _CMP_UNORD_Q);
    return _kortestz_mask16_u8(nan, _mm512_cmp_ps_mask(x[2], x[3], _CMP_UNORD_Q));
}
/* Returns the smaller of |x| and `limit` in each lane. */
SIMD_PRIMITIVE v16 v16_magnitude(v16 x, v16 limit) {
    return _mm512_range_ps(x, limit, 0xa);
}
/* Multiplies the signed 16-bit halves of each lane and adds the two products. */
V16_BINARY(v16i, v16i_madd16, v16i, _mm512_madd_epi16)
/* Stores 64 bytes, one for each lane: (word - offset) >> shift in bits 0 to 6, the sign of x in bit 7. */
SIMD_PRIMITIVE void v16i_store_signed_u8x64(uint8_t *p, const v16i word[4], int offset, int shift,
                                            const v16 x[4]) {
    const __m512i from = _mm512_set1_epi16((short)offset);
    __m512i low = _mm512_sub_epi16(_mm512_packs_epi32(word[0], word[1]), from);
    __m512i high = _mm512_sub_epi16(_mm512_packs_epi32(word[2], word[3]), from);
    __m512i bytes = _mm512_packus_epi16(_mm512_srli_epi16(low, shift), _mm512_srli_epi16(high, shift));
    __m512i signs = _mm512_packs_epi16(_mm512_packs_epi32(v16_bits(x[0]), v16_bits(x[1])),
                                       _mm512_packs_epi32(v16_bits(x[2]), v16_bits(x[3])));
    bytes = _mm512_ternarylogic_epi32(bytes, signs, _mm512_set1_epi8((char)0x80), 0xf8); /* 0xf8: a|(b&c) */
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi32(order, bytes));
}

SIMD_PRIMITIVE v16 v16_from_f16_lanes(__m256i h) {
    return _mm512_cvtph_ps(h);
}
SIMD_PRIMITIVE v16 v16_load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
}
SIMD_PRIMITIVE v16 v16_load_f16_n(const uint16_t *p, int64_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(v16m_first(n), p));
}
SIMD_PRIMITIVE __m256i v16_to_f16_lanes(v16 x) {
    __m256i h = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm256_mask_blend_epi16(v16_isnan(x), h, _mm256_set1_epi16(0x7fff));
}
SIMD_PRIMITIVE void v16_store_f16(uint16_t *p, v16 x) {
    _mm256_storeu_si256((void *)p, v16_to_f16_lanes(x));
}
SIMD_PRIMITIVE void v16_store_f16_n(uint16_t *p, v16 x, int64_t n) {
    _mm256_mask_storeu_epi16(p, v16m_first(n), v16_to_f16_lanes(x));
}

/* Sixteen FP8 codes held in one 128-bit register. */
typedef __m128i codes16;
SIMD_PRIMITIVE codes16 codes16_load(const uint8_t *p) {
    return _mm_loadu_si128((const void *)p);
}
SIMD_PRIMITIVE codes16 codes16_load_n(const uint8_t *p, int64_t n) {
    return _mm_maskz_loadu_epi8(v16m_first(n), p);
}
#define codes16_zip_low(x, y)  _mm_unpacklo_epi8(x, y)
#define codes16_zip_high(x, y) _mm_unpackhi_epi8(x, y)
SIMD_PRIMITIVE v16 v16_from_e5m2(codes16 c) {
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(c), 8));
}
/* Decodes to fp16 first: an E4M3 number is 2^8 times the fp16 number with the same bit fields. */
SIMD_PRIMITIVE v16 v16_from_e4m3(codes16 c) {
    __m256i half = _mm256_slli_epi16(_mm256_cvtepi8_epi16(c), 7);
    __m512 x = _mm512_mul_ps(_mm512_cvtph_ps(_mm256_and_si256(half, _mm256_set1_epi16((short)0xbf80))),
                             _mm512_set1_ps(256.0f));
    const __m128i all = _mm_set1_epi8(-1);
    v16m nan = _mm_cmpeq_epi8_mask(_mm_or_si128(c, _mm_set1_epi8((char)0x80)), all);
    return _mm512_mask_mov_ps(x, nan, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
}

#endif
