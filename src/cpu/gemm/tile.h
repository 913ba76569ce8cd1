/*
 * cpu/gemm/tile: what a micro-kernel works on, and how its sums leave the registers.
 */
#ifndef CPU_GEMM_TILE_H
#define CPU_GEMM_TILE_H

#include "cpu/gemm/gemm.h"

/* How a packed block of A lies. */
typedef enum gemm_a_layout {
    GEMM_A_ROWS, /* row i at a + i*GEMM_A_LD, k contiguous */
    GEMM_A_PANEL /* element k at a + k*GEMM_A_STEP, rows contiguous; on the tile unit as cpu/gemm/amx.h says */
} gemm_a_layout;

static inline gemm_a_layout gemm_layout_of(const operand *a) {
    return SIMD_HAS_TILES || a->transposed ? GEMM_A_PANEL : GEMM_A_ROWS;
}

/* What a tile's sums are extended by, and where they are. */
typedef struct gemm_tile {
    int64_t rows, kc;   /* kc: packed elements */
    const float *a, *b; /* b: [kc][GEMM_NR], aligned */
    const float *start; /* the sums so far, [GEMM_MR][GEMM_NR], or NULL for 0 */
    float *sums;        /* [GEMM_MR][GEMM_NR], may be start */
    /* Block scales, NULL for none: scale_inv_a[rows], scale_inv_b[GEMM_NR]. start is NULL, and the block's
       scaled sums are added to `sums`. */
    const float *scale_inv_a, *scale_inv_b;
    scale_order order;
    const char *soon;  /* memory wanted next, a stretch for each row of A, soon_step bytes apart: */
    int64_t soon_step; /* it is asked for while the sums are made, so that the store of them need not wait */
    float smallest_a, smallest_b; /* normal numbers of the operands' formats (gemm_tensorcore.c) */
} gemm_tile;

typedef void (*gemm_kernel)(const gemm_tile *t);

/* How a sum is extended by the product of two packed elements; each way gives the bits of the fp32 chain. */
typedef enum gemm_arithmetic {
    GEMM_FMA,   /* one term each: a fused multiply-add */
    GEMM_EXACT, /* one term each, the product exact: a multiply and an add, where fma is a library call */
    GEMM_PAIRS, /* pairs in the unit for them: no sum may be subnormal */
    GEMM_PAIRS_APART /* pairs, each term by itself */
} gemm_arithmetic;

/* How terms are multiplied; fp8: both operands are FP8, whose products are exact in fp32. */
SIMD gemm_arithmetic gemm_of_terms(bool fp8) {
#ifdef CPU_ISA_scalar
    if (fp8) return GEMM_EXACT;
#endif
    (void)fp8;
    return GEMM_FMA;
}

SIMD_PRIMITIVE v16 gemm_extended(v16 a, v16 b, v16 sum, gemm_arithmetic how) {
    if (how == GEMM_EXACT) return v16_add(sum, v16_mul(a, b));
#if SIMD_HAS_PAIRS
    if (how == GEMM_PAIRS) return v16_pair_fma(a, b, sum);
    if (how == GEMM_PAIRS_APART) {
        sum = v16_fma(v16_pair_first(a), v16_pair_first(b), sum);
        return v16_fma(v16_pair_second(a), v16_pair_second(b), sum);
    }
#endif
    return v16_fma(a, b, sum);
}

/* A block's sums of row i and vector v onto those of the blocks before it: scale_order of fp8/recipe.h. */
SIMD void gemm_add_scaled(const gemm_tile *t, int64_t i, int v, v16 sum, scale_order order) {
    v16 scale_inv_a = v16_set1(t->scale_inv_a[i]), scale_inv_b = v16_load(t->scale_inv_b + 16 * v);
    float *y = t->sums + i * GEMM_NR + 16 * v;
    if (order == SCALE_PRODUCT)
        v16_store(y, v16_fma(sum, v16_mul(scale_inv_a, scale_inv_b), v16_load(y)));
    else
        v16_store(y, v16_fma(v16_mul(sum, scale_inv_a), scale_inv_b, v16_load(y)));
}
SIMD void gemm_add_block(const gemm_tile *t, int rows, int vectors, v16 sum[GEMM_MR][GEMM_NV],
                         scale_order order) {
    SIMD_UNROLL for (int i = 0; i < rows; i++) {
        SIMD_UNROLL for (int v = 0; v < vectors; v++) gemm_add_scaled(t, i, v, sum[i][v], order);
    }
}

SIMD void gemm_leave(const gemm_tile *t, int rows, int vectors, v16 sum[GEMM_MR][GEMM_NV]) {
    if (t->scale_inv_a && t->order == SCALE_PRODUCT)
        gemm_add_block(t, rows, vectors, sum, SCALE_PRODUCT);
    else if (t->scale_inv_a)
        gemm_add_block(t, rows, vectors, sum, SCALE_A_THEN_B);
    else {
        SIMD_UNROLL for (int i = 0; i < rows; i++) {
            SIMD_UNROLL for (int v = 0; v < vectors; v++)
                v16_store(t->sums + i * GEMM_NR + 16 * v, sum[i][v]);
        }
    }
}

/* Extends the sums that are in t->start by a tile's products, into `sums`, which may be t->start. */
typedef void (*gemm_multiply)(const gemm_tile *t, float *sums);

/* A tile by a kernel that keeps its sums in memory. Block scales apply to its sums before they are added. */
static inline void gemm_multiply_scaled(const gemm_tile *t, int vectors, gemm_multiply multiply) {
    _Alignas(64) float sums[GEMM_TILE];
    for (int64_t i = 0; i < t->rows; i++)
        for (int v = 0; v < vectors; v++) __builtin_prefetch(t->soon + i * t->soon_step + 64 * v, 1);
    if (!t->scale_inv_a) {
        multiply(t, t->sums);
        return;
    }
    multiply(t, sums);
    for (int64_t i = 0; i < t->rows; i++)
        for (int v = 0; v < vectors; v++)
            gemm_add_scaled(t, i, v, v16_load(sums + i * GEMM_NR + 16 * v), t->order);
}

/* GEMM_VARIANTS(X): X(name, vectors, how) for each kernel of the level: for all columns of a tile, and where it pays for
   the first 16 alone. */
#if SIMD_HAS_PAIRS
#define GEMM_VARIANTS(X)                                                                                     \
    X(wide, GEMM_NV, GEMM_FMA)                                                                               \
    X(narrow, 1, GEMM_FMA)                                                                                   \
    X(pairs_wide, GEMM_NV, GEMM_PAIRS)                                                                       \
    X(pairs_narrow, 1, GEMM_PAIRS) X(pairs_apart, GEMM_NV, GEMM_PAIRS_APART)
#elif GEMM_NV > 1
#define GEMM_VARIANTS(X) X(wide, GEMM_NV, GEMM_FMA) X(narrow, 1, GEMM_FMA)
#elif defined(CPU_ISA_scalar)
#define GEMM_VARIANTS(X) X(wide, GEMM_NV, GEMM_FMA) X(exact, GEMM_NV, GEMM_EXACT)
#else
#define GEMM_VARIANTS(X) X(wide, GEMM_NV, GEMM_FMA)
#endif

/* Index of a kernel in GEMM_VARIANTS. narrow: at most 16 columns are there. */
static inline int gemm_variant(bool narrow, gemm_arithmetic how) {
#define X(name, vectors, arithmetic) arithmetic,
    static const gemm_arithmetic variants[] = {GEMM_VARIANTS(X)};
#undef X
    int chosen = -1; /* of several, the narrow one is the last */
    for (int i = 0; i < (int)(sizeof variants / sizeof variants[0]); i++)
        if (variants[i] == how && (chosen < 0 || narrow)) chosen = i;
    return chosen;
}

/* gemm_tensorcore.c: the kernel that accumulates as the FP8 tensor core does, for any number of rows. */
gemm_kernel ISA(gemm_tensorcore)(gemm_a_layout layout, bool split);

#endif
