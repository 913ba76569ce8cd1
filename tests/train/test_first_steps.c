/*
 * The first updates of a fine-tune from a bf16 folder, with and without train.master_dither. Only with dither
 * do bf16 and FP8 follow fp32.
 */
#include "export/export.h"
#include "train/train_fixture.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { STEPS = 6, ROWS = 16, LENGTH = 24 };
#define MODEL "--model.dim=128", "--model.ffn_hidden_dim=256"

/* Trains a model for a few steps and exports it in bf16 to FOLDER/base. */
static void make_base(const fixture *f) {
    static const char *const more[] = {MODEL, "--train.max_steps=100", "--optimizer.lr=3e-3",
                                       "--checkpoint.interval=100", NULL};
    char run[160], base[160];
    mem *account;
    const ott_export_options o = {.struct_size = sizeof o, .format = OTT_EXPORT_HF, .dtype = OTT_BF16};
    FIXTURE_OK(
        fixture_run(f, &(run_options){.name = "made", .precision = &fixture_precisions[FP32], .more = more}));
    FIXTURE_OK(mem_open(&account));
    str summary = {.account = account};
    snprintf(run, sizeof run, "%s/made", f->folder);
    snprintf(base, sizeof base, "%s/base", f->folder);
    FIXTURE_OK(export_run(account, NULL, run, base, &o, &summary));
    str_free(&summary);
    mem_close(account);
}

/* Trains FOLDER/base on a few repeated rows. The run is FOLDER/name. dither_seed 0: no dither. */
static void tune(const fixture *f, const char *name, int kind, int dither_seed, int stop_after,
                 captured_log *logged) {
    char base[160], row[160], dither[40], seed[40];
    const char *const more[] = {MODEL,
                                base,
                                row,
                                dither,
                                seed,
                                "--data.format=bytes",
                                "--train.data_seed=1",
                                "--train.max_steps=6",
                                "--train.batch_size=16",
                                "--train.grad_clip_norm=0",
                                "--optimizer.lr=1e-5",
                                "--scheduler.name=constant",
                                "--eval.enabled=false",
                                "--scheduler.warmup_steps=0",
                                "--metrics.log_interval=1",
                                "--checkpoint.interval=6",
                                stop_after < 0 ? "--checkpoint.load_path=latest" : NULL,
                                NULL};
    snprintf(base, sizeof base, "--model.hf_path=%s/base", f->folder);
    snprintf(row, sizeof row, "--data.dataset_path=%s/row.txt", f->folder);
    snprintf(dither, sizeof dither, "--train.master_dither=%s", dither_seed ? "true" : "false");
    snprintf(seed, sizeof seed, "--train.seed=%d", dither_seed);
    FIXTURE_OK(fixture_run(f, &(run_options){.name = name,
                                             .precision = &fixture_precisions[kind],
                                             .more = more,
                                             .stop_after = stop_after > 0 ? stop_after : 0,
                                             .logged = logged}));
}

/* Reads the losses of a run's steps. */
static void read_losses(const fixture *f, const char *name, double loss[STEPS]) {
    char file[80];
    snprintf(file, sizeof file, "%s/metrics.jsonl", name);
    int64_t bytes;
    char *text = fixture_read(f, file, &bytes);
    int count = 0;
    for (const char *at = text; count < STEPS && (at = strstr(at, "\"loss\":")); at++)
        assert_int_equal(sscanf(at, "\"loss\":%lf", &loss[count++]), 1);
    assert_int_equal(count, STEPS);
    free(text);
}

/* Returns how much the loss falls from the first step to the last. *start: the first step's loss. */
static double progress_of(const fixture *f, int kind, int dither_seed, double *start) {
    char name[40];
    double loss[STEPS];
    snprintf(name, sizeof name, "%s-%d", fixture_precisions[kind].name, dither_seed);
    tune(f, name, kind, dither_seed, 0, NULL);
    read_losses(f, name, loss);
    *start = loss[0];
    return loss[0] - loss[STEPS - 1];
}

/* Compares the fall of the loss in a precision and in fp32: without dither, and with it (mean of seeds). */
static void expect_follows(const fixture *f, int kind, double fp32) {
    enum { SEEDS = 3 };
    double start[SEEDS + 1], plain = progress_of(f, kind, 0, &start[0]) / fp32, dithered = 0;
    for (int seed = 1; seed <= SEEDS; seed++)
        dithered += progress_of(f, kind, seed, &start[seed]) / fp32 / SEEDS;
    print_message("%s: %.3f of fp32's progress, %.3f dithered\n", fixture_precisions[kind].name, plain,
                  dithered);
    assert_true(fabs(plain - 1) > 0.4);
    assert_true(fabs(dithered - 1) < 0.15);
    for (int seed = 1; kind == BF16 && seed <= SEEDS; seed++)
        assert_true(start[seed] == start[0]); /* rounding weights to bf16 removes the dither */
}

/* Does not test tensorwise recipes: with them, dither has less effect on this small model.
   tools/first_steps.sh tests a real model. */
static void test_dithered_masters_follow_fp32(void **state) {
    const fixture *f = *state;
    double start, fp32 = progress_of(f, FP32, 0, &start), dithered = progress_of(f, FP32, 1, &start);
    assert_true(fabs(dithered / fp32 - 1) < 1e-2);
    expect_follows(f, BF16, fp32);
    expect_follows(f, ROWWISE, fp32);
}

/* A checkpoint holds the dithered masters. A resume adds no offsets. */
static void test_resume_adds_no_offsets(void **state) {
    const fixture *f = *state;
    tune(f, "whole", ROWWISE, 1, 0, NULL);
    tune(f, "parts", ROWWISE, 1, 3, NULL);
    tune(f, "parts", ROWWISE, 1, -1, NULL);
    fixture_expect_same_run(f, "whole", "parts", STEPS);
}

static void test_the_log_says_how_masters_start(void **state) {
    const fixture *f = *state;
    const char *plain = "Masters: exact bf16 values",
               *dithered = "Masters: loaded from bf16, with a random offset";
    captured_log *logged = calloc(1, sizeof *logged);
    tune(f, "log-1", ROWWISE, 0, 0, logged);
    assert_true(captured_log_has(logged, plain) && captured_log_has(logged, "train.master_dither=true"));
    tune(f, "log-2", ROWWISE, 1, 0, logged);
    assert_true(captured_log_has(logged, dithered) && !captured_log_has(logged, plain));
    tune(f, "log-3", FP32, 0, 0, logged);
    assert_false(captured_log_has(logged, "Masters:"));
    free(logged);
}

static int setup(void **state) {
    int failed = fixture_setup(state);
    const fixture *f = *state;
    char row[160];
    snprintf(row, sizeof row, "%s/row.txt", f->folder);
    fixture_write_text(row, ROWS * LENGTH + 1, 3);
    make_base(f);
    return failed;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dithered_masters_follow_fp32),
                                       cmocka_unit_test(test_resume_adds_no_offsets),
                                       cmocka_unit_test(test_the_log_says_how_masters_start)};
    const struct CMUnitTest few[] = {cmocka_unit_test(test_resume_adds_no_offsets)};
    return fixture_takes_few() ? cmocka_run_group_tests(few, setup, fixture_teardown)
                               : cmocka_run_group_tests(tests, setup, fixture_teardown);
}
