/*
 * One optimizer step. Two micro-batches equal one batch of twice the size. The gradient is clipped by its
 * global norm, and the step reports the norm before clipping. Weight decay applies to matrices only.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backend/fenced.h"
#include "train/train_fixture.h"

/* The state after one step at learning rate 0.01. */
typedef struct outcome {
    rig r;
    step_result step;
} outcome;

static outcome one_step(const fixture *f, const char *const *more) {
    outcome o;
    rig_open(&o.r, f, &(rig_options){.precision = &fixture_precisions[FP32], .more = more});
    FIXTURE_OK(trainer_step(o.r.t, 0.01, &o.step));
    return o;
}

static double relative(double a, double b) {
    return fabs(a - b) / fabs(a);
}

/* Returns ||a - b|| / ||a|| over count elements. */
static double distance(const float *a, const float *b, int64_t count) {
    double difference = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)a[i] * (double)a[i];
    }
    assert_true(size > 0);
    return sqrt(difference / size);
}

static void compare_gradients(outcome *full, outcome *parts) {
    double worst = 0;
    for (int i = 0; i < full->r.t->m->parameter_count; i++) {
        const parameter *p = &full->r.t->m->parameters[i], *q = &parts->r.t->m->parameters[i];
        float *a = rig_copy(&full->r, p->grad.data, parameter_count(p));
        float *b = rig_copy(&parts->r, q->grad.data, parameter_count(q));
        double d = distance(a, b, parameter_count(p));
        if (!(d <= 1e-6)) fail_msg("the gradient of %s differs by %.3g of its norm", p->name, d);
        worst = d > worst ? d : worst;
        free(a);
        free(b);
    }
    print_message("  loss %.9g and %.9g; largest difference of a gradient: %.2e of its norm\n",
                  full->step.loss, parts->step.loss, worst);
}

static void micro_batches_are_one_batch(void **state) {
    const fixture *f = *state;
    outcome full = one_step(f, (const char *const[]){"--train.batch_size=4", NULL});
    outcome parts =
        one_step(f, (const char *const[]){"--train.batch_size=2", "--train.grad_accum_steps=2", NULL});
    assert_int_equal(full.step.tokens, 4 * 24);
    assert_int_equal(parts.step.tokens, 4 * 24);
    assert_int_equal(full.r.t->run.samples, 4);
    assert_int_equal(parts.r.t->run.samples, 4);
    assert_true(relative(full.step.loss, parts.step.loss) <= 1e-6);
    assert_true(relative(full.step.grad_norm, parts.step.grad_norm) <= 1e-6);
    compare_gradients(&full, &parts);
    rig_close(&full.r);
    rig_close(&parts.r);
}

/* Negative control: a step with just the first micro-batch has another loss, so the second one counts. */
static void second_micro_batch_counts(void **state) {
    const fixture *f = *state;
    outcome half = one_step(f, (const char *const[]){"--train.batch_size=2", NULL});
    outcome parts =
        one_step(f, (const char *const[]){"--train.batch_size=2", "--train.grad_accum_steps=2", NULL});
    assert_true(relative(half.step.loss, parts.step.loss) > 1e-4);
    rig_close(&half.r);
    rig_close(&parts.r);
}

/* ---- clipping ---- */

static double norm_of_gradients(outcome *o) {
    double squares = 0;
    for (int i = 0; i < o->r.t->m->parameter_count; i++) {
        const parameter *p = &o->r.t->m->parameters[i];
        float *g = rig_copy(&o->r, p->grad.data, parameter_count(p));
        for (int64_t j = 0; j < parameter_count(p); j++) squares += (double)g[j] * (double)g[j];
        free(g);
    }
    return sqrt(squares);
}

/* After the first step the first moment is (1 - beta1) times the clipped gradient. */
static void check_moments(outcome *o, double clip) {
    double keep = 1.0 - (double)o->r.t->options.optimizer.beta1;
    for (int i = 0; i < o->r.t->m->parameter_count; i++) {
        const parameter *p = &o->r.t->m->parameters[i];
        float *g = rig_copy(&o->r, p->grad.data, parameter_count(p));
        float *m = rig_copy(&o->r, p->shard.slot[0].data, parameter_count(p));
        for (int64_t j = 0; j < parameter_count(p); j++) {
            double expected = keep * clip * (double)g[j];
            if (!(fabs((double)m[j] - expected) <= 1e-6 * fabs(expected)))
                fail_msg("%s[%lld]: moment %.9g, not %.9g", p->name, (long long)j, (double)m[j], expected);
        }
        free(g);
        free(m);
    }
}

static void clipping_is_by_the_global_norm(void **state) {
    const fixture *f = *state;
    const struct {
        const char *argument;
        double limit; /* the clipping limit of the gradient norm; 0: none */
    } cases[] = {{"--train.grad_clip_norm=0", 0},
                 {"--train.grad_clip_norm=1000", 1000},
                 {"--train.grad_clip_norm=0.25", 0.25}};
    double first = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        outcome o = one_step(f, (const char *const[]){cases[i].argument, NULL});
        double size = norm_of_gradients(&o);
        assert_true(size > 0.5 && size < 500); /* the norm is between the two clipping limits */
        assert_true(relative(size, o.step.grad_norm) < 1e-6);
        double clip = cases[i].limit > 0 ? cases[i].limit / (size + 1e-6) : 1;
        check_moments(&o, clip < 1 ? clip : 1);
        if (i == 0) first = o.step.grad_norm;
        assert_true(o.step.grad_norm == first); /* the step reports the norm before clipping */
        rig_close(&o.r);
    }
}

/* ---- weight decay ---- */

static void compare_decay(const parameter *p, const float *start, const float *without, const float *with) {
    for (int64_t j = 0; j < parameter_count(p); j++) {
        double expected =
            p->rank == 2 ? (double)without[j] - 0.01 * 0.5 * (double)start[j] : (double)without[j];
        double error = fabs((double)with[j] - expected), size = fabs((double)start[j]) + 0.01;
        if (p->rank == 1 ? with[j] != without[j] : !(error <= 2e-7 * size))
            fail_msg("%s[%lld]: %.9g with decay, %.9g without, %.9g before", p->name, (long long)j,
                     (double)with[j], (double)without[j], (double)start[j]);
    }
}

/* A step with decay equals the step without decay, minus lr * weight_decay * the old value. Vectors do not
   decay. */
static void decay_is_for_matrices(void **state) {
    const fixture *f = *state;
    rig before;
    int vectors = 0;
    rig_open(&before, f, &(rig_options){.precision = &fixture_precisions[FP32]});
    outcome without = one_step(f, (const char *const[]){"--optimizer.weight_decay=0", NULL});
    outcome with = one_step(f, (const char *const[]){"--optimizer.weight_decay=0.5", NULL});
    for (int i = 0; i < before.t->m->parameter_count; i++) {
        const parameter *p = &before.t->m->parameters[i];
        float *a = rig_copy(&before, p->value.data, parameter_count(p));
        float *b = rig_copy(&without.r, without.r.t->m->parameters[i].value.data, parameter_count(p));
        float *c = rig_copy(&with.r, with.r.t->m->parameters[i].value.data, parameter_count(p));
        assert_true(memcmp(a, b, (size_t)parameter_count(p) * sizeof *a) != 0);
        compare_decay(p, a, b, c);
        vectors += p->rank == 1;
        free(a);
        free(b);
        free(c);
    }
    assert_int_equal(vectors, 5); /* two norms in each of two blocks, and the final norm */
    rig_close(&before);
    rig_close(&without.r);
    rig_close(&with.r);
}

/* ---- AdamW ---- */

/* Computes three AdamW steps in double from the trainer's gradients and compares the weights. */
static void update_is_adamw(void **state) {
    const fixture *f = *state;
    rig r;
    enum { COUNT = 32 * 32, UPDATES = 3 };
    double x[COUNT], m[COUNT] = {0}, v[COUNT] = {0};
    rig_open(&r, f,
             &(rig_options){.precision = &fixture_precisions[FP32],
                            .more = (const char *const[]){"--train.grad_clip_norm=0", NULL}});
    const parameter *p = rig_parameter(&r, "model.layers.1.self_attn.q_proj.weight");
    float *start = rig_copy(&r, p->value.data, COUNT);
    for (int j = 0; j < COUNT; j++) x[j] = (double)start[j];
    free(start);
    for (int k = 1; k <= UPDATES; k++) {
        step_result s;
        FIXTURE_OK(trainer_step(r.t, 0.01, &s));
        float *g = rig_copy(&r, p->grad.data, COUNT);
        for (int j = 0; j < COUNT; j++) {
            m[j] = 0.9 * m[j] + 0.1 * (double)g[j];
            v[j] = 0.95 * v[j] + 0.05 * (double)g[j] * (double)g[j];
            double mean = m[j] / (1 - pow(0.9, k)), square = v[j] / (1 - pow(0.95, k));
            x[j] -= 0.01 * 0.1 * x[j] + 0.01 * mean / (sqrt(square) + 1e-8);
        }
        free(g);
    }
    float *end = rig_copy(&r, p->value.data, COUNT);
    for (int j = 0; j < COUNT; j++)
        if (!(fabs((double)end[j] - x[j]) <= 1e-6))
            fail_msg("element %d: %.9g, not %.9g", j, (double)end[j], x[j]);
    free(end);
    rig_close(&r);
}

/* ---- host waits ---- */

/* In a step the host waits for the device only once, at the end. */
static void a_step_waits_once(void **state) {
    static const int precisions[] = {BF16, TENSORWISE, DELAYED};
    rig r;
    for (int i = 0; i < 3; i++) {
        rig_open(&r, *state,
                 &(rig_options){.precision = &fixture_precisions[precisions[i]],
                                .more = (const char *const[]){"--train.grad_accum_steps=2", NULL}});
        if (!strstr(r.device->name, "fenced")) {
            rig_close(&r);
            skip();
        }
        for (int step = 0; step < 4; step++) {
            int64_t before = fenced_waits(r.device);
            rig_step(&r);
            assert_int_equal(fenced_waits(r.device) - before, 1);
        }
        rig_close(&r);
    }
}

/* In the first step ranks exchange how many GEMMs they ran. A later step that runs other GEMMs fails. */
static void a_step_runs_the_products_of_the_first(void **state) {
    rig r;
    step_result step;
    int64_t fp8, all, of_two;
    rig_open(&r, *state, &(rig_options){.precision = &fixture_precisions[TENSORWISE]});
    rig_step(&r);
    trainer_gemms(r.t, &fp8, &all);
    rig_step(&r);
    trainer_gemms(r.t, &fp8, &of_two);
    assert_true(all > 0 && of_two == 2 * all);
    r.t->cx.gemms[GEMM_OUTPUT][1]++;
    assert_int_equal(trainer_step(r.t, 0.01, &step), OTT_ERR_INTERNAL);
    assert_non_null(strstr(status_text(), "GEMMs, "));
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(micro_batches_are_one_batch),
        cmocka_unit_test(second_micro_batch_counts),
        cmocka_unit_test(clipping_is_by_the_global_norm),
        cmocka_unit_test(decay_is_for_matrices),
        cmocka_unit_test(update_is_adamw),
        cmocka_unit_test(a_step_waits_once),
        cmocka_unit_test(a_step_runs_the_products_of_the_first),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
