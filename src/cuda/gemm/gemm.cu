/* cuda/gemm/gemm: exact products: with the order and the bits of fp8/reference.h, element by element, slowly.
   Each thread computes one element of C. Neighbouring threads share the cache lines of the operands. Also the
   small kernels that complement cuBLASLt. */
#include "cuda/gemm/sides.h"

enum { GEMM_THREADS = 256, FP8_CODES = 256 };

/* ---- operands ---- */

/* How a kernel reads an element of a format. The value of an FP8 code is looked up in a table. */
enum class reads { f32, bf16, f16, fp8 };

/* Runs a statement in which R is a compile-time constant: the enumerator of `reads` for format d. */
#define WITH_READS(d, R, ...)                                                                                \
    switch (d) {                                                                                             \
    case OTT_F32: {                                                                                          \
        constexpr reads R = reads::f32;                                                                      \
        __VA_ARGS__;                                                                                         \
        break;                                                                                               \
    }                                                                                                        \
    case OTT_BF16: {                                                                                         \
        constexpr reads R = reads::bf16;                                                                     \
        __VA_ARGS__;                                                                                         \
        break;                                                                                               \
    }                                                                                                        \
    case OTT_F16: {                                                                                          \
        constexpr reads R = reads::f16;                                                                      \
        __VA_ARGS__;                                                                                         \
        break;                                                                                               \
    }                                                                                                        \
    default: {                                                                                               \
        constexpr reads R = reads::fp8;                                                                      \
        __VA_ARGS__;                                                                                         \
        break;                                                                                               \
    }                                                                                                        \
    }

template <reads R>
__device__ __forceinline__ float load(const void *data, int64_t at, const float *value_of) {
    if (R == reads::f32) return ((const float *)data)[at];
    if (R == reads::bf16) return cast_from_bf16(((const uint16_t *)data)[at]);
    if (R == reads::f16) return __half2float(((const __half *)data)[at]);
    return value_of[((const uint8_t *)data)[at]];
}

/* ---- the product ---- */

/* Adds the products of terms [k, end) of the contraction, in order. */
template <reads A, reads B>
__device__ __forceinline__ float chain(const gemm_job &w, int64_t i, int64_t j, int64_t k, int64_t end,
                                       const float *of_a, const float *of_b) {
    float sum = 0;
    for (; k < end; k++)
        sum = fmaf(load<A>(w.a.data, i * w.a.mn_stride + k * w.a.k_stride, of_a),
                   load<B>(w.b.data, j * w.b.mn_stride + k * w.b.k_stride, of_b), sum);
    return sum;
}

template <reads A, reads B>
__device__ __forceinline__ float scaled_sum(const gemm_job &w, int64_t i, int64_t j, const float *of_a,
                                            const float *of_b) {
    bool product = w.order == SCALE_PRODUCT;
    if (w.a.block_k == INT64_MAX) {
        float sum = chain<A, B>(w, i, j, 0, w.k, of_a, of_b), x = scale_at(w.a, i, 0),
              y = scale_at(w.b, j, 0);
        return product ? sum * (x * y) : (sum * x) * y;
    }
    float sum = 0;
    for (int64_t k = 0; k < w.k; k += w.a.block_k) {
        int64_t end = k + w.a.block_k < w.k ? k + w.a.block_k : w.k;
        float p = chain<A, B>(w, i, j, k, end, of_a, of_b), x = scale_at(w.a, i, k), y = scale_at(w.b, j, k);
        sum = product ? fmaf(p, x * y, sum) : fmaf(p * x, y, sum);
    }
    return sum;
}

/* If A (or B) is FP8, fills value_of[0] (or value_of[1]) with the values of all 256 codes. */
template <reads A, reads B>
__device__ __forceinline__ void make_values(float (&value_of)[2][FP8_CODES], const gemm_job &w) {
    if (A == reads::fp8) value_of[0][threadIdx.x] = narrow_from_fp8((uint8_t)threadIdx.x, w.a.format);
    if (B == reads::fp8) value_of[1][threadIdx.x] = narrow_from_fp8((uint8_t)threadIdx.x, w.b.format);
    __syncthreads();
}

__device__ __forceinline__ int64_t element_index() {
    return (int64_t)blockIdx.x * GEMM_THREADS + threadIdx.x;
}

template <reads A, reads B> __global__ void __launch_bounds__(GEMM_THREADS, 1) exact_kernel(gemm_job w) {
    SHARED(value_of, float[2][FP8_CODES]);
    make_values<A, B>(value_of, w);
    int64_t i = element_index() / w.c.columns, j = element_index() - i * w.c.columns;
    if (i < w.c.rows) store_result(w.c, i, j, scaled_sum<A, B>(w, i, j, value_of[0], value_of[1]));
}

static unsigned blocks_for(int64_t elements) {
    return (unsigned)((elements + GEMM_THREADS - 1) / GEMM_THREADS);
}

extern "C" cudaError_t gemm_exact_launch(const operand *a, const operand *b, const tensor *bias,
                                         const tensor *c, bool accumulate, scale_order order,
                                         cudaStream_t stream) {
    gemm_job w = {side_of(a), side_of(b), result_of(c, bias, accumulate), operand_k(a), order};
    unsigned blocks = blocks_for(c->rows * c->columns);
    WITH_READS(a->t.dtype, A,
               WITH_READS(b->t.dtype, B, LAUNCH((exact_kernel<A, B>), blocks, GEMM_THREADS, stream, w)));
    return cudaGetLastError();
}

/* ---- groups of rows ---- */

/* Returns the group that row r belongs to; j.groups if r is in no group. */
__device__ __forceinline__ int64_t group_of(const grouped_job &j, int64_t r) {
    int64_t first = 0, after = j.groups;
    while (first < after) {
        int64_t middle = (first + after) / 2;
        if (r < j.end[middle])
            after = middle;
        else
            first = middle + 1;
    }
    return first;
}

/* Each thread computes one element of c. */
template <reads A, reads B>
__global__ void __launch_bounds__(GEMM_THREADS, 1) exact_grouped_kernel(GRID_CONSTANT(grouped_job) j) {
    SHARED(value_of, float[2][FP8_CODES]);
    gemm_job w = j.product;
    make_values<A, B>(value_of, w);
    int64_t r = element_index() / w.c.columns, n = element_index() - r * w.c.columns;
    if (r >= w.c.rows) return;
    int64_t group = group_of(j, r), first = first_of(j, group);
    float sum = 0;
    if (group == j.groups && w.c.accumulate) return;
    if (group < j.groups) {
        w.a = side_of_group(w.a, false, group, first);
        w.b = side_of_group(w.b, j.deep, group, group * j.each);
        sum = scaled_sum<A, B>(w, r - first, n, value_of[0], value_of[1]);
    }
    store_result(w.c, r, n, sum);
}

template <reads A, reads B>
__global__ void __launch_bounds__(GEMM_THREADS, 1) exact_weight_kernel(GRID_CONSTANT(grouped_job) j) {
    SHARED(value_of, float[2][FP8_CODES]);
    gemm_job w = j.product;
    make_values<A, B>(value_of, w);
    int64_t i = element_index() / w.c.columns, n = element_index() - i * w.c.columns;
    if (i >= w.c.rows) return;
    int64_t group = i / j.each, first = first_of(j, group), rows = j.end[group] - first;
    if (rows <= 0) return;
    w.a = side_of_group(w.a, true, group, first);
    w.b = side_of_group(w.b, true, group, first);
    w.k = rows;
    float sum = scaled_sum<A, B>(w, i - group * j.each, n, value_of[0], value_of[1]);
    if (j.all) sum = sum * balance_of(j, group);
    store_result(w.c, i, n, sum);
}

extern "C" cudaError_t gemm_exact_grouped_launch(const grouped_gemm_args *a, bool deep, cudaStream_t stream) {
    grouped_job j = grouped_job_of(a, deep);
    if (tensor_count(*a->c) == 0) return cudaSuccess;
    unsigned blocks = blocks_for(tensor_count(*a->c));
    WITH_READS(
        a->a->t.dtype, A,
        WITH_READS(a->b->t.dtype, B, LAUNCH((exact_grouped_kernel<A, B>), blocks, GEMM_THREADS, stream, j)));
    return cudaGetLastError();
}

extern "C" cudaError_t gemm_exact_weight_launch(const grouped_gemm_weight_args *a, cudaStream_t stream) {
    grouped_job j = weight_job_of(a);
    if (tensor_count(*a->c) == 0) return cudaSuccess;
    unsigned blocks = blocks_for(tensor_count(*a->c));
    WITH_READS(
        a->a->t.dtype, A,
        WITH_READS(a->b->t.dtype, B, LAUNCH((exact_weight_kernel<A, B>), blocks, GEMM_THREADS, stream, j)));
    return cudaGetLastError();
}

/* ---- kernels that complement cuBLASLt ---- */

__global__ void __launch_bounds__(GEMM_THREADS)
    epilogue_kernel(const float *sum, int64_t sum_ld, gemm_factors f, gemm_result c) {
    int64_t i = element_index() / c.columns, j = element_index() - i * c.columns;
    if (i >= c.rows) return;
    float x = f.a ? f.a[i * f.a_step] : 1.0f, y = f.b ? f.b[j * f.b_step] : 1.0f;
    store_result(c, i, j, sum[i * sum_ld + j] * (x * y));
}

extern "C" cudaError_t gemm_epilogue_launch(const float *sum, int64_t sum_ld, const gemm_factors *factors,
                                            const tensor *bias, const tensor *c, bool accumulate,
                                            cudaStream_t stream) {
    gemm_result result = result_of(c, bias, accumulate);
    gemm_factors f = *factors;
    LAUNCH(epilogue_kernel, blocks_for(c->rows * c->columns), GEMM_THREADS, stream, sum, sum_ld, f, result);
    return cudaGetLastError();
}

template <reads R>
__global__ void __launch_bounds__(GEMM_THREADS)
    widen_kernel(view from, ott_dtype format, view to, bool bf16) {
    SHARED(value_of, float[FP8_CODES]);
    if (R == reads::fp8) value_of[threadIdx.x] = narrow_from_fp8((uint8_t)threadIdx.x, format);
    __syncthreads();
    int64_t i = element_index() / from.columns, j = element_index() - i * from.columns;
    if (i >= from.rows) return;
    float x = load<R>(from.data, i * from.ld + j, value_of);
    if (bf16)
        store<OTT_BF16>(to, i, j, x);
    else
        store<OTT_F32>(to, i, j, x);
}

extern "C" cudaError_t gemm_widen_launch(const tensor *from, const tensor *to, cudaStream_t stream) {
    view f = view_of(from), t = view_of(to);
    WITH_READS(from->dtype, R,
               LAUNCH(widen_kernel<R>, blocks_for(from->rows * from->columns), GEMM_THREADS, stream, f,
                      from->dtype, t, to->dtype == OTT_BF16));
    return cudaGetLastError();
}

__global__ void __launch_bounds__(GEMM_THREADS) scales_kernel(gemm_scales s) {
    int64_t element = (int64_t)blockIdx.x * GEMM_THREADS + threadIdx.x;
    int64_t k = element / s.mn, mn = element - k * s.mn;
    if (k < s.k)
        ((float *)s.to)[mn * s.to_mn_step + k * s.to_k_step] =
            ((const float *)s.from)[mn * s.mn_step + k * s.k_step];
}

extern "C" cudaError_t gemm_scales_launch(const gemm_scales *s, cudaStream_t stream) {
    gemm_scales scales = *s;
    LAUNCH(scales_kernel, blocks_for(s->mn * s->k), GEMM_THREADS, stream, scales);
    return cudaGetLastError();
}

__global__ void __launch_bounds__(GEMM_THREADS) tiles_kernel(gemm_scales s, scale_tiles to, int64_t count) {
    int64_t at = (int64_t)blockIdx.x * GEMM_THREADS + threadIdx.x, depth = to.along_k * SCALE_TILE_K;
    int64_t mn = at / depth, k = at - mn * depth;
    if (at >= count) return;
    uint8_t code = SCALE_TILE_PADDING;
    if (mn < s.mn && k < s.k) code = ((const uint8_t *)s.from)[scale_tiles_index(s.tiles, mn, k)];
    ((uint8_t *)s.to)[scale_tiles_index(to, mn, k)] = code;
}

extern "C" cudaError_t gemm_tiles_launch(const gemm_scales *s, int64_t along_k, cudaStream_t stream) {
    gemm_scales scales = *s;
    scale_tiles to = {along_k, 0, 0, OTT_E8M0, 0};
    int64_t count = scale_tiles_bytes(s->mn, along_k);
    LAUNCH(tiles_kernel, blocks_for(count), GEMM_THREADS, stream, scales, to, count);
    return cudaGetLastError();
}
