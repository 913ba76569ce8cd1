/*
 * cpu/simd/avx512bf16: pairs of bf16 numbers, for the level avx512bf16 and levels above it (AVX512-BF16 and
 * VBMI, in addition to cpu/simd/avx512.h).
 *
 * A pair has two consecutive terms of a sum in 32 bits: the first in the high half, the second in the low
 * half. VDPBF16PS, the bf16 dot product, does two fused multiply-adds for each pair, the high half first. It
 * treats subnormal numbers as 0 (Intel SDM; measured on Zen 4 and Emerald Rapids). If no operand and no sum
 * is subnormal (PAIR_LEAST), a sum over pairs has the bits of fp32 multiply-adds, term by term.
 *
 * 16 pairs are stored in a v16. fp32 loads, broadcasts and stores do not change their bits.
 */
#ifndef CPU_SIMD_AVX512BF16_H
#define CPU_SIMD_AVX512BF16_H

#include <immintrin.h>

/* Returns fma(a.second, b.second, fma(a.first, b.first, sum)) in each of 16 lanes. */
SIMD_PRIMITIVE v16 v16_pair_fma(v16 a, v16 b, v16 sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}
/* Stores 16 numbers as bf16 and returns true, if no number is subnormal or NaN. Else returns false: the
   instruction would treat subnormal numbers as 0 and keep the payloads of NaNs. */
SIMD_PRIMITIVE bool v16_store_ordinary_bf16(uint16_t *p, v16 x) {
    enum { QUIET_NAN = 0x01, SUBNORMAL = 0x20, SIGNALING_NAN = 0x80 };
    if (_mm512_fpclass_ps_mask(x, QUIET_NAN | SUBNORMAL | SIGNALING_NAN) != 0) return false;
    _mm256_storeu_si256((void *)p, (__m256i)_mm512_cvtneps_pbh(x));
    return true;
}
/* Return the first, or the second, terms of 16 pairs in fp32. */
SIMD_PRIMITIVE v16 v16_pair_first(v16 pairs) {
    return v16_from_bits(v16i_and(v16_bits(pairs), v16i_set1(0xffff0000u)));
}
SIMD_PRIMITIVE v16 v16_pair_second(v16 pairs) {
    return v16_from_bits(v16i_shl(v16_bits(pairs), 16));
}
/* Return 16 pairs of a's and b's first terms, or of their second terms. */
SIMD_PRIMITIVE v16 v16_pair_firsts(v16 a, v16 b) {
    return v16_from_bits(v16i_or(v16_bits(v16_pair_first(a)), v16i_shr(v16_bits(b), 16)));
}
SIMD_PRIMITIVE v16 v16_pair_seconds(v16 a, v16 b) {
    return v16_from_bits(v16i_or(v16_bits(v16_pair_second(a)), v16i_and(v16_bits(b), v16i_set1(0xffffu))));
}

/* ---- the smallest number of an operand ---- */

/* A bf16 number with biased exponent e or more is a multiple of 2^(e - 134). So with smallest biased
   exponents e and f of the two operands, all products and sums are multiples of 2^(e + f - 268). If e + f is
   at least PAIR_LEAST, this is a multiple of 2^-126, the smallest normal number, and no sum is subnormal. */
enum {
    PAIR_LEAST = 142,
    PAIR_LEAST_E4M3 = 118, /* bf16 exponent of 2^-9, the smallest E4M3 number */
    PAIR_LEAST_E5M2 = 111, /* bf16 exponent of 2^-16, the smallest E5M2 number */
    PAIR_LEAST_NONE = 511, /* exponent of an operand that has only zeros */
};

/* Returns the minimum of `least` and magnitude - 1 of 32 bf16 numbers. For 0 this is 0xffff, the largest. */
SIMD_PRIMITIVE v16i v16_pair_smaller(v16i least, v16 pairs) {
    v16i magnitude = v16i_and(v16_bits(pairs), v16i_set1(0x7fff7fffu));
    return _mm512_min_epu16(least, _mm512_sub_epi16(magnitude, _mm512_set1_epi16(1)));
}
/* Returns the biased exponent of the smallest nonzero number, or PAIR_LEAST_NONE if all numbers are 0. If a
   number is subnormal, returns -PAIR_LEAST_NONE. Then the sum with the other operand's exponent is below
   PAIR_LEAST, so the product does not use VDPBF16PS. */
SIMD int v16_pair_least(v16i least) {
    uint16_t lane[32], smallest = 0xffff;
    _mm512_storeu_si512(lane, least);
    for (int i = 0; i < 32; i++) smallest = lane[i] < smallest ? lane[i] : smallest;
    int exponent = (smallest + 1) >> 7;
    return exponent == 0 ? -PAIR_LEAST_NONE : exponent > 255 ? PAIR_LEAST_NONE : exponent;
}

/* ---- FP8 codes to bf16 ---- */

/* bf16 bits of a subnormal FP8 number. c: its code (up to 7 in E4M3, 3 in E5M2). one: bf16 bits of code 1. */
#define PAIR_SUBNORMAL(c, one)                                                                               \
    ((c) == 0   ? 0                                                                                          \
     : (c) == 1 ? (one)                                                                                      \
     : (c) < 4  ? (one) + 0x80 + ((c)-2) * 0x40                                                              \
                : (one) + 0x100 + ((c)-4) * 0x20)
#define PAIR_E4M3(c) ((c) < 8 ? PAIR_SUBNORMAL(c, 0x3b00) : (c) == 127 ? 0x7fc0 : 0x3c00 + (c)*0x10)
#define PAIR_E5M2(c)                                                                                         \
    ((c) < 4 ? PAIR_SUBNORMAL(c, 0x3780) : (c) < 124 ? 0x3800 + (c)*0x20 : (c) == 124 ? 0x7f80 : 0x7fc0)

#define PAIR_4(f, c)  f(c), f((c) + 1), f((c) + 2), f((c) + 3)
#define PAIR_16(f, c) PAIR_4(f, c), PAIR_4(f, (c) + 4), PAIR_4(f, (c) + 8), PAIR_4(f, (c) + 12)
#define PAIR_128(f)                                                                                          \
    {                                                                                                        \
        PAIR_16(f, 0), PAIR_16(f, 16), PAIR_16(f, 32), PAIR_16(f, 48), PAIR_16(f, 64), PAIR_16(f, 80),       \
            PAIR_16(f, 96), PAIR_16(f, 112)                                                                  \
    }
#define PAIR_E4M3_LOW(c)  (uint8_t)(PAIR_E4M3(c) & 0xff)
#define PAIR_E4M3_HIGH(c) (uint8_t)(PAIR_E4M3(c) >> 8)
#define PAIR_E5M2_LOW(c)  (uint8_t)(PAIR_E5M2(c) & 0xff)
#define PAIR_E5M2_HIGH(c) (uint8_t)(PAIR_E5M2(c) >> 8)

/* Decodes FP8 to bf16: [E4M3, E5M2][low byte, high byte of the bf16 number][FP8 code without sign]. */
static const _Alignas(64) uint8_t pair_bytes[2][2][128] = {
    {PAIR_128(PAIR_E4M3_LOW), PAIR_128(PAIR_E4M3_HIGH)},
    {PAIR_128(PAIR_E5M2_LOW), PAIR_128(PAIR_E5M2_HIGH)},
};

SIMD_PRIMITIVE __m512i pair_look_up(__m512i codes, const uint8_t table[128]) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(table), codes, _mm512_load_si512(table + 64));
}
/* Decodes 64 codes to two vectors of pairs. Of every 16 codes, the first 8 give 4 pairs of pairs[0], the last
   8 give 4 pairs of pairs[1]. In memory the second term of a pair comes before the first term. */
SIMD_PRIMITIVE void v16_pairs_from_codes(__m512i codes, ott_dtype d, v16 pairs[2]) {
    const uint8_t(*bytes)[128] = pair_bytes[d == OTT_E5M2];
    __m512i low = pair_look_up(codes, bytes[0]), high = pair_look_up(codes, bytes[1]);
    high = _mm512_ternarylogic_epi32(high, codes, _mm512_set1_epi8((char)0x80),
                                     0xf8); /* high | (codes & 0x80) */
    pairs[0] = _mm512_castsi512_ps(_mm512_unpacklo_epi8(low, high));
    pairs[1] = _mm512_castsi512_ps(_mm512_unpackhi_epi8(low, high));
}

/* ---- loads: d is E4M3, E5M2 or BF16 ---- */

/* Which terms of a row are pair number e. */
typedef enum pair_order {
    PAIR_CHAIN, /* term 2e, then term 2e + 1 */
    PAIR_TILE32 /* for ACCUMULATE_TILE32: of four terms, one pair has terms 0 and 2, the next has 1 and 3 */
} pair_order;

/* Return which term of a row is the first term of pair e, and how many terms later its second term is. */
SIMD_PRIMITIVE int64_t pair_term(pair_order order, int64_t e) {
    return order == PAIR_TILE32 ? e / 2 * 4 + e % 2 : 2 * e;
}
SIMD_PRIMITIVE int64_t pair_step(pair_order order) {
    return order == PAIR_TILE32 ? 2 : 1;
}

SIMD_PRIMITIVE v16 pair_of_codes(__m256i codes, __m512i places, ott_dtype d) {
    v16 pairs[2];
    v16_pairs_from_codes(_mm512_permutexvar_epi8(places, _mm512_castsi256_si512(codes)), d, pairs);
    return pairs[0];
}
/* Loads 16 pairs from `index` on. Elements from index + n on are 0, or -0 if `minus`. n may be any number. */
SIMD_PRIMITIVE v16 v16_load_pairs(const void *p, ott_dtype d, int64_t index, int64_t n, pair_order order,
                                  bool minus) {
    __mmask32 there = n >= 32 ? 0xffffffffu : n <= 0 ? 0 : (1u << n) - 1;
    if (d == OTT_BF16) {
        /* byte order that makes pairs of 4 elements (8 bytes): in memory a pair's second term comes first */
        int64_t of_8 = order == PAIR_TILE32 ? 0x0302070601000504 : 0x0504070601000302;
        __m512i x = _mm512_mask_loadu_epi16(_mm512_set1_epi16(minus ? (short)0x8000 : 0), there,
                                            (const uint16_t *)p + index);
        __m512i places = _mm512_broadcast_i32x4(_mm_set_epi64x(of_8 + 0x0808080808080808, of_8));
        return _mm512_castsi512_ps(_mm512_shuffle_epi8(x, places));
    }
    /* byte order that makes pairs of 8 codes; of every 16 bytes only the lower 8 are used */
    int64_t of_8 = order == PAIR_TILE32 ? 0x0507040601030002 : 0x0607040502030001;
    __m512i places = _mm512_add_epi8(
        _mm512_set1_epi64(of_8),
        _mm512_set_epi64(0, 0x1818181818181818, 0, 0x1010101010101010, 0, 0x0808080808080808, 0, 0));
    __m256i codes =
        _mm256_mask_loadu_epi8(_mm256_set1_epi8(minus ? (char)0x80 : 0), there, (const uint8_t *)p + index);
    return pair_of_codes(codes, places, d);
}
/* Loads 16 pairs: their first terms from index `first` on, their second terms from index `second` on.
   Elements from n on, and all elements for a negative index, are 0, or -0 if `minus`. */
SIMD_PRIMITIVE v16 v16_join_pairs(const void *p, ott_dtype d, int64_t first, int64_t second, int64_t n,
                                  bool minus) {
    __mmask16 there = n >= 16 ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1);
    __mmask16 there_first = first < 0 ? 0 : there, there_second = second < 0 ? 0 : there;
    if (d == OTT_BF16) {
        const uint16_t *x = p;
        __m256i none = _mm256_set1_epi16(minus ? (short)0x8000 : 0);
        __m512i high = _mm512_cvtepu16_epi32(_mm256_mask_loadu_epi16(none, there_first, x + first));
        __m512i low = _mm512_cvtepu16_epi32(_mm256_mask_loadu_epi16(none, there_second, x + second));
        return _mm512_castsi512_ps(_mm512_or_si512(_mm512_slli_epi32(high, 16), low));
    }
    const uint8_t *x = p;
    const __m512i places = _mm512_set_epi64(0, 0x0f1f0e1e0d1d0c1c, 0, 0x0b1b0a1a09190818, 0,
                                            0x0717061605150414, 0, 0x0313021201110010);
    __m128i none = _mm_set1_epi8(minus ? (char)0x80 : 0);
    __m256i rows = _mm256_set_m128i(_mm_mask_loadu_epi8(none, there_second, x + second),
                                    _mm_mask_loadu_epi8(none, there_first, x + first));
    return pair_of_codes(rows, places, d);
}

#endif
