/* cuda/kernels/statistics: quantization statistics of a tensor (tensor/rules/statistics.h). A half warp
   measures a block of REDUCE_BLOCK elements; one thread block adds the results in order. Rarely called, so
   not tuned. */
#include "cuda/kernels/codes.h"
#include "cuda/kernels/ordered.h"
#include "tensor/ops.h"

enum { STATISTICS_THREADS = 256, STATISTICS_BLOCKS = STATISTICS_THREADS / 16 };

/* Statistics of one block. Counts are at most REDUCE_BLOCK, so fp32 is exact. */
struct block_statistics {
    float signal, noise, saturated, underflowed;
};
enum { BLOCK_STEP = sizeof(block_statistics) / sizeof(float) };

struct element_statistics {
    bool saturated, underflowed;
    float difference;
};

__device__ __forceinline__ element_statistics measure(const quantize_use &u, float x, int64_t row,
                                                      int64_t column) {
    int64_t group = quantize_group(u, row, column);
    uint8_t code = u.codes[0].data[code_index(u.codes[0], row, column)];
    return {isinf(x) || rounds_beyond(x * u.scale[group], u.format), x != 0.0f && (code & 0x7f) == 0,
            narrow_from_fp8(code, u.format) * scale_inverse(u.scale[group]) - x};
}

template <ott_dtype D>
__global__ void __launch_bounds__(STATISTICS_THREADS)
    measure_kernel(view x, quantize_use u, block_statistics *out) {
    int64_t block = (int64_t)blockIdx.x * STATISTICS_BLOCKS + threadIdx.x / 16, elements = x.rows * x.columns;
    int64_t first = block * REDUCE_BLOCK,
            end = first + REDUCE_BLOCK < elements ? first + REDUCE_BLOCK : elements;
    block_statistics s = {};
    element_walk at = element_walk_from(first + threadIdx.x % 16, x.columns);
    for (int64_t e = first + threadIdx.x % 16; e < end; e += 16, element_walk_on(at, 16, x.columns)) {
        float value = load<D>(x, at.row, at.column);
        element_statistics m = measure(u, value, at.row, at.column);
        s.signal = fmaf(value, value, s.signal);
        s.noise = fmaf(m.difference, m.difference, s.noise);
        s.saturated += m.saturated;
        s.underflowed += m.underflowed;
    }
    s = {fold16(s.signal), fold16(s.noise), fold16(s.saturated), fold16(s.underflowed)};
    if (threadIdx.x % 16 == 0 && first < elements) out[block] = s;
}

/* The largest amax, the smallest scale and the largest scale of some scale groups. */
struct scale_range {
    float amax, least, most;
};

/* Extends the range r by an amax and by scales. A NaN amax counts as the largest. Ignores NaN scales. */
__device__ __forceinline__ scale_range wider(scale_range r, float amax, float least, float most) {
    if (isnan(amax) || amax > r.amax) r.amax = amax;
    if (least < r.least) r.least = least;
    if (most > r.most) r.most = most;
    return r;
}

__device__ __forceinline__ scale_range range_of_scales(const quantize_use &u) {
    SHARED(of_warp, scale_range[ORDERED_THREADS / 32]);
    scale_range r = {0, u.scale[0], u.scale[0]};
    for (int64_t g = threadIdx.x; g < u.groups; g += ORDERED_THREADS)
        r = wider(r, u.amax[g], u.scale[g], u.scale[g]);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        float amax = __shfl_xor_sync(0xffffffffu, r.amax, step),
              least = __shfl_xor_sync(0xffffffffu, r.least, step);
        r = wider(r, amax, least, __shfl_xor_sync(0xffffffffu, r.most, step));
    }
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = r;
    __syncthreads();
    for (int w = 0; w < ORDERED_THREADS / 32; w++)
        r = wider(r, of_warp[w].amax, of_warp[w].least, of_warp[w].most);
    return r;
}

__global__ void __launch_bounds__(ORDERED_THREADS)
    collect_kernel(quantize_use u, const block_statistics *blocks, int64_t count, int64_t elements,
                   float *out) {
    double sums[BLOCK_STEP];
    for (int i = 0; i < BLOCK_STEP; i++) {
        sums[i] = ordered_sum((const float *)blocks + i, BLOCK_STEP, count);
        __syncthreads();
    }
    scale_range r = range_of_scales(u);
    if (threadIdx.x != 0) return;
    out[STATISTICS_SIGNAL] = (float)sums[0];
    out[STATISTICS_NOISE] = (float)sums[1];
    out[STATISTICS_SATURATED] = (float)(sums[2] / (double)elements);
    out[STATISTICS_UNDERFLOWED] = (float)(sums[3] / (double)elements);
    out[STATISTICS_AMAX] = r.amax;
    out[STATISTICS_SCALE_MIN] = r.least;
    out[STATISTICS_SCALE_MAX] = r.most;
}

extern "C" int64_t statistics_workspace(int64_t elements) {
    return op_reduce_blocks(elements) * (int64_t)sizeof(block_statistics);
}

extern "C" cudaError_t statistics_launch(const tensor *x, const quantize_use *use, float *out,
                                         float *workspace, cudaStream_t stream) {
    view from = view_of(x);
    quantize_use u = *use;
    int64_t elements = x->rows * x->columns, count = op_reduce_blocks(elements);
    block_statistics *blocks = (block_statistics *)workspace;
    WITH_DTYPE(x->dtype, D,
               LAUNCH_BLOCKS(measure_kernel<D>, (count + STATISTICS_BLOCKS - 1) / STATISTICS_BLOCKS,
                             STATISTICS_THREADS, stream, from, u, blocks));
    LAUNCH_BLOCKS(collect_kernel, 1, ORDERED_THREADS, stream, u, blocks, count, elements, out);
    return cudaGetLastError();
}
