/*
 * cpu/gemm/panel: packed rows: the layout that the op `pack` writes for an operand that many GEMMs read, and
 * functions that decode a panel of packed rows to fp32. Shifts decode two neighbouring elements in memory
 * together, at half the cost of widening each element. On the level avx512bf16 two neighbours are two terms
 * of one row, as a dot product needs. On other levels they are two rows at the same k.
 */
#ifndef CPU_GEMM_PANEL_H
#define CPU_GEMM_PANEL_H

#include "cpu/gemm/gemm.h"

/* A GEMM with only a few rows in operand A reads packed rows of operand B sequentially. They are stored in
   panels of PANEL_ROWS rows, in the matrix's format: [panel][k][PANEL_ROWS]. Rows after the last are 0. Rows
   i and i + 32 of a panel are neighbours. If panel_has_pairs, the layout is [panel][k / 2][PANEL_ROWS][2]:
   the later term of a pair is first, and an odd contraction is padded with 0. FP8 pairs of rows 0 to 31 (then
   32 to 63) fill 64 bytes, in the order of v16_pairs_from_codes: rows r to r + 3, then r + 16 to r + 19. */
#define PANEL_ROWS 64
SIMD bool panel_has_pairs(ott_dtype d) {
    return SIMD_HAS_PAIRS && cpu_is_pair_format(d);
}
/* Returns dtype_bytes(d); a constant if d is a constant. */
SIMD int64_t panel_bytes(ott_dtype d) {
    return d == OTT_F32 ? 4 : d == OTT_BF16 || d == OTT_F16 ? 2 : 1;
}
/* Returns the number of terms in a panel, with padding. */
static inline int64_t panel_contraction(ott_dtype d, int64_t contraction) {
    return panel_has_pairs(d) ? (contraction + 1) / 2 * 2 : contraction;
}
/* Rounds rows up to full panels. */
static inline int64_t panel_round(int64_t rows) {
    return (rows + PANEL_ROWS - 1) / PANEL_ROWS * PANEL_ROWS;
}
/* Returns the index of element (row, k) in packed rows of format d. */
static inline int64_t panel_index(ott_dtype d, int64_t row, int64_t k, int64_t contraction) {
    int64_t i = row % PANEL_ROWS, half = PANEL_ROWS / 2;
    if (!panel_has_pairs(d))
        return (row / PANEL_ROWS * contraction + k) * PANEL_ROWS + i % half * 2 + i / half;
    int64_t pairs = (row / PANEL_ROWS * panel_contraction(d, contraction) + k / 2 * 2) * PANEL_ROWS;
    int64_t pair = d == OTT_BF16 ? i : i / half * half + i % 16 / 4 * 8 + i / 16 % 2 * 4 + i % 4;
    return pairs + 2 * pair + (1 - k % 2);
}

/* A panel has PANEL_ROWS elements at each k. They are decoded in parts of PANEL_VECTORS vectors of 16
   elements. */
#if defined(CPU_ISA_avx512)
#define PANEL_VECTORS 4
#else
#define PANEL_VECTORS 2
#endif
#define PANEL_PARTS (PANEL_ROWS / 16 / PANEL_VECTORS)
_Static_assert(PANEL_ROWS == 64 && PANEL_ROWS % GEMM_NR == 0,
               "a panel has 64 rows: four vectors of 16, and full tiles of GEMM_NR");

/* Returns which row of a panel is in lane 0 of vector v of a decoded part. */
SIMD int64_t panel_row(int part, int v) {
    return PANEL_PARTS == 1 ? 16 * v : 16 * part + PANEL_ROWS / 2 * v;
}

/* panel_load gives E4M3 numbers divided by PANEL_FACTOR, exactly. So skinny.h multiplies A by PANEL_FACTOR. A
   NaN is decoded as the number PANEL_NAN; panel_see detects NaNs. */
#if defined(CPU_ISA_scalar) || SIMD_HAS_PAIRS
#define PANEL_FACTOR 1.0f
#else
#define PANEL_FACTOR 256.0f
#endif
#define PANEL_NAN (480.0f / PANEL_FACTOR)

/* ---- decoding of a part: to even elements, then odd elements ---- */

#if defined(CPU_ISA_avx512)

/* Decodes 64 FP8 codes by converting them to fp16 first (cpu/simd/avx512.h: v16_from_e4m3). */
SIMD void panel_from_fp8(const uint8_t *p, ott_dtype d, v16 out[PANEL_VECTORS]) {
    __m512i codes = _mm512_loadu_si512(p), even = _mm512_slli_epi16(codes, 8), odd;
    if (d == OTT_E4M3) {
        const __m512i kept = _mm512_set1_epi16((short)0xbf80);
        even = _mm512_and_si512(_mm512_srai_epi16(even, 1), kept);
        odd = _mm512_and_si512(_mm512_srai_epi16(codes, 1), kept);
    } else
        odd = _mm512_and_si512(codes, _mm512_set1_epi16((short)0xff00));
    out[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(even));
    out[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(even, 1));
    out[2] = _mm512_cvtph_ps(_mm512_castsi512_si256(odd));
    out[3] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(odd, 1));
}

SIMD void panel_from_bf16(const uint16_t *p, v16 out[PANEL_VECTORS]) {
    SIMD_UNROLL for (int i = 0; i < 2; i++) {
        __m512i pairs = _mm512_loadu_si512(p + 32 * i);
        out[i] = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
        out[i + 2] = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000)));
    }
}

/* Separates the even and odd elements of a and b. */
SIMD void panel_split(v16 a, v16 b, v16 *even, v16 *odd) {
    const __m512i first = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *even = _mm512_permutex2var_ps(a, first, b);
    *odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(first, _mm512_set1_epi32(1)), b);
}

#elif defined(CPU_ISA_avx2)

SIMD void panel_from_fp8(const uint8_t *p, ott_dtype d, v16 out[PANEL_VECTORS]) {
    __m256i codes = _mm256_loadu_si256((const void *)p), even = _mm256_slli_epi16(codes, 8), odd;
    if (d == OTT_E4M3) {
        const __m256i kept = _mm256_set1_epi16((short)0xbf80);
        even = _mm256_and_si256(_mm256_srai_epi16(even, 1), kept);
        odd = _mm256_and_si256(_mm256_srai_epi16(codes, 1), kept);
    } else
        odd = _mm256_and_si256(codes, _mm256_set1_epi16((short)0xff00));
    out[0] = v16_from_f16_lanes(even);
    out[1] = v16_from_f16_lanes(odd);
}

SIMD void panel_from_bf16(const uint16_t *p, v16 out[PANEL_VECTORS]) {
    const __m256i high = _mm256_set1_epi32((int)0xffff0000);
    __m256i a = _mm256_loadu_si256((const void *)p), b = _mm256_loadu_si256((const void *)(p + 16));
    out[0] =
        (v16){_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))};
    out[1] =
        (v16){_mm256_castsi256_ps(_mm256_and_si256(a, high)), _mm256_castsi256_ps(_mm256_and_si256(b, high))};
}

SIMD __m256 panel_every_second(v16 x, int odd) {
    __m256 mixed = odd ? _mm256_shuffle_ps(x.a, x.b, 0xdd) : _mm256_shuffle_ps(x.a, x.b, 0x88);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(mixed), 0xd8));
}
SIMD void panel_split(v16 a, v16 b, v16 *even, v16 *odd) {
    *even = (v16){panel_every_second(a, 0), panel_every_second(b, 0)};
    *odd = (v16){panel_every_second(a, 1), panel_every_second(b, 1)};
}

#elif defined(CPU_ISA_neon)

SIMD void panel_from_fp8(const uint8_t *p, ott_dtype d, v16 out[PANEL_VECTORS]) {
    uint16x8_t even[2], odd[2];
    SIMD_UNROLL for (int i = 0; i < 2; i++) {
        uint16x8_t codes = vreinterpretq_u16_u8(vld1q_u8(p + 16 * i));
        even[i] = vshlq_n_u16(codes, 8);
        if (d == OTT_E4M3) {
            const uint16x8_t kept = vdupq_n_u16(0xbf80);
            int16x8_t first = vreinterpretq_s16_u16(even[i]), second = vreinterpretq_s16_u16(codes);
            even[i] = vandq_u16(vreinterpretq_u16_s16(vshrq_n_s16(first, 1)), kept);
            odd[i] = vandq_u16(vreinterpretq_u16_s16(vshrq_n_s16(second, 1)), kept);
        } else
            odd[i] = vandq_u16(codes, vdupq_n_u16(0xff00));
    }
    out[0] = neon_from_f16(even[0], even[1]);
    out[1] = neon_from_f16(odd[0], odd[1]);
}

SIMD void panel_from_bf16(const uint16_t *p, v16 out[PANEL_VECTORS]) {
    v16i pairs = v16i_load(p);
    out[0] = v16_from_bits(v16i_shl(pairs, 16));
    out[1] = v16_from_bits(v16i_and(pairs, v16i_set1(0xffff0000u)));
}

SIMD void panel_split(v16 a, v16 b, v16 *even, v16 *odd) {
    *even = (v16){vuzp1q_f32(a.a, a.b), vuzp1q_f32(a.c, a.d), vuzp1q_f32(b.a, b.b), vuzp1q_f32(b.c, b.d)};
    *odd = (v16){vuzp2q_f32(a.a, a.b), vuzp2q_f32(a.c, a.d), vuzp2q_f32(b.a, b.b), vuzp2q_f32(b.c, b.d)};
}

#else

SIMD void panel_split(v16 a, v16 b, v16 *even, v16 *odd) {
    for (int i = 0; i < 8; i++) {
        even->lane[i] = a.lane[2 * i];
        odd->lane[i] = a.lane[2 * i + 1];
        even->lane[i + 8] = b.lane[2 * i];
        odd->lane[i + 8] = b.lane[2 * i + 1];
    }
}
SIMD void panel_from_fp8(const uint8_t *p, ott_dtype d, v16 out[PANEL_VECTORS]) {
    panel_split(v16_load_fp8(p, d), v16_load_fp8(p + 16, d), &out[0], &out[1]);
}
SIMD void panel_from_bf16(const uint16_t *p, v16 out[PANEL_VECTORS]) {
    panel_split(v16_load_bf16(p), v16_load_bf16(p + 16), &out[0], &out[1]);
}

#endif

/* Decodes one part of a panel's elements at one k. at: index of the part's first element. */
SIMD void panel_load(const void *p, ott_dtype d, int64_t at, v16 out[PANEL_VECTORS]) {
    if (d == OTT_E4M3 || d == OTT_E5M2)
        panel_from_fp8((const uint8_t *)p + at, d, out);
    else if (d == OTT_BF16)
        panel_from_bf16((const uint16_t *)p + at, out);
    else {
        SIMD_UNROLL for (int i = 0; i < PANEL_VECTORS / 2; i++)
            panel_split(v16_load_any(p, d, at + 32 * i), v16_load_any(p, d, at + 32 * i + 16), &out[i],
                        &out[i + PANEL_VECTORS / 2]);
    }
}

/* ---- NaN among E4M3 codes ---- */

/* The largest code (with the sign bit set) at each position of a part, at all k so far. 255 is a NaN.
   panel_see adds the codes at one k. panel_nans returns a bit for each position that had a NaN. */
#if defined(CPU_ISA_avx512)
typedef __m512i panel_seen;
SIMD panel_seen panel_seen_none(void) {
    return _mm512_setzero_si512();
}
SIMD uint64_t panel_nans(panel_seen seen) {
    return _mm512_cmpeq_epi8_mask(seen, _mm512_set1_epi8(-1));
}
SIMD panel_seen panel_see(panel_seen seen, const uint8_t *p) {
    return _mm512_max_epu8(seen, _mm512_or_si512(_mm512_loadu_si512(p), _mm512_set1_epi8((char)0x80)));
}
#elif defined(CPU_ISA_avx2)
typedef __m256i panel_seen;
SIMD panel_seen panel_seen_none(void) {
    return _mm256_setzero_si256();
}
SIMD uint64_t panel_nans(panel_seen seen) {
    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(seen, _mm256_set1_epi8(-1)));
}
SIMD panel_seen panel_see(panel_seen seen, const uint8_t *p) {
    return _mm256_max_epu8(
        seen, _mm256_or_si256(_mm256_loadu_si256((const void *)p), _mm256_set1_epi8((char)0x80)));
}
#elif defined(CPU_ISA_neon)
typedef struct panel_seen {
    uint8x16_t a, b;
} panel_seen;
SIMD panel_seen panel_seen_none(void) {
    return (panel_seen){vdupq_n_u8(0), vdupq_n_u8(0)};
}
SIMD uint64_t panel_nans(panel_seen seen) {
    uint8_t most[32];
    uint64_t nans = 0;
    vst1q_u8(most, seen.a);
    vst1q_u8(most + 16, seen.b);
    for (int i = 0; i < 32; i++) nans |= (uint64_t)(most[i] == 0xff) << i;
    return nans;
}
SIMD panel_seen panel_see(panel_seen seen, const uint8_t *p) {
    const uint8x16_t sign = vdupq_n_u8(0x80);
    return (panel_seen){vmaxq_u8(seen.a, vorrq_u8(vld1q_u8(p), sign)),
                        vmaxq_u8(seen.b, vorrq_u8(vld1q_u8(p + 16), sign))};
}
#else
typedef int panel_seen; /* the scalar panel_load decodes NaN as NaN */
SIMD panel_seen panel_seen_none(void) {
    return 0;
}
SIMD uint64_t panel_nans(panel_seen seen) {
    (void)seen;
    return 0;
}
SIMD panel_seen panel_see(panel_seen seen, const uint8_t *p) {
    (void)p;
    return seen;
}
#endif

/* ---- decoding a panel's elements at one k, or at two k (a pair) ---- */

#if SIMD_HAS_PAIRS
/* Decodes a pair of terms of each of a panel's 64 rows. at: index of the first element. d has pairs. */
SIMD void panel_load_pairs(const void *p, ott_dtype d, int64_t at, v16 out[PANEL_VECTORS]) {
    if (d == OTT_BF16) {
        SIMD_UNROLL for (int v = 0; v < PANEL_VECTORS; v++) out[v] =
            _mm512_loadu_ps((const uint16_t *)p + at + 32 * v);
    } else {
        v16_pairs_from_codes(_mm512_loadu_si512((const uint8_t *)p + at), d, out);
        v16_pairs_from_codes(_mm512_loadu_si512((const uint8_t *)p + at + 64), d, out + 2);
    }
}

/* Decodes terms k (even) and k + 1 of the panel that starts at row `row`. Terms after the last are 0. */
SIMD void panel_pairs(const operand *o, ott_dtype d, int64_t row, int64_t k, v16 out[PANEL_VECTORS]) {
    if (k < o->t.columns) {
        panel_load_pairs(o->t.data, d, panel_index(d, row, k + 1, o->t.columns), out);
        return;
    }
    SIMD_UNROLL for (int v = 0; v < PANEL_VECTORS; v++) out[v] = v16_zero();
}
#endif

/* Decodes term k of a part of the panel that starts at row `row`. Terms after the last are 0. Keeps NaN. */
SIMD void panel_terms(const operand *o, ott_dtype d, int64_t row, int64_t k, int part,
                      v16 out[PANEL_VECTORS]) {
#if SIMD_HAS_PAIRS
    if (panel_has_pairs(d)) {
        panel_pairs(o, d, row, k / 2 * 2, out);
        SIMD_UNROLL for (int v = 0; v < PANEL_VECTORS; v++) out[v] =
            k % 2 ? v16_pair_second(out[v]) : v16_pair_first(out[v]);
        return;
    }
#endif
    if (k >= o->t.columns) {
        SIMD_UNROLL for (int v = 0; v < PANEL_VECTORS; v++) out[v] = v16_zero();
        return;
    }
    panel_load(o->t.data, d, panel_index(d, row, k, o->t.columns) + part * 16 * PANEL_VECTORS, out);
    SIMD_UNROLL for (int v = 0; d == OTT_E4M3 && v < PANEL_VECTORS; v++) {
        v16m nan = v16_eq(v16_abs(out[v]), v16_set1(PANEL_NAN));
        out[v] = v16_select(nan, v16_set1(NAN), v16_mul(out[v], v16_set1(PANEL_FACTOR)));
    }
}

#endif
