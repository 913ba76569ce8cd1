/* cuda/kernels/swiglu: SwiGLU forward and backward, optionally with quantized copies. While a tile's values
   are in registers, the kernel finds their amaxes, and casts them if the scales are known. */
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/tile.h"

/* Returns 1 / (1 + fmath_exp(-x)) with the same bits, in fewer instructions; a finite number for NaN. The
   exponential is one fourth of exp(-x), so that its exponent never overflows. Beyond the limits of x, the
   result is 0 or 1. Adding and subtracting `bias`, which is even, rounds to an integer like rintf. */
__device__ __forceinline__ float sigmoid(float x) {
    const float bias = 12582910.0f; /* 3 * 2^22 - 2: its bits shifted to the left by 23 are -2 << 23 */
    x = fminf(fmaxf(x, -89.0f), 86.0f);
    float shifted = x * -FMATH_LOG2E + bias, n = shifted - bias;
    float r = fmaf(-n, FMATH_LN2_HI, -x);
    r = fmaf(-n, FMATH_LN2_LO, r);
    float p = fmath_exp_near_zero(r);
    return 1.0f / fmaf(fmath_from_bits(fmath_bits(p) + (fmath_bits(shifted) << 23)), 4.0f, 1.0f);
}

template <ott_dtype D> struct swiglu_forward {
    static constexpr ott_dtype dtype = D;
    static constexpr int outputs = 1, rows_at_once = 4;
    struct inputs {
        held<D> gate, up;
    };
    int64_t rows, columns;
    view gate, up, made[1]; /* outputs: y */
    quantize_uses uses[1];
};

template <ott_dtype D>
__device__ __forceinline__ typename swiglu_forward<D>::inputs hold_inputs(const swiglu_forward<D> &s,
                                                                          int64_t row, int64_t column) {
    return {hold8<D>(s.gate, row, column, s.columns), hold8<D>(s.up, row, column, s.columns)};
}

template <ott_dtype D>
__device__ __forceinline__ void make_eight(const swiglu_forward<D> &,
                                           const typename swiglu_forward<D>::inputs &in, held<D> (&made)[1]) {
    eight g = widened(in.gate), u = widened(in.up);
#pragma unroll
    for (int i = 0; i < 8; i++) u.x[i] = (g.x[i] * sigmoid(g.x[i])) * u.x[i];
    made[0] = narrowed<D>(u);
}

template <ott_dtype D> struct swiglu_backward {
    static constexpr ott_dtype dtype = D;
    static constexpr int outputs = 2, rows_at_once = 2;
    struct inputs {
        held<D> dy, gate, up;
    };
    int64_t rows, columns;
    view dy, gate, up, made[2]; /* outputs: dgate, dup */
    quantize_uses uses[2];
};

template <ott_dtype D>
__device__ __forceinline__ typename swiglu_backward<D>::inputs hold_inputs(const swiglu_backward<D> &s,
                                                                           int64_t row, int64_t column) {
    return {hold8<D>(s.dy, row, column, s.columns), hold8<D>(s.gate, row, column, s.columns),
            hold8<D>(s.up, row, column, s.columns)};
}

template <ott_dtype D>
__device__ __forceinline__ void
make_eight(const swiglu_backward<D> &, const typename swiglu_backward<D>::inputs &in, held<D> (&made)[2]) {
    eight dy = widened(in.dy), g = widened(in.gate), u = widened(in.up);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float sig = sigmoid(g.x[i]), silu = g.x[i] * sig, dy_up = dy.x[i] * u.x[i];
        u.x[i] = dy.x[i] * silu;
        g.x[i] = dy_up * (sig * fmaf(g.x[i], 1.0f - sig, 1.0f));
    }
    made[0] = narrowed<D>(g);
    made[1] = narrowed<D>(u);
}

template <class S> __global__ void __launch_bounds__(ROW_THREADS) swiglu_kernel(S s) {
    row_place p = row_place_of(s.columns);
    held<S::dtype> made[S::outputs];
    if (p.column >= s.columns) return;
    make_eight(s, hold_inputs(s, p.row, p.column), made);
#pragma unroll
    for (int i = 0; i < S::outputs; i++) store8<S::dtype>(s.made[i], p.row, p.column, s.columns, made[i]);
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
