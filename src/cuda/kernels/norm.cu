/* cuda/kernels/norm: RMSNorm forward and backward. For a wide row, a block of threads keeps the row in
   registers and writes the terms of its sum to shared memory. Then 16 threads add the terms, each for one
   lane of SUM16 (tensor/ops.def). For a narrow row, 16 threads add one lane each, and the second pass reads
   the row from the cache. So each tensor is read or written once. A thread rereads only its own writes. */
#include "cuda/gemm/chain.h"
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/row.h"

enum { NORM_THREADS = 256, NORM_ROWS = NORM_THREADS / 16 };

static inline int64_t norm_blocks(int64_t rows) {
    return (rows + NORM_ROWS - 1) / NORM_ROWS;
}
__device__ __forceinline__ int64_t norm_row() {
    return (int64_t)blockIdx.x * NORM_ROWS + threadIdx.x / 16;
}

/* ---- wide rows ---- */

enum { NORM_NARROW = 256 };

/* Maximum number of groups of 8 elements that a thread keeps in registers. fp32 takes twice the registers. */
static constexpr int norm_eights(ott_dtype d) {
    return d == OTT_F32 ? 2 : 4;
}

extern "C" bool norm_is_wide(const tensor *x) {
    return x->columns > NORM_NARROW && x->columns <= norm_eights(x->dtype) * ROW_PIECE;
}

/* Runs a statement with the constant N, the number of groups of 8 elements per thread in a wide row. */
#define WITH_EIGHTS(columns, D, N, ...)                                                                      \
    if ((columns) <= 2 * ROW_PIECE) {                                                                        \
        constexpr int N = 2;                                                                                 \
        __VA_ARGS__;                                                                                         \
    } else {                                                                                                 \
        constexpr int N = norm_eights(D);                                                                    \
        __VA_ARGS__;                                                                                         \
    }

/* The factors of ROW_PIECE terms of a row's sum. Term i is a[i] * b[i]. */
struct norm_terms {
    float a[ROW_PIECE], b[ROW_PIECE];
};

__device__ __forceinline__ void put_eight(float *terms, const eight &e) {
#pragma unroll
    for (int i = 0; i < 8; i++) terms[8 * threadIdx.x + i] = e.x[i];
}

/* Adds the next `count` products a[i] b[i] to this thread's lane of SUM16. Threads 0 to 15 have lanes. */
__device__ __forceinline__ float add_products(float lane, const float *a, const float *b, int64_t count) {
    if (threadIdx.x < 16)
#pragma unroll 8
        for (int i = threadIdx.x; i < count; i += 16) lane = fmaf(a[i], b[i], lane);
    return lane;
}

/* Returns the sum of a SUM16 to all threads. Each of the first 16 threads passes the sum of one lane. */
__device__ __forceinline__ float norm_total(float lane) {
    SHARED(total, float);
    if (threadIdx.x < 32) lane = fold16(lane);
    if (threadIdx.x == 0) total = lane;
    __syncthreads();
    return total;
}

/* ---- forward ---- */

struct norm_forward {
    view x, delta, h, y, weight; /* delta and h may have no data */
    float *rstd, eps;
    bool one_plus;
    quantize_uses uses; /* quantized copies of y; empty for narrow rows */
};

__device__ __forceinline__ float norm_weight(float weight, bool one_plus) {
    return one_plus ? 1.0f + weight : weight;
}

/* Computes h = x, or x + delta, for eight columns, and stores h if n.h has data. */
template <ott_dtype D>
__device__ __forceinline__ held<D> residual8(const norm_forward &n, int64_t row, int64_t column) {
    held<D> h = hold8<D>(n.x, row, column, n.x.columns);
    if (n.delta.data) {
        eight x = widened(h), delta = load8<D>(n.delta, row, column);
#pragma unroll
        for (int i = 0; i < 8; i++) x.x[i] = x.x[i] + delta.x[i];
        h = narrowed<D>(x);
    }
    if (n.h.data) store8<D>(n.h, row, column, n.h.columns, h);
    return h;
}

/* The pieces of a row use two buffers in turn. So each piece needs only one barrier, before it is read. */
template <ott_dtype D, int N>
__device__ __forceinline__ float sum_of_squares(const held<D> (&h)[N], int64_t columns) {
    SHARED(tiles, float[2][ROW_PIECE]);
    float lane = 0;
#pragma unroll
    for (int k = 0; k < N; k++) {
        put_eight(tiles[k % 2], widened(h[k]));
        __syncthreads();
        lane = add_products(lane, tiles[k % 2], tiles[k % 2], row_filled(k, columns));
    }
    return norm_total(lane);
}

template <ott_dtype D, int N>
__global__ void __launch_bounds__(ROW_THREADS) norm_forward_wide_kernel(norm_forward n) {
    int64_t row = blockIdx.x, columns = n.x.columns;
    held<D> own[N] = {};
#pragma unroll
    for (int k = 0; k < N; k++)
        if (row_column(k) < columns) own[k] = residual8<D>(n, row, row_column(k));
    float rstd = 1.0f / sqrtf(sum_of_squares<D>(own, columns) / (float)columns + n.eps);
    if (threadIdx.x == 0) n.rstd[row] = rstd;
#pragma unroll
    for (int k = 0; k < N; k++) {
        if (row_column(k) >= columns) continue;
        eight h = widened(own[k]), weight = load8<OTT_F32>(n.weight, 0, row_column(k));
#pragma unroll
        for (int i = 0; i < 8; i++) h.x[i] = (h.x[i] * rstd) * norm_weight(weight.x[i], n.one_plus);
        own[k] = narrowed<D>(h);
        store8<D>(n.y, row, row_column(k), columns, own[k]);
    }
    quantize_row<D>(own, n.uses, row, columns);
}

template <ott_dtype D>
__device__ __forceinline__ float residual_of(const norm_forward &n, int64_t row, int64_t column) {
    float x = load<D>(n.x, row, column);
    return n.delta.data ? as_stored<D>(x + load<D>(n.delta, row, column)) : x;
}

template <ott_dtype D> __global__ void __launch_bounds__(NORM_THREADS) norm_forward_kernel(norm_forward n) {
    int64_t row = norm_row(), columns = n.x.columns, end = row < n.x.rows ? columns : 0;
    float squares = 0;
#pragma unroll 8
    for (int64_t c = threadIdx.x % 16; c < end; c += 16) {
        float h = residual_of<D>(n, row, c);
        if (n.h.data) store<D>(n.h, row, c, h);
        squares = fmaf(h, h, squares);
    }
    float rstd = 1.0f / sqrtf(fold16(squares) / (float)columns + n.eps);
    if (threadIdx.x % 16 == 0 && end > 0) n.rstd[row] = rstd;
    const view &from = n.h.data ? n.h : n.x;
#pragma unroll 8
    for (int64_t c = threadIdx.x % 16; c < end; c += 16)
        store<D>(n.y, row, c,
                 (load<D>(from, row, c) * rstd) * norm_weight(load<OTT_F32>(n.weight, 0, c), n.one_plus));
}

extern "C" cudaError_t norm_forward_launch(const rmsnorm_forward_args *a, const quantize_uses *uses,
                                           cudaStream_t stream) {
    const tensor *x = a->x;
    norm_forward n = {view_of(x),    view_of(a->delta),  view_of(a->h),
                      view_of(a->y), view_of(a->weight), (float *)a->rstd->data,
                      a->eps,        a->one_plus,        *uses};
    if (norm_is_wide(x)) {
        WITH_DTYPE(
            x->dtype, D,
            WITH_EIGHTS(x->columns, D, N,
                        LAUNCH_BLOCKS((norm_forward_wide_kernel<D, N>), x->rows, ROW_THREADS, stream, n)));
    } else
        WITH_DTYPE(x->dtype, D,
                   LAUNCH_BLOCKS(norm_forward_kernel<D>, norm_blocks(x->rows), NORM_THREADS, stream, n));
    return cudaGetLastError();
}

/* ---- backward ---- */

struct norm_backward {
    view dy, h, dresidual, dx, weight; /* dresidual may have no data, or alias dx */
    const float *rstd;
    bool one_plus;
    quantize_uses uses; /* quantized copies of dx; empty for narrow rows */
};

/* wdy and xhat (tensor/ops.def) of eight columns. */
struct norm_factors {
    eight wdy, xhat;
};
template <ott_dtype D>
__device__ __forceinline__ norm_factors factors_of(const norm_backward &n, const held<D> &dy,
                                                   const held<D> &h, int64_t column, float rstd) {
    norm_factors f = {widened(dy), widened(h)};
    eight weight = load8<OTT_F32>(n.weight, 0, column);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        f.wdy.x[i] = f.wdy.x[i] * norm_weight(weight.x[i], n.one_plus);
        f.xhat.x[i] = f.xhat.x[i] * rstd;
    }
    return f;
}

/* The pieces of a row use two buffers in turn. So each piece needs only one barrier, before it is read. */
template <ott_dtype D, int N>
__device__ __forceinline__ float sum_of_factors(const norm_backward &n, const held<D> (&dy)[N],
                                                const held<D> (&h)[N], float rstd) {
    SHARED(tiles, norm_terms[2]);
    float lane = 0;
#pragma unroll
    for (int k = 0; k < N; k++) {
        norm_terms &tile = tiles[k % 2];
        if (row_column(k) < n.dy.columns) {
            norm_factors f = factors_of<D>(n, dy[k], h[k], row_column(k), rstd);
            put_eight(tile.a, f.wdy);
            put_eight(tile.b, f.xhat);
        }
        __syncthreads();
        lane = add_products(lane, tile.a, tile.b, row_filled(k, n.dy.columns));
    }
    return norm_total(lane);
}

template <ott_dtype D, int N>
__global__ void __launch_bounds__(ROW_THREADS) norm_backward_wide_kernel(norm_backward n) {
    int64_t row = blockIdx.x, columns = n.dy.columns;
    float rstd = n.rstd[row];
    held<D> dy[N] = {}, h[N] = {};
#pragma unroll
    for (int k = 0; k < N; k++) {
        if (row_column(k) >= columns) continue;
        dy[k] = hold8<D>(n.dy, row, row_column(k), columns);
        h[k] = hold8<D>(n.h, row, row_column(k), columns);
    }
    float mean = sum_of_factors<D>(n, dy, h, rstd) / (float)columns;
#pragma unroll
    for (int k = 0; k < N; k++) {
        if (row_column(k) >= columns) continue;
        norm_factors f = factors_of<D>(n, dy[k], h[k], row_column(k), rstd);
        eight d, residual = {};
        if (n.dresidual.data) residual = load8<D>(n.dresidual, row, row_column(k));
#pragma unroll
        for (int i = 0; i < 8; i++) {
            d.x[i] = (f.wdy.x[i] - f.xhat.x[i] * mean) * rstd;
            if (n.dresidual.data) d.x[i] = residual.x[i] + d.x[i];
        }
        dy[k] = narrowed<D>(d);
        store8<D>(n.dx, row, row_column(k), columns, dy[k]);
    }
    quantize_row<D>(dy, n.uses, row, columns);
}

template <ott_dtype D> __global__ void __launch_bounds__(NORM_THREADS) norm_backward_kernel(norm_backward n) {
    int64_t row = norm_row(), columns = n.dy.columns, end = row < n.dy.rows ? columns : 0;
    float rstd = end > 0 ? n.rstd[row] : 0, sum = 0;
#pragma unroll 8
    for (int64_t c = threadIdx.x % 16; c < end; c += 16)
        sum = fmaf(load<D>(n.dy, row, c) * norm_weight(load<OTT_F32>(n.weight, 0, c), n.one_plus),
                   load<D>(n.h, row, c) * rstd, sum);
    float mean = fold16(sum) / (float)columns;
#pragma unroll 8
    for (int64_t c = threadIdx.x % 16; c < end; c += 16) {
        float wdy = load<D>(n.dy, row, c) * norm_weight(load<OTT_F32>(n.weight, 0, c), n.one_plus),
              xhat = load<D>(n.h, row, c) * rstd;
        float d = (wdy - xhat * mean) * rstd;
        store<D>(n.dx, row, c, n.dresidual.data ? load<D>(n.dresidual, row, c) + d : d);
    }
}

extern "C" cudaError_t norm_backward_launch(const rmsnorm_backward_args *a, const quantize_uses *uses,
                                            cudaStream_t stream) {
    const tensor *dy = a->dy;
    norm_backward n = {view_of(dy),           view_of(a->h),
                       view_of(a->dresidual), view_of(a->dx),
                       view_of(a->weight),    (const float *)a->rstd->data,
                       a->one_plus,           *uses};
    if (norm_is_wide(dy)) {
        WITH_DTYPE(
            dy->dtype, D,
            WITH_EIGHTS(dy->columns, D, N,
                        LAUNCH_BLOCKS((norm_backward_wide_kernel<D, N>), dy->rows, ROW_THREADS, stream, n)));
    } else
        WITH_DTYPE(dy->dtype, D,
                   LAUNCH_BLOCKS(norm_backward_kernel<D>, norm_blocks(dy->rows), NORM_THREADS, stream, n));
    return cudaGetLastError();
}

/* The links of dweight[n]: the term that each row t adds to it (cuda/gemm/chain.h). */
template <ott_dtype D> struct weight_gradient {
    view dy, h;
    const float *rstd;
};
template <ott_dtype D>
__device__ __forceinline__ chain_link link_at(const weight_gradient<D> &w, int64_t t, int64_t n) {
    return {load<D>(w.dy, t, n), load<D>(w.h, t, n) * w.rstd[t]};
}
template <ott_dtype D>
__device__ __forceinline__ float add_link(const weight_gradient<D> &, float s, chain_link l) {
    return fmaf(l.a, l.b, s);
}

extern "C" cudaError_t norm_weight_gradient_launch(const tensor *dy, const tensor *h, const tensor *rstd,
                                                   const tensor *dweight, cudaStream_t stream) {
    const float *scale = (const float *)rstd->data;
    float *sum = (float *)dweight->data;
    WITH_DTYPE(dy->dtype, D, {
        weight_gradient<D> rows = {view_of(dy), view_of(h), scale};
        LAUNCH_BLOCKS(chain_kernel<weight_gradient<D>>, chain_blocks(dy->columns), CHAIN_THREADS, stream,
                      rows, dy->rows, dy->columns, sum);
    });
    return cudaGetLastError();
}
