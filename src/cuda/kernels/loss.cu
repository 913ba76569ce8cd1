/* cuda/kernels/loss: cross entropy of rows of logits, full rows or vocabulary shards. Each block has a row.
   All threads compute exponentials, and 16 threads add these, one per lane of SUM16 (tensor/ops.def). Reads
   the logits three times (later times from the cache, if the row fits); with a gradient also writes them. */
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/row.h"

enum { LOSS_THREADS = ROW_THREADS, LOSS_TILE = 2048 };

struct loss_tile {
    float term[LOSS_TILE];
};
struct warp_floats {
    float of[LOSS_THREADS / 32];
};

struct loss_job {
    view logits;
    const int32_t *target;
    const float *grad_scale; /* factor of the gradient; NULL: no gradient */
    float z_weight;
    float *loss, *z; /* z may be NULL */
    /* statistics of all vocabulary shards: [3 * shards, T], rows `step` elements apart; NULL: no sharding */
    const float *parts;
    int64_t part_rows, step;
    float *part; /* [3, T] output: this shard's maxima, sums, target logits; NULL: compute losses */
    /* before: columns of the vocabulary before this shard; all: columns of the full vocabulary */
    int64_t before, all;
    quantize_uses uses; /* quantized copies of the gradient */
};

struct row_sum {
    float most, sum, at_target;
};

/* The row's maximum, ignoring NaN. All threads get the maximum. */
template <ott_dtype D> __device__ __forceinline__ float largest_of_row(const view &x, int64_t row) {
    SHARED(largest, warp_floats);
    float most = -INFINITY;
    for (int64_t c = 8 * (int64_t)threadIdx.x; c < x.columns; c += 8 * LOSS_THREADS) {
        eight e = load8<D>(x, row, c);
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (c + i < x.columns && e.x[i] > most) most = e.x[i];
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, most, step);
        if (other > most) most = other;
    }
    if (threadIdx.x % 32 == 0) largest.of[threadIdx.x / 32] = most;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < LOSS_THREADS / 32; w++)
        if (largest.of[w] > most) most = largest.of[w];
    return most;
}

/* Sum of exp(x - most) over a row, in the order of SUM16. All threads of the first warp get the sum. */
template <ott_dtype D> __device__ __forceinline__ float sum_of_row(const view &x, int64_t row, float most) {
    SHARED(tiles, loss_tile[2]);
    float lane = 0;
    int turn = 0;
    for (int64_t first = 0; first < x.columns; first += LOSS_TILE, turn ^= 1) {
        int64_t c = first + 8 * (int64_t)threadIdx.x;
        float *term = tiles[turn].term;
        if (c < x.columns) {
            eight e = load8<D>(x, row, c);
#pragma unroll
            for (int i = 0; i < 8; i++) term[8 * threadIdx.x + i] = fmath_exp_small(e.x[i] - most);
        }
        __syncthreads();
        int filled = x.columns - first < LOSS_TILE ? (int)(x.columns - first) : (int)LOSS_TILE;
        if (threadIdx.x < 16)
#pragma unroll 8
            for (int i = threadIdx.x; i < filled; i += 16) lane += term[i];
    }
    return threadIdx.x < 32 ? fold16(lane) : 0;
}

/* Combines the statistics of a row's shards. */
__device__ __forceinline__ row_sum sum_of_parts(const loss_job &j, int64_t row) {
    row_sum s = {-INFINITY, 0, 0};
    const float *part = j.parts + row;
    for (int64_t r = 0; r < j.part_rows; r += 3)
        if (part[r * j.step] > s.most) s.most = part[r * j.step];
    for (int64_t r = 0; r < j.part_rows; r += 3) {
        s.sum = fmaf(part[(r + 1) * j.step], fmath_exp(part[r * j.step] - s.most), s.sum);
        s.at_target += part[(r + 2) * j.step];
    }
    return s;
}

/* Replaces the row's logits by their gradient (zeros if target < 0) and stores the gradient's amax. */
template <ott_dtype D>
__device__ __forceinline__ void store_gradient(const loss_job &j, int64_t row, row_sum s, int64_t target) {
    float inverse = 1.0f / s.sum, scale = *j.grad_scale;
    if (j.z_weight != 0) inverse = inverse * fmaf(2.0f * j.z_weight, s.most + fmath_log(s.sum), 1.0f);
    uint32_t most = 0;
    for (int64_t c = 8 * (int64_t)threadIdx.x; c < j.logits.columns; c += 8 * LOSS_THREADS) {
        eight e = {};
        if (target >= 0) e = load8<D>(j.logits, row, c);
#pragma unroll
        for (int i = 0; i < 8 && target >= 0; i++) {
            float p = fmath_exp(e.x[i] - s.most) * inverse;
            e.x[i] = (p - (j.before + c + i == target ? 1.0f : 0.0f)) * scale;
        }
        held<D> gradient = narrowed<D>(e);
        most = row_raised<D>(most, gradient, c, j.logits.columns);
        store8<D>(j.logits, row, c, j.logits.columns, gradient);
    }
    if (j.uses.count > 0) settle_row(j.uses, row, row_amax(most));
}

/* The row's maximum, sum of exp(x - maximum), and target logit. All threads get them. */
template <ott_dtype D>
__device__ __forceinline__ row_sum sum_up(const loss_job &j, int64_t row, int64_t target) {
    SHARED(shared, row_sum);
    if (j.parts) return sum_of_parts(j, row);
    float most = largest_of_row<D>(j.logits, row), sum = sum_of_row<D>(j.logits, row, most);
    int64_t column = target - j.before;
    bool here = column >= 0 && column < j.logits.columns;
    float elsewhere = target < j.all ? 0.0f : NAN;
    if (threadIdx.x == 0) shared = {most, sum, here ? load<D>(j.logits, row, column) : elsewhere};
    __syncthreads();
    return shared;
}

template <ott_dtype D> __global__ void __launch_bounds__(LOSS_THREADS) cross_entropy_kernel(loss_job j) {
    int64_t row = blockIdx.x, target = j.target[row];
    row_sum s = {0, 1, 0};
    if (target >= 0 || j.part) s = sum_up<D>(j, row, target);
    if (threadIdx.x == 0 && j.part) {
        j.part[row] = s.most + 0.0f;
        j.part[row + j.step] = s.sum;
        j.part[row + 2 * j.step] = s.at_target;
    }
    if (j.part) return;
    if (threadIdx.x == 0) {
        float lse = s.most + fmath_log(s.sum);
        j.loss[row] = target >= 0 ? lse - s.at_target : 0.0f;
        if (j.z) j.z[row] = target >= 0 ? lse * lse : 0.0f;
    }
    if (j.grad_scale) store_gradient<D>(j, row, s, target);
}

static cudaError_t launch_loss(const tensor *logits, const loss_job &j, cudaStream_t stream) {
    WITH_DTYPE(logits->dtype, D,
               LAUNCH_BLOCKS(cross_entropy_kernel<D>, logits->rows, LOSS_THREADS, stream, j));
    return cudaGetLastError();
}

extern "C" cudaError_t cross_entropy_launch(const tensor *logits, const tensor *target, const tensor *parts,
                                            const tensor *grad_scale, const tensor *loss, const tensor *z,
                                            float z_weight, int64_t before, int64_t after,
                                            const quantize_uses *uses, cudaStream_t stream) {
    loss_job j = {};
    j.logits = view_of(logits);
    j.target = (const int32_t *)target->data;
    j.grad_scale = grad_scale ? (const float *)grad_scale->data : NULL;
    j.loss = (float *)loss->data;
    j.z = z ? (float *)z->data : NULL;
    j.z_weight = z_weight;
    if (parts) j.parts = (const float *)parts->data, j.part_rows = parts->rows, j.step = parts->ld;
    j.before = before;
    j.all = before + logits->columns + after;
    j.uses = *uses;
    return launch_loss(logits, j, stream);
}

extern "C" cudaError_t cross_entropy_part_launch(const cross_entropy_part_args *a, cudaStream_t stream) {
    loss_job j = {};
    j.logits = view_of(a->logits);
    j.target = (const int32_t *)a->target->data;
    j.part = (float *)a->part->data;
    j.step = a->part->ld;
    j.before = a->before;
    j.all = a->before + a->logits->columns + a->after;
    return launch_loss(a->logits, j, stream);
}
