/* bench/gpu/wgmma: FP8 products with the tensor cores' own instruction, wgmma.mma_async m64n8k32 with fp32
   accumulators (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"), without a library. */
#ifndef WGMMA_H
#define WGMMA_H

#include "ottava/types.h"
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One instruction multiplies [64,32] by [8,32]^T. */
enum { WGMMA_ROWS = 64, WGMMA_COLUMNS = 8, WGMMA_PRODUCTS = 32, WGMMA_PROMOTION = 128 };

/* Two distances between core matrices, in bytes: the leading offset and the stride offset of a shared-memory
   descriptor. tensor_core.c tries which is the distance along the contraction, and which along rows. */
typedef struct wgmma_layout {
    uint32_t leading, stride;
} wgmma_layout;

/* `tiles` independent products D[64,8] = C[64,8] + A[64,k] B[8,k]^T, in device memory. k is a multiple of 32.
   a and b are aligned to 16 bytes. */
typedef struct wgmma_batch {
    ott_dtype a_format, b_format; /* E4M3 or E5M2 */
    int64_t k, tiles;
    /* true: every 128 products are summed from 0, then added to C in fp32; false: products are added to C */
    bool split;
    wgmma_layout layout;
    const uint8_t *a, *b; /* codes: a [tiles,64,k], b [tiles,8,k] */
    const float *c;       /* initial accumulators [tiles,64,8] */
    float *d;             /* results [tiles,64,8] */
} wgmma_batch;

/* Queues the products on the stream. */
cudaError_t wgmma_multiply(const wgmma_batch *batch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
