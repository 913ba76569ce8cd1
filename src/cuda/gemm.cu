/*
 * cuda/gemm: the product element by element, slow and right. A thread reads a line of each operand (from the caches, where
 * neighbours share them) and adds in order, so that its bits are those of fp8/reference.h.
 */
#include "cuda/gemm.h"
#include "cuda/launch.h"
#include "base/fmath.h"
#include "fp8/narrow.h"
#include <cuda_fp16.h>

enum { GEMM_THREADS = 256, FP8_CODES = 256 };

/* ---- operands ---- */

struct gemm_side {
    const void *data;
    int64_t mn_stride, k_stride; /* elements */
    const float *scale_inv;
    int64_t block_mn, block_k, mn_step, k_step;
    ott_dtype format;
};

/* granularity_block, which is C. */
static scale_block block_of(granularity g) {
    static const scale_block blocks[] = {
#define X(constant, name, mn, k) {(mn) ? (mn) : INT64_MAX, (k) ? (k) : INT64_MAX},
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
            o->t.dtype};
}

__device__ __forceinline__ float scale_at(const gemm_side &s, int64_t mn, int64_t k) {
    return s.scale_inv ? s.scale_inv[mn / s.block_mn * s.mn_step + k / s.block_k * s.k_step] : 1.0f;
}

/* How an element is read: of a format, or, FP8, by the table of its codes. */
enum class reads { f32, bf16, f16, fp8 };

static reads reads_of(ott_dtype d) {
    return d == OTT_F32 ? reads::f32 : d == OTT_BF16 ? reads::bf16 : d == OTT_F16 ? reads::f16 : reads::fp8;
}

template <reads R>
__device__ __forceinline__ float load(const void *data, int64_t at, const float *value_of) {
    if (R == reads::f32) return ((const float *)data)[at];
    if (R == reads::bf16) return cast_from_bf16(((const uint16_t *)data)[at]);
    if (R == reads::f16) return __half2float(((const __half *)data)[at]);
    return value_of[((const uint8_t *)data)[at]];
}

/* ---- the result ---- */

struct gemm_result {
    void *data;
    int64_t rows, columns, ld;
    const float *bias; /* NULL: none */
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

/* Element (i, j) from the scaled sum. */
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

/* The chain over [k, end). */
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

template <reads A, reads B> __global__ void __launch_bounds__(GEMM_THREADS, 1) gemm_kernel(gemm_job w) {
    SHARED(value_of, float[2][FP8_CODES]);
    if (A == reads::fp8) value_of[0][threadIdx.x] = narrow_from_fp8((uint8_t)threadIdx.x, w.a.format);
    if (B == reads::fp8) value_of[1][threadIdx.x] = narrow_from_fp8((uint8_t)threadIdx.x, w.b.format);
    __syncthreads();
    int64_t element = (int64_t)blockIdx.x * GEMM_THREADS + threadIdx.x;
    int64_t i = element / w.c.columns, j = element - i * w.c.columns;
    if (i < w.c.rows) store_result(w.c, i, j, scaled_sum<A, B>(w, i, j, value_of[0], value_of[1]));
}

static unsigned blocks_for(int64_t elements) {
    return (unsigned)((elements + GEMM_THREADS - 1) / GEMM_THREADS);
}

template <reads A, reads B> static void launch(const gemm_job &w, cudaStream_t stream) {
    LAUNCH((gemm_kernel<A, B>), blocks_for(w.c.rows * w.c.columns), GEMM_THREADS, stream, w);
}

template <reads A> static void launch_a(const gemm_job &w, cudaStream_t stream) {
    switch (reads_of(w.b.format)) {
    case reads::f32: launch<A, reads::f32>(w, stream); break;
    case reads::bf16: launch<A, reads::bf16>(w, stream); break;
    case reads::f16: launch<A, reads::f16>(w, stream); break;
    case reads::fp8: launch<A, reads::fp8>(w, stream); break;
    }
}

extern "C" cudaError_t gemm_launch(const operand *a, const operand *b, const tensor *bias, const tensor *c,
                                   bool accumulate, scale_order order, cudaStream_t stream) {
    gemm_job w = {side_of(a), side_of(b), result_of(c, bias, accumulate), operand_k(a), order};
    switch (reads_of(a->t.dtype)) {
    case reads::f32: launch_a<reads::f32>(w, stream); break;
    case reads::bf16: launch_a<reads::bf16>(w, stream); break;
    case reads::f16: launch_a<reads::f16>(w, stream); break;
    case reads::fp8: launch_a<reads::fp8>(w, stream); break;
    }
    return cudaGetLastError();
}

/* ---- around the library ---- */

__global__ void __launch_bounds__(GEMM_THREADS) epilogue_kernel(const float *sum, gemm_result c) {
    int64_t element = (int64_t)blockIdx.x * GEMM_THREADS + threadIdx.x;
    int64_t i = element / c.columns, j = element - i * c.columns;
    if (i < c.rows) store_result(c, i, j, sum[element]);
}

extern "C" cudaError_t gemm_epilogue_launch(const float *sum, const tensor *bias, const tensor *c,
                                            bool accumulate, cudaStream_t stream) {
    gemm_result result = result_of(c, bias, accumulate);
    LAUNCH(epilogue_kernel, blocks_for(c->rows * c->columns), GEMM_THREADS, stream, sum, result);
    return cudaGetLastError();
}

__global__ void __launch_bounds__(GEMM_THREADS) scales_kernel(gemm_scales s) {
    int64_t element = (int64_t)blockIdx.x * GEMM_THREADS + threadIdx.x;
    int64_t k = element / s.mn, mn = element - k * s.mn;
    if (k < s.k) ((float *)s.to)[mn * s.to_mn_step + k * s.to_k_step] = s.from[mn * s.mn_step + k * s.k_step];
}

extern "C" cudaError_t gemm_scales_launch(const gemm_scales *s, cudaStream_t stream) {
    gemm_scales scales = *s;
    LAUNCH(scales_kernel, blocks_for(s->mn * s->k), GEMM_THREADS, stream, scales);
    return cudaGetLastError();
}

enum { MX_LINES = 128, MX_DEPTH = 4, MX_TILE = MX_LINES * MX_DEPTH };

/* A power of two's exponent field is its E8M0 code; 2^-127, the only one that is denormal, has 0 too. */
__global__ void __launch_bounds__(GEMM_THREADS)
    mx_scales_kernel(gemm_scales s, int64_t tiles, int64_t count) {
    int64_t at = (int64_t)blockIdx.x * GEMM_THREADS + threadIdx.x;
    if (at >= count) return;
    int64_t tile = at / MX_TILE, within = at % MX_TILE;
    int64_t line = tile / tiles * MX_LINES + within % 16 / 4 * 32 + within / 16;
    int64_t block = tile % tiles * MX_DEPTH + within % 4;
    bool there = line < s.mn && block < s.k;
    float scale = there ? s.from[line * s.mn_step + block * s.k_step] : 1.0f;
    ((uint8_t *)s.to)[at] = (uint8_t)(fmath_bits(scale) >> 23);
}

extern "C" cudaError_t gemm_mx_scales_launch(const gemm_scales *s, int64_t tiles, cudaStream_t stream) {
    gemm_scales scales = *s;
    int64_t count = (s->mn + MX_LINES - 1) / MX_LINES * tiles * MX_TILE;
    LAUNCH(mx_scales_kernel, blocks_for(count), GEMM_THREADS, stream, scales, tiles, count);
    return cudaGetLastError();
}
