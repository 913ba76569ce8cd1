/* cuda/kernels/copy: copies many pieces of device memory in one launch. A block copies COPY_BYTES bytes of a
   piece, 16 bytes per load if both addresses are aligned. */
#include "cuda/kernels/kernels.h"
#include "cuda/list.h"
#include "tensor/device.h"

enum {
    COPY_THREADS = 256,
    COPY_WIDTH = 16,
    COPY_LOADS = 4, /* of each thread */
    COPY_STRIDE = COPY_THREADS * COPY_WIDTH,
    COPY_BYTES = COPY_LOADS * COPY_STRIDE
};

struct copy_job {
    char *to;
    const char *from;
    int64_t bytes;
    bool vectors; /* both addresses are multiples of COPY_WIDTH */
};

__device__ __forceinline__ void copy_bytes(const copy_job &j, int64_t at) {
    for (int64_t i = at; i < at + COPY_WIDTH && i < j.bytes; i++) j.to[i] = j.from[i];
}

__global__ void __launch_bounds__(COPY_THREADS) copy_kernel(GRID_CONSTANT(job_list<copy_job>) list) {
    list_place place = list_place_of(list);
    const copy_job &j = list.job[place.job];
    int64_t first = place.block * COPY_BYTES + threadIdx.x * COPY_WIDTH;
    if (!j.vectors || first + COPY_BYTES - COPY_STRIDE + COPY_WIDTH > j.bytes) {
        for (int i = 0; i < COPY_LOADS; i++) copy_bytes(j, first + i * COPY_STRIDE);
        return;
    }
    uint4 loaded[COPY_LOADS];
#pragma unroll
    for (int i = 0; i < COPY_LOADS; i++) loaded[i] = *(const uint4 *)(j.from + first + i * COPY_STRIDE);
#pragma unroll
    for (int i = 0; i < COPY_LOADS; i++) *(uint4 *)(j.to + first + i * COPY_STRIDE) = loaded[i];
}

static int64_t fill_copy(const device_piece &piece, copy_job &j) {
    bool aligned = ((uintptr_t)piece.to | (uintptr_t)piece.from) % COPY_WIDTH == 0;
    j = {(char *)piece.to, (const char *)piece.from, piece.bytes, aligned};
    return (piece.bytes + COPY_BYTES - 1) / COPY_BYTES;
}

extern "C" cudaError_t copy_launch(const device_piece *pieces, int64_t count, cudaStream_t stream) {
    return list_launch<copy_kernel>(COPY_THREADS, fill_copy, pieces, count, stream);
}
