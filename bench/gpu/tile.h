/*
 * bench/gpu/tile: a tile of 128 x 128 elements, worked on by a block, its codes stored by rows and, through
 * shared memory, transposed.
 *
 * Thread t has two quads of 4 rows x 8 columns: columns 8 (t % 16), rows 4 (t / 16) and 64 below. A row of
 * loads is 256 bytes long, one of codes 128 bytes, in both orientations.
 */
#ifndef TILE_H
#define TILE_H

#include "vector8.h"

enum { TILE = 128, TILE_THREADS = 256, QUADS = 2, QUAD_ROWS = 4 };

template <class V> struct quad { V row[QUAD_ROWS]; };
struct quad_codes {
    uint2 row[QUAD_ROWS];
};

/* Where quad s of this thread begins, in the tile and in the matrix. */
__device__ __forceinline__ int tile_row(int s) {
    return s * (TILE / QUADS) + threadIdx.x / 16 * QUAD_ROWS;
}
__device__ __forceinline__ int tile_column() {
    return threadIdx.x % 16 * 8;
}
__device__ __forceinline__ int64_t quad_row(int s) {
    return (int64_t)blockIdx.y * TILE + tile_row(s);
}
__device__ __forceinline__ int64_t quad_column() {
    return (int64_t)blockIdx.x * TILE + tile_column();
}
/* Whether quad s lies in the matrix, whose rows and columns are multiples of 16: it does wholly or not at
 * all. */
__device__ __forceinline__ bool quad_exists(int s, int64_t rows, int64_t columns) {
    return quad_row(s) < rows && quad_column() < columns;
}

/* The quad that begins at element `at` of x; rows are ld elements apart. */
template <class V>
__device__ __forceinline__ void load_quad(quad<V> &v, const void *x, int64_t at, int64_t ld) {
#pragma unroll
    for (int k = 0; k < QUAD_ROWS; k++) load8(v.row[k], x, at + k * ld);
}

/* This thread's quads of x [R,C]; zero where there are none. */
template <class V>
__device__ __forceinline__ void load_tile(quad<V> (&v)[QUADS], const void *x, int64_t rows, int64_t columns) {
#pragma unroll
    for (int s = 0; s < QUADS; s++) {
        v[s] = {};
        if (quad_exists(s, rows, columns)) load_quad(v[s], x, quad_row(s) * columns + quad_column(), columns);
    }
}

template <class V> __device__ __forceinline__ uint32_t raised(uint32_t most, const quad<V> &v) {
#pragma unroll
    for (int k = 0; k < QUAD_ROWS; k++) most = raised(most, v.row[k]);
    return most;
}

/* S: a scale, or one for each of the eight columns. */
template <fp8_kind F, class V, class S>
__device__ __forceinline__ quad_codes quad_cast(const quad<V> &v, const S &scale) {
    quad_codes codes;
#pragma unroll
    for (int k = 0; k < QUAD_ROWS; k++) codes.row[k] = codes8<F>(v.row[k], scale);
    return codes;
}

__device__ __forceinline__ void store_quad(uint8_t *q, int64_t at, int64_t ld, const quad_codes &codes) {
#pragma unroll
    for (int k = 0; k < QUAD_ROWS; k++) store_codes8(q, at + k * ld, codes.row[k]);
}

/* ---- transposed ---- */

/* The transposed tile: TILE columns of 8 units of 16 codes. Unit u of a column lies at u ^ (column / 8), so
   that loads meet in no bank, and stores, 16 threads that are 8 columns apart, in pairs. */
struct transposed_tile {
    uint4 unit[TILE][TILE / 16];
};

__device__ __forceinline__ int unit_place(int column, int unit) {
    return unit ^ (column / 8 & 7);
}

/* Bytes of four rows, one in each word, to words of four columns. */
__device__ __forceinline__ void transpose4(const uint32_t (&row)[4], uint32_t *column) {
    uint32_t a = __byte_perm(row[0], row[1], 0x5140), b = __byte_perm(row[2], row[3], 0x5140);
    uint32_t c = __byte_perm(row[0], row[1], 0x7362), d = __byte_perm(row[2], row[3], 0x7362);
    column[0] = __byte_perm(a, b, 0x5410);
    column[1] = __byte_perm(a, b, 0x7632);
    column[2] = __byte_perm(c, d, 0x5410);
    column[3] = __byte_perm(c, d, 0x7632);
}

/* Quad s of this thread. */
__device__ __forceinline__ void keep_quad(transposed_tile &tile, int s, const quad_codes &codes) {
    uint32_t column[8];
    const uint2(&r)[QUAD_ROWS] = codes.row;
    transpose4({r[0].x, r[1].x, r[2].x, r[3].x}, column);
    transpose4({r[0].y, r[1].y, r[2].y, r[3].y}, column + 4);
#pragma unroll
    for (int c = 0; c < 8; c++) {
        uint4 *unit = &tile.unit[tile_column() + c][unit_place(tile_column() + c, tile_row(s) / 16)];
        ((uint32_t *)unit)[tile_row(s) / 4 % 4] = column[c];
    }
}

/* The block's tile to qt [C,R], after a barrier. */
__device__ __forceinline__ void store_transposed(uint8_t *qt, int64_t rows, int64_t columns,
                                                 const transposed_tile &tile) {
    int unit = threadIdx.x % 8;
    int64_t row = (int64_t)blockIdx.y * TILE + unit * 16;
#pragma unroll
    for (int c = threadIdx.x / 8; c < TILE; c += TILE_THREADS / 8) {
        int64_t column = (int64_t)blockIdx.x * TILE + c;
        if (row < rows && column < columns)
            ((uint4 *)qt)[(column * rows + row) / 16] = tile.unit[c][unit_place(c, unit)];
    }
}

static inline bool takes_tiles(const elementwise_args *a) {
    return a->rows % 16 == 0 && a->columns % 16 == 0 && a->rows > 0 && a->columns > 0;
}
static inline dim3 tile_grid(const elementwise_args *a) {
    return dim3((unsigned)((a->columns + TILE - 1) / TILE), (unsigned)((a->rows + TILE - 1) / TILE));
}

#endif
