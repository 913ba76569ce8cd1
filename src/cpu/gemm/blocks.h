/*
 * cpu/gemm/blocks: products of operands with block scales (fp8/reference.h). The terms of one scale block are
 * added from 0. Their sum is scaled, then added to the element of C. Inverse scales are packed in the
 * micro-kernel's order, so all granularities use the same kernel.
 */
#ifndef CPU_GEMM_BLOCKS_H
#define CPU_GEMM_BLOCKS_H

#include "cpu/gemm/pack.h"
#include "cpu/gemm/tile.h"

SIMD int64_t blocks_of(int64_t kc, int64_t block) {
    return (kc + block - 1) / block;
}

/* Packs the inverse scales of rows [row, row + rows) for scale block k of the contraction. Packs 1 if the
   operand has no scales. Entries after `rows` are 0. */
SIMD void pack_scale_inv_panel(float *out, const operand *o, int64_t row, int64_t rows, int64_t k,
                               int64_t panel, int64_t block_mn) {
    for (int64_t i = 0; i < panel; i++) {
        int64_t mn = block_mn == 1 ? row + i : (row + i) / block_mn;
        out[i] = i >= rows ? 0.0f : o->scale_inv ? operand_scale_inv(o, mn, k) : 1.0f;
    }
}

/* Packs the inverse scales of an operand's block b to out[index of panel][scale block][row of panel]. */
SIMD void pack_scale_invs(float *out, const operand *o, gemm_block b, int64_t block, int64_t panel) {
    int64_t block_mn = granularity_block(o->grain).mn;
    for (int64_t i = 0; i < b.rows; i += panel)
        for (int64_t k = b.k; k < b.k + b.kc; k += block, out += panel) {
            int64_t rows = b.rows - i;
            if (block_mn == 1)
                pack_scale_inv_panel(out, o, b.row + i, rows, k / block, panel, 1);
            else
                pack_scale_inv_panel(out, o, b.row + i, rows, k / block, panel, block_mn);
        }
}

/* Computes a tile of C with block scales. block: packed elements in a scale block. tile.scale_inv_a and _b:
   inverse scales of the first scale block. a_step: floats from a packed element of a row of A to the next. */
static void multiply_blocks(gemm_kernel kernel, gemm_tile tile, int64_t block, int64_t a_step) {
    int64_t kc = tile.kc;
    if (!tile.start) memset(tile.sums, 0, GEMM_TILE * sizeof(float));
    tile.start = NULL;
    for (int64_t k = 0; k < kc; k += block) {
        tile.kc = kc - k < block ? kc - k : block;
        kernel(&tile);
        tile.a += block * a_step;
        tile.b += block * GEMM_NR;
        tile.scale_inv_a += GEMM_MR;
        tile.scale_inv_b += GEMM_NR;
    }
}

#endif
