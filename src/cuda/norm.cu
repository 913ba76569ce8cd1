/*
 * cuda/norm: RMSNorm forward and backward. A half warp has a row, a thread one of SUM16's lanes: each load is of 16
 * neighbours. The second pass of a thread over its numbers finds them in the cache, so the bytes moved are those of each
 * tensor once; and a thread reads again only what it has itself written, so it waits for nobody.
 */
#include "cuda/chain.h"
#include "cuda/kernels.h"

enum { NORM_THREADS = 256, NORM_ROWS = NORM_THREADS / 16 };

static inline int64_t norm_blocks(int64_t rows) {
    return (rows + NORM_ROWS - 1) / NORM_ROWS;
}
__device__ __forceinline__ int64_t norm_row() {
    return (int64_t)blockIdx.x * NORM_ROWS + threadIdx.x / 16;
}

/* ---- forward ---- */

struct norm_forward {
    view x, delta, h, y; /* delta and h may be views of nothing */
    const float *weight;
    float *rstd, eps;
};

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
        store<D>(n.y, row, c, (load<D>(from, row, c) * rstd) * n.weight[c]);
}

extern "C" cudaError_t norm_forward_launch(const tensor *x, const tensor *delta, const tensor *weight,
                                           const tensor *h, const tensor *y, const tensor *rstd, float eps,
                                           cudaStream_t stream) {
    norm_forward n = {
        view_of(x), view_of(delta), view_of(h), view_of(y), (const float *)weight->data, (float *)rstd->data,
        eps};
    WITH_DTYPE(x->dtype, D,
               LAUNCH_BLOCKS(norm_forward_kernel<D>, norm_blocks(x->rows), NORM_THREADS, stream, n));
    return cudaGetLastError();
}

/* ---- backward ---- */

struct norm_backward {
    view dy, h, dresidual, dx; /* dresidual may be a view of nothing, or dx */
    const float *weight, *rstd;
};

template <ott_dtype D> __global__ void __launch_bounds__(NORM_THREADS) norm_backward_kernel(norm_backward n) {
    int64_t row = norm_row(), columns = n.dy.columns, end = row < n.dy.rows ? columns : 0;
    float rstd = end > 0 ? n.rstd[row] : 0, sum = 0;
#pragma unroll 8
    for (int64_t c = threadIdx.x % 16; c < end; c += 16)
        sum = fmaf(load<D>(n.dy, row, c) * n.weight[c], load<D>(n.h, row, c) * rstd, sum);
    float mean = fold16(sum) / (float)columns;
#pragma unroll 8
    for (int64_t c = threadIdx.x % 16; c < end; c += 16) {
        float wdy = load<D>(n.dy, row, c) * n.weight[c], xhat = load<D>(n.h, row, c) * rstd;
        float d = (wdy - xhat * mean) * rstd;
        store<D>(n.dx, row, c, n.dresidual.data ? load<D>(n.dresidual, row, c) + d : d);
    }
}

extern "C" cudaError_t norm_backward_launch(const tensor *dy, const tensor *h, const tensor *weight,
                                            const tensor *rstd, const tensor *dresidual, const tensor *dx,
                                            cudaStream_t stream) {
    norm_backward n = {view_of(dy),
                       view_of(h),
                       view_of(dresidual),
                       view_of(dx),
                       (const float *)weight->data,
                       (const float *)rstd->data};
    WITH_DTYPE(dy->dtype, D,
               LAUNCH_BLOCKS(norm_backward_kernel<D>, norm_blocks(dy->rows), NORM_THREADS, stream, n));
    return cudaGetLastError();
}

/* What row t adds to the chain of column n of dweight. */
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
