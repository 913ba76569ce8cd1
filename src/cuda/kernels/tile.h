/* cuda/kernels/tile: finds amaxes, scales and codes of a tensor in memory, or of a tensor that the kernel
   produces. A thread block has a tile of 128 x 128 elements in registers. If a scale group spans several
   tiles, its amax is raised with atomicMax, so the order of the tiles does not matter. */
#ifndef CUDA_KERNELS_TILE_H
#define CUDA_KERNELS_TILE_H

#include "cuda/kernels/amax.h"
#include "cuda/kernels/codes.h"
#include "cuda/list.h"

enum { TILE = 128, TILE_SHIFT = 7, TILE_THREADS = 256, OWN_ROWS = 8, TILE_WARPS = TILE_THREADS / 32 };

/* A thread has rows [row, row + 8) and columns [column, column + 8) of the tile; 16 threads have eight full
   rows. So they load 256 contiguous bytes of each bf16 row, and store 128 contiguous codes. */
struct tile_place {
    int first_row, first_column; /* the tile's first element in the tensor; int takes fewer registers */
    int row, column;             /* this thread's first element in the tile */
};

/* Returns this thread's place in tile number `block` of the tensor. Default: the calling block's index. */
__device__ __forceinline__ tile_place tile_place_of(int64_t block, int64_t columns) {
    unsigned across = (unsigned)((columns + TILE - 1) / TILE), b = (unsigned)block;
    return {(int)(b / across) * TILE, (int)(b % across) * TILE, (int)threadIdx.x / 16 * 8,
            (int)threadIdx.x % 16 * 8};
}
__device__ __forceinline__ tile_place tile_place_of(int64_t columns) {
    return tile_place_of(blockIdx.x, columns);
}

static inline int64_t tile_blocks(int64_t rows, int64_t columns) {
    return ((rows + TILE - 1) / TILE) * ((columns + TILE - 1) / TILE);
}

/* ---- amax ---- */

/* Partial maxima of a tile: of 32 columns of a row, of 16 rows of a column, and of all elements of a warp.
   The amax of any group is a maximum of these. */
struct tile_largest {
    uint32_t row[TILE][TILE / 32], column[TILE_WARPS][TILE], warp[TILE_WARPS];
};

/* Computes `largest`. One thread writes each maximum. All maxima are valid after the next barrier. */
template <ott_dtype D>
__device__ __forceinline__ void find_largest(tile_largest &largest, const held<D> (&own)[OWN_ROWS],
                                             const tile_place &p) {
    const unsigned all = 0xffffffffu;
    uint32_t of_column[8] = {}, of_thread = 0;
#pragma unroll
    for (int k = 0; k < OWN_ROWS; k++) {
        uint32_t of_row = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            of_row = larger(of_row, magnitude(number(own[k], i)));
            of_column[i] = larger(of_column[i], magnitude(number(own[k], i)));
        }
        of_thread = larger(of_thread, of_row);
        of_row = larger(of_row, __shfl_xor_sync(all, of_row, 1));
        of_row = larger(of_row, __shfl_xor_sync(all, of_row, 2));
        if (threadIdx.x % 4 == 0) largest.row[p.row + k][p.column / 32] = of_row;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint32_t most = larger(of_column[i], __shfl_xor_sync(all, of_column[i], 16));
        if (threadIdx.x % 32 < 16) largest.column[threadIdx.x / 32][p.column + i] = most;
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        of_thread = larger(of_thread, __shfl_xor_sync(all, of_thread, step));
    if (threadIdx.x % 32 == 0) largest.warp[threadIdx.x / 32] = of_thread;
}

/* Returns the amax of the part of a scale group that is in the tile. It has 2^row_shift rows from `row` on
   and 2^column_shift columns from `column` on: it is in one row or one column, or is the full tile. */
__device__ __forceinline__ float largest_of_group(const tile_largest &largest, int row, int column,
                                                  int row_shift, int column_shift) {
    uint32_t most = 0;
    if (row_shift == 0)
        for (int i = 0; i < 1 << (column_shift - 5); i++)
            most = larger(most, largest.row[row][column / 32 + i]);
    else if (column_shift == 0)
        for (int i = 0; i < 1 << (row_shift - 4); i++)
            most = larger(most, largest.column[row / 16 + i][column]);
    else
        for (int i = 0; i < TILE_WARPS; i++) most = larger(most, largest.warp[i]);
    return amax_of(most);
}

/* ---- scales ---- */

/* log2 of the number of rows (or columns) of a group that are inside the tile. */
__device__ __forceinline__ int tile_shift(int shift) {
    return shift < TILE_SHIFT ? shift : TILE_SHIFT;
}

/* Scales of the scale groups in a tile, in row-major order of the groups. */
struct tile_scales {
    float of[TILE * TILE / 32];
};

/* Finds the amax of one group, and returns the group's scale. If a group spans several tiles, only the first
   tile stores the scale. The other tiles recompute it, so that no tile waits for another. */
__device__ __forceinline__ float settle_group(const quantize_use &u, const tile_largest &largest,
                                              const tile_place &p, int row, int column) {
    int64_t in_row = p.first_row + row, in_column = p.first_column + column;
    int64_t group = quantize_group(u, in_row, in_column);
    bool local = u.row_shift != QUANTIZE_SPAN_ALL && u.column_shift != QUANTIZE_SPAN_ALL;
    float amax = 0;
    if (u.work & QUANTIZE_AMAX) {
        amax = largest_of_group(largest, row, column, tile_shift(u.row_shift), tile_shift(u.column_shift));
        if (local)
            u.amax[group] = amax;
        else
            raise_amax(u.amax + group, amax);
    }
    if (!(u.work & (QUANTIZE_SCALE | QUANTIZE_CAST))) return 0;
    if (!local && !u.delayed) amax = u.amax[group];
    float scale = scale_of(u, group, amax);
    bool first = (u.row_shift != QUANTIZE_SPAN_ALL || p.first_row == 0) &&
                 (u.column_shift != QUANTIZE_SPAN_ALL || p.first_column == 0);
    if (first && u.work & QUANTIZE_SCALE)
        store_scale(u, in_row >> u.row_shift, in_column >> u.column_shift, scale);
    return scale;
}

/* Settles the groups of a tile. The E8M0 scales of a tile of elements are one tile of scales. Also fills the
   padding of that tile. */
__device__ __forceinline__ void settle_use(tile_scales &scales, const quantize_use &u,
                                           const tile_largest &largest, const tile_place &p, int64_t rows,
                                           int64_t columns) {
    int row_shift = tile_shift(u.row_shift), column_shift = tile_shift(u.column_shift),
        across = TILE >> column_shift;
    for (int i = threadIdx.x; i < (TILE >> row_shift) * across; i += TILE_THREADS) {
        int row = i / across << row_shift, column = i % across << column_shift;
        int64_t in_row = p.first_row + row, in_column = p.first_column + column;
        if (in_row < rows && in_column < columns)
            scales.of[i] = settle_group(u, largest, p, row, column);
        else if (u.tiles.along_k && u.work & QUANTIZE_SCALE)
            *scale_code_at(u, in_row >> u.row_shift, in_column >> u.column_shift) = SCALE_TILE_PADDING;
    }
}

/* ---- codes ---- */

/* Scales of eight adjacent elements in a row of the tile. */
__device__ __forceinline__ eight scales_at(const tile_scales &scales, const quantize_use &u, int row,
                                           int column) {
    int row_shift = tile_shift(u.row_shift), column_shift = tile_shift(u.column_shift);
    const float *from = scales.of + (row >> row_shift) * (TILE >> column_shift) + (column >> column_shift);
    eight s;
#pragma unroll
    for (int i = 0; i < 8; i++) s.x[i] = from[column_shift == 0 ? i : 0];
    return s;
}

/* Codes of the elements that a thread holds. */
struct own_codes {
    uint2 row[OWN_ROWS];
};

template <ott_dtype D>
__device__ __forceinline__ own_codes cast_tile(const held<D> (&own)[OWN_ROWS], const tile_scales &scales,
                                               const quantize_use &u, const tile_place &p) {
    own_codes codes;
    eight s = scales_at(scales, u, p.row, p.column);
#pragma unroll
    for (int k = 0; k < OWN_ROWS; k++) {
        if (u.row_shift == 0) s = scales_at(scales, u, p.row + k, p.column);
        eight scaled;
#pragma unroll
        for (int i = 0; i < 8; i++) scaled.x[i] = number(own[k], i) * s.x[i];
        codes.row[k] = codes8(scaled, u.format, u.mode);
    }
    return codes;
}

__device__ __forceinline__ void store_rows(const quantize_codes &to, const own_codes &codes,
                                           const tile_place &p, int64_t rows, int64_t columns) {
    int64_t row = p.first_row + p.row, column = p.first_column + p.column, count = columns - column;
    bool vectorized = count >= 8 && ((uintptr_t)to.data | (uintptr_t)to.ld) % 8 == 0;
#pragma unroll
    for (int k = 0; k < OWN_ROWS; k++)
        if (row + k < rows)
            store_codes8(to.data + (row + k) * to.ld + column, codes.row[k], count, vectorized);
}

/* The codes of a tile, transposed. A unit has the codes of eight rows of one column. Unit u of column c is
   unit[c][u ^ (c / 8)]: no bank conflicts if 16 threads store every eighth column or load one column. */
struct transposed_tile {
    uint2 unit[TILE][TILE / 8];
};

__device__ __forceinline__ void keep_transposed(transposed_tile &tile, const own_codes &codes,
                                                const tile_place &p) {
    const uint2(&r)[OWN_ROWS] = codes.row;
    uint32_t top[8], bottom[8]; /* codes of rows 0 to 3 and of rows 4 to 7 of each column */
    transpose4({r[0].x, r[1].x, r[2].x, r[3].x}, top);
    transpose4({r[0].y, r[1].y, r[2].y, r[3].y}, top + 4);
    transpose4({r[4].x, r[5].x, r[6].x, r[7].x}, bottom);
    transpose4({r[4].y, r[5].y, r[6].y, r[7].y}, bottom + 4);
#pragma unroll
    for (int i = 0; i < 8; i++)
        tile.unit[p.column + i][p.row / 8 ^ p.column / 8] = make_uint2(top[i], bottom[i]);
}

/* Stores the codes of each column. 16 threads store one column. */
__device__ __forceinline__ void store_transposed(const quantize_codes &to, const transposed_tile &tile,
                                                 const tile_place &p, int64_t rows, int64_t columns) {
    int unit = threadIdx.x % 16;
    int64_t row = p.first_row + unit * 8, count = rows - row;
    bool vectorized = count >= 8 && ((uintptr_t)to.data | (uintptr_t)to.ld) % 8 == 0;
    for (int c = threadIdx.x / 16; c < TILE && p.first_column + c < columns; c += TILE_THREADS / 16)
        if (count > 0)
            store_codes8(to.data + (p.first_column + c) * to.ld + row, tile.unit[c][unit ^ c / 8], count,
                         vectorized);
}

/* Transposed codes pass through `tile`. Before `tile` is written or read, all threads wait at a barrier. */
__device__ __forceinline__ void store_copies(const quantize_use &u, const own_codes &codes,
                                             const tile_place &p, int64_t rows, int64_t columns) {
    SHARED(tile, transposed_tile);
    for (int i = 0; i < u.copies; i++) {
        if (!u.codes[i].transposed) {
            store_rows(u.codes[i], codes, p, rows, columns);
            continue;
        }
        __syncthreads();
        keep_transposed(tile, codes, p);
        __syncthreads();
        store_transposed(u.codes[i], tile, p, rows, columns);
    }
}

/* ---- a pass ---- */

/* Does the quantization work of all quantize_uses (cuda/kernels/quantize.h) on the tile. */
template <ott_dtype D>
__device__ __forceinline__ void quantize_tile(const held<D> (&own)[OWN_ROWS], const quantize_uses &uses,
                                              const tile_place &p, int64_t rows, int64_t columns) {
    SHARED(largest, tile_largest);
    SHARED(scales, tile_scales[2]);
    bool finds = false;
    for (int i = 0; i < uses.count; i++) finds = finds || uses.use[i].work & QUANTIZE_AMAX;
    if (finds) find_largest(largest, own, p);
    __syncthreads();
    for (int i = 0; i < uses.count; i++) settle_use(scales[i], uses.use[i], largest, p, rows, columns);
    __syncthreads();
    for (int i = 0; i < uses.count; i++) {
        const quantize_use &u = uses.use[i];
        if (u.work & QUANTIZE_CAST) store_copies(u, cast_tile(own, scales[i], u, p), p, rows, columns);
    }
}

/* Loads a tile of x and does the quantization work of all quantize_uses (cuda/kernels/quantize.h) for it. */
template <ott_dtype D>
__device__ __forceinline__ void quantize_loaded(const view &x, const quantize_uses &uses,
                                                const tile_place &p) {
    int64_t row = p.first_row + p.row, column = p.first_column + p.column;
    int64_t left = column < x.columns ? x.rows - row : 0;
    held<D> own[OWN_ROWS] = {};
#pragma unroll
    for (int k = 0; k < OWN_ROWS; k++)
        if (k < left) own[k] = hold8<D>(x, row + k, column, x.columns);
    quantize_tile(own, uses, p, x.rows, x.columns);
}

/* Quantizes tensors in memory. */
struct pass_job {
    view x;
    quantize_uses uses;
};
template <ott_dtype D>
__global__ void __launch_bounds__(TILE_THREADS, D == OTT_F32 ? 1 : 2)
    pass_kernel(GRID_CONSTANT(job_list<pass_job>) list) {
    list_place place = list_place_of(list);
    const pass_job &j = list.job[place.job];
    quantize_loaded<D>(j.x, j.uses, tile_place_of(place.block, j.x.columns));
}

/* A source S computes S::outputs tensors in format S::dtype. source.made[i] is the memory of tensor i, and
   source.uses[i] its quantized copies. hold_inputs(source, row, column) loads what eight neighbouring
   elements need, and make_eight(source, inputs, made) computes the elements of each tensor. A thread stores
   only the elements whose inputs it has loaded, so outputs may alias inputs. */
template <class S> using made_rows = held<S::dtype>[S::rows_at_once][S::outputs];

/* Makes and stores eight elements in each of `left` rows, at most S::rows_at_once. All rows are loaded before
   the first is stored, so that the thread waits for memory less often. */
template <class S>
__device__ __forceinline__ void make_rows(const S &source, int64_t row, int64_t column, int64_t left,
                                          made_rows<S> &made) {
    typename S::inputs in[S::rows_at_once];
#pragma unroll
    for (int k = 0; k < S::rows_at_once; k++)
        if (k < left) in[k] = hold_inputs(source, row + k, column);
#pragma unroll
    for (int k = 0; k < S::rows_at_once; k++) {
        if (k >= left) continue;
        make_eight(source, in[k], made[k]);
#pragma unroll
        for (int i = 0; i < S::outputs; i++)
            store8<S::dtype>(source.made[i], row + k, column, source.columns, made[k][i]);
    }
}

/* One output stays in registers until it is quantized. Registers are too scarce for two outputs: the thread
   rereads its elements from the cache. */
template <class S>
__global__ void __launch_bounds__(TILE_THREADS, S::dtype == OTT_F32 ? 1 : 2)
    tile_kernel(GRID_CONSTANT(S) source) {
    tile_place p = tile_place_of(source.columns);
    int64_t row = p.first_row + p.row, column = p.first_column + p.column;
    int64_t left = column < source.columns ? source.rows - row : 0;
    if constexpr (S::outputs == 1) {
        held<S::dtype> own[OWN_ROWS] = {};
#pragma unroll
        for (int first = 0; first < OWN_ROWS; first += S::rows_at_once) {
            made_rows<S> made;
            make_rows(source, row + first, column, left - first, made);
#pragma unroll
            for (int k = 0; k < S::rows_at_once; k++)
                if (first + k < left) own[first + k] = made[k][0];
        }
        p = tile_place_of(block_again(), source.columns);
        quantize_tile(own, source.uses[0], p, source.rows, source.columns);
    } else {
#pragma unroll 1
        for (int first = 0; first < OWN_ROWS; first += S::rows_at_once) {
            made_rows<S> made;
            make_rows(source, row + first, column, left - first, made);
        }
        for (int i = 0; i < S::outputs; i++) quantize_loaded<S::dtype>(source.made[i], source.uses[i], p);
    }
}

#endif
