/*
 * Update rules as rows: each that can be asked for is there; a rule that is not of the table, with a slot and
 * workspace of its own, is recorded and run as they are; what is frozen stays.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "config/table.h"
#include "nn/layer_harness.h"
#include "nn/optimizer.h"

static void each_rule_on_offer_is_a_row(void **state) {
    (void)state;
    const config_key *key = table_find("optimizer.name");
    int rules = 0;
    for (int i = 0; i < key->choice_count; i++) {
        const key_choice *c = &key->choices[i];
        const optimizer_rule *rule = optimizer_find(c->text);
        assert_int_equal(rule != NULL, c->missing[0] == 0);
        rules += rule != NULL;
    }
    assert_true(rules > 0);
    assert_null(optimizer_find("adamW"));
}

/* ---- another rule: sum = sum + grad, value = value + sum, through a buffer it does not need ---- */

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
                               int count, const tensor *state) {
    (void)o, (void)state;
    for (int i = 0; i < count; i++) TRY(add_gradient(cx, trained[i]));
    return OTT_OK;
}

static const optimizer_rule summing = {
    .name = "summing", .slots = 1, .slot = {"sum"}, .schedule = schedule_nothing, .step = step_summing};

typedef struct updated {
    parameter parameters[2]; /* the second is frozen */
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
    assert_true(host[STEP_GRAD_NORM] == 3.0f); /* of the one that is trained */
    harness_close(&h);
}

/* ---- parts of a parameter whose state is bf16 ---- */

enum { TALL = 12, WIDE = 10 };

static void fill_part(harness *h, tensor *t, const parameter *p, ott_dtype d, const float *whole) {
    const parameter_part part = parameter_shard_part(p);
    float own[TALL * WIDE];
    int64_t count = part.rows * part.columns;
    for (int64_t at = 0; at < count;) {
        parameter_run run = parameter_run_at(&part, p->columns, at, count - at);
        memcpy(own + at, whole + run.first, (size_t)run.count * sizeof *own);
        at += run.count;
    }
    *t = harness_tensor(h, d, part.rows, part.columns);
    harness_put(h, t, own);
}

/* One AdamW step of a parameter; what is here of its value goes to out[TALL * WIDE]. */
static void step_part(harness *h, parameter *p, float *out) {
    float whole[TALL * WIDE], host[STEP_STATE_COUNT] = {[STEP_LOSS_SCALE] = 1, [STEP_CLIP] = 1};
    const optimizer_rule *adamw = optimizer_find("adamw");
    const optimizer_options o = {
        .beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f, .weight_decay = 0.1f, .seed = 5};
    p->name = "weight";
    p->shard.value = tensor_matrix(NULL, OTT_BF16, p->local.rows, p->local.columns);
    for (int i = 0; i < TALL * WIDE; i++) whole[i] = 0.01f * (float)(i + 1);
    tensor *tensors[] = {&p->shard.grad, &p->shard.slot[0], &p->shard.slot[1], &p->shard.value};
    for (int i = 0; i < 4; i++) fill_part(h, tensors[i], p, i == 0 ? OTT_F32 : OTT_BF16, whole);
    optimizer_schedule(adamw, &o, 1e-3, 7, host);
    tensor state = harness_tensor(h, OTT_F32, 1, STEP_STATE_COUNT);
    harness_put(h, &state, host);
    HARNESS_OK(adamw->step(&h->cx, &o, (const parameter *const[]){p}, 1, &state));
    harness_get(h, &p->shard.value, out);
}

static parameter tall_and_wide(void) {
    return parameter_of_shape(2, (const int64_t[]){TALL, WIDE});
}

static void expect_part(const parameter *p, const float *whole, const float *own) {
    const parameter_part part = parameter_shard_part(p);
    int64_t count = part.rows * part.columns;
    for (int64_t at = 0; at < count;) {
        parameter_run run = parameter_run_at(&part, p->columns, at, count - at);
        assert_memory_equal(own + at, whole + run.first, (size_t)run.count * sizeof *own);
        at += run.count;
    }
}

/* An element is rounded alike whichever rank has it: rows of three projections, columns, all. */
static void parts_round_as_the_whole(void **state) {
    (void)state;
    static const int64_t sections[] = {4, 4, 4};
    harness h;
    float whole[TALL * WIDE], own[TALL * WIDE];
    harness_open(&h, 1, NULL);
    parameter p = tall_and_wide();
    step_part(&h, &p, whole);
    for (int rank = 0; rank < 2; rank++) {
        p = tall_and_wide();
        parameter_cut_lines(&p, sections, 3, rank, 2);
        step_part(&h, &p, own);
        expect_part(&p, whole, own);
        p = tall_and_wide();
        p.local.columns = WIDE / 2;
        p.local.column = rank * WIDE / 2;
        step_part(&h, &p, own);
        expect_part(&p, whole, own);
    }
    harness_close(&h);
}

/* ---- the form that is made with a value ---- */

enum { LINES = 70, LENGTH = 132, FORMS = 3 };

static void open_form(harness *h, const quant_spec *spec, qtensor *q) {
    qblocks blocks = {0};
    *q = (qtensor){.rows = LINES, .columns = LENGTH, .spec = *spec};
    HARNESS_OK(qtensor_lay_out(q, h->device->can, &blocks));
    blocks.rowwise.data = harness_tensor(h, OTT_F32, 1, blocks.rowwise.bytes / 4 + 1).data;
    blocks.columnwise.data = harness_tensor(h, OTT_F32, 1, blocks.columnwise.bytes / 4 + 1).data;
    HARNESS_OK(qtensor_lay_out(q, h->device->can, &blocks));
}

static void expect_same_bytes(harness *h, const void *a, const void *b, int64_t bytes) {
    char x[LINES * LENGTH], y[LINES * LENGTH];
    assert_in_range(bytes, 1, sizeof x);
    HARNESS_OK(device_copy_out(h->device, x, a, bytes));
    HARNESS_OK(device_copy_out(h->device, y, b, bytes));
    assert_memory_equal(x, y, bytes);
}

/* Its codes, or with none its amax, are those of the value as it is after the step, whether that changed it or not; of the
   form that was there nothing is left. */
static void check_form(harness *h, parameter *p, const quant_spec *spec, bool codes, bool skips) {
    float host[STEP_STATE_COUNT] = {[STEP_LOSS_SCALE] = 1, [STEP_CLIP] = 1, [STEP_SKIP] = skips};
    const optimizer_rule *adamw = optimizer_find("adamw");
    const optimizer_options o = {.beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 1e-8f};
    const tensor *value = &p->shard.value;
    qtensor expected;
    open_form(h, spec, &expected);
    open_form(h, spec, &p->shard.form);
    float *numbers = malloc(sizeof(float[LINES * LENGTH]));
    for (int i = 0; i < LINES * LENGTH; i++) numbers[i] = 7;
    harness_put(h, value, numbers);
    HARNESS_OK(op_quantize(&h->cx, &(quantize_args){.x = value, .q = &p->shard.form}));
    for (int i = 0; i < LINES * LENGTH; i++) numbers[i] = (float)((i * 37) % 101 - 50) * 0.01f;
    harness_put(h, value, numbers);
    harness_put(h, &p->shard.grad, numbers);
    free(numbers);
    optimizer_schedule(adamw, &o, 1e-2, 1, host);
    tensor state = harness_tensor_of(h, OTT_F32, 1, STEP_STATE_COUNT, host);
    if (!codes) p->shard.form.rowwise.data = p->shard.form.columnwise.data = NULL;
    HARNESS_OK(adamw->step(&h->cx, &o, (const parameter *const[]){p}, 1, &state));
    HARNESS_OK(op_quantize(&h->cx, &(quantize_args){.x = value, .q = &expected}));
    int64_t groups = granularity_groups(spec->rowwise.grain, LINES, LENGTH) * 4;
    expect_same_bytes(h, p->shard.form.rowwise.amax, expected.rowwise.amax, groups);
    if (!codes) return;
    expect_same_bytes(h, p->shard.form.rowwise.scale_inv, expected.rowwise.scale_inv, groups);
    expect_same_bytes(h, p->shard.form.rowwise.data, expected.rowwise.data, LINES * LENGTH);
    expect_same_bytes(h, p->shard.form.columnwise.data, expected.columnwise.data, LINES * LENGTH);
}

static void a_form_is_that_of_the_value(void **state) {
    (void)state;
    static const char *const recipes[FORMS] = {"tensorwise", "rowwise", "delayed"};
    for (int i = 0; i < FORMS; i++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            harness h;
            linear_spec spec;
            const ott_dtype d = bf16 ? OTT_BF16 : OTT_F32;
            harness_open(&h, 2, NULL);
            parameter p = parameter_of_shape(2, (const int64_t[]){LINES, LENGTH});
            p.name = "weight";
            p.shard.value = harness_tensor(&h, d, LINES, LENGTH);
            p.shard.grad = harness_tensor(&h, OTT_F32, LINES, LENGTH);
            for (int k = 0; k < 2; k++) p.shard.slot[k] = harness_tensor(&h, d, LINES, LENGTH);
            recipe_compile(recipe_find(recipes[i]), OTT_BF16, &spec);
            for (int way = 0; way < 4; way++) check_form(&h, &p, &spec.weight, way % 2, way / 2);
            harness_close(&h);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_on_offer_is_a_row),
        cmocka_unit_test(a_rule_brings_its_slots_and_workspace),
        cmocka_unit_test(parts_round_as_the_whole),
        cmocka_unit_test(a_form_is_that_of_the_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
