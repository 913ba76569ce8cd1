/*
 * Profiles of training steps. Tests which steps are profiled under the settings of torchtitan and
 * KempnerForge. Every slice of the trace is inside its phase and step. The summary reports the FP8 work. A
 * profile changes no bit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include "base/file/file.h"
#include "train/train_fixture.h"

#define ON "--profiling.enable=true"

static bool exists(const fixture *f, const char *name) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    return file_exists(path);
}

static void run(const fixture *f, const char *name, int which, const char *const *more,
                captured_log *logged) {
    FIXTURE_OK(fixture_run(
        f, &(run_options){
               .name = name, .precision = &fixture_precisions[which], .more = more, .logged = logged}));
}

/* ---- the trace ---- */

typedef struct slice {
    const char *name, *category;
    double began, ended;
    const json_t *arguments;
} slice;

typedef struct trace {
    json_t *root;
    slice slices[20000];
    int count;
} trace;

static trace *read_trace(const fixture *f, const char *name) {
    int64_t bytes;
    json_error_t error;
    static trace t;
    char *text = fixture_read(f, name, &bytes);
    t = (trace){.root = json_loadb(text, (size_t)bytes, 0, &error)};
    free(text);
    if (!t.root) fail_msg("%s: line %d: %s", name, error.line, error.text);
    json_t *events = json_object_get(t.root, "traceEvents"), *event;
    size_t i;
    json_array_foreach(events, i, event) {
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0) continue;
        assert_in_range(t.count, 0, 19999);
        double began = json_number_value(json_object_get(event, "ts"));
        t.slices[t.count++] = (slice){.name = json_string_value(json_object_get(event, "name")),
                                      .category = json_string_value(json_object_get(event, "cat")),
                                      .began = began,
                                      .ended = began + json_number_value(json_object_get(event, "dur")),
                                      .arguments = json_object_get(event, "args")};
    }
    return &t;
}

static int count_named(const trace *t, const char *name) {
    int count = 0;
    for (int i = 0; i < t->count; i++) count += strcmp(t->slices[i].name, name) == 0;
    return count;
}

static bool is_part(const slice *s) {
    return strcmp(s->name, "forward") == 0 || strcmp(s->name, "backward") == 0 ||
           strcmp(s->name, "optimizer") == 0;
}

static bool is_step(const slice *s) {
    return strncmp(s->name, "ProfilerStep#", 13) == 0;
}

/* True if slice `in` is inside slice `out`. The tolerance is needed because times are rounded to a
   nanosecond. */
static bool is_inside(const slice *in, const slice *out) {
    return in->began >= out->began - 0.01 && in->ended <= out->ended + 0.01;
}

static int count_around(const trace *t, const slice *s, bool (*kind)(const slice *)) {
    int count = 0;
    for (int i = 0; i < t->count; i++) count += kind(&t->slices[i]) && is_inside(s, &t->slices[i]);
    return count;
}

static bool is_operation(const slice *s) {
    return !is_step(s) && !is_part(s);
}

/* An operation is in one phase of one step and contains no other operation. */
static void check_nesting(const trace *t) {
    for (int i = 0; i < t->count; i++) {
        const slice *s = &t->slices[i];
        if (!is_step(s) && count_around(t, s, is_step) != 1) fail_msg("%s is outside of any step", s->name);
        if (!is_operation(s)) continue;
        if (count_around(t, s, is_part) != 1) fail_msg("%s is outside of any phase", s->name);
        if (count_around(t, s, is_operation) != 1) fail_msg("%s is inside another operation", s->name);
    }
}

/* The slice of every operation has arguments that describe the operation. An FP8 GEMM's slice has both
   operands' formats. */
static void check_arguments(const trace *t) {
    for (int i = 0; i < t->count; i++) {
        const slice *s = &t->slices[i];
        if (strcmp(s->name, "scaled_mm") != 0) continue;
        const char *a = json_string_value(json_object_get(s->arguments, "a"));
        const char *b = json_string_value(json_object_get(s->arguments, "b"));
        assert_string_equal(s->category, "gemm_fp8");
        assert_true(a && b && strchr(a, '[') && strstr(a, "scaled by tensor"));
        assert_true(strncmp(a, "e4m3", 4) == 0 || strncmp(a, "e5m2", 4) == 0);
        assert_true(strncmp(b, "e4m3", 4) == 0);
    }
}

/* GEMMs in one step: (2 blocks of 7 linear layers, and the head) * 3 GEMMs * 2 micro-batches. */
enum { PRODUCTS = 15 * 3 * 2 };

static void trace_of_a_step(void **state) {
    const char *more[] = {ON, "--profiling.frequency=4", "--train.grad_accum_steps=2", NULL};
    static captured_log logged;
    run(*state, "fp8", TENSORWISE, more, &logged);
    assert_true(captured_log_has(&logged, "Profiling one step of every 4"));
    assert_true(captured_log_has(&logged, "matrix products in FP8: 90 of 90"));
    trace *t = read_trace(*state, "fp8/profiler_traces/iteration_4/rank0_trace.json");
    assert_int_equal(count_named(t, "ProfilerStep#4"), 1);
    assert_int_equal(count_named(t, "forward"), 2);
    assert_int_equal(count_named(t, "backward"), 2);
    assert_int_equal(count_named(t, "optimizer"), 1);
    assert_int_equal(count_named(t, "scaled_mm"), PRODUCTS);
    assert_int_equal(count_named(t, "gemm"), 0);
    check_nesting(t);
    check_arguments(t);
    json_decref(t->root);
}

/* ---- the summary ---- */

static void check_summary(const fixture *f, const char *name, const char *verdict, const char *row) {
    int64_t bytes;
    char *text = fixture_read(f, name, &bytes);
    if (!strstr(text, verdict) || !strstr(text, row)) fail_msg("%s says: %s", name, text);
    free(text);
}

static void summary_proves_fp8(void **state) {
    const char *more[] = {ON, "--profiling.start_step=2", "--profiling.end_step=4", NULL};
    const char *mixed[] = {ON, "--profiling.frequency=6", "--float8.filter_fqns=lm_head", NULL};
    static captured_log logged;
    run(*state, "sum-fp8", ROWWISE, more, &logged);
    assert_true(captured_log_has(
        &logged, "sum-fp8/profiler_traces/iteration_3/summary.md; matrix products in FP8: 90"));
    check_summary(*state, "sum-fp8/profiler_traces/iteration_3/summary.md",
                  "Matrix products in FP8: 90 of 90, 100.0 %", "# Profile of steps 2 to 3\n");
    run(*state, "sum-mixed", ROWWISE_WITH_GW_HP, mixed, NULL);
    check_summary(*state, "sum-mixed/profiler_traces/iteration_6/summary.md",
                  "Matrix products in FP8: 28 of 45, ", "| other matrix products (gemm) | ");
    run(*state, "sum-bf16", BF16, more, NULL);
    check_summary(*state, "sum-bf16/profiler_traces/iteration_3/summary.md",
                  "Matrix products in FP8: 0 of 90, 0.0 %", "| FP8 matrix products (scaled_mm) | 0.000 |");
}

/* ---- which steps ---- */

static void steps_of_a_range(void **state) {
    const fixture *f = *state;
    const char *more[] = {ON, "--profiling.start_step=2", "--profiling.end_step=5",
                          "--profiling.trace_dir=there", NULL};
    run(f, "range", BF16, more, NULL);
    trace *t = read_trace(f, "range/there/iteration_4/rank0_trace.json");
    assert_int_equal(count_named(t, "ProfilerStep#1"), 0);
    for (int step = 2; step <= 4; step++) {
        char name[32];
        snprintf(name, sizeof name, "ProfilerStep#%d", step);
        assert_int_equal(count_named(t, name), 1);
    }
    assert_int_equal(count_named(t, "ProfilerStep#5"), 0);
    json_decref(t->root);
}

static void every_so_many_steps(void **state) {
    const fixture *f = *state;
    const char *more[] = {ON, "--profiling.frequency=2", NULL};
    run(f, "every", BF16, more, NULL);
    for (int step = 1; step <= 6; step++) {
        char name[80];
        snprintf(name, sizeof name, "every/profiler_traces/iteration_%d/summary.md", step);
        assert_int_equal(exists(f, name), step % 2 == 0);
    }
}

/* Profiles steps 5 to 7. A run of 6 steps writes the profile of its last two steps. A run of 4 steps logs
   that no step will be profiled. */
static void range_beyond_the_run(void **state) {
    static captured_log logged;
    const char *over[] = {ON, NULL}, *never[] = {ON, "--train.max_steps=4", NULL};
    run(*state, "over", BF16, over, &logged); /* profiles steps 5 to 7 of a run of 6 steps */
    assert_true(exists(*state, "over/profiler_traces/iteration_6/rank0_trace.json"));
    assert_true(captured_log_has(&logged, "Wrote the profile of 2 steps"));
    run(*state, "never", BF16, never, &logged);
    assert_true(captured_log_has(&logged, "No step will be profiled"));
    assert_false(exists(*state, "never/profiler_traces"));
}

/* A run that is stopped within the profiled steps writes a profile of the steps that ran. */
static void stopped_within_the_range(void **state) {
    static captured_log logged;
    const char *more[] = {ON, "--profiling.start_step=2", "--profiling.end_step=6", NULL};
    FIXTURE_OK(fixture_run(*state, &(run_options){.name = "short",
                                                  .precision = &fixture_precisions[BF16],
                                                  .more = more,
                                                  .stop_after = 3,
                                                  .logged = &logged}));
    assert_true(captured_log_has(&logged, "Wrote the profile of 2 steps"));
}

/* ---- equal bits ---- */

static void check_same_file(const fixture *f, const char *file) {
    char names[2][120];
    int64_t bytes[2];
    snprintf(names[0], sizeof names[0], "seen/checkpoints/step-6/%s", file);
    snprintf(names[1], sizeof names[1], "unseen/checkpoints/step-6/%s", file);
    char *a = fixture_read(f, names[0], &bytes[0]), *b = fixture_read(f, names[1], &bytes[1]);
    if (bytes[0] != bytes[1] || memcmp(a, b, (size_t)bytes[0])) fail_msg("%s differs", file);
    free(a);
    free(b);
}

/* Copies the text of a step's loss from metrics.jsonl. */
static void loss_at(const fixture *f, const char *name, int step, char out[40]) {
    char file[80], pattern[40];
    int64_t bytes;
    snprintf(file, sizeof file, "%s/metrics.jsonl", name);
    char *text = fixture_read(f, file, &bytes), *at;
    snprintf(pattern, sizeof pattern, "\"step\":%d,", step);
    assert_non_null(at = strstr(text, pattern));
    assert_non_null(at = strstr(at, "\"loss\":"));
    snprintf(out, 40, "%.*s", (int)strcspn(at, ",}"), at);
    free(text);
}

static void no_bit_changes(void **state) {
    const char *on[] = {ON, "--profiling.frequency=1", "--train.threads=2", NULL};
    const char *off[] = {"--train.threads=2", NULL};
    run(*state, "seen", DELAYED, on, NULL);
    run(*state, "unseen", DELAYED, off, NULL);
    assert_false(exists(*state, "unseen/profiler_traces"));
    check_same_file(*state, "model.safetensors");
    check_same_file(*state, "optimizer.safetensors");
    check_same_file(*state, "float8.safetensors");
    for (int step = 1; step <= 6; step++) {
        char a[40], b[40];
        loss_at(*state, "seen", step, a);
        loss_at(*state, "unseen", step, b);
        assert_string_equal(a, b);
    }
}

/* If a profile cannot be written, the run ends with an error that names the path. */
static void folder_in_the_way(void **state) {
    const fixture *f = *state;
    char folder[200];
    snprintf(folder, sizeof folder, "--profiling.trace_dir=%s/text.txt", f->folder);
    const char *more[] = {ON, "--profiling.frequency=1", folder, NULL};
    ott_status status = fixture_run(
        f, &(run_options){.name = "blocked", .precision = &fixture_precisions[BF16], .more = more});
    assert_int_equal(status, OTT_ERR_ARGUMENT);
    assert_non_null(strstr(status_text(), "text.txt"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trace_of_a_step),      cmocka_unit_test(summary_proves_fp8),
        cmocka_unit_test(steps_of_a_range),     cmocka_unit_test(every_so_many_steps),
        cmocka_unit_test(range_beyond_the_run), cmocka_unit_test(stopped_within_the_range),
        cmocka_unit_test(no_bit_changes),       cmocka_unit_test(folder_in_the_way),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
