/* bench/gpu/swiglu: the gated activation and its gradients (elementwise.h). */
#include "tile.h"

/* exp and the quotient are the device's fast ones: their error is far below what rounding to bf16 makes. */
__device__ __forceinline__ float sigmoid(float x) {
    return __fdividef(1.0f, 1.0f + __expf(-x));
}

__device__ __forceinline__ bf16x8 activate(const bf16x8 &gate, const bf16x8 &up) {
    bf16x8 y;
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
        float low = number(gate, i), high = number(gate, i + 1);
        y.word[i / 2] =
            bf16_pair(low * sigmoid(low) * number(up, i), high * sigmoid(high) * number(up, i + 1));
    }
    return y;
}

/* Gradients of one gate and up. */
__device__ __forceinline__ float2 gradient(float dy, float gate, float up) {
    float s = sigmoid(gate), slope = s * fmaf(gate, 1.0f - s, 1.0f);
    return make_float2(dy * up * slope, dy * (gate * s));
}

__device__ __forceinline__ void gradients(const bf16x8 &dy, const bf16x8 &gate, const bf16x8 &up,
                                          bf16x8 &dgate, bf16x8 &dup) {
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
        float2 low = gradient(number(dy, i), number(gate, i), number(up, i));
        float2 high = gradient(number(dy, i + 1), number(gate, i + 1), number(up, i + 1));
        dgate.word[i / 2] = bf16_pair(low.x, high.x);
        dup.word[i / 2] = bf16_pair(low.y, high.y);
    }
}

/* ---- to bf16 ---- */

/* A thread has 4 rows x 8 columns, a block 4 rows. */
enum { FLAT_THREADS = 256 };

__device__ __forceinline__ int64_t flat_column() {
    return 8 * ((int64_t)blockIdx.x * FLAT_THREADS + threadIdx.x);
}

/* Rows from `row` on, beyond the end the last row again. */
__device__ __forceinline__ void load_rows(quad<bf16x8> &v, const void *x, int64_t rows, int64_t row,
                                          int64_t column, int64_t ld) {
#pragma unroll
    for (int k = 0; k < QUAD_ROWS; k++)
        load8(v.row[k], x, (row + k < rows ? row + k : rows - 1) * ld + column);
}

__device__ __forceinline__ void store_rows(void *y, int64_t rows, int64_t row, int64_t column, int64_t ld,
                                           const quad<bf16x8> &v) {
#pragma unroll
    for (int k = 0; k < QUAD_ROWS; k++)
        if (row + k < rows) store8(y, (row + k) * ld + column, v.row[k]);
}

__global__ void __launch_bounds__(FLAT_THREADS) swiglu_forward_kernel(elementwise_args a) {
    int64_t row = (int64_t)blockIdx.y * QUAD_ROWS, column = flat_column(), ff = a.columns;
    quad<bf16x8> gate, up, y = {};
    if (column < ff) {
        load_rows(gate, a.x, a.rows, row, column, 2 * ff);
        load_rows(up, a.x, a.rows, row, ff + column, 2 * ff);
#pragma unroll
        for (int k = 0; k < QUAD_ROWS; k++) y.row[k] = activate(gate.row[k], up.row[k]);
        store_rows(a.y, a.rows, row, column, ff, y);
    }
    block_raise_amax<bf16x8>(a.amax, raised(0, y));
}

__global__ void __launch_bounds__(FLAT_THREADS) swiglu_backward_kernel(elementwise_args a) {
    int64_t row = (int64_t)blockIdx.y * QUAD_ROWS, column = flat_column(), ff = a.columns;
    quad<bf16x8> dy, gate, up, dgate = {}, dup = {};
    if (column < ff) {
        load_rows(dy, a.second, a.rows, row, column, ff);
        load_rows(gate, a.x, a.rows, row, column, 2 * ff);
        load_rows(up, a.x, a.rows, row, ff + column, 2 * ff);
#pragma unroll
        for (int k = 0; k < QUAD_ROWS; k++)
            gradients(dy.row[k], gate.row[k], up.row[k], dgate.row[k], dup.row[k]);
        store_rows(a.y, a.rows, row, column, 2 * ff, dgate);
        store_rows(a.y, a.rows, row, ff + column, 2 * ff, dup);
    }
    block_raise_amax<bf16x8>(a.amax, raised(raised(0, dgate), dup));
}

static dim3 flat_grid(const elementwise_args *a) {
    return dim3((unsigned)((a->columns + 8 * FLAT_THREADS - 1) / (8 * FLAT_THREADS)),
                (unsigned)((a->rows + QUAD_ROWS - 1) / QUAD_ROWS));
}

extern "C" cudaError_t swiglu_forward(const elementwise_args *a, cudaStream_t stream) {
    if (!takes_vectors(a)) return cudaErrorInvalidValue;
    LAUNCH(swiglu_forward_kernel, flat_grid(a), FLAT_THREADS, stream, *a);
    return cudaGetLastError();
}

extern "C" cudaError_t swiglu_backward(const elementwise_args *a, cudaStream_t stream) {
    if (!takes_vectors(a)) return cudaErrorInvalidValue;
    LAUNCH(swiglu_backward_kernel, flat_grid(a), FLAT_THREADS, stream, *a);
    return cudaGetLastError();
}

/* ---- to codes, by rows and transposed, with the tensor's scale ---- */

template <fp8_kind F>
__global__ void __launch_bounds__(TILE_THREADS) swiglu_forward_tensor_kernel(elementwise_args a) {
    SHARED(tile, transposed_tile);
    float scale = *a.scale;
    uint32_t most = 0;
    for (int s = 0; s < QUADS; s++) {
        if (!quad_exists(s, a.rows, a.columns)) continue;
        quad<bf16x8> gate, up;
        int64_t at = quad_row(s) * 2 * a.columns + quad_column();
        load_quad(gate, a.x, at, 2 * a.columns);
        load_quad(up, a.x, at + a.columns, 2 * a.columns);
#pragma unroll
        for (int k = 0; k < QUAD_ROWS; k++) gate.row[k] = activate(gate.row[k], up.row[k]);
        most = raised(most, gate);
        quad_codes codes = quad_cast<F>(gate, scale);
        store_quad(a.q, quad_row(s) * a.columns + quad_column(), a.columns, codes);
        keep_quad(tile, s, codes);
    }
    __syncthreads();
    store_transposed(a.qt, a.rows, a.columns, tile);
    block_raise_amax<bf16x8>(a.amax, most);
}

/* Codes of one half, gate or up, of quad s. */
template <fp8_kind F>
__device__ __forceinline__ void keep_gradient(const elementwise_args &a, int s, int64_t first_column,
                                              const quad<bf16x8> &v, transposed_tile &tile, float scale) {
    quad_codes codes = quad_cast<F>(v, scale);
    store_quad(a.q, quad_row(s) * 2 * a.columns + first_column + quad_column(), 2 * a.columns, codes);
    keep_quad(tile, s, codes);
}

template <fp8_kind F>
__global__ void __launch_bounds__(TILE_THREADS) swiglu_backward_tensor_kernel(elementwise_args a) {
    SHARED(dgate_tile, transposed_tile);
    SHARED(dup_tile, transposed_tile);
    float scale = *a.scale;
    uint32_t most = 0;
    int64_t ff = a.columns;
    for (int s = 0; s < QUADS; s++) {
        if (!quad_exists(s, a.rows, ff)) continue;
        quad<bf16x8> dy, gate, up;
        int64_t at = quad_row(s) * 2 * ff + quad_column();
        load_quad(dy, a.second, quad_row(s) * ff + quad_column(), ff);
        load_quad(gate, a.x, at, 2 * ff);
        load_quad(up, a.x, at + ff, 2 * ff);
#pragma unroll
        for (int k = 0; k < QUAD_ROWS; k++) {
            bf16x8 dgate, dup;
            gradients(dy.row[k], gate.row[k], up.row[k], dgate, dup);
            gate.row[k] = dgate;
            up.row[k] = dup;
        }
        most = raised(raised(most, gate), up);
        keep_gradient<F>(a, s, 0, gate, dgate_tile, scale);
        keep_gradient<F>(a, s, ff, up, dup_tile, scale);
    }
    __syncthreads();
    store_transposed(a.qt, a.rows, ff, dgate_tile);
    store_transposed(a.qt + ff * a.rows, a.rows, ff, dup_tile);
    block_raise_amax<bf16x8>(a.amax, most);
}

extern "C" cudaError_t swiglu_tensor(const elementwise_args *a, cudaStream_t stream) {
    if (!takes_tiles(a)) return cudaErrorInvalidValue;
    auto kernel = a->format == OTT_E5M2 ? swiglu_forward_tensor_kernel<__NV_E5M2>
                                        : swiglu_forward_tensor_kernel<__NV_E4M3>;
    LAUNCH(kernel, tile_grid(a), TILE_THREADS, stream, *a);
    return cudaGetLastError();
}

extern "C" cudaError_t swiglu_backward_tensor(const elementwise_args *a, cudaStream_t stream) {
    if (!takes_tiles(a)) return cudaErrorInvalidValue;
    auto kernel = a->format == OTT_E5M2 ? swiglu_backward_tensor_kernel<__NV_E5M2>
                                        : swiglu_backward_tensor_kernel<__NV_E4M3>;
    LAUNCH(kernel, tile_grid(a), TILE_THREADS, stream, *a);
    return cudaGetLastError();
}
