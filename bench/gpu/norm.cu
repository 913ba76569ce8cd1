/* bench/gpu/norm: RMSNorm with the addition to the residual stream before it (elementwise.h). */
#include "vector8.h"

/* h = x + second, rounded; adds its squares. */
__device__ __forceinline__ bf16x8 add_residual(const bf16x8 &x, const bf16x8 &second, float &squares) {
    bf16x8 h;
#pragma unroll
    for (int i = 0; i < 8; i += 2)
        h.word[i / 2] = bf16_pair(number(x, i) + number(second, i), number(x, i + 1) + number(second, i + 1));
#pragma unroll
    for (int i = 0; i < 8; i++) squares = fmaf(number(h, i), number(h, i), squares);
    return h;
}

__device__ __forceinline__ bf16x8 normalize(const bf16x8 &h, const f32x8 &weight, float rstd) {
    bf16x8 y;
#pragma unroll
    for (int i = 0; i < 8; i += 2)
        y.word[i / 2] = bf16_pair(number(h, i) * rstd * number(weight, i),
                                  number(h, i + 1) * rstd * number(weight, i + 1));
    return y;
}

__device__ __forceinline__ float warp_sum(float x) {
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

/* The sum over the block, for all threads; slots as in block_largest. */
__device__ __forceinline__ float block_sum(float x, int slot) {
    SHARED(of_warp, float[2][32]);
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) of_warp[slot][threadIdx.x / 32] = x;
    __syncthreads();
    float sum = 0;
    for (unsigned w = 0; w < blockDim.x / 32; w++) sum += of_warp[slot][w];
    return sum;
}

__device__ __forceinline__ float rstd_of(const elementwise_args &a, float squares) {
    return 1.0f / sqrtf(squares / (float)a.columns + a.epsilon);
}

static bool takes_rows(const elementwise_args *a) {
    return takes_vectors(a) && a->columns <= 4096;
}

/* ---- a block has whole rows, one after another ---- */

enum { N = 2 }; /* vectors a thread */

__device__ __forceinline__ void load_weight(f32x8 (&weight)[N], const elementwise_args &a) {
#pragma unroll
    for (int k = 0; k < N; k++) {
        weight[k] = {};
        if (row_vector(k) < a.columns) load8(weight[k], a.weight, row_vector(k));
    }
}

/* y of row `row`; writes residual, rstd and y. */
__device__ __forceinline__ void norm_row(bf16x8 (&y)[N], const elementwise_args &a, int64_t row,
                                         const f32x8 (&weight)[N], int slot) {
    bf16x8 x[N], second[N], h[N];
    load_row(x, a.x, row, a.columns);
    load_row(second, a.second, row, a.columns);
    float squares = 0;
#pragma unroll
    for (int k = 0; k < N; k++) h[k] = add_residual(x[k], second[k], squares);
    store_row(a.residual, row, a.columns, h);
    float rstd = rstd_of(a, block_sum(squares, slot));
    if (threadIdx.x == 0) a.rstd[row] = rstd;
#pragma unroll
    for (int k = 0; k < N; k++) y[k] = normalize(h[k], weight[k], rstd);
    store_row(a.y, row, a.columns, y);
}

__global__ void __launch_bounds__(ROW_THREADS) norm_forward_kernel(elementwise_args a) {
    f32x8 weight[N];
    bf16x8 y[N];
    load_weight(weight, a);
    uint32_t most = 0;
    for (int64_t row = row_begin(a.rows), end = row_end(a.rows); row < end; row++) {
        norm_row(y, a, row, weight, row % 2);
#pragma unroll
        for (int k = 0; k < N; k++) most = raised(most, y[k]);
    }
    block_raise_amax<bf16x8>(a.amax, most);
}

__global__ void __launch_bounds__(ROW_THREADS) norm_rows_kernel(elementwise_args a) {
    f32x8 weight[N];
    bf16x8 y[N], of_columns[N] = {};
    load_weight(weight, a);
    for (int64_t row = row_begin(a.rows), end = row_end(a.rows); row < end; row++) {
        norm_row(y, a, row, weight, row % 2);
        quantize_row(a, row, y, row % 2);
#pragma unroll
        for (int k = 0; k < N; k++) raise_each(of_columns[k], y[k]);
    }
#pragma unroll
    for (int k = 0; k < N; k++)
        if (row_vector(k) < a.columns) raise_columns(a.column_amax, row_vector(k), of_columns[k]);
}

extern "C" cudaError_t norm_forward(const elementwise_args *a, cudaStream_t stream) {
    if (!takes_rows(a)) return cudaErrorInvalidValue;
    LAUNCH(norm_forward_kernel, row_blocks(a->rows, UINT32_MAX), ROW_THREADS, stream, *a);
    return cudaGetLastError();
}

extern "C" cudaError_t norm_rows(const elementwise_args *a, cudaStream_t stream) {
    enum { BLOCKS = 528 }; /* 4 on a multiprocessor: few blocks raise the columns' amax */
    if (!takes_rows(a) || !takes_rule(a)) return cudaErrorInvalidValue;
    LAUNCH(norm_rows_kernel, row_blocks(a->rows, BLOCKS), ROW_THREADS, stream, *a);
    return cudaGetLastError();
}

/* ---- a block has 16 whole rows at once, a warp one of them: what a 16-byte store of a column takes ---- */

enum { BAND = 16, BAND_THREADS = 32 * BAND, BAND_VECTORS = 16, STEP_COLUMNS = BAND_THREADS };

/* Codes of STEP_COLUMNS columns of the band. */
struct band_codes {
    uint8_t code[BAND][STEP_COLUMNS];
};

__device__ __forceinline__ int64_t band_vector(int k) {
    return 8 * (k * 32 + threadIdx.x % 32);
}

/* Loads a row, writes residual and rstd; returns rstd. */
__device__ __forceinline__ float load_band(bf16x8 (&h)[BAND_VECTORS], const elementwise_args &a,
                                           int64_t row) {
    float squares = 0;
#pragma unroll
    for (int k = 0; k < BAND_VECTORS; k++) {
        h[k] = {};
        if (band_vector(k) >= a.columns) continue;
        int64_t at = row * a.columns + band_vector(k);
        bf16x8 x, second;
        load8(x, a.x, at);
        load8(second, a.second, at);
        h[k] = add_residual(x, second, squares);
        store8(a.residual, at, h[k]);
    }
    float rstd = rstd_of(a, warp_sum(squares));
    if (threadIdx.x % 32 == 0) a.rstd[row] = rstd;
    return rstd;
}

/* Column `column` of the band, column c of its codes here, to qt. */
__device__ __forceinline__ void store_band_column(const elementwise_args &a, const band_codes &codes, int c,
                                                  int64_t column) {
    uint32_t word[4];
#pragma unroll
    for (int r = 0; r < BAND; r += 4)
        word[r / 4] = codes.code[r][c] | (uint32_t)codes.code[r + 1][c] << 8 |
                      (uint32_t)codes.code[r + 2][c] << 16 | (uint32_t)codes.code[r + 3][c] << 24;
    int64_t at = column * a.rows + (int64_t)blockIdx.x * BAND;
    if (column < a.columns) ((uint4 *)a.qt)[at / 16] = make_uint4(word[0], word[1], word[2], word[3]);
}

template <fp8_kind F> __global__ void __launch_bounds__(BAND_THREADS) norm_tensor_kernel(elementwise_args a) {
    SHARED(codes, band_codes[2]);
    bf16x8 h[BAND_VECTORS];
    int warp = threadIdx.x / 32;
    int64_t row = (int64_t)blockIdx.x * BAND + warp;
    float rstd = load_band(h, a, row), scale = *a.scale;
    uint32_t most = 0;
#pragma unroll
    for (int k = 0; k < BAND_VECTORS; k++) { /* two make a step */
        if (band_vector(k) < a.columns) {
            f32x8 weight;
            load8(weight, a.weight, band_vector(k));
            bf16x8 y = normalize(h[k], weight, rstd);
            most = raised(most, y);
            uint2 eight = codes8<F>(y, scale);
            store_codes8(a.q, row * a.columns + band_vector(k), eight);
            store_codes8(codes[k / 2 % 2].code[warp], band_vector(k) % STEP_COLUMNS, eight);
        }
        if (k % 2 == 0) continue;
        __syncthreads();
        store_band_column(a, codes[k / 2 % 2], threadIdx.x, k / 2 * STEP_COLUMNS + threadIdx.x);
    }
    block_raise_amax<bf16x8>(a.amax, most);
}

extern "C" cudaError_t norm_tensor(const elementwise_args *a, cudaStream_t stream) {
    if (!takes_rows(a) || a->rows % BAND || a->columns % 16) return cudaErrorInvalidValue;
    auto kernel = a->format == OTT_E5M2 ? norm_tensor_kernel<__NV_E5M2> : norm_tensor_kernel<__NV_E4M3>;
    LAUNCH(kernel, (unsigned)(a->rows / BAND), BAND_THREADS, stream, *a);
    return cudaGetLastError();
}
