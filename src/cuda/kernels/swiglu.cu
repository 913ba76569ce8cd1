/* cuda/kernels/swiglu: SwiGLU forward and backward, optionally with quantized copies. While a tile's values
   are in the cache, the kernel finds their amaxes, and casts them if the scales are known. */
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/tile.h"

__device__ __forceinline__ float sigmoid(float x) {
    return 1.0f / (1.0f + fmath_exp(-x));
}

template <ott_dtype D> struct swiglu_forward {
    static constexpr ott_dtype dtype = D;
    static constexpr int outputs = 1;
    int64_t rows, columns;
    view gate, up, made[1]; /* outputs: y */
    quantize_uses uses[1];
};

template <ott_dtype D>
__device__ __forceinline__ void make_eight(const swiglu_forward<D> &s, int64_t row, int64_t column) {
    eight g = load8<D>(s.gate, row, column), u = load8<D>(s.up, row, column);
#pragma unroll
    for (int i = 0; i < 8; i++) u.x[i] = (g.x[i] * sigmoid(g.x[i])) * u.x[i];
    store8<D>(s.made[0], row, column, u);
}

template <ott_dtype D> struct swiglu_backward {
    static constexpr ott_dtype dtype = D;
    static constexpr int outputs = 2;
    int64_t rows, columns;
    view dy, gate, up, made[2]; /* outputs: dgate, dup */
    quantize_uses uses[2];
};

/* Each thread stores only the elements that it has loaded. So dgate may alias gate, and dup may alias up. */
template <ott_dtype D>
__device__ __forceinline__ void make_eight(const swiglu_backward<D> &s, int64_t row, int64_t column) {
    eight dy = load8<D>(s.dy, row, column), g = load8<D>(s.gate, row, column),
          u = load8<D>(s.up, row, column);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float sig = sigmoid(g.x[i]), silu = g.x[i] * sig, dy_up = dy.x[i] * u.x[i];
        u.x[i] = dy.x[i] * silu;
        g.x[i] = dy_up * (sig * fmaf(g.x[i], 1.0f - sig, 1.0f));
    }
    store8<D>(s.made[0], row, column, g);
    store8<D>(s.made[1], row, column, u);
}

template <class S> __global__ void __launch_bounds__(ROW_THREADS) swiglu_kernel(S s) {
    row_place p = row_place_of(s.columns);
    if (p.column < s.columns) make_eight(s, p.row, p.column);
}

template <class S> static cudaError_t launch_swiglu(const S &s, bool quantizes, cudaStream_t stream) {
    if (quantizes)
        LAUNCH_BLOCKS(tile_kernel<S>, tile_blocks(s.rows, s.columns), TILE_THREADS, stream, s);
    else
        LAUNCH_ROWS(swiglu_kernel<S>, s.rows, s.columns, stream, s);
    return cudaGetLastError();
}

extern "C" cudaError_t swiglu_forward_launch(const swiglu_forward_args *a, const quantize_uses *uses,
                                             cudaStream_t stream) {
    view g = view_of(a->gate), u = view_of(a->up), to = view_of(a->y);
    if (uses->count == 0) view_flatten(g, u, to);
    WITH_DTYPE(a->gate->dtype, D, {
        swiglu_forward<D> s = {g.rows, g.columns, g, u, {to}, {*uses}};
        return launch_swiglu(s, uses->count > 0, stream);
    });
    return cudaSuccess;
}

extern "C" cudaError_t swiglu_backward_launch(const swiglu_backward_args *a, const quantize_uses uses[2],
                                              cudaStream_t stream) {
    view d = view_of(a->dy), g = view_of(a->gate), u = view_of(a->up);
    view to_gate = view_of(a->dgate), to_up = view_of(a->dup);
    bool quantizes = uses[0].count + uses[1].count > 0;
    if (!quantizes) view_flatten(d, g, u, to_gate, to_up);
    WITH_DTYPE(a->dy->dtype, D, {
        swiglu_backward<D> s = {g.rows, g.columns, d, g, u, {to_gate, to_up}, {uses[0], uses[1]}};
        return launch_swiglu(s, quantizes, stream);
    });
    return cudaSuccess;
}
