/* cpu/optimizer_rules: the update rules beside AdamW, each element as tensor/update.h states it, and what Muon does around
   its matrix products. */
#include "cpu/rows.h"
#include "tensor/update.h"

enum { TENSORS = 5 }; /* parameter, gradient, state */

/* Neighbours in a row, of each tensor; NULL: the rule has none. */
typedef struct update_row {
    float *p;
    const float *g;
    float *slot[3];
} update_row;

typedef void (*row_function)(const update_constants *c, update_row r, int64_t count);

typedef struct update_job {
    tensor t[TENSORS];
    int tensors;
    update_constants constants;
    row_function row;
} update_job;

/* A loop for a rule with so many slots, which the compiler makes vectors of. */
#define UPDATE_ROW(rule, slots)                                                                              \
    static void rule##_row(const update_constants *constants, update_row r, int64_t count) {                 \
        const update_options o = *constants->o;                                                              \
        update_constants c = *constants;                                                                     \
        float *restrict p = r.p, *restrict s0 = r.slot[0], *restrict s1 = r.slot[1],                         \
                        *restrict s2 = r.slot[2];                                                            \
        const float *restrict g = r.g;                                                                       \
        c.o = &o;                                                                                            \
        for (int64_t i = 0; i < count; i++) {                                                                \
            update_element e = {                                                                             \
                p[i],                                                                                        \
                g[i],                                                                                        \
                {(slots) > 0 ? s0[i] : 0.0f, (slots) > 1 ? s1[i] : 0.0f, (slots) > 2 ? s2[i] : 0.0f}};       \
            update_##rule(&c, &e);                                                                           \
            p[i] = e.p;                                                                                      \
            if ((slots) > 0) s0[i] = e.slot[0];                                                              \
            if ((slots) > 1) s1[i] = e.slot[1];                                                              \
            if ((slots) > 2) s2[i] = e.slot[2];                                                              \
        }                                                                                                    \
    }

UPDATE_ROW(lion, 1)
UPDATE_ROW(sgd, 1)
UPDATE_ROW(adam, 2)
UPDATE_ROW(schedule_free, 3)
UPDATE_ROW(muon_momentum, 0)

static void update_task(void *argument, int thread, int threads) {
    const update_job *j = argument;
    row_share s = row_share_of(j->t[0].rows, j->t[0].columns, thread, threads);
    for (int64_t i = s.row; i < s.row_end; i++) {
        float *at[TENSORS] = {0};
        for (int k = 0; k < j->tensors; k++) at[k] = (float *)row_of(&j->t[k], i) + s.column;
        j->row(&j->constants, (update_row){at[0], at[1], {at[2], at[3], at[4]}}, s.columns);
    }
}

/* t[tensors]: all of one shape. */
static ott_status run_rule(exec *cx, row_function row, const update_options *o, const tensor *state,
                           const tensor *const *t, int tensors) {
    const float *values = state->data; /* [S] */
    if (values[STEP_SKIP] != 0.0f) return OTT_OK;
    update_job j = {.tensors = tensors, .constants = update_constants_of(o, values), .row = row};
    bool dense = true;
    for (int k = 0; k < tensors; k++) dense = dense && t[k]->ld == t[k]->columns;
    for (int k = 0; k < tensors; k++) j.t[k] = dense ? row_flattened(t[k]) : *t[k];
    cpu_run_sized(cx, tensor_count(j.t[0]), update_task, &j);
    return OTT_OK;
}

ott_status ISA(lion)(exec *cx, const lion_args *a) {
    const update_options o = {.beta1 = a->beta1, .beta2 = a->beta2, .weight_decay = a->weight_decay};
    return run_rule(cx, lion_row, &o, a->state, (const tensor *[]){a->param, a->grad, a->momentum}, 3);
}

ott_status ISA(sgd)(exec *cx, const sgd_args *a) {
    const update_options o = {.factor = a->factor, .weight_decay = a->weight_decay, .nesterov = a->nesterov};
    return run_rule(cx, sgd_row, &o, a->state, (const tensor *[]){a->param, a->grad, a->momentum}, 3);
}

ott_status ISA(adam)(exec *cx, const adam_args *a) {
    const update_options o = {
        .beta1 = a->beta1, .beta2 = a->beta2, .epsilon = a->epsilon, .weight_decay = a->weight_decay};
    return run_rule(cx, adam_row, &o, a->state, (const tensor *[]){a->param, a->grad, a->moment1, a->moment2},
                    4);
}

ott_status ISA(schedule_free)(exec *cx, const schedule_free_args *a) {
    const update_options o = {
        .beta1 = a->beta1, .beta2 = a->beta2, .epsilon = a->epsilon, .weight_decay = a->weight_decay};
    return run_rule(cx, schedule_free_row, &o, a->state,
                    (const tensor *[]){a->param, a->grad, a->z, a->x, a->moment2}, TENSORS);
}

ott_status ISA(muon_momentum)(exec *cx, const muon_momentum_args *a) {
    const update_options o = {.factor = a->factor};
    return run_rule(cx, muon_momentum_row, &o, a->state, (const tensor *[]){a->momentum, a->grad}, 2);
}

/* ---- between two points ---- */

static void lerp_task(void *argument, int thread, int threads) {
    const lerp_args *a = argument;
    row_share s = row_share_of(a->y->rows, a->y->columns, thread, threads);
    for (int64_t i = s.row; i < s.row_end; i++) {
        const float *from = (float *)row_of(a->from, i) + s.column,
                    *to = (float *)row_of(a->to, i) + s.column;
        float *y = (float *)row_of(a->y, i) + s.column;
        for (int64_t k = 0; k < s.columns; k++) y[k] = fmaf(to[k] - from[k], a->weight, from[k]);
    }
}

ott_status ISA(lerp)(exec *cx, const lerp_args *a) {
    lerp_args own = *a;
    cpu_run_sized(cx, tensor_count(*a->y), lerp_task, &own);
    return OTT_OK;
}

/* ---- Muon ---- */

static void muon_normalize_task(void *argument, int thread, int threads) {
    const muon_normalize_args *a = argument;
    v16 norm = v16_set1(sqrtf(*(const float *)a->sum_squares->data) + 1e-7f);
    row_share s = row_share_of(a->x->rows, a->x->columns, thread, threads);
    for (int64_t i = s.row; i < s.row_end; i++) {
        const float *x = (float *)row_of(a->x, i) + s.column;
        char *y = (char *)row_of(a->y, i) + s.column * dtype_bytes(a->y->dtype);
        WITH_DTYPE(a->y->dtype, Y, BY_16(k, lanes, s.columns, {
                       v16_put(y, Y, k, v16_div(v16_get(x, OTT_F32, k, lanes), norm), lanes);
                   }));
    }
}

ott_status ISA(muon_normalize)(exec *cx, const muon_normalize_args *a) {
    muon_normalize_args own = *a;
    cpu_run_sized(cx, tensor_count(*a->x), muon_normalize_task, &own);
    return OTT_OK;
}

static void muon_task(void *argument, int thread, int threads) {
    const muon_args *a = argument;
    const float *state = a->state->data; /* [S] */
    v16 decay = v16_set1(state[STEP_LEARNING_RATE] * a->weight_decay);
    v16 size = v16_set1(state[STEP_LEARNING_RATE] * a->scale);
    row_share s = row_share_of(a->param->rows, a->param->columns, thread, threads);
    for (int64_t i = s.row; i < s.row_end; i++) {
        float *p = (float *)row_of(a->param, i) + s.column;
        const char *u = (char *)row_of(a->update, i) + s.column * dtype_bytes(a->update->dtype);
        WITH_DTYPE(a->update->dtype, U, BY_16(k, lanes, s.columns, {
                       v16 x = v16_get(p, OTT_F32, k, lanes);
                       x = v16_sub(x, v16_mul(decay, x));
                       x = v16_sub(x, v16_mul(size, v16_get(u, U, k, lanes)));
                       v16_put(p, OTT_F32, k, x, lanes);
                   }));
    }
}

ott_status ISA(muon)(exec *cx, const muon_args *a) {
    muon_args own = *a;
    if (((const float *)a->state->data)[STEP_SKIP] != 0.0f) return OTT_OK;
    cpu_run_sized(cx, tensor_count(*a->param), muon_task, &own);
    return OTT_OK;
}
