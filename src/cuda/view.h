/* cuda/view: views of matrices for kernels. A kernel processes eight neighbours in a row together, widened to
   fp32. A load or store moves 16 bytes if the rows are aligned, otherwise one element, so any address and
   leading dimension work. Conversions use the hardware's instructions and match fp8/cast bit for bit. */
#ifndef CUDA_VIEW_H
#define CUDA_VIEW_H

#include "cuda/launch.h"
#include "fp8/narrow.h"
#include "tensor/tensor.h"
#include <cuda_fp16.h>

struct view {
    void *data;
    int64_t rows, columns, ld;
    bool vectors; /* every row is 16-byte aligned */
};

static inline bool view_is_aligned(const void *data, int64_t row_bytes, uintptr_t bytes) {
    return (uintptr_t)data % bytes == 0 && row_bytes % (int64_t)bytes == 0;
}
/* View of a tensor; data is NULL if t is NULL. */
static inline view view_of(const tensor *t) {
    if (!t) return {};
    int64_t size = t->dtype == OTT_F32 ? 4 : 2, row_bytes = t->rows == 1 ? 0 : t->ld * size;
    return {t->data, t->rows, t->columns, t->ld, view_is_aligned(t->data, row_bytes, 16)};
}

/* If all views with data are dense, turns each view into one long row. */
template <class... V> static inline void view_flatten(V &...v) {
    bool dense = (... && (!v.data || v.ld == v.columns || v.rows == 1));
    if (dense) (..., (v = {v.data, 1, v.rows * v.columns, v.rows * v.columns, (uintptr_t)v.data % 16 == 0}));
}
template <int N> static inline void view_flatten(view (&v)[N]) {
    bool dense = true;
    for (int k = 0; k < N; k++) dense = dense && (v[k].ld == v[k].columns || v[k].rows == 1);
    for (int k = 0; k < N && dense; k++) view_flatten(v[k]);
}

/* Runs a statement in which D is a compile-time constant: the dtype d (OTT_F32, OTT_BF16 or OTT_F16). */
#define WITH_DTYPE(d, D, ...)                                                                                \
    switch (d) {                                                                                             \
    case OTT_BF16: {                                                                                         \
        constexpr ott_dtype D = OTT_BF16;                                                                    \
        __VA_ARGS__;                                                                                         \
        break;                                                                                               \
    }                                                                                                        \
    case OTT_F16: {                                                                                          \
        constexpr ott_dtype D = OTT_F16;                                                                     \
        __VA_ARGS__;                                                                                         \
        break;                                                                                               \
    }                                                                                                        \
    default: {                                                                                               \
        constexpr ott_dtype D = OTT_F32;                                                                     \
        __VA_ARGS__;                                                                                         \
        break;                                                                                               \
    }                                                                                                        \
    }

/* Like WITH_DTYPE, for formats of optimizer state: fp32 and bf16. */
#define WITH_STATE(d, D, ...)                                                                                \
    if ((d) == OTT_BF16) {                                                                                   \
        constexpr ott_dtype D = OTT_BF16;                                                                    \
        __VA_ARGS__;                                                                                         \
    } else {                                                                                                 \
        constexpr ott_dtype D = OTT_F32;                                                                     \
        __VA_ARGS__;                                                                                         \
    }

/* ---- one element ---- */

template <ott_dtype D> struct stored { using type = uint16_t; };
template <> struct stored<OTT_F32> { using type = float; };

template <ott_dtype D> __device__ __forceinline__ float widened(typename stored<D>::type x) {
    if constexpr (D == OTT_F32)
        return x;
    else if constexpr (D == OTT_BF16)
        return cast_from_bf16(x);
    else
        return __half2float(__ushort_as_half(x));
}
template <ott_dtype D> __device__ __forceinline__ typename stored<D>::type rounded(float x) {
    if constexpr (D == OTT_F32)
        return x;
    else if constexpr (D == OTT_BF16)
        return __bfloat16_as_ushort(__float2bfloat16_rn(x));
    else
        return __half_as_ushort(__float2half_rn(x));
}
/* x rounded to format D and widened to fp32. */
template <ott_dtype D> __device__ __forceinline__ float as_stored(float x) {
    return widened<D>(rounded<D>(x));
}

template <ott_dtype D>
__device__ __forceinline__ typename stored<D>::type *number_at(const view &v, int64_t row, int64_t column) {
    return (typename stored<D>::type *)v.data + row * v.ld + column;
}
template <ott_dtype D> __device__ __forceinline__ float load(const view &v, int64_t row, int64_t column) {
    return widened<D>(*number_at<D>(v, row, column));
}
template <ott_dtype D>
__device__ __forceinline__ void store(const view &v, int64_t row, int64_t column, float x) {
    *number_at<D>(v, row, column) = rounded<D>(x);
}

/* ---- eight neighbours ---- */

struct eight {
    float x[8];
};

__device__ __forceinline__ eight eight_of(float x) {
    return {{x, x, x, x, x, x, x, x}};
}

/* Eight neighbouring elements as stored in format D. 16-bit formats take half the registers of fp32. */
template <ott_dtype D> struct held { uint32_t word[D == OTT_F32 ? 8 : 4]; };

template <ott_dtype D> __device__ __forceinline__ float number(const held<D> &h, int i) {
    if constexpr (D == OTT_F32)
        return fmath_from_bits(h.word[i]);
    else
        return widened<D>((uint16_t)(h.word[i / 2] >> i % 2 * 16));
}

template <ott_dtype D> __device__ __forceinline__ held<D> narrowed(const eight &e) {
    held<D> h;
#pragma unroll
    for (int i = 0; i < (D == OTT_F32 ? 8 : 4); i++)
        if constexpr (D == OTT_F32)
            h.word[i] = fmath_bits(e.x[i]);
        else
            h.word[i] = rounded<D>(e.x[2 * i]) | (uint32_t)rounded<D>(e.x[2 * i + 1]) << 16;
    return h;
}
template <ott_dtype D> __device__ __forceinline__ eight widened(const held<D> &h) {
    eight e;
#pragma unroll
    for (int i = 0; i < 8; i++) e.x[i] = number(h, i);
    return e;
}

/* Loads eight neighbours from a 16-byte-aligned address. */
template <ott_dtype D> __device__ __forceinline__ held<D> hold8_aligned(const void *from) {
    held<D> h;
#pragma unroll
    for (int i = 0; i < (D == OTT_F32 ? 2 : 1); i++) {
        uint4 u = ((const uint4 *)from)[i];
        h.word[4 * i] = u.x, h.word[4 * i + 1] = u.y, h.word[4 * i + 2] = u.z, h.word[4 * i + 3] = u.w;
    }
    return h;
}
/* Loads columns [column, column + 8) of a row. Reads 0 for columns from `end` on; store8 does not store these
   columns. `column` must be a multiple of 8. */
template <ott_dtype D>
__device__ __forceinline__ held<D> hold8(const view &v, int64_t row, int64_t column, int64_t end) {
    const typename stored<D>::type *from = number_at<D>(v, row, column);
    held<D> h = {};
    if (v.vectors && column + 8 <= end) return hold8_aligned<D>(from);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (column + i >= end) continue;
        if constexpr (D == OTT_F32)
            h.word[i] = fmath_bits(from[i]);
        else
            h.word[i / 2] |= (uint32_t)from[i] << i % 2 * 16;
    }
    return h;
}
template <ott_dtype D>
__device__ __forceinline__ eight load8(const view &v, int64_t row, int64_t column, int64_t end) {
    return widened(hold8<D>(v, row, column, end));
}
template <ott_dtype D> __device__ __forceinline__ eight load8(const view &v, int64_t row, int64_t column) {
    return load8<D>(v, row, column, v.columns);
}
/* Stores 16 bytes at a 16-byte-aligned address. The compiler would split an assignment into four stores. */
__device__ __forceinline__ void store16(uint4 *to, uint4 u) {
#ifdef __CUDACC__
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(u.x),
                 "r"(u.y), "r"(u.z), "r"(u.w)
                 : "memory");
#else
    *to = u;
#endif
}

/* Stores eight neighbours at a 16-byte-aligned address. */
template <ott_dtype D> __device__ __forceinline__ void store8_aligned(void *to, const held<D> &h) {
#pragma unroll
    for (int i = 0; i < (D == OTT_F32 ? 2 : 1); i++)
        store16((uint4 *)to + i,
                make_uint4(h.word[4 * i], h.word[4 * i + 1], h.word[4 * i + 2], h.word[4 * i + 3]));
}
template <ott_dtype D>
__device__ __forceinline__ void store8(const view &v, int64_t row, int64_t column, int64_t end,
                                       const held<D> &h) {
    typename stored<D>::type *to = number_at<D>(v, row, column);
    if (v.vectors && column + 8 <= end) return store8_aligned<D>(to, h);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (column + i >= end) continue;
        if constexpr (D == OTT_F32)
            to[i] = fmath_from_bits(h.word[i]);
        else
            to[i] = (uint16_t)(h.word[i / 2] >> i % 2 * 16);
    }
}
template <ott_dtype D>
__device__ __forceinline__ void store8(const view &v, int64_t row, int64_t column, int64_t end,
                                       const eight &e) {
    store8<D>(v, row, column, end, narrowed<D>(e));
}
template <ott_dtype D>
__device__ __forceinline__ void store8(const view &v, int64_t row, int64_t column, const eight &e) {
    store8<D>(v, row, column, v.columns, e);
}

/* ---- which columns a block processes ---- */

/* A row is split into pieces of ROW_PIECE columns. Each thread of a block has eight columns. */
enum { ROW_THREADS = 256, ROW_PIECE = 8 * ROW_THREADS };

/* Number of blocks of a row, of `Pieces` pieces each. */
template <int Pieces = 1> static inline int64_t view_row_pieces(int64_t columns) {
    return (columns + Pieces * ROW_PIECE - 1) / (Pieces * ROW_PIECE);
}
struct row_place {
    int64_t row, column;
};
/* Returns this thread's row and the first of its eight columns in its block's first piece, for thread block
   `block` of the matrix. Without `block`: for the calling block of a grid that covers one matrix. */
template <int Pieces = 1> __device__ __forceinline__ row_place row_place_of(int64_t block, int64_t columns) {
    unsigned blocks = (unsigned)((columns + Pieces * ROW_PIECE - 1) / (Pieces * ROW_PIECE));
    return {(unsigned)block / blocks,
            (int64_t)((unsigned)block % blocks) * Pieces * ROW_PIECE + 8 * (int64_t)threadIdx.x};
}
__device__ __forceinline__ row_place row_place_of(int64_t columns) {
    return row_place_of(blockIdx.x, columns);
}

/* ---- eight neighbours in a format chosen at run time: bf16 if `narrow`, else fp32 ---- */

/* Loads eight neighbours. Callers widen them to fp32 later, so that loads of several matrices overlap. */
__device__ __forceinline__ held<OTT_F32> hold8_state(const view &v, bool narrow, const row_place &at) {
    if (!narrow) return hold8<OTT_F32>(v, at.row, at.column, v.columns);
    held<OTT_BF16> stored = hold8<OTT_BF16>(v, at.row, at.column, v.columns);
    held<OTT_F32> h = {};
#pragma unroll
    for (int i = 0; i < 4; i++) h.word[i] = stored.word[i];
    return h;
}
__device__ __forceinline__ float state_number(const held<OTT_F32> &h, bool narrow, int i) {
    uint32_t two = h.word[i / 2], bits = i % 2 ? two & 0xffff0000u : two << 16;
    return fmath_from_bits(narrow ? bits : h.word[i]);
}
__device__ __forceinline__ void store8_state(const view &v, bool narrow, const row_place &at,
                                             const eight &e) {
    if (narrow)
        store8<OTT_BF16>(v, at.row, at.column, e);
    else
        store8<OTT_F32>(v, at.row, at.column, e);
}

/* ---- launches ---- */

/* Launches `blocks` blocks; 0: no launch. If there are too many, makes the calling function return an
   error. */
#define LAUNCH_BLOCKS(kernel, blocks, threads, stream, ...)                                                  \
    do {                                                                                                     \
        int64_t blocks_ = (blocks);                                                                          \
        if (blocks_ > INT32_MAX) return cudaErrorInvalidConfiguration;                                       \
        if (blocks_ > 0) LAUNCH(kernel, dim3((unsigned)blocks_), threads, stream, __VA_ARGS__);              \
    } while (0)

/* Like LAUNCH_BLOCKS, for a kernel whose threads find their elements by row_place_of. */
#define LAUNCH_ROWS(kernel, rows, columns, stream, ...)                                                      \
    LAUNCH_BLOCKS(kernel, (rows)*view_row_pieces(columns), ROW_THREADS, stream, __VA_ARGS__)

/* ---- SUM16 ---- */

/* SUM16 (tensor/ops.def) over each half warp. Thread l passes the sum of lane l, and all threads get the
   total. Half of the threads swap the operands of an addition, which does not change its result. */
__device__ __forceinline__ float fold16(float lane) {
#pragma unroll
    for (int step = 8; step >= 1; step /= 2) lane = lane + __shfl_xor_sync(0xffffffffu, lane, step);
    return lane;
}

#endif
