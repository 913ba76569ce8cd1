/* cuda/kernels/codes: casts eight values to FP8 codes; uses the hardware's conversion where it equals
   fp8/cast. */
#ifndef CUDA_KERNELS_CODES_H
#define CUDA_KERNELS_CODES_H

#include "cuda/view.h"
#include "cuda/kernels/quantize.h"

/* Index of the scale group that contains the element in this row and column. */
__device__ __forceinline__ int64_t quantize_group(const quantize_use &u, int64_t row, int64_t column) {
    return (row >> u.row_shift) * u.row_step + (column >> u.column_shift) * u.column_step;
}
__device__ __forceinline__ int64_t code_index(const quantize_codes &c, int64_t row, int64_t column) {
    return c.transposed ? column * c.ld + row : row * c.ld + column;
}

/* True if x, rounded, is larger than the format's largest finite number. */
__device__ __forceinline__ bool rounds_beyond(float x, ott_dtype format) {
    return format == OTT_E4M3 ? fabsf(x) > 464.0f : fabsf(x) >= 61440.0f;
}

/* The conversion instruction saturates. For CAST_OVERFLOW, codes4 replaces the codes of values that round
   beyond the largest finite number by NaN (E4M3) or infinity (E5M2). */
template <__nv_fp8_interpretation_t F> __device__ __forceinline__ uint32_t saturated_codes4(const float *x) {
    uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(x[0], x[1]), __NV_SATFINITE, F);
    uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(x[2], x[3]), __NV_SATFINITE, F);
    return low | high << 16;
}
__device__ __forceinline__ uint32_t codes4(const float *x, ott_dtype format, cast_mode mode) {
    uint32_t codes = format == OTT_E4M3 ? saturated_codes4<__NV_E4M3>(x) : saturated_codes4<__NV_E5M2>(x);
    uint32_t overflow = format == OTT_E4M3 ? 0x7f : 0x7c;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (mode == CAST_OVERFLOW && rounds_beyond(x[i], format))
            codes = (codes & ~(0x7fu << 8 * i)) | overflow << 8 * i;
    return codes;
}
__device__ __forceinline__ uint2 codes8(const eight &e, ott_dtype format, cast_mode mode) {
    return make_uint2(codes4(e.x, format, mode), codes4(e.x + 4, format, mode));
}

/* Stores the first `count` of eight codes. vectorized: stores all eight, to an 8-byte-aligned address. */
__device__ __forceinline__ void store_codes8(uint8_t *to, uint2 codes, int64_t count, bool vectorized) {
    if (vectorized) {
        *(uint2 *)to = codes;
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < count) to[i] = (uint8_t)((i < 4 ? codes.x : codes.y) >> i % 4 * 8);
}

/* Transposes a matrix of 4 x 4 bytes: row[i] is row i, column[j] becomes column j. */
__device__ __forceinline__ void transpose4(const uint32_t (&row)[4], uint32_t *column) {
    uint32_t a = __byte_perm(row[0], row[1], 0x5140), b = __byte_perm(row[2], row[3], 0x5140);
    uint32_t c = __byte_perm(row[0], row[1], 0x7362), d = __byte_perm(row[2], row[3], 0x7362);
    column[0] = __byte_perm(a, b, 0x5410);
    column[1] = __byte_perm(a, b, 0x7632);
    column[2] = __byte_perm(c, d, 0x5410);
    column[3] = __byte_perm(c, d, 0x7632);
}

#endif
