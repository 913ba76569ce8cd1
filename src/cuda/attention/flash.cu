/* cuda/attention/flash: attention on the tensor cores, in bf16 and fp16, for head_dim up to 256 and rows of
   16-byte-aligned vectors. Each warp computes 16 rows of one head: queries in forward and for dq, keys for dk
   and dv. A block passes over tiles of the other rows, in shared memory. Every sum has one fixed order. The
   weights p and their gradients ds are rounded to the tensors' format for the second products, as by cuDNN.

   A tile that all rows of the block see in full is computed without masks. Columns beyond head_dim are zero
   in shared memory. */
#include "cuda/attention/flash_tile.h"
#include "cuda/kernels/kernels.h"

/* ---- forward ---- */

template <int D> struct forward_shape {
    static constexpr int rows = D <= 128 ? 64 : 32, tile = rows, threads = rows * 2;
};

struct flash_forward {
    view q, k, v, o, lse;
    documents d;
    int64_t head_dim, heads, kv_heads, past;
    score_rule rule;
};

/* The keys that a thread's queries `row` and row + 8 see. */
__device__ __forceinline__ sight keys_seen(const documents &d, int64_t row, int64_t rows, int64_t past) {
    sight s;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int64_t r = row + 8 * i;
        span keys = r < rows ? keys_of(d, past > 0 ? 0 : document_of(d, r).begin, past + r) : span{0, 0};
        s.begin[i] = (int)keys.begin, s.end[i] = (int)keys.end;
    }
    return s;
}

/* A row's online softmax. most: largest exponent so far; sum: this lane's part of the sum of the weights. */
struct running_rows {
    float most[2], sum[2];
};

/* Replaces exponents by softmax weights relative to the row's largest exponent so far. Scales the sums of
   earlier tiles accordingly. */
template <int N, int D>
__device__ __forceinline__ void softmax_tile(running_rows &r, mma_sums (&s)[N / 8], mma_sums (&o)[D / 8]) {
    float factor[2], base[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float most = -INFINITY;
#pragma unroll
        for (int n = 0; n < N / 8; n++) most = fmaxf(most, fmaxf(s[n].at[2 * i], s[n].at[2 * i + 1]));
        most = fmaxf(r.most[i], most_of_row(most));
        base[i] = most == -INFINITY ? 0 : most; /* the row has seen no key */
        factor[i] = power_of_two(r.most[i] - base[i]);
        r.most[i] = most;
        r.sum[i] = r.sum[i] * factor[i];
    }
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[n].at[i] = power_of_two(s[n].at[i] - base[i / 2]);
            r.sum[i / 2] += s[n].at[i];
        }
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) o[n].at[i] = o[n].at[i] * factor[i / 2];
}

template <ott_dtype T, int D>
__global__ void __launch_bounds__(forward_shape<D>::threads) flash_forward_kernel(flash_forward a) {
    constexpr int rows = forward_shape<D>::rows, tile = forward_shape<D>::tile,
                  threads = forward_shape<D>::threads;
    SHARED(queries, uint16_t[rows * D]);
    SHARED(keys, uint16_t[tile * D]);
    SHARED(values, uint16_t[tile * D]);
    /* late rows see the most keys, so their blocks start first */
    int64_t head = blockIdx.x % a.heads, first = (gridDim.x / a.heads - 1 - blockIdx.x / a.heads) * rows;
    int64_t kv_head = head / (a.heads / a.kv_heads), last = least(first + rows, a.q.rows) - 1;
    int own = threadIdx.x / WARP * WARP_ROWS;
    int64_t row = first + own + threadIdx.x % WARP / 4;
    head_rows k = rows_of(a.k, kv_head, a.head_dim), v = rows_of(a.v, kv_head, a.head_dim);
    sight sees = keys_seen(a.d, row, a.q.rows, a.past);
    int begin = keys_seen(a.d, first, a.q.rows, a.past).begin[0], end = (int)(a.past + last + 1);
    int all_see = keys_seen(a.d, last, a.q.rows, a.past).begin[0]; /* all rows see keys from here ... */
    int all_seen = first + rows <= a.q.rows ? (int)(a.past + first + 1) : 0; /* ... to here */
    running_rows r = {{-INFINITY, -INFINITY}, {0, 0}};
    mma_sums o[D / 8] = {};
    begin -= begin % tile;
    copy_tile<rows, D, threads>(queries, rows_of(a.q, head, a.head_dim), first);
    copy_tile<tile, D, threads>(keys, k, begin);
    copy_async_commit();
    copy_tile<tile, D, threads>(values, v, begin);
    copy_async_commit();
    for (int j = begin; j < end; j += tile) {
        mma_sums s[tile / 8];
        copy_async_wait<1>();
        __syncthreads();
        multiply_rows<T, tile, D>(s, queries, own, keys);
        copy_async_wait<0>();
        __syncthreads(); /* all warps have read the keys */
        if (j + tile < end) copy_tile<tile, D, threads>(keys, k, j + tile);
        copy_async_commit();
        to_exponents<tile>(s, a.rule);
        if (j < all_see || j + tile > all_seen) hide<tile>(s, sees, j, -INFINITY);
        softmax_tile<tile, D>(r, s, o);
        add_weighted_rows<T, tile, D>(o, s, values);
        __syncthreads(); /* all warps have read the values */
        if (j + tile < end) copy_tile<tile, D, threads>(values, v, j + tile);
        copy_async_commit();
    }
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float sum = sum_of_row(r.sum[i]);
        factor[i] = 1 / sum;
        if (threadIdx.x % 4 == 0 && row + 8 * i < a.q.rows)
            store<OTT_F32>(a.lse, head, row + 8 * i, (r.most[i] + log2f(sum)) * LN_2);
    }
    store_rows<T, D>(o, rows_of(a.o, head, a.head_dim), row, factor);
}

/* ---- backward ---- */

template <int D> struct backward_shape {
    static constexpr int rows = D <= 128 ? 64 : 32, tile = rows / 2, threads = rows * 2;
};

struct flash_backward {
    view dout, q, k, v, o, lse, dq, dk, dv;
    float *delta; /* [heads, tokens] */
    documents d;
    int64_t head_dim, heads, kv_heads;
    score_rule rule;
    float scale;
};

/* Returns the dot product of dout and o for queries `row` and row + 8. */
template <ott_dtype T>
__device__ __forceinline__ void make_delta(float (&delta)[2], const flash_backward &a, int64_t head,
                                           int64_t row) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float sum = 0;
        int64_t begin = head * a.head_dim, r = row + 8 * i;
        for (int64_t c = threadIdx.x % 4 * 8; c < a.head_dim && r < a.q.rows; c += 32) {
            eight x = load8<T>(a.dout, r, begin + c), y = load8<T>(a.o, r, begin + c);
#pragma unroll
            for (int n = 0; n < 8; n++) sum = fmaf(x.x[n], y.x[n], sum);
        }
        delta[i] = sum_of_row(sum);
        if (threadIdx.x % 4 == 0 && r < a.q.rows) a.delta[head * a.q.rows + r] = delta[i];
    }
}

/* A query's log-sum-exp, as an exponent of 2, and its delta. */
struct query_sums {
    float lse, delta;
};

/* Replaces a tile's exponents by the weights p, and dp = dout v^T by ds. sums_at(n, i): the sums of the query
   of element i of part n. */
template <bool Capped, int N, class SumsAt>
__device__ __forceinline__ void make_slopes(mma_sums (&s)[N / 8], mma_sums (&dp)[N / 8],
                                            const flash_backward &a, const SumsAt &sums_at) {
#pragma unroll
    for (int n = 0; n < N / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            query_sums of = sums_at(n, i);
            float exponent = s[n].at[i], p = power_of_two(exponent - of.lse);
            float ds = p * (dp[n].at[i] - of.delta) * a.scale, r = exponent * a.rule.inverse;
            if (Capped) ds = p == 0 ? 0 : ds * fmaf(-r, r, 1.0f); /* a hidden exponent is minus infinity */
            s[n].at[i] = p, dp[n].at[i] = ds;
        }
}
template <int N, class SumsAt>
__device__ __forceinline__ void make_slopes(mma_sums (&s)[N / 8], mma_sums (&dp)[N / 8],
                                            const flash_backward &a, const SumsAt &sums_at) {
    if (a.rule.capped)
        make_slopes<true, N>(s, dp, a, sums_at);
    else
        make_slopes<false, N>(s, dp, a, sums_at);
}

template <ott_dtype T, int D>
__global__ void __launch_bounds__(backward_shape<D>::threads) flash_queries_kernel(flash_backward a) {
    constexpr int rows = backward_shape<D>::rows, tile = backward_shape<D>::tile,
                  threads = backward_shape<D>::threads;
    SHARED(queries, uint16_t[rows * D]);
    SHARED(slopes, uint16_t[rows * D]); /* dout */
    SHARED(keys, uint16_t[tile * D]);
    SHARED(values, uint16_t[tile * D]);
    int64_t head = blockIdx.x % a.heads, first = (gridDim.x / a.heads - 1 - blockIdx.x / a.heads) * rows;
    int64_t kv_head = head / (a.heads / a.kv_heads), last = least(first + rows, a.q.rows) - 1;
    int own = threadIdx.x / WARP * WARP_ROWS;
    int64_t row = first + own + threadIdx.x % WARP / 4;
    head_rows k = rows_of(a.k, kv_head, a.head_dim), v = rows_of(a.v, kv_head, a.head_dim);
    sight sees = keys_seen(a.d, row, a.q.rows, 0);
    int begin = keys_seen(a.d, first, a.q.rows, 0).begin[0], end = (int)last + 1;
    int all_see = keys_seen(a.d, last, a.q.rows, 0).begin[0];
    int all_seen = first + rows <= a.q.rows ? (int)first + 1 : 0;
    float delta[2], lse[2];
    mma_sums dq[D / 8] = {};
    begin -= begin % tile;
    copy_tile<rows, D, threads>(queries, rows_of(a.q, head, a.head_dim), first);
    copy_tile<rows, D, threads>(slopes, rows_of(a.dout, head, a.head_dim), first);
    copy_tile<tile, D, threads>(values, v, begin);
    copy_async_commit();
    copy_tile<tile, D, threads>(keys, k, begin);
    copy_async_commit();
    make_delta<T>(delta, a, head, row);
#pragma unroll
    for (int i = 0; i < 2; i++)
        lse[i] = row + 8 * i < a.q.rows ? load<OTT_F32>(a.lse, head, row + 8 * i) * LOG2_E : 0;
    for (int j = begin; j < end; j += tile) {
        mma_sums s[tile / 8], dp[tile / 8];
        copy_async_wait<1>();
        __syncthreads();
        multiply_rows<T, tile, D>(dp, slopes, own, values);
        copy_async_wait<0>();
        __syncthreads(); /* all warps have read the values */
        if (j + tile < end) copy_tile<tile, D, threads>(values, v, j + tile);
        copy_async_commit();
        multiply_rows<T, tile, D>(s, queries, own, keys);
        to_exponents<tile>(s, a.rule);
        if (j < all_see || j + tile > all_seen) hide<tile>(s, sees, j, -INFINITY), hide<tile>(dp, sees, j, 0);
        make_slopes<tile>(s, dp, a, [&](int, int i) { return query_sums{lse[i / 2], delta[i / 2]}; });
        add_weighted_rows<T, tile, D>(dq, dp, keys);
        __syncthreads(); /* all warps have read the keys */
        if (j + tile < end) copy_tile<tile, D, threads>(keys, k, j + tile);
        copy_async_commit();
    }
    store_rows<T, D>(dq, rows_of(a.dq, head, a.head_dim), row, {1, 1});
}

/* The queries that see a thread's keys `row` and row + 8. */
__device__ __forceinline__ sight queries_seen(const documents &d, int64_t row, int64_t rows) {
    sight s;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int64_t r = row + 8 * i;
        span queries = r < rows ? queries_of(d, document_of(d, r).end, r) : span{0, 0};
        s.begin[i] = (int)queries.begin, s.end[i] = (int)queries.end;
    }
    return s;
}

/* A tile of queries of one head. The tiles of all heads that share a key head follow each other. */
struct query_tile {
    int64_t head, end_head;
    int begin, first, end;
};

/* Moves to the next tile. Returns false if there is none. */
template <int Tile> __device__ __forceinline__ bool next_tile(query_tile &t) {
    t.first += Tile;
    if (t.first >= t.end) t.first = t.begin, t.head++;
    return t.head < t.end_head;
}

/* Computes dk and dv; for wide heads each launch computes one of them, because the sums of both do not fit
   the registers. */
template <ott_dtype T, int D, bool WithKeys, bool WithValues>
__global__ void __launch_bounds__(backward_shape<D>::threads, 2) flash_keys_kernel(flash_backward a) {
    constexpr int rows = backward_shape<D>::rows, tile = backward_shape<D>::tile,
                  threads = backward_shape<D>::threads;
    SHARED(keys, uint16_t[rows * D]);
    SHARED(values, uint16_t[rows * D]);
    SHARED(queries, uint16_t[tile * D]);
    SHARED(slopes, uint16_t[tile * D]); /* dout */
    int64_t kv_head = blockIdx.x % a.kv_heads, first = blockIdx.x / a.kv_heads * rows;
    int64_t last = least(first + rows, a.q.rows) - 1, sharing = a.heads / a.kv_heads;
    int own = threadIdx.x / WARP * WARP_ROWS;
    int64_t row = first + own + threadIdx.x % WARP / 4;
    sight seen = queries_seen(a.d, row, a.q.rows);
    int all_seen = first + rows <= a.q.rows ? queries_seen(a.d, first, a.q.rows).end[0] : 0;
    int tokens = (int)a.q.rows;
    query_tile at = {kv_head * sharing, (kv_head + 1) * sharing, (int)first, (int)first,
                     queries_seen(a.d, last, a.q.rows).end[0]};
    mma_sums dk[WithKeys ? D / 8 : 1] = {}, dv[WithValues ? D / 8 : 1] = {};
    copy_tile<rows, D, threads>(keys, rows_of(a.k, kv_head, a.head_dim), first);
    copy_tile<rows, D, threads>(values, rows_of(a.v, kv_head, a.head_dim), first);
    copy_tile<tile, D, threads>(slopes, rows_of(a.dout, at.head, a.head_dim), at.first);
    copy_tile<tile, D, threads>(queries, rows_of(a.q, at.head, a.head_dim), at.first);
    copy_async_commit();
    for (bool more = true; more;) {
        mma_sums s[tile / 8], dp[tile / 8] = {};
        query_tile now = at;
        more = next_tile<tile>(at);
        copy_async_wait<0>();
        __syncthreads();
        multiply_rows<T, tile, D>(s, keys, own, queries);
        if constexpr (WithKeys) multiply_rows<T, tile, D>(dp, values, own, slopes);
        to_exponents<tile>(s, a.rule);
        if (now.first < last || now.first + tile > all_seen)
            hide<tile>(s, seen, now.first, -INFINITY), hide<tile>(dp, seen, now.first, 0);
        const float *lse = number_at<OTT_F32>(a.lse, now.head, 0), *delta = a.delta + now.head * a.q.rows;
        make_slopes<tile>(s, dp, a, [&](int n, int i) {
            int query = now.first + 8 * n + (int)threadIdx.x % 4 * 2 + i % 2,
                there = query < tokens ? query : tokens - 1;
            return query_sums{lse[there] * LOG2_E, delta[there]};
        });
        if constexpr (WithValues) add_weighted_rows<T, tile, D>(dv, s, slopes);
        __syncthreads(); /* all warps have read dout */
        if (more) copy_tile<tile, D, threads>(slopes, rows_of(a.dout, at.head, a.head_dim), at.first);
        if constexpr (WithKeys) add_weighted_rows<T, tile, D>(dk, dp, queries);
        __syncthreads(); /* all warps have read the queries */
        if (more) copy_tile<tile, D, threads>(queries, rows_of(a.q, at.head, a.head_dim), at.first);
        copy_async_commit();
    }
    if constexpr (WithKeys) store_rows<T, D>(dk, rows_of(a.dk, kv_head, a.head_dim), row, {1, 1});
    if constexpr (WithValues) store_rows<T, D>(dv, rows_of(a.dv, kv_head, a.head_dim), row, {1, 1});
}

/* ---- launches ---- */

/* Runs a statement in which T is the format `type` (OTT_BF16 or OTT_F16) and D the columns of a tile. */
#define WITH_FLASH(type, head_dim, T, D, ...)                                                                \
    do {                                                                                                     \
        if ((type) == OTT_BF16) {                                                                            \
            constexpr ott_dtype T = OTT_BF16;                                                                \
            WITH_FLASH_COLUMNS(head_dim, D, __VA_ARGS__)                                                     \
        } else {                                                                                             \
            constexpr ott_dtype T = OTT_F16;                                                                 \
            WITH_FLASH_COLUMNS(head_dim, D, __VA_ARGS__)                                                     \
        }                                                                                                    \
    } while (0)
#define WITH_FLASH_COLUMNS(head_dim, D, ...)                                                                 \
    if ((head_dim) <= 64) {                                                                                  \
        constexpr int D = 64;                                                                                \
        __VA_ARGS__;                                                                                         \
    } else if ((head_dim) <= 128) {                                                                          \
        constexpr int D = 128;                                                                               \
        __VA_ARGS__;                                                                                         \
    } else {                                                                                                 \
        constexpr int D = 256;                                                                               \
        __VA_ARGS__;                                                                                         \
    }

template <class Shape> static int64_t flash_blocks(int64_t rows, int64_t heads) {
    return (rows + Shape::rows - 1) / Shape::rows * heads;
}

extern "C" bool flash_supports(const tensor *t, int64_t head_dim) {
    return t->dtype != OTT_F32 && head_dim % 8 == 0 && head_dim <= 256 &&
           view_is_aligned(t->data, t->ld * 2, 16);
}

extern "C" cudaError_t flash_forward_launch(const attention_forward_args *a, cudaStream_t stream) {
    int64_t heads = a->lse->rows, kv_heads = a->k->columns / a->head_dim;
    flash_forward f = {view_of(a->q),
                       view_of(a->k),
                       view_of(a->v),
                       view_of(a->o),
                       view_of(a->lse),
                       visible_documents(a->cu_seqlens, a->q->rows, a->window),
                       a->head_dim,
                       heads,
                       kv_heads,
                       a->past,
                       rule_of(a->softmax_scale, a->softcap)};
    WITH_FLASH(a->q->dtype, a->head_dim, T, D, {
        using shape = forward_shape<D>;
        LAUNCH_BLOCKS((flash_forward_kernel<T, D>), flash_blocks<shape>(f.q.rows, heads), shape::threads,
                      stream, f);
    });
    return cudaGetLastError();
}

template <ott_dtype T, int D>
static cudaError_t launch_backward(const flash_backward &b, cudaStream_t stream) {
    using shape = backward_shape<D>;
    int64_t blocks = flash_blocks<shape>(b.q.rows, b.kv_heads);
    LAUNCH_BLOCKS((flash_queries_kernel<T, D>), flash_blocks<shape>(b.q.rows, b.heads), shape::threads,
                  stream, b);
    if constexpr (D <= 128) {
        LAUNCH_BLOCKS((flash_keys_kernel<T, D, true, true>), blocks, shape::threads, stream, b);
    } else {
        LAUNCH_BLOCKS((flash_keys_kernel<T, D, true, false>), blocks, shape::threads, stream, b);
        LAUNCH_BLOCKS((flash_keys_kernel<T, D, false, true>), blocks, shape::threads, stream, b);
    }
    return cudaGetLastError();
}

extern "C" cudaError_t flash_backward_launch(const attention_backward_args *a, float *workspace,
                                             cudaStream_t stream) {
    flash_backward b = {view_of(a->dout),
                        view_of(a->q),
                        view_of(a->k),
                        view_of(a->v),
                        view_of(a->o),
                        view_of(a->lse),
                        view_of(a->dq),
                        view_of(a->dk),
                        view_of(a->dv),
                        workspace,
                        visible_documents(a->cu_seqlens, a->q->rows, a->window),
                        a->head_dim,
                        a->lse->rows,
                        a->k->columns / a->head_dim,
                        rule_of(a->softmax_scale, a->softcap),
                        a->softmax_scale};
    WITH_FLASH(a->q->dtype, a->head_dim, T, D, return (launch_backward<T, D>(b, stream)));
    return cudaSuccess;
}
