/*
 * cuda/reduce: sums over whole tensors and down columns, and counts. Of a sum over a tensor each half warp makes the SUM16 of
 * one block of REDUCE_BLOCK elements, and one thread adds these in order, which are 4,096 times fewer. Bytes moved: the
 * tensor once.
 */
#include "cuda/chain.h"
#include "cuda/kernels.h"
#include "cuda/ordered.h"
#include "tensor/ops.h"

enum { REDUCE_THREADS = 256, REDUCE_SUMS = REDUCE_THREADS / 16 };

template <ott_dtype D, bool SQUARES>
__global__ void __launch_bounds__(REDUCE_THREADS) block_sums_kernel(view x, float *sums) {
    int64_t block = (int64_t)blockIdx.x * REDUCE_SUMS + threadIdx.x / 16, elements = x.rows * x.columns;
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
    if (threadIdx.x % 16 == 0 && first < elements) sums[block] = lane;
}

/* sum[0] = the sums in order; with `adds` after what was there. */
__global__ void __launch_bounds__(ORDERED_THREADS)
    ordered_sum_kernel(const float *sums, int64_t count, bool adds, float *sum) {
    float whole = (float)ordered_sum(sums, 1, count);
    if (threadIdx.x == 0) sum[0] = adds ? sum[0] + whole : whole;
}

extern "C" int64_t sum_workspace(int64_t elements) {
    return op_reduce_blocks(elements) * (int64_t)sizeof(float);
}

template <ott_dtype D, bool SQUARES>
static cudaError_t block_sums_launch(const tensor *x, float *sums, cudaStream_t stream) {
    view from = view_of(x);
    view_flatten(from);
    int64_t blocks = (op_reduce_blocks(x->rows * x->columns) + REDUCE_SUMS - 1) / REDUCE_SUMS;
    LAUNCH_BLOCKS((block_sums_kernel<D, SQUARES>), blocks, REDUCE_THREADS, stream, from, sums);
    return cudaGetLastError();
}

static cudaError_t ordered_sum_launch(const float *sums, int64_t count, bool adds, const tensor *sum,
                                      cudaStream_t stream) {
    float *to = (float *)sum->data;
    LAUNCH_BLOCKS(ordered_sum_kernel, 1, ORDERED_THREADS, stream, sums, count, adds, to);
    return cudaGetLastError();
}

extern "C" cudaError_t sum_launch(const tensor *x, const tensor *sum, float *workspace, cudaStream_t stream) {
    cudaError_t status = block_sums_launch<OTT_F32, false>(x, workspace, stream);
    if (status != cudaSuccess) return status;
    return ordered_sum_launch(workspace, op_reduce_blocks(x->rows * x->columns), true, sum, stream);
}

extern "C" cudaError_t block_squares_launch(const tensor *x, const tensor *sums, cudaStream_t stream) {
    float *to = (float *)sums->data;
    return x->dtype == OTT_BF16 ? block_sums_launch<OTT_BF16, true>(x, to, stream)
                                : block_sums_launch<OTT_F32, true>(x, to, stream);
}

extern "C" cudaError_t sum_blocks_launch(const tensor *sums, const tensor *sum, cudaStream_t stream) {
    return ordered_sum_launch((const float *)sums->data, sums->columns, false, sum, stream);
}

/* ---- down the columns ---- */

template <ott_dtype D> struct column_terms { view x; };
template <ott_dtype D>
__device__ __forceinline__ chain_link link_at(const column_terms<D> &c, int64_t t, int64_t n) {
    return {load<D>(c.x, t, n), 0};
}
template <ott_dtype D>
__device__ __forceinline__ float add_link(const column_terms<D> &, float s, chain_link l) {
    return s + l.a;
}

extern "C" cudaError_t column_sum_launch(const tensor *x, const tensor *sum, cudaStream_t stream) {
    float *to = (float *)sum->data;
    WITH_DTYPE(x->dtype, D, {
        column_terms<D> rows = {view_of(x)};
        LAUNCH_BLOCKS(chain_kernel<column_terms<D>>, chain_blocks(x->columns), CHAIN_THREADS, stream, rows,
                      x->rows, x->columns, to);
    });
    return cudaGetLastError();
}

/* ---- numbers that are none ---- */

/* Which bits of a number's format, all set, say that it is not finite; of E4M3 there is only the NaN. */
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

extern "C" cudaError_t count_nonfinite_launch(const tensor *x, const tensor *count, cudaStream_t stream) {
    count_job j = {x->data, x->rows, x->columns, x->ld, nonfinite_mask(x->dtype), (int32_t *)count->data};
    if (j.ld == j.columns) j.columns *= j.rows, j.rows = 1;
    int64_t blocks = j.rows * view_row_pieces(j.columns);
    cudaError_t status = cudaMemsetAsync(j.count, 0, sizeof *j.count, stream);
    if (status != cudaSuccess) return status;
    if (x->dtype == OTT_F32)
        LAUNCH_BLOCKS(count_nonfinite_kernel<uint32_t>, blocks, ROW_THREADS, stream, j);
    else if (x->dtype == OTT_BF16 || x->dtype == OTT_F16)
        LAUNCH_BLOCKS(count_nonfinite_kernel<uint16_t>, blocks, ROW_THREADS, stream, j);
    else
        LAUNCH_BLOCKS(count_nonfinite_kernel<uint8_t>, blocks, ROW_THREADS, stream, j);
    return cudaGetLastError();
}
