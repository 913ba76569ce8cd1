/*
 * cpu/gemm/amx: the micro-kernel of ACCUMULATE_TILE32 on the tile unit (cpu/simd/tiles.h). It keeps 32 x 32
 * sums in four tile registers and multiplies two registers of A by two registers of B. cpu/gemm/tile32.h
 * computes the same bits.
 *
 * A packed element is a pair of consecutive terms (PAIR_CHAIN): the even term in the high half, the odd term
 * in the low half. A is packed in blocks of 16 rows x 16 pairs, which each fill one register: [panel of 32
 * rows][block of 16 pairs][upper or lower 16 rows][row][pair].
 *
 * The unit treats subnormal numbers as 0. So if terms or sums of a tile of C may be subnormal
 * (cpu/gemm/pairs.h), fp32 multiply-adds add the same terms in the same order.
 */
#ifndef CPU_GEMM_AMX_H
#define CPU_GEMM_AMX_H

#include "cpu/gemm/tile.h"

_Static_assert(GEMM_MR == 2 * TILE_SIDE && GEMM_NR == 2 * TILE_SIDE && GEMM_A_STEP == GEMM_MR,
               "a panel must be two tiles high and two tiles wide");

/* Tile registers. In their names, 0 is the upper 16 rows or the left 16 columns, 1 the lower or the right. */
#define AMX_C00 0
#define AMX_C01 1
#define AMX_C10 2
#define AMX_C11 3
#define AMX_A0  4
#define AMX_A1  5
#define AMX_B0  6
#define AMX_B1  7

/* Loads the sums so far. tall: the tile has more than 16 rows; wide: it has more than 16 columns. */
SIMD_PRIMITIVE void amx_start(const float *start, bool tall, bool wide) {
    const float *lower = start + TILE_SIDE * GEMM_NR;
    tile_load(AMX_C00, start, GEMM_NR);
    if (wide) tile_load(AMX_C01, start + TILE_SIDE, GEMM_NR);
    if (tall) tile_load(AMX_C10, lower, GEMM_NR);
    if (tall && wide) tile_load(AMX_C11, lower + TILE_SIDE, GEMM_NR);
}
SIMD_PRIMITIVE void amx_zero(void) {
    tile_zero(AMX_C00);
    tile_zero(AMX_C01);
    tile_zero(AMX_C10);
    tile_zero(AMX_C11);
}
SIMD_PRIMITIVE void amx_store(float *sums, bool tall, bool wide) {
    float *lower = sums + TILE_SIDE * GEMM_NR;
    tile_store(AMX_C00, sums, GEMM_NR);
    if (wide) tile_store(AMX_C01, sums + TILE_SIDE, GEMM_NR);
    if (tall) tile_store(AMX_C10, lower, GEMM_NR);
    if (tall && wide) tile_store(AMX_C11, lower + TILE_SIDE, GEMM_NR);
}

/* Sets `sums` to t->start (NULL: 0) plus the products of the tile, without scales. */
SIMD_PRIMITIVE void amx_extend(const gemm_tile *t, float *sums, bool tall, bool wide) {
    const float *a = t->a, *b = t->b;
    if (t->start)
        amx_start(t->start, tall, wide);
    else
        amx_zero();
    for (int64_t k = 0; k < t->kc; k += TILE_SIDE, a += 2 * TILE_FLOATS, b += TILE_SIDE * GEMM_NR) {
        tile_load(AMX_A0, a, TILE_SIDE);
        tile_load(AMX_B0, b, GEMM_NR);
        tile_multiply(AMX_C00, AMX_A0, AMX_B0);
        if (wide) {
            tile_load(AMX_B1, b + TILE_SIDE, GEMM_NR);
            tile_multiply(AMX_C01, AMX_A0, AMX_B1);
        }
        if (tall) {
            tile_load(AMX_A1, a + TILE_FLOATS, TILE_SIDE);
            tile_multiply(AMX_C10, AMX_A1, AMX_B0);
        }
        if (tall && wide) tile_multiply(AMX_C11, AMX_A1, AMX_B1);
    }
    amx_store(sums, tall, wide);
}

/* Computes row i of the sums that amx_extend computes, by fp32 multiply-adds. */
static void amx_extend_apart(const gemm_tile *t, int64_t i, float *sums) {
    const float *a = t->a + i / TILE_SIDE * TILE_FLOATS + i % TILE_SIDE * TILE_SIDE, *b = t->b;
    v16 sum[GEMM_NV];
    SIMD_UNROLL for (int v = 0; v < GEMM_NV; v++) sum[v] =
        t->start ? v16_load(t->start + i * GEMM_NR + 16 * v) : v16_zero();
    for (int64_t k = 0; k < t->kc; k += TILE_SIDE, a += 2 * TILE_FLOATS, b += TILE_SIDE * GEMM_NR) {
        v16 even[GEMM_NV], odd[GEMM_NV];
        SIMD_UNROLL for (int v = 0; v < GEMM_NV; v++) even[v] = odd[v] = v16_zero();
        for (int e = 0; e < TILE_SIDE; e++) {
            v16 left = v16_set1(a[e]), first = v16_pair_first(left), second = v16_pair_second(left);
            SIMD_UNROLL for (int v = 0; v < GEMM_NV; v++) {
                v16 right = v16_load(b + e * GEMM_NR + 16 * v);
                even[v] = v16_fma(first, v16_pair_first(right), even[v]);
                odd[v] = v16_fma(second, v16_pair_second(right), odd[v]);
            }
        }
        SIMD_UNROLL for (int v = 0; v < GEMM_NV; v++) sum[v] = v16_add(sum[v], v16_add(even[v], odd[v]));
    }
    SIMD_UNROLL for (int v = 0; v < GEMM_NV; v++) v16_store(sums + i * GEMM_NR + 16 * v, sum[v]);
}
static void amx_multiply_apart(const gemm_tile *t, float *sums) {
    for (int64_t i = 0; i < t->rows; i++) amx_extend_apart(t, i, sums);
}

/* amx_sizes[tall][wide]: a function for each size of a tile, in which tall and wide are constants. */
#define AMX_SIZE(name, tall, wide)                                                                           \
    static void name(const gemm_tile *t, float *sums) {                                                      \
        amx_extend(t, sums, tall, wide);                                                                     \
    }
AMX_SIZE(amx_small, false, false)
AMX_SIZE(amx_wide, false, true)
AMX_SIZE(amx_tall, true, false)
AMX_SIZE(amx_full, true, true)
static const gemm_multiply amx_sizes[2][2] = {{amx_small, amx_wide}, {amx_tall, amx_full}};

static void amx_kernel_narrow(const gemm_tile *t) {
    gemm_multiply_scaled(t, 1, amx_sizes[t->rows > TILE_SIDE][false]);
}
static void amx_kernel_wide(const gemm_tile *t) {
    gemm_multiply_scaled(t, GEMM_NV, amx_sizes[t->rows > TILE_SIDE][true]);
}
static void amx_kernel_apart(const gemm_tile *t) {
    gemm_multiply_scaled(t, GEMM_NV, amx_multiply_apart);
}

/* Returns the kernel for GEMM_PAIRS or GEMM_PAIRS_APART. narrow: the tile has at most 16 columns. */
static gemm_kernel amx_kernel(bool narrow, gemm_arithmetic how) {
    if (how == GEMM_PAIRS_APART) return amx_kernel_apart;
    return narrow ? amx_kernel_narrow : amx_kernel_wide;
}

#endif
