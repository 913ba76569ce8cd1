/*
 * cpu/gemm/pairs: chooses which GEMMs, and which tiles of C, are computed by bf16 dot products of pairs. The
 * instruction VDPBF16PS treats subnormal numbers as 0. So it is used only if no operand and no sum can be
 * subnormal (cpu/simd/avx512bf16.h). This holds for all FP8 operands. For BF16 operands it depends on the
 * smallest number in the tile's packed rows.
 */
#ifndef CPU_GEMM_PAIRS_H
#define CPU_GEMM_PAIRS_H

#include "cpu/gemm/pack.h"
#include "cpu/gemm/tile.h"

/* Returns the number of terms in a packed element of this GEMM's operands: 1, or 2 for pairs. */
static inline int64_t pairs_terms(const gemm_args *g) {
    bool both = panel_has_pairs(g->a->t.dtype) && panel_has_pairs(g->b->t.dtype);
    return both && !recipe_accumulate_is_hopper(g->spec.accumulate) ? 2 : 1;
}

#if SIMD_HAS_PAIRS

/* Returns the smallest exponent in `rows` rows of n packed pairs. step: number of pairs from row to row. */
static int pairs_least(const float *packed, ott_dtype d, int64_t rows, int64_t n, int64_t step) {
    if (d == OTT_E4M3) return PAIR_LEAST_E4M3;
    if (d == OTT_E5M2) return PAIR_LEAST_E5M2;
    v16i least = v16i_set1(UINT32_MAX);
    for (int64_t r = 0; r < rows; r++, packed += step)
        for (int64_t t = 0; t < n; t += 16) least = v16_pair_smaller(least, v16_load_n(packed + t, n - t));
    return v16_pair_least(least);
}

/* Sets *noted to the smaller one of *noted and `exponent`; if `first`, to `exponent`. */
static void pairs_note(int16_t *noted, int exponent, bool first) {
    if (first || exponent < *noted) *noted = (int16_t)exponent;
}

/* Records the smallest exponents of a packed block of A: `rows` rows of `length` pairs. */
static void pairs_note_a(gemm_work *w, const operand *a, int64_t rows, int64_t length, int16_t *noted,
                         bool first) {
    for (int64_t i = 0; i < rows; i += GEMM_MR, noted++) {
        int64_t there = rows - i < GEMM_MR ? rows - i : GEMM_MR;
        int exponent = gemm_layout_of(a) == GEMM_A_PANEL
                           ? pairs_least(w->a + i / GEMM_MR * GEMM_A_STEP * length, a->t.dtype, 1,
                                         GEMM_A_STEP * length, 0)
                           : pairs_least(w->a + i * GEMM_A_LD, a->t.dtype, there, length, GEMM_A_LD);
        pairs_note(noted, exponent, first);
    }
}

/* Records the smallest exponents of a packed block of B. */
static void pairs_note_b(gemm_work *w, const operand *b, int64_t rows, int64_t length, bool first) {
    for (int64_t j = 0; j < rows; j += GEMM_NR)
        pairs_note(w->least_b + j / GEMM_NR,
                   pairs_least(w->b + j * length, b->t.dtype, 1, GEMM_NR * length, 0), first);
}

#endif

#endif
