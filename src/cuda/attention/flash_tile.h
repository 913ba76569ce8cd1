/* cuda/attention/flash_tile: tiles of rows in shared memory, their products on the tensor cores, and scores,
   for cuda/attention/flash.cu. */
#ifndef CUDA_ATTENTION_FLASH_TILE_H
#define CUDA_ATTENTION_FLASH_TILE_H

#include "cuda/attention/visible.h"
#include "cuda/mma.h"
#include "cuda/view.h"

#define LOG2_E 1.4426950408889634f
#define LN_2   0.6931471805599453f

enum { WARP = 32, WARP_ROWS = 16 };

/* 2^x. Results below 2^-126 are 0. */
__device__ __forceinline__ float power_of_two(float x) {
#ifdef __CUDACC__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

/* 1 / x, with an error of one unit in the last place. */
__device__ __forceinline__ float reciprocal(float x) {
#ifdef __CUDACC__
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return 1 / x;
#endif
}

/* ---- tiles in shared memory ---- */

/* Returns the address of columns [8 chunk, 8 chunk + 8) of a row. The chunks of a row are swapped, so that
   the rows of a matrix that mma_load reads are in different banks. */
template <int D> __device__ __forceinline__ uint16_t *chunk_at(uint16_t *tile, int row, int chunk) {
    return tile + row * D + (chunk ^ (row & 7)) * 8;
}

/* The rows of one head of a matrix. */
struct head_rows {
    uint16_t *first; /* the head's first element in row 0 */
    int64_t ld, rows;
    int columns;
};

__device__ __forceinline__ head_rows rows_of(const view &v, int64_t head, int64_t head_dim) {
    return {(uint16_t *)v.data + head * head_dim, v.ld, v.rows, (int)head_dim};
}

/* Begins to copy rows [first, first + Rows) to a tile. Rows beyond the matrix and columns beyond the head
   become 0. */
template <int Rows, int D, int Threads>
__device__ __forceinline__ void copy_tile(uint16_t *tile, const head_rows &from, int64_t first) {
    constexpr int chunks = D / 8, step = Threads / chunks;
    static_assert(Threads % chunks == 0 && Rows % step == 0, "all threads copy equally many chunks");
    int row = threadIdx.x / chunks, chunk = threadIdx.x % chunks;
    const uint16_t *source = from.first + (first + row) * from.ld + chunk * 8;
    int left = (int)least(from.rows - first, Rows);
    bool inside = chunk * 8 < from.columns;
#pragma unroll
    for (int i = 0; i < Rows / step; i++, source += step * from.ld) {
        bool valid = inside && row + i * step < left;
        copy_async(chunk_at<D>(tile, row + i * step, chunk), valid ? source : from.first, valid);
    }
}

/* ---- products ---- */

/* sums[row][n] = dot product of row `first` + row of `left` and row n of `right`, 16 x N. */
template <ott_dtype T, int N, int D>
__device__ __forceinline__ void multiply_rows(mma_sums (&sums)[N / 8], uint16_t *left, int first,
                                              uint16_t *right) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int n = 0; n < N / 8; n++) sums[n] = {};
#pragma unroll 4 /* fewer addresses at once, because the sums need the registers */
    for (int k = 0; k < D / 16; k++) {
        mma_left a;
        mma_load(a.at, chunk_at<D>(left, first + lane % 16, 2 * k + lane / 16));
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            uint32_t b[4];
            mma_load(b, chunk_at<D>(right, 16 * n + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
            mma_add<T>(sums[2 * n], a, {{b[0], b[1]}});
            mma_add<T>(sums[2 * n + 1], a, {{b[2], b[3]}});
        }
    }
}

template <ott_dtype T> __device__ __forceinline__ uint32_t rounded_pair(float low, float high) {
    uint32_t word;
    if constexpr (T == OTT_BF16) {
        __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
        memcpy(&word, &two, 4);
    } else {
        __half2 two = __floats2half2_rn(low, high);
        memcpy(&word, &two, 4);
    }
    return word;
}

/* sums += weights, rounded to format T, times the N rows of `right`. 16 x D. */
template <ott_dtype T, int N, int D>
__device__ __forceinline__ void add_weighted_rows(mma_sums (&sums)[D / 8], const mma_sums (&weights)[N / 8],
                                                  uint16_t *right) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        const mma_sums &x = weights[2 * k], &y = weights[2 * k + 1];
        mma_left a = {{rounded_pair<T>(x.at[0], x.at[1]), rounded_pair<T>(x.at[2], x.at[3]),
                       rounded_pair<T>(y.at[0], y.at[1]), rounded_pair<T>(y.at[2], y.at[3])}};
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t b[4];
            mma_load_transposed(b, chunk_at<D>(right, 16 * k + lane % 16, 2 * n + lane / 16));
            mma_add<T>(sums[2 * n], a, {{b[0], b[1]}});
            mma_add<T>(sums[2 * n + 1], a, {{b[2], b[3]}});
        }
    }
}

/* Stores rows `row` and row + 8 of this warp's 16 x D sums, times factor[0] and factor[1]. */
template <ott_dtype T, int D>
__device__ __forceinline__ void store_rows(const mma_sums (&sums)[D / 8], const head_rows &to, int64_t row,
                                           const float (&factor)[2]) {
    int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (row + 8 * i >= to.rows) continue;
        uint16_t *out = to.first + (row + 8 * i) * to.ld + column;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            if (8 * n < to.columns)
                *(uint32_t *)(out + 8 * n) =
                    rounded_pair<T>(sums[n].at[2 * i] * factor[i], sums[n].at[2 * i + 1] * factor[i]);
    }
}

/* ---- scores ---- */

/* How q k^T becomes the exponent of a softmax weight, which is a power of two. With a soft cap: outer *
   tanh(inner * q k^T), else outer * q k^T. inverse: 1 / outer. */
struct score_rule {
    float inner, outer, inverse;
    bool capped;
};

static score_rule rule_of(float scale, float softcap) {
    bool capped = softcap > 0;
    float outer = (capped ? softcap : scale) * LOG2_E;
    return {capped ? scale / softcap : 0, outer, 1 / outer, capped};
}

template <int N> __device__ __forceinline__ void to_exponents(mma_sums (&s)[N / 8], const score_rule &rule) {
    if (rule.capped) {
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[n].at[i] = 1 - 2 * reciprocal(power_of_two(s[n].at[i] * (rule.inner * 2 * LOG2_E)) + 1);
    }
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) s[n].at[i] = s[n].at[i] * rule.outer;
}

/* The range of columns that a thread's two rows see. */
struct sight {
    int begin[2], end[2];
};

/* Sets elements that a row does not see to `value`. first: column 0 of the tile. */
template <int N>
__device__ __forceinline__ void hide(mma_sums (&s)[N / 8], const sight &sees, int first, float value) {
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int column = first + 8 * n + (int)threadIdx.x % 4 * 2 + i % 2;
            if (column < sees.begin[i / 2] || column >= sees.end[i / 2]) s[n].at[i] = value;
        }
}

/* Sum, or maximum, over the four lanes that have a row. */
__device__ __forceinline__ float sum_of_row(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ __forceinline__ float most_of_row(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

#endif
