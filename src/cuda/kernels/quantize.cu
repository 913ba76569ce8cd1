/* cuda/kernels/quantize: amax, scales and codes of a tensor in memory, tile by tile. One pass over the tensor
   suffices if each scale group is inside one tile, or scaling is delayed. Otherwise groups of full rows, full
   columns or the full tensor need two passes. */
#include "cuda/kernels/tile.h"

/* Quantizes a tensor in memory. */
template <ott_dtype D>
__global__ void __launch_bounds__(TILE_THREADS, D == OTT_F32 ? 1 : 2)
    quantize_kernel(view x, GRID_CONSTANT(quantize_uses) uses) {
    quantize_loaded<D>(x, uses, tile_place_of(x.columns));
}

extern "C" cudaError_t quantize_pass(const tensor *x, const quantize_uses *uses, cudaStream_t stream) {
    WITH_DTYPE(x->dtype, D,
               LAUNCH_BLOCKS(quantize_kernel<D>, tile_blocks(x->rows, x->columns), TILE_THREADS, stream,
                             view_of(x), *uses));
    return cudaGetLastError();
}

__global__ void __launch_bounds__(ROW_THREADS) scale_kernel(quantize_use u) {
    int64_t group = (int64_t)blockIdx.x * ROW_THREADS + threadIdx.x;
    if (group >= u.groups) return;
    float scale = scale_of(u, group, u.delayed ? 0.0f : u.amax[group]);
    u.scale[group] = scale;
    ((float *)u.scale_inv)[group] = scale_inverse(scale);
}

/* Like scale_kernel, for E8M0 scales. Each byte of scale_inv, including padding, has a thread. */
__global__ void __launch_bounds__(ROW_THREADS)
    scale_codes_kernel(quantize_use u, int64_t along_mn, int64_t along_k, int64_t count) {
    int64_t at = (int64_t)blockIdx.x * ROW_THREADS + threadIdx.x, depth = u.tiles.along_k * SCALE_TILE_K;
    int64_t mn = at / depth, k = at - mn * depth, group = k * along_mn + mn;
    if (at >= count) return;
    uint8_t code = SCALE_TILE_PADDING;
    if (mn < along_mn && k < along_k) {
        u.scale[group] = scale_of(u, group, u.amax[group]);
        code = scale_e8m0_code(u.scale[group]);
    }
    ((uint8_t *)u.scale_inv)[scale_tiles_index(u.tiles, mn, k)] = code;
}

extern "C" cudaError_t quantize_scales(const quantize_use *use, cudaStream_t stream) {
    quantize_use u = *use;
    u.work = QUANTIZE_SCALE;
    if (u.tiles.along_k == 0) {
        LAUNCH_BLOCKS(scale_kernel, (u.groups + ROW_THREADS - 1) / ROW_THREADS, ROW_THREADS, stream, u);
        return cudaGetLastError();
    }
    int64_t along_mn = u.columnwise ? u.row_step : u.column_step; /* the order of groups is [K][MN] */
    int64_t count = scale_tiles_bytes(along_mn, u.tiles.along_k);
    if (along_mn > 0)
        LAUNCH_BLOCKS(scale_codes_kernel, (count + ROW_THREADS - 1) / ROW_THREADS, ROW_THREADS, stream, u,
                      along_mn, u.groups / along_mn, count);
    return cudaGetLastError();
}

/* ---- groups of rows ---- */

enum { GROUP_THREADS = 128 };

struct group_job {
    view x;
    quantize_use use;
    const int32_t *end; /* i32[groups]: end rows; NULL: each group has `each` rows */
    int64_t each, groups;
    int64_t width, across; /* width: columns of a thread block; across: thread blocks across a row */
};

/* Returns the first row of a group. The rows after the last group count as group j.groups. */
__device__ __forceinline__ int64_t group_first(const group_job &j, int64_t group) {
    return !j.end ? group * j.each : group > 0 ? j.end[group - 1] : 0;
}
__device__ __forceinline__ int64_t group_end(const group_job &j, int64_t group) {
    return group < j.groups ? group_first(j, group + 1) : j.x.rows;
}
/* Returns the index of the group's first scale block, as qtensor_group_block does. */
__device__ __forceinline__ int64_t group_block(const group_job &j, int64_t group) {
    return (group_first(j, group) >> j.use.row_shift) + group;
}

/* Returns the group that scale block `block` is in. Blocks are numbered in group order. */
__device__ __forceinline__ int64_t group_with(const group_job &j, int64_t block) {
    int64_t first = 0, after = j.groups + 1;
    while (after - first > 1) {
        int64_t middle = (first + after) / 2;
        if (group_block(j, middle) <= block)
            first = middle;
        else
            after = middle;
    }
    return first;
}

/* Returns the scale of this thread's column if each column has a scale; if not, that of the thread block's
   elements. stores: also stores the scale and the amax. */
__device__ __forceinline__ float settle_scale(const quantize_use &u, int64_t row, int64_t column,
                                              uint32_t most, bool stores) {
    int64_t group = row * u.row_step + column * u.column_step;
    SHARED(largest, uint32_t[GROUP_THREADS]);
    if (u.column_shift != 0) {
        largest[threadIdx.x] = most;
        __syncthreads();
        for (int i = 0; i < GROUP_THREADS; i++) most = larger(most, largest[i]);
    }
    float amax = amax_of(most), scale = scale_of(u, group, amax);
    if (!stores) return scale;
    u.amax[group] = amax;
    store_scale(u, row, column, scale);
    return scale;
}

/* Stores codes of `count` (at most four) elements of a column. */
__device__ __forceinline__ void store_column4(const quantize_use &u, const float *scaled, int64_t row,
                                              int64_t column, int64_t count) {
    uint32_t codes = codes4(scaled, u.format, u.mode);
    for (int copy = 0; copy < u.copies; copy++)
        for (int i = 0; i < 4; i++)
            if (i < count)
                u.codes[copy].data[code_index(u.codes[copy], row + i, column)] = (uint8_t)(codes >> 8 * i);
}

/* A thread block quantizes the rows of one scale block. Either each thread has one column, which has its own
   scale, or all columns of the thread block share a scale. Each thread reads its columns once for the amax
   and once for the codes. */
template <ott_dtype D>
__global__ void __launch_bounds__(GROUP_THREADS) group_kernel(GRID_CONSTANT(group_job) j) {
    const quantize_use &u = j.use;
    int64_t block = blockIdx.x / j.across, strip = blockIdx.x % j.across, group = group_with(j, block);
    int64_t row = group_first(j, group), end = group_end(j, group);
    if (u.row_shift != QUANTIZE_SPAN_ALL) {
        row += (block - group_block(j, group)) << u.row_shift;
        end = row + (1 << u.row_shift) < end ? row + (1 << u.row_shift) : end;
    }
    if (row >= end) return;
    int64_t first = strip * j.width + threadIdx.x, columns = j.x.columns;
    if (strip + 1 < j.across) columns = (strip + 1) * j.width;
    uint32_t most = 0;
    for (int64_t c = first; c < columns; c += GROUP_THREADS)
        for (int64_t i = row; i < end; i++) most = larger(most, magnitude(load<D>(j.x, i, c)));
    bool stores = u.column_shift == 0 ? first < columns : threadIdx.x == 0;
    float scale = settle_scale(u, block, first >> u.column_shift, most, stores);
    for (int64_t c = first; c < columns; c += GROUP_THREADS)
        for (int64_t i = row; i < end; i += 4) {
            float scaled[4] = {};
            for (int k = 0; k < 4; k++)
                if (i + k < end) scaled[k] = load<D>(j.x, i + k, c) * scale;
            store_column4(u, scaled, i, c, end - i);
        }
}

extern "C" cudaError_t quantize_groups_launch(const tensor *x, const tensor *end, int64_t groups,
                                              const quantize_use *use, cudaStream_t stream) {
    const int64_t blocks = use->row_shift == QUANTIZE_SPAN_ALL ? 0 : x->rows >> use->row_shift,
                  width = use->column_shift == QUANTIZE_SPAN_ALL ? x->columns : (int64_t)GROUP_THREADS,
                  across = width > 0 ? (x->columns + width - 1) / width : 0;
    const int32_t *ends = end ? (const int32_t *)end->data : nullptr;
    group_job j = {view_of(x), *use, ends, x->rows / groups, groups, width, across};
    j.use.work = QUANTIZE_AMAX | QUANTIZE_SCALE | QUANTIZE_CAST;
    WITH_DTYPE(x->dtype, D,
               LAUNCH_BLOCKS(group_kernel<D>, (blocks + groups + 1) * across, GROUP_THREADS, stream, j));
    return cudaGetLastError();
}

/* ---- dequantize and transpose ---- */

template <ott_dtype D>
__global__ void __launch_bounds__(ROW_THREADS) dequantize_kernel(quantize_use u, view y) {
    row_place p = row_place_of(y.columns);
    if (p.column >= y.columns) return;
    eight e = {};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (p.column + i >= y.columns) continue;
        uint8_t code = u.codes[0].data[code_index(u.codes[0], p.row, p.column + i)];
        float scale_inv = scale_inv_of(u, p.row >> u.row_shift, (p.column + i) >> u.column_shift);
        e.x[i] = narrow_from_fp8(code, u.format) * scale_inv;
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

/* Reads x and writes y once. */
__global__ void __launch_bounds__(TILE_THREADS) transpose_kernel(transpose_job j) {
    SHARED(tile, transposed_tile);
    tile_place p = tile_place_of(j.columns);
    int64_t column = p.first_column + p.column, count = j.columns - column;
    bool vectorized = count >= 8 && ((uintptr_t)j.x | (uintptr_t)j.ld) % 8 == 0;
    own_codes codes;
#pragma unroll
    for (int k = 0; k < OWN_ROWS; k++) {
        int64_t row = p.first_row + p.row + k;
        const uint8_t *from = j.x + row * j.ld + column;
        uint32_t word[2] = {};
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i < count && row < j.rows && !vectorized) word[i / 4] |= (uint32_t)from[i] << i % 4 * 8;
        codes.row[k] = make_uint2(word[0], word[1]);
        if (row < j.rows && vectorized) codes.row[k] = *(const uint2 *)from;
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
