/*
 * Branches of a run. If a run resumes from an earlier checkpoint, the later checkpoints are renamed, all or
 * none, and the metrics have no gap. Runs that share a checkpoint folder do not touch each other's
 * checkpoints. One command starts and resumes a run. Only one process at a time trains in a folder.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/run.h"
#include "run/folder/run_folder.h"
#include "train/train_fixture.h"

static captured_log logged;

/* Returns the path "FOLDER/name" from a printf format. The path is valid until the fourth call after this
   one. */
static const char *in(const fixture *f, const char *format, ...) {
    static char paths[4][300];
    static int next;
    char *path = paths[next++ % 4];
    int length = snprintf(path, 300, "%s/", f->folder);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path + length, (size_t)(300 - length), format, arguments);
    va_end(arguments);
    return path;
}

/* Trains for `steps` steps, with a checkpoint after each step unless the arguments `more` change that. */
static ott_status train(const fixture *f, const char *name, int steps, const char *load,
                        const char *const *more, int stop_after) {
    char max[40], from[300];
    const char *arguments[12] = {"--checkpoint.interval=1", max, from};
    snprintf(max, sizeof max, "--train.max_steps=%d", steps);
    snprintf(from, sizeof from, "--checkpoint.load_path=%s", load);
    for (int i = 3; more && *more; more++) arguments[i++] = *more;
    return fixture_run(f, &(run_options){.name = name,
                                         .precision = &fixture_precisions[BF16],
                                         .more = arguments,
                                         .stop_after = stop_after,
                                         .logged = &logged});
}

static void assert_says(ott_status status, ott_status expected, const char *part) {
    assert_int_equal(status, expected);
    if (!strstr(status_text(), part)) fail_msg("\"%s\" does not contain \"%s\"", status_text(), part);
}

/* Returns the names in a folder except run.json, each followed by a space. */
static const char *names(const char *folder) {
    static char out[1000];
    mem *account;
    file_list list;
    out[0] = 0;
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(file_list_folder(account, folder, &list));
    for (int64_t i = 0; i < list.count; i++)
        if (strcmp(list.names[i], "run.json") != 0) strcat(strcat(out, list.names[i]), " ");
    file_list_free(&list);
    mem_close(account);
    return out;
}

/* Returns the steps that have a loss in the metrics: "1 2 3 ". */
static const char *rows(const fixture *f, const char *name) {
    static char out[200];
    int64_t bytes;
    char *text = fixture_read(f, name, &bytes);
    out[0] = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        if (strstr(line, "\"loss\":")) sprintf(out + strlen(out), "%d ", atoi(strstr(line, "\"step\":") + 7));
    free(text);
    return out;
}

static void assert_newest(const char *folder, const char *expected) {
    mem *account;
    char *path;
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(checkpoint_find(account, folder, folder, &path));
    assert_string_equal(strrchr(path, '/') + 1, expected);
    mem_free(account, path);
    mem_close(account);
}

/* ---- resume from an earlier checkpoint ---- */

static void later_checkpoints_are_set_aside(void **state) {
    const fixture *f = *state;
    const char *const keep[] = {"--checkpoint.keep_last_n=3", NULL};
    FIXTURE_OK(train(f, "back", 4, "", NULL, 0));
    FIXTURE_OK(train(f, "back", 3, in(f, "back/checkpoints/step-2"), keep, 0));
    assert_true(captured_log_has(&logged, "2 checkpoints after step 2, to abandoned-1-step-N"));
    assert_true(captured_log_has(&logged, "metrics-abandoned-1.jsonl"));
    /* keep_last_n counts only the checkpoints of the current branch. */
    assert_string_equal(names(in(f, "back/checkpoints")),
                        "abandoned-1-step-3 abandoned-1-step-4 step-1 step-2 step-3 ");
    assert_string_equal(rows(f, "back/metrics.jsonl"), "1 2 3 ");
    assert_string_equal(rows(f, "back/metrics-abandoned-1.jsonl"), "1 2 3 4 ");
    assert_newest(in(f, "back"), "step-3");
    FIXTURE_OK(train(f, "back", 5, "latest", keep, 0));
    assert_true(captured_log_has(&logged, "back/checkpoints/step-3 at step 3"));
    assert_string_equal(names(in(f, "back/checkpoints")),
                        "abandoned-1-step-3 abandoned-1-step-4 step-3 step-4 step-5 ");
    /* A second branch sets checkpoints aside under new names. */
    FIXTURE_OK(train(f, "back", 4, in(f, "back/checkpoints/step-3"), keep, 0));
    assert_string_equal(
        names(in(f, "back/checkpoints")),
        "abandoned-1-step-3 abandoned-1-step-4 abandoned-2-step-4 abandoned-2-step-5 step-3 step-4 ");
    assert_string_equal(rows(f, "back/metrics.jsonl"), "1 2 3 4 ");
}

/* Kills the run when it is about to rename later checkpoints, and again between two renames. The next start
   completes the renames. */
static void a_killed_change_is_completed(void **state) {
    const fixture *f = *state;
    mem *account;
    run_record r;
    FIXTURE_OK(train(f, "killed", 4, "", NULL, 0));
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(run_record_read(account, in(f, "killed/checkpoints"), &r));
    assert_int_equal(r.mark.branch, 1);
    r.mark.branch = 2;
    r.after = 2;
    FIXTURE_OK(run_record_write(account, in(f, "killed/checkpoints"), &r));
    FIXTURE_OK(
        file_rename(in(f, "killed/checkpoints/step-4"), in(f, "killed/checkpoints/abandoned-1-step-4")));
    assert_newest(in(f, "killed"), "step-2");
    assert_newest(in(f, "killed/checkpoints"), "step-2");
    FIXTURE_OK(train(f, "killed", 3, "latest", NULL, 0));
    assert_string_equal(names(in(f, "killed/checkpoints")),
                        "abandoned-1-step-3 abandoned-1-step-4 step-1 step-2 step-3 ");
    FIXTURE_OK(run_record_read(account, in(f, "killed/checkpoints"), &r));
    assert_true(r.after == INT64_MAX);
    mem_close(account);
}

/* Resuming from a checkpoint of an old branch starts another branch. No checkpoint is lost. */
static void a_branch_that_was_left_can_be_gone_on_with(void **state) {
    const fixture *f = *state;
    FIXTURE_OK(train(f, "left", 3, "", NULL, 0));
    FIXTURE_OK(train(f, "left", 2, in(f, "left/checkpoints/step-1"), NULL, 0));
    FIXTURE_OK(train(f, "left", 4, in(f, "left/checkpoints/abandoned-1-step-3"), NULL, 0));
    assert_string_equal(
        names(in(f, "left/checkpoints")),
        "abandoned-1-step-2 abandoned-1-step-3 abandoned-2-step-1 abandoned-2-step-2 step-4 ");
    assert_newest(in(f, "left"), "step-4");
    assert_string_equal(rows(f, "left/metrics.jsonl"), "4 ");
    assert_string_equal(rows(f, "left/metrics-abandoned-2.jsonl"), "1 2 ");
}

/* ---- several runs in one checkpoint folder ---- */

static void a_shared_folder(void **state) {
    const fixture *f = *state;
    char dir[200];
    const char *const shared[] = {dir, "--checkpoint.keep_last_n=1", NULL};
    snprintf(dir, sizeof dir, "--checkpoint.dir=%s/shared", f->folder);
    FIXTURE_OK(train(f, "one", 3, "", shared, 0));
    FIXTURE_OK(train(f, "two", 2, "", shared, 0));
    assert_true(captured_log_has(&logged, "shared has checkpoints of another run: this run uses"));
    assert_newest(in(f, "one"), "step-3");
    assert_newest(in(f, "two"), "step-2");
    FIXTURE_OK(train(f, "two", 4, "latest", shared, 0));
    assert_true(captured_log_has(&logged, "step-2 at step 2"));
    FIXTURE_OK(train(f, "one", 4, "latest", shared, 0));
    assert_true(captured_log_has(&logged, "shared/step-3 at step 3"));
    assert_true(str_ends_with(names(in(f, "shared")), " step-4 ")); /* the folder run-ID is first */
    /* "latest" fails for a run without checkpoints. It does not load another run's checkpoint. */
    assert_says(train(f, "three", 4, "latest", shared, 0), OTT_ERR_NOT_FOUND, "shared/step-4");
    FIXTURE_OK(train(f, "three", 2, "auto", shared, 0));
    assert_true(captured_log_has(&logged, "the run starts from scratch"));
    assert_newest(in(f, "one"), "step-4");
}

/* A copy of a run folder is a new run. If both runs save to one checkpoint folder outside of their folders,
   their checkpoints stay separate. */
static void a_copied_run(void **state) {
    const fixture *f = *state;
    char dir[200], command[700];
    const char *const shared[] = {dir, NULL};
    snprintf(dir, sizeof dir, "--checkpoint.dir=%s/outside", f->folder);
    FIXTURE_OK(train(f, "first", 2, "", shared, 0));
    snprintf(command, sizeof command, "cp -r %s/first %s/copy", f->folder, f->folder);
    assert_int_equal(system(command), 0);
    FIXTURE_OK(train(f, "copy", 4, in(f, "outside/step-1"), shared, 0));
    assert_newest(in(f, "first"), "step-2");
    assert_newest(in(f, "copy"), "step-4");
    assert_non_null(strstr(names(in(f, "outside")), " step-1 step-2 "));
    /* If a run folder is moved, it is still the same run. */
    FIXTURE_OK(file_rename(in(f, "first"), in(f, "moved")));
    FIXTURE_OK(train(f, "moved", 3, "latest", shared, 0));
    assert_true(captured_log_has(&logged, "outside/step-2 at step 2"));
}

/* Resumes from checkpoints of earlier Ottava versions, which had no run ids. */
static void old_checkpoints_resume(void **state) {
    const fixture *f = *state;
    FIXTURE_OK(train(f, "old", 2, "", NULL, 0));
    assert_int_equal(unlink(in(f, "old/run.json")), 0);
    assert_int_equal(unlink(in(f, "old/checkpoints/run.json")), 0);
    for (int step = 1; step <= 2; step++) { /* removes the run id from the checkpoints */
        rig r;
        char path[160];
        rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[BF16]});
        for (int i = 0; i < step; i++) rig_step(&r);
        rig_save(&r, f, "old/checkpoints", path);
        rig_close(&r);
    }
    FIXTURE_OK(train(f, "old", 4, "latest", (const char *[]){"--checkpoint.keep_last_n=2", NULL}, 0));
    assert_true(captured_log_has(&logged, "step-2 at step 2"));
    assert_string_equal(names(in(f, "old/checkpoints")), "step-3 step-4 ");
}

/* ---- one command ---- */

static void automatic(void **state) {
    const fixture *f = *state;
    const char *const none[] = {"--checkpoint.interval=100", NULL}, *const two[] = {"--checkpoint.interval=2",
                                                                                    NULL};
    FIXTURE_OK(train(f, "auto", 3, "auto", none, 0));
    assert_true(captured_log_has(&logged, "starts from scratch"));
    FIXTURE_OK(file_remove_tree(in(f, "auto/checkpoints/step-3")));
    assert_int_equal(train(f, "auto", 3, "", none, 0), OTT_ERR_CONFIG);
    assert_says(train(f, "auto", 3, "latest", none, 0), OTT_ERR_NOT_FOUND, "--checkpoint.load_path=auto");
    FIXTURE_OK(train(f, "auto", 2, "auto", two, 0));
    assert_true(captured_log_has(&logged, "the metrics of the earlier attempt are replaced"));
    assert_string_equal(rows(f, "auto/metrics.jsonl"), "1 2 ");
    FIXTURE_OK(train(f, "auto", 4, "auto", two, 0));
    assert_true(captured_log_has(&logged, "Resumed from"));
    assert_string_equal(rows(f, "auto/metrics.jsonl"), "1 2 3 4 ");
}

/* With "auto", a run that first loaded another run's checkpoint loads it again, and does not start from
   scratch. */
static void automatic_from_another_run(void **state) {
    const fixture *f = *state;
    FIXTURE_OK(train(f, "source", 2, "", NULL, 0));
    FIXTURE_OK(train(f, "derived", 3, in(f, "source"), NULL, 0));
    FIXTURE_OK(file_remove_tree(in(f, "derived/checkpoints/step-3")));
    FIXTURE_OK(train(f, "derived", 3, "auto", NULL, 0));
    assert_true(captured_log_has(&logged, "source/checkpoints/step-2 at step 2"));
    assert_string_equal(rows(f, "derived/metrics.jsonl"), "3 ");
}

static const char *after(const char *text, const char *part) {
    const char *at = strstr(text, part);
    if (!at) fail_msg("\"%s\" is not in: %s", part, text);
    return at;
}

static void stopping_saves_and_logs_how_to_resume(void **state) {
    const fixture *f = *state;
    const char *const none[] = {"--checkpoint.interval=0", NULL};
    FIXTURE_OK(train(f, "stop", 4, "", none, 2));
    const char *at = after(logged.text, "Shutdown requested at step 2 — saving emergency checkpoint");
    at = after(at, "stop/checkpoints/step-2");
    at = after(at, "Resume with: ottava train ");
    after(at, "stop/config.toml --checkpoint.load_path=latest");
    /* If a periodic checkpoint is due at the step of the stop, only one checkpoint is saved. */
    FIXTURE_OK(train(f, "stop", 4, "latest", NULL, 1));
    after(after(logged.text, "Shutdown requested at step 3 — saving"), "stop/checkpoints/step-3");
    assert_int_equal(captured_log_count(&logged, "Saved "), 1);
    FIXTURE_OK(train(f, "stop", 4, "latest", none, 0));
    assert_string_equal(names(in(f, "stop/checkpoints")), "step-2 step-3 ");
}

/* ---- one process ---- */

static void a_run_is_locked(void **state) {
    const fixture *f = *state;
    mem *account;
    run_folder folder;
    char pid[40];
    FIXTURE_OK(mem_open(&account));
    config *cfg = fixture_config(f, account, "locked", NULL, NULL);
    FIXTURE_OK(run_folder_open(account, NULL, cfg, &folder));
    snprintf(pid, sizeof pid, "in use by process %ld", (long)getpid());
    assert_says(train(f, "locked", 1, "", NULL, 0), OTT_ERR_IO, pid);
    assert_says(train(f, "locked", 1, "auto", NULL, 0), OTT_ERR_IO, "/locked\"");
    run_folder_close(&folder);
    config_close(cfg);
    assert_int_equal(mem_read(account).now, 0);
    mem_close(account);
    FIXTURE_OK(train(f, "locked", 1, "", NULL, 0));
}

/* ---- changed settings ---- */

static void what_matters_is_named(void **state) {
    const fixture *f = *state;
    const char *const some[] = {"--optimizer.lr=0.02",      "--scheduler.warmup_steps=3", "--train.threads=2",
                                "--metrics.log_interval=2", "--train.data_seed=9",        NULL};
    FIXTURE_OK(train(f, "changed", 2, "", NULL, 0));
    FIXTURE_OK(train(f, "changed", 3, "latest", some, 0));
    assert_true(captured_log_has(&logged, "Changed on resume: train.max_steps = 3 (was 2)"));
    assert_true(captured_log_has(&logged, "Changed on resume: optimizer.lr = 0.02 (was 0.01)"));
    assert_true(captured_log_has(&logged, "Changed on resume: scheduler.warmup_steps = 3 (was 2)"));
    assert_true(captured_log_has(&logged, "Changed on resume: train.data_seed = 9"));
    assert_int_equal(captured_log_count(&logged, "Changed on resume"), 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(later_checkpoints_are_set_aside),
        cmocka_unit_test(a_killed_change_is_completed),
        cmocka_unit_test(a_branch_that_was_left_can_be_gone_on_with),
        cmocka_unit_test(a_shared_folder),
        cmocka_unit_test(a_copied_run),
        cmocka_unit_test(old_checkpoints_resume),
        cmocka_unit_test(automatic),
        cmocka_unit_test(automatic_from_another_run),
        cmocka_unit_test(stopping_saves_and_logs_how_to_resume),
        cmocka_unit_test(a_run_is_locked),
        cmocka_unit_test(what_matters_is_named),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
