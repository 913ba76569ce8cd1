/* cpu/gemm/tile: the arguments of a micro-kernel, and functions that all micro-kernels use. */
#ifndef CPU_GEMM_TILE_H
#define CPU_GEMM_TILE_H

#include "cpu/gemm/gemm.h"

/* Layout of a packed block of A. */
typedef enum gemm_a_layout {
    GEMM_A_ROWS, /* packed element (i, k) of row i is a[i*GEMM_A_LD + k] */
    GEMM_A_PANEL /* packed element (i, k) of row i is a[k*GEMM_A_STEP + i]; tile unit: see cpu/gemm/amx.h */
} gemm_a_layout;

static inline gemm_a_layout gemm_layout_of(const operand *a) {
    return SIMD_HAS_TILES || a->transposed ? GEMM_A_PANEL : GEMM_A_ROWS;
}

/* Arguments of a micro-kernel. */
typedef struct gemm_tile {
    int64_t rows, kc;   /* rows of A; packed elements in each row */
    const float *a, *b; /* packed A; packed B: [kc][GEMM_NR], aligned */
    const float *start; /* initial sums [GEMM_MR][GEMM_NR], or NULL for 0 */
    float *sums;        /* resulting sums [GEMM_MR][GEMM_NR], may be `start` */
    /* Inverse block scales scale_inv_a[rows] and scale_inv_b[GEMM_NR], or NULL. With block scales the sums
       start from 0 (`start` is NULL), are scaled, and are added to `sums`. */
    const float *scale_inv_a, *scale_inv_b;
    scale_order order;
    const char *prefetch;         /* row to prefetch: of C after the last terms, else of the next sums */
    int64_t prefetch_step;        /* bytes from one prefetched row to the next */
    float smallest_a, smallest_b; /* smallest normal numbers of the operands' formats (tensorcore.c) */
} gemm_tile;

typedef void (*gemm_kernel)(const gemm_tile *t);

/* How to add the product of two packed elements to a sum. Each gives the bits of fp32 multiply-adds. */
typedef enum gemm_arithmetic {
    GEMM_FMA,        /* one term: fused multiply-add */
    GEMM_EXACT,      /* one term with an exact product: multiply, then add (fmaf would call the C library) */
    GEMM_PAIRS,      /* a pair: bf16 dot product; only if no number and no sum is subnormal */
    GEMM_PAIRS_APART /* a pair: two fp32 multiply-adds */
} gemm_arithmetic;

/* Returns the arithmetic for single terms. fp8: both operands are FP8, so products are exact in fp32. */
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

/* Scales the sums of a scale block for row i and vector v of the tile, and adds them to t->sums. */
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

/* Stores the sums in t->sums, or, with block scales, scales the sums and adds them to t->sums. */
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

/* Adds a tile's products to the sums in t->start and stores the result in `sums`, which may be t->start. */
typedef void (*gemm_multiply)(const gemm_tile *t, float *sums);

/* Runs `multiply` on a tile. With block scales, scales the resulting sums and adds them to t->sums. */
static inline void gemm_multiply_scaled(const gemm_tile *t, int vectors, gemm_multiply multiply) {
    _Alignas(64) float sums[GEMM_TILE];
    for (int64_t i = 0; i < t->rows; i++)
        for (int v = 0; v < vectors; v++) __builtin_prefetch(t->prefetch + i * t->prefetch_step + 64 * v, 1);
    if (!t->scale_inv_a) {
        multiply(t, t->sums);
        return;
    }
    multiply(t, sums);
    for (int64_t i = 0; i < t->rows; i++)
        for (int v = 0; v < vectors; v++)
            gemm_add_scaled(t, i, v, v16_load(sums + i * GEMM_NR + 16 * v), t->order);
}

/* GEMM_VARIANTS(X) expands X(name, vectors, how) for each kernel of the ISA level. A narrow kernel computes
   only the first 16 columns of a tile. */
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

/* Returns the index of a kernel in GEMM_VARIANTS. narrow: the tile has at most 16 columns. */
static inline int gemm_variant(bool narrow, gemm_arithmetic how) {
#define X(name, vectors, arithmetic) arithmetic,
    static const gemm_arithmetic variants[] = {GEMM_VARIANTS(X)};
#undef X
    int chosen = -1; /* in GEMM_VARIANTS, the narrow kernel follows the wide kernel */
    for (int i = 0; i < (int)(sizeof variants / sizeof variants[0]); i++)
        if (variants[i] == how && (chosen < 0 || narrow)) chosen = i;
    return chosen;
}

/* tensorcore.c: returns the kernel that accumulates like an FP8 tensor core, for any number of rows. */
gemm_kernel ISA(gemm_tensorcore)(gemm_a_layout layout, bool split);

#endif
