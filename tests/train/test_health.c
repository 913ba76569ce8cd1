/*
 * Health metrics. The metrics describe the casts to FP8, and measuring them changes no bit. A layer with an
 * SQNR that stays below the bound falls back to bf16, which is logged once. Resuming a run changes no result.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "comm/ranks.h"
#include "fp8/reference.h"
#include "monitor/health.h"
#include "train/train_fixture.h"

enum { LINEARS = 15, STEPS = 6 };

/* ---- a rig that measures health metrics in each step ---- */

typedef struct measured {
    rig r;
    health *h;
    metrics_writer *metrics;
    captured_log logged;
    logger log;
} measured;

static void open_measured(measured *m, const fixture *f, int kind, const char *file,
                          const health_options *o) {
    char path[200];
    rig_open(&m->r, f, &(rig_options){.precision = &fixture_precisions[kind]});
    m->log = capture_log(&m->logged);
    m->r.t->log = &m->log;
    snprintf(path, sizeof path, "%s/%s", f->folder, file);
    FIXTURE_OK(metrics_open(m->r.account, NULL, path, -1, &m->metrics));
    FIXTURE_OK(health_open(m->r.t, o, &m->h));
}

static void take_steps(measured *m, int count) {
    for (int i = 0; i < count; i++) {
        health_begin_step(m->h);
        rig_step(&m->r);
        FIXTURE_OK(health_end_step(m->h, m->metrics));
    }
}

static void close_measured(measured *m) {
    health_close(m->h);
    metrics_close(m->metrics);
    rig_close(&m->r);
}

static int count_of(const char *text, const char *part) {
    int count = 0;
    for (; (text = strstr(text, part)); text += strlen(part)) count++;
    return count;
}

/* ---- measurements ---- */

/* Checks which operands are measured under each recipe. Codes that two GEMMs share count once. High-precision
   operands are not measured. */
static void every_use_has_a_line(void **state) {
    const fixture *f = *state;
    const struct {
        int kind, uses;
    } rows[] = {{BF16, 0},    {TENSORWISE, 3}, {ROWWISE, 6}, {ROWWISE_WITH_GW_HP, 4},
                {DELAYED, 3}, {CURRENT, 3},    {BLOCK, 5},   {MXFP8, 6}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        measured m;
        int64_t bytes;
        open_measured(&m, f, rows[i].kind, "health.jsonl", &(health_options){.interval = 2});
        take_steps(&m, 5);
        close_measured(&m);
        char *text = fixture_read(f, "health.jsonl", &bytes);
        assert_int_equal(count_of(text, "\"module\":"), 2 * LINEARS * rows[i].uses);
        assert_int_equal(count_of(text, "{\"step\":2,"), LINEARS * rows[i].uses);
        assert_int_equal(count_of(text, "{\"step\":4,"), LINEARS * rows[i].uses);
        free(text);
    }
}

/* Compares a weight's metrics with values that this test computes from the master before the step. */
static void numbers_are_those_of_the_cast(void **state) {
    const fixture *f = *state;
    measured m;
    int64_t bytes;
    open_measured(&m, f, TENSORWISE, "health.jsonl", &(health_options){.interval = 1});
    const parameter *p = rig_parameter(&m.r, "model.layers.1.mlp.up_proj.weight");
    int64_t count = parameter_count(p);
    uint8_t *codes = malloc((size_t)count);
    float amax, scale, scale_inv;
    double signal = 0, noise = 0;
    int vanished = 0;
    float *w = rig_copy(&m.r, p->value.data, count);
    reference_quantize(w, OTT_F32, p->rows, p->columns, p->columns,
                       &recipe_find("tensorwise")->weight.rowwise, false, &amax, &scale, &scale_inv, codes);
    for (int64_t i = 0; i < count; i++) {
        double x = (double)w[i];
        double d = (double)(cast_from_e4m3(codes[i]) * scale_inv) - x;
        signal += x * x;
        noise += d * d;
        vanished += x != 0 && (codes[i] & 0x7f) == 0;
    }
    free(w);
    take_steps(&m, 1);
    close_measured(&m);
    char *text = fixture_read(f, "health.jsonl", &bytes);
    const char *line = strstr(text, "\"module\":\"model.layers.1.mlp.up_proj\",\"tensor\":\"weight\"");
    assert_non_null(line);
    double values[6];
    const char *keys[] = {"amax", "scale_min", "scale_max", "saturated", "underflowed", "sqnr_db"};
    for (int i = 0; i < 6; i++) {
        char pattern[24];
        snprintf(pattern, sizeof pattern, "\"%s\":", keys[i]);
        const char *at = strstr(line, pattern);
        assert_non_null(at);
        values[i] = atof(at + strlen(pattern));
    }
    assert_true(fabs(values[0] / (double)amax - 1) < 1e-6);
    assert_true(fabs(values[1] / (double)scale - 1) < 1e-6);
    assert_true(values[1] == values[2] && values[3] == 0);
    assert_true(fabs(values[4] - (double)vanished / (double)count) < 1e-7);
    assert_true(fabs(values[5] - 10 * log10(signal / noise)) < 1e-4);
    assert_non_null(strstr(line, "\"gemm\":\"output+grad_input\""));
    free(text);
    free(codes);
}

static void measuring_changes_nothing(void **state) {
    snapshot end[2];
    for (int i = 0; i < 2; i++) {
        measured m;
        open_measured(&m, *state, DELAYED, "health.jsonl", &(health_options){.interval = i});
        take_steps(&m, 4);
        end[i] = snapshot_take(&m.r);
        close_measured(&m);
    }
    assert_true(snapshot_equal(&end[0], &end[1]));
    snapshot_free(&end[0]);
    snapshot_free(&end[1]);
}

static void ratio_of_nothing(void **state) {
    (void)state;
    assert_true(isnan(health_sqnr(0, 0)) && isnan(health_sqnr(NAN, 1)));
    assert_true(isinf(health_sqnr(1, 0)));
    assert_true(fabs(health_sqnr(100, 1) - 20) < 1e-12);
}

/* ---- fallback ---- */

static void a_low_sqnr_falls_back(void **state) {
    measured m;
    int64_t fp8, all;
    open_measured(&m, *state, TENSORWISE, "health.jsonl",
                  &(health_options){.interval = 1, .bound_db = 40, .window = 3});
    take_steps(&m, 2);
    assert_int_equal(captured_log_count(&m.logged, "Float8 fallback"), 0);
    take_steps(&m, 1);
    assert_int_equal(captured_log_count(&m.logged, "Float8 fallback"), LINEARS);
    assert_true(captured_log_has(&m.logged, "model.layers.0.mlp.up_proj moves to bf16 after step 3"));
    trainer_gemms(m.r.t, &fp8, &all);
    assert_int_equal(fp8, 3 * 3 * LINEARS);
    take_steps(&m, 2);
    trainer_gemms(m.r.t, &fp8, &all);
    assert_int_equal(fp8, 3 * 3 * LINEARS);
    assert_int_equal(all, 5 * 3 * LINEARS);
    assert_int_equal(captured_log_count(&m.logged, "Float8 fallback"), LINEARS);
    close_measured(&m);
}

static void above_the_bound_it_stays(void **state) {
    measured m;
    open_measured(&m, *state, TENSORWISE, "health.jsonl",
                  &(health_options){.interval = 1, .bound_db = 15, .window = 1});
    take_steps(&m, 4);
    assert_int_equal(captured_log_count(&m.logged, "Float8 fallback"), 0);
    close_measured(&m);
}

/* Trains STEPS steps. If `stop` is less, stops there and resumes from a checkpoint. The checkpoint has each
   layer's count of low SQNR values and the layers that fell back. */
static snapshot run_with_break(const fixture *f, int stop) {
    const health_options o = {.interval = 1, .bound_db = 40, .window = 3};
    measured m;
    char path[160];
    open_measured(&m, f, DELAYED, "health.jsonl", &o);
    take_steps(&m, stop);
    if (stop < STEPS) {
        rig_save(&m.r, f, "broken", path);
        close_measured(&m);
        open_measured(&m, f, DELAYED, "health.jsonl", &o);
        FIXTURE_OK(trainer_load(m.r.t, path));
        take_steps(&m, STEPS - stop);
    }
    snapshot end = snapshot_take(&m.r);
    close_measured(&m);
    return end;
}

static void resumed_equals_uninterrupted(void **state) {
    snapshot full = run_with_break(*state, STEPS);
    for (int stop = 1; stop < STEPS; stop++) {
        snapshot parts = run_with_break(*state, stop);
        if (!snapshot_equal(&full, &parts)) fail_msg("resuming after step %d changes the result", stop);
        snapshot_free(&parts);
    }
    snapshot_free(&full);
}

/* ---- several ranks ---- */

enum { RANKS = 2 };

typedef struct rank_measured {
    measured m;
    group *group;
    pipeline_stage stage;
} rank_measured;

static ott_status run_measured(void *argument) {
    rank_measured *k = argument;
    trainer *t = k->m.r.t;
    ott_status status = OTT_OK;
    for (int i = 0; i < STEPS && status == OTT_OK; i++) {
        step_result s;
        health_begin_step(k->m.h);
        status = trainer_step(t, 1e-3, &s);
        if (status == OTT_OK) status = health_end_step(k->m.h, k->group->rank == 0 ? k->m.metrics : NULL);
    }
    group_close(k->group);
    return status;
}

typedef enum layout { COPIES, SHARDS, LAYERS_SHARDED, STAGES, LAYOUTS } layout;

/* With 4 key heads, each of two ranks has a multiple of 16 key rows, as FP8 GEMMs require. */
static const char *const wide_keys[] = {"--model.n_kv_heads=4", NULL};

static void open_ranks(rank_measured *ranks, thread_groups *opened, const fixture *f, layout how,
                       const health_options *o) {
    group *groups[RANKS];
    ranks_groups(opened, RANKS, 1, RANKS, groups);
    for (int k = 0; k < RANKS; k++) {
        rank_measured *r = &ranks[k];
        char path[200];
        *r = (rank_measured){.group = groups[k], .stage = {PP_1F1B, RANKS, k, 1}};
        rig_options own = {
            .precision = &fixture_precisions[TENSORWISE], .more = wide_keys, .run_group = groups[k]};
        if (how == COPIES || how == SHARDS) own.data_group = groups[k];
        if (how == SHARDS) own.shard_group = groups[k];
        if (how == LAYERS_SHARDED) own.tensor_ranks = groups[k];
        if (how == STAGES) {
            own.stage = &r->stage;
            own.stage_ranks = groups[k];
        }
        rig_open(&r->m.r, f, &own);
        r->m.log = capture_log(&r->m.logged);
        r->m.r.t->log = &r->m.log;
        snprintf(path, sizeof path, "%s/health-%d.jsonl", f->folder, k);
        FIXTURE_OK(metrics_open(r->m.r.account, NULL, path, -1, &r->m.metrics));
        FIXTURE_OK(health_open(r->m.r.t, o, &r->m.h));
    }
}

static void run_together(rank_measured *ranks) {
    ranks_run("health", RANKS, ranks, sizeof *ranks, run_measured);
}

static void close_ranks(rank_measured *ranks, thread_groups *opened) {
    for (int k = 0; k < RANKS; k++) close_measured(&ranks[k].m);
    ranks_close(opened);
}

/* With any parallelism, rank 0 writes the metrics of all layers, and all ranks log which layers fell back. */
static void ranks_are_one_run(void **state) {
    static rank_measured ranks[RANKS];
    const fixture *f = *state;
    for (layout how = COPIES; how < LAYOUTS; how++) {
        thread_groups opened = {0};
        int64_t bytes, fp8, all;
        open_ranks(ranks, &opened, f, how, &(health_options){.interval = 1, .bound_db = 40, .window = 3});
        run_together(ranks);
        for (int k = 0; k < RANKS; k++) {
            measured *m = &ranks[k].m;
            int linears = how == STAGES ? 1 : RANKS; /* pipeline stages run each layer once */
            assert_int_equal(captured_log_count(&m->logged, "Float8 fallback"), LINEARS);
            assert_true(
                captured_log_has(&m->logged, "model.layers.0.mlp.up_proj moves to bf16 after step 3"));
            assert_true(
                captured_log_has(&m->logged, "model.layers.1.mlp.up_proj moves to bf16 after step 3"));
            assert_int_equal(m->r.t->converted.kept[CONVERT_KEPT_FALLBACK], LINEARS);
            trainer_gemms(m->r.t, &fp8, &all);
            assert_int_equal(fp8, 3 * 3 * LINEARS * linears);
            assert_int_equal(all, STEPS * 3 * LINEARS * linears);
        }
        close_ranks(ranks, &opened);
        char *text = fixture_read(f, "health-0.jsonl", &bytes);
        assert_int_equal(count_of(text, "\"module\":"), 3 * LINEARS * 3);
        assert_int_equal(count_of(text, "null"), 0);
        free(text);
    }
}

/* Ranks hold copies of the model, and a weight is NaN on one rank. The layer falls back on all ranks. */
static void the_worst_rank_decides(void **state) {
    static rank_measured ranks[RANKS];
    thread_groups opened = {0};
    open_ranks(ranks, &opened, *state, COPIES, &(health_options){.interval = 1, .bound_db = 15, .window = 1});
    rig_poke(&ranks[1].m.r, "model.layers.1.mlp.down_proj.weight", 0, NAN);
    run_together(ranks);
    for (int k = 0; k < RANKS; k++)
        assert_true(
            captured_log_has(&ranks[k].m.logged, "model.layers.1.mlp.down_proj moves to bf16 after step 1"));
    close_ranks(ranks, &opened);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_use_has_a_line),         cmocka_unit_test(numbers_are_those_of_the_cast),
        cmocka_unit_test(measuring_changes_nothing),    cmocka_unit_test(ratio_of_nothing),
        cmocka_unit_test(a_low_sqnr_falls_back),        cmocka_unit_test(above_the_bound_it_stays),
        cmocka_unit_test(resumed_equals_uninterrupted), cmocka_unit_test(ranks_are_one_run),
        cmocka_unit_test(the_worst_rank_decides),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
