/*
 * bench/gpu/wgmma: FP8 products by the tensor cores' own instruction, wgmma.mma_async m64n8k32 with fp32
 * accumulators (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"): nothing stands between the
 * operands and the chip's addition.
 */
#ifndef WGMMA_H
#define WGMMA_H

#include "ottava/types.h"
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What one instruction multiplies: [64,32] by [8,32]^T. */
enum { WGMMA_ROWS = 64, WGMMA_COLUMNS = 8, WGMMA_PRODUCTS = 32, WGMMA_PROMOTION = 128 };

/* The two offsets, in bytes, that a shared memory descriptor holds. Which of them leads from one core matrix
   to the next along the contraction, and which along the rows, is what the caller tries. */
typedef struct wgmma_layout {
    uint32_t leading, stride;
} wgmma_layout;

/* `tiles` independent products D[64,8] = C[64,8] + A[64,k] B[8,k]^T, all in device memory, tile after tile.
   k is a multiple of 32; a and b are aligned to 16 bytes. */
typedef struct wgmma_batch {
    ott_dtype a_format, b_format; /* E4M3 or E5M2 */
    int64_t k, tiles;
    bool split; /* a new accumulator every 128 of k, added up in fp32; else C is the one accumulator */
    wgmma_layout layout;
    const uint8_t *a, *b; /* codes [tiles,64,k], [tiles,8,k] */
    const float *c;       /* [tiles,64,8] */
    float *d;             /* [tiles,64,8] */
} wgmma_batch;

/* Queues the products on the stream. */
cudaError_t wgmma_multiply(const wgmma_batch *batch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
