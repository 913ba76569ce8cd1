/* cuda/kernels/reduce: sums of a tensor and of its columns, and counts. For a tensor's sum, two threads, or
   a half warp if rows are not aligned, compute the SUM16 (tensor/ops.def) of each block of REDUCE_BLOCK
   elements. One thread adds these in order. */
#include "cuda/kernels/amax.h"
#include "cuda/gemm/chain.h"
#include "cuda/kernels/kernels.h"
#include "cuda/list.h"
#include "cuda/kernels/ordered.h"
#include "tensor/rules/smooth.h"

enum { REDUCE_THREADS = 256, REDUCE_SUMS = REDUCE_THREADS / 16 };

struct block_sums_job {
    view x;
    float *sums;
};

template <ott_dtype D, bool SQUARES>
__global__ void __launch_bounds__(REDUCE_THREADS)
    block_sums_kernel(GRID_CONSTANT(job_list<block_sums_job>) list) {
    list_place place = list_place_of(list);
    const view &x = list.job[place.job].x;
    int64_t block = place.block * REDUCE_SUMS + threadIdx.x / 16, elements = x.rows * x.columns;
    int64_t first = block * REDUCE_BLOCK,
            end = first + REDUCE_BLOCK < elements ? first + REDUCE_BLOCK : elements;
    float lane = 0;
    element_walk at = element_walk_from(first + threadIdx.x % 16, x.columns);
#pragma unroll 8
    for (int64_t e = first + threadIdx.x % 16; e < end; e += 16, element_walk_on(at, 16, x.columns)) {
        float value = load<D>(x, at.row, at.column);
        lane = SQUARES ? fmaf(value, value, lane) : lane + value;
    }
    lane = fold16(lane);
    if (threadIdx.x % 16 == 0 && first < elements) list.job[place.job].sums[block] = lane;
}

/* For tensors whose elements are one aligned row. Each thread has eight lanes of SUM16, and loads their
   elements together. Elements beyond the end count as 0, which changes no sum. */
template <ott_dtype D, bool SQUARES>
__global__ void __launch_bounds__(REDUCE_THREADS)
    row_sums_kernel(GRID_CONSTANT(job_list<block_sums_job>) list) {
    list_place place = list_place_of(list);
    const view &x = list.job[place.job].x;
    int64_t block = place.block * (REDUCE_THREADS / 2) + threadIdx.x / 2, first = block * REDUCE_BLOCK;
    eight lanes = eight_of(0.0f);
#pragma unroll 4
    for (int64_t e = 8 * (threadIdx.x % 2); e < REDUCE_BLOCK; e += 16) {
        eight values = eight_of(0.0f);
        if (first + e < x.columns) values = load8<D>(x, 0, first + e);
#pragma unroll
        for (int i = 0; i < 8; i++)
            lanes.x[i] = SQUARES ? fmaf(values.x[i], values.x[i], lanes.x[i]) : lanes.x[i] + values.x[i];
    }
#pragma unroll
    for (int i = 0; i < 8; i++) lanes.x[i] = lanes.x[i] + __shfl_xor_sync(0xffffffffu, lanes.x[i], 1);
#pragma unroll
    for (int step = 4; step > 0; step /= 2)
#pragma unroll
        for (int i = 0; i < step; i++) lanes.x[i] = lanes.x[i] + lanes.x[i + step];
    if (threadIdx.x % 2 == 0 && first < x.columns) list.job[place.job].sums[block] = lanes.x[0];
}

/* Returns 0 blocks if x has another format or alignment, which another launch handles. IsRow: for
   row_sums_kernel. */
template <ott_dtype D, bool IsRow>
static int64_t fill_block_sums(const block_squares_args &a, block_sums_job &j) {
    int64_t of_block = IsRow ? REDUCE_THREADS / 2 : REDUCE_SUMS;
    j = {view_of(a.x), (float *)a.sums->data};
    view_flatten(j.x);
    if (a.x->dtype != D || (j.x.rows == 1 && j.x.vectors) != IsRow) return 0;
    return (op_reduce_blocks(a.x->rows * a.x->columns) + of_block - 1) / of_block;
}

template <ott_dtype D, bool SQUARES>
static cudaError_t launch_sums(const block_squares_args *items, int64_t count, cudaStream_t stream) {
    cudaError_t status = list_launch<row_sums_kernel<D, SQUARES>>(REDUCE_THREADS, fill_block_sums<D, true>,
                                                                  items, count, stream);
    if (status != cudaSuccess) return status;
    return list_launch<block_sums_kernel<D, SQUARES>>(REDUCE_THREADS, fill_block_sums<D, false>, items, count,
                                                      stream);
}

struct ordered_sum_job {
    const float *sums;
    int64_t count;
    float *sum;
};

/* Adds the block sums in order, and stores the total in sum[0]. ADDS: adds the total to the old sum[0]. */
template <bool ADDS>
__global__ void __launch_bounds__(ORDERED_THREADS)
    ordered_sum_kernel(GRID_CONSTANT(job_list<ordered_sum_job>) list) {
    const ordered_sum_job &j = list.job[list_place_of(list).job];
    float total = (float)ordered_sum(j.sums, 1, j.count);
    if (threadIdx.x == 0) j.sum[0] = ADDS ? j.sum[0] + total : total;
}

static int64_t fill_ordered_sum(const sum_blocks_args &a, ordered_sum_job &j) {
    j = {(const float *)a.sums->data, a.sums->columns, (float *)a.sum->data};
    return 1;
}

extern "C" int64_t sum_workspace(int64_t elements) {
    return op_reduce_blocks(elements) * (int64_t)sizeof(float);
}

extern "C" cudaError_t sum_launch(const tensor *x, const tensor *sum, float *workspace, cudaStream_t stream) {
    tensor blocks = tensor_vector(workspace, OTT_F32, op_reduce_blocks(x->rows * x->columns));
    const block_squares_args parts = {x, &blocks};
    const sum_blocks_args total = {&blocks, sum};
    cudaError_t status = launch_sums<OTT_F32, false>(&parts, 1, stream);
    if (status != cudaSuccess) return status;
    return list_launch<ordered_sum_kernel<true>>(ORDERED_THREADS, fill_ordered_sum, &total, 1, stream);
}

extern "C" cudaError_t block_squares_launch(const block_squares_args *items, int64_t count,
                                            cudaStream_t stream) {
    cudaError_t status = launch_sums<OTT_F32, true>(items, count, stream);
    return status == cudaSuccess ? launch_sums<OTT_BF16, true>(items, count, stream) : status;
}

extern "C" cudaError_t sum_blocks_launch(const sum_blocks_args *items, int64_t count, cudaStream_t stream) {
    return list_launch<ordered_sum_kernel<false>>(ORDERED_THREADS, fill_ordered_sum, items, count, stream);
}

/* ---- sums of columns ---- */

template <ott_dtype D> struct column_terms { view x; };
template <ott_dtype D>
__device__ __forceinline__ chain_link link_at(const column_terms<D> &c, int64_t t, int64_t n) {
    return {load<D>(c.x, t, n), 0};
}
template <ott_dtype D>
__device__ __forceinline__ float add_link(const column_terms<D> &, float s, chain_link l) {
    return s + l.a;
}

extern "C" cudaError_t column_sum_launch(const column_sum_args *a, cudaStream_t stream) {
    float *to = (float *)a->sum->data;
    WITH_DTYPE(a->x->dtype, D, {
        column_terms<D> rows = {view_of(a->x)};
        LAUNCH_BLOCKS(chain_kernel<column_terms<D>>, chain_blocks(a->x->columns), CHAIN_THREADS, stream, rows,
                      a->x->rows, a->x->columns, to);
    });
    return cudaGetLastError();
}

/* A thread block reads 32 columns. Each of its eight warps reads every eighth row. */
enum { CHANNEL_SCALES_THREADS = 256, CHANNEL_SCALES_WARPS = CHANNEL_SCALES_THREADS / 32 };

struct channel_scales_tile {
    uint32_t most[CHANNEL_SCALES_WARPS][32];
};

template <ott_dtype D>
__global__ void __launch_bounds__(CHANNEL_SCALES_THREADS)
    channel_scales_kernel(view x, float *power, int64_t step) {
    SHARED(tile, channel_scales_tile);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t column = blockIdx.x * (int64_t)32 + lane;
    uint32_t most = 0;
    for (int64_t row = warp; row < x.rows && column < x.columns; row += CHANNEL_SCALES_WARPS)
        most = larger(most, magnitude(load<D>(x, row, column)));
    tile.most[warp][lane] = most;
    __syncthreads();
    if (warp > 0 || column >= x.columns) return;
    for (int w = 1; w < CHANNEL_SCALES_WARPS; w++) most = larger(most, tile.most[w][lane]);
    int n = smooth_power(most);
    power[column] = fmath_power_of_two(n);
    power[step + column] = fmath_power_of_two(-n);
}

extern "C" cudaError_t channel_scales_launch(const channel_scales_args *a, cudaStream_t stream) {
    view x = view_of(a->x);
    float *power = (float *)a->power->data;
    WITH_DTYPE(a->x->dtype, D,
               LAUNCH_BLOCKS(channel_scales_kernel<D>, (x.columns + 31) / 32, CHANNEL_SCALES_THREADS, stream,
                             x, power, a->power->ld));
    return cudaGetLastError();
}

/* ---- non-finite values ---- */

/* Returns a mask: its bits are all 1 in every non-finite value of the format, and in no finite value. */
static inline uint32_t nonfinite_mask(ott_dtype d) {
    switch (d) {
    case OTT_F32: return 0x7f800000u;
    case OTT_BF16: return 0x7f80u;
    case OTT_F16: return 0x7c00u;
    case OTT_E5M2: return 0x7cu;
    default: return 0x7fu;
    }
}

struct count_job {
    const void *data;
    int64_t rows, columns, ld;
    uint32_t mask;
    int32_t *count;
};

template <class T> __global__ void __launch_bounds__(ROW_THREADS) count_nonfinite_kernel(count_job j) {
    row_place p = row_place_of(j.columns);
    const T *x = (const T *)j.data + p.row * j.ld;
    int found = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (p.column + i < j.columns) found += (x[p.column + i] & j.mask) == j.mask;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) found += __shfl_xor_sync(0xffffffffu, found, step);
    if (threadIdx.x % 32 == 0 && found > 0) atomicAdd(j.count, found);
}

extern "C" cudaError_t count_nonfinite_launch(const count_nonfinite_args *a, cudaStream_t stream) {
    const tensor *x = a->x;
    count_job j = {x->data, x->rows, x->columns, x->ld, nonfinite_mask(x->dtype), (int32_t *)a->count->data};
    if (j.ld == j.columns) j.columns *= j.rows, j.rows = 1;
    cudaError_t status = cudaMemsetAsync(j.count, 0, sizeof *j.count, stream);
    if (status != cudaSuccess) return status;
    if (x->dtype == OTT_F32)
        LAUNCH_ROWS(count_nonfinite_kernel<uint32_t>, j.rows, j.columns, stream, j);
    else if (x->dtype == OTT_BF16 || x->dtype == OTT_F16)
        LAUNCH_ROWS(count_nonfinite_kernel<uint16_t>, j.rows, j.columns, stream, j);
    else
        LAUNCH_ROWS(count_nonfinite_kernel<uint8_t>, j.rows, j.columns, stream, j);
    return cudaGetLastError();
}
