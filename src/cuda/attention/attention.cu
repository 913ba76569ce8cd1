/* cuda/attention/attention: Ottava's attention kernels, forward and backward, for every shape.
   tensor/rules/attention.h defines the order of their sums. Each thread computes the results of one query
   (for dk and dv: of one key). A block has ROWS rows of one head. It loads tiles of keys (or queries) into
   shared memory, COLUMNS columns at a time. Sums stay in registers. A head wider than COLUMNS has several
   blocks: each block computes all scores, and sums COLUMNS of the columns. */
#include "base/fmath.h"
#include "cuda/attention/visible.h"
#include "cuda/kernels/kernels.h"
#include "cuda/view.h"
#include "tensor/rules/attention.h"

enum { ROWS = 64, COLUMNS = 64, TILE = ATTENTION_TILE, GROUPS = COLUMNS / 8 };

/* COLUMNS columns of a tile's rows, in fp32. */
struct row_tile {
    float at[TILE][COLUMNS];
};
/* Scores of a block's threads: at[j][t] is the dot product of thread t's row and row j of a tile. */
struct score_tile {
    float at[TILE][ROWS];
};

/* One head: columns [column, column + columns) of a matrix. */
struct head_view {
    view v;
    int64_t column, columns;
};

__device__ __forceinline__ head_view head_of(const view &v, int64_t head, int64_t head_dim) {
    head_view h = {v, head * head_dim, head_dim};
    h.v.vectors = v.vectors && head_dim % 8 == 0;
    return h;
}
template <ott_dtype D> __device__ __forceinline__ eight load8(const head_view &h, int64_t row, int64_t c) {
    return load8<D>(h.v, row, h.column + c, h.column + h.columns);
}
template <ott_dtype D>
__device__ __forceinline__ void store8(const head_view &h, int64_t row, int64_t c, const eight &e) {
    store8<D>(h.v, row, h.column + c, h.column + h.columns, e);
}

/* Returns the rows of span s in a tile that begins at row `first`. The result counts rows from `first`. */
__device__ __forceinline__ span within_tile(span s, int64_t first) {
    int64_t begin = s.begin - first, end = s.end - first;
    return {begin < 0 ? 0 : least(begin, TILE), end < 0 ? 0 : least(end, TILE)};
}

/* ---- shared by forward and backward ---- */

/* Loads rows [first, first + count) of head h into the tile, COLUMNS columns from column c on. On return all
   threads of the block may read the tile. */
template <ott_dtype D>
__device__ __forceinline__ void fetch_rows(row_tile &tile, const head_view &h, int64_t first, int64_t count,
                                           int64_t c) {
    __syncthreads(); /* wait until all threads have read the old tile */
    for (int unit = threadIdx.x; unit < TILE * GROUPS; unit += ROWS) {
        int row = unit / GROUPS, column = unit % GROUPS * 8;
        if (row >= count || c + column >= h.columns) continue;
        eight e = load8<D>(h, first + row, c + column);
#pragma unroll
        for (int i = 0; i < 8; i++) tile.at[row][column + i] = e.x[i];
    }
    __syncthreads();
}

/* For each j in the span `sees`: scores[j] = dot product of this thread's row of `own` and row first + j of
   `other`. Adds the products in column order, by fmaf. */
template <ott_dtype D>
__device__ __forceinline__ void make_scores(score_tile &scores, row_tile &tile, const head_view &own,
                                            int64_t row, const head_view &other, int64_t first, int64_t count,
                                            span sees) {
    for (int64_t begin = 0; begin < own.columns; begin += COLUMNS) {
        fetch_rows<D>(tile, other, first, count, begin);
        int64_t columns = least(own.columns - begin, COLUMNS);
        for (int64_t c = 0; c < columns && sees.begin < sees.end; c += 8) {
            eight x = load8<D>(own, row, begin + c);
            for (int64_t j = sees.begin; j < sees.end; j++) {
                float s = begin + c > 0 ? scores.at[j][threadIdx.x] : 0.0f;
#pragma unroll
                for (int i = 0; i < 8; i++)
                    if (c + i < columns) s = fmaf(x.x[i], tile.at[j][c + i], s);
                scores.at[j][threadIdx.x] = s;
            }
        }
    }
}

/* This thread's sums over rows, one for each of COLUMNS columns. */
struct row_sums {
    float x[COLUMNS];
};

__device__ __forceinline__ void scale_sums(row_sums &sums, float factor) {
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) sums.x[c] = sums.x[c] * factor;
}

/* For each j of the span `sees`, ascending: sums += scores[j] * (row first + j of `other`), by fmaf. */
template <ott_dtype D>
__device__ __forceinline__ void add_rows(row_sums &sums, const score_tile &scores, row_tile &tile,
                                         const head_view &other, int64_t first, int64_t count, int64_t from,
                                         span sees) {
    fetch_rows<D>(tile, other, first, count, from);
    for (int64_t j = sees.begin; j < sees.end; j++) {
        float s = scores.at[j][threadIdx.x];
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            if (from + 8 * g >= other.columns) continue;
#pragma unroll
            for (int c = 8 * g; c < 8 * g + 8; c++) sums.x[c] = fmaf(s, tile.at[j][c], sums.x[c]);
        }
    }
}

template <ott_dtype D>
__device__ __forceinline__ void store_sums(const row_sums &sums, const head_view &h, int64_t row,
                                           int64_t from) {
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        eight e;
#pragma unroll
        for (int i = 0; i < 8; i++) e.x[i] = sums.x[8 * g + i];
        if (from + 8 * g < h.columns) store8<D>(h, row, from + 8 * g, e);
    }
}

/* Returns the sum of SUM16's 16 lanes (tensor/ops.def): lane[i] += lane[i + 8], then lane[i + 4], and so
   on. */
template <int STEP> __device__ __forceinline__ float fold_lanes(float (&lane)[16]) {
#pragma unroll
    for (int i = 0; i < STEP; i++) lane[i] = lane[i] + lane[i + STEP];
    if constexpr (STEP > 1)
        return fold_lanes<STEP / 2>(lane);
    else
        return lane[0];
}

/* What a thread block computes: rows [first, end) of one head, and COLUMNS columns from column `from` on. */
struct attention_place {
    int64_t first, end, head, from;
};

static int64_t attention_blocks(int64_t rows, int64_t heads, int64_t head_dim) {
    return (rows + ROWS - 1) / ROWS * heads * ((head_dim + COLUMNS - 1) / COLUMNS);
}
__device__ __forceinline__ attention_place place_of(int64_t rows, int64_t heads, int64_t head_dim) {
    int64_t pieces = (head_dim + COLUMNS - 1) / COLUMNS, block = blockIdx.x;
    int64_t first = block / (heads * pieces) * ROWS;
    return {first, least(first + ROWS, rows), block / pieces % heads, block % pieces * COLUMNS};
}

/* ---- forward ---- */

struct attention_forward {
    view q, k, v, o, lse;
    documents d;
    int64_t head_dim, heads, kv_heads, past;
    float scale, softcap;
};

__device__ __forceinline__ float capped(float s, float cap) {
    return cap > 0 ? cap * fmath_tanh(s / cap) : s;
}

/* A query's online softmax. most: largest score so far; sum: sum of exp(score - most) so far. */
struct running_softmax {
    float most, sum;
};

/* Replaces the scores of a tile by p = exp(score - most). Returns the factor by which the caller multiplies
   earlier sums. fresh: there are no earlier sums. */
__device__ __forceinline__ float softmax_step(running_softmax &r, score_tile &scores, span sees, bool fresh,
                                              float scale, float softcap) {
    float most = r.most, lane[16] = {};
    for (int64_t j = sees.begin; j < sees.end; j++) {
        float s = capped(scale * scores.at[j][threadIdx.x], softcap);
        scores.at[j][threadIdx.x] = s;
        if (s > most) most = s;
    }
    float factor = fresh ? 0.0f : fmath_exp(r.most - most);
    for (int first = 0; first < TILE; first += 16)
#pragma unroll
        for (int i = 0; i < 16; i++) {
            if (first + i < sees.begin || first + i >= sees.end) continue;
            float p = fmath_exp(scores.at[first + i][threadIdx.x] - most);
            scores.at[first + i][threadIdx.x] = p;
            lane[i] = lane[i] + p;
        }
    r.sum = r.sum * factor + fold_lanes<8>(lane);
    r.most = most;
    return factor;
}

template <ott_dtype D> __global__ void __launch_bounds__(ROWS) attention_forward_kernel(attention_forward a) {
    SHARED(tile, row_tile);
    SHARED(scores, score_tile);
    attention_place at = place_of(a.q.rows, a.heads, a.head_dim);
    int64_t row = at.first + threadIdx.x, kv_head = at.head / (a.heads / a.kv_heads);
    head_view q = head_of(a.q, at.head, a.head_dim), k = head_of(a.k, kv_head, a.head_dim),
              v = head_of(a.v, kv_head, a.head_dim);
    running_softmax r = {-INFINITY, 0};
    row_sums o = {};
    for (int64_t next = at.first; next < at.end;) { /* loops over documents with rows in this block */
        span d = a.past > 0 ? span{0, a.q.rows} : document_of(a.d, next);
        int64_t end = least(d.end, at.end);
        bool mine = row >= next && row < end;
        span keys = keys_of(a.d, d.begin, a.past + row), all = keys_of(a.d, d.begin, a.past + next);
        all.end = a.past + end;
        for (int64_t j = all.begin - (all.begin - d.begin) % TILE; j < all.end; j += TILE) {
            span sees = mine ? within_tile(keys, j) : span{0, 0};
            int64_t count = least(TILE, all.end - j);
            make_scores<D>(scores, tile, q, row, k, j, count, sees);
            if (sees.begin < sees.end)
                scale_sums(o, softmax_step(r, scores, sees, j <= keys.begin, a.scale, a.softcap));
            add_rows<D>(o, scores, tile, v, j, count, at.from, sees);
        }
        next = end;
    }
    if (row >= at.end) return;
    scale_sums(o, 1.0f / r.sum);
    store_sums<D>(o, head_of(a.o, at.head, a.head_dim), row, at.from);
    if (at.from == 0) store<OTT_F32>(a.lse, at.head, row, r.most + fmath_log(r.sum));
}

extern "C" cudaError_t attention_forward_launch(const attention_forward_args *a, cudaStream_t stream) {
    int64_t heads = a->lse->rows, kv_heads = a->k->columns / a->head_dim;
    attention_forward f = {view_of(a->q),    view_of(a->k),
                           view_of(a->v),    view_of(a->o),
                           view_of(a->lse),  visible_documents(a->cu_seqlens, a->q->rows, a->window),
                           a->head_dim,      heads,
                           kv_heads,         a->past,
                           a->softmax_scale, a->softcap};
    WITH_DTYPE(a->q->dtype, D,
               LAUNCH_BLOCKS(attention_forward_kernel<D>, attention_blocks(a->q->rows, heads, a->head_dim),
                             ROWS, stream, f));
    return cudaGetLastError();
}

/* ---- backward ---- */

struct attention_backward {
    view dout, q, k, v, o, lse, dq, dk, dv;
    float *delta; /* [heads, tokens] delta of each query */
    documents d;
    int64_t head_dim, heads, kv_heads;
    float scale, softcap;
};

/* delta[row] = SUM16 of dout * o over the columns of the row. */
template <ott_dtype D>
__device__ __forceinline__ float delta_of(const head_view &dout, const head_view &o, int64_t row) {
    float lane[16] = {};
    for (int64_t c = 0; c < o.columns; c += 16)
#pragma unroll
        for (int begin = 0; begin < 16; begin += 8) {
            if (c + begin >= o.columns) continue;
            eight x = load8<D>(dout, row, c + begin), y = load8<D>(o, row, c + begin);
#pragma unroll
            for (int i = 0; i < 8; i++)
                if (c + begin + i < o.columns) lane[begin + i] = fmaf(x.x[i], y.x[i], lane[begin + i]);
        }
    return fold_lanes<8>(lane);
}

/* Returns softmax weight p and score gradient ds (tensor/rules/attention.h). s: q k^T; dp: dout v^T. */
struct score_gradient {
    float p, ds;
};
__device__ __forceinline__ score_gradient gradient_of(float s, float dp, float lse, float delta, float scale,
                                                      float softcap) {
    s = capped(scale * s, softcap);
    float p = fmath_exp(s - lse), r = s / softcap, ds = p * (dp - delta);
    if (softcap > 0) ds = ds * fmaf(-r, r, 1.0f);
    return {p, ds * scale};
}

/* Computes delta and dq; each thread has one query. */
template <ott_dtype D>
__global__ void __launch_bounds__(ROWS) attention_queries_kernel(attention_backward a) {
    SHARED(tile, row_tile);
    SHARED(scores, score_tile);
    SHARED(slopes, score_tile);
    attention_place at = place_of(a.q.rows, a.heads, a.head_dim);
    int64_t row = at.first + threadIdx.x, kv_head = at.head / (a.heads / a.kv_heads);
    head_view q = head_of(a.q, at.head, a.head_dim), dout = head_of(a.dout, at.head, a.head_dim),
              k = head_of(a.k, kv_head, a.head_dim), v = head_of(a.v, kv_head, a.head_dim);
    bool mine = row < at.end;
    float delta = mine ? delta_of<D>(dout, head_of(a.o, at.head, a.head_dim), row) : 0;
    float lse = mine ? load<OTT_F32>(a.lse, at.head, row) : 0;
    if (mine && at.from == 0) a.delta[at.head * a.q.rows + row] = delta;
    span keys = mine ? keys_of(a.d, document_of(a.d, row).begin, row) : span{0, 0};
    row_sums dq = {};
    for (int64_t j = keys_of(a.d, document_of(a.d, at.first).begin, at.first).begin; j < at.end; j += TILE) {
        span sees = within_tile(keys, j);
        int64_t count = least(TILE, at.end - j);
        make_scores<D>(scores, tile, q, row, k, j, count, sees);
        make_scores<D>(slopes, tile, dout, row, v, j, count, sees);
        for (int64_t n = sees.begin; n < sees.end; n++) {
            float &slope = slopes.at[n][threadIdx.x];
            slope = gradient_of(scores.at[n][threadIdx.x], slope, lse, delta, a.scale, a.softcap).ds;
        }
        add_rows<D>(dq, slopes, tile, k, j, count, at.from, sees);
    }
    if (mine) store_sums<D>(dq, head_of(a.dq, at.head, a.head_dim), row, at.from);
}

/* Computes dk and dv; each thread has one key. */
template <ott_dtype D> __global__ void __launch_bounds__(ROWS) attention_keys_kernel(attention_backward a) {
    SHARED(tile, row_tile);
    SHARED(scores, score_tile);
    SHARED(slopes, score_tile);
    attention_place at = place_of(a.q.rows, a.kv_heads, a.head_dim);
    int64_t row = at.first + threadIdx.x, sharing = a.heads / a.kv_heads;
    head_view k = head_of(a.k, at.head, a.head_dim), v = head_of(a.v, at.head, a.head_dim);
    bool mine = row < at.end;
    span queries = mine ? queries_of(a.d, document_of(a.d, row).end, row) : span{0, 0};
    int64_t end = queries_of(a.d, document_of(a.d, at.end - 1).end, at.end - 1).end;
    row_sums dk = {}, dv = {};
    for (int64_t head = at.head * sharing; head < (at.head + 1) * sharing; head++) {
        head_view q = head_of(a.q, head, a.head_dim), dout = head_of(a.dout, head, a.head_dim);
        for (int64_t i = at.first; i < end; i += TILE) {
            span sees = within_tile(queries, i);
            int64_t count = least(TILE, end - i);
            make_scores<D>(scores, tile, k, row, q, i, count, sees);
            make_scores<D>(slopes, tile, v, row, dout, i, count, sees);
            for (int64_t n = sees.begin; n < sees.end; n++) {
                float &score = scores.at[n][threadIdx.x], &slope = slopes.at[n][threadIdx.x];
                float lse = load<OTT_F32>(a.lse, head, i + n), delta = a.delta[head * a.q.rows + i + n];
                score_gradient g = gradient_of(score, slope, lse, delta, a.scale, a.softcap);
                score = g.p, slope = g.ds;
            }
            add_rows<D>(dv, scores, tile, dout, i, count, at.from, sees);
            add_rows<D>(dk, slopes, tile, q, i, count, at.from, sees);
        }
    }
    if (!mine) return;
    store_sums<D>(dk, head_of(a.dk, at.head, a.head_dim), row, at.from);
    store_sums<D>(dv, head_of(a.dv, at.head, a.head_dim), row, at.from);
}

extern "C" int64_t attention_backward_workspace(const attention_backward_args *a) {
    return tensor_count(*a->lse) * (int64_t)sizeof(float);
}

extern "C" cudaError_t attention_backward_launch(const attention_backward_args *a, float *workspace,
                                                 cudaStream_t stream) {
    int64_t heads = a->lse->rows, kv_heads = a->k->columns / a->head_dim;
    attention_backward b = {view_of(a->dout),
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
                            heads,
                            kv_heads,
                            a->softmax_scale,
                            a->softcap};
    WITH_DTYPE(a->q->dtype, D, {
        LAUNCH_BLOCKS(attention_queries_kernel<D>, attention_blocks(a->q->rows, heads, a->head_dim), ROWS,
                      stream, b);
        LAUNCH_BLOCKS(attention_keys_kernel<D>, attention_blocks(a->q->rows, kv_heads, a->head_dim), ROWS,
                      stream, b);
    });
    return cudaGetLastError();
}

/* ---- offsets and lengths of packed documents, for cuDNN ---- */

enum { OFFSETS_THREADS = 128 };

__global__ void attention_offsets_kernel(const int32_t *start, int64_t documents, int64_t tokens,
                                         attention_offsets to) {
    int64_t i = (int64_t)blockIdx.x * OFFSETS_THREADS + threadIdx.x;
    if (i > documents) return;
    int64_t begin = i < documents ? start[i] : tokens, end = i + 1 < documents ? start[i + 1] : tokens;
    for (int n = 0; n < ATTENTION_STRIDES; n++) to.offsets[n][i] = begin * to.strides[n];
    if (i < documents) to.q_lengths[i] = to.k_lengths[i] = (int32_t)(end - begin);
}

extern "C" cudaError_t attention_offsets_launch(const tensor *cu_seqlens, int64_t documents, int64_t tokens,
                                                const attention_offsets *to, cudaStream_t stream) {
    LAUNCH_BLOCKS(attention_offsets_kernel, documents / OFFSETS_THREADS + 1, OFFSETS_THREADS, stream,
                  (const int32_t *)cu_seqlens->data, documents, tokens, *to);
    return cudaGetLastError();
}
