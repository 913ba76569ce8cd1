/*
 * Optimizer update rules. A step of every rule of the table must equal the rule's formula in double. A rule
 * that is not in the table, with its own state tensor and temporary tensor, can also be recorded and run.
 * Frozen parameters do not change.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "config/table.h"
#include "nn/golden.h"
#include "nn/layer_harness.h"
#include "optimizer/optimizer.h"

static void each_rule_on_offer_is_a_row(void **state) {
    (void)state;
    const config_key *key = table_find("optimizer.name");
    assert_true(key->choice_count > 0);
    for (int i = 0; i < key->choice_count; i++) assert_non_null(optimizer_find(key->choices[i].text));
    assert_null(optimizer_find("adamW"));
}

/* ---- a rule outside of the table: sum = sum + grad, value = value + sum, with a temporary tensor ---- */

enum { ROWS = 2, COLUMNS = 3, COUNT = ROWS * COLUMNS };

static void schedule_nothing(const optimizer_options *o, int64_t update, float *host_state) {
    (void)o, (void)update, (void)host_state;
}

static ott_status add_gradient(exec *cx, const parameter *p) {
    tensor sum;
    plan_buffer buffer;
    TRY(exec_open(cx, "sum of gradients", OTT_F32, p->rows, p->columns, &sum, &buffer));
    TRY(op_add(cx, &(add_args){.x = &p->shard.slot[0], .delta = &p->shard.grad, .y = &sum}));
    TRY(op_convert(cx, &(convert_args){.x = &sum, .y = &p->shard.slot[0]}));
    TRY(op_add(cx, &(add_args){.x = &p->shard.value, .delta = &sum, .y = &p->shard.value}));
    return plan_close(cx->plan, &buffer);
}

static ott_status step_summing(exec *cx, const optimizer_options *o, const parameter *const *trained,
                               int count, const optimizer_ranks *ranks, const tensor *state) {
    (void)o, (void)ranks, (void)state;
    for (int i = 0; i < count; i++) TRY(add_gradient(cx, trained[i]));
    return OTT_OK;
}

static const optimizer_rule summing = {
    .name = "summing", .slots = 1, .slot = {"sum"}, .schedule = schedule_nothing, .step = step_summing};

typedef struct updated {
    parameter parameters[2]; /* the second parameter is frozen */
    tensor state;
} updated;

static ott_status update(exec *cx, void *user) {
    const updated *u = user;
    return optimizer_update(cx, &summing, &(optimizer_options){.max_norm = 0}, u->parameters, 2, NULL,
                            &u->state);
}

static void open_parameter(harness *h, parameter *p, bool frozen) {
    *p = parameter_of_shape(2, (const int64_t[]){ROWS, COLUMNS});
    p->frozen = frozen;
    p->shard.value = harness_tensor(h, OTT_F32, ROWS, COLUMNS);
    p->shard.grad = harness_tensor(h, OTT_F32, ROWS, COLUMNS);
    p->shard.slot[0] = harness_tensor(h, OTT_F32, ROWS, COLUMNS);
    harness_put(h, &p->shard.value, (const float[]){1, 2, 3, 4, 5, 6});
    harness_put(h, &p->shard.grad, (const float[]){1, 0, 0, 2, 0, 2});
    harness_put(h, &p->shard.slot[0], (const float[COUNT]){0});
}

static void expect(harness *h, const tensor *t, const float *expected) {
    float found[COUNT];
    harness_get(h, t, found);
    assert_memory_equal(found, expected, sizeof found);
}

static void a_rule_brings_its_slots_and_workspace(void **state) {
    (void)state;
    harness h;
    updated u;
    float host[STEP_STATE_COUNT] = {[STEP_LOSS_SCALE] = 1.0f};
    harness_open(&h, 1, NULL);
    for (int i = 0; i < 2; i++) open_parameter(&h, &u.parameters[i], i == 1);
    u.state = harness_tensor(&h, OTT_F32, 1, STEP_STATE_COUNT);
    harness_put(&h, &u.state, host);
    harness_record(&h, update, &u);
    int64_t taken = mem_read(h.account).now;
    for (int i = 0; i < 2; i++) harness_replay(&h, update, &u);
    assert_int_equal(mem_read(h.account).now, taken);
    expect(&h, &u.parameters[0].shard.slot[0], (const float[]){2, 0, 0, 4, 0, 4});
    expect(&h, &u.parameters[0].shard.value, (const float[]){4, 2, 3, 10, 5, 12});
    expect(&h, &u.parameters[1].shard.value, (const float[]){1, 2, 3, 4, 5, 6});
    harness_get(&h, &u.state, host);
    assert_true(host[STEP_GRAD_NORM] == 3.0f); /* the norm of the trained parameters only */
    harness_close(&h);
}

/* ---- shards of a parameter with bf16 state ---- */

enum { TALL = 12, WIDE = 10 };

static void fill_part(harness *h, tensor *t, const parameter *p, ott_dtype d, const float *full) {
    const parameter_part part = parameter_shard_part(p);
    float own[TALL * WIDE];
    int64_t count = part.rows * part.columns;
    for (int64_t at = 0; at < count;) {
        parameter_run run = parameter_run_at(&part, p->columns, at, count - at);
        memcpy(own + at, full + run.first, (size_t)run.count * sizeof *own);
        at += run.count;
    }
    *t = harness_tensor(h, d, part.rows, part.columns);
    harness_put(h, t, own);
}

/* Runs one step of a rule on one rank's shard of a parameter. Writes the shard's new elements, in order, to
   the start of out[TALL * WIDE]. */
static void step_part(harness *h, const optimizer_rule *rule, parameter *p, float *out) {
    float full[TALL * WIDE], host[STEP_STATE_COUNT] = {[STEP_LOSS_SCALE] = 1, [STEP_CLIP] = 1};
    const optimizer_options o = {
        .beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f, .weight_decay = 0.1f, .seed = 5, .momentum = 0.9f};
    p->name = "weight";
    p->shard.value = tensor_matrix(NULL, OTT_BF16, p->local.rows, p->local.columns);
    for (int i = 0; i < TALL * WIDE; i++) full[i] = 0.01f * (float)(i + 1);
    fill_part(h, &p->shard.grad, p, OTT_F32, full);
    for (int k = 0; k < rule->slots; k++) fill_part(h, &p->shard.slot[k], p, OTT_BF16, full);
    fill_part(h, &p->shard.value, p, OTT_BF16, full);
    optimizer_schedule(rule, &o, 1e-3, 7, host);
    tensor state = harness_tensor(h, OTT_F32, 1, STEP_STATE_COUNT);
    harness_put(h, &state, host);
    HARNESS_OK(optimizer_step(&h->cx, rule, &o, (const parameter *const[]){p}, 1, NULL, &state));
    harness_get(h, &p->shard.value, out);
}

static parameter tall_and_wide(void) {
    return parameter_of_shape(2, (const int64_t[]){TALL, WIDE});
}

static void expect_part(const parameter *p, const float *full, const float *own) {
    const parameter_part part = parameter_shard_part(p);
    int64_t count = part.rows * part.columns;
    for (int64_t at = 0; at < count;) {
        parameter_run run = parameter_run_at(&part, p->columns, at, count - at);
        assert_memory_equal(own + at, full + run.first, (size_t)run.count * sizeof *own);
        at += run.count;
    }
}

/* Stochastic rounding of an element does not depend on which rank has it. Compares a full parameter with
   shards of the rows of a fused projection (three sections), and with shards of the columns. */
static void check_parts(const char *name) {
    static const int64_t sections[] = {4, 4, 4};
    const optimizer_rule *rule = optimizer_find(name);
    harness h;
    float full[TALL * WIDE], own[TALL * WIDE];
    harness_open(&h, 1, NULL);
    parameter p = tall_and_wide();
    step_part(&h, rule, &p, full);
    for (int rank = 0; rank < 2; rank++) {
        p = tall_and_wide();
        parameter_split_rows(&p, sections, 3, rank, 2);
        step_part(&h, rule, &p, own);
        expect_part(&p, full, own);
        p = tall_and_wide();
        p.local.columns = WIDE / 2;
        p.local.column = rank * WIDE / 2;
        step_part(&h, rule, &p, own);
        expect_part(&p, full, own);
    }
    harness_close(&h);
}

static void parts_round_as_the_full_tensor(void **state) {
    static const char *const names[] = {"adamw", "adam", "sgd", "lion", "schedule_free_adamw"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) check_parts(names[i]);
}

/* ---- the quantized copy that the optimizer step makes ---- */

enum { COPY_ROWS = 70, COPY_COLUMNS = 132, RECIPES = 3 };

static void open_copy(harness *h, const quant_spec *spec, qtensor *q) {
    qblocks blocks = {0};
    *q = (qtensor){.rows = COPY_ROWS, .columns = COPY_COLUMNS, .spec = *spec};
    HARNESS_OK(qtensor_lay_out(q, h->device->can, &blocks));
    blocks.rowwise.data = harness_tensor(h, OTT_F32, 1, blocks.rowwise.bytes / 4 + 1).data;
    blocks.columnwise.data = harness_tensor(h, OTT_F32, 1, blocks.columnwise.bytes / 4 + 1).data;
    HARNESS_OK(qtensor_lay_out(q, h->device->can, &blocks));
}

static void expect_same_bytes(harness *h, const void *a, const void *b, int64_t bytes) {
    char x[COPY_ROWS * COPY_COLUMNS], y[COPY_ROWS * COPY_COLUMNS];
    assert_in_range(bytes, 1, sizeof x);
    HARNESS_OK(device_copy_out(h->device, x, a, bytes));
    HARNESS_OK(device_copy_out(h->device, y, b, bytes));
    assert_memory_equal(x, y, bytes);
}

/* After a step, the codes (or only the amax) of the quantized copy must match the new value, also if the step
   was skipped. No old code may remain. */
static void check_copy(harness *h, parameter *p, const quant_spec *spec, bool codes, bool skips) {
    float host[STEP_STATE_COUNT] = {[STEP_LOSS_SCALE] = 1, [STEP_CLIP] = 1, [STEP_SKIP] = skips};
    const optimizer_rule *adamw = optimizer_find("adamw");
    const optimizer_options o = {.beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f};
    const tensor *value = &p->shard.value;
    qtensor expected;
    open_copy(h, spec, &expected);
    open_copy(h, spec, &p->shard.quantized);
    float *values = malloc(sizeof(float[COPY_ROWS * COPY_COLUMNS]));
    for (int i = 0; i < COPY_ROWS * COPY_COLUMNS; i++) values[i] = 7;
    harness_put(h, value, values);
    HARNESS_OK(op_quantize(&h->cx, &(quantize_args){.x = value, .q = &p->shard.quantized}));
    for (int i = 0; i < COPY_ROWS * COPY_COLUMNS; i++) values[i] = (float)((i * 37) % 101 - 50) * 0.01f;
    harness_put(h, value, values);
    harness_put(h, &p->shard.grad, values);
    free(values);
    optimizer_schedule(adamw, &o, 1e-2, 1, host);
    tensor state = harness_tensor_of(h, OTT_F32, 1, STEP_STATE_COUNT, host);
    if (!codes) p->shard.quantized.rowwise.data = p->shard.quantized.columnwise.data = NULL;
    HARNESS_OK(optimizer_step(&h->cx, adamw, &o, (const parameter *const[]){p}, 1, NULL, &state));
    HARNESS_OK(op_quantize(&h->cx, &(quantize_args){.x = value, .q = &expected}));
    int64_t groups = granularity_groups(spec->rowwise.grain, COPY_ROWS, COPY_COLUMNS) * 4;
    expect_same_bytes(h, p->shard.quantized.rowwise.amax, expected.rowwise.amax, groups);
    if (!codes) return;
    expect_same_bytes(h, p->shard.quantized.rowwise.scale_inv, expected.rowwise.scale_inv, groups);
    expect_same_bytes(h, p->shard.quantized.rowwise.data, expected.rowwise.data, COPY_ROWS * COPY_COLUMNS);
    expect_same_bytes(h, p->shard.quantized.columnwise.data, expected.columnwise.data,
                      COPY_ROWS * COPY_COLUMNS);
}

static void the_copy_matches_the_value(void **state) {
    (void)state;
    static const char *const recipes[RECIPES] = {"tensorwise", "rowwise", "delayed"};
    for (int i = 0; i < RECIPES; i++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            harness h;
            linear_spec spec;
            const ott_dtype d = bf16 ? OTT_BF16 : OTT_F32;
            harness_open(&h, 2, NULL);
            parameter p = parameter_of_shape(2, (const int64_t[]){COPY_ROWS, COPY_COLUMNS});
            p.name = "weight";
            p.shard.value = harness_tensor(&h, d, COPY_ROWS, COPY_COLUMNS);
            p.shard.grad = harness_tensor(&h, OTT_F32, COPY_ROWS, COPY_COLUMNS);
            for (int k = 0; k < 2; k++) p.shard.slot[k] = harness_tensor(&h, d, COPY_ROWS, COPY_COLUMNS);
            recipe_compile(recipe_find(recipes[i]), OTT_BF16, &spec);
            for (int way = 0; way < 4; way++) check_copy(&h, &p, &spec.weight, way % 2, way / 2);
            harness_close(&h);
        }
}

/* ---- the rules in double ---- */

enum { STEPS = 6, MOST = 4 * 12 * 10 };

typedef struct exact {
    double p[MOST], slot[3][MOST];
} exact;

/* Updates element i by an element-wise rule, in double: Adam, AdamW and SGD as in PyTorch; Lion and
   schedule-free AdamW as in their papers. */
static void exact_element(const char *rule, const optimizer_options *o, exact *e, int i, double g, int t,
                          double lr, double decay) {
    double *p = &e->p[i], *m = &e->slot[0][i], *v = &e->slot[1][i];
    double c1 = 1 - pow(o->beta1, t), c2 = 1 - pow(o->beta2, t);
    if (strcmp(rule, "lion") == 0) {
        double direction = o->beta1 * *m + (1 - o->beta1) * g;
        *p = *p * (1 - lr * decay) - lr * ((direction > 0) - (direction < 0));
        *m = o->beta2 * *m + (1 - o->beta2) * g;
    } else if (strcmp(rule, "sgd") == 0) {
        g += decay * *p;
        *m = t == 1 ? g : o->momentum * *m + g;
        *p -= lr * (o->nesterov ? g + o->momentum * *m : *m);
    } else if (strcmp(rule, "schedule_free_adamw") == 0) {
        double *z = m, *x = v, *moment2 = &e->slot[2][i];
        double warm = t < o->warmup ? (double)t / (double)o->warmup : 1, sum = 0;
        for (int k = 1; k <= t; k++)
            sum += pow(k < o->warmup ? (double)k / (double)o->warmup : 1, o->weight_lr_power);
        if (t == 1) *z = *x = *p;
        *moment2 = o->beta2 * *moment2 + (1 - o->beta2) * g * g;
        *z -= lr * warm * (g / (sqrt(*moment2 / c2) + o->epsilon) + decay * *p);
        *x += (*z - *x) * pow(warm, o->weight_lr_power) / sum;
        *p = (1 - o->beta1) * *z + o->beta1 * *x;
    } else { /* adam and adamw; muon updates vectors with AdamW */
        bool decoupled = strcmp(rule, "adam") != 0;
        if (decoupled)
            *p *= 1 - lr * decay;
        else
            g += decay * *p;
        *m = o->beta1 * *m + (1 - o->beta1) * g;
        *v = o->beta2 * *v + (1 - o->beta2) * g * g;
        *p -= lr * (*m / c1) / (sqrt(*v / c2) + o->epsilon);
    }
}

/* Orthogonalizes the matrix x by Newton-Schulz iterations: begins with x / (|x| + 1e-7), then repeats x =
   3.4445 x - 4.775 (x x^T) x + 2.0315 (x x^T)^2 x. */
static void exact_orthogonal(double *x, int rows, int columns, int steps) {
    static double gram[40][40], y[MOST], z[MOST];
    double norm = 1e-7, sum = 0;
    for (int i = 0; i < rows * columns; i++) sum += x[i] * x[i];
    norm += sqrt(sum);
    for (int i = 0; i < rows * columns; i++) x[i] /= norm;
    for (int s = 0; s < steps; s++) {
        memset(gram, 0, sizeof gram);
        memset(y, 0, sizeof y);
        memset(z, 0, sizeof z);
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < rows; j++)
                for (int k = 0; k < columns; k++) gram[i][j] += x[i * columns + k] * x[j * columns + k];
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < rows; j++)
                for (int k = 0; k < columns; k++) y[i * columns + k] += gram[i][j] * x[j * columns + k];
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < rows; j++)
                for (int k = 0; k < columns; k++) z[i * columns + k] += gram[i][j] * y[j * columns + k];
        for (int i = 0; i < rows * columns; i++) x[i] = 3.4445 * x[i] - 4.775 * y[i] + 2.0315 * z[i];
    }
}

/* Computes Muon's step of one matrix in double. */
static void exact_muon(const optimizer_options *o, exact *e, int first, int rows, int columns, const float *g,
                       double lr) {
    double x[MOST];
    for (int i = 0; i < rows * columns; i++) {
        double *m = &e->slot[0][first + i];
        *m = o->momentum * *m + g[first + i];
        x[i] = o->nesterov ? o->momentum * *m + g[first + i] : *m;
    }
    exact_orthogonal(x, rows, columns, o->muon_steps);
    double scale = sqrt(rows > columns ? (double)rows / columns : 1.0);
    for (int i = 0; i < rows * columns; i++) {
        e->p[first + i] *= 1 - lr * o->weight_decay;
        e->p[first + i] -= lr * scale * x[i];
    }
}

typedef struct trial {
    const char *rule;
    optimizer_options o;
    int rank;
    int64_t shape[3];
} trial;

static void exact_step(const trial *t, const parameter *p, exact *e, const float *g, int step, double lr) {
    int rows = (int)(p->rows / p->experts), columns = (int)p->columns, count = (int)(p->rows * p->columns);
    bool full = strcmp(t->rule, "muon") == 0 && p->is_hidden;
    for (int s = 0; full && s < p->experts; s++)
        exact_muon(&t->o, e, s * rows * columns, rows, columns, g, lr);
    if (strcmp(t->rule, "muon") == 0) lr *= t->o.adam_rate;
    for (int i = 0; !full && i < count; i++)
        exact_element(t->rule, &t->o, e, i, g[i], step, lr, p->decay ? t->o.weight_decay : 0);
}

typedef struct trial_run {
    const trial *t;
    const optimizer_rule *rule;
    parameter p;
    tensor state;
} trial_run;

static ott_status update_once(exec *cx, void *user) {
    const trial_run *r = user;
    return optimizer_update(cx, r->rule, &r->t->o, &r->p, 1, NULL, &r->state);
}

static void compare(harness *h, const tensor *t, const double *expected, double scale, const trial *tested,
                    const char *what) {
    float found[MOST];
    harness_get(h, t, found);
    for (int64_t i = 0; i < tensor_count(*t); i++)
        if (!(fabs(found[i] - expected[i]) <= scale))
            fail_msg("%s, %s[%lld]: %.9g, in double %.9g", tested->rule, what, (long long)i, found[i],
                     expected[i]);
}

/* Runs the steps of one trial and compares the results with the formulas in double. hidden: the parameter is
   a hidden layer's matrix, not an embedding or an output head. */
static void run_trial(harness *h, const trial *t, bool hidden) {
    static exact e;
    float values[MOST], g[MOST];
    trial_run r = {.t = t, .rule = optimizer_find(t->rule), .p = parameter_of_shape(t->rank, t->shape)};
    r.p.name = "weight";
    r.p.is_hidden = r.p.is_hidden && hidden;
    int count = (int)(r.p.rows * r.p.columns);
    memset(&e, 0, sizeof e);
    r.p.shard.value = harness_tensor_normal(h, OTT_F32, r.p.rows, r.p.columns, 0.5, 1);
    r.p.shard.grad = harness_tensor(h, OTT_F32, r.p.rows, r.p.columns);
    for (int i = 0; i < optimizer_slots(r.rule, &r.p); i++)
        r.p.shard.slot[i] = harness_tensor(h, OTT_F32, r.p.rows, r.p.columns);
    r.state = harness_tensor(h, OTT_F32, 1, STEP_STATE_COUNT);
    harness_get(h, &r.p.shard.value, values);
    for (int i = 0; i < count; i++) e.p[i] = values[i];
    harness_record(h, update_once, &r);
    for (int step = 1; step <= STEPS; step++) {
        float state[STEP_STATE_COUNT] = {[STEP_LOSS_SCALE] = 1};
        rng_normals(7, (uint64_t)step, 0, count, g);
        if (step == 4) g[0] = NAN; /* every rule skips a step with a NaN */
        harness_put(h, &r.p.shard.grad, g);
        optimizer_schedule(r.rule, &t->o, 0.01, step < 4 ? step : step - 1, state);
        harness_put(h, &r.state, state);
        harness_replay(h, update_once, &r);
        if (step != 4) exact_step(t, &r.p, &e, g, step < 4 ? step : step - 1, 0.01);
    }
    compare(h, &r.p.shard.value, e.p, 2e-5, t, "value");
    compare(h, &r.p.shard.slot[0], e.slot[0], 2e-5, t, r.rule->slot[0]);
    if (!r.rule->use_average) return;
    float trains[MOST], average[MOST];
    harness_get(h, &r.p.shard.value, trains);
    HARNESS_OK(r.rule->use_average(&h->cx, &t->o, &r.p, true));
    compare(h, &r.p.shard.value, e.slot[1], 2e-5, t, "average");
    harness_get(h, &r.p.shard.value, average);
    assert_true(memcmp(average, trains, (size_t)count * sizeof *average) != 0);
    HARNESS_OK(r.rule->use_average(&h->cx, &t->o, &r.p, false));
    harness_get(h, &r.p.shard.value, average);
    assert_memory_equal(average, trains, (size_t)count * sizeof *average);
}

/* Runs several steps of each rule, with weight decay. Muon updates a square, a wide and a tall matrix, and
   expert weights. Vectors, embeddings and heads of any shape use AdamW. */
static void rules_follow_their_formulas(void **state) {
    (void)state;
#define OPTIONS(...)                                                                                         \
    { .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f, __VA_ARGS__ }
#define MUON_OF(...)                                                                                         \
    OPTIONS(.momentum = 0.95f, .muon_steps = 5, .muon_format = OTT_F32, .adam_rate = 0.25f, __VA_ARGS__)
#define MUON MUON_OF(.nesterov = false)
    static const trial trials[] = {
        {"adamw", OPTIONS(.seed = 1), 2, {12, 10}},
        {"adam", OPTIONS(.seed = 1), 2, {12, 10}},
        {"adam", OPTIONS(.seed = 1), 1, {10}},
        {"lion", OPTIONS(.seed = 1), 2, {12, 10}},
        {"sgd", OPTIONS(.momentum = 0.9f), 2, {12, 10}},
        {"sgd", OPTIONS(.momentum = 0.9f, .nesterov = true), 2, {12, 10}},
        {"sgd", OPTIONS(.momentum = 0), 1, {10}},
        {"schedule_free_adamw", OPTIONS(.warmup = 0), 2, {12, 10}},
        {"schedule_free_adamw", OPTIONS(.warmup = 3), 1, {10}},
        {"schedule_free_adamw", OPTIONS(.warmup = 3, .weight_lr_power = 2), 1, {10}},
        {"muon", MUON, 2, {11, 11}},
        {"muon", MUON, 2, {6, 30}},
        {"muon", MUON, 2, {30, 6}},
        {"muon", MUON, 3, {4, 12, 10}},
        {"muon", MUON, 2, {2, 21}},
        {"muon", MUON_OF(.nesterov = true), 2, {12, 10}},
        {"muon", MUON, 1, {10}},
    };
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        harness h;
        harness_open(&h, 2, NULL);
        run_trial(&h, &trials[i], true);
        harness_close(&h);
    }
}

/* Muon's rule for embeddings of any shape is AdamW. */
static void muon_leaves_a_table_to_adamw(void **state) {
    static const trial t = {"muon", MUON, 2, {12, 10}};
    harness h;
    (void)state;
    harness_open(&h, 2, NULL);
    run_trial(&h, &t, false);
    harness_close(&h);
}

/* Schedule-free AdamW averages its iterates. Checks the weight of the newest iterate in a warmup that is too
   long to sum all iterates' weights one by one. */
static void long_warmups_sum_right(void **state) {
    static const double lr_powers[] = {0, 0.5, 1, 2, 16};
    const int64_t warmup = 200000, updates[] = {999, 1001, 50000, 200000, 300000};
    const optimizer_rule *rule = optimizer_find("schedule_free_adamw");
    (void)state;
    for (int i = 0; i < 5; i++) {
        double sum = 0;
        int64_t done = 0;
        optimizer_options o = {
            .beta1 = 0.9f, .beta2 = 0.99f, .warmup = warmup, .weight_lr_power = lr_powers[i]};
        for (int k = 0; k < 5; k++) {
            float host[STEP_STATE_COUNT] = {0};
            double rate = updates[k] < warmup ? (double)updates[k] / (double)warmup : 1;
            while (++done < updates[k])
                sum += pow(done < warmup ? (double)done / (double)warmup : 1, lr_powers[i]);
            sum += pow(rate, lr_powers[i]);
            optimizer_schedule(rule, &o, 1e-3, updates[k], host);
            double expected = pow(rate, lr_powers[i]) / sum;
            assert_true(fabs(host[STEP_AVERAGE] / expected - 1) < 1e-6);
        }
    }
}

/* ---- against the authors' code: tests/golden/optimizers.safetensors ---- */

static void expect_near(harness *h, const golden *g, const tensor *t, double bound, const char *name,
                        const char *what) {
    float found[MOST];
    golden_tensor expected = golden_read(g, "%s/%s", name, what);
    harness_get(h, t, found);
    for (int64_t i = 0; i < expected.count; i++)
        if (!(fabs((double)found[i] - (double)expected.values[i]) <= bound))
            fail_msg("%s/%s[%lld]: %.9g, expected %.9g", name, what, (long long)i, (double)found[i],
                     (double)expected.values[i]);
    golden_free(g, &expected);
}

static void check_golden(const golden *g, const char *name, const trial *t, double bound) {
    harness h;
    golden_tensor start = golden_read(g, "%s/start", name), grad = golden_read(g, "%s/grad", name);
    const int64_t shape[] = {start.t.rows, start.t.columns};
    harness_open(&h, 1, NULL);
    trial_run r = {.t = t, .rule = optimizer_find(t->rule), .p = parameter_of_shape(2, shape)};
    assert_in_range(start.count, 1, MOST);
    r.p.name = "weight";
    r.p.shard.value = harness_tensor_of(&h, OTT_F32, shape[0], shape[1], start.values);
    r.p.shard.grad = harness_tensor(&h, OTT_F32, shape[0], shape[1]);
    for (int i = 0; i < optimizer_slots(r.rule, &r.p); i++)
        r.p.shard.slot[i] = harness_tensor(&h, OTT_F32, shape[0], shape[1]);
    r.state = harness_tensor(&h, OTT_F32, 1, STEP_STATE_COUNT);
    harness_record(&h, update_once, &r);
    for (int64_t step = 1; step <= grad.t.rows; step++) {
        float state[STEP_STATE_COUNT] = {[STEP_LOSS_SCALE] = 1};
        harness_put(&h, &r.p.shard.grad, grad.values + (step - 1) * start.count);
        optimizer_schedule(r.rule, &t->o, 0.01, step, state);
        harness_put(&h, &r.state, state);
        harness_replay(&h, update_once, &r);
    }
    expect_near(&h, g, &r.p.shard.value, bound, name, "value");
    if (r.rule->use_average) {
        HARNESS_OK(r.rule->use_average(&h.cx, &t->o, &r.p, true));
        expect_near(&h, g, &r.p.shard.value, bound, name, "average");
    }
    golden_free(g, &start);
    golden_free(g, &grad);
    harness_close(&h);
}

static void schedule_free_is_its_package(const golden *g) {
    static const double lr_powers[] = {2, 0, 1.5};
    char name[64];
    for (int i = 0; i < 3; i++) {
        const trial t = {
            "schedule_free_adamw", OPTIONS(.warmup = 7, .weight_lr_power = lr_powers[i]), 2, {0}};
        snprintf(name, sizeof name, "schedule_free.%g", lr_powers[i]);
        check_golden(g, name, &t, 1e-6);
    }
}

static void muon_is_torch(const golden *g) {
    static const char *const shapes[] = {"11x11", "6x20", "20x6", "42x2"};
    static const char *const scales[] = {[MUON_SCALE_ORIGINAL] = "original",
                                         [MUON_SCALE_RMS] = "match_rms_adamw",
                                         [MUON_SCALE_SPECTRAL] = "spectral_unclamped"};
    char name[64];
    for (int i = 0; i < 4 * 2 * 3; i++) {
        trial t = {"muon", MUON_OF(.nesterov = i % 2, .muon_scale = (muon_scale)(i / 2 % 3)), 2, {0}};
        snprintf(name, sizeof name, "muon.%s.%s.%s", shapes[i / 6], i % 2 ? "nesterov" : "plain",
                 scales[i / 2 % 3]);
        check_golden(g, name, &t, 2e-5);
    }
}

static void rules_equal_their_authors_code(void **state) {
    golden g;
    mem *account;
    (void)state;
    HARNESS_OK(mem_open(&account));
    golden_open(&g, account, "optimizers");
    schedule_free_is_its_package(&g);
    muon_is_torch(&g);
    golden_close(&g);
    mem_close(account);
}

/* Muon's GEMMs may be in bf16. The update then changes a little, and is as nearly orthogonal as in fp32. */
static void muon_in_bf16_is_near(void **state) {
    (void)state;
    enum { SIDE = 20 };
    float found[2][SIDE * SIDE], g[SIDE * SIDE];
    rng_normals(9, 1, 0, SIDE * SIDE, g);
    for (int k = 0; k < 2; k++) {
        const trial t = {.rule = "muon",
                         .o = {.muon_steps = 5, .muon_format = k ? OTT_BF16 : OTT_F32, .adam_rate = 1},
                         .rank = 2,
                         .shape = {SIDE, SIDE}};
        harness h;
        harness_open(&h, 1, NULL);
        trial_run r = {.t = &t, .rule = optimizer_find("muon"), .p = parameter_of_shape(2, t.shape)};
        r.p.shard.value = harness_tensor(&h, OTT_F32, SIDE, SIDE);
        r.p.shard.grad = harness_tensor_of(&h, OTT_F32, SIDE, SIDE, g);
        r.p.shard.slot[0] = harness_tensor(&h, OTT_F32, SIDE, SIDE);
        const float host[STEP_STATE_COUNT] = {[STEP_LOSS_SCALE] = 1, [STEP_LEARNING_RATE] = -1};
        r.state = harness_tensor_of(&h, OTT_F32, 1, STEP_STATE_COUNT, host);
        harness_record(&h, update_once, &r);
        harness_replay(&h, update_once, &r);
        harness_get(&h, &r.p.shard.value, found[k]);
        harness_close(&h);
    }
    double distance = 0, norm = 0;
    for (int i = 0; i < SIDE * SIDE; i++) {
        distance += pow(found[0][i] - found[1][i], 2);
        norm += pow(found[0][i], 2);
    }
    assert_true(norm > 0.4 * SIDE && norm < 1.5 * SIDE); /* as with singular values from 0.7 to 1.2 */
    assert_true(distance > 0 && distance < 0.05 * 0.05 * norm);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_on_offer_is_a_row),
        cmocka_unit_test(a_rule_brings_its_slots_and_workspace),
        cmocka_unit_test(parts_round_as_the_full_tensor),
        cmocka_unit_test(the_copy_matches_the_value),
        cmocka_unit_test(rules_follow_their_formulas),
        cmocka_unit_test(muon_leaves_a_table_to_adamw),
        cmocka_unit_test(long_warmups_sum_right),
        cmocka_unit_test(rules_equal_their_authors_code),
        cmocka_unit_test(muon_in_bf16_is_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
