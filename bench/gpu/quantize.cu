/* bench/gpu/quantize: copies, largest magnitudes, casts and scales (elementwise.h). */
#include "tile.h"

/* ---- element by element ---- */

/* A block has FLAT_VECTORS vectors a thread, all loaded before the first is used. */
enum { FLAT_THREADS = 256, FLAT_VECTORS = 8 };

__device__ __forceinline__ int64_t flat_vector(int k) {
    return 8 * (((int64_t)blockIdx.x * FLAT_VECTORS + k) * FLAT_THREADS + threadIdx.x);
}

__device__ __forceinline__ void load_flat(bf16x8 (&v)[FLAT_VECTORS], const void *x, int64_t count) {
#pragma unroll
    for (int k = 0; k < FLAT_VECTORS; k++) {
        v[k] = {};
        if (flat_vector(k) < count) load8(v[k], x, flat_vector(k));
    }
}

__global__ void __launch_bounds__(FLAT_THREADS) quantize_copy_kernel(const void *x, void *y, int64_t count) {
    bf16x8 v[FLAT_VECTORS];
    load_flat(v, x, count);
#pragma unroll
    for (int k = 0; k < FLAT_VECTORS; k++)
        if (flat_vector(k) < count) store8(y, flat_vector(k), v[k]);
}

__global__ void __launch_bounds__(FLAT_THREADS)
    quantize_amax_kernel(const void *x, float *amax, int64_t count) {
    bf16x8 v[FLAT_VECTORS];
    load_flat(v, x, count);
    uint32_t most = 0;
#pragma unroll
    for (int k = 0; k < FLAT_VECTORS; k++) most = raised(most, v[k]);
    block_raise_amax<bf16x8>(amax, most);
}

template <fp8_kind F>
__global__ void __launch_bounds__(FLAT_THREADS)
    quantize_cast_kernel(const void *x, const float *scale, uint8_t *q, int64_t count) {
    bf16x8 v[FLAT_VECTORS];
    load_flat(v, x, count);
    float s = *scale;
#pragma unroll
    for (int k = 0; k < FLAT_VECTORS; k++)
        if (flat_vector(k) < count) store_codes8(q, flat_vector(k), codes8<F>(v[k], s));
}

static unsigned flat_blocks(const elementwise_args *a) {
    int64_t each = 8 * FLAT_THREADS * FLAT_VECTORS;
    return (unsigned)((a->rows * a->columns + each - 1) / each);
}

extern "C" cudaError_t quantize_copy(const elementwise_args *a, cudaStream_t stream) {
    if (!takes_vectors(a)) return cudaErrorInvalidValue;
    LAUNCH(quantize_copy_kernel, flat_blocks(a), FLAT_THREADS, stream, a->x, a->y, a->rows * a->columns);
    return cudaGetLastError();
}

extern "C" cudaError_t quantize_amax(const elementwise_args *a, cudaStream_t stream) {
    if (!takes_vectors(a)) return cudaErrorInvalidValue;
    LAUNCH(quantize_amax_kernel, flat_blocks(a), FLAT_THREADS, stream, a->x, a->amax, a->rows * a->columns);
    return cudaGetLastError();
}

extern "C" cudaError_t quantize_cast(const elementwise_args *a, cudaStream_t stream) {
    if (!takes_vectors(a)) return cudaErrorInvalidValue;
    auto kernel = a->format == OTT_E5M2 ? quantize_cast_kernel<__NV_E5M2> : quantize_cast_kernel<__NV_E4M3>;
    LAUNCH(kernel, flat_blocks(a), FLAT_THREADS, stream, a->x, a->scale, a->q, a->rows * a->columns);
    return cudaGetLastError();
}

/* ---- one scale for the tensor, given ---- */

template <fp8_kind F, class V>
__device__ __forceinline__ void cast_tile(const quad<V> (&v)[QUADS], float scale, const elementwise_args &a,
                                          transposed_tile &tile) {
#pragma unroll
    for (int s = 0; s < QUADS; s++) {
        quad_codes codes = quad_cast<F>(v[s], scale);
        if (quad_exists(s, a.rows, a.columns))
            store_quad(a.q, quad_row(s) * a.columns + quad_column(), a.columns, codes);
        keep_quad(tile, s, codes);
    }
    __syncthreads();
    store_transposed(a.qt, a.rows, a.columns, tile);
}

template <fp8_kind F, class V> __device__ __forceinline__ void tensor_tile(const elementwise_args &a) {
    SHARED(tile, transposed_tile);
    quad<V> v[QUADS];
    load_tile(v, a.x, a.rows, a.columns);
    cast_tile<F>(v, *a.scale, a, tile);
    block_raise_amax<V>(a.amax, raised(raised(0, v[0]), v[1]));
}

template <fp8_kind F>
__global__ void __launch_bounds__(TILE_THREADS) quantize_tensor_kernel(elementwise_args a) {
    tensor_tile<F, bf16x8>(a);
}
template <fp8_kind F>
__global__ void __launch_bounds__(TILE_THREADS) quantize_weight_kernel(elementwise_args a) {
    tensor_tile<F, f32x8>(a);
}

extern "C" cudaError_t quantize_tensor(const elementwise_args *a, cudaStream_t stream) {
    if (!takes_tiles(a)) return cudaErrorInvalidValue;
    auto kernel =
        a->format == OTT_E5M2 ? quantize_tensor_kernel<__NV_E5M2> : quantize_tensor_kernel<__NV_E4M3>;
    LAUNCH(kernel, tile_grid(a), TILE_THREADS, stream, *a);
    return cudaGetLastError();
}

extern "C" cudaError_t quantize_weight(const elementwise_args *a, cudaStream_t stream) {
    if (!takes_tiles(a)) return cudaErrorInvalidValue;
    auto kernel =
        a->format == OTT_E5M2 ? quantize_weight_kernel<__NV_E5M2> : quantize_weight_kernel<__NV_E4M3>;
    LAUNCH(kernel, tile_grid(a), TILE_THREADS, stream, *a);
    return cudaGetLastError();
}

/* ---- one scale a row ---- */

/* N vectors a thread. The block keeps the largest magnitude of every column over its rows. */
template <int N> __global__ void __launch_bounds__(ROW_THREADS) quantize_rows_kernel(elementwise_args a) {
    bf16x8 of_columns[N] = {};
    for (int64_t row = row_begin(a.rows), end = row_end(a.rows); row < end; row++) {
        bf16x8 v[N];
        load_row(v, a.x, row, a.columns);
#pragma unroll
        for (int k = 0; k < N; k++) raise_each(of_columns[k], v[k]);
        quantize_row(a, row, v, row % 2);
    }
    if (!a.column_amax) return;
#pragma unroll
    for (int k = 0; k < N; k++)
        if (row_vector(k) < a.columns) raise_columns(a.column_amax, row_vector(k), of_columns[k]);
}

extern "C" cudaError_t quantize_rows(const elementwise_args *a, cudaStream_t stream) {
    /* 4 blocks on a multiprocessor, 2 of the wide ones, all at once: few blocks raise the columns' amax */
    enum { NARROW = 2, WIDE = 8, NARROW_BLOCKS = 528, WIDE_BLOCKS = 264 };
    bool wide = a->columns > 8 * ROW_THREADS * NARROW;
    if (!takes_vectors(a) || !takes_rule(a) || a->columns > 8 * ROW_THREADS * WIDE)
        return cudaErrorInvalidValue;
    auto kernel = wide ? quantize_rows_kernel<WIDE> : quantize_rows_kernel<NARROW>;
    LAUNCH(kernel, row_blocks(a->rows, wide ? WIDE_BLOCKS : NARROW_BLOCKS), ROW_THREADS, stream, *a);
    return cudaGetLastError();
}

/* ---- one scale a column ---- */

/* A block has STRIP_COLUMNS columns and STRIP_ROWS rows: a warp one row after another, a lane a vector. */
enum { STRIP_THREADS = 256, STRIP_WARPS = STRIP_THREADS / 32, STRIP_COLUMNS = 256, STRIP_ROWS = 256 };

__global__ void __launch_bounds__(STRIP_THREADS) quantize_column_amax_kernel(elementwise_args a) {
    SHARED(of_warp, uint4[STRIP_WARPS][32]);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int64_t column = (int64_t)blockIdx.x * STRIP_COLUMNS + 8 * lane, row = (int64_t)blockIdx.y * STRIP_ROWS;
    bf16x8 most = {};
#pragma unroll 8
    for (int r = warp; r < STRIP_ROWS; r += STRIP_WARPS) {
        bf16x8 v = {};
        if (row + r < a.rows && column < a.columns) load8(v, a.x, (row + r) * a.columns + column);
        raise_each(most, v);
    }
    store8(of_warp[warp], 8 * lane, most);
    __syncthreads();
    uint32_t magnitude = 0;
    for (int w = 0; w < STRIP_WARPS; w++)
        magnitude = larger(magnitude, ((const uint16_t *)of_warp[w])[threadIdx.x]);
    column = (int64_t)blockIdx.x * STRIP_COLUMNS + threadIdx.x;
    if (column < a.columns) raise_amax(a.column_amax + column, magnitude << 16);
}

extern "C" cudaError_t quantize_column_amax(const elementwise_args *a, cudaStream_t stream) {
    if (!takes_vectors(a)) return cudaErrorInvalidValue;
    dim3 grid((unsigned)((a->columns + STRIP_COLUMNS - 1) / STRIP_COLUMNS),
              (unsigned)((a->rows + STRIP_ROWS - 1) / STRIP_ROWS));
    LAUNCH(quantize_column_amax_kernel, grid, STRIP_THREADS, stream, *a);
    return cudaGetLastError();
}

/* The scales of the tile's columns from column_amax; the blocks at the top write their inverses. */
__device__ __forceinline__ void find_column_scales(const elementwise_args &a, float (&scales)[TILE]) {
    int64_t column = (int64_t)blockIdx.x * TILE + threadIdx.x;
    if (threadIdx.x >= TILE || column >= a.columns) return;
    float scale = scale_of(__float_as_uint(a.column_amax[column]), a.rule);
    scales[threadIdx.x] = scale;
    if (blockIdx.y == 0) a.inverse_t[column] = 1.0f / scale;
}

/* The scales of this thread's eight columns. */
__device__ __forceinline__ void take_column_scales(float (&mine)[8], const float (&scales)[TILE]) {
#pragma unroll
    for (int c = 0; c < 8; c++) mine[c] = scales[tile_column() + c];
}

__global__ void __launch_bounds__(TILE_THREADS) quantize_columns_kernel(elementwise_args a) {
    SHARED(tile, transposed_tile);
    SHARED(scales, float[TILE]);
    quad<bf16x8> v[QUADS];
    load_tile(v, a.x, a.rows, a.columns);
    find_column_scales(a, scales);
    __syncthreads();
    float mine[8];
    take_column_scales(mine, scales);
#pragma unroll
    for (int s = 0; s < QUADS; s++) keep_quad(tile, s, quad_cast<__NV_E4M3>(v[s], mine));
    __syncthreads();
    store_transposed(a.qt, a.rows, a.columns, tile);
}

extern "C" cudaError_t quantize_columns(const elementwise_args *a, cudaStream_t stream) {
    if (!takes_tiles(a) || !takes_rule(a)) return cudaErrorInvalidValue;
    LAUNCH(quantize_columns_kernel, tile_grid(a), TILE_THREADS, stream, *a);
    return cudaGetLastError();
}

/* ---- one scale for 128 elements along rows, one for 128 along columns ---- */

/* bf16 magnitudes of the tile's lines. */
struct tile_lines {
    uint16_t row[TILE];
    uint4 column[TILE_THREADS / 32][TILE / 8]; /* as each warp has found it, eight columns in each */
    float row_scale[TILE], column_scale[TILE];
};

/* The two magnitudes of a word, as `raised` leaves them, in one. */
__device__ __forceinline__ uint32_t fold_pair(uint32_t most) {
    return larger(most & 0xffff, most >> 16);
}

/* Rows: over the 16 threads of a row, two rows in one word. */
__device__ __forceinline__ void find_row_magnitudes(const quad<bf16x8> (&v)[QUADS], tile_lines &lines) {
#pragma unroll
    for (int i = 0; i < QUADS * QUAD_ROWS; i += 2) {
        int s = i / QUAD_ROWS, k = i % QUAD_ROWS;
        uint32_t pair = fold_pair(raised(0, v[s].row[k])) | fold_pair(raised(0, v[s].row[k + 1])) << 16;
        for (int step = 8; step > 0; step /= 2)
            pair = __vmaxu2(pair, __shfl_xor_sync(0xffffffffu, pair, step));
        if (threadIdx.x % 16 == 0) ((uint32_t *)lines.row)[(tile_row(s) + k) / 2] = pair;
    }
}

/* Columns: over the thread's eight rows and the two threads of the warp that have the same columns. */
__device__ __forceinline__ void find_column_magnitudes(const quad<bf16x8> (&v)[QUADS], tile_lines &lines) {
    bf16x8 most = {};
#pragma unroll
    for (int i = 0; i < QUADS * QUAD_ROWS; i++) raise_each(most, v[i / QUAD_ROWS].row[i % QUAD_ROWS]);
#pragma unroll
    for (int i = 0; i < 4; i++)
        most.word[i] = __vmaxu2(most.word[i], __shfl_xor_sync(0xffffffffu, most.word[i], 16));
    if (threadIdx.x % 32 < 16) store8(lines.column[threadIdx.x / 32], tile_column(), most);
}

/* Half of the threads make the rows' scales and inverses, half the columns'. */
__device__ __forceinline__ void find_line_scales(const elementwise_args &a, tile_lines &lines) {
    int line = threadIdx.x % TILE;
    bool by_rows = threadIdx.x < TILE;
    uint32_t magnitude = by_rows ? lines.row[line] : 0;
    for (int w = 0; !by_rows && w < TILE_THREADS / 32; w++)
        magnitude = larger(magnitude, ((const uint16_t *)lines.column[w])[line]);
    float scale = scale_of(magnitude << 16, a.rule);
    (by_rows ? lines.row_scale : lines.column_scale)[line] = scale;
    int64_t at = (int64_t)(by_rows ? blockIdx.y : blockIdx.x) * TILE + line,
            count = by_rows ? a.rows : a.columns;
    float *inverse = by_rows ? a.inverse : a.inverse_t;
    if (at < count) inverse[(by_rows ? blockIdx.x : blockIdx.y) * count + at] = 1.0f / scale;
}

__global__ void __launch_bounds__(TILE_THREADS) quantize_blocks_kernel(elementwise_args a) {
    SHARED(tile, transposed_tile);
    SHARED(lines, tile_lines);
    quad<bf16x8> v[QUADS];
    load_tile(v, a.x, a.rows, a.columns);
    find_row_magnitudes(v, lines);
    find_column_magnitudes(v, lines);
    __syncthreads();
    find_line_scales(a, lines);
    __syncthreads();
    float mine[8];
    take_column_scales(mine, lines.column_scale);
#pragma unroll
    for (int s = 0; s < QUADS; s++) {
        keep_quad(tile, s, quad_cast<__NV_E4M3>(v[s], mine));
        for (int k = 0; k < QUAD_ROWS && quad_exists(s, a.rows, a.columns); k++)
            store_codes8(a.q, (quad_row(s) + k) * a.columns + quad_column(),
                         codes8<__NV_E4M3>(v[s].row[k], lines.row_scale[tile_row(s) + k]));
    }
    __syncthreads();
    store_transposed(a.qt, a.rows, a.columns, tile);
}

extern "C" cudaError_t quantize_blocks(const elementwise_args *a, cudaStream_t stream) {
    if (!takes_tiles(a) || !takes_rule(a)) return cudaErrorInvalidValue;
    LAUNCH(quantize_blocks_kernel, tile_grid(a), TILE_THREADS, stream, *a);
    return cudaGetLastError();
}

/* ---- one scale for 128 x 128 elements ---- */

__global__ void __launch_bounds__(TILE_THREADS) quantize_weight_blocks_kernel(elementwise_args a) {
    SHARED(tile, transposed_tile);
    quad<f32x8> v[QUADS];
    load_tile(v, a.x, a.rows, a.columns);
    float scale = scale_of(block_largest(raised(raised(0, v[0]), v[1]), 0), a.rule);
    if (threadIdx.x == 0) {
        a.inverse[(int64_t)blockIdx.x * gridDim.y + blockIdx.y] = 1.0f / scale;
        a.inverse_t[(int64_t)blockIdx.y * gridDim.x + blockIdx.x] = 1.0f / scale;
    }
    cast_tile<__NV_E4M3>(v, scale, a, tile);
}

extern "C" cudaError_t quantize_weight_blocks(const elementwise_args *a, cudaStream_t stream) {
    if (!takes_tiles(a) || !takes_rule(a)) return cudaErrorInvalidValue;
    LAUNCH(quantize_weight_blocks_kernel, tile_grid(a), TILE_THREADS, stream, *a);
    return cudaGetLastError();
}
