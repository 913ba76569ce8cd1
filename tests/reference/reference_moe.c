/* reference_moe: routing, permutation and grouped products of a mixture of experts, as plain loops. */
#include "reference/reference_parts.h"
#include <stdlib.h>

static float *floats(const tensor *t, int64_t i) {
    return (float *)t->data + i * t->ld;
}
static int32_t *integers(const tensor *t, int64_t i) {
    return (int32_t *)t->data + i * t->ld;
}

/* ---- routing: chosen by sorting ---- */

typedef struct candidate {
    float value;
    int64_t index;
} candidate;

/* Order: the largest value first, NaN last; of equal values the lower index first. */
static int by_value(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    bool x_is_nan = x->value != x->value, y_is_nan = y->value != y->value;
    if (x_is_nan != y_is_nan) return x_is_nan ? 1 : -1;
    if (!x_is_nan && x->value != y->value) return x->value > y->value ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static void close_groups(const route_rule *r, const float *choice, int64_t experts, bool *is_closed) {
    candidate group[ROUTE_GROUPS_MAX];
    int64_t each = experts / r->groups;
    for (int64_t g = 0; g < r->groups; g++) {
        candidate *c = calloc((size_t)each, sizeof *c);
        for (int64_t i = 0; i < each; i++) c[i] = (candidate){choice[g * each + i], i};
        qsort(c, (size_t)each, sizeof *c, by_value);
        group[g] = (candidate){each > 1 && !r->group_score_max ? c[0].value + c[1].value : c[0].value, g};
        free(c);
    }
    qsort(group, (size_t)r->groups, sizeof *group, by_value);
    for (int i = r->chosen_groups; i < r->groups; i++)
        for (int64_t e = 0; e < each; e++) is_closed[group[i].index * each + e] = true;
}

static void choose(const route_args *a, int64_t t) {
    int64_t experts = a->logits->columns, count = 0;
    float *choice = calloc((size_t)experts, sizeof *choice);
    bool *is_closed = calloc((size_t)experts, sizeof *is_closed);
    candidate *c = calloc((size_t)experts, sizeof *c);
    for (int64_t e = 0; e < experts; e++)
        choice[e] = a->bias ? at(a->score, t, e) + at(a->bias, 0, e) : at(a->score, t, e);
    if (a->rule.groups > 0) close_groups(&a->rule, choice, experts, is_closed);
    for (int64_t e = 0; e < experts; e++)
        if (!is_closed[e]) c[count++] = (candidate){choice[e], e};
    qsort(c, (size_t)count, sizeof *c, by_value);
    for (int64_t k = 0; k < a->expert->columns; k++) integers(a->expert, t)[k] = (int32_t)c[k].index;
    free(choice);
    free(is_closed);
    free(c);
}

static void route_token_here(const route_args *a, int64_t t) {
    float most = -INFINITY, sum = 0, total = 0, chosen = 0;
    int64_t experts = a->logits->columns, choices = a->expert->columns;
    bool is_softmax = a->rule.score == ROUTE_SOFTMAX;
    for (int64_t e = 0; e < experts; e++)
        if (at(a->logits, t, e) > most) most = at(a->logits, t, e);
    for (int64_t e = 0; e < experts; e++) sum += fmath_exp(at(a->logits, t, e) - most);
    for (int64_t e = 0; e < experts; e++) {
        float x = at(a->logits, t, e);
        put(a->score, t, e, is_softmax ? fmath_exp(x - most) / sum : 1.0f / (1.0f + fmath_exp(-x)));
        total += at(a->score, t, e);
    }
    put(a->lse, 0, t, most + fmath_log(sum));
    put(a->total, 0, t, is_softmax ? 1.0f : total);
    choose(a, t);
    for (int64_t k = 0; k < choices; k++) chosen += at(a->score, t, integers(a->expert, t)[k]);
    for (int64_t k = 0; k < choices; k++) {
        float s = at(a->score, t, integers(a->expert, t)[k]);
        put(a->weight, t, k, (a->rule.normalized ? s / (chosen + 1e-20f) : s) * a->rule.scale);
    }
}

ott_status reference_op_route(exec *cx, const route_args *a) {
    (void)cx;
    for (int64_t t = 0; t < a->logits->rows; t++) route_token_here(a, t);
    return OTT_OK;
}

ott_status reference_op_route_balance(exec *cx, const route_balance_args *a) {
    int64_t tokens = a->score->rows, runs = a->count->rows;
    (void)cx;
    for (int64_t s = 0; s < runs; s++)
        for (int64_t e = 0; e < a->score->columns; e++) {
            float count = 0, share = 0;
            for (int64_t t = 0; t < tokens; t++) {
                if (t * runs / tokens != s) continue;
                share += at(a->score, t, e) / at(a->total, 0, t);
                for (int64_t k = 0; k < a->expert->columns; k++) count += integers(a->expert, t)[k] == e;
            }
            put(a->count, s, e, count);
            put(a->share, s, e, share);
        }
    return OTT_OK;
}

/* Computes ds, the gradient of the scores, from the balance losses and the experts' weights. Then computes
   dlogits from ds. */
static void route_backward_token(const route_backward_args *a, int64_t t) {
    int64_t experts = a->logits->columns, choices = a->expert->columns, tokens = a->logits->rows;
    bool is_softmax = a->rule.score == ROUTE_SOFTMAX, has_counts = a->batch_count || a->sequence_count;
    float g = at(a->grad_scale, 0, 0), total = at(a->total, 0, t), lse = at(a->lse, 0, t), mean = 0,
          chosen = 0;
    float *ds = floats(a->dlogits, t), inner = 0;
    for (int64_t e = 0; e < experts; e++) {
        ds[e] = 0;
        if (a->batch_count) ds[e] += a->losses.balance * g * at(a->batch_count, 0, e);
        if (a->sequence_count)
            ds[e] += a->losses.sequence_balance * g *
                     at(a->sequence_count, t * a->sequence_count->rows / tokens, e);
    }
    if (!is_softmax && has_counts) {
        for (int64_t e = 0; e < experts; e++) mean = fmaf(ds[e], at(a->score, t, e) / total, mean);
        for (int64_t e = 0; e < experts; e++) ds[e] = (ds[e] - mean) / total;
    }
    for (int64_t k = 0; k < choices; k++) chosen += at(a->score, t, integers(a->expert, t)[k]);
    chosen = a->rule.normalized ? chosen + 1e-20f : 1.0f;
    mean = 0;
    for (int64_t k = 0; a->rule.normalized && k < choices; k++)
        mean = fmaf(at(a->dweight, t, k), at(a->score, t, integers(a->expert, t)[k]) / chosen, mean);
    for (int64_t k = 0; k < choices; k++)
        ds[integers(a->expert, t)[k]] += (at(a->dweight, t, k) - mean) / chosen * a->rule.scale;
    for (int64_t e = 0; e < experts; e++) inner = fmaf(ds[e], at(a->score, t, e), inner);
    for (int64_t e = 0; e < experts; e++) {
        float s = at(a->score, t, e);
        ds[e] = is_softmax ? s * (ds[e] - inner) : ds[e] * (s * (1 - s));
        if (a->losses.z != 0)
            ds[e] = fmaf(a->losses.z * g * lse, fmath_exp(at(a->logits, t, e) - lse), ds[e]);
    }
}

ott_status reference_op_route_backward(exec *cx, const route_backward_args *a) {
    (void)cx;
    for (int64_t t = 0; t < a->logits->rows; t++) route_backward_token(a, t);
    return OTT_OK;
}

/* True if token t may use its choice k: fewer than a->capacity earlier tokens have the same expert as their
   choice k. capacity 0: no limit. */
static bool has_capacity(const route_sort_args *a, int64_t t, int64_t k) {
    int64_t before = 0;
    for (int64_t u = 0; u < t; u++) before += integers(a->expert, u)[k] == integers(a->expert, t)[k];
    return a->capacity <= 0 || before < a->capacity;
}

ott_status reference_op_route_sort(exec *cx, const route_sort_args *a) {
    int32_t next = 0, *source = integers(a->source, 0);
    (void)cx;
    for (int64_t e = 0; e < a->end->columns; e++) {
        for (int64_t k = 0; k < a->expert->columns; k++)
            for (int64_t t = 0; t < a->row->rows; t++) {
                if (integers(a->expert, a->first + t)[k] != e) continue;
                bool fits = has_capacity(a, a->first + t, k);
                integers(a->row, t)[k] = fits ? next : -1;
                if (fits) source[next++] = (int32_t)(k * a->row->rows + t);
            }
        integers(a->end, 0)[e] = next;
    }
    for (; next < a->source->columns; next++) source[next] = -1;
    return OTT_OK;
}

/* ---- rows ---- */

ott_status reference_op_permute(exec *cx, const permute_args *a) {
    (void)cx;
    for (int64_t r = 0; r < a->y->rows; r++)
        for (int64_t j = 0; j < a->y->columns; j++) {
            int32_t source = integer_at(a->source, r);
            put(a->y, r, j, source < 0 ? 0.0f : at(a->x, source % a->x->rows, j));
        }
    return OTT_OK;
}

ott_status reference_op_unpermute(exec *cx, const unpermute_args *a) {
    (void)cx;
    for (int64_t t = 0; t < a->x->rows; t++)
        for (int64_t j = 0; j < a->x->columns; j++) {
            float s = a->plus ? at(a->plus, t, j) : 0.0f;
            for (int64_t k = 0; k < a->row->columns; k++)
                if (integers(a->row, t)[k] >= 0) s += at(a->y, integers(a->row, t)[k], j);
            put(a->x, t, j, s);
        }
    return OTT_OK;
}

ott_status reference_op_weigh(exec *cx, const weigh_args *a) {
    int64_t tokens = a->weight->rows;
    (void)cx;
    for (int64_t r = 0; r < a->y->rows; r++)
        for (int64_t j = 0; j < a->y->columns; j++) {
            int32_t source = integer_at(a->source, r);
            put(a->y, r, j,
                source < 0 ? 0.0f : at(a->x, r, j) * at(a->weight, source % tokens, source / tokens));
        }
    return OTT_OK;
}

ott_status reference_op_weigh_backward(exec *cx, const weigh_backward_args *a) {
    (void)cx;
    for (int64_t t = 0; t < a->row->rows; t++)
        for (int64_t k = 0; k < a->row->columns; k++) {
            int32_t r = integers(a->row, t)[k];
            float lane[16] = {0};
            for (int64_t j = 0; r >= 0 && j < a->x->columns; j++)
                lane[j % 16] = fmaf(at(a->x, r, j), at(a->dy, r, j), lane[j % 16]);
            put(a->dweight, t, k, fold16(lane));
        }
    return OTT_OK;
}

/* ---- products ---- */

static int64_t first_of(const tensor *end, int64_t e) {
    return e > 0 ? integer_at(end, e - 1) : 0;
}

ott_status reference_op_grouped_gemm(exec *cx, const grouped_gemm_args *a) {
    int64_t experts = a->end->columns;
    bool deep = operand_k(a->b) != operand_k(a->a);
    int64_t each = deep ? operand_k(a->a) : a->c->columns;
    for (int64_t e = 0; e < experts; e++) {
        int64_t first = first_of(a->end, e), count = integer_at(a->end, e) - first;
        operand rows = operand_group(a->a, false, e, first, count);
        operand matrix = operand_group(a->b, deep, e, e * each, each);
        tensor c = tensor_rows(*a->c, first, count);
        if (count > 0)
            reference_op_gemm(
                cx, &(gemm_args){
                        .a = &rows, .b = &matrix, .c = &c, .accumulate = a->accumulate, .spec = a->spec});
    }
    for (int64_t r = first_of(a->end, experts); r < a->c->rows; r++)
        for (int64_t j = 0; j < a->c->columns && !a->accumulate; j++) put(a->c, r, j, 0.0f);
    return OTT_OK;
}

/* Computes expert e's weight gradient in fp32, and adds `factor` times it to the expert's rows of c. */
static void add_gradient(exec *cx, const grouped_gemm_weight_args *a, int64_t e, float factor) {
    int64_t each = operand_mn(a->a), first = first_of(a->end, e), count = integer_at(a->end, e) - first;
    operand x = operand_group(a->a, true, e, first, count), y = operand_group(a->b, true, e, first, count);
    float *sums = malloc((size_t)(each * a->c->columns) * sizeof *sums);
    if (!sums) abort();
    tensor sum = tensor_matrix(sums, OTT_F32, each, a->c->columns);
    reference_op_gemm(cx, &(gemm_args){.a = &x, .b = &y, .c = &sum, .spec = a->spec});
    for (int64_t i = 0; i < each; i++)
        for (int64_t j = 0; j < a->c->columns; j++)
            put(a->c, e * each + i, j, at(&sum, i, j) * factor + at(a->c, e * each + i, j));
    free(sums);
}

/* Returns the factor of expert e's gradient: mean number of rows of an expert / number of rows of e. */
static float balance(const tensor *all, int64_t e) {
    int64_t sum = 0, rows = 0;
    for (int64_t p = 0; p < all->rows; p++) {
        const int32_t *end = integers(all, p);
        sum += end[all->columns - 1];
        rows += e > 0 ? end[e] - end[e - 1] : end[e];
    }
    return (float)sum / (float)all->columns / (float)rows;
}

ott_status reference_op_grouped_gemm_weight(exec *cx, const grouped_gemm_weight_args *a) {
    for (int64_t e = 0; e < a->end->columns; e++)
        if (integer_at(a->end, e) > first_of(a->end, e))
            add_gradient(cx, a, e, a->all ? balance(a->all, a->first + e) : 1.0f);
    return OTT_OK;
}

/* ---- sums and biases ---- */

ott_status reference_op_dot(exec *cx, const dot_args *a) {
    float s = 0;
    (void)cx;
    for (int64_t i = 0; i < a->x->rows; i++)
        for (int64_t j = 0; j < a->x->columns; j++) s = fmaf(at(a->x, i, j), at(a->y, i, j), s);
    put(a->sum, 0, 0, at(a->sum, 0, 0) + a->scale * s);
    return OTT_OK;
}

ott_status reference_op_balance_bias(exec *cx, const balance_bias_args *a) {
    float total = 0, rate = a->rate * at(a->state, 0, STEP_BALANCE);
    int64_t experts = a->count->columns;
    (void)cx;
    for (int64_t e = 0; e < experts; e++) total += at(a->count, 0, e);
    if (at(a->state, 0, STEP_SKIP) != 0.0f || total == 0.0f) return OTT_OK;
    for (int64_t e = 0; e < experts; e++) {
        int64_t i = e - a->first;
        float load = fmaf(at(a->load, 0, e), 0.99f, 0.01f * (at(a->count, 0, e) / total));
        put(a->load, 0, e, load);
        float fair = total / (float)experts - at(a->count, 0, e);
        float direction = a->by_sign ? (float)((fair > 0) - (fair < 0)) : 1.0f / (float)experts - load;
        if (i >= 0 && i < a->bias->columns) put(a->bias, 0, i, fmaf(rate, direction, at(a->bias, 0, i)));
    }
    return OTT_OK;
}
