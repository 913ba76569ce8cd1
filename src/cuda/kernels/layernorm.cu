/* cuda/kernels/layernorm: LayerNorm forward and backward. Half a warp has a row: 16 threads, one for each
   lane of SUM16 (tensor/ops.def). Later passes read the row from the cache. Threads reread only their
   writes. */
#include "cuda/gemm/chain.h"
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/row.h"

enum { LAYERNORM_THREADS = 256, LAYERNORM_ROWS = LAYERNORM_THREADS / 16 };

static inline int64_t layernorm_blocks(int64_t rows) {
    return (rows + LAYERNORM_ROWS - 1) / LAYERNORM_ROWS;
}
__device__ __forceinline__ int64_t layernorm_row() {
    return (int64_t)blockIdx.x * LAYERNORM_ROWS + threadIdx.x / 16;
}

struct layernorm_forward {
    view x, delta, h, y, weight, bias, statistics; /* delta, h and bias may have no data */
    float eps;
};

template <ott_dtype D>
__global__ void __launch_bounds__(LAYERNORM_THREADS) layernorm_forward_kernel(layernorm_forward n) {
    int64_t row = layernorm_row(), columns = n.x.columns, end = row < n.x.rows ? columns : 0;
    float sum = 0, squares = 0;
    for (int64_t c = threadIdx.x % 16; c < end; c += 16) {
        float h = load<D>(n.x, row, c);
        if (n.delta.data) h = as_stored<D>(h + load<D>(n.delta, row, c));
        if (n.h.data) store<D>(n.h, row, c, h);
        sum = sum + h;
    }
    const view &from = n.h.data ? n.h : n.x;
    float mean = fold16(sum) / (float)columns;
    for (int64_t c = threadIdx.x % 16; c < end; c += 16) {
        float d = load<D>(from, row, c) - mean;
        squares = fmaf(d, d, squares);
    }
    float rstd = 1.0f / sqrtf(fold16(squares) / (float)columns + n.eps);
    if (threadIdx.x % 16 == 0 && end > 0) {
        store<OTT_F32>(n.statistics, 0, row, mean);
        store<OTT_F32>(n.statistics, 1, row, rstd);
    }
    for (int64_t c = threadIdx.x % 16; c < end; c += 16) {
        float xhat = (load<D>(from, row, c) - mean) * rstd, w = load<OTT_F32>(n.weight, 0, c);
        store<D>(n.y, row, c, n.bias.data ? fmaf(xhat, w, load<OTT_F32>(n.bias, 0, c)) : xhat * w);
    }
}

extern "C" cudaError_t layernorm_forward_launch(const layernorm_forward_args *a, cudaStream_t stream) {
    layernorm_forward n = {view_of(a->x),      view_of(a->delta), view_of(a->h),          view_of(a->y),
                           view_of(a->weight), view_of(a->bias),  view_of(a->statistics), a->eps};
    WITH_DTYPE(a->x->dtype, D,
               LAUNCH_BLOCKS(layernorm_forward_kernel<D>, layernorm_blocks(a->x->rows), LAYERNORM_THREADS,
                             stream, n));
    return cudaGetLastError();
}

struct layernorm_backward {
    view dy, h, dresidual, dx, weight, statistics; /* dresidual may have no data, or alias dx */
};

template <ott_dtype D>
__global__ void __launch_bounds__(LAYERNORM_THREADS) layernorm_backward_kernel(layernorm_backward n) {
    int64_t row = layernorm_row(), columns = n.dy.columns, end = row < n.dy.rows ? columns : 0;
    float mean = end > 0 ? load<OTT_F32>(n.statistics, 0, row) : 0, sum = 0, both = 0;
    float rstd = end > 0 ? load<OTT_F32>(n.statistics, 1, row) : 0;
    for (int64_t c = threadIdx.x % 16; c < end; c += 16) {
        float wdy = load<D>(n.dy, row, c) * load<OTT_F32>(n.weight, 0, c);
        sum = sum + wdy;
        both = fmaf(wdy, (load<D>(n.h, row, c) - mean) * rstd, both);
    }
    float m = fold16(sum) / (float)columns, k = fold16(both) / (float)columns;
    for (int64_t c = threadIdx.x % 16; c < end; c += 16) {
        float wdy = load<D>(n.dy, row, c) * load<OTT_F32>(n.weight, 0, c);
        float d = ((wdy - m) - (load<D>(n.h, row, c) - mean) * rstd * k) * rstd;
        store<D>(n.dx, row, c, n.dresidual.data ? load<D>(n.dresidual, row, c) + d : d);
    }
}

/* The links of dweight[n]: the term that each row t adds to it (cuda/gemm/chain.h). */
template <ott_dtype D> struct layernorm_weight_gradient { view dy, h, statistics; };
template <ott_dtype D>
__device__ __forceinline__ chain_link link_at(const layernorm_weight_gradient<D> &w, int64_t t, int64_t n) {
    float mean = load<OTT_F32>(w.statistics, 0, t), rstd = load<OTT_F32>(w.statistics, 1, t);
    return {load<D>(w.dy, t, n), (load<D>(w.h, t, n) - mean) * rstd};
}
template <ott_dtype D>
__device__ __forceinline__ float add_link(const layernorm_weight_gradient<D> &, float s, chain_link l) {
    return fmaf(l.a, l.b, s);
}

extern "C" cudaError_t layernorm_backward_launch(const layernorm_backward_args *a, cudaStream_t stream) {
    layernorm_backward n = {view_of(a->dy), view_of(a->h),      view_of(a->dresidual),
                            view_of(a->dx), view_of(a->weight), view_of(a->statistics)};
    WITH_DTYPE(a->dy->dtype, D, {
        LAUNCH_BLOCKS(layernorm_backward_kernel<D>, layernorm_blocks(a->dy->rows), LAYERNORM_THREADS, stream,
                      n);
        layernorm_weight_gradient<D> rows = {n.dy, n.h, n.statistics};
        if (a->dweight)
            LAUNCH_BLOCKS(chain_kernel<layernorm_weight_gradient<D>>, chain_blocks(a->dy->columns),
                          CHAIN_THREADS, stream, rows, a->dy->rows, a->dy->columns,
                          (float *)a->dweight->data);
    });
    return cudaGetLastError();
}
