/*
 * cuda/quantize: amax, scales and codes of a tensor in memory, tile by tile. Groups within tiles and delayed scaling take one
 * pass: bytes moved are the tensor once and the codes once. Those that wait for the amax of whole rows, columns or all take two:
 * the tensor twice.
 */
#include "cuda/tile.h"

template <ott_dtype D> struct memory_source {
    static constexpr ott_dtype dtype = D;
    static constexpr int outputs = 1;
    int64_t rows, columns;
    view made[1];
    quantize_uses uses[1];
};
template <ott_dtype D>
__device__ __forceinline__ void make_eight(const memory_source<D> &, int64_t, int64_t) {}

extern "C" cudaError_t quantize_pass(const tensor *x, const quantize_uses *uses, cudaStream_t stream) {
    WITH_DTYPE(x->dtype, D, {
        memory_source<D> source = {x->rows, x->columns, {view_of(x)}, {*uses}};
        LAUNCH_BLOCKS(tile_kernel<memory_source<D>>, tile_blocks(x->rows, x->columns), TILE_THREADS, stream,
                      source);
    });
    return cudaGetLastError();
}

__global__ void __launch_bounds__(ROW_THREADS) scale_kernel(quantize_use u) {
    int64_t group = (int64_t)blockIdx.x * ROW_THREADS + threadIdx.x;
    if (group >= u.groups) return;
    float scale = scale_of(u, group, u.delayed ? 0.0f : u.amax[group]);
    u.scale[group] = scale;
    u.scale_inv[group] = scale_inverse(scale);
}

extern "C" cudaError_t quantize_scales(const quantize_use *use, cudaStream_t stream) {
    quantize_use u = *use;
    u.work = QUANTIZE_SCALE;
    LAUNCH_BLOCKS(scale_kernel, (u.groups + ROW_THREADS - 1) / ROW_THREADS, ROW_THREADS, stream, u);
    return cudaGetLastError();
}

/* ---- back, and from rows to columns ---- */

template <ott_dtype D>
__global__ void __launch_bounds__(ROW_THREADS) dequantize_kernel(quantize_use u, view y) {
    row_place p = row_place_of(y.columns);
    if (p.column >= y.columns) return;
    eight e = {};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (p.column + i >= y.columns) continue;
        uint8_t code = u.codes[0].data[code_index(u.codes[0], p.row, p.column + i)];
        e.x[i] = narrow_from_fp8(code, u.format) * u.scale_inv[quantize_group(u, p.row, p.column + i)];
    }
    store8<D>(y, p.row, p.column, e);
}

extern "C" cudaError_t dequantize_launch(const quantize_use *use, const tensor *y, cudaStream_t stream) {
    view to = view_of(y);
    quantize_use u = *use;
    WITH_DTYPE(y->dtype, D, LAUNCH_ROWS(dequantize_kernel<D>, to.rows, to.columns, stream, u, to));
    return cudaGetLastError();
}

struct transpose_job {
    const uint8_t *x;
    int64_t rows, columns, ld;
    quantize_codes y;
};

/* Bytes moved: x and y once. */
__global__ void __launch_bounds__(TILE_THREADS) transpose_kernel(transpose_job j) {
    SHARED(tile, transposed_tile);
    tile_place p = tile_place_of(j.columns);
    int64_t column = p.first_column + p.column, count = j.columns - column;
    bool whole = count >= 8 && ((uintptr_t)j.x | (uintptr_t)j.ld) % 8 == 0;
    own_codes codes;
#pragma unroll
    for (int k = 0; k < OWN_ROWS; k++) {
        int64_t row = p.first_row + p.row + k;
        const uint8_t *from = j.x + row * j.ld + column;
        uint32_t word[2] = {};
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < count && row < j.rows && !whole) word[i / 4] |= (uint32_t)from[i] << i % 4 * 8;
        codes.row[k] = make_uint2(word[0], word[1]);
        if (row < j.rows && whole) codes.row[k] = *(const uint2 *)from;
    }
    keep_transposed(tile, codes, p);
    __syncthreads();
    store_transposed(j.y, tile, p, j.rows, j.columns);
}

extern "C" cudaError_t transpose_launch(const tensor *x, const tensor *y, cudaStream_t stream) {
    transpose_job j = {
        (const uint8_t *)x->data, x->rows, x->columns, x->ld, {(uint8_t *)y->data, y->ld, true}};
    LAUNCH_BLOCKS(transpose_kernel, tile_blocks(x->rows, x->columns), TILE_THREADS, stream, j);
    return cudaGetLastError();
}
