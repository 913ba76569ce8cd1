/* Compares the learning rates of steps with values that were computed from the published formulas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "train/schedule.h"
#include "train/train_fixture.h"

#define STEPS 110 /* 10 steps of warmup, then 100 steps */

typedef struct point {
    int64_t step;
    double share; /* the learning rate, relative to the peak */
} point;

/* A schedule with warmup 10 and a minimum ratio of 0.1, and its learning rate at some steps. */
typedef struct curve {
    const char *name, *arguments[6];
    point points[12]; /* the last point has share 0 */
} curve;

/* cos(pi/4) = 0.70710678118654752, cos(99 pi/100) = -0.99950656036573156, cos(59 pi/60) =
 * -0.99862953475457387 */
static const curve curves[] = {
    {"cosine",
     {"--scheduler.name=cosine"},
     {{0, 0.1},
      {4, 0.5},
      {9, 1.0},
      {10, 1.0},
      {35, 0.86819805153394639},
      {60, 0.55},
      {109, 0.1002220478354208}}},
    {"cosine, decay ends early",
     {"--scheduler.name=cosine", "--scheduler.decay_steps=50"},
     {{9, 1.0}, {10, 1.0}, {35, 0.55}, {60, 0.1}, {61, 0.1}, {109, 0.1}}},
    {"linear",
     {"--scheduler.name=linear"},
     {{0, 0.1}, {9, 1.0}, {10, 1.0}, {35, 0.775}, {60, 0.55}, {109, 0.109}}},
    {"linear to zero",
     {"--scheduler.name=linear", "--scheduler.min_lr_ratio=0"},
     {{0, 0.1}, {10, 1.0}, {60, 0.5}, {109, 0.01}}},
    {"constant",
     {"--scheduler.name=constant"},
     {{0, 0.1}, {4, 0.5}, {9, 1.0}, {10, 1.0}, {60, 1.0}, {109, 1.0}}},
    {"none", {"--scheduler.name=none"}, {{0, 1.0}, {4, 1.0}, {9, 1.0}, {60, 1.0}, {109, 1.0}}},
    {"no warmup",
     {"--scheduler.name=linear", "--scheduler.warmup_steps=0"},
     {{0, 1.0}, {55, 0.55}, {109, 1.0 - 0.9 * 109.0 / 110.0}}},
    {"wsd, cosine",
     {"--scheduler.name=wsd", "--scheduler.stable_steps=40", "--scheduler.wsd_decay_type=cosine"},
     {{0, 0.1},
      {9, 1.0},
      {10, 1.0},
      {49, 1.0},
      {50, 1.0},
      {65, 0.86819805153394639},
      {80, 0.55},
      {109, 0.10061670936044176}}},
    {"wsd, linear",
     {"--scheduler.name=wsd", "--scheduler.stable_steps=40", "--scheduler.wsd_decay_type=linear"},
     {{0, 0.1}, {9, 1.0}, {49, 1.0}, {50, 1.0}, {65, 0.775}, {80, 0.55}, {109, 0.115}}},
    {"wsd, sqrt",
     {"--scheduler.name=wsd", "--scheduler.stable_steps=40", "--scheduler.wsd_decay_type=sqrt"},
     {{0, 0.1},
      {9, 1.0},
      {49, 1.0},
      {50, 1.0},
      {65, 0.87942286340599478},
      {80, 0.73639610306789277},
      {109, 0.21618950038622252}}},
    {"wsd, the stable phase ends where the decay begins",
     {"--scheduler.name=wsd", "--scheduler.decay_steps=20", "--scheduler.wsd_decay_type=linear"},
     {{9, 1.0}, {89, 1.0}, {90, 1.0}, {100, 0.55}, {109, 0.145}}},
    {"wsd, stable and decay steps given, then the final rate",
     {"--scheduler.name=wsd", "--scheduler.stable_steps=40", "--scheduler.decay_steps=20",
      "--scheduler.wsd_decay_type=linear"},
     {{49, 1.0}, {50, 1.0}, {60, 0.55}, {70, 0.1}, {109, 0.1}}},
    {"rex", {"--scheduler.name=rex"}, {{0, 0.1}, {9, 1.0}, {10, 1.0}, {35, 0.75}, {60, 0.5}, {109, 0.1}}},
    {"rex with rex_alpha",
     {"--scheduler.name=rex", "--scheduler.rex_alpha=0.5"},
     {{9, 1.0}, {35, 0.86602540378443865}, {60, 0.70710678118654752}, {109, 0.1}}},
    {"inverse square root",
     {"--scheduler.name=inverse-square-root"},
     {{0, 0.1}, {9, 1.0}, {39, 0.5}, {89, 0.33333333333333333}, {109, 0.30151134457776362}}},
    {"constant, scaled by phases",
     {"--scheduler.name=constant", "--data.phases=20 lr_scale=0.5,50 lr_scale=0.2"},
     {{9, 1.0}, {19, 1.0}, {20, 0.5}, {49, 0.5}, {50, 0.2}, {109, 0.2}}},
    {"wsd, neither given: decay after warmup",
     {"--scheduler.name=wsd", "--scheduler.wsd_decay_type=linear"},
     {{9, 1.0}, {10, 1.0}, {60, 0.55}, {109, 0.109}}},
};

static config *open_curve(mem *account, const curve *c, const char *peak) {
    const char *arguments[12] = {"--train.max_steps=110", "--scheduler.warmup_steps=10",
                                 "--scheduler.min_lr_ratio=0.1", peak};
    int count = 4;
    for (int i = 0; i < 6 && c->arguments[i]; i++) arguments[count++] = c->arguments[i];
    config *cfg;
    FIXTURE_OK(config_parse(account, NULL, count, arguments, &cfg));
    return cfg;
}

static void check_rate(const curve *c, const config *cfg, const point *p) {
    double expected = cfg->optimizer.lr * p->share, rate = schedule_learning_rate(cfg, p->step, STEPS);
    if (!(fabs(rate - expected) <= 1e-13 * cfg->optimizer.lr))
        fail_msg("%s: step %lld has factor %.17g, and the formula gives %.17g", c->name, (long long)p->step,
                 rate, expected);
}

static void rates_follow_the_formulas(void **state) {
    (void)state;
    mem *account;
    FIXTURE_OK(mem_open(&account));
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++) {
        config *cfg = open_curve(account, &curves[i], "--optimizer.lr=0.003");
        for (const point *p = curves[i].points; p->share > 0; p++) check_rate(&curves[i], cfg, p);
        config_close(cfg);
    }
    mem_close(account);
}

/* The first step has a positive rate. The rate never exceeds the peak, never falls below the minimum after
   warmup, and never rises again after it has fallen. */
static void every_step_is_in_range(void **state) {
    (void)state;
    mem *account;
    FIXTURE_OK(mem_open(&account));
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++) {
        config *cfg = open_curve(account, &curves[i], "--optimizer.lr=2");
        double before = 0;
        for (int64_t step = 0; step < STEPS; step++) {
            double rate = schedule_learning_rate(cfg, step, STEPS);
            assert_true(rate > 0 && rate <= 2);
            if (step < cfg->scheduler.warmup_steps) assert_true(rate >= before);
            if (step > cfg->scheduler.warmup_steps) assert_true(rate <= before);
            if (step >= cfg->scheduler.warmup_steps)
                assert_true(rate >= 2 * cfg->scheduler.min_lr_ratio - 1e-15);
            before = rate;
        }
        config_close(cfg);
    }
    mem_close(account);
}

/* A run that is shorter than its warmup ends before the learning rate reaches its peak. */
static void warmup_longer_than_the_run(void **state) {
    (void)state;
    mem *account;
    FIXTURE_OK(mem_open(&account));
    config *cfg = open_curve(account, &curves[0], "--optimizer.lr=1");
    for (int64_t step = 0; step < 5; step++)
        assert_true(fabs(schedule_learning_rate(cfg, step, 5) - 0.1 * (double)(step + 1)) < 1e-15);
    config_close(cfg);
    mem_close(account);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_follow_the_formulas),
        cmocka_unit_test(every_step_is_in_range),
        cmocka_unit_test(warmup_longer_than_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
