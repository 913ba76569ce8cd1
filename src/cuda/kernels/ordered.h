/* cuda/kernels/ordered: iterates over a matrix's elements in row-major order, and adds numbers in order in
   double. */
#ifndef CUDA_KERNELS_ORDERED_H
#define CUDA_KERNELS_ORDERED_H

#include "cuda/view.h"

struct element_walk {
    int64_t row, column;
};

__device__ __forceinline__ element_walk element_walk_from(int64_t element, int64_t columns) {
    int64_t row = element / columns;
    return {row, element - row * columns};
}
__device__ __forceinline__ void element_walk_on(element_walk &at, int64_t elements, int64_t columns) {
    at.column += elements;
    while (at.column >= columns) {
        at.column -= columns;
        at.row++;
    }
}

/* ordered_sum returns x[0] + x[step] + ..., added in order, to thread 0 only. All ORDERED_THREADS threads of
   the block load x, and thread 0 adds. */
enum { ORDERED_THREADS = 256, ORDERED_OWN = 8, ORDERED_TILE = ORDERED_THREADS * ORDERED_OWN };

struct ordered_tile {
    float of[ORDERED_TILE];
};

__device__ __forceinline__ double ordered_sum(const float *x, int64_t step, int64_t count) {
    SHARED(tiles, ordered_tile[2]);
    double total = 0;
    int turn = 0;
    for (int64_t first = 0; first < count; first += ORDERED_TILE, turn ^= 1) {
        ordered_tile &tile = tiles[turn];
#pragma unroll
        for (int i = threadIdx.x; i < ORDERED_TILE; i += ORDERED_THREADS)
            if (first + i < count) tile.of[i] = x[(first + i) * step];
        __syncthreads();
        int filled = count - first < ORDERED_TILE ? (int)(count - first) : (int)ORDERED_TILE;
        if (threadIdx.x == 0)
#pragma unroll 8
            for (int i = 0; i < filled; i++) total += (double)tile.of[i];
    }
    return total;
}

#endif
