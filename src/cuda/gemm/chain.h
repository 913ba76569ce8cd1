/* cuda/gemm/chain: sums each column of a matrix from the first row to the last, in CHAIN order
   (tensor/ops.def). A link is the term of row t in the sum of column n: sum[n] = add_link(sum[n], link). A
   block has 32 columns, and one thread per column adds. All threads of the block prefetch the links of the
   next CHAIN_ROWS rows. Each matrix is read once. */
#ifndef CUDA_GEMM_CHAIN_H
#define CUDA_GEMM_CHAIN_H

#include "cuda/view.h"

enum {
    CHAIN_COLUMNS = 32,
    CHAIN_THREADS = 256,
    CHAIN_ROWS = 64,
    CHAIN_OWN = CHAIN_ROWS / (CHAIN_THREADS / CHAIN_COLUMNS)
};

struct chain_link {
    float a, b;
};
struct chain_tile {
    chain_link at[CHAIN_ROWS][CHAIN_COLUMNS];
};

static inline int64_t chain_blocks(int64_t columns) {
    return (columns + CHAIN_COLUMNS - 1) / CHAIN_COLUMNS;
}

/* Loads the links that this thread prefetches, from rows [first, first + CHAIN_ROWS); 0 beyond the matrix. */
template <class R>
__device__ __forceinline__ void fetch_links(chain_link (&own)[CHAIN_OWN], const R &rows, int64_t first,
                                            int64_t count, int64_t n, int64_t columns) {
    int64_t t = first + threadIdx.x / CHAIN_COLUMNS;
#pragma unroll
    for (int i = 0; i < CHAIN_OWN; i++, t += CHAIN_THREADS / CHAIN_COLUMNS) {
        own[i] = {0, 0};
        if (t < count && n < columns) own[i] = link_at(rows, t, n);
    }
}

/* R has the matrices that the links come from. link_at(R, row, column) loads a link, add_link adds it to a
   sum. The block adds a tile of links while it loads the next tile, so one barrier per tile is enough. */
template <class R>
__global__ void __launch_bounds__(CHAIN_THREADS)
    chain_kernel(R rows, int64_t count, int64_t columns, float *sum) {
    SHARED(tiles, chain_tile[2]);
    int lane = threadIdx.x % CHAIN_COLUMNS, group = threadIdx.x / CHAIN_COLUMNS;
    int64_t n = (int64_t)blockIdx.x * CHAIN_COLUMNS + lane;
    bool adds = group == 0 && n < columns;
    float s = adds ? sum[n] : 0;
    chain_link own[CHAIN_OWN];
    fetch_links(own, rows, 0, count, n, columns);
    for (int64_t first = 0; first < count; first += CHAIN_ROWS) {
        chain_tile &tile = tiles[first / CHAIN_ROWS % 2];
#pragma unroll
        for (int i = 0; i < CHAIN_OWN; i++)
            tile.at[group + i * (CHAIN_THREADS / CHAIN_COLUMNS)][lane] = own[i];
        fetch_links(own, rows, first + CHAIN_ROWS, count, n, columns);
        __syncthreads();
        int filled = count - first < CHAIN_ROWS ? (int)(count - first) : (int)CHAIN_ROWS;
#pragma unroll 8
        for (int t = 0; t < filled; t++)
            if (adds) s = add_link(rows, s, tile.at[t][lane]);
    }
    if (adds) sum[n] = s;
}

#endif
