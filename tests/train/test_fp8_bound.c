/*
 * The main requirement of FP8 training: with the same seed and text, the same small model reaches BF16's
 * validation loss within 1% under every FP8 recipe. As a negative control, the same recipes with all scales
 * at 1 exceed 1%.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "train/train_fixture.h"

#define BOUND       0.01
#define STATE_BOUND 0.0025
#define STEPS       150

/*
 * The demo's model with smaller dimensions, another schedule and fewer steps. The text has too many different
 * words to memorize, so that the loss flattens as with a real language. (While a run still learns single
 * words, its loss falls by several percent in a few steps, and BF16 runs with different seeds differ by as
 * much.)
 */
static const char *const reduced_demo[] = {"--model.dim=64",
                                           "--model.n_heads=2",
                                           "--model.n_kv_heads=2",
                                           "--model.ffn_hidden_dim=176",
                                           "--train.batch_size=16",
                                           "--train.seq_len=64",
                                           "--train.max_steps=150",
                                           "--train.threads=1",
                                           "--optimizer.lr=3e-3",
                                           "--optimizer.weight_decay=0.05",
                                           "--scheduler.warmup_steps=20",
                                           "--scheduler.min_lr_ratio=0.02",
                                           "--eval.steps=20",
                                           NULL};

/* Returns the recipe with the scale of every operand set to 1. */
static recipe without_scales(const char *name) {
    recipe r = *recipe_find(name);
    cast_spec *uses[] = {&r.input.rowwise,     &r.input.columnwise,    &r.weight.rowwise,
                         &r.weight.columnwise, &r.grad_output.rowwise, &r.grad_output.columnwise};
    for (int i = 0; i < 6; i++) {
        uses[i]->scale.rule = SCALE_NONE;
        uses[i]->scale.power_of_two = false;
    }
    return r;
}

/* Number of steps of runs with updates so small that rounding to bf16 can lose them. */
enum { STATE_STEPS = 80 };
static const char *const gentle[] = {"--train.max_steps=80", "--optimizer.lr=2e-4"};
static const char *const narrow_state[] = {STATE_IN_BF16}, *const fp8_moments[] = {MOMENTS_IN_FP8};

/* Rounds masters to the nearest bf16 after each update. */
static void round_to_nearest(rig *r) {
    for (int i = 0; i < r->t->m->parameter_count; i++) {
        const tensor *t = &r->t->m->parameters[i].shard.value;
        float *x = rig_copy_wide(r, t);
        cast_in_place(x, OTT_F32, OTT_BF16, tensor_count(*t));
        cast_in_place(x, OTT_BF16, OTT_F32, tensor_count(*t));
        if (t->rows > 1) FIXTURE_OK(device_copy_in(r->device, t->data, x, tensor_bytes(*t)));
        free(x);
    }
}

/* Returns the final validation loss of a BF16 run. `way` sets the formats of masters, gradients and moments.
   The arguments `optimizer` choose the optimizer and end with NULL. */
typedef enum state_way { STATE_WIDE, STATE_NARROW, STATE_FP8, STATE_NEAREST } state_way;
static double train_state(const fixture *f, state_way way, const char *const *optimizer, int steps) {
    const char *more[28] = {NULL};
    int count = 0;
    rig r;
    for (; reduced_demo[count]; count++) more[count] = reduced_demo[count];
    for (int i = 0; i < 2; i++) more[count++] = gentle[i];
    for (int i = 0; i < 3 && way == STATE_NARROW; i++) more[count++] = narrow_state[i];
    for (int i = 0; i < 3 && way == STATE_FP8; i++) more[count++] = fp8_moments[i];
    for (int i = 0; optimizer[i]; i++) more[count++] = optimizer[i];
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[BF16], .more = more});
    for (int i = 0; i < steps; i++) {
        assert_false(rig_step(&r).skipped);
        if (way == STATE_NEAREST) round_to_nearest(&r);
    }
    double loss = rig_validate(&r);
    rig_close(&r);
    return loss;
}

static void narrow_state_is_near_wide(void **state) {
    if (FIXTURE_SANITIZED) skip();
    static const char *const adamw[] = {NULL};
    double wide = train_state(*state, STATE_WIDE, adamw, STATE_STEPS),
           narrow = train_state(*state, STATE_NARROW, adamw, STATE_STEPS),
           fp8 = train_state(*state, STATE_FP8, adamw, STATE_STEPS),
           nearest = train_state(*state, STATE_NEAREST, adamw, STATE_STEPS);
    print_message(
        "  state in fp32 %.5f, in bf16 %.5f (%+.2f%%), moments in fp8 %.5f (%+.2f%%), masters rounded "
        "to nearest %.5f (%+.2f%%)\n",
        wide, narrow, 100 * (narrow / wide - 1), fp8, 100 * (fp8 / wide - 1), nearest,
        100 * (nearest / wide - 1));
    assert_true(fabs(narrow / wide - 1) < STATE_BOUND);
    assert_true(fabs(fp8 / wide - 1) < STATE_BOUND);
    assert_true(nearest / wide - 1 > STATE_BOUND);
}

/* For all optimizers except AdamW, compares state in bf16 with state in fp32, in a shorter run. */
static void narrow_state_of_others_is_near_wide(void **state) {
    enum { STEPS_OF_OTHERS = 30 };
    static const char *const others[][4] = {
        {"--optimizer.name=lion", "--optimizer.lr=1e-4"},
        {"--optimizer.name=sgd", "--optimizer.lr=5e-3", "--optimizer.momentum=0.9"},
        {"--optimizer.name=adam"},
        {"--optimizer.name=muon", "--optimizer.lr=2e-3", "--optimizer.muon_adam_lr=2e-4"},
        {"--optimizer.name=schedule_free_adamw", "--scheduler.name=none"}};
    if (FIXTURE_SANITIZED) skip();
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        double wide = train_state(*state, STATE_WIDE, others[i], STEPS_OF_OTHERS),
               narrow = train_state(*state, STATE_NARROW, others[i], STEPS_OF_OTHERS);
        print_message("  %-36s state in fp32 %.5f, in bf16 %.5f (%+.2f%%)\n", others[i][0], wide, narrow,
                      100 * (narrow / wide - 1));
        assert_true(fabs(narrow / wide - 1) < STATE_BOUND);
    }
}

/* Trains with precision p and returns the final validation loss. row: NULL, or a recipe that is used instead
   of the precision's recipe. */
static double train(const fixture *f, int p, const recipe *row) {
    rig r;
    int64_t fp8, all;
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[p], .more = reduced_demo, .row = row});
    for (int i = 0; i < STEPS; i++) assert_false(rig_step(&r).skipped);
    trainer_gemms(r.t, &fp8, &all);
    double loss = rig_validate(&r);
    assert_int_equal(all, STEPS * 15 * 3);
    assert_int_equal(fp8, p == BF16 ? 0 : p == ROWWISE_WITH_GW_HP ? all / 3 * 2 : all);
    rig_close(&r);
    return loss;
}

static void fp8_is_near_bf16(void **state) {
    if (FIXTURE_SANITIZED) skip(); /* takes minutes, and other tests run this code */
    /* Only the first CONTROLS recipes have a negative control. With all scales at 1, recipes differ only in
       their formats, and the later recipes have the formats of these first ones. */
    const int kinds[] = {TENSORWISE, ROWWISE, ROWWISE_WITH_GW_HP, DELAYED, CURRENT, BLOCK, MXFP8};
    enum { KINDS = sizeof kinds / sizeof *kinds, CONTROLS = 3 };
    double bf16 = train(*state, BF16, NULL), gap[KINDS], control[CONTROLS];
    print_message("  %-20s validation loss %.5f\n", "bf16", bf16);
    for (int i = 0; i < KINDS; i++) {
        double loss = train(*state, kinds[i], NULL);
        gap[i] = loss / bf16 - 1;
        print_message("  %-20s validation loss %.5f (%+.2f%%)\n", fixture_precisions[kinds[i]].name, loss,
                      100 * gap[i]);
    }
    for (int i = 0; i < CONTROLS; i++) {
        recipe row = without_scales(fixture_precisions[kinds[i]].name);
        double loss = train(*state, kinds[i], &row);
        control[i] = loss / bf16 - 1;
        print_message("  %-20s with every scale 1: %.5f (%+.2f%%)\n", fixture_precisions[kinds[i]].name, loss,
                      100 * control[i]);
    }
    for (int i = 0; i < KINDS; i++) assert_true(fabs(gap[i]) < BOUND);
    for (int i = 0; i < CONTROLS; i++) assert_true(fabs(control[i]) > BOUND);
}

/* A longer text than in other tests, so that no epoch ends within the run. */
static int setup(void **state) {
    if (fixture_setup(state)) return -1;
    const fixture *f = *state;
    fixture_write_text(f->text, 400000, 1);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(fp8_is_near_bf16),
                                       cmocka_unit_test(narrow_state_is_near_wide),
                                       cmocka_unit_test(narrow_state_of_others_is_near_wide)};
    return cmocka_run_group_tests(tests, setup, fixture_teardown);
}
