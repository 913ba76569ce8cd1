/* cuda/gelu: GELU, alone or gated, and the soft cap of logits: each number by itself. Bytes moved: inputs and outputs once. */
#include "cuda/kernels.h"
#include "cuda/view.h"

__device__ __forceinline__ float gelu_sigmoid(float x) {
    return 1.0f / (1.0f + fmath_exp(-(x * fmaf(0.07135481627f, x * x, 1.5957691216f))));
}

struct gelu_job {
    view dy, gate, up, y, dgate, dup; /* up and dup may be views of nothing */
};

template <ott_dtype D> __global__ void __launch_bounds__(ROW_THREADS) gelu_forward_kernel(gelu_job j) {
    row_place p = row_place_of(j.gate.columns);
    if (p.column >= j.gate.columns) return;
    eight g = load8<D>(j.gate, p.row, p.column), u = {};
    if (j.up.data) u = load8<D>(j.up, p.row, p.column);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        g.x[i] = g.x[i] * gelu_sigmoid(g.x[i]);
        if (j.up.data) g.x[i] = g.x[i] * u.x[i];
    }
    store8<D>(j.y, p.row, p.column, g);
}

/* A thread stores where it has loaded, so dgate and dup may be gate and up. */
template <ott_dtype D> __global__ void __launch_bounds__(ROW_THREADS) gelu_backward_kernel(gelu_job j) {
    row_place p = row_place_of(j.gate.columns);
    if (p.column >= j.gate.columns) return;
    eight dy = load8<D>(j.dy, p.row, p.column), x = load8<D>(j.gate, p.row, p.column), u = {};
    if (j.up.data) u = load8<D>(j.up, p.row, p.column);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float square = x.x[i] * x.x[i], sig = gelu_sigmoid(x.x[i]), g = x.x[i] * sig;
        float slope = fmaf(g * (1.0f - sig), fmaf(0.21406444881f, square, 1.5957691216f), sig);
        float through = j.up.data ? dy.x[i] * u.x[i] : dy.x[i];
        u.x[i] = dy.x[i] * g;
        x.x[i] = through * slope;
    }
    store8<D>(j.dgate, p.row, p.column, x);
    if (j.dup.data) store8<D>(j.dup, p.row, p.column, u);
}

extern "C" cudaError_t gelu_forward_launch(const gelu_forward_args *a, cudaStream_t stream) {
    gelu_job j = {{}, view_of(a->gate), view_of(a->up), view_of(a->y), {}, {}};
    view_flatten(j.gate, j.up, j.y);
    WITH_DTYPE(a->y->dtype, D, LAUNCH_ROWS(gelu_forward_kernel<D>, j.gate.rows, j.gate.columns, stream, j));
    return cudaGetLastError();
}

extern "C" cudaError_t gelu_backward_launch(const gelu_backward_args *a, cudaStream_t stream) {
    gelu_job j = {view_of(a->dy), view_of(a->gate), view_of(a->up), {}, view_of(a->dgate), view_of(a->dup)};
    view_flatten(j.dy, j.gate, j.up, j.dgate, j.dup);
    WITH_DTYPE(a->dy->dtype, D, LAUNCH_ROWS(gelu_backward_kernel<D>, j.gate.rows, j.gate.columns, stream, j));
    return cudaGetLastError();
}

/* ---- soft cap ---- */

template <ott_dtype D>
__global__ void __launch_bounds__(ROW_THREADS) softcap_forward_kernel(view x, view y, float cap) {
    row_place p = row_place_of(x.columns);
    if (p.column >= x.columns) return;
    eight v = load8<D>(x, p.row, p.column);
#pragma unroll
    for (int i = 0; i < 8; i++) v.x[i] = cap * fmath_tanh(v.x[i] / cap);
    store8<D>(y, p.row, p.column, v);
}

template <ott_dtype D>
__global__ void __launch_bounds__(ROW_THREADS) softcap_backward_kernel(view dy, view y, view dx, float cap) {
    row_place p = row_place_of(dy.columns);
    if (p.column >= dy.columns) return;
    eight g = load8<D>(dy, p.row, p.column), r = load8<D>(y, p.row, p.column);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float share = r.x[i] / cap;
        g.x[i] = g.x[i] * fmaf(-share, share, 1.0f);
    }
    store8<D>(dx, p.row, p.column, g);
}

extern "C" cudaError_t softcap_forward_launch(const softcap_forward_args *a, cudaStream_t stream) {
    view x = view_of(a->x), y = view_of(a->y);
    view_flatten(x, y);
    WITH_DTYPE(a->x->dtype, D,
               LAUNCH_ROWS(softcap_forward_kernel<D>, x.rows, x.columns, stream, x, y, a->cap));
    return cudaGetLastError();
}

extern "C" cudaError_t softcap_backward_launch(const softcap_backward_args *a, cudaStream_t stream) {
    view dy = view_of(a->dy), y = view_of(a->y), dx = view_of(a->dx);
    view_flatten(dy, y, dx);
    WITH_DTYPE(a->dy->dtype, D,
               LAUNCH_ROWS(softcap_backward_kernel<D>, dy.rows, dy.columns, stream, dy, y, dx, a->cap));
    return cudaGetLastError();
}
