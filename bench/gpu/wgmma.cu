/* bench/gpu/wgmma: implements wgmma.h. A block of four warps multiplies one tile. Operands are copied to
   shared memory. Where tests/cuda emulates the GPU on a CPU, the model of fp8/tensorcore computes the results
   of an instruction, and finds its operands through the same descriptors. */
#include "wgmma.h"
#include "cuda/launch.h"
#ifndef __CUDACC__
#include <math.h>
#include <string.h>
extern "C" {
#include "fp8/tensorcore.h"
}
#endif

/* How operands are stored in shared memory, without swizzle: in core matrices of 8 rows x 16 bytes, without
   gaps. Each group of 8 rows has two core matrices, one for each 16 bytes of a row. */
enum { THREADS = 128, CORE_BYTES = 128, GROUP_BYTES = 2 * CORE_BYTES, CHUNK = 16, OUTPUTS = 4 };
/* B has one group of rows. Memory for two is allocated, because a wrong layout makes wgmma read a second. */
enum { A_BYTES = WGMMA_ROWS / 8 * GROUP_BYTES, B_BYTES = 2 * GROUP_BYTES };

/* ---- descriptors ---- */

/* The operands that a block multiplies, in shared memory. */
struct staged_tiles {
    uint8_t a[A_BYTES], b[B_BYTES];
};

#ifdef __CUDACC__
__device__ __forceinline__ uint32_t shared_address(const staged_tiles &, const uint8_t *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}
#else
static uint32_t shared_address(const staged_tiles &tiles, const uint8_t *p) {
    return (uint32_t)(p - tiles.a);
}
#endif

/* Returns the descriptor that passes an operand in shared memory to wgmma. It has three fields of 14 bits, in
   units of 16 bytes: the address from bit 0, the leading offset from bit 16, the stride offset from bit 32.
   The swizzle mode (bits 62 and 63) and the base offset are 0. */
__device__ uint64_t descriptor(const staged_tiles &tiles, const uint8_t *operand, wgmma_layout layout) {
    return (uint64_t)(shared_address(tiles, operand) >> 4 & 0x3fff) |
           (uint64_t)(layout.leading >> 4 & 0x3fff) << 16 | (uint64_t)(layout.stride >> 4 & 0x3fff) << 32;
}

/* Row of D in which this thread has output i (of 4). */
__device__ int output_row(int i) {
    return (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4 + i / 2 * 8;
}
__device__ int output_column(int i) {
    return (int)threadIdx.x % 4 * 2 + i % 2;
}

/* ---- one instruction ---- */

#ifdef __CUDACC__

/* Adds A B^T to d, and waits until d is complete. The predicate `accumulate` makes wgmma add to d. The last
   two operands, 1 and 1, keep the signs of A and B. */
#define MULTIPLY(formats)                                                                                    \
    asm volatile("{ .reg .pred accumulate; setp.ne.b32 accumulate, 1, 0;\n"                                  \
                 "wgmma.fence.sync.aligned;\n"                                                               \
                 "wgmma.mma_async.sync.aligned.m64n8k32.f32." formats                                        \
                 " {%0,%1,%2,%3}, %4, %5, accumulate, 1, 1;\n"                                               \
                 "wgmma.commit_group.sync.aligned;\n"                                                        \
                 "wgmma.wait_group.sync.aligned 0; }\n"                                                      \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                            \
                 : "l"(a), "l"(b)                                                                            \
                 : "memory")

__device__ __forceinline__ void multiply(const wgmma_batch &batch, float (&d)[OUTPUTS],
                                         const staged_tiles &tiles) {
    uint64_t a = descriptor(tiles, tiles.a, batch.layout), b = descriptor(tiles, tiles.b, batch.layout);
    bool a_e4m3 = batch.a_format == OTT_E4M3, b_e4m3 = batch.b_format == OTT_E4M3;
    if (a_e4m3 && b_e4m3)
        MULTIPLY("e4m3.e4m3");
    else if (a_e4m3)
        MULTIPLY("e4m3.e5m2");
    else if (b_e4m3)
        MULTIPLY("e5m2.e4m3");
    else
        MULTIPLY("e5m2.e5m2");
}

/* Makes the stored operands visible to the tensor cores, which read shared memory through another proxy. */
__device__ __forceinline__ void publish_shared() {
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
}

#else

static void gather_row(uint8_t *codes, const staged_tiles &tiles, uint64_t descriptor, int row) {
    const uint8_t *shared = tiles.a;
    uint32_t start = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4,
             stride = (descriptor >> 32 & 0x3fff) << 4;
    for (int k = 0; k < WGMMA_PRODUCTS; k++)
        codes[k] = shared[start + row / 8 * stride + k / CHUNK * leading + row % 8 * CHUNK + k % CHUNK];
}

static void multiply(const wgmma_batch &batch, float (&d)[OUTPUTS], const staged_tiles &tiles) {
    uint64_t a = descriptor(tiles, tiles.a, batch.layout), b = descriptor(tiles, tiles.b, batch.layout);
    for (int i = 0; i < OUTPUTS; i++) {
        uint8_t row[WGMMA_PRODUCTS], column[WGMMA_PRODUCTS];
        gather_row(row, tiles, a, output_row(i));
        gather_row(column, tiles, b, output_column(i));
        d[i] = tensorcore_fp8_step(row, batch.a_format, column, batch.b_format, WGMMA_PRODUCTS, d[i]);
    }
}

static void publish_shared() {
    __syncthreads();
}

#endif

/* ---- one tile ---- */

/* Copies columns [from, from + 32) of `rows` rows from codes [rows,k] to shared memory. */
__device__ void stage(uint8_t *shared, const uint8_t *codes, int rows, int64_t k, int64_t from) {
    int row = (int)threadIdx.x / 2, chunk = (int)threadIdx.x % 2;
    if (row >= rows) return;
    uint8_t *to = shared + row / 8 * GROUP_BYTES + chunk * CORE_BYTES + row % 8 * CHUNK;
    *(uint4 *)to = *(const uint4 *)(codes + row * k + from + chunk * CHUNK);
}

__global__ void __launch_bounds__(THREADS) multiply_kernel(wgmma_batch batch) {
    SHARED(tiles, staged_tiles);
    int64_t tile = blockIdx.x, k = batch.k;
    float d[OUTPUTS], sum[OUTPUTS];
    for (int i = 0; i < OUTPUTS; i++) {
        int64_t at = (tile * WGMMA_ROWS + output_row(i)) * WGMMA_COLUMNS + output_column(i);
        sum[i] = batch.c[at];
        d[i] = batch.split ? 0.0f : sum[i];
    }
    for (int64_t from = 0; from < k; from += WGMMA_PRODUCTS) {
        stage(tiles.a, batch.a + tile * WGMMA_ROWS * k, WGMMA_ROWS, k, from);
        stage(tiles.b, batch.b + tile * WGMMA_COLUMNS * k, WGMMA_COLUMNS, k, from);
        publish_shared();
        multiply(batch, d, tiles);
        __syncthreads();
        int64_t done = from + WGMMA_PRODUCTS;
        if (!batch.split || (done % WGMMA_PROMOTION != 0 && done < k)) continue;
        for (int i = 0; i < OUTPUTS; i++) {
            sum[i] += d[i];
            d[i] = 0.0f;
        }
    }
    for (int i = 0; i < OUTPUTS; i++) {
        int64_t at = (tile * WGMMA_ROWS + output_row(i)) * WGMMA_COLUMNS + output_column(i);
        batch.d[at] = batch.split ? sum[i] : d[i];
    }
}

extern "C" cudaError_t wgmma_multiply(const wgmma_batch *batch, cudaStream_t stream) {
    wgmma_batch copy = *batch;
    LAUNCH(multiply_kernel, (unsigned)batch->tiles, THREADS, stream, copy);
    return cudaGetLastError();
}
