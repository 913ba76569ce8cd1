/*
 * The summary of a run covers all processes of the run, phase by phase: steps, tokens, GEMMs, time, and the
 * losses of the last steps. A checkpoint contains the summary so far. If the summary is missing or damaged,
 * the run still resumes.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file/file.h"
#include "report/internal.h"
#include "checkpoint/run_history.h"
#include "train/train_fixture.h"

/* Starts a run or resumes it, and trains until `steps` steps are done. */
static void part(const fixture *f, const char *name, int which, int64_t steps, const char *from,
                 captured_log *logged) {
    char max[64], load[128];
    snprintf(max, sizeof max, "--train.max_steps=%lld", (long long)steps);
    snprintf(load, sizeof load, "--checkpoint.load_path=%s", from ? from : "");
    const char *more[] = {max, from ? load : "--checkpoint.interval=2", "--checkpoint.interval=2",
                          "--eval.interval=100", NULL};
    FIXTURE_OK(fixture_run(
        f, &(run_options){
               .name = name, .precision = &fixture_precisions[which], .more = more, .logged = logged}));
}

static report *open_report(const fixture *f, mem *account, const char *name) {
    char path[160];
    const char *folders[] = {path};
    report *r;
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    FIXTURE_OK(report_open(account, folders, 1, &r));
    return r;
}

static void check_phase(const report_phase *p, const char *name, int64_t steps, bool fp8) {
    assert_string_equal(p->recipe, name);
    assert_int_equal(p->steps, steps);
    assert_int_equal(p->tokens, steps * 48);
    assert_true(p->seconds > 0);
    assert_true(p->gemms >= steps * 3 * 14); /* 3 GEMMs for each of 7 layers in 2 blocks */
    assert_int_equal(p->fp8_gemms > 0, fp8);
}

/* Trains a run in three phases: in bf16, in FP8, and in bf16 again. The second and third phase resume the
   run. */
static void counts_every_part(void **state) {
    const fixture *f = *state;
    static captured_log logged;
    mem *account;
    str text = {0};
    part(f, "parts", BF16, 6, NULL, &logged);
    assert_false(captured_log_has(&logged, " steps in bf16: "));
    part(f, "parts", ROWWISE, 12, "latest", &logged);
    part(f, "parts", BF16, 16, "latest", &logged);
    assert_true(captured_log_has(&logged, "  6 steps in bf16: 288 tokens, "));
    assert_true(captured_log_has(&logged, "  6 steps in rowwise: 288 tokens, "));
    assert_true(captured_log_has(&logged, "  4 steps in bf16: 192 tokens, "));
    assert_true(captured_log_has(&logged, ", recipe rowwise\n"));
    FIXTURE_OK(mem_open(&account));
    text.account = account;
    report *r = open_report(f, account, "parts");
    const report_summary *s = &r->runs[0].summary;
    assert_int_equal(s->steps, 16);
    assert_int_equal(s->tokens, 16 * 48);
    assert_int_equal(s->phase_count, 3);
    check_phase(&s->phases[0], "bf16", 6, false);
    check_phase(&s->phases[1], "rowwise", 6, true);
    check_phase(&s->phases[2], "bf16", 4, false);
    assert_int_equal(s->fp8_gemms, s->phases[1].fp8_gemms);
    assert_int_equal(s->gemms, s->phases[0].gemms + s->phases[1].gemms + s->phases[2].gemms);
    assert_true(fabs(s->seconds - s->phases[0].seconds - s->phases[1].seconds - s->phases[2].seconds) < 1e-5);
    FIXTURE_OK(report_table(r, &text));
    assert_non_null(strstr(text.text, "parts: 6 steps in rowwise: "));
    str_free(&text);
    report_close(r);
    mem_close(account);
}

/* A resumed run reports the same losses and GEMM counts as an uninterrupted run. */
static void equals_uninterrupted(void **state) {
    const fixture *f = *state;
    mem *account;
    const char *more[] = {"--train.max_steps=10", "--eval.interval=3", NULL};
    const char *again[] = {"--train.max_steps=10", "--eval.interval=3", "--checkpoint.load_path=latest",
                           NULL};
    run_options o = {.name = "whole", .precision = &fixture_precisions[TENSORWISE], .more = more};
    FIXTURE_OK(fixture_run(f, &o));
    o.name = "halves";
    o.stop_after = 4;
    FIXTURE_OK(fixture_run(f, &o));
    o.more = again;
    o.stop_after = 0;
    FIXTURE_OK(fixture_run(f, &o));
    FIXTURE_OK(mem_open(&account));
    report *a = open_report(f, account, "whole"), *b = open_report(f, account, "halves");
    const report_summary *x = &a->runs[0].summary, *y = &b->runs[0].summary;
    assert_true(x->train_loss == y->train_loss);
    assert_true(x->val_loss == y->val_loss);
    assert_int_equal(y->phase_count, 1);
    assert_int_equal(y->gemms, x->gemms);
    assert_int_equal(y->fp8_gemms, x->fp8_gemms);
    assert_int_equal(y->steps, 10);
    report_close(a);
    report_close(b);
    mem_close(account);
}

/* After resuming from an earlier checkpoint, the counters are that checkpoint's counters. */
static void goes_back(void **state) {
    const fixture *f = *state;
    mem *account;
    static captured_log logged;
    char path[160];
    part(f, "back", BF16, 8, NULL, &logged);
    snprintf(path, sizeof path, "%s/back/checkpoints/step-4", f->folder);
    part(f, "back", BF16, 6, path, &logged);
    FIXTURE_OK(mem_open(&account));
    report *r = open_report(f, account, "back");
    assert_int_equal(r->runs[0].summary.steps, 6);
    assert_int_equal(r->runs[0].summary.phases[0].steps, 6);
    report_close(r);
    mem_close(account);
}

static void check_without(const fixture *f, const char *name, const char *text, const char *warning) {
    mem *account;
    static captured_log logged;
    char path[200];
    part(f, name, BF16, 4, NULL, &logged);
    snprintf(path, sizeof path, "%s/%s/checkpoints/step-4/history.json", f->folder, name);
    if (text)
        FIXTURE_OK(file_write_atomic(path, text, (int64_t)strlen(text)));
    else
        assert_int_equal(unlink(path), 0);
    part(f, name, BF16, 6, "latest", &logged);
    assert_true(captured_log_has(&logged, warning));
    assert_true(captured_log_has(&logged, "times and GEMMs are counted from step 4 on"));
    FIXTURE_OK(mem_open(&account));
    report *r = open_report(f, account, name);
    const report_summary *s = &r->runs[0].summary;
    assert_int_equal(s->phase_count, 2);
    assert_string_equal(s->phases[0].recipe, "unknown");
    assert_int_equal(s->phases[0].steps, 4);
    assert_int_equal(s->phases[1].steps, 2);
    assert_true(s->tokens_per_second > 0);
    report_close(r);
    mem_close(account);
}

static void resumes_without_a_history(void **state) {
    check_without(*state, "older", NULL, "The checkpoint has no history of its run");
    check_without(*state, "noise", "noise", "history.json: line 1: is not JSON");
    check_without(*state, "empty", "{}", "history.json: 'crc32c' is missing");
    check_without(*state, "other", "{\"phases\": [], \"crc32c\": 7}", "its checksum does not match");
}

/* The run changes its recipe more often than the summary can list phases. */
static void many_phases(void **state) {
    (void)state;
    run_history h;
    run_history_begin(&h);
    for (int i = 0; i < 1000; i++) {
        report_phase *p = run_history_phase(&h, i % 2 ? "rowwise" : "bf16");
        p->steps++;
        p->fp8_gemms += i % 2;
        p->seconds += 0.5;
        p->tokens += 10;
        assert_in_range(h.phase_count, 1, REPORT_MOST_PHASES);
    }
    report_phase sum = run_history_sum(&h);
    assert_true(sum.steps == 1000 && sum.fp8_gemms == 500 && sum.seconds == 500);
    assert_true(run_history_speed(&h) == 20);
    for (int i = 0; i < h.phase_count; i++)
        if (strcmp(h.phases[i].recipe, "bf16") == 0) assert_int_equal(h.phases[i].fp8_gemms, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_every_part), cmocka_unit_test(equals_uninterrupted),
        cmocka_unit_test(goes_back),         cmocka_unit_test(resumes_without_a_history),
        cmocka_unit_test(many_phases),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
