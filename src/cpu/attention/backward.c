/*
 * cpu/attention/backward: gradients of attention (Dao et al. 2022), in the order of tensor/rules/attention.h.
 *
 * A unit of work is a key head of a document, with all query heads that share it. Only this unit writes dk
 * and dv of the key head and dq of the query heads. A unit processes blocks of queries in order, and for each
 * block the tiles of keys in order. So the terms of every sum are added in ascending order.
 */
#include "cpu/attention/attention.h"

/* One thread's buffers: a block of queries, a tile of keys, and scores of QUERIES queries with the tile. */
typedef struct backward_buffers {
    float *q, *dout;             /* rows of q and dout [block][width] */
    float *q_lanes, *dout_lanes; /* packed [block / QUERY_LANES][score_width][QUERY_LANES] */
    float *dq;                   /* rows of dq [block][width] */
    float *lse, *delta;          /* lse and delta of each query [block] */
    float *k, *dk, *dv;          /* rows of k; sums of dk and dv [TILE][width] */
    float *k_operand, *v;        /* packed k and v [TILE][score_width]; in fp32 k_operand is k */
    float *p, *ds;               /* p and ds of the scores [TILE][QUERIES] */
    int least_q, least_dout, least_k, least_v; /* smallest exponents in packed q, dout, k, v */
} backward_buffers;

/* Divides the memory at `base` among the buffers of w. Returns how many floats they need. */
static int64_t lay_out_backward(const attention *s, float *base, backward_buffers *w) {
    int64_t used = 0;
    float **blocks[] = {&w->q, &w->dout, &w->q_lanes, &w->dout_lanes, &w->dq};
    float **tiles[] = {&w->k, &w->v, &w->dk, &w->dv};
    for (int i = 0; i < 5; i++) *blocks[i] = reserve_floats(base, &used, s->block * s->width);
    for (int i = 0; i < 4; i++) *tiles[i] = reserve_floats(base, &used, TILE * s->width);
    w->k_operand = s->in_pairs ? reserve_floats(base, &used, TILE * s->score_width) : w->k;
    w->lse = reserve_floats(base, &used, s->block);
    w->delta = reserve_floats(base, &used, s->block);
    w->p = reserve_floats(base, &used, TILE * QUERIES);
    w->ds = reserve_floats(base, &used, TILE * QUERIES);
    return used;
}

/* The op's workspace: values that several blocks of queries use. */
typedef struct backward_sums {
    tensor delta;          /* delta of each query [heads, tokens] */
    tensor dk_sum, dv_sum; /* sums of dk and of dv [tokens, kv_heads * head_dim] */
} backward_sums;

static tensor take_sum(char *base, int64_t *used, int64_t rows, int64_t columns) {
    tensor t = tensor_matrix(base ? base + *used : NULL, OTT_F32, rows, columns);
    *used += (tensor_bytes(t) + MEM_ALIGNMENT - 1) / MEM_ALIGNMENT * MEM_ALIGNMENT;
    return t;
}

/* Divides the memory at `base` among the tensors. Returns how many bytes they need. base may be NULL. */
static int64_t lay_out_sums(const attention_backward_args *a, char *base, backward_sums *out) {
    int64_t used = 0;
    out->delta = take_sum(base, &used, a->lse->rows, a->q->rows);
    out->dk_sum = take_sum(base, &used, a->k->rows, a->k->columns);
    out->dv_sum = take_sum(base, &used, a->k->rows, a->k->columns);
    return used;
}

int64_t ISA(attention_backward_workspace)(const attention_backward_args *a) {
    backward_sums sums;
    return lay_out_sums(a, NULL, &sums);
}

typedef struct backward_job {
    const exec *cx;
    const attention_backward_args *a;
    attention s;
    backward_sums sums;
} backward_job;

/* Queries [query, query + count) of a head of a document. */
typedef struct query_block {
    document d;
    int64_t head, query, count;
} query_block;

/* Returns delta of a query: the sum of dout * o (SUM16 in ops.def). */
SIMD float delta_of_row(ott_dtype d, const float *dout, const void *o, int64_t column, int64_t head_dim) {
    v16 sum = v16_zero();
    BY_16(c, lanes, head_dim, sum = v16_fma(v16_load(dout + c), v16_get(o, d, column + c, lanes), sum););
    return v16_fold_sum(sum);
}

static void start_backward_block(const backward_job *j, const query_block *q, backward_buffers *w) {
    const attention *s = &j->s;
    int64_t first = q->d.first + q->query, column = q->head * s->head_dim, capacity = padded_lanes(q->count);
    const float *lse = (const float *)row_of(j->a->lse, q->head) + first;
    float *delta = (float *)row_of(&j->sums.delta, q->head) + first;
    pack_rows(j->a->q, first, q->count, column, s, capacity, w->q);
    pack_rows(j->a->dout, first, q->count, column, s, capacity, w->dout);
    w->least_q = pack_lanes(j->a->q, first, q->count, column, s, w->q_lanes);
    w->least_dout = pack_lanes(j->a->dout, first, q->count, column, s, w->dout_lanes);
    for (int64_t i = 0; i < q->count; i++) {
        const float *dout = w->dout + i * s->width;
        WITH_DTYPE(j->a->o->dtype, D,
                   delta[i] = delta_of_row(D, dout, row_of(j->a->o, first + i), column, s->head_dim));
        w->delta[i] = delta[i];
        w->lse[i] = lse[i];
    }
    for (int64_t i = q->count; i < capacity; i++) w->delta[i] = w->lse[i] = 0.0f;
}

/* Replaces score by p = exp(score - lse) and dp by ds = p * (dp - delta) * scale, for 16 queries. */
SIMD void gradients_of_scores(float *p, float *ds, const key_range *k, const float *lse, const float *delta,
                              const attention *s) {
    v16 shift = v16_load(lse), mean = v16_load(delta), factor = v16_set1(s->scale);
    v16 one = v16_set1(1.0f), cap = v16_set1(s->softcap);
    for (int64_t j = k->begin; j < k->end; j++) {
        v16 score = v16_load(p + j * QUERIES), e = v16_exp(v16_sub(score, shift));
        v16 g = v16_mul(e, v16_sub(v16_load(ds + j * QUERIES), mean));
        if (s->softcap > 0) {
            v16 r = v16_div(score, cap);
            g = v16_mul(g, v16_fma(v16_neg(r), r, one));
        }
        g = v16_mul(g, factor);
        v16_store(p + j * QUERIES, e);
        v16_store(ds + j * QUERIES, g);
    }
}

/* Computes w->p and w->ds of queries [i, i + count). row: the row of query i in the block of queries. Values
   of keys that no query sees are undefined. */
static void score_tile(const attention *s, const backward_buffers *w, int64_t i, int64_t count, int64_t row,
                       int64_t tile) {
    for (int64_t lane = 0; lane < count; lane += QUERY_LANES, i += QUERY_LANES, row += QUERY_LANES) {
        key_range k[VECTORS];
        visible_to_lanes(s, i, tile, k);
        float *p = w->p + lane, *ds = w->ds + lane;
        key_product x = {.keys = w->k_operand,
                         .queries = w->q_lanes + row * s->score_width,
                         .k = k,
                         .scale = s->scale,
                         .scores = p,
                         .ld = QUERIES};
        score_keys(x, s, operand_arithmetic(s, w->least_q, w->least_k));
        x.keys = w->v, x.queries = w->dout_lanes + row * s->score_width, x.scale = 1.0f, x.scores = ds;
        score_keys(x, s, operand_arithmetic(s, w->least_dout, w->least_v));
        for (int v = 0; v < VECTORS; v++) {
            cap_scores(&k[v], s, p + 16 * v, QUERIES);
            gradients_of_scores(p + 16 * v, ds + 16 * v, &k[v], w->lse + row + 16 * v,
                                w->delta + row + 16 * v, s);
        }
    }
}

/* Processes queries [i, i + count) with the keys of a tile. row: the row of query i in the block of queries;
   tile: the tile's first key; first: no earlier block of queries has used the tile. */
static void backward_tile(const attention *s, const backward_buffers *w, int64_t i, int64_t count,
                          int64_t row, int64_t tile, bool first) {
    int64_t width = s->width;
    if (tile > i + count - 1 || first_key(s->window, i) >= tile + TILE) return;
    score_tile(s, w, i, count, row, tile);
    product dq = {.a = w->ds,
                  .a_row = 1,
                  .a_depth = QUERIES,
                  .b = w->k,
                  .ldb = width,
                  .c = w->dq + row * width,
                  .ldc = width,
                  .fresh = tile <= first_key(s->window, i)};
    band keys = {.begin = s->window > 0 ? i - s->window + 1 - tile : 0,
                 .begin_step = s->window > 0,
                 .end = i + 1 - tile,
                 .end_step = 1,
                 .depth = TILE};
    product_banded(dq, padded_lanes(count), width, &keys);
    product dk = {.a = w->ds,
                  .a_row = QUERIES,
                  .a_depth = 1,
                  .b = w->q + row * width,
                  .ldb = width,
                  .c = w->dk,
                  .ldc = width,
                  .fresh = first && tile == i};
    product dv = dk;
    dv.a = w->p, dv.b = w->dout + row * width, dv.c = w->dv;
    band queries = {.begin = tile - i,
                    .begin_step = 1,
                    .end = s->window > 0 ? tile - i + s->window : count,
                    .end_step = s->window > 0,
                    .depth = count};
    product_banded(dk, TILE, width, &queries);
    product_banded(dv, TILE, width, &queries);
}

/* Stores packed[count][width] in rows [first, first + count) and columns [column, column + head_dim) of t. */
SIMD void unpack_rows_of(ott_dtype d, const float *packed, int64_t width, const tensor *t, int64_t first,
                         int64_t count, int64_t column, int64_t head_dim) {
    int64_t at = first * t->ld + column;
    for (int64_t r = 0; r < count; r++, packed += width, at += t->ld)
        BY_16(c, lanes, head_dim, v16_put(t->data, d, at + c, v16_load(packed + c), lanes););
}
static void unpack_rows(const float *packed, const attention *s, const tensor *t, int64_t first,
                        int64_t count, int64_t column) {
    WITH_DTYPE(t->dtype, D, unpack_rows_of(D, packed, s->width, t, first, count, column, s->head_dim));
}

static void backward_block(const backward_job *j, const query_block *q, backward_buffers *w) {
    const attention *s = &j->s;
    const attention_backward_args *a = j->a;
    const backward_sums *sums = &j->sums;
    int64_t shared = s->heads / s->kv_heads, column = q->head / shared * s->head_dim;
    int64_t end = q->query + q->count;
    start_backward_block(j, q, w);
    for (int64_t tile = first_key(s->window, q->query) / TILE * TILE; tile < end; tile += TILE) {
        int64_t keys = clamp(q->d.length - tile, 0, TILE), key = q->d.first + tile;
        pack_rows(a->k, key, keys, column, s, TILE, w->k);
        if (s->in_pairs) w->least_k = pack_operand(a->k, key, keys, column, s, w->k_operand);
        w->least_v = pack_operand(a->v, key, keys, column, s, w->v);
        /* True if no earlier, or no later, block of queries of the key head sees a key of the tile. */
        bool first = q->head % shared == 0 && tile >= q->query;
        bool last =
            q->head % shared == shared - 1 && end_query(s->window, tile + TILE - 1, q->d.length) <= end;
        if (!first) pack_rows(&sums->dk_sum, key, keys, column, s, TILE, w->dk);
        if (!first) pack_rows(&sums->dv_sum, key, keys, column, s, TILE, w->dv);
        for (int64_t row = 0; row < q->count; row += QUERIES)
            backward_tile(s, w, q->query + row, clamp(q->count - row, 0, QUERIES), row, tile, first);
        unpack_rows(w->dk, s, last ? a->dk : &sums->dk_sum, key, keys, column);
        unpack_rows(w->dv, s, last ? a->dv : &sums->dv_sum, key, keys, column);
    }
    unpack_rows(w->dq, s, a->dq, q->d.first + q->query, q->count, q->head * s->head_dim);
}

static void backward_unit(const backward_job *j, document d, int64_t kv_head, backward_buffers *w) {
    const attention *s = &j->s;
    int64_t shared = s->heads / s->kv_heads;
    query_block q = {.d = d};
    for (q.head = kv_head * shared; q.head < (kv_head + 1) * shared; q.head++)
        for (q.query = 0; q.query < d.length; q.query += q.count) {
            q.count = clamp(d.length - q.query, 0, s->block);
            backward_block(j, &q, w);
        }
}

/* Computes this thread's units, which are divided among the threads as in cpu/attention/attention.c. */
static void backward_task(void *argument, int thread, int threads) {
    const backward_job *j = argument;
    const attention *s = &j->s;
    backward_buffers w;
    lay_out_backward(s, cpu_scratch(j->cx, thread), &w);
    int64_t total = s->pairs * s->kv_heads, done = 0;
    for (int64_t b = 0; b < s->documents; b++) {
        document d = document_of(s, b);
        int64_t pairs = visible_pairs(s->window, d.length);
        for (int64_t h = 0; h < s->kv_heads && pairs > 0; h++, done += pairs)
            if ((2 * done + pairs) * threads / (2 * total) == thread) backward_unit(j, d, h, &w);
    }
}

ott_status ISA(attention_backward)(exec *cx, const attention_backward_args *a) {
    backward_job j = {.cx = cx, .a = a};
    backward_buffers w;
    lay_out_sums(a, cx->workspace, &j.sums);
    TRY(ISA(attention_open)("attention_backward", a->q, a->k, a->cu_seqlens, a->lse, a->head_dim, a->window,
                            0, a->softmax_scale, &j.s));
    j.s.softcap = a->softcap;
    while (j.s.block > QUERIES && lay_out_backward(&j.s, cpu_scratch(cx, 0), &w) > SCRATCH_FLOATS)
        j.s.block /= 2;
    TRY(ISA(attention_fits)("attention_backward", &j.s, lay_out_backward(&j.s, cpu_scratch(cx, 0), &w)));
    cpu_run_sized(cx, j.s.pairs * j.s.heads * j.s.head_dim, backward_task, &j);
    return OTT_OK;
}
