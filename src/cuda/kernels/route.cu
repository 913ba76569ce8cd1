/* cuda/kernels/route: chooses experts for tokens, computes routing weights and losses, and sorts the
   assignments of tokens by expert. A thread has a token; in route_balance, it has one expert and some tokens.
   In the sort, a thread block has one expert, and reads the choices of all tokens from the cache. */
#include "cuda/kernels/kernels.h"
#include "cuda/view.h"

enum { ROUTE_THREADS = 128, SORT_THREADS = 256 };

/* Matrices: floats of fp32, integers of int32. */
struct floats {
    float *data;
    int64_t ld;
};
struct integers {
    int32_t *data;
    int64_t ld;
};

__device__ __forceinline__ float *row_at(const floats &f, int64_t i) {
    return f.data ? f.data + i * f.ld : nullptr;
}
__device__ __forceinline__ int32_t *row_at(const integers &f, int64_t i) {
    return f.data + i * f.ld;
}

static floats floats_of(const tensor *t) {
    return t ? floats{(float *)t->data, t->ld} : floats{};
}
static integers integers_of(const tensor *t) {
    return {(int32_t *)t->data, t->ld};
}

/* ---- forward ---- */

struct route_job {
    floats logits, bias, score, lse, total, weight;
    integers expert;
    int64_t tokens, experts, choices;
    route_rule rule;
};

__global__ void __launch_bounds__(ROUTE_THREADS) route_kernel(route_job j) {
    int64_t t = (int64_t)blockIdx.x * ROUTE_THREADS + threadIdx.x;
    if (t >= j.tokens) return;
    float *score = row_at(j.score, t);
    int32_t *expert = row_at(j.expert, t);
    j.lse.data[t] = route_scores(&j.rule, row_at(j.logits, t), j.experts, score);
    j.total.data[t] = route_total(&j.rule, score, j.experts);
    route_choose(&j.rule, score, j.bias.data, j.experts, j.choices, expert);
    route_weights(&j.rule, score, expert, j.choices, row_at(j.weight, t));
}

static int64_t blocks_for(int64_t count) {
    return (count + ROUTE_THREADS - 1) / ROUTE_THREADS;
}

extern "C" cudaError_t route_launch(const route_args *a, cudaStream_t stream) {
    route_job j = {floats_of(a->logits),
                   floats_of(a->bias),
                   floats_of(a->score),
                   floats_of(a->lse),
                   floats_of(a->total),
                   floats_of(a->weight),
                   integers_of(a->expert),
                   a->logits->rows,
                   a->logits->columns,
                   a->expert->columns,
                   a->rule};
    LAUNCH_BLOCKS(route_kernel, blocks_for(j.tokens), ROUTE_THREADS, stream, j);
    return cudaGetLastError();
}

struct balance_job {
    floats score, total, count, share;
    integers expert;
    int64_t tokens, experts, choices, runs;
};

__global__ void __launch_bounds__(ROUTE_THREADS) balance_kernel(balance_job j) {
    int64_t i = (int64_t)blockIdx.x * ROUTE_THREADS + threadIdx.x, s = i / j.experts, e = i - s * j.experts;
    float count = 0, share = 0;
    if (s >= j.runs) return;
    int64_t end = ((s + 1) * j.tokens + j.runs - 1) / j.runs;
    for (int64_t t = (s * j.tokens + j.runs - 1) / j.runs; t < end; t++) {
        const int32_t *expert = row_at(j.expert, t);
        share = share + row_at(j.score, t)[e] / j.total.data[t];
        for (int64_t k = 0; k < j.choices; k++)
            if (expert[k] == e) count = count + 1.0f;
    }
    row_at(j.count, s)[e] = count;
    row_at(j.share, s)[e] = share;
}

extern "C" cudaError_t route_balance_launch(const route_balance_args *a, cudaStream_t stream) {
    balance_job j = {floats_of(a->score), floats_of(a->total),    floats_of(a->count),
                     floats_of(a->share), integers_of(a->expert), a->score->rows,
                     a->score->columns,   a->expert->columns,     a->count->rows};
    LAUNCH_BLOCKS(balance_kernel, blocks_for(j.runs * j.experts), ROUTE_THREADS, stream, j);
    return cudaGetLastError();
}

struct backward_job {
    floats logits, score, lse, total, dweight, batch_count, sequence_count, grad_scale, dlogits;
    integers expert;
    int64_t tokens, experts, choices, runs;
    route_rule rule;
    route_losses losses;
};

__global__ void __launch_bounds__(ROUTE_THREADS) backward_kernel(backward_job j) {
    int64_t t = (int64_t)blockIdx.x * ROUTE_THREADS + threadIdx.x;
    if (t >= j.tokens) return;
    route_token token = {row_at(j.logits, t),
                         row_at(j.score, t),
                         row_at(j.dweight, t),
                         row_at(j.batch_count, 0),
                         row_at(j.sequence_count, t * j.runs / j.tokens),
                         row_at(j.expert, t),
                         j.experts,
                         j.choices,
                         j.lse.data[t],
                         j.total.data[t],
                         j.grad_scale.data[0]};
    route_gradient(&j.rule, &token, &j.losses, row_at(j.dlogits, t));
}

extern "C" cudaError_t route_backward_launch(const route_backward_args *a, cudaStream_t stream) {
    backward_job j = {floats_of(a->logits),
                      floats_of(a->score),
                      floats_of(a->lse),
                      floats_of(a->total),
                      floats_of(a->dweight),
                      floats_of(a->batch_count),
                      floats_of(a->sequence_count),
                      floats_of(a->grad_scale),
                      floats_of(a->dlogits),
                      integers_of(a->expert),
                      a->logits->rows,
                      a->logits->columns,
                      a->expert->columns,
                      a->sequence_count ? a->sequence_count->rows : 1,
                      a->rule,
                      a->losses};
    LAUNCH_BLOCKS(backward_kernel, blocks_for(j.tokens), ROUTE_THREADS, stream, j);
    return cudaGetLastError();
}

/* ---- sorting assignments by expert ---- */

struct sort_job {
    integers expert, row;
    int32_t *source, *end;
    int64_t before; /* earlier tokens, which are not sorted but use the experts' capacity */
    int64_t tokens, choices, experts, capacity, rows;
};

/* Bit t is set if the token of the block's thread t chose the block's expert. */
struct sort_bits {
    uint32_t word[SORT_THREADS / 32];
};

__device__ __forceinline__ int bit_count(uint32_t x) {
    x -= x >> 1 & 0x55555555u;
    x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
    return (int)(((x + (x >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24);
}

/* Returns for how many earlier threads of the block `mine` is true. *all: for how many of all threads. found:
   shared memory. The next call needs another one, because threads may still read this one. */
__device__ __forceinline__ int count_before(sort_bits &found, bool mine, int *all) {
    uint32_t lane = threadIdx.x % 32, bits = mine ? 1u << lane : 0;
    int before = 0, total = 0;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) bits |= __shfl_xor_sync(0xffffffffu, bits, step);
    if (lane == 0) found.word[threadIdx.x / 32] = bits;
    __syncthreads();
#pragma unroll
    for (unsigned w = 0; w < SORT_THREADS / 32; w++) {
        if (w == threadIdx.x / 32) before = total + bit_count(found.word[w] & ((1u << lane) - 1));
        total += bit_count(found.word[w]);
    }
    *all = total;
    return before;
}

/* A block handles one expert. PLACES false: stores the number of tokens that the expert's capacity admits in
   end[expert]. ends_kernel then turns these numbers into end offsets. PLACES true: gives the admitted tokens
   the rows from end[expert - 1] on. The expert's other tokens get row -1. */
template <bool PLACES> __global__ void __launch_bounds__(SORT_THREADS) sort_kernel(sort_job j) {
    SHARED(found, sort_bits[2]);
    int32_t e = (int32_t)blockIdx.x;
    int64_t next = PLACES && e > 0 ? j.end[e - 1] : 0;
    int turn = 0, all;
    for (int64_t k = 0; k < j.choices; k++) {
        int64_t seen = 0;
        for (int64_t first = 0; j.capacity > 0 && first < j.before; first += SORT_THREADS, turn ^= 1) {
            int64_t t = first + threadIdx.x;
            count_before(found[turn], t < j.before && row_at(j.expert, t)[k] == e, &all);
            seen += all;
        }
        for (int64_t first = 0; first < j.tokens; first += SORT_THREADS, turn ^= 1) {
            int64_t t = first + threadIdx.x, free_slots = j.capacity > 0 ? j.capacity - seen : j.tokens;
            bool mine = t < j.tokens && row_at(j.expert, j.before + t)[k] == e;
            int before = count_before(found[turn], mine, &all);
            bool fits = before < free_slots;
            if (PLACES && mine) row_at(j.row, t)[k] = fits ? (int32_t)(next + before) : -1;
            if (PLACES && mine && fits) j.source[next + before] = (int32_t)(k * j.tokens + t);
            next += all < free_slots ? all : free_slots > 0 ? free_slots : 0;
            seen += all;
        }
    }
    if (!PLACES && threadIdx.x == 0) j.end[e] = (int32_t)next;
}

/* Turns the experts' counts in `end` into end offsets. Rows without an assignment get source -1. */
__global__ void __launch_bounds__(SORT_THREADS) ends_kernel(sort_job j) {
    SHARED(used, int64_t[1]);
    if (threadIdx.x == 0) {
        int32_t sum = 0;
        for (int64_t e = 0; e < j.experts; e++) j.end[e] = sum += j.end[e];
        used[0] = sum;
    }
    __syncthreads();
    for (int64_t r = used[0] + threadIdx.x; r < j.rows; r += SORT_THREADS) j.source[r] = -1;
}

extern "C" cudaError_t route_sort_launch(const route_sort_args *a, cudaStream_t stream) {
    sort_job j = {integers_of(a->expert),
                  integers_of(a->row),
                  (int32_t *)a->source->data,
                  (int32_t *)a->end->data,
                  a->first,
                  a->row->rows,
                  a->row->columns,
                  a->end->columns,
                  a->capacity,
                  a->source->columns};
    LAUNCH_BLOCKS(sort_kernel<false>, j.experts, SORT_THREADS, stream, j);
    LAUNCH_BLOCKS(ends_kernel, 1, SORT_THREADS, stream, j);
    LAUNCH_BLOCKS(sort_kernel<true>, j.experts, SORT_THREADS, stream, j);
    return cudaGetLastError();
}

/* ---- sums and biases: small, sequential ---- */

__global__ void dot_kernel(floats x, floats y, int64_t rows, int64_t columns, float *sum, float scale) {
    float s = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < columns; c++) s = fmaf(row_at(x, i)[c], row_at(y, i)[c], s);
    sum[0] = sum[0] + scale * s;
}

extern "C" cudaError_t dot_launch(const dot_args *a, cudaStream_t stream) {
    LAUNCH_BLOCKS(dot_kernel, 1, 1, stream, floats_of(a->x), floats_of(a->y), a->x->rows, a->x->columns,
                  (float *)a->sum->data, a->scale);
    return cudaGetLastError();
}

struct bias_job {
    float *bias, *load;
    const float *count, *state;
    int64_t biases, experts, first;
    float rate;
    bool by_sign;
};

__global__ void balance_bias_kernel(bias_job j) {
    float total = 0;
    for (int64_t e = 0; e < j.experts; e++) total = total + j.count[e];
    if (j.state[STEP_SKIP] != 0.0f || total == 0.0f) return;
    for (int64_t e = 0; e < j.experts; e++) j.load[e] = route_load(j.load[e], j.count[e], total);
    float rate = j.rate * j.state[STEP_BALANCE];
    for (int64_t i = 0; i < j.biases; i++)
        j.bias[i] = j.by_sign ? route_bias_by_sign(j.bias[i], j.count[j.first + i], total, j.experts, rate)
                              : route_bias_by_load(j.bias[i], j.load[j.first + i], j.experts, rate);
}

extern "C" cudaError_t balance_bias_launch(const balance_bias_args *a, cudaStream_t stream) {
    bias_job j = {(float *)a->bias->data,
                  (float *)a->load->data,
                  (const float *)a->count->data,
                  (const float *)a->state->data,
                  a->bias->columns,
                  a->count->columns,
                  a->first,
                  a->rate,
                  a->by_sign};
    LAUNCH_BLOCKS(balance_bias_kernel, 1, 1, stream, j);
    return cudaGetLastError();
}
