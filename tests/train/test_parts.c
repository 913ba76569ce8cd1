/* Loads a part of a checkpoint's state (checkpoint.exclude_from_loading). Loads a checkpoint of a run that
   froze other parameters (checkpoint.ignore_freeze_mismatch). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "train/schedule.h"
#include "train/train_fixture.h"

static const char name[] = "model.layers.0.mlp.up_proj.weight";

static void open_rig(rig *r, const fixture *f, const char *const *more) {
    rig_open(r, f, &(rig_options){.precision = &fixture_precisions[DELAYED], .more = more});
}

/* Returns the first element, in fp32, of a parameter's value or of a slot of its optimizer state. */
static float first_of(const rig *r, const char *parameter_name, int slot) {
    const parameter_shard *s = &rig_parameter(r, parameter_name)->shard;
    return rig_peek(r, slot < 0 ? &s->value : &s->slot[slot], 0);
}

/* Trains three steps and saves to `path`. */
static void begin(rig *r, const fixture *f, const char *const *more, char path[160]) {
    open_rig(r, f, more);
    for (int i = 0; i < 3; i++) rig_step(r);
    rig_save(r, f, "parts", path);
}

static void each_part_stays_away(void **state) {
    char path[160];
    rig a;
    begin(&a, *state, NULL, path);
    const run_state *then = &a.t->run;
    for (int part = 0; part < 5; part++) {
        rig b;
        const checkpoint_exclusions choice = {.no_model = part == 0,
                                              .no_optimizer = part == 1 || part == 4,
                                              .no_schedule = part == 2 || part == 4,
                                              .no_data = part == 3,
                                              .no_counters = part == 4};
        open_rig(&b, *state, NULL);
        float fresh = first_of(&b, name, -1);
        FIXTURE_OK(trainer_load_part(b.t, path, &choice));
        const run_state *now = &b.t->run;
        assert_true(first_of(&b, name, -1) == (choice.no_model ? fresh : first_of(&a, name, -1)));
        assert_true(first_of(&b, name, 1) == (choice.no_optimizer ? 0 : first_of(&a, name, 1)));
        assert_int_equal(now->updates, choice.no_optimizer ? 0 : then->updates);
        assert_int_equal(now->samples, choice.no_data ? 0 : then->samples);
        assert_int_equal(now->step, choice.no_counters ? 0 : then->step);
        assert_int_equal(now->tokens, choice.no_counters ? 0 : then->tokens);
        assert_int_equal(now->schedule_start, part == 2 ? then->step : 0);
        assert_true(fresh != first_of(&a, name, -1) && first_of(&a, name, 1) != 0);
        rig_step(&b);
        rig_close(&b);
    }
    rig_close(&a);
}

static double rate_of(const rig *r) {
    return schedule_rate(r->cfg, r->t->run.step, r->t->run.schedule_start);
}

/* A learning-rate schedule that restarts covers the remaining steps. A checkpoint has the restart's step. */
static void the_schedule_is_remembered(void **state) {
    char path[160];
    rig a, b, c;
    begin(&a, *state, NULL, path);
    open_rig(&b, *state, NULL);
    FIXTURE_OK(trainer_load_part(b.t, path, &(checkpoint_exclusions){.no_schedule = true}));
    assert_true(rate_of(&b) == schedule_learning_rate(b.cfg, 0, 3));
    assert_true(rate_of(&a) == schedule_learning_rate(a.cfg, 3, 6));
    rig_step(&b);
    rig_save(&b, *state, "anew", path);
    open_rig(&c, *state, NULL);
    FIXTURE_OK(trainer_load(c.t, path));
    assert_int_equal(c.t->run.schedule_start, 3);
    assert_true(rate_of(&c) == schedule_learning_rate(c.cfg, 1, 3));
    rig_close(&a);
    rig_close(&b);
    rig_close(&c);
}

/* A run first loads parts of another run's checkpoint. After a stop it resumes with all of its own state. */
static void a_run_resumes_completely(void **state) {
    const fixture *f = *state;
    char load[200];
    snprintf(load, sizeof load, "--checkpoint.load_path=%s/source/checkpoints/step-3", f->folder);
    const char *const parts =
        "--checkpoint.exclude_from_loading=optimizer,lr_scheduler,dataloader,train_state";
    const char *const from[] = {load, parts, NULL};
    const char *const on[] = {"--checkpoint.load_path=latest", parts, NULL};
    captured_log logged;
    run_options o = {.name = "source", .precision = &fixture_precisions[BF16], .logged = &logged};
    FIXTURE_OK(fixture_run(f, &o));
    o.more = from;
    o.name = "through";
    FIXTURE_OK(fixture_run(f, &o));
    assert_true(captured_log_has(
        &logged, "step-3 at step 0, without its optimizer, lr_scheduler, dataloader, train_state"));
    o.name = "stopped";
    o.stop_after = 4;
    FIXTURE_OK(fixture_run(f, &o));
    o.more = on;
    o.stop_after = 0;
    FIXTURE_OK(fixture_run(f, &o));
    assert_true(captured_log_has(&logged, "step-4 at step 4") && !captured_log_has(&logged, "without its"));
    fixture_expect_same_run(f, "through", "stopped", 6);
}

/* ---- other frozen parameters ---- */

static void frozen_otherwise(void **state) {
    static const char *const before[] = {"--train.freeze=layers.1", NULL};
    static const char *const now[] = {"--train.freeze=layers.0", NULL};
    static const char other[] = "model.layers.1.mlp.up_proj.weight", both[] = "lm_head.weight";
    char path[160];
    captured_log logged;
    logger log = capture_log(&logged);
    rig a, b;
    begin(&a, *state, before, path);
    open_rig(&b, *state, now);
    b.t->log = &log;
    assert_int_equal(trainer_load(b.t, path), OTT_ERR_SHAPE);
    assert_non_null(strstr(status_text(), "--checkpoint.ignore_freeze_mismatch"));
    FIXTURE_OK(trainer_load_part(b.t, path, &(checkpoint_exclusions){.any_frozen = true}));
    assert_true(first_of(&b, name, -1) == first_of(&a, name, -1));
    assert_true(first_of(&b, other, 1) == 0);
    assert_true(first_of(&b, both, 1) != 0 && first_of(&b, both, 1) == first_of(&a, both, 1));
    assert_true(captured_log_has(
        &logged, "the state of 9 parameters that were frozen is initialized, and the state of 9 that are "
                 "frozen now is ignored"));
    rig_step(&b);
    rig_close(&a);
    rig_close(&b);
}

/* If state is missing because the checkpoint has another optimizer, the error names the optimizer, not frozen
   parameters. */
static void other_state_is_named(void **state) {
    static const char *const sgd[] = {"--optimizer.name=sgd", "--optimizer.momentum=0.9", NULL};
    static const char *const lion[] = {"--optimizer.name=lion", NULL};
    static const char *const *const others[] = {sgd, lion};
    char path[160];
    rig a;
    begin(&a, *state, NULL, path);
    for (int i = 0; i < 4; i++) {
        rig b;
        open_rig(&b, *state, others[i % 2]);
        const checkpoint_exclusions choice = {.any_frozen = i >= 2}, without = {.no_optimizer = true};
        assert_int_equal(trainer_load_part(b.t, path, &choice), OTT_ERR_SHAPE);
        if (!strstr(status_text(), "the optimizer state does not match") || !strstr(status_text(), "exp_avg"))
            fail_msg("%s", status_text());
        FIXTURE_OK(trainer_load_part(b.t, path, &without));
        rig_step(&b);
        rig_close(&b);
    }
    rig_close(&a);
}

/* ---- on the command line ---- */

static void parts_that_are_refused(void **state) {
    static const struct {
        const char *parts, *message;
    } cases[] = {{"optimiser", "\"optimiser\" is not a part of a checkpoint"},
                 {"optimiser", "did you mean optimizer?"},
                 {"train_state", "optimizer and lr_scheduler cannot be loaded without train_state"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mem *account;
        config *cfg;
        char argument[96];
        snprintf(argument, sizeof argument, "--checkpoint.exclude_from_loading=%s", cases[i].parts);
        const char *arguments[] = {argument};
        assert_int_equal(mem_open(&account), OTT_OK);
        assert_int_equal(config_parse(account, NULL, 1, arguments, &cfg), OTT_ERR_CONFIG);
        if (!strstr(status_text(), cases[i].message)) fail_msg("%s", status_text());
        mem_close(account);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_part_stays_away),     cmocka_unit_test(the_schedule_is_remembered),
        cmocka_unit_test(a_run_resumes_completely), cmocka_unit_test(frozen_otherwise),
        cmocka_unit_test(other_state_is_named),     cmocka_unit_test(parts_that_are_refused),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
