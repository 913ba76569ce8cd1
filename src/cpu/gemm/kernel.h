/*
 * cpu/gemm/kernel: the micro-kernel. It keeps the sums of a tile of C, up to GEMM_MR x GEMM_NR, in registers
 * and adds the products of `kc` packed elements.
 *
 *     sum[i][j] = fmaf(a(i, k), b(j, k), sum[i][j])   for each term k, ascending
 *
 * With block scales it computes the sums of one scale block from 0, scales them and adds them to the tile's
 * sums. There is a function for each number of rows, so that tiles at the edge of C cost less.
 */
#ifndef CPU_GEMM_KERNEL_H
#define CPU_GEMM_KERNEL_H

#include "cpu/gemm/tile.h"

SIMD void gemm_extend(const gemm_tile *t, int rows, int vectors, gemm_a_layout layout, gemm_arithmetic how) {
    const float *restrict a = t->a, *restrict b = t->b;
    const char *prefetch = t->prefetch, *prefetch_last = prefetch + (rows - 1) * t->prefetch_step;
    v16 sum[GEMM_MR][GEMM_NV];
    SIMD_UNROLL for (int i = 0; i < rows; i++) {
        SIMD_UNROLL for (int v = 0; v < vectors; v++) {
            sum[i][v] = t->start ? v16_load(t->start + i * GEMM_NR + 16 * v) : v16_zero();
        }
    }
    for (int64_t k = 0; k < t->kc; k++) {
        __builtin_prefetch(prefetch, 1);
        __builtin_prefetch(prefetch + 64 * (vectors - 1), 1);
        prefetch = prefetch < prefetch_last ? prefetch + t->prefetch_step : prefetch;
        v16 right[GEMM_NV];
        SIMD_UNROLL for (int v = 0; v < vectors; v++) right[v] = v16_load(b + k * GEMM_NR + 16 * v);
        SIMD_UNROLL for (int i = 0; i < rows; i++) {
            v16 left = v16_set1(layout == GEMM_A_ROWS ? a[i * GEMM_A_LD + k] : a[k * GEMM_A_STEP + i]);
            SIMD_UNROLL for (int v = 0; v < vectors; v++) sum[i][v] =
                gemm_extended(left, right[v], sum[i][v], how);
        }
    }
    gemm_leave(t, rows, vectors, sum);
}

/* GEMM_ROWS(X, ...) expands X(rows, ...) for each number of rows that a tile may have. */
#define GEMM_ROWS_4(X, ...) X(1, __VA_ARGS__) X(2, __VA_ARGS__) X(3, __VA_ARGS__) X(4, __VA_ARGS__)
#define GEMM_ROWS_6(X, ...) GEMM_ROWS_4(X, __VA_ARGS__) X(5, __VA_ARGS__) X(6, __VA_ARGS__)
#define GEMM_ROWS_10(X, ...)                                                                                 \
    GEMM_ROWS_6(X, __VA_ARGS__) X(7, __VA_ARGS__) X(8, __VA_ARGS__) X(9, __VA_ARGS__) X(10, __VA_ARGS__)
#define GEMM_ROWS_14(X, ...)                                                                                 \
    GEMM_ROWS_10(X, __VA_ARGS__) X(11, __VA_ARGS__) X(12, __VA_ARGS__) X(13, __VA_ARGS__) X(14, __VA_ARGS__)
#if GEMM_MR == 14
#define GEMM_ROWS GEMM_ROWS_14
#elif GEMM_MR == 6
#define GEMM_ROWS GEMM_ROWS_6
#else
#define GEMM_ROWS GEMM_ROWS_4
#endif

/* gemm_kernels[gemm_variant()][layout][rows - 1] is the kernel for tiles of `rows` rows. */
#define GEMM_KERNEL(rows, name, vectors, how)                                                                \
    static void gemm_##name##_rows_##rows(const gemm_tile *t) {                                              \
        gemm_extend(t, rows, vectors, GEMM_A_ROWS, how);                                                     \
    }                                                                                                        \
    static void gemm_##name##_panel_##rows(const gemm_tile *t) {                                             \
        gemm_extend(t, rows, vectors, GEMM_A_PANEL, how);                                                    \
    }
#define GEMM_KERNELS(name, vectors, how) GEMM_ROWS(GEMM_KERNEL, name, vectors, how)
GEMM_VARIANTS(GEMM_KERNELS)

#define GEMM_ENTRY_ROWS(rows, name)  gemm_##name##_rows_##rows,
#define GEMM_ENTRY_PANEL(rows, name) gemm_##name##_panel_##rows,
#define GEMM_ENTRIES(name, vectors, how)                                                                     \
    {[GEMM_A_ROWS] = {GEMM_ROWS(GEMM_ENTRY_ROWS, name)},                                                     \
     [GEMM_A_PANEL] = {GEMM_ROWS(GEMM_ENTRY_PANEL, name)}},
static const gemm_kernel gemm_kernels[][2][GEMM_MR] = {GEMM_VARIANTS(GEMM_ENTRIES)};

#endif
