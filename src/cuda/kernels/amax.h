/* cuda/kernels/amax: the amax of a scale group, and its scale. Magnitudes are compared as integers: the bits
   of the fp32 number without the sign. So NaN is larger than any number. */
#ifndef CUDA_KERNELS_AMAX_H
#define CUDA_KERNELS_AMAX_H

#include "cuda/kernels/quantize.h"
#include "cuda/view.h"

__device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}
__device__ __forceinline__ uint32_t magnitude(float x) {
    return fmath_bits(x) & 0x7fffffffu;
}

__device__ __forceinline__ float amax_of(uint32_t most) {
    return fmath_from_bits(most > 0x7f800000u ? 0x7fc00000u : most); /* every NaN becomes 0x7FC00000 */
}

__device__ __forceinline__ void raise_amax(float *amax, float found) {
    atomicMax((int *)amax, (int)fmath_bits(found));
}

__device__ __forceinline__ float scale_of(const quantize_use &u, int64_t group, float amax) {
    if (!(u.work & QUANTIZE_SCALE)) return u.scale[group];
    if (!u.delayed) return scale_from_amax(amax, u.format, &u.options);
    return u.next ? *u.next : u.scale[group];
}

/* Returns the address of a scale group's E8M0 scale_inv. row, column: here and below, the group's index along
   the tensor's rows and columns. */
__device__ __forceinline__ uint8_t *scale_code_at(const quantize_use &u, int64_t row, int64_t column) {
    int64_t mn = u.columnwise ? column : row, k = u.columnwise ? row : column;
    return (uint8_t *)u.scale_inv + scale_tiles_index(u.tiles, mn, k);
}

/* Returns a scale group's scale_inv. */
__device__ __forceinline__ float scale_inv_of(const quantize_use &u, int64_t row, int64_t column) {
    if (u.tiles.along_k) return cast_from_e8m0(*scale_code_at(u, row, column));
    return ((const float *)u.scale_inv)[row * u.row_step + column * u.column_step];
}

/* Stores a scale group's scale and its inverse. In delayed scaling without a new scale (u.next is NULL), it
   stores only the inverse, because the scale is in memory already. */
__device__ __forceinline__ void store_scale(const quantize_use &u, int64_t row, int64_t column, float scale) {
    int64_t group = row * u.row_step + column * u.column_step;
    if (!u.delayed || u.next) u.scale[group] = scale;
    if (u.tiles.along_k)
        *scale_code_at(u, row, column) = scale_e8m0_code(scale);
    else
        ((float *)u.scale_inv)[group] = scale_inverse(scale);
}

#endif
