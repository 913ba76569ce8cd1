/* The loss monitor warns soon, and only once, if the loss stays above its initial value. It never warns in a
   good run, even if the loss is noisy. */
#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "train/train_fixture.h"
#include "monitor/loss_monitor.h"

/* Adds `steps` losses to the monitor. The losses rise or fall linearly from `from` to `to`, plus noise with
   the standard deviation `noise`. Returns the number of warnings, and the last warning's step in `*at`. */
typedef struct curve {
    double from, to, noise;
    int steps;
} curve;

static int add(loss_monitor *w, const curve *c, uint64_t seed, int *at) {
    int warnings = 0;
    for (int i = 0; i < c->steps; i++) {
        double mean, draw = (double)rng_normal(seed, 0, (uint64_t)i);
        double loss = c->from + (c->to - c->from) * i / (c->steps > 1 ? c->steps - 1 : 1) + c->noise * draw;
        if (!loss_monitor_add(w, loss, &mean)) continue;
        warnings++;
        if (at) *at = i + 1;
        assert_true(mean > 1.1 * w->start);
    }
    return warnings;
}

static void divergence_is_reported_early(void **state) {
    (void)state;
    static const curve before = {5.6, 4.0, 0.05, 30}, after = {20, 65, 5, 100};
    loss_monitor w;
    int at = 0;
    loss_monitor_open(&w, 256);
    assert_int_equal(add(&w, &before, 1, NULL), 0);
    assert_int_equal(add(&w, &after, 2, &at), 1); /* the monitor warns once */
    assert_int_equal(at, LOSS_MONITOR_STEPS);
    assert_true(fabs(w.start - 5.4) < 0.2);
    /* After the loss has returned to its initial value and rises again, the monitor warns again. */
    assert_int_equal(add(&w, &before, 3, NULL), 0);
    assert_int_equal(add(&w, &after, 4, &at), 1);
}

/* If the loss diverges within the first steps, the higher losses must not raise the initial value. */
static void early_divergence_too(void **state) {
    (void)state;
    static const curve first = {5.6, 5.6, 0, 1}, up = {12, 12, 0.3, 60}, guess = {2, 2, 0, 2};
    loss_monitor w;
    int at = 0;
    loss_monitor_open(&w, 256);
    assert_int_equal(add(&w, &first, 1, NULL) + add(&w, &up, 2, &at), 1);
    assert_int_equal(at, LOSS_MONITOR_STEPS);
    loss_monitor_open(&w, 256); /* the loss of a trained model rises above a random guess */
    assert_int_equal(add(&w, &guess, 1, NULL) + add(&w, &up, 2, &at), 1);
}

static void slow_divergence_too(void **state) {
    (void)state;
    static const curve c = {5.6, 7.5, 0.1, 300};
    loss_monitor w;
    loss_monitor_open(&w, 256);
    assert_int_equal(add(&w, &c, 1, NULL), 1);
}

/* Tests training from scratch, fine-tuning with few labels per step, and a run that learns nothing. */
static void a_normal_run_gets_no_warning(void **state) {
    (void)state;
    static const curve runs[] = {
        {10.5, 3.0, 0.1, 2000}, {2.2, 1.8, 0.3, 2000}, {2.2, 2.1, 0.5, 2000}, {5.55, 5.55, 0.02, 2000}};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        for (uint64_t seed = 0; seed < 200; seed++) {
            loss_monitor w;
            loss_monitor_open(&w, 32000);
            if (add(&w, &runs[i], seed, NULL)) fail_msg("run %d, seed %d", (int)i, (int)seed);
        }
}

static void spikes_and_no_numbers_do_not_count(void **state) {
    (void)state;
    static const curve calm = {5.6, 4.0, 0.05, 15}, spike = {900, 900, 0, 3};
    loss_monitor w;
    double mean;
    loss_monitor_open(&w, 256);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(add(&w, &calm, 1, NULL) + add(&w, &spike, 1, NULL), 0);
        assert_false(loss_monitor_add(&w, NAN, &mean));
        assert_false(loss_monitor_add(&w, INFINITY, &mean));
    }
}

/* Runs the training loop with a learning rate that is far too large, and with a good learning rate. */
static void a_run_says_so(void **state) {
    const char *wild[] = {"--optimizer.lr=3", "--train.max_steps=40", "--scheduler.warmup_steps=0",
                          "--checkpoint.interval=0", NULL};
    const char *tame[] = {"--train.max_steps=40", "--checkpoint.interval=0", NULL};
    static captured_log logged;
    FIXTURE_OK(fixture_run(*state, &(run_options){.name = "wild",
                                                  .precision = &fixture_precisions[BF16],
                                                  .more = wild,
                                                  .logged = &logged}));
    assert_int_equal(captured_log_count(&logged, "The loss stays above its start: "), 1);
    FIXTURE_OK(fixture_run(*state, &(run_options){.name = "tame",
                                                  .precision = &fixture_precisions[BF16],
                                                  .more = tame,
                                                  .logged = &logged}));
    assert_int_equal(captured_log_count(&logged, "The loss stays above"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divergence_is_reported_early),
        cmocka_unit_test(early_divergence_too),
        cmocka_unit_test(slow_divergence_too),
        cmocka_unit_test(a_normal_run_gets_no_warning),
        cmocka_unit_test(spikes_and_no_numbers_do_not_count),
        cmocka_unit_test(a_run_says_so),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
