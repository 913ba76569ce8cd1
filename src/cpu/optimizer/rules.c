/* cpu/optimizer/rules: the update rules of tensor/rules/update.h, and Muon's ops around its products. */
#include "cpu/optimizer/stochastic.h"

enum { PARAM, GRAD, SLOT /* first of three state slots */, TENSORS = SLOT + 3 };

/* Consecutive elements of a row of each tensor. slot[i] is NULL if the rule has no state tensor i. */
typedef struct update_row {
    float *p;
    const float *g;
    float *slot[3];
} update_row;

static update_row update_row_of(float *const x[TENSORS]) {
    return (update_row){x[PARAM], x[GRAD], {x[SLOT], x[SLOT + 1], x[SLOT + 2]}};
}

typedef void (*row_function)(const update_constants *c, update_row r, int64_t count);

typedef struct update_rule {
    row_function row;
    int tensors;
    /* numbers of a draw (tensor/rules/stochastic.h) that round tensor PARAM and slot 0; the next numbers
       round the next slots. STOCHASTIC_NONE: after `row`, update_point computes the parameter from slots 0
       and 1 */
    int of_param, of_slot;
} update_rule;

/* Seed and element indices for stochastic rounding (tensor/ops.def: adamw). */
typedef struct update_place {
    uint64_t seed;
    int64_t first, row_step;
} update_place;
#define PLACE(a)                                                                                             \
    (update_place) {                                                                                         \
        (a)->seed, (a)->first, (a)->row_step                                                                 \
    }

typedef struct update_job {
    tensor t[TENSORS];
    update_rule rule;
    update_constants constants;
    update_place place;
    uint64_t update;
    bool narrow, rounds; /* narrow: a tensor is bf16; rounds: the parameter or a state tensor is bf16 */
} update_job;

/* Prefetches 4096 bytes ahead into the second-level cache. Without this the loop would wait for memory: the
   arrays are larger than the caches, and the hardware prefetcher stops at the end of a page. */
#define FETCH(array, i, written) __builtin_prefetch((const char *)((array) + (i)) + 4096, written, 2)

enum { LINE = 16, BLOCK = 64 }; /* elements of a cache line; elements that are fetched together */

/* Defines the loop over a row for a rule with `slots` state tensors. The inner loop is vectorized. */
#define UPDATE_ROW(rule, slots)                                                                              \
    static void rule##_row(const update_constants *constants, update_row r, int64_t count) {                 \
        const update_options o = *constants->o;                                                              \
        update_constants c = *constants;                                                                     \
        float *restrict p = r.p, *restrict s0 = r.slot[0], *restrict s1 = r.slot[1],                         \
                        *restrict s2 = r.slot[2];                                                            \
        const float *restrict g = r.g;                                                                       \
        c.o = &o;                                                                                            \
        c.has_inverse = false; /* known to the compiler */                                                   \
        for (int64_t first = 0, end; first < count; first = end) {                                           \
            end = count - first < BLOCK ? count : first + BLOCK;                                             \
            for (int64_t i = first; i < end; i += LINE) {                                                    \
                FETCH(p, i, 1), FETCH(g, i, 0);                                                              \
                if ((slots) > 0) FETCH(s0, i, 1);                                                            \
                if ((slots) > 1) FETCH(s1, i, 1);                                                            \
                if ((slots) > 2) FETCH(s2, i, 1);                                                            \
            }                                                                                                \
            for (int64_t i = first; i < end; i++) {                                                          \
                update_element e = {                                                                         \
                    p[i],                                                                                    \
                    g[i],                                                                                    \
                    {(slots) > 0 ? s0[i] : 0.0f, (slots) > 1 ? s1[i] : 0.0f, (slots) > 2 ? s2[i] : 0.0f}};   \
                update_##rule(&c, &e);                                                                       \
                p[i] = e.p;                                                                                  \
                if ((slots) > 0) s0[i] = e.slot[0];                                                          \
                if ((slots) > 1) s1[i] = e.slot[1];                                                          \
                if ((slots) > 2) s2[i] = e.slot[2];                                                          \
            }                                                                                                \
        }                                                                                                    \
    }

UPDATE_ROW(adamw, 2)
UPDATE_ROW(lion, 1)
UPDATE_ROW(sgd, 1)
UPDATE_ROW(adam, 2)
UPDATE_ROW(schedule_free, 3)
UPDATE_ROW(muon_momentum, 0)

/* ---- rows with bf16 tensors: converted to fp32 in chunks, updated, and rounded ---- */

enum { CHUNK = DRAWS };

typedef struct update_chunk {
    char *at[TENSORS]; /* address of the chunk in each tensor */
    float *x[TENSORS]; /* elements in fp32: x[k] is at[k] if tensor k is fp32, and wide[k] if it is bf16 */
    float wide[TENSORS][CHUNK];
    int64_t index, count; /* index: index of the first element in the full parameter */
} update_chunk;

static bool is_wide(const update_chunk *c, int k) {
    return c->x[k] == c->wide[k];
}

static void widen_chunk(const update_job *j, update_chunk *c) {
    for (int k = 0; k < j->rule.tensors; k++) {
        c->x[k] = j->t[k].dtype == OTT_BF16 ? c->wide[k] : (float *)(void *)c->at[k];
        if (is_wide(c, k))
            BY_16(i, lanes, c->count, { v16_store(c->wide[k] + i, v16_get(c->at[k], OTT_BF16, i, lanes)); });
    }
}

static int number_of(const update_rule *r, int k) {
    return k == PARAM ? r->of_param : r->of_slot + k - SLOT;
}

/* Rounds bf16 tensors stochastically. Then, if rule.of_param is STOCHASTIC_NONE, computes the parameter from
   slots 0 and 1. */
static void round_chunk(const update_job *j, update_chunk *c) {
    bool averages = false;
    draws d;
    for (int k = 0; k < j->rule.tensors; k++)
        averages = averages || (k != GRAD && is_wide(c, k) && number_of(&j->rule, k) >= STOCHASTIC_AVERAGE);
    draws_take(&d, j->place.seed, j->update, c->index, c->count, averages);
    for (int k = 0; k < j->rule.tensors; k++) {
        int which = number_of(&j->rule, k);
        if (!is_wide(c, k) || k == GRAD || which == STOCHASTIC_NONE) continue;
        for (int64_t i = 0; i < c->count; i += 16)
            v16_store(c->wide[k] + i, draws_round(&d, i, v16_load(c->wide[k] + i), which));
    }
    for (int64_t i = 0; i < c->count && j->rule.of_param == STOCHASTIC_NONE; i++)
        c->x[PARAM][i] = update_point(j->constants.o, c->x[SLOT][i], c->x[SLOT + 1][i]);
}

static void narrow_chunk(const update_job *j, const update_chunk *c) {
    for (int k = 0; k < j->rule.tensors; k++)
        if (is_wide(c, k) && k != GRAD)
            BY_16(i, lanes, c->count, { v16_put(c->at[k], OTT_BF16, i, v16_load(c->wide[k] + i), lanes); });
}

static void update_chunks(const update_job *j, char *const *at, int64_t index, int64_t count) {
    update_chunk c;
    memset(c.x, 0, sizeof c.x);
    for (int64_t i = 0; i < count; i += CHUNK) {
        c.index = index + i;
        c.count = count - i < CHUNK ? count - i : CHUNK;
        for (int k = 0; k < j->rule.tensors; k++) c.at[k] = at[k] + i * dtype_bytes(j->t[k].dtype);
        widen_chunk(j, &c);
        j->rule.row(&j->constants, update_row_of(c.x), c.count);
        if (j->rounds) round_chunk(j, &c);
        narrow_chunk(j, &c);
    }
}

/* ---- the ops ---- */

static void update_task(void *argument, int thread, int threads) {
    const update_job *j = argument;
    row_share s = row_share_of(j->t[PARAM].rows, j->t[PARAM].columns, thread, threads);
    for (int64_t i = s.row; i < s.row_end; i++) {
        char *at[TENSORS] = {0};
        for (int k = 0; k < j->rule.tensors; k++) at[k] = row_element(&j->t[k], i, s.column);
        if (j->narrow) {
            update_chunks(j, at, j->place.first + i * j->place.row_step + s.column, s.columns);
            continue;
        }
        float *x[TENSORS];
        for (int k = 0; k < TENSORS; k++) x[k] = (float *)(void *)at[k];
        j->rule.row(&j->constants, update_row_of(x), s.columns);
    }
}

/* Runs the rule on tensors t[rule.tensors], which have equal shapes. */
static ott_status run_rule(exec *cx, update_rule rule, const update_options *o, const tensor *state,
                           update_place place, const tensor *const *t) {
    const float *values = state->data; /* the values of tensor/step_state.h */
    if (values[STEP_SKIP] != 0.0f) return OTT_OK;
    update_job j = {.rule = rule,
                    .constants = update_constants_of(o, values),
                    .place = place,
                    .update = step_state_update(values)};
    bool dense = place.row_step == t[PARAM]->columns;
    for (int k = 0; k < rule.tensors; k++) {
        dense = dense && t[k]->ld == t[k]->columns;
        j.narrow = j.narrow || t[k]->dtype == OTT_BF16;
        j.rounds = j.rounds || (t[k]->dtype == OTT_BF16 && k != GRAD);
    }
    for (int k = 0; k < rule.tensors; k++) j.t[k] = dense ? row_flattened(t[k]) : *t[k];
    cpu_run_sized(cx, tensor_count(j.t[PARAM]), update_task, &j);
    return OTT_OK;
}

ott_status ISA(adamw)(exec *cx, const adamw_args *a) {
    static const update_rule rule = {
        .row = adamw_row, .tensors = 4, .of_param = STOCHASTIC_SUM, .of_slot = STOCHASTIC_AVERAGE};
    const update_options o = ADAM_OPTIONS(a);
    TRY(run_rule(cx, rule, &o, a->state, PLACE(a),
                 (const tensor *[]){a->param, a->grad, a->moment1, a->moment2}));
    if (!a->q) return OTT_OK;
    if (qtensor_has_codes(a->q)) return ISA(quantize)(cx, &(quantize_args){.x = a->param, .q = a->q});
    return ISA(amax)(cx, &(amax_args){.x = a->param, .q = a->q});
}

ott_status ISA(lion)(exec *cx, const lion_args *a) {
    static const update_rule rule = {
        .row = lion_row, .tensors = 3, .of_param = STOCHASTIC_SUM, .of_slot = STOCHASTIC_AVERAGE};
    const update_options o = {.beta1 = a->beta1, .beta2 = a->beta2, .weight_decay = a->weight_decay};
    return run_rule(cx, rule, &o, a->state, PLACE(a), (const tensor *[]){a->param, a->grad, a->momentum});
}

ott_status ISA(sgd)(exec *cx, const sgd_args *a) {
    static const update_rule rule = {
        .row = sgd_row, .tensors = 3, .of_param = STOCHASTIC_SUM, .of_slot = STOCHASTIC_AVERAGE};
    const update_options o = {.factor = a->factor, .weight_decay = a->weight_decay, .nesterov = a->nesterov};
    return run_rule(cx, rule, &o, a->state, PLACE(a), (const tensor *[]){a->param, a->grad, a->momentum});
}

ott_status ISA(adam)(exec *cx, const adam_args *a) {
    static const update_rule rule = {
        .row = adam_row, .tensors = 4, .of_param = STOCHASTIC_SUM, .of_slot = STOCHASTIC_AVERAGE};
    const update_options o = ADAM_OPTIONS(a);
    return run_rule(cx, rule, &o, a->state, PLACE(a),
                    (const tensor *[]){a->param, a->grad, a->moment1, a->moment2});
}

ott_status ISA(schedule_free)(exec *cx, const schedule_free_args *a) {
    static const update_rule rule = {
        .row = schedule_free_row, .tensors = 5, .of_param = STOCHASTIC_NONE, .of_slot = STOCHASTIC_SUM};
    const update_options o = ADAM_OPTIONS(a);
    return run_rule(cx, rule, &o, a->state, PLACE(a),
                    (const tensor *[]){a->param, a->grad, a->z, a->x, a->moment2});
}

/* The op muon_momentum updates only the momentum, the rule's PARAM. The op `muon` updates the parameter. */
ott_status ISA(muon_momentum)(exec *cx, const muon_momentum_args *a) {
    static const update_rule rule = {.row = muon_momentum_row, .tensors = 2, .of_param = STOCHASTIC_AVERAGE};
    const update_options o = {.factor = a->factor};
    return run_rule(cx, rule, &o, a->state, PLACE(a), (const tensor *[]){a->momentum, a->grad});
}

static void lerp_task(void *argument, int thread, int threads) {
    const lerp_args *a = argument;
    const tensor *t[] = {a->from, a->to, a->y};
    v16 weight = v16_set1(a->weight);
    row_share s = row_share_of(a->y->rows, a->y->columns, thread, threads);
    for (int64_t r = s.row; r < s.row_end; r++) {
        char *at[3];
        for (int k = 0; k < 3; k++) at[k] = row_element(t[k], r, s.column);
        BY_16(i, lanes, s.columns, {
            v16 from = v16_get(at[0], t[0]->dtype, i, lanes), to = v16_get(at[1], t[1]->dtype, i, lanes);
            v16_put(at[2], t[2]->dtype, i, v16_fma(v16_sub(to, from), weight, from), lanes);
        });
    }
}

ott_status ISA(lerp)(exec *cx, const lerp_args *a) {
    lerp_args own = *a;
    cpu_run_sized(cx, tensor_count(*a->y), lerp_task, &own);
    return OTT_OK;
}

/* ---- Muon ---- */

static void muon_direction_task(void *argument, int thread, int threads) {
    const muon_direction_args *a = argument;
    const ott_dtype M = a->momentum->dtype, G = a->grad->dtype, Y = a->y->dtype;
    v16 factor = v16_set1(a->factor), clip = v16_set1(((const float *)a->state->data)[STEP_CLIP]);
    row_share s = row_share_of(a->y->rows, a->y->columns, thread, threads);
    for (int64_t i = s.row; i < s.row_end; i++) {
        const char *m = row_element(a->momentum, i, s.column);
        const char *g = row_element(a->grad, i, s.column);
        char *y = row_element(a->y, i, s.column);
        BY_16(k, lanes, s.columns, {
            v16 clipped = v16_mul(v16_get(g, G, k, lanes), clip);
            v16_put(y, Y, k, v16_fma(v16_get(m, M, k, lanes), factor, clipped), lanes);
        });
    }
}

ott_status ISA(muon_direction)(exec *cx, const muon_direction_args *a) {
    muon_direction_args own = *a;
    cpu_run_sized(cx, tensor_count(*a->y), muon_direction_task, &own);
    return OTT_OK;
}

static void muon_normalize_task(void *argument, int thread, int threads) {
    const muon_normalize_args *a = argument;
    v16 norm = v16_set1(sqrtf(*(const float *)a->sum_squares->data) + 1e-7f);
    row_share s = row_share_of(a->x->rows, a->x->columns, thread, threads);
    for (int64_t i = s.row; i < s.row_end; i++) {
        const char *x = row_element(a->x, i, s.column);
        char *y = row_element(a->y, i, s.column);
        WITH_DTYPE(a->y->dtype, Y, BY_16(k, lanes, s.columns, {
                       v16_put(y, Y, k, v16_div(v16_get(x, a->x->dtype, k, lanes), norm), lanes);
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
    const float *state = a->state->data; /* the values of tensor/step_state.h */
    const ott_dtype P = a->param->dtype;
    draws d;
    v16 decay = v16_set1(state[STEP_LEARNING_RATE] * a->weight_decay);
    v16 size = v16_set1(state[STEP_LEARNING_RATE] * a->scale);
    row_share s = row_share_of(a->param->rows, a->param->columns, thread, threads);
    for (int64_t i = s.row; i < s.row_end; i++) {
        char *p = row_element(a->param, i, s.column);
        const char *u = row_element(a->update, i, s.column);
        int64_t index = a->first + i * a->row_step + s.column;
        WITH_DTYPE(a->update->dtype, U, BY_16(k, lanes, s.columns, {
                       v16 x = v16_get(p, P, k, lanes);
                       x = v16_sub(x, v16_mul(decay, x));
                       x = v16_sub(x, v16_mul(size, v16_get(u, U, k, lanes)));
                       if (P != OTT_F32) {
                           draws_take(&d, a->seed, step_state_update(state), index + k, 16, false);
                           x = draws_round(&d, 0, x, STOCHASTIC_SUM);
                       }
                       v16_put(p, P, k, x, lanes);
                   }));
    }
}

ott_status ISA(muon)(exec *cx, const muon_args *a) {
    muon_args own = *a;
    if (((const float *)a->state->data)[STEP_SKIP] != 0.0f) return OTT_OK;
    cpu_run_sized(cx, tensor_count(*a->param), muon_task, &own);
    return OTT_OK;
}
