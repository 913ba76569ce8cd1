/*
 * cpu/gemm/tile32: the micro-kernel of the order ACCUMULATE_TILE32 (fp8/reference.h). It computes a tile of C
 * of up to GEMM_MR x GEMM_NR sums. For each 32 terms of the contraction:
 *
 *     sum[i][j] += even[i][j] + odd[i][j]    even, odd: sums of the even and of the odd terms
 *
 * Registers hold sum, even and odd for only a few rows of the tile. So the contraction is split into chunks
 * that fit into the first-level cache, and a kernel computes each chunk for a few rows.
 */
#ifndef CPU_GEMM_TILE32_H
#define CPU_GEMM_TILE32_H

#include "cpu/gemm/tile.h"

/* Rows computed together, limited by the number of registers. */
#if defined(CPU_ISA_avx2)
#define TILE32_ROWS 3
#elif GEMM_MR == 6
#define TILE32_ROWS 2
#else
#define TILE32_ROWS 4
#endif
/* Packed elements in a chunk: a multiple of 32 terms. The cache also keeps the prefetched next chunk of B. */
enum { TILE32_CHUNK = 2048 / GEMM_NR };

/* Returns the number of packed elements of 32 terms. */
SIMD int64_t tile32_length(gemm_arithmetic how) {
    return GEMM_TERMS_OF_TILE32 / (how == GEMM_PAIRS || how == GEMM_PAIRS_APART ? 2 : 1);
}

typedef v16 tile32_sums[TILE32_ROWS][GEMM_NV];

SIMD void tile32_zero(int rows, int vectors, tile32_sums sum) {
    SIMD_UNROLL for (int i = 0; i < rows; i++) {
        SIMD_UNROLL for (int v = 0; v < vectors; v++) sum[i][v] = v16_zero();
    }
}

/* Adds the product of one packed element of each row of A and each lane of b to the sums. */
SIMD void tile32_extend(const float *a, const float *b, int rows, int vectors, gemm_a_layout layout,
                        gemm_arithmetic how, tile32_sums sum) {
    v16 right[GEMM_NV];
    SIMD_UNROLL for (int v = 0; v < vectors; v++) right[v] = v16_load(b + 16 * v);
    SIMD_UNROLL for (int i = 0; i < rows; i++) {
        v16 left = v16_set1(a[layout == GEMM_A_ROWS ? i * GEMM_A_LD : i]);
        SIMD_UNROLL for (int v = 0; v < vectors; v++) sum[i][v] =
            gemm_extended(left, right[v], sum[i][v], how);
    }
}

/* A chunk: `length` packed elements for a few rows. */
typedef struct tile32_chunk {
    const float *a, *b;
    int64_t length;
    const float *start; /* initial sums [rows][GEMM_NR], or NULL for 0 */
    float *sums;        /* resulting sums, may be `start` */
    const float *ahead; /* memory to prefetch, a cache line for every two packed elements */
} tile32_chunk;

SIMD void tile32_add(const tile32_chunk *t, int rows, int vectors, gemm_a_layout layout,
                     gemm_arithmetic how) {
    const int64_t a_step = layout == GEMM_A_ROWS ? 1 : GEMM_A_STEP, tile = tile32_length(how);
    const float *restrict a = t->a, *restrict b = t->b, *ahead = t->ahead;
    const int64_t length = t->length;
    tile32_sums sum, even, odd;
    SIMD_UNROLL for (int i = 0; i < rows; i++) {
        SIMD_UNROLL for (int v = 0; v < vectors; v++) {
            sum[i][v] = t->start ? v16_load(t->start + i * GEMM_NR + 16 * v) : v16_zero();
        }
    }
    for (int64_t k = 0; k < length; k += tile, a += tile * a_step, b += tile * GEMM_NR) {
        tile32_zero(rows, vectors, even);
        tile32_zero(rows, vectors, odd);
        for (int64_t e = 0; e < tile; e += 2, ahead += 16) {
            __builtin_prefetch(ahead);
            tile32_extend(a + e * a_step, b + e * GEMM_NR, rows, vectors, layout, how, even);
            tile32_extend(a + (e + 1) * a_step, b + (e + 1) * GEMM_NR, rows, vectors, layout, how, odd);
        }
        SIMD_UNROLL for (int i = 0; i < rows; i++) {
            SIMD_UNROLL for (int v = 0; v < vectors; v++) sum[i][v] =
                v16_add(sum[i][v], v16_add(even[i][v], odd[i][v]));
        }
    }
    SIMD_UNROLL for (int i = 0; i < rows; i++) {
        SIMD_UNROLL for (int v = 0; v < vectors; v++) v16_store(t->sums + i * GEMM_NR + 16 * v, sum[i][v]);
    }
}

/* ---- a function for each number of rows ---- */

typedef void (*tile32_kernel)(const tile32_chunk *t);

/* Adds a tile's products to t->start and stores the sums in sums[rows][GEMM_NR] (see gemm_multiply). */
static void tile32_multiply(const gemm_tile *t, float *sums, gemm_a_layout layout,
                            const tile32_kernel kernels[TILE32_ROWS]) {
    int64_t k = 0;
    do { /* runs once even if the contraction is empty */
        int64_t length = t->kc - k < TILE32_CHUNK ? t->kc - k : TILE32_CHUNK;
        const float *start = k > 0 ? sums : t->start;
        tile32_chunk c = {.b = t->b + k * GEMM_NR,
                          .length = length,
                          .ahead = t->b + (k + length < t->kc ? k + length : 0) * GEMM_NR};
        for (int64_t i = 0, rows; i < t->rows; i += rows) {
            int64_t left = t->rows - i, turns = (left + TILE32_ROWS - 1) / TILE32_ROWS;
            rows = (left + turns - 1) / turns;
            c.a = layout == GEMM_A_ROWS ? t->a + i * GEMM_A_LD + k : t->a + k * GEMM_A_STEP + i;
            c.start = start ? start + i * GEMM_NR : NULL;
            c.sums = sums + i * GEMM_NR;
            kernels[rows - 1](&c);
            c.ahead += length / 2 * 16;
        }
        k += length;
    } while (k < t->kc);
}

#define TILE32_ROW_KERNELS(X, ...)                                                                           \
    X(1, __VA_ARGS__) X(2, __VA_ARGS__) TILE32_ROWS_3(X, __VA_ARGS__) TILE32_ROWS_4(X, __VA_ARGS__)
#if TILE32_ROWS >= 3
#define TILE32_ROWS_3(X, ...) X(3, __VA_ARGS__)
#else
#define TILE32_ROWS_3(X, ...)
#endif
#if TILE32_ROWS >= 4
#define TILE32_ROWS_4(X, ...) X(4, __VA_ARGS__)
#else
#define TILE32_ROWS_4(X, ...)
#endif

#define TILE32_KERNEL(rows, name, vectors, layout, how)                                                      \
    static void name##_##rows(const tile32_chunk *t) {                                                       \
        tile32_add(t, rows, vectors, layout, how);                                                           \
    }
#define TILE32_ENTRY(rows, name) name##_##rows,
#define TILE32_LAYOUT(name, vectors, layout, how)                                                            \
    TILE32_ROW_KERNELS(TILE32_KERNEL, name, vectors, layout, how)                                            \
    static void name##_sums(const gemm_tile *t, float *sums) {                                               \
        static const tile32_kernel kernels[TILE32_ROWS] = {TILE32_ROW_KERNELS(TILE32_ENTRY, name)};          \
        tile32_multiply(t, sums, layout, kernels);                                                           \
    }                                                                                                        \
    static void name(const gemm_tile *t) {                                                                   \
        gemm_multiply_scaled(t, vectors, name##_sums);                                                       \
    }
#define TILE32_KERNELS(name, vectors, how)                                                                   \
    TILE32_LAYOUT(tile32_##name##_rows, vectors, GEMM_A_ROWS, how)                                           \
    TILE32_LAYOUT(tile32_##name##_panel, vectors, GEMM_A_PANEL, how)
GEMM_VARIANTS(TILE32_KERNELS)

/* tile32_kernels[gemm_variant()][layout], for any number of rows. */
#define TILE32_ENTRIES(name, vectors, how)                                                                   \
    {[GEMM_A_ROWS] = tile32_##name##_rows, [GEMM_A_PANEL] = tile32_##name##_panel},
static const gemm_kernel tile32_kernels[][2] = {GEMM_VARIANTS(TILE32_ENTRIES)};

#endif
