/*
 * cpu/gemm/kernel: the micro-kernel: a tile of up to GEMM_MR x GEMM_NR sums held in registers, extended by
 * `kc` terms.
 *
 *     sum[i][j] = fmaf(a(i, k), b(j, k), sum[i][j])   for k ascending
 *
 * With block scales it makes the sums of one block, from 0, and adds them, scaled, to the tile's. One
 * function for each number of rows, so that a tile at the edge costs what it holds.
 */
#ifndef CPU_GEMM_KERNEL_H
#define CPU_GEMM_KERNEL_H

#include "cpu/gemm/tile.h"

SIMD void gemm_extend(const gemm_tile *t, int rows, int vectors, gemm_a_layout layout, bool exact) {
    const float *restrict a = t->a, *restrict b = t->b;
    const char *soon = t->soon, *soon_last = soon + (rows - 1) * t->soon_step;
    v16 sum[GEMM_MR][GEMM_NV];
    SIMD_UNROLL for (int i = 0; i < rows; i++) {
        SIMD_UNROLL for (int v = 0; v < vectors; v++) {
            sum[i][v] = t->start ? v16_load(t->start + i * GEMM_NR + 16 * v) : v16_zero();
        }
    }
    for (int64_t k = 0; k < t->kc; k++) {
        __builtin_prefetch(soon, 1);
        __builtin_prefetch(soon + 64 * (vectors - 1), 1);
        soon = soon < soon_last ? soon + t->soon_step : soon;
        v16 right[GEMM_NV];
        SIMD_UNROLL for (int v = 0; v < vectors; v++) right[v] = v16_load(b + k * GEMM_NR + 16 * v);
        SIMD_UNROLL for (int i = 0; i < rows; i++) {
            v16 left = v16_set1(layout == GEMM_A_ROWS ? a[i * GEMM_A_LD + k] : a[k * GEMM_A_STEP + i]);
            SIMD_UNROLL for (int v = 0; v < vectors; v++) sum[i][v] =
                gemm_term(left, right[v], sum[i][v], exact);
        }
    }
    gemm_leave(t, rows, vectors, sum);
}

/* X(rows) for every number of rows a tile may have. */
#define GEMM_ROWS_4(X)  X(1) X(2) X(3) X(4)
#define GEMM_ROWS_6(X)  GEMM_ROWS_4(X) X(5) X(6)
#define GEMM_ROWS_14(X) GEMM_ROWS_6(X) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#if GEMM_MR == 14
#define GEMM_ROWS(X) GEMM_ROWS_14(X)
#elif GEMM_MR == 6
#define GEMM_ROWS(X) GEMM_ROWS_6(X)
#else
#define GEMM_ROWS(X) GEMM_ROWS_4(X)
#endif

/* A function for each number of rows, and the table of them. */
#define GEMM_KERNEL(name, rows, vectors, layout, exact)                                                      \
    static void name##_##rows(const gemm_tile *t) {                                                          \
        gemm_extend(t, rows, vectors, layout, exact);                                                        \
    }

#define X(rows) GEMM_KERNEL(gemm_rows_wide, rows, GEMM_NV, GEMM_A_ROWS, false)
GEMM_ROWS(X)
#undef X
#define X(rows) GEMM_KERNEL(gemm_panel_wide, rows, GEMM_NV, GEMM_A_PANEL, false)
GEMM_ROWS(X)
#undef X
#if GEMM_NV > 1
#define X(rows) GEMM_KERNEL(gemm_rows_narrow, rows, 1, GEMM_A_ROWS, false)
GEMM_ROWS(X)
#undef X
#define X(rows) GEMM_KERNEL(gemm_panel_narrow, rows, 1, GEMM_A_PANEL, false)
GEMM_ROWS(X)
#undef X
#endif
#ifdef CPU_ISA_scalar
#define X(rows) GEMM_KERNEL(gemm_rows_exact, rows, 1, GEMM_A_ROWS, true)
GEMM_ROWS(X)
#undef X
#define X(rows) GEMM_KERNEL(gemm_panel_exact, rows, 1, GEMM_A_PANEL, true)
GEMM_ROWS(X)
#undef X
#endif

/* A tile's kernels by number of rows, less one. `narrow`: at most 16 rows of B. `exact`: both operands are
 * FP8. */
static inline const gemm_kernel *gemm_kernels(gemm_a_layout layout, bool narrow, bool exact) {
#define X(rows) gemm_rows_wide_##rows,
    static const gemm_kernel rows_wide[] = {GEMM_ROWS(X)};
#undef X
#define X(rows) gemm_panel_wide_##rows,
    static const gemm_kernel panel_wide[] = {GEMM_ROWS(X)};
#undef X
#if GEMM_NV > 1
#define X(rows) gemm_rows_narrow_##rows,
    static const gemm_kernel rows_narrow[] = {GEMM_ROWS(X)};
#undef X
#define X(rows) gemm_panel_narrow_##rows,
    static const gemm_kernel panel_narrow[] = {GEMM_ROWS(X)};
#undef X
    if (narrow) return layout == GEMM_A_ROWS ? rows_narrow : panel_narrow;
#endif
#ifdef CPU_ISA_scalar
#define X(rows) gemm_rows_exact_##rows,
    static const gemm_kernel rows_exact[] = {GEMM_ROWS(X)};
#undef X
#define X(rows) gemm_panel_exact_##rows,
    static const gemm_kernel panel_exact[] = {GEMM_ROWS(X)};
#undef X
    if (exact) return layout == GEMM_A_ROWS ? rows_exact : panel_exact;
#endif
    (void)narrow, (void)exact;
    return layout == GEMM_A_ROWS ? rows_wide : panel_wide;
}

#endif
