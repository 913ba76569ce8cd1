/*
 * cpu/gemm/blocks: block scales in the matrix product (fp8/reference.h): each block of the contraction is a
 * chain of its own, and its sums are scaled on their way to the tile's. The scales of the packed parts are
 * laid out as the micro-kernel reads them, so that every granularity is the same to it.
 */
#ifndef CPU_GEMM_BLOCKS_H
#define CPU_GEMM_BLOCKS_H

#include "cpu/gemm/pack.h"
#include "cpu/gemm/tile.h"

SIMD int64_t blocks_of(int64_t kc, int64_t block) {
    return (kc + block - 1) / block;
}

/* The scale_inv scales of rows [row, row + rows) in one block of the contraction, `from` on; rows up to
   `panel` that are not there get 0. */
SIMD void pack_scale_inv_panel(float *out, const float *from, const operand *o, int64_t row, int64_t rows,
                               int64_t panel, int64_t block_mn) {
    for (int64_t i = 0; i < panel; i++) {
        int64_t at = block_mn == 1 ? row + i : (row + i) / block_mn;
        out[i] = i >= rows ? 0.0f : o->scale_inv ? from[at * o->mn_step] : 1.0f;
    }
}

/* Those of a packed part of an operand: [panel of `panel` rows][block][panel]. */
SIMD void pack_scale_invs(float *out, const operand *o, gemm_block b, int64_t block, int64_t panel) {
    int64_t block_mn = granularity_block(o->grain).mn;
    for (int64_t i = 0; i < b.rows; i += panel)
        for (int64_t k = b.k; k < b.k + b.kc; k += block, out += panel) {
            const float *from = o->scale_inv ? o->scale_inv + k / block * o->k_step : NULL;
            int64_t rows = b.rows - i;
            if (block_mn == 1)
                pack_scale_inv_panel(out, from, o, b.row + i, rows, panel, 1);
            else
                pack_scale_inv_panel(out, from, o, b.row + i, rows, panel, block_mn);
        }
}

/* The tile's sums over scale blocks of `block` packed elements; scale_inv_a and scale_inv_b are the tile's, of the
   first block. a_step: from one packed element of A to the next. */
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
