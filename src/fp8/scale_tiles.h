/*
 * fp8/scale_tiles: how the decode scales (scale_inv) of a GEMM operand are stored. Each block of elements
 * that share a scale has a position (mn, k): its index along the operand's rows MN and along the contraction
 * K.
 *
 * fp32 scales are a matrix with the strides mn_step and k_step. 8-bit scales are stored in the order in which
 * tensor cores read them (cuBLAS 13, "1D Block Scaling Factors"): in tiles of 128 x 4 positions, which have
 * 512 bytes. Tiles follow each other along K. In a tile, the position (mn, k) has the offset
 *
 *     mn % 32 * 16 + mn / 32 * 4 + k
 *
 * The last tiles may have positions outside of the operand. Their bytes are padding. Tensor cores multiply
 * the padding along K by zeros, so padding that they read must not be NaN: CUDA kernels write
 * SCALE_TILE_PADDING there. The CPU does not write padding.
 */
#ifndef FP8_SCALE_TILES_H
#define FP8_SCALE_TILES_H

#include "fp8/narrow.h"

enum { SCALE_TILE_MN = 128, SCALE_TILE_K = 4, SCALE_TILE_BYTES = SCALE_TILE_MN * SCALE_TILE_K };
/* In a tile, SCALE_TILE_RUN neighbors along MN are SCALE_TILE_STEP bytes apart. Runs are aligned. */
enum { SCALE_TILE_RUN = 32, SCALE_TILE_STEP = 16 };
enum { SCALE_TILE_PADDING = 127 }; /* value of padding bytes: 2^0 */

typedef struct scale_tiles {
    int64_t along_k; /* number of tiles along K; 0: the scales are fp32 */
    int64_t mn, k;   /* position of the first scale in the tiles; both 0 unless the operand is a view */
    ott_dtype format;
    /* bytes before the tiles: 0, or SCALE_TILE_BYTES, which begin with the fp32 scale of the second level */
    int64_t first;
} scale_tiles;

/* Returns the bytes of the tiles of `mn` positions along MN, with `along_k` tiles along K. */
ANYWHERE int64_t scale_tiles_bytes(int64_t mn, int64_t along_k) {
    return (mn + SCALE_TILE_MN - 1) / SCALE_TILE_MN * along_k * SCALE_TILE_BYTES;
}

/* Returns the index of the byte of position (mn, k). */
ANYWHERE int64_t scale_tiles_index(scale_tiles t, int64_t mn, int64_t k) {
    uint64_t i = (uint64_t)(t.mn + mn), j = (uint64_t)(t.k + k);
    uint64_t tile = i / SCALE_TILE_MN * (uint64_t)t.along_k + j / SCALE_TILE_K;
    uint64_t within =
        i % SCALE_TILE_RUN * SCALE_TILE_STEP + i % SCALE_TILE_MN / SCALE_TILE_RUN * SCALE_TILE_K;
    return t.first + (int64_t)(tile * SCALE_TILE_BYTES + within + j % SCALE_TILE_K);
}

/* Returns the decode scale of position (mn, k). */
ANYWHERE float scale_inv_at(const void *scale_inv, int64_t mn_step, int64_t k_step, scale_tiles t, int64_t mn,
                            int64_t k) {
    if (t.along_k == 0) return ((const float *)scale_inv)[mn * mn_step + k * k_step];
    uint8_t code = ((const uint8_t *)scale_inv)[scale_tiles_index(t, mn, k)];
    float scale = t.format == OTT_E8M0 ? cast_from_e8m0(code) : narrow_from_fp8(code, t.format);
    return t.first ? scale * *(const float *)scale_inv : scale;
}

/* Makes a view of decode scales that begins at position (mn, k): returns its scale_inv and changes *t. */
ANYWHERE const void *scale_inv_view(const void *scale_inv, int64_t mn_step, int64_t k_step, scale_tiles *t,
                                    int64_t mn, int64_t k) {
    if (t->along_k == 0) return (const float *)scale_inv + mn * mn_step + k * k_step;
    t->mn += mn;
    t->k += k;
    return scale_inv;
}

#endif
