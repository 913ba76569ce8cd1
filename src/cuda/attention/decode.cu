/* cuda/attention/decode: attention of one new token with the keys of a KV cache. A block computes one query
   head for one part of the keys: first each thread one score, then each thread one column of the output. Up
   to EXACT_KEYS keys are one part, with the sums of tensor/rules/attention.h. More keys have several parts,
   so that all of the GPU works. A second kernel adds the parts in order. */
#include "base/fmath.h"
#include "cuda/attention/visible.h"
#include "cuda/kernels/kernels.h"
#include "cuda/view.h"
#include "tensor/rules/attention.h"

enum { THREADS = 256, TILE = ATTENTION_TILE, TILES = THREADS / TILE, EXACT_KEYS = 1024, PARTS_MOST = 64 };

/* Keys [begin, end) of the cache, in parts of part_keys. The query sees keys from `first` on. */
struct decode {
    view q, k, v, o, lse;
    int64_t head_dim, heads, kv_heads, first, begin, end, part_keys, parts;
    float scale, softcap;
    float *sums; /* [heads][parts][head_dim + 2]: sums of v, the largest score, and the sum of the weights */
};

static decode decode_of(const attention_forward_args *a, float *workspace) {
    decode d = {};
    d.q = view_of(a->q), d.k = view_of(a->k), d.v = view_of(a->v), d.o = view_of(a->o),
    d.lse = view_of(a->lse);
    bool hides = a->window > 0 && a->past + 1 > a->window;
    d.head_dim = a->head_dim, d.heads = a->lse->rows, d.kv_heads = a->k->columns / a->head_dim;
    d.k.vectors = d.k.vectors && a->head_dim % 8 == 0;
    d.scale = a->softmax_scale, d.softcap = a->softcap, d.sums = workspace;
    d.first = hides ? a->past + 1 - a->window : 0;
    d.begin = d.first - d.first % TILE, d.end = a->past + 1;
    int64_t keys = d.end - d.begin, steps = (keys + THREADS - 1) / THREADS;
    d.part_keys =
        keys <= EXACT_KEYS ? (int64_t)EXACT_KEYS : THREADS * ((steps + PARTS_MOST - 1) / PARTS_MOST);
    d.parts = (keys + d.part_keys - 1) / d.part_keys;
    return d;
}

/* The online softmax of one query, the same in all threads. */
struct softmax_state {
    float most, sum;
};

/* Values that the threads of a block exchange. */
struct decode_tiles {
    float query[THREADS];
    float weights[THREADS]; /* of the keys of TILES tiles */
    float most[THREADS / 32];
};

/* Returns this thread's score of key `key`, as tensor/rules/attention.h defines it. */
template <ott_dtype D>
__device__ __forceinline__ float score_of(const decode &a, const decode_tiles &tiles, int64_t column,
                                          int64_t key) {
    float s = 0;
    for (int64_t c = 0; c < a.head_dim; c += 8) {
        eight x = load8<D>(a.k, key, column + c, column + a.head_dim);
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (c + i < a.head_dim) s = fmaf(tiles.query[c + i], x.x[i], s);
    }
    s = a.scale * s;
    return a.softcap > 0 ? a.softcap * fmath_tanh(s / a.softcap) : s;
}

/* Computes the weights of the keys [j, j + THREADS) below `end`. factor[t]: what tile t multiplies earlier
   sums by. first: the part's first visible key. */
template <ott_dtype D>
__device__ __forceinline__ void make_weights(const decode &a, decode_tiles &tiles, softmax_state &r,
                                             float (&factor)[TILES], int64_t column, int64_t first, int64_t j,
                                             int64_t end) {
    int64_t key = j + threadIdx.x;
    bool visible = key >= first && key < end;
    float score = visible ? score_of<D>(a, tiles, column, key) : -INFINITY, most = score, mine = 0;
#pragma unroll
    for (int step = 16; step >= 1; step /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
    if (threadIdx.x % 32 == 0) tiles.most[threadIdx.x / 32] = most;
    __syncthreads(); /* also: all threads have read the weights of earlier keys */
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        if (j + t * TILE >= end) break;
        float before = r.most;
        r.most = fmaxf(before, fmaxf(tiles.most[2 * t], tiles.most[2 * t + 1]));
        factor[t] = j + t * TILE <= first ? 0 : fmath_exp(before - r.most);
        if ((int)threadIdx.x / TILE == t) mine = r.most;
    }
    tiles.weights[threadIdx.x] = visible ? fmath_exp(score - mine) : 0;
    __syncthreads();
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        if (j + t * TILE >= end) break;
        const float *p = tiles.weights + t * TILE + threadIdx.x % 16;
        r.sum = r.sum * factor[t] + fold16(p[0] + p[16] + p[32] + p[48]);
    }
}

template <ott_dtype D> __global__ void __launch_bounds__(THREADS, 4) decode_kernel(decode a) {
    SHARED(tiles, decode_tiles);
    int64_t head = blockIdx.x % a.heads, part = blockIdx.x / a.heads, c = threadIdx.x;
    int64_t column = head / (a.heads / a.kv_heads) * a.head_dim;
    int64_t begin = a.begin + part * a.part_keys, end = least(begin + a.part_keys, a.end);
    int64_t first = begin < a.first ? a.first : begin;
    softmax_state r = {-INFINITY, 0};
    float o = 0;
    if (c < a.head_dim) tiles.query[c] = load<D>(a.q, 0, head * a.head_dim + c);
    __syncthreads();
    for (int64_t j = begin; j < end; j += THREADS) {
        float factor[TILES];
        make_weights<D>(a, tiles, r, factor, column, first, j, end);
#pragma unroll
        for (int t = 0; t < TILES && c < a.head_dim; t++) {
            int64_t from = j + t * TILE, to = least(from + TILE, end);
            if (from >= end) break;
            o = o * factor[t];
#pragma unroll 8
            for (int64_t key = from < first ? first : from; key < to; key++)
                o = fmaf(tiles.weights[key - j], load<D>(a.v, key, column + c), o);
        }
    }
    if (a.parts == 1) {
        if (c < a.head_dim) store<D>(a.o, 0, head * a.head_dim + c, o * (1.0f / r.sum));
        if (c == 0) store<OTT_F32>(a.lse, head, 0, r.most + fmath_log(r.sum));
        return;
    }
    float *sums = a.sums + (head * a.parts + part) * (a.head_dim + 2);
    if (c < a.head_dim) sums[c] = o;
    if (c == 0) sums[a.head_dim] = r.most, sums[a.head_dim + 1] = r.sum;
}

/* Adds the parts of a head. */
template <ott_dtype D> __global__ void __launch_bounds__(THREADS) decode_parts_kernel(decode a) {
    int64_t head = blockIdx.x, c = threadIdx.x, step = a.head_dim + 2;
    const float *sums = a.sums + head * a.parts * step, *most_of = sums + a.head_dim;
    float most = -INFINITY, sum = 0, o = 0;
    if (c >= a.head_dim) return;
    for (int64_t part = 0; part < a.parts; part++) most = fmaxf(most, most_of[part * step]);
    for (int64_t part = 0; part < a.parts; part++) {
        float factor = fmath_exp(most_of[part * step] - most);
        sum = fmaf(most_of[part * step + 1], factor, sum);
        o = fmaf(sums[part * step + c], factor, o);
    }
    store<D>(a.o, 0, head * a.head_dim + c, o * (1.0f / sum));
    if (c == 0) store<OTT_F32>(a.lse, head, 0, most + fmath_log(sum));
}

extern "C" bool decode_supports(const attention_forward_args *a) {
    return a->q->rows == 1 && a->head_dim <= THREADS;
}

extern "C" int64_t decode_workspace(const attention_forward_args *a) {
    decode d = decode_of(a, NULL);
    return d.parts > 1 ? d.heads * d.parts * (d.head_dim + 2) * (int64_t)sizeof(float) : 0;
}

extern "C" cudaError_t decode_launch(const attention_forward_args *a, float *workspace, cudaStream_t stream) {
    decode d = decode_of(a, workspace);
    WITH_DTYPE(a->q->dtype, D, {
        LAUNCH_BLOCKS(decode_kernel<D>, d.heads * d.parts, THREADS, stream, d);
        if (d.parts > 1) LAUNCH_BLOCKS(decode_parts_kernel<D>, d.heads, THREADS, stream, d);
    });
    return cudaGetLastError();
}
