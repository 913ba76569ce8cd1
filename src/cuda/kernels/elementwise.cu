/* cuda/kernels/elementwise: convert, add, multiply, dropout, rope. Reads inputs and writes outputs once. */
#include "cuda/kernels/kernels.h"
#include "cuda/view.h"
#include "tensor/rules/dropout.h"

template <ott_dtype X, ott_dtype Y>
__global__ void __launch_bounds__(ROW_THREADS) convert_kernel(view x, view y) {
    row_place p = row_place_of(x.columns);
    if (p.column < x.columns) store8<Y>(y, p.row, p.column, load8<X>(x, p.row, p.column));
}

extern "C" cudaError_t kernels_find(void) {
    struct cudaFuncAttributes found;
    return cudaFuncGetAttributes(&found, (const void *)convert_kernel<OTT_F32, OTT_F32>);
}

extern "C" cudaError_t convert_launch(const convert_args *a, cudaStream_t stream) {
    view from = view_of(a->x), to = view_of(a->y);
    view_flatten(from, to);
    WITH_DTYPE(a->x->dtype, X,
               WITH_DTYPE(a->y->dtype, Y,
                          LAUNCH_ROWS((convert_kernel<X, Y>), from.rows, from.columns, stream, from, to)));
    return cudaGetLastError();
}

template <ott_dtype D, ott_dtype E>
__global__ void __launch_bounds__(ROW_THREADS) add_kernel(view x, view delta, view y) {
    row_place p = row_place_of(x.columns);
    if (p.column >= x.columns) return;
    eight a = load8<D>(x, p.row, p.column), b = load8<E>(delta, p.row, p.column);
#pragma unroll
    for (int i = 0; i < 8; i++) a.x[i] = a.x[i] + b.x[i];
    store8<D>(y, p.row, p.column, a);
}

extern "C" cudaError_t add_launch(const add_args *a, cudaStream_t stream) {
    view x = view_of(a->x), delta = view_of(a->delta), sum = view_of(a->y);
    view_flatten(x, delta, sum);
    WITH_DTYPE(a->x->dtype, D,
               WITH_DTYPE(a->delta->dtype, E,
                          LAUNCH_ROWS((add_kernel<D, E>), x.rows, x.columns, stream, x, delta, sum)));
    return cudaGetLastError();
}

template <ott_dtype D>
__global__ void __launch_bounds__(ROW_THREADS) multiply_kernel(view x, view y, float factor) {
    row_place p = row_place_of(x.columns);
    if (p.column >= x.columns) return;
    eight a = load8<D>(x, p.row, p.column);
#pragma unroll
    for (int i = 0; i < 8; i++) a.x[i] = a.x[i] * factor;
    store8<D>(y, p.row, p.column, a);
}

extern "C" cudaError_t multiply_launch(const multiply_args *a, cudaStream_t stream) {
    view from = view_of(a->x), to = view_of(a->y);
    view_flatten(from, to);
    WITH_DTYPE(a->x->dtype, D,
               LAUNCH_ROWS(multiply_kernel<D>, from.rows, from.columns, stream, from, to, a->factor));
    return cudaGetLastError();
}

template <ott_dtype X, ott_dtype Y>
__global__ void __launch_bounds__(ROW_THREADS)
    multiply_columns_kernel(view x, view factor, view y, bool accumulate) {
    row_place p = row_place_of(x.columns);
    if (p.column >= x.columns) return;
    eight a = load8<X>(x, p.row, p.column), k = load8<OTT_F32>(factor, 0, p.column), sum = {};
    if (accumulate) sum = load8<Y>(y, p.row, p.column);
#pragma unroll
    for (int i = 0; i < 8; i++) a.x[i] = accumulate ? fmaf(a.x[i], k.x[i], sum.x[i]) : a.x[i] * k.x[i];
    store8<Y>(y, p.row, p.column, a);
}

extern "C" cudaError_t multiply_columns_launch(const multiply_columns_args *a, cudaStream_t stream) {
    view x = view_of(a->x), factor = view_of(a->factor), y = view_of(a->y);
    WITH_DTYPE(a->x->dtype, X,
               WITH_DTYPE(a->y->dtype, Y,
                          LAUNCH_ROWS((multiply_columns_kernel<X, Y>), x.rows, x.columns, stream, x, factor,
                                      y, a->accumulate)));
    return cudaGetLastError();
}

/* ---- dropout ---- */

struct dropout_job {
    view x, y;
    const int32_t *token;
    float scale, rate;
    uint64_t seed, stream;
    int64_t first, row_step;
};

template <ott_dtype D> __global__ void __launch_bounds__(ROW_THREADS) dropout_kernel(dropout_job j) {
    row_place p = row_place_of(j.x.columns);
    if (p.column >= j.x.columns) return;
    eight a = load8<D>(j.x, p.row, p.column);
    uint64_t n = dropout_row(j.token, p.row, j.first, j.row_step) + (uint64_t)p.column;
    rng_block draws = rng_philox(j.seed, j.stream, n / 4);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (i > 0 && (n + i) % 4 == 0) draws = rng_philox(j.seed, j.stream, (n + i) / 4);
        a.x[i] = a.x[i] * dropout_factor(draws, n + i, j.rate, j.scale);
    }
    store8<D>(j.y, p.row, p.column, a);
}

extern "C" cudaError_t dropout_launch(const dropout_args *a, cudaStream_t stream) {
    dropout_job j = {view_of(a->x), view_of(a->y), (const int32_t *)a->token->data,
                     a->scale,      a->rate,       a->seed,
                     a->stream,     a->first,      a->row_step};
    WITH_DTYPE(a->x->dtype, D, LAUNCH_ROWS(dropout_kernel<D>, j.x.rows, j.x.columns, stream, j));
    return cudaGetLastError();
}

/* ---- rotary positions ---- */

/* A thread rotates 8 pairs; a head has `eights` threads. The head's first `before` columns do not change. */
struct rope_job {
    view x, cosine, sine;
    const int32_t *position;
    int64_t head_dim, before, half, eights;
    bool inverse;
};

/* One thread rotates the pairs [j, j + 8) of a head. first: the first rotated column of this head. at: the
   row of the cos and sin tables. exists: false if the position is beyond the tables. */
struct rope_place {
    int64_t row, first, j, at;
    bool exists;
};

__device__ __forceinline__ rope_place rope_place_of(const rope_job &r) {
    row_place p = row_place_of(8 * r.eights * (r.x.columns / r.head_dim));
    int64_t head = p.column / 8 / r.eights, j = (p.column / 8 - head * r.eights) * 8;
    int64_t at = head * r.head_dim < r.x.columns ? r.position[p.row] : 0;
    bool exists = at >= 0 && at < r.cosine.rows;
    return {p.row, head * r.head_dim + r.before, j, exists ? at : 0, exists};
}

template <ott_dtype D> __global__ void __launch_bounds__(ROW_THREADS) rope_kernel(rope_job r) {
    rope_place p = rope_place_of(r);
    if (p.first >= r.x.columns) return;
    view low = r.x, high = r.x; /* views of the first and the second half of the rotated columns */
    low.data = number_at<D>(r.x, 0, p.first);
    high.data = number_at<D>(r.x, 0, p.first + r.half);
    eight a = load8<D>(low, p.row, p.j, r.half), b = load8<D>(high, p.row, p.j, r.half);
    eight c = load8<OTT_F32>(r.cosine, p.at, p.j, r.half), s = load8<OTT_F32>(r.sine, p.at, p.j, r.half);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float x0 = a.x[i], x1 = b.x[i], sine = r.inverse ? -s.x[i] : s.x[i];
        a.x[i] = p.exists ? fmaf(x0, c.x[i], -(x1 * sine)) : NAN;
        b.x[i] = p.exists ? fmaf(x1, c.x[i], x0 * sine) : NAN;
    }
    store8<D>(low, p.row, p.j, r.half, a);
    store8<D>(high, p.row, p.j, r.half, b);
}

/* Like rope_kernel, for interleaved pairs (adjacent elements). Each thread has eight pairs of a head. */
template <ott_dtype D> __global__ void __launch_bounds__(ROW_THREADS) rope_interleaved_kernel(rope_job r) {
    rope_place p = rope_place_of(r);
    if (p.first >= r.x.columns) return;
    for (int64_t i = p.j; i < p.j + 8 && i < r.half; i++) {
        float x0 = load<D>(r.x, p.row, p.first + 2 * i), x1 = load<D>(r.x, p.row, p.first + 2 * i + 1);
        float c = load<OTT_F32>(r.cosine, p.at, i), s = load<OTT_F32>(r.sine, p.at, i);
        if (r.inverse) s = -s;
        store<D>(r.x, p.row, p.first + 2 * i, p.exists ? fmaf(x0, c, -(x1 * s)) : NAN);
        store<D>(r.x, p.row, p.first + 2 * i + 1, p.exists ? fmaf(x1, c, x0 * s) : NAN);
    }
}

extern "C" cudaError_t rope_launch(const rope_args *a, cudaStream_t stream) {
    rope_job r = {view_of(a->x), view_of(a->cosine), view_of(a->sine),   (const int32_t *)a->position->data,
                  a->head_dim,   a->first,           a->cosine->columns, (a->cosine->columns + 7) / 8,
                  a->inverse};
    int64_t threads = 8 * r.eights * (a->x->columns / a->head_dim);
    r.x.vectors = r.x.vectors && r.half % 8 == 0 && r.head_dim % 8 == 0 && r.before % 8 == 0;
    if (a->interleaved) {
        WITH_DTYPE(a->x->dtype, D, LAUNCH_ROWS(rope_interleaved_kernel<D>, a->x->rows, threads, stream, r));
    } else
        WITH_DTYPE(a->x->dtype, D, LAUNCH_ROWS(rope_kernel<D>, a->x->rows, threads, stream, r));
    return cudaGetLastError();
}
