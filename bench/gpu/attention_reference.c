/* bench/gpu/attention_reference: implements attention_reference.h. */
#include "attention_reference.h"
#include <math.h>
#include <string.h>

static double dot(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static void add_scaled(double *to, double factor, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] += factor * (double)x[i];
}

/* Where the numbers of a row and a query head begin, in q-shaped and in k-shaped arrays. */
static int64_t query_at(const attention_reference *r, int64_t row, int64_t head) {
    return (row * r->heads + head) * r->head_dim;
}

static int64_t key_at(const attention_reference *r, int64_t row, int64_t head) {
    return (row * r->kv_heads + head / (r->heads / r->kv_heads)) * r->head_dim;
}

static double score(const attention_reference *r, int64_t query, int64_t key, int64_t head) {
    return r->scale * dot(r->q + query_at(r, query, head), r->k + key_at(r, key, head), r->head_dim);
}

typedef void per_query(const attention_reference *r, int64_t query, int64_t head, int64_t from, int64_t to);

/* Calls `work` for every query and head with the keys that it sees, [from, to). */
static void for_each_query(const attention_reference *r, per_query *work) {
    for (int64_t document = 0; document < r->documents; document++) {
        int64_t from = r->starts[document], to = r->starts[document + 1];
        for (int64_t query = from; query < to; query++)
            for (int64_t head = 0; head < r->heads; head++)
                work(r, query, head, from, r->causal ? query + 1 : to);
    }
}

/* The largest score first, so that no exponential overflows. */
static void forward(const attention_reference *r, int64_t query, int64_t head, int64_t from, int64_t to) {
    double *o = r->o + query_at(r, query, head), largest = -INFINITY, sum = 0;
    for (int64_t key = from; key < to; key++) largest = fmax(largest, score(r, query, key, head));
    memset(o, 0, (size_t)r->head_dim * sizeof *o);
    for (int64_t key = from; key < to; key++) {
        double weight = exp(score(r, query, key, head) - largest);
        sum += weight;
        add_scaled(o, weight, r->v + key_at(r, key, head), r->head_dim);
    }
    for (int64_t i = 0; i < r->head_dim; i++) o[i] /= sum;
    r->lse[query * r->heads + head] = largest + log(sum);
}

void attention_reference_forward(const attention_reference *r) {
    for_each_query(r, forward);
}

/* With p = softmax(scores): grad_v += p grad_o; grad_score = p (grad_o . v - grad_o . o). */
static void backward(const attention_reference *r, int64_t query, int64_t head, int64_t from, int64_t to) {
    int64_t at = query_at(r, query, head), n = r->head_dim;
    const float *grad_o = r->grad_o + at;
    double delta = 0;
    for (int64_t i = 0; i < n; i++) delta += (double)grad_o[i] * r->o[at + i];
    for (int64_t key = from; key < to; key++) {
        int64_t key_index = key_at(r, key, head);
        double p = exp(score(r, query, key, head) - r->lse[query * r->heads + head]);
        double grad_score = r->scale * p * (dot(grad_o, r->v + key_index, n) - delta);
        add_scaled(r->grad_v + key_index, p, grad_o, n);
        add_scaled(r->grad_q + at, grad_score, r->k + key_index, n);
        add_scaled(r->grad_k + key_index, grad_score, r->q + at, n);
    }
}

void attention_reference_backward(const attention_reference *r) {
    size_t row = (size_t)r->head_dim * sizeof(double), rows = (size_t)r->starts[r->documents];
    memset(r->grad_q, 0, rows * (size_t)r->heads * row);
    memset(r->grad_k, 0, rows * (size_t)r->kv_heads * row);
    memset(r->grad_v, 0, rows * (size_t)r->kv_heads * row);
    for_each_query(r, backward);
}
