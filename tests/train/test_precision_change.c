/*
 * A resumed run may change its precision: bf16 to FP8 and back. The log names the settings that differ from
 * the checkpoint's, and no irrelevant differences.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "train/train_fixture.h"

#define CHANGED "Changed on resume: "

/* A phase of a run: it trains in `precision` up to step `to`. */
typedef struct part {
    int precision;
    const char *to;         /* value of train.max_steps */
    const char *more[3];    /* further settings; ends with NULL */
    const char *changes[4]; /* the log must name exactly these settings on resume; ends with NULL */
} part;

static void run_part(const fixture *f, const char *name, const part *p, bool first, captured_log *logged) {
    char steps[40];
    const char *more[8] = {steps, "--eval.interval=100"};
    int count = 2;
    snprintf(steps, sizeof steps, "--train.max_steps=%s", p->to);
    if (!first) more[count++] = "--checkpoint.load_path=latest";
    for (int i = 0; i < 3 && p->more[i]; i++) more[count++] = p->more[i];
    FIXTURE_OK(fixture_run(f, &(run_options){.name = name,
                                             .precision = &fixture_precisions[p->precision],
                                             .more = more,
                                             .logged = logged}));
}

static void check_changes(const part *p, const captured_log *logged) {
    char line[160];
    int count = 0;
    for (; count < 4 && p->changes[count]; count++) {
        snprintf(line, sizeof line, CHANGED "%s\n", p->changes[count]);
        if (!captured_log_has(logged, line))
            fail_msg("the log does not contain \"%s\":\n%s", p->changes[count], logged->text);
    }
    /* each phase except the first also changes train.max_steps */
    int longer = captured_log_has(logged, CHANGED "train.max_steps = ");
    if (captured_log_count(logged, CHANGED) != count + longer)
        fail_msg("the log names more than %d changes:\n%s", count, logged->text);
}

/* Returns the number of FP8 GEMMs in all phases of the run so far. */
static long long fp8_products(const captured_log *logged) {
    long long all, fp8 = -1;
    const char *line = strstr(logged->text, "GEMMs run: ");
    assert_non_null(line);
    assert_int_equal(sscanf(line, "GEMMs run: %lld, in FP8: %lld", &all, &fp8), 2);
    return fp8;
}

/* Checks that FP8 GEMMs run only in FP8 phases. before: number of FP8 GEMMs in earlier phases. */
static void check_products(const part *p, const captured_log *logged, long long before) {
    bool fp8 = p->precision >= TENSORWISE;
    assert_int_equal(captured_log_has(logged, "Applied Float8 training: recipe="), fp8);
    assert_int_equal(captured_log_has(logged, "Float8 conversion: 15 of 15 linear layers"), fp8);
    assert_int_equal(fp8_products(logged) > before, fp8);
}

static void run_parts(const fixture *f, const char *name, const part *parts, int count) {
    static captured_log logged;
    long long before = 0;
    for (int i = 0; i < count; i++) {
        run_part(f, name, &parts[i], i == 0, &logged);
        check_changes(&parts[i], &logged);
        check_products(&parts[i], &logged, before);
        before = fp8_products(&logged);
    }
}

#define TO_FP8  "train.mixed_precision = \"fp8\" (was \"bf16\")"
#define TO_BF16 "train.mixed_precision = \"bf16\" (was \"fp8\")"

static void bf16_tensorwise_bf16(void **state) {
    const part parts[] = {
        {BF16, "3", {NULL}, {NULL}}, {TENSORWISE, "6", {NULL}, {TO_FP8}}, {BF16, "9", {NULL}, {TO_BF16}}};
    run_parts(*state, "tensorwise", parts, 3);
}

/* The log names no settings that follow from a changed recipe, and none of a recipe that is not used. */
static void bf16_rowwise_bf16(void **state) {
    const part parts[] = {
        {BF16, "3", {NULL}, {NULL}}, {ROWWISE, "6", {NULL}, {TO_FP8}}, {BF16, "9", {NULL}, {TO_BF16}}};
    run_parts(*state, "rowwise", parts, 3);
}

static void recipe_changes(void **state) {
    const part parts[] = {
        {TENSORWISE, "3", {NULL}, {NULL}},
        {ROWWISE, "6", {NULL}, {"float8.recipe_name = \"rowwise\" (was \"tensorwise\")"}},
        {TENSORWISE, "9", {NULL}, {"float8.recipe_name = \"tensorwise\" (was \"rowwise\")"}},
    };
    run_parts(*state, "recipes", parts, 3);
}

static void nothing_changes(void **state) {
    const part parts[] = {{ROWWISE, "3", {NULL}, {NULL}},
                          {ROWWISE, "6", {NULL}, {NULL}},
                          {ROWWISE, "7", {"--train.threads=2", "--metrics.log_style=kempner"}, {NULL}}};
    run_parts(*state, "same", parts, 3);
}

/* Changes of other important keys are logged too. */
static void other_keys_are_named(void **state) {
    const part parts[] = {
        {BF16, "3", {NULL}, {NULL}},
        {FP32,
         "6",
         {"--optimizer.lr=0.001", "--train.grad_accum_steps=2"},
         {"train.mixed_precision = \"fp32\" (was \"bf16\")", "optimizer.lr = 0.001 (was 0.01)",
          "train.grad_accum_steps = 2 (was 1)"}},
    };
    run_parts(*state, "others", parts, 2);
}

/* ---- effects of a change ---- */

/* A trainer loads the parameters, moments and counters of another precision's checkpoint. The first steps of
   both precisions have nearly the same loss, and training continues. */
static void training_continues(void **state) {
    const fixture *f = *state;
    static const int order[] = {BF16, ROWWISE, TENSORWISE, FP16, BF16};
    char path[160] = "";
    double before = 0;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        rig r;
        const char *more[] = {"--train.max_steps=100", NULL};
        rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[order[i]], .more = more});
        if (i > 0) {
            FIXTURE_OK(trainer_load(r.t, path));
            double loss = rig_validate(&r);
            print_message("  %-10s validation %.5f, before the change %.5f\n",
                          fixture_precisions[order[i]].name, loss, before);
            assert_true(fabs(loss / before - 1) < 2e-3);
        }
        for (int k = 0; k < 8; k++) /* in the first steps fp16 may skip updates, until its loss scale fits */
            assert_true(!rig_step(&r).skipped || order[i] == FP16);
        double after = rig_validate(&r);
        if (i > 0) assert_true(after < before);
        before = after;
        rig_save(&r, f, "chain", path);
        rig_close(&r);
    }
}

/* Only fp16 uses the loss scale. Checkpoints of runs in other precisions keep its value. */
static void loss_scale_is_carried_along(void **state) {
    const fixture *f = *state;
    rig r;
    char path[160];
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[FP16]});
    r.t->run.loss_scale = 1024.0f;
    rig_step(&r);
    rig_save(&r, f, "scale-fp16", path);
    rig_close(&r);
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[ROWWISE]});
    FIXTURE_OK(trainer_load(r.t, path));
    assert_true(rig_step(&r).grad_norm < 10);
    assert_true(r.t->host_state[STEP_LOSS_SCALE] == 1.0f);
    rig_save(&r, f, "scale-rowwise", path);
    rig_close(&r);
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[FP16]});
    FIXTURE_OK(trainer_load(r.t, path));
    assert_true(r.t->run.loss_scale == 1024.0f);
    assert_true(r.t->run.good_steps == 1.0f);
    rig_close(&r);
}

/* A resumed fp16 run keeps a loss scale of 1, the smallest loss scale. Other precisions compute with a loss
   scale of 1 too, so 1 must not be replaced by the default. */
static void smallest_loss_scale_is_kept(void **state) {
    const fixture *f = *state;
    rig r;
    char path[160];
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[FP16]});
    r.t->run.loss_scale = 1.0f;
    rig_step(&r);
    assert_true(r.t->run.loss_scale == 1.0f);
    rig_save(&r, f, "scale-one", path);
    rig_close(&r);
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[FP16]});
    FIXTURE_OK(trainer_load(r.t, path));
    assert_true(r.t->run.loss_scale == 1.0f);
    rig_close(&r);
}

/* ---- the optimizer quantizes the weights ---- */

static bool same_bytes(device *d, const void *a, const void *b, int64_t bytes) {
    char *x = malloc((size_t)bytes), *y = malloc((size_t)bytes);
    FIXTURE_OK(device_copy_out(d, x, a, bytes));
    FIXTURE_OK(device_copy_out(d, y, b, bytes));
    bool same = memcmp(x, y, (size_t)bytes) == 0;
    free(x);
    free(y);
    return same;
}

/* Compares scale_inv only in fp32, because E8M0 scales have padding. It is 1 / scale. */
static bool same_use(device *d, const cast_spec *s, int64_t mn, int64_t k, const qdata *a, const qdata *b) {
    int64_t bytes = granularity_groups(s->grain, mn, k) * (int64_t)sizeof(float);
    bool floats = granularity_scale_format(s->grain) == OTT_F32;
    return !cast_spec_is_fp8(s) ||
           (same_bytes(d, a->amax, b->amax, bytes) && same_bytes(d, a->scale, b->scale, bytes) &&
            (!floats || same_bytes(d, a->scale_inv, b->scale_inv, bytes)) &&
            same_bytes(d, a->data, b->data, mn * k));
}

/* Quantizes a weight again from its master and compares the codes and scales. */
static ott_status cast_again(void *user, exec *cx, const char *module, recipe_tensor which, const tensor *t,
                             const qtensor *q) {
    int *weights = user;
    qblocks blocks = {0};
    qtensor requantized = {.rows = q->rows, .columns = q->columns, .spec = q->spec};
    if (which != TENSOR_WEIGHT) return OTT_OK;
    FIXTURE_OK(qtensor_lay_out(&requantized, cx->device->can, &blocks));
    qblock *both[] = {&blocks.rowwise, &blocks.columnwise};
    for (int i = 0; i < 2; i++)
        FIXTURE_OK(
            device_allocate(cx->device, MEM_OTHER, both[i]->bytes + 1, "a quantized copy", &both[i]->data));
    FIXTURE_OK(qtensor_lay_out(&requantized, cx->device->can, &blocks));
    requantized.rowwise.next = q->rowwise.next;
    requantized.columnwise.next = q->columnwise.next;
    FIXTURE_OK(op_quantize(cx, &(quantize_args){.x = t, .q = &requantized}));
    if (!same_use(cx->device, &q->spec.rowwise, q->rows, q->columns, &requantized.rowwise, &q->rowwise) ||
        !same_use(cx->device, &q->spec.columnwise, q->columns, q->rows, &requantized.columnwise,
                  &q->columnwise))
        fail_msg("step %lld multiplies codes of %s that differ from a cast of the master",
                 (long long)cx->step, module);
    for (int i = 0; i < 2; i++) device_release(cx->device, both[i]->data);
    ++*weights;
    return OTT_OK;
}

/* Runs one step and checks every quantized weight. skipped: the step must be skipped. */
static void look_at_step(rig *r, bool skipped) {
    int weights = 0;
    const hook looks = {.quantized = cast_again, .user = &weights};
    r->t->hook = &looks;
    assert_true(rig_step(r).skipped == skipped);
    r->t->hook = NULL;
    assert_int_equal(weights, r->t->converted.converted);
}

/* Tests every event between steps that changes or keeps weights. */
static void check_weights(const fixture *f, const precision *p, const char *state) {
    static const char *const weight = "model.layers.0.mlp.up_proj.weight";
    char path[160];
    rig r;
    rig_open(&r, f, &(rig_options){.precision = p, .more = (const char *const[]){state, NULL}});
    const recipe *own = r.t->recipe;
    for (int i = 0; i < 2; i++) look_at_step(&r, false);
    rig_validate(&r);
    look_at_step(&r, false);
    rig_save(&r, f, "weights", path);
    look_at_step(&r, false);
    rig_poke(&r, weight, 5, 3.0f); /* changes a master outside of a step */
    look_at_step(&r, false);
    FIXTURE_OK(trainer_load(r.t, path));
    look_at_step(&r, false);
    float healthy = rig_peek(&r, &rig_parameter(&r, weight)->value, 5);
    rig_poke(&r, weight, 5, NAN);
    for (int i = 0; i < 2; i++) look_at_step(&r, true);
    rig_poke(&r, weight, 5, healthy);
    for (int i = 0; i < 2; i++) look_at_step(&r, false);
    FIXTURE_OK(trainer_convert(r.t, recipe_find("bf16")));
    assert_false(rig_step(&r).skipped);
    FIXTURE_OK(trainer_convert(r.t, own));
    for (int i = 0; i < 2; i++) look_at_step(&r, false);
    rig_close(&r);
}

static void codes_are_of_the_weights(void **state) {
    for (int i = TENSORWISE; i < PRECISIONS; i++)
        check_weights(*state, &fixture_precisions[i], "--optimizer.state_dtype=fp32");
    check_weights(*state, &fixture_precisions[DELAYED], "--optimizer.state_dtype=fp8");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_tensorwise_bf16),
        cmocka_unit_test(bf16_rowwise_bf16),
        cmocka_unit_test(recipe_changes),
        cmocka_unit_test(nothing_changes),
        cmocka_unit_test(other_keys_are_named),
        cmocka_unit_test(training_continues),
        cmocka_unit_test(loss_scale_is_carried_along),
        cmocka_unit_test(codes_are_of_the_weights),
        cmocka_unit_test(smallest_loss_scale_is_kept),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
