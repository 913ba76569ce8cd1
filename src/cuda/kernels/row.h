/* cuda/kernels/row: a block of ROW_THREADS threads holds a matrix row in registers, and computes the row's
   amax, scale and codes. Thread t holds groups t, t + ROW_THREADS, ... of eight columns. */
#ifndef CUDA_KERNELS_ROW_H
#define CUDA_KERNELS_ROW_H

#include "cuda/kernels/amax.h"
#include "cuda/kernels/codes.h"

/* First column of this thread's k-th group of eight. */
__device__ __forceinline__ int64_t row_column(int k) {
    return k * (int64_t)ROW_PIECE + 8 * (int64_t)threadIdx.x;
}
/* Number of columns in piece k of the row: ROW_PIECE (cuda/view.h), or fewer in the last piece. */
__device__ __forceinline__ int64_t row_filled(int k, int64_t columns) {
    int64_t left = columns - k * (int64_t)ROW_PIECE;
    return left < ROW_PIECE ? left : (int64_t)ROW_PIECE;
}

/* Returns the larger of `most` and the magnitudes of eight columns. Ignores columns beyond the row's end. */
template <ott_dtype D>
__device__ __forceinline__ uint32_t row_raised(uint32_t most, const held<D> &h, int64_t column,
                                               int64_t columns) {
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (column + i < columns) most = larger(most, magnitude(number(h, i)));
    return most;
}

/* The row's amax, from each thread's maximum. All threads of the block get the amax. */
__device__ __forceinline__ float row_amax(uint32_t most) {
    SHARED(of_warp, uint32_t[ROW_THREADS / 32]);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) most = larger(most, __shfl_xor_sync(0xffffffffu, most, step));
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = most;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < ROW_THREADS / 32; w++) most = larger(most, of_warp[w]);
    return amax_of(most);
}

/* For each use: stores the row's amax if each row has a scale, else updates the tensor's amax with it. */
__device__ __forceinline__ void settle_row(const quantize_uses &uses, int64_t row, float amax) {
    for (int i = 0; i < uses.count && threadIdx.x == 0; i++) {
        const quantize_use &u = uses.use[i];
        if (!(u.work & QUANTIZE_AMAX)) continue;
        if (u.row_shift == QUANTIZE_SPAN_ALL)
            raise_amax(u.amax, amax);
        else
            u.amax[row * u.row_step] = amax;
    }
}

/* Stores the row's scale and codes for a use with one scale per row. */
template <ott_dtype D, int N>
__device__ __forceinline__ void cast_row(const held<D> (&own)[N], const quantize_use &u, int64_t row,
                                         int64_t columns, float amax) {
    int64_t group = row * u.row_step;
    float scale = scale_of(u, group, amax);
    uint8_t *to = u.codes[0].data + row * u.codes[0].ld;
    if (threadIdx.x == 0) store_scale(u, row, 0, scale);
#pragma unroll
    for (int k = 0; k < N; k++) {
        int64_t column = row_column(k), count = columns - column;
        if (count <= 0) continue;
        eight scaled = widened(own[k]);
#pragma unroll
        for (int i = 0; i < 8; i++) scaled.x[i] = scaled.x[i] * scale;
        store_codes8(to + column, codes8(scaled, u.format, u.mode), count,
                     count >= 8 && (uintptr_t)to % 8 == 0);
    }
}

/* Does the quantization work of all quantize_uses (cuda/kernels/quantize.h) for the row
   (QUANTIZE_BY_ROWS). */
template <ott_dtype D, int N>
__device__ __forceinline__ void quantize_row(const held<D> (&own)[N], const quantize_uses &uses, int64_t row,
                                             int64_t columns) {
    if (uses.count == 0) return;
    uint32_t most = 0;
#pragma unroll
    for (int k = 0; k < N; k++) most = row_raised<D>(most, own[k], row_column(k), columns);
    float amax = row_amax(most);
    settle_row(uses, row, amax);
    for (int i = 0; i < uses.count; i++)
        if (uses.use[i].work & QUANTIZE_CAST) cast_row<D>(own, uses.use[i], row, columns, amax);
}

#endif
