/* cuda/nccl/ranks: sums and maxima over ranks, with the same bits as comm/reduce. The values are added in
   rank order and in fp32, and the sum is rounded once. A maximum is NaN if any value is NaN. */
#include "cuda/kernels/kernels.h"
#include "cuda/view.h"

__device__ __forceinline__ float larger(float a, float b) {
    if (a != a) return a;
    return b > a || b != b ? b : a;
}

template <ott_dtype D>
__global__ void __launch_bounds__(ROW_THREADS)
    ranks_kernel(view slots, view own, int rank, bool maximum, view out) {
    row_place p = row_place_of(out.columns);
    if (p.column >= out.columns) return;
    eight sum = rank == 0 ? load8<D>(own, 0, p.column) : load8<D>(slots, 0, p.column);
    for (int r = 1; r < slots.rows; r++) {
        eight x = r == rank ? load8<D>(own, 0, p.column) : load8<D>(slots, r, p.column);
#pragma unroll
        for (int i = 0; i < 8; i++) sum.x[i] = maximum ? larger(sum.x[i], x.x[i]) : sum.x[i] + x.x[i];
    }
    store8<D>(out, 0, p.column, sum);
}

extern "C" cudaError_t ranks_reduce_launch(const tensor *slots, const tensor *own, int rank, bool maximum,
                                           const tensor *out, cudaStream_t stream) {
    view all = view_of(slots), mine = view_of(own), to = view_of(out);
    view_flatten(to);
    view_flatten(mine);
    int64_t blocks = view_row_pieces(to.columns);
    WITH_DTYPE(out->dtype, D,
               LAUNCH_BLOCKS(ranks_kernel<D>, blocks, ROW_THREADS, stream, all, mine, rank, maximum, to));
    return cudaGetLastError();
}
