/*
 * bench/gpu/vector8: what the elementwise kernels share: eight neighbouring numbers of a row, their codes and
 * their largest magnitude, and what a row or a block makes of it.
 *
 * A magnitude is held as the number's bits without the sign and compared as an integer, so that a NaN is
 * larger than everything else, as in src/fp8/reference.h.
 */
#ifndef VECTOR8_H
#define VECTOR8_H

#include "elementwise.h"
#include "cuda/launch.h"

typedef __nv_fp8_interpretation_t fp8_kind;

struct bf16x8 {
    uint32_t word[4];
};
struct f32x8 {
    float number[8];
};

__device__ __forceinline__ float number(const bf16x8 &v, int i) {
    return __uint_as_float(i % 2 ? v.word[i / 2] & 0xffff0000u : v.word[i / 2] << 16);
}
__device__ __forceinline__ float number(const f32x8 &v, int i) {
    return v.number[i];
}

/* Elements [at, at + 8) of x; `at` is a multiple of 8. */
__device__ __forceinline__ void load8(bf16x8 &v, const void *x, int64_t at) {
    uint4 u = ((const uint4 *)x)[at / 8];
    v = {{u.x, u.y, u.z, u.w}};
}
__device__ __forceinline__ void load8(f32x8 &v, const void *x, int64_t at) {
    float4 a = ((const float4 *)x)[at / 4], b = ((const float4 *)x)[at / 4 + 1];
    v = {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
__device__ __forceinline__ void store8(void *x, int64_t at, const bf16x8 &v) {
    ((uint4 *)x)[at / 8] = make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]);
}

static inline bool takes_vectors(const elementwise_args *a) {
    return a->columns % 8 == 0 && a->columns > 0 && a->rows > 0;
}

/* Two numbers, rounded, in one word. */
__device__ __forceinline__ uint32_t bf16_pair(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&pair;
}

/* ---- codes ---- */

template <fp8_kind F> __device__ __forceinline__ uint32_t codes4(float a, float b, float c, float d) {
    uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, F);
    uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, F);
    return low | high << 16;
}

template <fp8_kind F, class V> __device__ __forceinline__ uint2 codes8(const V &v, float s) {
    return make_uint2(codes4<F>(number(v, 0) * s, number(v, 1) * s, number(v, 2) * s, number(v, 3) * s),
                      codes4<F>(number(v, 4) * s, number(v, 5) * s, number(v, 6) * s, number(v, 7) * s));
}

/* Each number has its own scale. */
template <fp8_kind F> __device__ __forceinline__ uint2 codes8(const bf16x8 &v, const float (&s)[8]) {
    return make_uint2(
        codes4<F>(number(v, 0) * s[0], number(v, 1) * s[1], number(v, 2) * s[2], number(v, 3) * s[3]),
        codes4<F>(number(v, 4) * s[4], number(v, 5) * s[5], number(v, 6) * s[6], number(v, 7) * s[7]));
}

__device__ __forceinline__ void store_codes8(uint8_t *q, int64_t at, uint2 codes) {
    ((uint2 *)q)[at / 8] = codes;
}

/* ---- largest magnitudes ---- */

__device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

/* `most` raised to v's magnitudes: of bf16 two to a word, of even and of odd numbers. */
__device__ __forceinline__ uint32_t raised(uint32_t most, const bf16x8 &v) {
    for (int i = 0; i < 4; i++) most = __vmaxu2(most, v.word[i] & 0x7fff7fffu);
    return most;
}
__device__ __forceinline__ uint32_t raised(uint32_t most, const f32x8 &v) {
    for (int i = 0; i < 8; i++) most = larger(most, __float_as_uint(v.number[i]) & 0x7fffffffu);
    return most;
}
/* Each number of `most` raised to v's magnitude. */
__device__ __forceinline__ void raise_each(bf16x8 &most, const bf16x8 &v) {
    for (int i = 0; i < 4; i++) most.word[i] = __vmaxu2(most.word[i], v.word[i] & 0x7fff7fffu);
}

/* The fp32 bits of the largest number in what `raised` gave for vectors V. */
template <class V> __device__ __forceinline__ uint32_t largest_bits(uint32_t most) {
    return sizeof(V) == sizeof(f32x8) ? most : larger(most << 16, most & 0xffff0000u);
}

/* The largest of the block's `bits`, for all threads. Calls that follow one another without a barrier between
   them have slots 0, 1, 0, ... */
__device__ __forceinline__ uint32_t block_largest(uint32_t bits, int slot) {
    SHARED(of_warp, uint32_t[2][32]);
    for (int step = 16; step > 0; step /= 2) bits = larger(bits, __shfl_xor_sync(0xffffffffu, bits, step));
    if (threadIdx.x % 32 == 0) of_warp[slot][threadIdx.x / 32] = bits;
    __syncthreads();
    for (unsigned w = 0; w < blockDim.x / 32; w++) bits = larger(bits, of_warp[slot][w]);
    return bits;
}

/* Looks first: few have anything to raise, and atomic operations on one address stand in a queue. */
__device__ __forceinline__ void raise_amax(float *amax, uint32_t bits) {
    if ((int)bits > __float_as_int(*amax)) atomicMax((int *)amax, (int)bits);
}

/* amax, unless it is NULL, raised to the largest of all threads' vectors V, at the end of a kernel. */
template <class V> __device__ __forceinline__ void block_raise_amax(float *amax, uint32_t most) {
    if (!amax) return;
    uint32_t bits = block_largest(largest_bits<V>(most), 0);
    if (threadIdx.x == 0) raise_amax(amax, bits);
}

__device__ __forceinline__ void raise_columns(float *column_amax, int64_t column, const bf16x8 &most) {
    for (int i = 0; i < 8; i++) raise_amax(column_amax + column + i, __float_as_uint(number(most, i)));
}

/* ---- scales ---- */

/* fp8/scale.h's scale_from_amax for E4M3. No quotient is subnormal: a power of two is what is left
   without the mantissa. */
__device__ __forceinline__ float scale_of(uint32_t amax_bits, const scale_options &o) {
    const float max = 448;
    float amax = __uint_as_float(amax_bits), scale;
    if (o.rule == SCALE_TORCHAO) {
        scale = amax <= 1e-12f ? (float)(448 / 1e-12) : max / amax; /* 1e-12f is less than 1e-12 */
    } else {
        if (amax < o.epsilon) amax = o.epsilon;
        scale = amax > 0 && amax < INFINITY ? max / amax : 1;
        if (scale == INFINITY) scale = o.infinite;
    }
    uint32_t bits = __float_as_uint(scale);
    bool power = o.power_of_two && scale > 0;
    if (power) bits = o.rule == SCALE_TORCHAO ? scale_log2_floor_bits(bits) : bits & 0x7f800000u;
    return __uint_as_float(bits);
}

static inline bool takes_rule(const elementwise_args *a) {
    bool known = a->rule.rule == SCALE_TORCHAO || a->rule.rule == SCALE_TE;
    return known && a->rule.margin == 0 && a->format == OTT_E4M3;
}

/* ---- rows ---- */

/* A row in the registers of a block: thread t has vectors t, t + ROW_THREADS, ... of 8 columns. */
enum { ROW_THREADS = 256 };

__device__ __forceinline__ int64_t row_vector(int k) {
    return 8 * ((int64_t)k * ROW_THREADS + threadIdx.x);
}

/* Row `row` of x [R,C]; zero beyond its end. */
template <int N>
__device__ __forceinline__ void load_row(bf16x8 (&v)[N], const void *x, int64_t row, int64_t columns) {
#pragma unroll
    for (int k = 0; k < N; k++) {
        v[k] = {};
        if (row_vector(k) < columns) load8(v[k], x, row * columns + row_vector(k));
    }
}

template <int N>
__device__ __forceinline__ void store_row(void *y, int64_t row, int64_t columns, const bf16x8 (&v)[N]) {
#pragma unroll
    for (int k = 0; k < N; k++)
        if (row_vector(k) < columns) store8(y, row * columns + row_vector(k), v[k]);
}

/* The row's scale from its own amax; q and inverse. `slot` as in block_largest. */
template <int N>
__device__ __forceinline__ void quantize_row(const elementwise_args &a, int64_t row, const bf16x8 (&v)[N],
                                             int slot) {
    uint32_t most = 0;
#pragma unroll
    for (int k = 0; k < N; k++) most = raised(most, v[k]);
    float scale = scale_of(block_largest(largest_bits<bf16x8>(most), slot), a.rule);
    if (threadIdx.x == 0) a.inverse[row] = 1.0f / scale;
#pragma unroll
    for (int k = 0; k < N; k++)
        if (row_vector(k) < a.columns)
            store_codes8(a.q, row * a.columns + row_vector(k), codes8<__NV_E4M3>(v[k], scale));
}

/* The block's rows are [row_begin, row_end): equal shares, the last ones smaller or empty. */
__device__ __forceinline__ int64_t row_begin(int64_t rows) {
    int64_t share = (rows + gridDim.x - 1) / gridDim.x, row = blockIdx.x * share;
    return row < rows ? row : rows;
}
__device__ __forceinline__ int64_t row_end(int64_t rows) {
    int64_t share = (rows + gridDim.x - 1) / gridDim.x, row = (blockIdx.x + 1) * share;
    return row < rows ? row : rows;
}
/* Four rows a block, more where that would be more than `most` blocks. */
static inline unsigned row_blocks(int64_t rows, unsigned most) {
    int64_t blocks = (rows + 3) / 4;
    return blocks < most ? (unsigned)blocks : most;
}

#endif
