/*
 * cpu/attention/attention: causal attention forward, tile by tile with an online softmax (Milakov and
 * Gimelshein 2018; Dao et al. 2022), in the order of tensor/rules/attention.h.
 *
 * The work is divided into units. A unit is a block of queries of one head, with all tiles of keys that these
 * queries attend to, in order. Each vector lane is a query. With only a few queries most lanes would be
 * empty. So a small unit processes its queries one by one, and a lane is a key or an element of a row of v.
 */
#include "cpu/attention/attention.h"

/* ---- checks, for forward and backward ---- */

static ott_status check_documents(const char *op, const attention *s) {
    if (s->past > 0 && document_of(s, 0).length != s->past + s->tokens)
        return status_fail(OTT_ERR_INTERNAL, "%s: with past %lld there must be one document", op,
                           (long long)s->past);
    for (int64_t b = 0; b < s->documents; b++) {
        int64_t least = b == 0 ? 0 : s->cu_seqlens[b - 1], most = b == 0 ? 0 : s->tokens;
        if (s->cu_seqlens[b] < least || s->cu_seqlens[b] > most)
            return status_fail(OTT_ERR_INTERNAL, "%s: cu_seqlens[%lld] is %d; it must be %lld to %lld", op,
                               (long long)b, s->cu_seqlens[b], (long long)least, (long long)most);
    }
    return OTT_OK;
}

ott_status ISA(attention_open)(const char *op, const tensor *q, const tensor *k, const tensor *cu_seqlens,
                               const tensor *lse, int64_t head_dim, int64_t window, int64_t past, float scale,
                               attention *s) {
    TRY(attention_check_heads(op, q, k, cu_seqlens, lse, head_dim, past));
    *s = (attention){.head_dim = head_dim,
                     .width = (head_dim + 15) / 16 * 16,
                     .heads = q->columns / head_dim,
                     .kv_heads = k->columns / head_dim,
                     .tokens = q->rows,
                     .documents = cu_seqlens->columns,
                     .window = window,
                     .past = past,
                     .block = BLOCK_MAX,
                     .cu_seqlens = cu_seqlens->data,
                     .scale = scale};
    /* Pairs of bf16 numbers need an even head_dim, and rows that consist of full vectors of 16 pairs. */
    s->in_pairs = SIMD_HAS_PAIRS && q->dtype == OTT_BF16 && head_dim % 2 == 0 && s->width % 32 == 0;
    s->score_width = s->in_pairs ? s->width / 2 : s->width;
    TRY(check_documents(op, s));
    for (int64_t b = 0; b < s->documents; b++)
        s->pairs += visible_pairs(window, document_of(s, b).length) - visible_pairs(window, past);
    return OTT_OK;
}

ott_status ISA(attention_fits)(const char *op, const attention *s, int64_t floats) {
    int64_t bytes = floats * (int64_t)sizeof(float);
    if (floats <= SCRATCH_FLOATS) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "%s: head_dim %lld needs %lld bytes of scratch memory per thread; there are %lld", op,
                       (long long)s->head_dim, (long long)bytes, (long long)CPU_SCRATCH_BYTES);
}

/* ---- forward ---- */

/* One thread's buffers for a block of queries. */
typedef struct forward_buffers {
    float *queries;             /* packed queries [block / QUERY_LANES][score_width][QUERY_LANES] */
    float *output;              /* sums of the output [block][width] */
    float *keys;                /* packed keys [TILE][score_width] */
    float *values;              /* packed values [TILE][width] */
    float *scores;              /* scores with a tile of keys [TILE][QUERY_LANES] */
    float *most;                /* running maximum of each query [block] */
    float *sum;                 /* running sum of each query [block] */
    float *factor;              /* exp(old maximum - new maximum) of each query [QUERY_LANES] */
    int least_query, least_key; /* smallest exponents in packed queries, in packed keys */
} forward_buffers;

/* Divides the memory at `base` among the buffers of w. Returns how many floats they need. */
static int64_t lay_out_forward(const attention *s, float *base, forward_buffers *w) {
    int64_t used = 0;
    w->queries = reserve_floats(base, &used, s->block * s->width);
    w->output = reserve_floats(base, &used, s->block * s->width);
    w->keys = reserve_floats(base, &used, TILE * s->width);
    w->values = reserve_floats(base, &used, TILE * s->width);
    w->scores = reserve_floats(base, &used, TILE * QUERY_LANES);
    w->most = reserve_floats(base, &used, s->block);
    w->sum = reserve_floats(base, &used, s->block);
    w->factor = reserve_floats(base, &used, QUERY_LANES);
    return used;
}

typedef struct forward_job {
    const exec *cx;
    const attention_forward_args *a;
    attention s;
} forward_job;

/* A unit of work: the queries at positions [query, query + count) of document d, in one head. */
typedef struct unit {
    document d;
    int64_t head, query, count;
} unit;

static void start_forward_block(const forward_job *j, const unit *u, forward_buffers *w) {
    w->least_query = pack_lanes(j->a->q, query_row(&j->s, &u->d, u->query), u->count, u->head * j->s.head_dim,
                                &j->s, w->queries);
    for (int64_t i = 0; i < padded_lanes(u->count); i++) w->most[i] = -INFINITY, w->sum[i] = 0.0f;
}

/* Sets scores of keys that a query does not see to -inf. i: the first of 16 queries; tile: the first key. */
static void mask_tile(const attention *s, int64_t i, int64_t tile, const key_range *k, float *scores) {
    v16 hidden = v16_set1(-INFINITY);
    for (int64_t j = k->begin; j < k->end; j++) {
        int64_t see = clamp(tile + j - i, 0, 16), stop = end_query(s->window, tile + j, INT64_MAX) - i;
        if (see == 0 && stop >= 16) continue;
        v16 score = v16_select(v16m_first(see), hidden, v16_load(scores + j * QUERY_LANES));
        v16_store(scores + j * QUERY_LANES, v16_select(v16m_first(clamp(stop, 0, 16)), score, hidden));
    }
}

/* Returns the largest score of each of 16 queries. Four independent maxima hide the latency of v16_max. */
SIMD v16 largest(const float *scores, const key_range *k) {
    v16 most[4];
    for (int i = 0; i < 4; i++) most[i] = v16_set1(-INFINITY);
    for (int64_t j = k->begin; j < k->end; j += 4)
        UNROLL for (int i = 0; i < 4; i++) most[i] =
            v16_max(v16_load(scores + (j + i) * QUERY_LANES), most[i]);
    return v16_max(v16_max(most[0], most[1]), v16_max(most[2], most[3]));
}

/* Replaces each score by exp(score - shift). Returns the sums over keys, a vector with a lane for each query.
   Adds key j to vector j % 16 of partial sums, and then these vectors in a tree (SUM16 in tensor/ops.def). */
SIMD v16 exponentials(float *scores, const key_range *k, v16 shift) {
    v16 part[16];
    for (int l = 0; l < 16; l++) part[l] = v16_zero();
    for (int64_t j = k->begin; j < k->end; j += 16) {
        UNROLL for (int l = 0; l < 16; l++) {
            v16 p = v16_exp(v16_sub(v16_load(scores + (j + l) * QUERY_LANES), shift));
            v16_store(scores + (j + l) * QUERY_LANES, p);
            part[l] = v16_add(part[l], p);
        }
    }
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; l++) part[l] = v16_add(part[l], part[l + half]);
    return part[0];
}

/* Online softmax step of queries [i, i + 16) with a tile: replaces scores by p = exp(score - maximum). The
   factor of a query's first tile is 1: all sums are 0 before it, and `rescale` skips the factor 1. */
static void softmax_step(const attention *s, int64_t i, int64_t tile, const key_range *k, float *scores,
                         float *most, float *sum, float *factor) {
    v16 one = v16_set1(1.0f), f = one;
    if (k->begin < k->end) {
        cap_scores(k, s, scores, QUERY_LANES);
        if (!k->all) mask_tile(s, i, tile, k, scores);
        /* With a window, the last queries may see no key of the tile. Their maximum and sum do not change. */
        v16m sees = v16m_first(clamp(end_query(s->window, tile + TILE - 1, INT64_MAX) - i, 0, 16));
        v16 old = v16_load(most), now = v16_max(largest(scores, k), old);
        v16 first = v16_select(v16_eq(old, v16_set1(-INFINITY)), one, v16_exp(v16_sub(old, now)));
        v16 total = exponentials(scores, k, v16_select(sees, now, v16_zero()));
        f = v16_select(sees, first, one);
        v16_store(most, now);
        v16_store(sum, v16_add(v16_mul(v16_load(sum), f), total));
    }
    v16_store(factor, f);
}

static void rescale(float *output, int64_t width, const float *factor) {
    for (int i = 0; i < QUERY_LANES; i++) {
        v16 f = v16_set1(factor[i]);
        if (factor[i] == 1.0f) continue;
        for (int64_t c = 0; c < width; c += 16)
            v16_store(output + i * width + c, v16_mul(v16_load(output + i * width + c), f));
    }
}

/* Processes queries [i, i + QUERY_LANES) with the keys of a tile. row: the row of query i in the block of
   queries; tile: the tile's first key. */
static void forward_tile(const attention *s, const forward_buffers *w, int64_t i, int64_t row, int64_t tile) {
    key_range k[VECTORS];
    if (!visible_to_lanes(s, i, tile, k)) return;
    score_keys((key_product){.keys = w->keys,
                             .queries = w->queries + row * s->score_width,
                             .k = k,
                             .scale = s->scale,
                             .scores = w->scores,
                             .ld = QUERY_LANES},
               s, operand_arithmetic(s, w->least_query, w->least_key));
    for (int v = 0; v < VECTORS; v++)
        softmax_step(s, i + 16 * v, tile, &k[v], w->scores + 16 * v, w->most + row + 16 * v,
                     w->sum + row + 16 * v, w->factor + 16 * v);
    float *output = w->output + row * s->width;
    bool fresh = tile <= first_key(s->window, i);
    if (!fresh) rescale(output, s->width, w->factor);
    product p = {.a = w->scores,
                 .a_row = 1,
                 .a_depth = QUERY_LANES,
                 .b = w->values,
                 .ldb = s->width,
                 .c = output,
                 .ldc = s->width,
                 .fresh = fresh};
    band b = {.begin = s->window > 0 ? i - s->window + 1 - tile : 0,
              .begin_step = s->window > 0,
              .end = i + 1 - tile,
              .end_step = 1,
              .depth = TILE};
    product_banded(p, QUERY_LANES, s->width, &b);
}

SIMD void output_rows(ott_dtype d, const float *from, int64_t width, const float *inverse, const tensor *o,
                      int64_t row, int64_t rows, int64_t column, int64_t head_dim) {
    int64_t at = row * o->ld + column;
    for (int64_t r = 0; r < rows; r++, from += width, at += o->ld) {
        v16 factor = v16_set1(inverse[r]);
        BY_16(c, lanes, head_dim, v16_put(o->data, d, at + c, v16_mul(v16_load(from + c), factor), lanes););
    }
}

/* Stores the rows of o and the log-sum-exps (lse) of queries u->query + [n, n + count), at most 16. */
static void finish_queries(const forward_job *j, const unit *u, int64_t n, int64_t count,
                           const forward_buffers *w) {
    float inverse[16];
    const attention *s = &j->s;
    int64_t row = query_row(s, &u->d, u->query + n), column = u->head * s->head_dim;
    v16 sum = v16_load_n(w->sum + n, count), most = v16_load_n(w->most + n, count);
    v16_store(inverse, v16_div(v16_set1(1.0f), sum));
    WITH_DTYPE(j->a->o->dtype, D,
               output_rows(D, w->output + n * s->width, s->width, inverse, j->a->o, row, count, column,
                           s->head_dim));
    v16_store_n((float *)row_of(j->a->lse, u->head) + row, v16_add(most, v16_log(sum)), count);
}

/* ---- a few queries, one by one ---- */

enum { SKINNY_QUERIES = 4 };

/* Computes the scores of query q[width] with the keys of a tile, which are rows of k from `row` on. Each lane
   is a key: blocks of 16 keys x 16 elements are transposed. Keys that the query does not see get -inf. */
SIMD void score_query(ott_dtype d, const tensor *k, int64_t row, int64_t column, const attention *s,
                      const key_range *see, const float *q, float *scores) {
    for (int64_t j = see->begin / 16 * 16; j < see->end; j += 16) {
        v16 sum = v16_zero();
        for (int64_t c = 0; c < s->head_dim; c += 16) {
            int64_t lanes = clamp(s->head_dim - c, 0, 16);
            v16 t[16];
            for (int64_t i = 0; i < 16; i++) {
                bool visible = j + i >= see->begin && j + i < see->end;
                t[i] = visible ? v16_get(k->data, d, (row + j + i) * k->ld + column + c, lanes) : v16_zero();
            }
            v16_transpose(t);
            for (int64_t i = 0; i < lanes; i++) sum = v16_fma(v16_set1(q[c + i]), t[i], sum);
        }
        v16 score = v16_mul(v16_set1(s->scale), sum);
        v16_store(scores + j, s->softcap > 0 ? v16_softcap(score, v16_set1(s->softcap)) : score);
    }
    for (int64_t j = 0; j < see->begin; j++) scores[j] = -INFINITY;
    for (int64_t j = see->end; j < TILE; j++) scores[j] = -INFINITY;
}

/* Multiplies output[c] by factor, then adds p[j] * v[j,c] with one fmaf for each visible key j. */
SIMD void add_values(ott_dtype d, const tensor *v, int64_t row, int64_t column, const attention *s,
                     const key_range *see, const float *p, float factor, float *output) {
    BY_16(c, lanes, s->head_dim, {
        v16 sum = v16_mul(v16_load(output + c), v16_set1(factor));
        for (int64_t j = see->begin; j < see->end; j++)
            sum = v16_fma(v16_set1(p[j]), v16_get(v->data, d, (row + j) * v->ld + column + c, lanes), sum);
        v16_store(output + c, sum);
    });
}

/* Replaces each score by p = exp(score - most); -inf gives 0. Returns the sum of p (SUM16 in ops.def). */
static float query_exponentials(float *scores, float most) {
    v16 sum = v16_zero(), shift = v16_set1(most);
    for (int64_t j = 0; j < TILE; j += 16) {
        v16 p = v16_exp(v16_sub(v16_load(scores + j), shift));
        v16_store(scores + j, p);
        sum = v16_add(sum, p);
    }
    return v16_fold_sum(sum);
}

/* Computes the sums of query u->query + n, as forward_block does for all queries of a unit. */
static void forward_query(const forward_job *j, const unit *u, int64_t n, const forward_buffers *w) {
    const attention *s = &j->s;
    int64_t i = u->query + n;
    float *q = w->queries, *output = w->output + n * s->width, *scores = w->scores, most = -INFINITY,
          sum = 0.0f;
    int64_t column = u->head / (s->heads / s->kv_heads) * s->head_dim, first = first_key(s->window, i);
    pack_rows(j->a->q, query_row(s, &u->d, i), 1, u->head * s->head_dim, s, 1, q);
    memset(output, 0, (size_t)s->width * sizeof(float));
    for (int64_t tile = first / TILE * TILE; tile <= i; tile += TILE) {
        key_range see = {.begin = clamp(first - tile, 0, TILE), .end = clamp(i + 1 - tile, 0, TILE)};
        int64_t row = u->d.first + tile;
        WITH_DTYPE(j->a->k->dtype, D, score_query(D, j->a->k, row, column, s, &see, q, scores));
        float now = most;
        for (int64_t k = see.begin; k < see.end; k++) now = scores[k] > now ? scores[k] : now;
        float factor = tile <= first ? 0.0f : fmath_exp(most - now);
        sum = sum * factor + query_exponentials(scores, now);
        WITH_DTYPE(j->a->v->dtype, D, add_values(D, j->a->v, row, column, s, &see, scores, factor, output));
        most = now;
    }
    w->most[n] = most, w->sum[n] = sum;
}

/* ---- a block of queries ---- */

static void forward_block(const forward_job *j, const unit *u, forward_buffers *w) {
    const attention *s = &j->s;
    int64_t column = u->head / (s->heads / s->kv_heads) * s->head_dim;
    start_forward_block(j, u, w);
    for (int64_t tile = first_key(s->window, u->query) / TILE * TILE; tile < u->query + u->count;
         tile += TILE) {
        int64_t keys = clamp(u->d.length - tile, 0, TILE);
        w->least_key = pack_operand(j->a->k, u->d.first + tile, keys, column, s, w->keys);
        pack_rows(j->a->v, u->d.first + tile, keys, column, s, TILE, w->values);
        for (int64_t row = 0; row < u->count; row += QUERY_LANES)
            forward_tile(s, w, u->query + row, row, tile);
    }
}

static void forward_unit(const forward_job *j, const unit *u, forward_buffers *w) {
    if (u->count > SKINNY_QUERIES)
        forward_block(j, u, w);
    else
        for (int64_t n = 0; n < u->count; n++) forward_query(j, u, n, w);
    for (int64_t n = 0; n < u->count; n += 16) finish_queries(j, u, n, clamp(u->count - n, 0, 16), w);
}

/* Computes this thread's units of work. Each thread has an equal share of the visible (query, key) pairs of
   all documents and heads, in order. A unit belongs to the thread that has its middle pair. */
static void forward_task(void *argument, int thread, int threads) {
    const forward_job *j = argument;
    const attention *s = &j->s;
    forward_buffers w;
    lay_out_forward(s, cpu_scratch(j->cx, thread), &w);
    int64_t total = s->pairs * s->heads, done = 0;
    for (int64_t b = 0; b < s->documents; b++) {
        unit u = {.d = document_of(s, b)};
        for (u.head = 0; u.head < s->heads; u.head++)
            for (u.query = s->past; u.query < u.d.length; u.query += u.count) {
                u.count = clamp(u.d.length - u.query, 0, s->block);
                int64_t pairs =
                    visible_pairs(s->window, u.query + u.count) - visible_pairs(s->window, u.query);
                if ((2 * done + pairs) * threads / (2 * total) == thread) forward_unit(j, &u, &w);
                done += pairs;
            }
    }
}

/* True if there are fewer than 4 units for each thread, which is too few to balance the work. */
static bool too_few_units(const attention *s, int threads) {
    int64_t units = 0;
    for (int64_t b = 0; b < s->documents; b++)
        units += (document_of(s, b).length - s->past + s->block - 1) / s->block;
    return units * s->heads < 4 * threads;
}

ott_status ISA(attention_forward)(exec *cx, const attention_forward_args *a) {
    forward_job j = {.cx = cx, .a = a};
    attention *s = &j.s;
    forward_buffers w;
    TRY(ISA(attention_open)("attention_forward", a->q, a->k, a->cu_seqlens, a->lse, a->head_dim, a->window,
                            a->past, a->softmax_scale, s));
    s->softcap = a->softcap;
    while (s->block > QUERIES &&
           (lay_out_forward(s, cpu_scratch(cx, 0), &w) > SCRATCH_FLOATS || too_few_units(s, cpu_threads(cx))))
        s->block /= 2;
    TRY(ISA(attention_fits)("attention_forward", s, lay_out_forward(s, cpu_scratch(cx, 0), &w)));
    cpu_run_sized(cx, s->pairs * s->heads * s->head_dim, forward_task, &j);
    return OTT_OK;
}
