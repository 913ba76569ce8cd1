/* reference_attention: computes attention exactly as tensor/rules/attention.h specifies it. */
#include "reference/reference_parts.h"
#include "tensor/exec.h"

/* Returns the first token of the document that token i is in. */
static int64_t document_start(const tensor *cu_seqlens, int64_t i) {
    int64_t first = 0;
    for (int64_t b = 0; b < cu_seqlens->columns; b++)
        if (integer_at(cu_seqlens, b) <= i) first = integer_at(cu_seqlens, b);
    return first;
}

/* Returns the first key that query i can see; the last one is key i. window <= 0: no sliding window. */
static int64_t first_visible(int64_t document, int64_t i, int64_t window) {
    return window > 0 && i - window + 1 > document ? i - window + 1 : document;
}

/* Returns the dot product of head_dim elements of two rows, as a CHAIN (ops.def): x's row i from column xc
   on, and y's row j from column yc on. */
static float dot(const tensor *x, int64_t i, int64_t xc, const tensor *y, int64_t j, int64_t yc,
                 int64_t head_dim) {
    float s = 0;
    for (int64_t d = 0; d < head_dim; d++) s = fmaf(at(x, i, xc + d), at(y, j, yc + d), s);
    return s;
}

static float capped(float s, float cap) {
    return cap > 0 ? cap * fmath_tanh(s / cap) : s;
}

/* ---- forward ---- */

/* State of computing the output of a query (one row and head of q), one tile of keys after the other. */
typedef struct query {
    const attention_forward_args *a;
    /* row: row of q; i: the same token's row of k; qc: first column of the head in q and o; kc: first column
       of its key head in k and v */
    int64_t row, i, qc, kc;
    int64_t first; /* index of the first key that the query sees */
    float m, l, *o;
} query;

/* Adds the tile of keys that begins at key j0. */
static void forward_tile(query *r, int64_t j0, bool first_tile) {
    const attention_forward_args *a = r->a;
    float s[ATTENTION_TILE], p[ATTENTION_TILE], lane[16] = {0}, n = r->m;
    for (int64_t j = 0; j < ATTENTION_TILE; j++) {
        bool visible = j0 + j >= r->first && j0 + j <= r->i;
        s[j] = -INFINITY;
        if (visible) s[j] = a->softmax_scale * dot(a->q, r->row, r->qc, a->k, j0 + j, r->kc, a->head_dim);
        if (visible) s[j] = capped(s[j], a->softcap);
        if (s[j] > n) n = s[j];
    }
    float f = first_tile ? 0.0f : fmath_exp(r->m - n);
    for (int64_t j = 0; j < ATTENTION_TILE; j++) {
        bool visible = j0 + j >= r->first && j0 + j <= r->i;
        p[j] = visible ? fmath_exp(s[j] - n) : 0.0f;
        lane[j % 16] += p[j];
    }
    r->l = r->l * f + fold16(lane);
    for (int64_t d = 0; d < a->head_dim; d++) {
        r->o[d] = r->o[d] * f;
        for (int64_t j = 0; j < ATTENTION_TILE; j++)
            if (j0 + j >= r->first && j0 + j <= r->i)
                r->o[d] = fmaf(p[j], at(a->v, j0 + j, r->kc + d), r->o[d]);
    }
    r->m = n;
}

/* Computes a query's output. sharing: the number of query heads that read one key head. */
static void forward_query(const attention_forward_args *a, int64_t head, int64_t sharing, int64_t row,
                          float *o) {
    int64_t i = a->past + row, document = a->past > 0 ? 0 : document_start(a->cu_seqlens, i);
    query r = {.a = a, .row = row, .i = i, .qc = head * a->head_dim, .kc = head / sharing * a->head_dim};
    r.first = first_visible(document, i, a->window);
    r.m = -INFINITY;
    r.o = o;
    for (int64_t d = 0; d < a->head_dim; d++) o[d] = 0;
    int64_t first_tile = (r.first - document) / ATTENTION_TILE, last_tile = (i - document) / ATTENTION_TILE;
    for (int64_t tile = first_tile; tile <= last_tile; tile++)
        forward_tile(&r, document + tile * ATTENTION_TILE, tile == first_tile);
    for (int64_t d = 0; d < a->head_dim; d++) put(a->o, row, r.qc + d, o[d] * (1.0f / r.l));
    put(a->lse, head, row, r.m + fmath_log(r.l));
}

ott_status reference_op_attention_forward(exec *cx, const attention_forward_args *a) {
    int64_t heads = a->q->columns / a->head_dim, sharing = a->q->columns / a->k->columns;
    void *o;
    TRY(mem_alloc_array(cx->device->account, MEM_SCRATCH, a->head_dim, 4, "one query's output", &o));
    for (int64_t head = 0; head < heads; head++)
        for (int64_t i = 0; i < a->q->rows; i++) forward_query(a, head, sharing, i, o);
    mem_free(cx->device->account, o);
    return OTT_OK;
}

/* ---- backward ---- */

/* Gradients are summed in fp32 and rounded at the end. */
typedef struct backward_sums {
    tensor delta, dk_sum, dv_sum;
} backward_sums;

static void backward_pair(const attention_backward_args *a, const backward_sums *sums, int64_t head,
                          int64_t sharing, int64_t i, int64_t j, float *dq) {
    int64_t qc = head * a->head_dim, kc = head / sharing * a->head_dim;
    float s = capped(a->softmax_scale * dot(a->q, i, qc, a->k, j, kc, a->head_dim), a->softcap);
    float p = fmath_exp(s - at(a->lse, head, i)), r = s / a->softcap;
    float dp = dot(a->dout, i, qc, a->v, j, kc, a->head_dim);
    float ds = p * (dp - at(&sums->delta, head, i));
    if (a->softcap > 0) ds = ds * fmaf(-r, r, 1.0f);
    ds = ds * a->softmax_scale;
    for (int64_t d = 0; d < a->head_dim; d++) {
        put(&sums->dv_sum, j, kc + d, fmaf(p, at(a->dout, i, qc + d), at(&sums->dv_sum, j, kc + d)));
        put(&sums->dk_sum, j, kc + d, fmaf(ds, at(a->q, i, qc + d), at(&sums->dk_sum, j, kc + d)));
        dq[d] = fmaf(ds, at(a->k, j, kc + d), dq[d]);
    }
}

static void backward_query(const attention_backward_args *a, const backward_sums *sums, int64_t head,
                           int64_t sharing, int64_t i, float *dq) {
    int64_t qc = head * a->head_dim;
    for (int64_t d = 0; d < a->head_dim; d++) dq[d] = 0;
    for (int64_t j = first_visible(document_start(a->cu_seqlens, i), i, a->window); j <= i; j++)
        backward_pair(a, sums, head, sharing, i, j, dq);
    for (int64_t d = 0; d < a->head_dim; d++) put(a->dq, i, qc + d, dq[d]);
}

static void row_delta(const attention_backward_args *a, const tensor *delta, int64_t head, int64_t i) {
    float lane[16] = {0};
    for (int64_t d = 0; d < a->head_dim; d++) {
        int64_t column = head * a->head_dim + d;
        lane[d % 16] = fmaf(at(a->dout, i, column), at(a->o, i, column), lane[d % 16]);
    }
    put(delta, head, i, fold16(lane));
}

static void round_to(const tensor *y, const tensor *x) {
    for (int64_t i = 0; i < y->rows; i++)
        for (int64_t j = 0; j < y->columns; j++) put(y, i, j, at(x, i, j));
}

ott_status reference_op_attention_backward(exec *cx, const attention_backward_args *a) {
    int64_t heads = a->q->columns / a->head_dim, sharing = a->q->columns / a->k->columns;
    int64_t tokens = a->q->rows, width = a->k->columns;
    mem *account = cx->device->account;
    void *memory;
    TRY(mem_alloc_array(account, MEM_SCRATCH, a->head_dim + tokens * (heads + 2 * width), 4,
                        "sums of the reference", &memory));
    float *dq = memory, *delta = dq + a->head_dim, *dk = delta + tokens * heads;
    backward_sums sums = {.delta = tensor_matrix(delta, OTT_F32, heads, tokens),
                          .dk_sum = tensor_matrix(dk, OTT_F32, tokens, width),
                          .dv_sum = tensor_matrix(dk + tokens * width, OTT_F32, tokens, width)};
    /* ascending: query heads that share a key head add to its gradient in this order */
    for (int64_t head = 0; head < heads; head++)
        for (int64_t i = 0; i < a->q->rows; i++) {
            row_delta(a, &sums.delta, head, i);
            backward_query(a, &sums, head, sharing, i, dq);
        }
    round_to(a->dk, &sums.dk_sum);
    round_to(a->dv, &sums.dv_sum);
    mem_free(account, memory);
    return OTT_OK;
}
