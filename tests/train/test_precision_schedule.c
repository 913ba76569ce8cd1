/*
 * float8.schedule changes the precision within a run. The run equals, bit for bit, a run that is stopped at
 * the change and resumed in the other precision, also with delayed scaling.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fp8/reference.h"
#include "train/train_fixture.h"

enum { STEPS = 7 };

typedef struct outcome {
    double loss[STEPS], validation;
    snapshot end;
    float scale; /* the scale of one tensor's delayed scaling; 0 without delayed scaling */
} outcome;

static void take_steps(rig *r, int from, int to, outcome *o) {
    for (int i = from; i < to; i++) o->loss[i] = rig_step(r).loss;
}

static void finish(rig *r, outcome *o) {
    o->validation = rig_validate(r);
    o->end = snapshot_take(r);
    const tensor *scale = &r->t->m->blocks[0].mlp.up.delayed[TENSOR_GRAD_OUTPUT].scale;
    o->scale = scale->data ? rig_peek(r, scale, 0) : 0.0f;
    rig_close(r);
}

/* Runs all phases in one run, as run/loop does. */
static outcome scheduled(const fixture *f, const char *schedule) {
    rig r;
    outcome o = {0};
    char argument[80];
    snprintf(argument, sizeof argument, "--float8.schedule=%s", schedule);
    const char *more[] = {argument, "--train.max_steps=7", "--float8.amax_history_len=3", NULL};
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[DELAYED], .more = more});
    for (int i = 0; i < STEPS; i++) {
        const recipe *now = precision_at(&r.precision, i);
        if (now != r.t->recipe) FIXTURE_OK(trainer_convert(r.t, now));
        take_steps(&r, i, i + 1, &o);
    }
    finish(&r, &o);
    return o;
}

/* Runs each phase as a separate run in the phase's precision. Each run starts from the checkpoint of the
   previous run. */
typedef struct part {
    int precision, until;
} part;

static outcome in_parts(const fixture *f, const part *parts, int count) {
    outcome o = {0};
    char path[160] = "";
    for (int i = 0; i < count; i++) {
        rig r;
        const char *window = parts[i].precision == DELAYED ? "--float8.amax_history_len=3" : NULL;
        const char *more[] = {"--train.max_steps=7", window, NULL};
        rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[parts[i].precision], .more = more});
        if (i > 0) FIXTURE_OK(trainer_load(r.t, path));
        take_steps(&r, i > 0 ? parts[i - 1].until : 0, parts[i].until, &o);
        if (i + 1 == count) {
            finish(&r, &o);
            break;
        }
        rig_save(&r, f, "parts", path);
        rig_close(&r);
    }
    return o;
}

static void check(const fixture *f, const char *schedule, const part *parts, int count) {
    outcome full = scheduled(f, schedule), pieces = in_parts(f, parts, count);
    for (int i = 0; i < STEPS; i++)
        if (full.loss[i] != pieces.loss[i])
            fail_msg("%s: step %d has loss %.9g, and %.9g in a resumed run", schedule, i + 1, full.loss[i],
                     pieces.loss[i]);
    assert_true(full.validation == pieces.validation);
    assert_true(full.scale == pieces.scale);
    assert_true(snapshot_equal(&full.end, &pieces.end));
    snapshot_free(&full.end);
    snapshot_free(&pieces.end);
}

static void equals_stopping_and_resuming(void **state) {
    const part ends[] = {{BF16, 2}, {DELAYED, 5}, {BF16, STEPS}};
    check(*state, "bf16:2, fp8, bf16:2", ends, 3);
    const part last[] = {{BF16, 3}, {DELAYED, STEPS}};
    check(*state, "bf16:3, fp8", last, 2);
    const part first[] = {{DELAYED, 3}, {TENSORWISE, 5}, {DELAYED, STEPS}};
    check(*state, "fp8, tensorwise:2, delayed:2", first, 3);
    const part formats[] = {{FP32, 2}, {ROWWISE, STEPS}};
    check(*state, "fp32:2, rowwise", formats, 2);
}

/* Negative control: a run that begins and ends with bf16 phases has other losses than a run in FP8 only. At
   its end it has no state of delayed scaling. */
static void phases_matter(void **state) {
    outcome plain = scheduled(*state, "fp8"), bf16 = scheduled(*state, "bf16:2, fp8, bf16:2");
    assert_true(plain.loss[0] != bf16.loss[0]);
    assert_true(plain.scale != 1.0f && plain.scale > 0);
    assert_true(bf16.scale == 0);
    snapshot_free(&plain.end);
    snapshot_free(&bf16.end);
}

/* ---- delayed scaling ---- */

/* In delayed scaling a step's scales come from earlier steps. The first step's scale is 1. The second step's
   scale is the format's maximum / (2^margin * the first step's amax). */
static void scales_follow_the_steps(void **state) {
    rig r;
    const char *more[] = {"--float8.amax_history_len=1", "--float8.margin=1", NULL};
    rig_open(&r, *state, &(rig_options){.precision = &fixture_precisions[DELAYED], .more = more});
    linear *l = &r.t->m->blocks[0].mlp.up;
    const delayed_state *state_of_weight = &l->delayed[TENSOR_WEIGHT];
    assert_true(rig_peek(&r, &state_of_weight->scale, 0) == 1.0f);
    for (int i = 0; i < 3; i++) {
        const tensor *w = &l->weight->value;
        float *values = rig_copy(&r, w->data, tensor_count(*w));
        float amax = reference_amax(values, OTT_F32, w->rows, w->columns, w->ld);
        free(values);
        rig_step(&r);
        assert_true(rig_peek(&r, &state_of_weight->scale, 0) == 224.0f / amax);
        assert_true(rig_peek(&r, &state_of_weight->seen, 0) == 0.0f);
    }
    rig_close(&r);
}

/* Evaluation between steps changes neither the amax histories nor the weights' scales. */
static void evaluation_leaves_no_trace(void **state) {
    snapshot end[2];
    for (int evaluated = 0; evaluated < 2; evaluated++) {
        rig r;
        rig_open(&r, *state, &(rig_options){.precision = &fixture_precisions[DELAYED]});
        for (int i = 0; i < 4; i++) {
            if (evaluated) rig_validate(&r);
            rig_step(&r);
        }
        end[evaluated] = snapshot_take(&r);
        rig_close(&r);
    }
    assert_true(snapshot_equal(&end[0], &end[1]));
    snapshot_free(&end[0]);
    snapshot_free(&end[1]);
}

/* The search for a NaN repeats a step. The repetition does not count as a step. */
static void a_search_leaves_no_trace(void **state) {
    rig r;
    char where[160];
    rig_open(&r, *state, &(rig_options){.precision = &fixture_precisions[DELAYED]});
    rig_step(&r);
    FIXTURE_OK(trainer_find_nonfinite(r.t, where));
    const tensor *seen = &r.t->m->delayed.seen;
    for (int64_t i = 0; i < seen->columns; i++) assert_true(rig_peek(&r, seen, i) == 0.0f);
    assert_true(seen->columns == 15 * TENSOR_COUNT);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_stopping_and_resuming), cmocka_unit_test(phases_matter),
        cmocka_unit_test(scales_follow_the_steps),      cmocka_unit_test(evaluation_leaves_no_trace),
        cmocka_unit_test(a_search_leaves_no_trace),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
