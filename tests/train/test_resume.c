/*
 * A run that is stopped and resumed equals an uninterrupted run: losses, parameters, moments and counters
 * have the same bits, in every precision, with any number of threads and any instruction set before and after
 * the stop. The files of a full run, metrics and checkpoints, are equal too.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backend/open.h"
#include "cpu/cpu.h"
#include "train/schedule.h"
#include "train/train_fixture.h"

/* ---- trainers ---- */

enum { STEPS = 6, BREAK = 4, MORE = 6 };

/* Instruction set and threads with which the steps before or after the stop are computed. */
typedef struct place {
    const char *isa, *threads;
} place;

typedef struct variant {
    const char *name;
    int precision;
    const char *more[MORE];
    float loss_scale; /* the first step's loss scale; 0: the default */
} variant;

static const variant variants[] = {
    {"fp32", FP32, {NULL}, 0},
    {"bf16", BF16, {NULL}, 0},
    {"fp16", FP16, {NULL}, 0},
    {"tensorwise", TENSORWISE, {NULL}, 0},
    {"rowwise", ROWWISE, {NULL}, 0},
    {"rowwise_with_gw_hp", ROWWISE_WITH_GW_HP, {NULL}, 0},
    {"rowwise, two micro-batches", ROWWISE, {"--train.grad_accum_steps=2"}, 0},
    {"tensorwise, full activation checkpointing", TENSORWISE, {"--train.activation_checkpointing=full"}, 0},
    {"delayed, amax history of 3", DELAYED, {"--float8.amax_history_len=3"}, 0},
    {"delayed, two micro-batches", DELAYED, {"--train.grad_accum_steps=2"}, 0},
    {"delayed, full activation checkpointing", DELAYED, {"--train.activation_checkpointing=full"}, 0},
    {"block", BLOCK, {NULL}, 0},
    {"mxfp8, activation checkpointing of ops", MXFP8, {"--train.activation_checkpointing=op"}, 0},
    {"bf16, chunked loss", BF16, {"--train.loss_fn=chunked_cross_entropy", "--train.ce_chunk_size=20"}, 0},
    {"bf16, mixture of experts",
     BF16,
     {"--model.num_experts=4", "--model.moe_frequency=2", "--model.moe_router=sigmoid_topk"},
     0},
    {"bf16, state in bf16", BF16, {STATE_IN_BF16}, 0},
    {"delayed, state in bf16", DELAYED, {STATE_IN_BF16}, 0},
    {"tensorwise, moments in fp8", TENSORWISE, {MOMENTS_IN_FP8}, 0},
    {"tensorwise, Muon, state in bf16",
     TENSORWISE,
     {STATE_IN_BF16, "--optimizer.name=muon", "--optimizer.muon_adam_lr=1e-3"},
     0},
    {"delayed, Lion, state in bf16",
     DELAYED,
     {STATE_IN_BF16, "--optimizer.name=lion", "--optimizer.lr=1e-3"},
     0},
    {"rowwise, schedule-free",
     ROWWISE,
     {"--optimizer.name=schedule_free_adamw", "--scheduler.name=none",
      "--optimizer.schedule_free_warmup_steps=5"},
     0},
    {"bf16, schedule-free, state in bf16",
     BF16,
     {STATE_IN_BF16, "--optimizer.name=schedule_free_adamw", "--scheduler.name=none"},
     0},
    /* the loss scale is too large in the steps before and after the stop, then small enough */
    {"fp16, loss scale too large", FP16, {"--train.max_consecutive_nan=100"}, 16777216.0f},
};
#define VARIANTS (sizeof variants / sizeof *variants)

/* All results of a run. */
typedef struct outcome {
    step_result step[STEPS];
    run_state state;
    double validation;
    snapshot end;
} outcome;

static void open_at(rig *r, const fixture *f, const variant *v, const place *p) {
    char threads[40];
    const char *more[MORE + 2] = {threads};
    for (int i = 0; i < MORE && v->more[i]; i++) more[i + 1] = v->more[i];
    snprintf(threads, sizeof threads, "--train.threads=%s", p->threads);
    rig_open(r, f,
             &(rig_options){.isa = p->isa, .precision = &fixture_precisions[v->precision], .more = more});
    if (v->loss_scale > 0) r->t->run.loss_scale = v->loss_scale;
}

static void take_steps(rig *r, int from, int to, outcome *o) {
    for (int i = from; i < to; i++) o->step[i] = rig_step(r);
}

static void finish(rig *r, outcome *o) {
    o->state = r->t->run;
    o->validation = rig_validate(r);
    o->end = snapshot_take(r);
    rig_close(r);
}

static outcome uninterrupted(const fixture *f, const variant *v, const place *p) {
    rig r;
    outcome o;
    memset(&o, 0, sizeof o); /* outcomes are compared with their padding */
    open_at(&r, f, v, p);
    take_steps(&r, 0, STEPS, &o);
    finish(&r, &o);
    return o;
}

/* Runs the first steps and saves a checkpoint. */
static void first_part(const fixture *f, const variant *v, const place *p, outcome *o, char *path) {
    rig r;
    memset(o, 0, sizeof *o);
    open_at(&r, f, v, p);
    take_steps(&r, 0, BREAK, o);
    rig_save(&r, f, "resume", path);
    rig_close(&r);
}

/* Resumes from the checkpoint in a new trainer and runs the steps after it. */
static outcome second_part(const fixture *f, const variant *v, const place *p, const outcome *first,
                           const char *path) {
    rig r;
    outcome o = *first;
    open_at(&r, f, v, p);
    FIXTURE_OK(trainer_load(r.t, path));
    take_steps(&r, BREAK, STEPS, &o);
    finish(&r, &o);
    return o;
}

/* True if both numbers have the same bits, or if both are NaN. */
static bool same_number(double a, double b) {
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static bool same_step(const step_result *a, const step_result *b) {
    return same_number(a->loss, b->loss) && same_number(a->grad_norm, b->grad_norm) &&
           a->skipped == b->skipped && a->tokens == b->tokens;
}

static void check_same(const char *what, const outcome *a, const outcome *b) {
    for (int i = 0; i < STEPS; i++)
        if (!same_step(&a->step[i], &b->step[i]))
            fail_msg("%s: step %d has loss %.9g and gradient norm %.9g, not %.9g and %.9g", what, i + 1,
                     b->step[i].loss, b->step[i].grad_norm, a->step[i].loss, a->step[i].grad_norm);
    if (memcmp(&a->state, &b->state, sizeof a->state)) fail_msg("%s: counters differ", what);
    if (memcmp(&a->validation, &b->validation, sizeof a->validation))
        fail_msg("%s: validation loss %.9g, not %.9g", what, b->validation, a->validation);
    if (!snapshot_equal(&a->end, &b->end)) fail_msg("%s: parameters or moments differ", what);
}

/* Checks that the run trains: its updates are not skipped and its loss falls. Otherwise equality would prove
   nothing. */
static void check_telling(const variant *v, const outcome *o) {
    assert_true(isfinite(o->validation));
    if (v->loss_scale > 0) {
        for (int i = 0; i < STEPS; i++) assert_int_equal(o->step[i].skipped, i < STEPS - 1);
        assert_int_equal(o->state.updates, 1);
    } else {
        assert_int_equal(o->state.updates, STEPS);
        assert_true(o->step[STEPS - 1].loss < o->step[0].loss);
    }
    assert_int_equal(o->state.step, STEPS);
}

static void check_and_free(const variant *v, const place *p, const char *how, const outcome *expected,
                           outcome *o) {
    char what[160];
    snprintf(what, sizeof what, "%s on %s with %s threads, %s", v->name, p->isa, p->threads, how);
    check_same(what, expected, o);
    snapshot_free(&o->end);
}

/* Compares three runs: one uninterrupted, one resumed with the same threads and instruction set, and one
   resumed with other threads and another instruction set. */
static void check_at(const fixture *f, const variant *v, const place *here, const place *there,
                     const outcome *expected) {
    char path[160];
    outcome first, o = uninterrupted(f, v, here);
    check_and_free(v, here, "uninterrupted", expected, &o);
    first_part(f, v, here, &first, path);
    o = second_part(f, v, here, &first, path);
    check_and_free(v, here, "resumed", expected, &o);
    o = second_part(f, v, there, &first, path);
    check_and_free(v, there, "resumed from another place's checkpoint", expected, &o);
}

static void check_everywhere(const fixture *f, const variant *v, const outcome *expected) {
    const char *isas[CPU_ISAS_MAX], *threads[] = {"1", "2"};
    bool few = fixture_takes_few();
    int count = cpu_isas(isas), first = few ? count - 1 : 0;
    for (int t = first; t < count; t++)
        for (int n = few; n < 2; n++) {
            place here = {isas[t], threads[n]}, there = {isas[count - 1 - t], threads[1 - n]};
            check_at(f, v, &here, &there, expected);
        }
}

static const fixture *the_fixture;

static void resumed_equals_uninterrupted(void **state) {
    const variant *v = *state;
    outcome expected = uninterrupted(the_fixture, v, &(place){"scalar", "1"});
    check_telling(v, &expected);
    check_everywhere(the_fixture, v, &expected);
    print_message("  %-28s loss %.6f -> %.6f\n", v->name, expected.step[0].loss,
                  expected.step[STEPS - 1].loss);
    snapshot_free(&expected.end);
}

/* True if two recipes must give equal results with this model. torchao's tensorwise and TransformerEngine's
   current scaling differ only if the amax is 0, below 1e-12 or not finite. Power-of-two scales only change
   exponents, so the granularity of scales has no effect while values stay in E4M3's normal range. */
static bool same_rule(int a, int b) {
    bool power_of_two_scales = (a == BLOCK || a == MXFP8) && (b == ROWWISE || b == BLOCK);
    return power_of_two_scales || (a == CURRENT && b == TENSORWISE);
}

/* ---- stopped within a step ---- */

/* A stop hook: requests a stop at call number `left`, counted from 0. asked: number of calls so far. */
typedef struct countdown {
    int64_t left, asked;
} countdown;

static bool count_down(void *user) {
    countdown *c = user;
    c->asked++;
    return c->left-- == 0;
}

/* Runs a step, and stops it at call number `at` of the stop hook (at < 0: never). Returns the number of
   calls. */
static int64_t watched_step(rig *r, int64_t at, step_result *s) {
    countdown c = {.left = at};
    int64_t fp8[2], all[2];
    const cancellation w = {.stop = count_down, .user = &c};
    run_state before = r->t->run;
    double rate = schedule_learning_rate(r->cfg, r->t->run.step, r->cfg->train.max_steps);
    trainer_gemms(r->t, &fp8[0], &all[0]);
    r->t->cx.cancellation = &w;
    ott_status status = trainer_step(r->t, rate, s);
    r->t->cx.cancellation = NULL;
    assert_int_equal(status, at < 0 ? OTT_OK : OTT_ERR_STOPPED);
    if (at < 0) return c.asked;
    trainer_gemms(r->t, &fp8[1], &all[1]);
    assert_int_equal(all[0], all[1]);
    assert_memory_equal(&before, &r->t->run, sizeof before);
    return c.asked;
}

/* Stops a step at its beginning, in its middle and at its end. The trainer continues as if the step had not
   run, and so does a trainer that loads a checkpoint saved at that point. */
static void abandoned_step_leaves_no_trace(void **state) {
    const variant *v = *state;
    const place here = {NULL, "2"};
    char path[160];
    rig r;
    outcome expected = uninterrupted(the_fixture, v, &here), o = {0}, first;
    memset(&o, 0, sizeof o);
    open_at(&r, the_fixture, v, &here);
    take_steps(&r, 0, BREAK - 1, &o);
    int64_t questions = watched_step(&r, -1, &o.step[BREAK - 1]);
    assert_true(questions > 10);
    step_result none;
    watched_step(&r, 0, &none);
    watched_step(&r, questions / 2, &none);
    watched_step(&r, questions - 1, &none);
    rig_save(&r, the_fixture, "abandoned", path);
    first = o;
    take_steps(&r, BREAK, STEPS, &o);
    finish(&r, &o);
    check_and_free(v, &(place){"auto", "2"}, "a run with steps after the checkpoint", &expected, &o);
    o = second_part(the_fixture, v, &here, &first, path);
    check_and_free(v, &(place){"auto", "2"}, "resumed before the abandoned steps", &expected, &o);
    snapshot_free(&expected.end);
}

/* A checkpoint's masters and moments are converted to the run's format. Conversion to bf16 rounds to nearest,
   conversion to fp32 is exact. */
static void check_converted(const fixture *f, const char *const *from, const char *const *to) {
    static const char name[] = "model.layers.0.mlp.up_proj.weight";
    captured_log logged;
    logger log = capture_log(&logged);
    char path[160];
    rig a, b;
    rig_open(&a, f, &(rig_options){.precision = &fixture_precisions[BF16], .more = from});
    rig_step(&a);
    rig_save(&a, f, "converted", path);
    rig_open(&b, f, &(rig_options){.precision = &fixture_precisions[BF16], .more = to});
    b.t->log = &log;
    FIXTURE_OK(trainer_load(b.t, path));
    assert_int_equal(captured_log_count(&logged, ": it and similar tensors are converted"), 2);
    const parameter *p = rig_parameter(&a, name), *q = rig_parameter(&b, name);
    const tensor *was[] = {&p->shard.value, &p->shard.slot[1]}, *is[] = {&q->shard.value, &q->shard.slot[1]};
    for (int k = 0; k < 2; k++) {
        float *x = rig_copy_wide(&a, was[k]), *y = rig_copy_wide(&b, is[k]);
        assert_int_not_equal(was[k]->dtype, is[k]->dtype);
        for (int64_t i = 0; i < tensor_count(*is[k]); i++) {
            cast_store(&x[i], is[k]->dtype, 0, x[i]);
            assert_true(y[i] == cast_load(&x[i], is[k]->dtype, 0));
        }
        free(x);
        free(y);
    }
    rig_step(&b);
    rig_close(&a);
    rig_close(&b);
}

static void state_continues_in_another_format(void **state) {
    static const char *const wide[] = {NULL}, *const narrow[] = {STATE_IN_BF16, NULL};
    (void)state;
    check_converted(the_fixture, wide, narrow);
    check_converted(the_fixture, narrow, wide);
}

/* Moments are never converted to or from FP8. A run with FP8 moments refuses a checkpoint with other moments,
   and the other way round. */
static void moments_in_fp8_stay(void **state) {
    static const char *const ways[][4] = {{NULL}, {MOMENTS_IN_FP8, NULL}};
    static const char *const wanted[] = {"set optimizer.state_dtype = \"fp32\"",
                                         "set optimizer.state_dtype = \"fp8\""};
    (void)state;
    for (int from = 0; from < 2; from++) {
        char path[160];
        rig a, b;
        rig_open(&a, the_fixture, &(rig_options){.precision = &fixture_precisions[BF16], .more = ways[from]});
        rig_step(&a);
        rig_save(&a, the_fixture, "moments", path);
        rig_close(&a);
        rig_open(&b, the_fixture,
                 &(rig_options){.precision = &fixture_precisions[BF16], .more = ways[!from]});
        assert_int_equal(trainer_load(b.t, path), OTT_ERR_SHAPE);
        assert_non_null(strstr(status_text(), wanted[from]));
        rig_close(&b);
    }
}

static void precisions_differ(void **state) {
    (void)state;
    snapshot end[PRECISIONS];
    for (int i = 0; i < PRECISIONS; i++) {
        const variant v = {.name = fixture_precisions[i].name, .precision = i};
        end[i] = uninterrupted(the_fixture, &v, &(place){NULL, "1"}).end;
        for (int j = 0; j < i; j++)
            if (!same_rule(i, j) && snapshot_equal(&end[i], &end[j]))
                fail_msg("%s and %s give the same bits", fixture_precisions[i].name,
                         fixture_precisions[j].name);
    }
    for (int i = 0; i < PRECISIONS; i++) snapshot_free(&end[i]);
}

/* Shows that the other tests would detect a checkpoint that is not fully loaded. Without the moments or the
   counters the runs differ. */
static void what_is_loaded_matters(void **state) {
    (void)state;
    const variant *v = &variants[0];
    const place here = {NULL, "1"};
    rig r;
    char path[160];
    outcome expected = uninterrupted(the_fixture, v, &here), o;
    first_part(the_fixture, v, &here, &o, path);
    open_at(&r, the_fixture, v, &here);
    FIXTURE_OK(trainer_load(r.t, path));
    FIXTURE_OK(device_zero(r.device, r.t->m->slot[1], r.t->m->block_bytes));
    take_steps(&r, BREAK, STEPS, &o);
    finish(&r, &o);
    /* new moments change this step's weights, but not this step's loss; the next step's loss differs */
    assert_true(same_step(&o.step[BREAK], &expected.step[BREAK]));
    assert_false(same_step(&o.step[BREAK + 1], &expected.step[BREAK + 1]));
    assert_false(snapshot_equal(&o.end, &expected.end));
    snapshot_free(&o.end);
    snapshot_free(&expected.end);
}

/* ---- full runs ---- */

static int count_of(const char *text, const char *part) {
    int count = 0;
    for (; (text = strstr(text, part)); text += strlen(part)) count++;
    return count;
}

static void check_metrics_telling(const fixture *f, const char *run) {
    char *text = fixture_read_metrics(f, run);
    assert_int_equal(count_of(text, "\"loss\":"), 6);
    assert_int_equal(count_of(text, "\"val_loss\":"), 3);
    assert_int_equal(count_of(text, "null"), 0);
    free(text);
}

typedef struct run_setup {
    int precision;
    const char *threads;
} run_setup;

static void run_setup_until(const run_setup *w, const char *name, int64_t stop_after, const char *load) {
    char threads[40], from[200];
    static captured_log logged;
    snprintf(threads, sizeof threads, "--train.threads=%s", w->threads);
    snprintf(from, sizeof from, "--checkpoint.load_path=%s", load);
    const char *more[] = {threads, from, NULL};
    FIXTURE_OK(fixture_run(the_fixture, &(run_options){.name = name,
                                                       .precision = &fixture_precisions[w->precision],
                                                       .more = more,
                                                       .stop_after = stop_after,
                                                       .logged = &logged}));
    if (stop_after) assert_true(captured_log_has(&logged, "saving emergency checkpoint"));
    if (*load) assert_true(captured_log_has(&logged, "Resumed from"));
}

/* Stops after 4 steps, where no periodic checkpoint is due, and again after one more step. */
static void equal_setups_give_equal_runs(void **state) {
    const run_setup *w = *state;
    char one[64], two[64], stopped[64];
    const char *name = fixture_precisions[w->precision].name;
    snprintf(one, sizeof one, "%s-%s-a", name, w->threads);
    snprintf(two, sizeof two, "%s-%s-b", name, w->threads);
    snprintf(stopped, sizeof stopped, "%s-%s-stopped", name, w->threads);
    run_setup_until(w, one, 0, "");
    run_setup_until(w, two, 0, "");
    run_setup_until(w, stopped, 4, "");
    run_setup_until(w, stopped, 1, "latest");
    run_setup_until(w, stopped, 0, "latest");
    check_metrics_telling(the_fixture, one);
    fixture_expect_same_run(the_fixture, one, two, 6);
    fixture_expect_same_run(the_fixture, one, stopped, 6);
    if (strcmp(w->threads, "1") != 0) {
        snprintf(two, sizeof two, "%s-1-a", name);
        fixture_expect_same_run(the_fixture, two, one, 6);
    }
}

/* Stops within the third step, after its first two micro-batches, and resumes. */
static void run_stopped_within_a_step(void **state) {
    (void)state;
    static captured_log logged;
    const char *fresh[] = {"--train.grad_accum_steps=3", NULL};
    const char *again[] = {"--train.grad_accum_steps=3", "--checkpoint.load_path=latest", NULL};
    run_options o = {
        .name = "within-a", .precision = &fixture_precisions[DELAYED], .more = fresh, .logged = &logged};
    FIXTURE_OK(fixture_run(the_fixture, &o));
    o.name = "within-b";
    o.stop_after = 2;
    o.stop_within = 100;
    FIXTURE_OK(fixture_run(the_fixture, &o));
    assert_true(captured_log_has(&logged, "Shutdown requested at step 2"));
    o.stop_after = o.stop_within = 0;
    o.more = again;
    FIXTURE_OK(fixture_run(the_fixture, &o));
    assert_true(captured_log_has(&logged, "Resumed from"));
    fixture_expect_same_run(the_fixture, "within-a", "within-b", 6);
}

/* A crash leaves metrics of steps after the last checkpoint. The resumed run removes these metrics, repeats
   the steps and writes their metrics again. */
static void metrics_after_the_checkpoint_are_removed(void **state) {
    (void)state;
    const run_setup w = {ROWWISE, "1"};
    char load[160];
    run_setup_until(&w, "crashed", 0, "");
    run_setup_until(&w, "straight", 0, "");
    snprintf(load, sizeof load, "%s/crashed/checkpoints/step-3", the_fixture->folder);
    run_setup_until(&w, "crashed", 0, load);
    fixture_expect_same_run(the_fixture, "straight", "crashed", 6);
}

/* A finished run has no steps left. Resuming it changes nothing. */
static void finished_run_resumed(void **state) {
    (void)state;
    const run_setup w = {BF16, "1"};
    run_setup_until(&w, "finished", 0, "");
    run_setup_until(&w, "once", 0, "");
    run_setup_until(&w, "finished", 0, "latest");
    fixture_expect_same_run(the_fixture, "once", "finished", 6);
}

/* If the load path is a run folder, the run's newest checkpoint is loaded, from any checkpoint folder. */
static void checkpoints_in_another_folder(void **state) {
    (void)state;
    char load[160];
    static captured_log logged;
    const char *first[] = {"--checkpoint.dir=kept/here", "--train.max_steps=3", NULL};
    const char *then[] = {load, NULL};
    run_options o = {.name = "elsewhere", .precision = &fixture_precisions[BF16], .logged = &logged};
    snprintf(load, sizeof load, "--checkpoint.load_path=%s/elsewhere", the_fixture->folder);
    o.more = first;
    FIXTURE_OK(fixture_run(the_fixture, &o));
    o.more = then;
    o.name = "continued";
    FIXTURE_OK(fixture_run(the_fixture, &o));
    assert_true(captured_log_has(&logged, "elsewhere/kept/here/step-3 at step 3"));
}

/* ---- the order of sums ---- */

static void expect_orders(const char *run, const char *word) {
    char path[64], fp8[64], bf16[64];
    int64_t bytes;
    snprintf(path, sizeof path, "%s/config.toml", run);
    snprintf(fp8, sizeof fp8, "\naccumulate = \"%s\"", word);
    snprintf(bf16, sizeof bf16, "\nbf16_accumulate = \"%s\"", word);
    char *text = fixture_read(the_fixture, path, &bytes);
    assert_non_null(strstr(text, fp8));
    assert_non_null(strstr(text, bf16));
    free(text);
}

/* With "auto" the order of sums is chosen when the run starts, by whether the CPU has a tile unit. The run
   keeps this order when it resumes on another CPU. */
static void order_of_sums_is_kept(void **state) {
    (void)state;
    static captured_log logged;
    char *fence = getenv(TEST_DEVICE_VARIABLE);
    const char *more[] = {"--float8.accumulate=auto", "--train.bf16_accumulate=auto",
                          "--float8.filter_fqns=lm_head", "--checkpoint.load_path=auto", NULL};
    run_options o = {
        .name = "chains", .precision = &fixture_precisions[ROWWISE], .more = more, .logged = &logged};
    if (fence && *fence) skip();
    setenv(CPU_ISA_VARIABLE, "scalar", 1);
    FIXTURE_OK(fixture_run(the_fixture, &o));
    expect_orders("chains", "fp32");
    setenv(TEST_DEVICE_VARIABLE, "amx_emulated", 1);
    o.name = "tiles";
    ott_status status = fixture_run(the_fixture, &o);
    if (status == OTT_OK) {
        expect_orders("tiles", "tile32");
        o.name = "moved";
        o.stop_after = 2;
        FIXTURE_OK(fixture_run(the_fixture, &o));
        unsetenv(TEST_DEVICE_VARIABLE);
        o.stop_after = 0;
        FIXTURE_OK(fixture_run(the_fixture, &o));
        expect_orders("moved", "tile32");
        fixture_expect_same_run(the_fixture, "tiles", "moved", 6);
    }
    unsetenv(TEST_DEVICE_VARIABLE);
    unsetenv(CPU_ISA_VARIABLE);
    if (status == OTT_ERR_UNSUPPORTED) skip();
    FIXTURE_OK(status);
}

int main(void) {
    static const run_setup run_setups[] = {
        {FP32, "1"}, {FP32, "2"},       {BF16, "1"},       {BF16, "2"},    {FP16, "1"},
        {FP16, "2"}, {TENSORWISE, "1"}, {TENSORWISE, "2"}, {ROWWISE, "1"}, {ROWWISE, "2"}};
    /* with a sanitizer a step takes ten times as long, so only every fifth test of a kind runs */
    enum {
        SINGLE = 9,
        RUN_SETUPS = sizeof run_setups / sizeof *run_setups,
        EVERY = FIXTURE_SANITIZED ? 5 : 1
    };
    static char names[RUN_SETUPS][64], abandoned[VARIANTS][64];
    struct CMUnitTest tests[SINGLE + 2 * VARIANTS + RUN_SETUPS] = {
        cmocka_unit_test(state_continues_in_another_format),
        cmocka_unit_test(moments_in_fp8_stay),
        cmocka_unit_test(precisions_differ),
        cmocka_unit_test(what_is_loaded_matters),
        cmocka_unit_test(metrics_after_the_checkpoint_are_removed),
        cmocka_unit_test(finished_run_resumed),
        cmocka_unit_test(checkpoints_in_another_folder),
        cmocka_unit_test(run_stopped_within_a_step),
        cmocka_unit_test(order_of_sums_is_kept)};
    for (size_t i = 0; i < VARIANTS; i += EVERY) {
        void *initial = (void *)(uintptr_t)&variants[i];
        snprintf(abandoned[i], sizeof abandoned[i], "abandoned steps, %s", variants[i].name);
        tests[SINGLE + i] = (struct CMUnitTest){
            .name = variants[i].name, .test_func = resumed_equals_uninterrupted, .initial_state = initial};
        tests[SINGLE + VARIANTS + i] = (struct CMUnitTest){
            .name = abandoned[i], .test_func = abandoned_step_leaves_no_trace, .initial_state = initial};
    }
    for (size_t i = 0; i < RUN_SETUPS; i++) {
        /* tests 2n and 2n + 1 differ only in their threads, and are compared with each other */
        if (i / 2 % EVERY != 0) continue;
        snprintf(names[i], sizeof names[i], "full run, %s, %s threads",
                 fixture_precisions[run_setups[i].precision].name, run_setups[i].threads);
        tests[SINGLE + 2 * VARIANTS + i] =
            (struct CMUnitTest){.name = names[i],
                                .test_func = equal_setups_give_equal_runs,
                                .initial_state = (void *)(uintptr_t)&run_setups[i]};
    }
    void *state;
    if (fixture_setup(&state)) return 1;
    the_fixture = state;
    int failed = cmocka_run_group_tests(tests, NULL, NULL); /* no group setup: each test has its own state */
    return fixture_teardown(&state) ? 1 : failed;
}
