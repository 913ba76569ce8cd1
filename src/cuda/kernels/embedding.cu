/* cuda/kernels/embedding: looks up table rows by token, and sums the gradients of the rows in token order. */
#include "cuda/kernels/kernels.h"
#include "cuda/view.h"

/* Reads each looked-up row and writes y once. Tokens of other shards give 0. Kernels cannot return errors: a
   token outside the vocabulary gives NaN. */
template <ott_dtype T, ott_dtype D>
__global__ void __launch_bounds__(ROW_THREADS)
    embedding_forward_kernel(const int32_t *token, view table, view y, int64_t before, int64_t after) {
    row_place p = row_place_of(y.columns);
    if (p.column >= y.columns) return;
    int64_t row = token[p.row] - before;
    bool exists = row >= -before && row < table.rows + after;
    eight e = eight_of(exists ? 0.0f : NAN);
    if (row >= 0 && row < table.rows) e = load8<T>(table, row, p.column);
    store8<D>(y, p.row, p.column, e);
}

extern "C" cudaError_t embedding_forward_launch(const embedding_forward_args *a, cudaStream_t stream) {
    view from = view_of(a->table), to = view_of(a->y);
    const int32_t *tokens = (const int32_t *)a->token->data;
    WITH_DTYPE(a->table->dtype, T,
               WITH_DTYPE(a->y->dtype, D,
                          LAUNCH_ROWS((embedding_forward_kernel<T, D>), to.rows, to.columns, stream, tokens,
                                      from, to, a->before, a->after)));
    return cudaGetLastError();
}

struct embedding_job {
    const int32_t *token;
    view dy, dtable;
    int64_t before, skipped; /* skipped: padding token, which gets no gradient; negative: none */
};

/* One bit per thread of the block: 1 if the thread's token equals the block's token. */
struct thread_bits {
    uint32_t word[ROW_THREADS / 32];
};

/* Sets bit i of `found` (shared memory) if tokens[first + i] equals `token`, for i < ROW_THREADS and first +
   i < end. Ends with a barrier. The next call needs another `found`: threads may still read this one. */
__device__ __forceinline__ void find_token(thread_bits &found, const int32_t *tokens, int64_t first,
                                           int64_t end, int32_t token) {
    int64_t t = first + threadIdx.x;
    uint32_t bits = t < end && tokens[t] == token ? 1u << threadIdx.x % 32 : 0;
#pragma unroll
    for (int step = 16; step > 0; step /= 2) bits |= __shfl_xor_sync(0xffffffffu, bits, step);
    if (threadIdx.x % 32 == 0) found.word[threadIdx.x / 32] = bits;
    __syncthreads();
}

/* Each block has one position t of the batch and some columns. If t is the first position of its token, the
   block sums the gradients of all positions of this token. Otherwise the block does nothing. So one block
   owns each element of dtable and adds in token order. Reads dy once, and reads and writes dtable once. Each
   block also reads the tokens, which stay in the cache. */
template <ott_dtype D, ott_dtype G>
__global__ void __launch_bounds__(ROW_THREADS) embedding_backward_kernel(embedding_job j) {
    SHARED(found, thread_bits[2]);
    row_place p = row_place_of(j.dy.columns);
    int32_t token = j.token[p.row];
    int64_t row = token - j.before;
    int turn = 0;
    if (token == j.skipped || row < 0 || row >= j.dtable.rows) return;
    for (int64_t first = 0; first < p.row; first += ROW_THREADS, turn ^= 1) {
        find_token(found[turn], j.token, first, p.row, token);
        uint32_t any = 0;
#pragma unroll
        for (int w = 0; w < ROW_THREADS / 32; w++) any |= found[turn].word[w];
        if (any) return;
    }
    bool adds = p.column < j.dy.columns;
    eight sum = {};
    if (adds) sum = load8<G>(j.dtable, row, p.column);
    for (int64_t first = p.row; first < j.dy.rows; first += ROW_THREADS, turn ^= 1) {
        find_token(found[turn], j.token, first, j.dy.rows, token);
        for (int w = 0; w < ROW_THREADS / 32 && adds; w++)
            for (uint32_t bits = found[turn].word[w]; bits; bits &= bits - 1) {
                eight e = load8<D>(j.dy, first + 32 * w + __ffs((int)bits) - 1, p.column);
#pragma unroll
                for (int i = 0; i < 8; i++) sum.x[i] = sum.x[i] + e.x[i];
            }
    }
    if (adds) store8<G>(j.dtable, row, p.column, sum);
}

extern "C" cudaError_t embedding_backward_launch(const embedding_backward_args *a, cudaStream_t stream) {
    embedding_job j = {(const int32_t *)a->token->data, view_of(a->dy), view_of(a->dtable), a->before,
                       a->has_padding ? a->padding : INT64_MIN};
    WITH_DTYPE(
        a->dy->dtype, D,
        WITH_STATE(a->dtable->dtype, G,
                   LAUNCH_ROWS((embedding_backward_kernel<D, G>), j.dy.rows, j.dy.columns, stream, j)));
    return cudaGetLastError();
}
