/* cuda/gemm/gemm: a product in exactly the order of fp8/reference.h, element by element, slowly. Each thread
   computes one element of C. Neighbouring threads share the cache lines of the operands. */
#include "cuda/gemm/gemm.h"
#include "cuda/view.h"
#include "base/fmath.h"
#include "fp8/narrow.h"
#include <cuda_fp16.h>

enum { GEMM_THREADS = 256, FP8_CODES = 256 };

/* ---- operands ---- */

struct gemm_side {
    const void *data;
    int64_t mn_stride, k_stride; /* strides in elements */
    const void *scale_inv;
    int64_t block_mn, block_k, mn_step, k_step;
    scale_tiles tiles;
    ott_dtype format;
};

/* Same as granularity_block, which kernels' C++ sources cannot call. */
static scale_block block_of(granularity g) {
    static const scale_block blocks[] = {
#define X(constant, name, mn, k, scale, levels) {(mn) ? (mn) : INT64_MAX, (k) ? (k) : INT64_MAX},
        GRANULARITY_MAP(X)
#undef X
    };
    return blocks[g];
}

static gemm_side side_of(const operand *o) {
    scale_block block = block_of(o->grain);
    return {o->t.data,
            o->transposed ? 1 : o->t.ld,
            o->transposed ? o->t.ld : 1,
            o->scale_inv,
            block.mn,
            block.k,
            o->mn_step,
            o->k_step,
            o->tiles,
            o->t.dtype};
}

__device__ __forceinline__ float scale_at(const gemm_side &s, int64_t mn, int64_t k) {
    if (!s.scale_inv) return 1.0f;
    return scale_inv_at(s.scale_inv, s.mn_step, s.k_step, s.tiles, mn / s.block_mn, k / s.block_k);
}

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

struct gemm_result {
    void *data;
    int64_t rows, columns, ld;
    const float *bias; /* bias of each column; NULL: no bias */
    ott_dtype format;
    bool accumulate;
};

static gemm_result result_of(const tensor *c, const tensor *bias, bool accumulate) {
    const float *added = bias ? (const float *)bias->data : nullptr;
    return {c->data, c->rows, c->columns, c->ld, added, c->dtype, accumulate};
}

__device__ __forceinline__ float load_result(const gemm_result &c, int64_t at) {
    if (c.format == OTT_F32) return ((const float *)c.data)[at];
    if (c.format == OTT_BF16) return cast_from_bf16(((const uint16_t *)c.data)[at]);
    return __half2float(((const __half *)c.data)[at]);
}

/* Stores element (i, j) of c: the scaled sum `value`, plus the bias and the old c if used. */
__device__ __forceinline__ void store_result(const gemm_result &c, int64_t i, int64_t j, float value) {
    int64_t at = i * c.ld + j;
    if (c.bias) value += c.bias[j];
    if (c.accumulate) value += load_result(c, at);
    if (c.format == OTT_F32)
        ((float *)c.data)[at] = value;
    else if (c.format == OTT_BF16)
        ((uint16_t *)c.data)[at] = cast_to_bf16(value);
    else
        ((__half *)c.data)[at] = __float2half_rn(value);
}

/* ---- the product ---- */

struct gemm_job {
    gemm_side a, b;
    gemm_result c;
    int64_t k;
    scale_order order;
};

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

template <reads A, reads B> __global__ void __launch_bounds__(GEMM_THREADS, 1) gemm_kernel(gemm_job w) {
    SHARED(value_of, float[2][FP8_CODES]);
    make_values<A, B>(value_of, w);
    int64_t i = element_index() / w.c.columns, j = element_index() - i * w.c.columns;
    if (i < w.c.rows) store_result(w.c, i, j, scaled_sum<A, B>(w, i, j, value_of[0], value_of[1]));
}

static unsigned blocks_for(int64_t elements) {
    return (unsigned)((elements + GEMM_THREADS - 1) / GEMM_THREADS);
}

extern "C" cudaError_t gemm_launch(const operand *a, const operand *b, const tensor *bias, const tensor *c,
                                   bool accumulate, scale_order order, cudaStream_t stream) {
    gemm_job w = {side_of(a), side_of(b), result_of(c, bias, accumulate), operand_k(a), order};
    unsigned blocks = blocks_for(c->rows * c->columns);
    WITH_READS(a->t.dtype, A,
               WITH_READS(b->t.dtype, B, LAUNCH((gemm_kernel<A, B>), blocks, GEMM_THREADS, stream, w)));
    return cudaGetLastError();
}

/* ---- groups of rows ---- */

struct grouped_job {
    gemm_job product;
    const int32_t *end, *all; /* all: see grouped_gemm_weight_args; NULL: gradients are not balanced */
    int64_t groups;
    int64_t all_step, all_parts, all_groups, all_first;
    int64_t each; /* rows of one expert in the expert weights */
    bool deep;
};

__device__ __forceinline__ int64_t first_of(const grouped_job &j, int64_t group) {
    return group > 0 ? j.end[group - 1] : 0;
}

__device__ __forceinline__ float balance_of(const grouped_job &j, int64_t group) {
    return route_balance_factor(j.all, j.all_step, j.all_parts, j.all_groups, j.all_first + group);
}

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

/* Returns the operand that one group multiplies, as operand_group does (tensor/operand.h). first: where the
   group begins in the dimension that is divided into groups. */
template <reads R>
__device__ __forceinline__ gemm_side side_of_group(gemm_side s, bool deep, int64_t group, int64_t first) {
    const int64_t size = R == reads::f32 ? 4 : R == reads::fp8 ? 1 : 2;
    int64_t block = qtensor_group_block(group, first, deep ? s.block_k : s.block_mn);
    s.data = (const char *)s.data + first * (deep ? s.k_stride : s.mn_stride) * size;
    if (s.scale_inv)
        s.scale_inv =
            scale_inv_view(s.scale_inv, s.mn_step, s.k_step, &s.tiles, deep ? 0 : block, deep ? block : 0);
    return s;
}

/* Each thread computes one element of c. */
template <reads A, reads B>
__global__ void __launch_bounds__(GEMM_THREADS, 1) grouped_kernel(GRID_CONSTANT(grouped_job) j) {
    SHARED(value_of, float[2][FP8_CODES]);
    gemm_job w = j.product;
    make_values<A, B>(value_of, w);
    int64_t r = element_index() / w.c.columns, n = element_index() - r * w.c.columns;
    if (r >= w.c.rows) return;
    int64_t group = group_of(j, r), first = first_of(j, group);
    float sum = 0;
    if (group == j.groups && w.c.accumulate) return;
    if (group < j.groups) {
        w.a = side_of_group<A>(w.a, false, group, first);
        w.b = side_of_group<B>(w.b, j.deep, group, group * j.each);
        sum = scaled_sum<A, B>(w, r - first, n, value_of[0], value_of[1]);
    }
    store_result(w.c, r, n, sum);
}

template <reads A, reads B>
__global__ void __launch_bounds__(GEMM_THREADS, 1) grouped_weight_kernel(GRID_CONSTANT(grouped_job) j) {
    SHARED(value_of, float[2][FP8_CODES]);
    gemm_job w = j.product;
    make_values<A, B>(value_of, w);
    int64_t i = element_index() / w.c.columns, n = element_index() - i * w.c.columns;
    if (i >= w.c.rows) return;
    int64_t group = i / j.each, first = first_of(j, group), rows = j.end[group] - first;
    if (rows <= 0) return;
    w.a = side_of_group<A>(w.a, true, group, first);
    w.b = side_of_group<B>(w.b, true, group, first);
    w.k = rows;
    float sum = scaled_sum<A, B>(w, i - group * j.each, n, value_of[0], value_of[1]);
    if (j.all) sum = sum * balance_of(j, group);
    store_result(w.c, i, n, sum);
}

extern "C" cudaError_t gemm_grouped_launch(const grouped_gemm_args *a, bool deep, cudaStream_t stream) {
    grouped_job j = {};
    j.product = {side_of(a->a), side_of(a->b), result_of(a->c, nullptr, a->accumulate), operand_k(a->a),
                 a->spec.order};
    j.end = (const int32_t *)a->end->data;
    j.groups = a->end->columns;
    j.each = deep ? j.product.k : a->c->columns;
    j.deep = deep;
    if (tensor_count(*a->c) == 0) return cudaSuccess;
    unsigned blocks = blocks_for(tensor_count(*a->c));
    WITH_READS(a->a->t.dtype, A,
               WITH_READS(a->b->t.dtype, B, LAUNCH((grouped_kernel<A, B>), blocks, GEMM_THREADS, stream, j)));
    return cudaGetLastError();
}

extern "C" cudaError_t gemm_grouped_weight_launch(const grouped_gemm_weight_args *a, cudaStream_t stream) {
    grouped_job j = {};
    j.product = {side_of(a->a), side_of(a->b), result_of(a->c, nullptr, true), operand_k(a->a),
                 a->spec.order};
    j.end = (const int32_t *)a->end->data;
    j.groups = a->end->columns;
    j.each = operand_mn(a->a);
    if (a->all) {
        j.all = (const int32_t *)a->all->data;
        j.all_step = a->all->ld;
        j.all_parts = a->all->rows;
        j.all_groups = a->all->columns;
        j.all_first = a->first;
    }
    if (tensor_count(*a->c) == 0) return cudaSuccess;
    unsigned blocks = blocks_for(tensor_count(*a->c));
    WITH_READS(
        a->a->t.dtype, A,
        WITH_READS(a->b->t.dtype, B, LAUNCH((grouped_weight_kernel<A, B>), blocks, GEMM_THREADS, stream, j)));
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
