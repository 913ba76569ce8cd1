/* cuda/kernels/activate: element-wise activation functions of feed-forward layers except SwiGLU, with or
   without a gate, and the soft cap of logits. Reads each input and writes each output once. */
#include "cuda/kernels/kernels.h"
#include "cuda/view.h"
#include "tensor/rules/activate.h"

struct activate_job {
    view dy, gate, up, y, dgate, dup; /* up and dup have no data if there is no gate */
    activate_kind kind;
};

template <ott_dtype D>
__global__ void __launch_bounds__(ROW_THREADS) activate_forward_kernel(activate_job j) {
    row_place p = row_place_of(j.gate.columns);
    if (p.column >= j.gate.columns) return;
    eight x = load8<D>(j.gate, p.row, p.column), u = {};
    if (j.up.data) u = load8<D>(j.up, p.row, p.column);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        x.x[i] = activate(j.kind, x.x[i]).value;
        if (j.up.data) x.x[i] = x.x[i] * u.x[i];
    }
    store8<D>(j.y, p.row, p.column, x);
}

/* Each thread stores only the elements that it has loaded. So dgate may alias gate, and dup may alias up. */
template <ott_dtype D>
__global__ void __launch_bounds__(ROW_THREADS) activate_backward_kernel(activate_job j) {
    row_place p = row_place_of(j.gate.columns);
    if (p.column >= j.gate.columns) return;
    eight dy = load8<D>(j.dy, p.row, p.column), x = load8<D>(j.gate, p.row, p.column), u = {};
    if (j.up.data) u = load8<D>(j.up, p.row, p.column);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        activated f = activate(j.kind, x.x[i]);
        float through = j.up.data ? dy.x[i] * u.x[i] : dy.x[i];
        u.x[i] = dy.x[i] * f.value;
        x.x[i] = through * f.slope;
    }
    store8<D>(j.dgate, p.row, p.column, x);
    if (j.dup.data) store8<D>(j.dup, p.row, p.column, u);
}

extern "C" cudaError_t activate_forward_launch(const activate_forward_args *a, cudaStream_t stream) {
    activate_job j = {{}, view_of(a->gate), view_of(a->up), view_of(a->y), {}, {}, a->kind};
    view_flatten(j.gate, j.up, j.y);
    WITH_DTYPE(a->y->dtype, D,
               LAUNCH_ROWS(activate_forward_kernel<D>, j.gate.rows, j.gate.columns, stream, j));
    return cudaGetLastError();
}

extern "C" cudaError_t activate_backward_launch(const activate_backward_args *a, cudaStream_t stream) {
    activate_job j = {view_of(a->dy),    view_of(a->gate), view_of(a->up), {},
                      view_of(a->dgate), view_of(a->dup),  a->kind};
    view_flatten(j.dy, j.gate, j.up, j.dgate, j.dup);
    WITH_DTYPE(a->dy->dtype, D,
               LAUNCH_ROWS(activate_backward_kernel<D>, j.gate.rows, j.gate.columns, stream, j));
    return cudaGetLastError();
}

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
