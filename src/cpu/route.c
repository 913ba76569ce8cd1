/* cpu/route: MoE routing: chooses experts and weights, computes gradients, sorts assignments by expert. */
#include "cpu/rows.h"
#include "tensor/rules/route_check.h"

static const float *floats(const tensor *t, int64_t row) {
    return t ? (const float *)t->data + row * t->ld : NULL;
}

static float *floats_out(const tensor *t, int64_t row) {
    return (float *)t->data + row * t->ld;
}

static int32_t *integers(const tensor *t, int64_t row) {
    return (int32_t *)t->data + row * t->ld;
}

static ott_status check_experts(const char *op, const tensor *expert, int64_t experts) {
    for (int64_t t = 0; t < expert->rows; t++) {
        tensor row = tensor_vector(integers(expert, t), OTT_I32, expert->columns);
        TRY(row_check_indices(op, "expert", &row, experts, false));
    }
    return OTT_OK;
}

/* ---- forward ---- */

static void route_task(void *argument, int thread, int threads) {
    const route_args *a = argument;
    int64_t t, end, experts = a->logits->columns, choices = a->expert->columns;
    pool_share(a->logits->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++) {
        float *score = floats_out(a->score, t);
        int32_t *expert = integers(a->expert, t);
        floats_out(a->lse, 0)[t] = route_scores(&a->rule, floats(a->logits, t), experts, score);
        floats_out(a->total, 0)[t] = route_total(&a->rule, score, experts);
        route_choose(&a->rule, score, floats(a->bias, 0), experts, choices, expert);
        route_weights(&a->rule, score, expert, choices, floats_out(a->weight, t));
    }
}

ott_status ISA(route)(exec *cx, const route_args *a) {
    TRY(route_check_choice(a));
    cpu_run_sized(cx, tensor_count(*a->logits), route_task, (void *)a);
    return OTT_OK;
}

static void add_counts(const route_balance_args *a, int64_t s, int64_t t) {
    const int32_t *expert = integers(a->expert, t);
    for (int64_t k = 0; k < a->expert->columns; k++) floats_out(a->count, s)[expert[k]] += 1.0f;
}

/* share[s,e] = sum of score[t,e] / total[t] over the tokens t of part s. A thread has some experts e. */
static void share_task(void *argument, int thread, int threads) {
    const route_balance_args *a = argument;
    int64_t first, end, tokens = a->score->rows, runs = a->share->rows;
    pool_share(a->score->columns, 16, thread, threads, &first, &end);
    for (int64_t s = 0; s < runs; s++)
        for (int64_t e = first; e < end; e++) floats_out(a->share, s)[e] = 0.0f;
    for (int64_t t = 0; t < tokens; t++) {
        const float *score = floats(a->score, t);
        float *share = floats_out(a->share, t * runs / tokens), total = floats(a->total, 0)[t];
        for (int64_t e = first; e < end; e++) share[e] = share[e] + score[e] / total;
    }
}

ott_status ISA(route_balance)(exec *cx, const route_balance_args *a) {
    int64_t tokens = a->score->rows, runs = a->count->rows;
    TRY(check_experts("route_balance", a->expert, a->score->columns));
    for (int64_t s = 0; s < runs; s++)
        for (int64_t e = 0; e < a->count->columns; e++) floats_out(a->count, s)[e] = 0.0f;
    for (int64_t t = 0; t < tokens; t++) add_counts(a, t * runs / tokens, t);
    cpu_run_sized(cx, tensor_count(*a->score), share_task, (void *)a);
    return OTT_OK;
}

/* ---- backward ---- */

static void backward_task(void *argument, int thread, int threads) {
    const route_backward_args *a = argument;
    int64_t t, end, tokens = a->logits->rows;
    pool_share(tokens, 1, thread, threads, &t, &end);
    for (; t < end; t++) {
        int64_t run = a->sequence_count ? t * a->sequence_count->rows / tokens : 0;
        const route_token token = {.logits = floats(a->logits, t),
                                   .score = floats(a->score, t),
                                   .dweight = floats(a->dweight, t),
                                   .batch_count = floats(a->batch_count, 0),
                                   .sequence_count = floats(a->sequence_count, run),
                                   .expert = integers(a->expert, t),
                                   .experts = a->logits->columns,
                                   .choices = a->expert->columns,
                                   .lse = floats(a->lse, 0)[t],
                                   .total = floats(a->total, 0)[t],
                                   .grad_scale = floats(a->grad_scale, 0)[0]};
        route_gradient(&a->rule, &token, &a->losses, floats_out(a->dlogits, t));
    }
}

ott_status ISA(route_backward)(exec *cx, const route_backward_args *a) {
    TRY(check_experts("route_backward", a->expert, a->logits->columns));
    cpu_run_sized(cx, tensor_count(*a->logits), backward_task, (void *)a);
    return OTT_OK;
}

/* ---- sorting assignments by expert ---- */

/* Sets end[e] to the number of rows of expert e. Sets row[t,k] to 0 if choice k of token t gets a row, else
   to -1. seen[E]: buffer. For each k, it counts the earlier tokens with expert e as choice k. */
static void count_rows(const route_sort_args *a, int32_t *seen) {
    int32_t *count = a->end->data;
    int64_t experts = a->end->columns;
    for (int64_t e = 0; e < experts; e++) count[e] = 0;
    for (int64_t k = 0; k < a->expert->columns; k++) {
        for (int64_t e = 0; e < experts; e++) seen[e] = 0;
        for (int64_t t = a->capacity > 0 ? -a->first : 0; t < a->row->rows; t++) {
            int32_t e = integers(a->expert, a->first + t)[k];
            bool fits = seen[e]++ < a->capacity || a->capacity <= 0;
            if (t < 0) continue;
            integers(a->row, t)[k] = fits ? 0 : -1;
            count[e] += fits;
        }
    }
}

/* Sets end[e] to the first row of expert e. Then gives each assignment the next row of its expert. At the
   end, end[e] is the end of the expert's rows. */
static void give_rows(const route_sort_args *a) {
    int32_t *next = a->end->data, *source = a->source->data, sum = 0;
    int64_t tokens = a->row->rows;
    for (int64_t e = 0; e < a->end->columns; e++) {
        int32_t count = next[e];
        next[e] = sum;
        sum += count;
    }
    for (int64_t k = 0; k < a->expert->columns; k++)
        for (int64_t t = 0; t < tokens; t++) {
            int32_t *row = &integers(a->row, t)[k];
            if (*row < 0) continue;
            *row = next[integers(a->expert, a->first + t)[k]]++;
            source[*row] = (int32_t)(k * tokens + t);
        }
    for (int64_t r = sum; r < a->source->columns; r++) source[r] = -1;
}

ott_status ISA(route_sort)(exec *cx, const route_sort_args *a) {
    TRY(route_check_sort(a));
    TRY(check_experts("route_sort", a->expert, a->end->columns));
    STATUS_REQUIRE(a->end->columns * (int64_t)sizeof(int32_t) <= CPU_SCRATCH_BYTES);
    count_rows(a, cpu_scratch(cx, 0));
    give_rows(a);
    return OTT_OK;
}

/* ---- sums and biases ---- */

ott_status ISA(dot)(exec *cx, const dot_args *a) {
    float s = 0, *sum = a->sum->data;
    (void)cx;
    for (int64_t i = 0; i < a->x->rows; i++)
        for (int64_t j = 0; j < a->x->columns; j++) s = fmaf(floats(a->x, i)[j], floats(a->y, i)[j], s);
    sum[0] = sum[0] + a->scale * s;
    return OTT_OK;
}

ott_status ISA(balance_bias)(exec *cx, const balance_bias_args *a) {
    const float *count = a->count->data, *state = a->state->data;
    float *bias = a->bias->data, *load = a->load->data, total = 0;
    int64_t experts = a->count->columns;
    (void)cx;
    TRY(route_check_bias(a));
    for (int64_t e = 0; e < experts; e++) total = total + count[e];
    if (state[STEP_SKIP] != 0.0f || total == 0.0f) return OTT_OK;
    for (int64_t e = 0; e < experts; e++) load[e] = route_load(load[e], count[e], total);
    float rate = a->rate * state[STEP_BALANCE];
    for (int64_t i = 0; i < a->bias->columns; i++)
        bias[i] = a->by_sign ? route_bias_by_sign(bias[i], count[a->first + i], total, experts, rate)
                             : route_bias_by_load(bias[i], load[a->first + i], experts, rate);
    return OTT_OK;
}
