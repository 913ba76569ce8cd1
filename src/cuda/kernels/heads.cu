/* cuda/kernels/heads: ops for attention whose heads share columns (MLA). One op appends the same number of
   columns, a tail, to each head. The other op sums such columns over the heads. Each tensor is read and
   written once. */
#include "cuda/kernels/kernels.h"
#include "cuda/view.h"

struct join_job {
    view x, tail, y;
    int64_t x_width, tail_width, y_width; /* columns per head of x, tail and y */
    int64_t tail_step;                    /* columns between heads in the tail; 0: all heads share it */
    int64_t first, count;
};

/* Returns column i of head h of y: `count` columns of x's head h from `first` on, the tail, then zeros. */
template <ott_dtype D>
__device__ __forceinline__ float joined(const join_job &j, int64_t row, int64_t h, int64_t i) {
    if (i < j.count) return load<D>(j.x, row, h * j.x_width + j.first + i);
    i -= j.count;
    return i < j.tail_width ? load<D>(j.tail, row, h * j.tail_step + i) : 0.0f;
}

template <ott_dtype D> __global__ void __launch_bounds__(ROW_THREADS) join_heads_kernel(join_job j) {
    row_place p = row_place_of(j.y.columns);
    if (p.column >= j.y.columns) return;
    int64_t h = p.column / j.y_width, i = p.column - h * j.y_width;
    eight e = eight_of(0.0f);
    for (int k = 0; k < 8 && p.column + k < j.y.columns; k++) {
        e.x[k] = joined<D>(j, p.row, h, i);
        if (++i < j.y_width) continue;
        i = 0;
        h++;
    }
    store8<D>(j.y, p.row, p.column, e);
}

extern "C" cudaError_t join_heads_launch(const join_heads_args *a, cudaStream_t stream) {
    int64_t tail_width = a->tail ? a->tail->columns / a->tail_heads : 0;
    join_job j = {view_of(a->x),
                  view_of(a->tail),
                  view_of(a->y),
                  a->x->columns / a->heads,
                  tail_width,
                  a->y->columns / a->heads,
                  a->tail_heads == 1 ? 0 : tail_width,
                  a->first,
                  a->count};
    WITH_DTYPE(a->x->dtype, D, LAUNCH_ROWS(join_heads_kernel<D>, j.y.rows, j.y.columns, stream, j));
    return cudaGetLastError();
}

template <ott_dtype X, ott_dtype Y>
__global__ void __launch_bounds__(ROW_THREADS)
    sum_heads_kernel(view x, view y, int64_t heads, int64_t width, int64_t first) {
    row_place p = row_place_of(y.columns);
    if (p.column >= y.columns) return;
    eight sum = eight_of(0.0f);
    for (int64_t h = 0; h < heads; h++) {
        int64_t begin = h * width + first;
        eight e = load8<X>(x, p.row, begin + p.column, begin + y.columns);
#pragma unroll
        for (int i = 0; i < 8; i++) sum.x[i] = sum.x[i] + e.x[i];
    }
    store8<Y>(y, p.row, p.column, sum);
}

extern "C" cudaError_t sum_heads_launch(const sum_heads_args *a, cudaStream_t stream) {
    view x = view_of(a->x), y = view_of(a->y);
    int64_t width = x.columns / a->heads;
    x.vectors = x.vectors && width % 8 == 0 && a->first % 8 == 0;
    WITH_DTYPE(a->x->dtype, X,
               WITH_DTYPE(a->y->dtype, Y,
                          LAUNCH_ROWS((sum_heads_kernel<X, Y>), y.rows, y.columns, stream, x, y, a->heads,
                                      width, a->first)));
    return cudaGetLastError();
}
