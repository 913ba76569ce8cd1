/*
 * Errors that lose no training. If metrics cannot be written or data is bad, the run saves its last complete
 * step and then ends with the error. If the run folder was removed or renamed, the run creates it again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file/file.h"
#include "formats/metrics.h"
#include "train/train_fixture.h"

/* ---- a run that is disturbed after a step ---- */

typedef struct accident {
    const fixture *f;
    const char *name; /* name of the run */
    int64_t step;
    void (*happen)(const char *folder);
} accident;

static void after_step(void *user, const ott_progress *p) {
    const accident *a = user;
    char folder[200];
    snprintf(folder, sizeof folder, "%s/%s", a->f->folder, a->name);
    if (p->step == a->step) a->happen(folder);
}

static ott_status run_with(accident *a, const char *const *more, captured_log *logged) {
    mem *account;
    logger log = capture_log(logged);
    const train_hooks hooks = {.progress = after_step, .user = a};
    FIXTURE_OK(mem_open(&account));
    config *cfg = fixture_config(a->f, account, a->name, &fixture_precisions[BF16], more);
    ott_status status = run_loop(account, &log, cfg, &hooks);
    config_close(cfg);
    assert_int_equal(mem_read(account).now, 0);
    mem_close(account);
    return status;
}

static bool has(const fixture *f, const char *name) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    return file_exists(path);
}

static int64_t rows_of(const fixture *f, const char *name) {
    const char *keys[] = {"loss"};
    char path[300];
    metrics_series s;
    mem *account;
    FIXTURE_OK(mem_open(&account));
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    FIXTURE_OK(metrics_read(account, path, keys, 1, &s));
    int64_t count = s.count;
    metrics_series_free(&s);
    mem_close(account);
    return count;
}

/* ---- metrics ---- */

static void link_metrics(const char *folder) {
    char path[240];
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("elsewhere.jsonl", path), 0);
}

static void metrics_that_cannot_be_written(void **state) {
    static captured_log logged;
    accident a = {.f = *state, .name = "full", .step = 4, .happen = link_metrics};
    const char *more[] = {"--checkpoint.interval=3", NULL};
    assert_int_equal(run_with(&a, more, &logged), OTT_ERR_ARGUMENT);
    assert_non_null(strstr(status_text(), "metrics.jsonl: is a symbolic link"));
    assert_non_null(strstr(status_text(), "the run was saved at step 5"));
    assert_true(has(a.f, "full/checkpoints/step-5/state.json"));
}

/* ---- the run folder ---- */

static void remove_folder(const char *folder) {
    FIXTURE_OK(file_remove_tree(folder));
}

static void rename_folder(const char *folder) {
    char to[240];
    snprintf(to, sizeof to, "%s-renamed", folder);
    assert_int_equal(rename(folder, to), 0);
}

static void check_made_again(const fixture *f, const char *name, int64_t step, void (*happen)(const char *)) {
    static captured_log logged;
    char path[200];
    accident a = {.f = f, .name = name, .step = step, .happen = happen};
    const char *more[] = {"--metrics.enable_tensorboard=true", NULL};
    FIXTURE_OK(run_with(&a, more, &logged));
    assert_true(captured_log_has(&logged, "metrics.jsonl was removed, renamed or replaced at step"));
    static const char *const files[] = {"config.toml", "metrics.jsonl", "summary.json", "tb_logs",
                                        "checkpoints/step-6/state.json"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", name, files[i]);
        if (!has(f, path)) fail_msg("%s is missing", path);
    }
    snprintf(path, sizeof path, "%s/metrics.jsonl", name);
    assert_int_equal(rows_of(f, path), 6); /* includes the rows before the failure */
}

static void folder_that_went_away(void **state) {
    check_made_again(*state, "removed", 4, remove_folder);
    check_made_again(*state, "renamed", 4, rename_folder);
    check_made_again(*state, "removed-last", 6, remove_folder);
}

/* Puts a file in place of the run folder: the run cannot create the folder again and reports it. */
static void put_file(const char *folder) {
    FIXTURE_OK(file_remove_tree(folder));
    FIXTURE_OK(file_write_atomic(folder, "x", 1));
}

static void folder_that_cannot_be_made_again(void **state) {
    static captured_log logged;
    accident a = {.f = *state, .name = "blocked", .step = 4, .happen = put_file};
    assert_int_equal(run_with(&a, NULL, &logged), OTT_ERR_ARGUMENT);
    assert_non_null(strstr(status_text(), "a file has its name"));
    assert_true(captured_log_has(&logged, "Saving step 5 failed, too: "));
}

/* ---- data ---- */

/* A bad token id is found only by a training step if the file is too large to check before training. */
static void id_found_at_a_step(void **state) {
    const fixture *f = *state;
    static captured_log logged;
    accident a = {.f = f, .name = "ids", .step = -1};
    char path[200], argument[240];
    const uint32_t bad = 256;
    snprintf(path, sizeof path, "%s/ids.bin", f->folder);
    snprintf(argument, sizeof argument, "--data.dataset_path=%s", path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fseeko(file, 4 * 5 * 48, SEEK_SET), 0); /* a step reads 2 rows of 24 tokens */
    assert_int_equal(fwrite(&bad, sizeof bad, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(truncate(path, (INT64_C(5) << 28) + 4), 0);
    const char *more[] = {argument,
                          "--data.shuffle=false",
                          "--eval.enabled=false",
                          "--train.max_steps=20",
                          "--checkpoint.interval=100",
                          NULL};
    assert_int_equal(run_with(&a, more, &logged), OTT_ERR_FORMAT);
    assert_non_null(strstr(status_text(), "ids.bin: token 240 is 256, and model.vocab_size is 256"));
    assert_non_null(strstr(status_text(), "the run was saved at step "));
    assert_true(has(f, "ids/checkpoints/step-5/state.json") || has(f, "ids/checkpoints/step-4/state.json"));
    assert_int_equal(unlink(path), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_that_cannot_be_written),
        cmocka_unit_test(folder_that_went_away),
        cmocka_unit_test(folder_that_cannot_be_made_again),
        cmocka_unit_test(id_found_at_a_step),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
