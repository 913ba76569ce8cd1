/*
 * cuda/chain: CHAIN down the rows of a matrix, for each column: sum[n] = s after s = sum[n], then s = add(s, row t's link)
 * for t ascending. The order is one of 32 threads for 32 columns; what it adds is fetched by all threads of the block,
 * CHAIN_ROWS rows ahead of it, so that it waits for memory once in that many rows. Bytes moved: the matrices once, 32
 * columns of a row in each load.
 */
#ifndef CUDA_CHAIN_H
#define CUDA_CHAIN_H

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

/* This thread's links of the tile that begins at row `first`; beyond the end whatever. */
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

/* link_at and add_link of R make a row's link and add it. Two tiles take turns: one barrier parts a tile's filling from its use, and the use
   of a tile lies before the next barrier, its next filling behind it. */
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
