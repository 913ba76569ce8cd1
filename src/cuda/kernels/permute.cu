/* cuda/kernels/permute: copies token rows to their experts and back, with routing weights. Writes results
   once. */
#include "cuda/kernels/kernels.h"
#include "cuda/view.h"

enum { WEIGH_THREADS = 256, WEIGH_ROWS = WEIGH_THREADS / 16 };

struct places {
    const int32_t *data;
    int64_t ld, rows, columns;
};

static places places_of(const tensor *t) {
    return {(const int32_t *)t->data, t->ld, t->rows, t->columns};
}

template <ott_dtype D>
__global__ void __launch_bounds__(ROW_THREADS) permute_kernel(view x, const int32_t *source, view y) {
    row_place p = row_place_of(y.columns);
    if (p.column >= y.columns) return;
    int32_t from = source[p.row];
    eight e = eight_of(0.0f);
    if (from >= 0) e = load8<D>(x, from % x.rows, p.column);
    store8<D>(y, p.row, p.column, e);
}

extern "C" cudaError_t permute_launch(const permute_args *a, cudaStream_t stream) {
    view x = view_of(a->x), y = view_of(a->y);
    WITH_DTYPE(
        a->x->dtype, D,
        LAUNCH_ROWS(permute_kernel<D>, y.rows, y.columns, stream, x, (const int32_t *)a->source->data, y));
    return cudaGetLastError();
}

template <ott_dtype D>
__global__ void __launch_bounds__(ROW_THREADS)
    weigh_kernel(view x, const float *weight, int64_t ld, int64_t tokens, const int32_t *source, view y) {
    row_place p = row_place_of(y.columns);
    if (p.column >= y.columns) return;
    int32_t from = source[p.row];
    eight e = eight_of(0.0f);
    if (from >= 0) {
        float by = weight[from % tokens * ld + from / tokens];
        e = load8<D>(x, p.row, p.column);
#pragma unroll
        for (int i = 0; i < 8; i++) e.x[i] = e.x[i] * by;
    }
    store8<D>(y, p.row, p.column, e);
}

extern "C" cudaError_t weigh_launch(const weigh_args *a, cudaStream_t stream) {
    view x = view_of(a->x), y = view_of(a->y);
    WITH_DTYPE(a->x->dtype, D,
               LAUNCH_ROWS(weigh_kernel<D>, y.rows, y.columns, stream, x, (const float *)a->weight->data,
                           a->weight->ld, a->weight->rows, (const int32_t *)a->source->data, y));
    return cudaGetLastError();
}

template <ott_dtype D>
__global__ void __launch_bounds__(ROW_THREADS) unpermute_kernel(view y, places row, view plus, view x) {
    row_place p = row_place_of(x.columns);
    if (p.column >= x.columns) return;
    eight sum = eight_of(0.0f);
    if (plus.data) sum = load8<D>(plus, p.row, p.column);
    for (int64_t k = 0; k < row.columns; k++) {
        int32_t from = row.data[p.row * row.ld + k];
        if (from < 0) continue;
        eight e = load8<D>(y, from, p.column);
#pragma unroll
        for (int i = 0; i < 8; i++) sum.x[i] = sum.x[i] + e.x[i];
    }
    store8<D>(x, p.row, p.column, sum);
}

extern "C" cudaError_t unpermute_launch(const unpermute_args *a, cudaStream_t stream) {
    view y = view_of(a->y), plus = view_of(a->plus), x = view_of(a->x);
    WITH_DTYPE(a->x->dtype, D,
               LAUNCH_ROWS(unpermute_kernel<D>, x.rows, x.columns, stream, y, places_of(a->row), plus, x));
    return cudaGetLastError();
}

/* Each half warp has one assignment of a token to an expert. */
template <ott_dtype D>
__global__ void __launch_bounds__(WEIGH_THREADS)
    weigh_backward_kernel(view x, view dy, places row, float *dweight, int64_t ld) {
    int64_t i = (int64_t)blockIdx.x * WEIGH_ROWS + threadIdx.x / 16, t = i / row.columns, k = i % row.columns;
    int32_t from = t < row.rows ? row.data[t * row.ld + k] : -1;
    float lane = 0;
    for (int64_t c = threadIdx.x % 16; from >= 0 && c < x.columns; c += 16)
        lane = fmaf(load<D>(x, from, c), load<D>(dy, from, c), lane);
    lane = fold16(lane);
    if (threadIdx.x % 16 == 0 && t < row.rows) dweight[t * ld + k] = lane;
}

extern "C" cudaError_t weigh_backward_launch(const weigh_backward_args *a, cudaStream_t stream) {
    view x = view_of(a->x), dy = view_of(a->dy);
    int64_t blocks = (a->row->rows * a->row->columns + WEIGH_ROWS - 1) / WEIGH_ROWS;
    WITH_DTYPE(a->x->dtype, D,
               LAUNCH_BLOCKS(weigh_backward_kernel<D>, blocks, WEIGH_THREADS, stream, x, dy,
                             places_of(a->row), (float *)a->dweight->data, a->dweight->ld));
    return cudaGetLastError();
}
