/*
 * Asynchronous checkpoints. The files have the same bytes as synchronous checkpoints. The files have the
 * state at the time of the save, whatever changes later. A write error ends the run as in synchronous mode.
 * Every end of a run waits for the pending write.
 */
#define _GNU_SOURCE /* declares pthread_setattr_default_np */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <cmocka.h>

#include "base/file/file.h"
#include "checkpoint/writer.h"
#include "train/train_fixture.h"

#define ASYNC "--checkpoint.async_mode=async"

static const char *const file_names[] = {"model.safetensors", "optimizer.safetensors", "float8.safetensors",
                                         "config.toml", "state.json"};
enum { FILES = sizeof file_names / sizeof *file_names };

/* ---- the same bytes ---- */

static bool same_file(const fixture *f, const char *a, const char *b, const char *file) {
    char names[2][160];
    int64_t bytes[2];
    snprintf(names[0], sizeof names[0], "%s/%s", a, file);
    snprintf(names[1], sizeof names[1], "%s/%s", b, file);
    char *data[2] = {fixture_read(f, names[0], &bytes[0]), fixture_read(f, names[1], &bytes[1])};
    bool same = bytes[0] == bytes[1] && memcmp(data[0], data[1], (size_t)bytes[0]) == 0;
    free(data[0]);
    free(data[1]);
    return same;
}

static void check_same_files(const fixture *f, const char *a, const char *b) {
    for (int i = 0; i < FILES; i++)
        if (!same_file(f, a, b, file_names[i])) fail_msg("%s: %s and %s differ", file_names[i], a, b);
}

static void open_writer(const rig *r, const fixture *f, const char *name, const logger *log, char folder[160],
                        checkpoint_writer **w) {
    snprintf(folder, 160, "%s/%s", f->folder, name);
    FIXTURE_OK(checkpoint_writer_open(r->t->m, log, r->cfg, folder, NULL, w));
}

static void save(rig *r, checkpoint_writer *w) {
    FIXTURE_OK(checkpoint_writer_save(w, r->t->recipe->name, &r->t->run, NULL));
}

/* Changes all model state right after the save, before the write can finish. */
static void change_everything(rig *r) {
    FIXTURE_OK(device_zero(r->device, r->t->m->values, r->t->m->block_bytes));
    FIXTURE_OK(device_zero(r->device, r->t->m->slot[0], r->t->m->block_bytes));
    FIXTURE_OK(device_zero(r->device, r->t->m->slot[1], r->t->m->block_bytes));
    model_weights_changed(r->t->m);
    for (int i = 0; i < 3; i++) rig_step(r);
}

static void check_precision(const fixture *f, int which) {
    rig r;
    checkpoint_writer *w;
    char name[64], plain[160], background[200], folder[160];
    static captured_log logged;
    logger log = capture_log(&logged);
    const char *more[] = {ASYNC, NULL};
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[which], .more = more});
    for (int i = 0; i < 3; i++) rig_step(&r);
    snprintf(name, sizeof name, "plain-%d", which);
    rig_save(&r, f, name, plain);
    snprintf(name, sizeof name, "background-%d", which);
    open_writer(&r, f, name, &log, folder, &w);
    save(&r, w);
    change_everything(&r);
    FIXTURE_OK(checkpoint_writer_wait(w));
    checkpoint_writer_close(w);
    snprintf(background, sizeof background, "%s/step-3", folder);
    assert_true(captured_log_has(&logged, background));
    check_same_files(f, plain + strlen(f->folder) + 1, background + strlen(f->folder) + 1);
    rig_close(&r);
}

static void files_are_the_same(void **state) {
    for (int i = 0; i < PRECISIONS; i++) check_precision(*state, i);
}

/* Checks that full runs with synchronous and with asynchronous checkpoints have the same bits, in their
   checkpoints and metrics. */
static void runs_are_the_same(void **state) {
    static const char *const modes[] = {"disabled", "async", "async_with_pinned_mem"};
    char mode[64], folder[64];
    static captured_log logged;
    for (int i = 0; i < 3; i++) {
        snprintf(mode, sizeof mode, "--checkpoint.async_mode=%s", modes[i]);
        const char *more[] = {mode, "--checkpoint.interval=1", NULL};
        FIXTURE_OK(fixture_run(*state, &(run_options){.name = modes[i],
                                                      .precision = &fixture_precisions[DELAYED],
                                                      .more = more,
                                                      .logged = &logged}));
        assert_int_equal(captured_log_count(&logged, "Saved "), 6);
        assert_int_equal(captured_log_count(&logged, "a copy of the state needs"), i > 0);
        for (int step = 1; i > 0 && step <= 6; step++)
            for (int file = 0; file < 3; file++) {
                char plain[64];
                snprintf(plain, sizeof plain, "disabled/checkpoints/step-%d", step);
                snprintf(folder, sizeof folder, "%s/checkpoints/step-%d", modes[i], step);
                assert_true(same_file(*state, plain, folder, file_names[file]));
            }
    }
}

/* ---- one write at a time, keep_last_n ---- */

static void old_ones_go_when_the_new_one_is_there(void **state) {
    const fixture *f = *state;
    rig r;
    checkpoint_writer *w;
    char folder[160];
    file_list names;
    static captured_log logged;
    logger log = capture_log(&logged);
    const char *more[] = {ASYNC, "--checkpoint.keep_last_n=2", NULL};
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[ROWWISE], .more = more});
    open_writer(&r, f, "kept", &log, folder, &w);
    for (int step = 1; step <= 5; step++) {
        rig_step(&r);
        save(&r, w); /* the save waits for the previous write */
        assert_int_equal(captured_log_count(&logged, "Saved "), step - 1);
    }
    checkpoint_writer_close(w); /* closing waits for the last write */
    assert_int_equal(captured_log_count(&logged, "Saved "), 5);
    FIXTURE_OK(file_list_folder(r.account, folder, &names));
    assert_int_equal(names.count, 2);
    assert_string_equal(names.names[0], "step-4");
    assert_string_equal(names.names[1], "step-5");
    file_list_free(&names);
    rig_close(&r);
}

/* The writer allocates its memory once, and the memory account counts this memory. */
static void memory_is_counted(void **state) {
    rig r;
    checkpoint_writer *w;
    char folder[160];
    const char *more[] = {ASYNC, NULL};
    rig_open(&r, *state, &(rig_options){.precision = &fixture_precisions[BF16], .more = more});
    assert_int_equal(mem_read(r.account).now_of[MEM_STAGING], 0);
    open_writer(&r, *state, "counted", NULL, folder, &w);
    int64_t staging = mem_read(r.account).now_of[MEM_STAGING];
    assert_int_equal(staging, 12 * model_parameter_count(r.t->m));
    save(&r, w);
    FIXTURE_OK(checkpoint_writer_wait(w));
    assert_int_equal(mem_read(r.account).now_of[MEM_STAGING], staging);
    checkpoint_writer_close(w);
    assert_int_equal(mem_read(r.account).now_of[MEM_STAGING], 0);
    rig_close(&r);
}

static void memory_that_cannot_be_had(void **state) {
    rig r;
    checkpoint_writer *w;
    const char *more[] = {ASYNC, NULL};
    ott_status status = OTT_ERR_MEMORY;
    rig_open(&r, *state, &(rig_options){.precision = &fixture_precisions[BF16], .more = more});
    int64_t held = mem_read(r.account).now;
    bool reported = false;
    for (int n = 1; status != OTT_OK && n < 1000; n++) {
        mem_fail_after(r.account, n);
        status = checkpoint_writer_open(r.t->m, NULL, r.cfg, "nowhere", NULL, &w);
        mem_fail_after(r.account, 0);
        if (status == OTT_OK) break;
        assert_int_equal(status, OTT_ERR_MEMORY);
        assert_int_equal(mem_read(r.account).now, held);
        reported |= strstr(status_text(), "checkpoint.async_mode = \"async\" needs a copy") &&
                    strstr(status_text(), " MiB") &&
                    strstr(status_text(), "set checkpoint.async_mode = \"disabled\"");
    }
    assert_int_equal(status, OTT_OK);
    assert_true(reported);
    checkpoint_writer_close(w);
    rig_close(&r);
}

/* ---- errors ---- */

/* A limit of the file size, which simulates a full disk. */
typedef struct full_disk {
    struct rlimit before;
    void (*handler)(int);
} full_disk;

static full_disk fill_disk(rlim_t bytes) {
    full_disk d;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &d.before), 0);
    d.handler = signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {.rlim_cur = bytes, .rlim_max = d.before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    return d;
}

static void empty_disk(const full_disk *d) {
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &d->before), 0);
    signal(SIGXFSZ, d->handler);
}

static void check_full_disk(const fixture *f, const char *mode, const char *name, char error[400]) {
    char argument[64], folder[160];
    file_list names;
    mem *account;
    snprintf(argument, sizeof argument, "--checkpoint.async_mode=%s", mode);
    const char *more[] = {argument, "--checkpoint.interval=2", "--train.max_steps=40", NULL};
    full_disk d = fill_disk(60000);
    ott_status status =
        fixture_run(f, &(run_options){.name = name, .precision = &fixture_precisions[FP32], .more = more});
    empty_disk(&d);
    assert_int_equal(status, OTT_ERR_IO);
    snprintf(error, 400, "%.399s", status_text());
    snprintf(folder, sizeof folder, "%s/%s/checkpoints", f->folder, name);
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(file_list_folder(account, folder, &names));
    assert_int_equal(names.count, 1); /* run.json only, and no incomplete checkpoint */
    assert_string_equal(names.names[0], "run.json");
    file_list_free(&names);
    mem_close(account);
}

/* On a full disk, synchronous and asynchronous saves fail with the same message, except for the folder. */
static void full_disk_ends_the_run(void **state) {
    char plain[400], background[400];
    check_full_disk(*state, "disabled", "full-a", plain);
    check_full_disk(*state, "async", "full-b", background);
    assert_non_null(strstr(plain, "cannot save the checkpoint of step 2: "));
    char *at = strstr(background, "full-b");
    assert_non_null(at);
    at[5] = 'a';
    assert_string_equal(plain, background);
}

/* After a failed write, the next save returns the write's error and saves nothing. */
static void error_comes_before_the_next_save(void **state) {
    rig r;
    checkpoint_writer *w;
    char folder[160];
    file_list names;
    const char *more[] = {ASYNC, NULL};
    rig_open(&r, *state, &(rig_options){.precision = &fixture_precisions[FP32], .more = more});
    open_writer(&r, *state, "failing", NULL, folder, &w);
    rig_step(&r);
    full_disk d = fill_disk(60000);
    save(&r, w);
    rig_step(&r);
    assert_int_equal(checkpoint_writer_save(w, "fp32", &r.t->run, NULL), OTT_ERR_IO);
    empty_disk(&d);
    assert_non_null(strstr(status_text(), "cannot save the checkpoint of step 1"));
    FIXTURE_OK(checkpoint_writer_wait(w)); /* succeeds, because no write is pending */
    FIXTURE_OK(file_list_folder(r.account, folder, &names));
    assert_int_equal(names.count, 0);
    file_list_free(&names);
    checkpoint_writer_close(w);
    rig_close(&r);
}

/* If no thread can be started, the save writes immediately and training continues. */
static void thread_that_cannot_start(void **state) {
    rig r;
    checkpoint_writer *w;
    char folder[160];
    pthread_attr_t before, huge;
    static captured_log logged;
    logger log = capture_log(&logged);
    const char *more[] = {ASYNC, NULL};
    rig_open(&r, *state, &(rig_options){.precision = &fixture_precisions[FP32], .more = more});
    open_writer(&r, *state, "alone", &log, folder, &w);
    rig_step(&r);
    assert_int_equal(pthread_getattr_default_np(&before), 0);
    assert_int_equal(pthread_attr_init(&huge), 0);
    /* no thread can have a stack of this size */
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 47), 0);
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    save(&r, w);
    assert_int_equal(pthread_setattr_default_np(&before), 0);
    assert_true(captured_log_has(&logged, "Cannot start the thread that writes checkpoints: "));
    FIXTURE_OK(checkpoint_writer_poll(w));
    assert_true(captured_log_has(&logged, "Saved "));
    assert_true(captured_log_has(&logged, "alone/step-1"));
    rig_step(&r);
    save(&r, w); /* now a thread can be started again */
    FIXTURE_OK(checkpoint_writer_wait(w));
    assert_int_equal(captured_log_count(&logged, "Cannot start"), 1);
    assert_int_equal(captured_log_count(&logged, "Saved "), 2);
    checkpoint_writer_close(w);
    pthread_attr_destroy(&huge);
    pthread_attr_destroy(&before);
    rig_close(&r);
}

/* Makes a folder with so many levels that removing it exceeds the test's limit of open files. */
static void make_deep(const char *folder) {
    char path[600];
    int length = snprintf(path, sizeof path, "%s/step-1", folder);
    for (int i = 0; i < 100; i++) length += snprintf(path + length, sizeof path - (size_t)length, "/a");
    FIXTURE_OK(file_make_folder(path));
}

static void check_old_one_stays(const fixture *f, const char *mode, const char *name) {
    rig r;
    checkpoint_writer *w;
    char folder[160], argument[64];
    struct rlimit before, few;
    static captured_log logged;
    logger log = capture_log(&logged);
    snprintf(argument, sizeof argument, "--checkpoint.async_mode=%s", mode);
    const char *more[] = {argument, "--checkpoint.keep_last_n=1", NULL};
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[FP32], .more = more});
    open_writer(&r, f, name, &log, folder, &w);
    rig_step(&r);
    save(&r, w);
    FIXTURE_OK(checkpoint_writer_wait(w));
    make_deep(folder);
    rig_step(&r);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){.rlim_cur = 60, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    save(&r, w);
    FIXTURE_OK(checkpoint_writer_wait(w));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(captured_log_has(&logged, "/step-2"));
    assert_true(captured_log_has(&logged, "Cannot remove an old checkpoint: "));
    assert_true(captured_log_has(&logged, "Too many open files"));
    checkpoint_writer_close(w);
    rig_close(&r);
}

static void old_one_that_cannot_be_removed(void **state) {
    check_old_one_stays(*state, "disabled", "deep-a");
    check_old_one_stays(*state, "async", "deep-b");
}

/* A run that ends because of NaNs first waits for the pending write, and then returns its own error. */
static void other_ends_wait_for_the_write(void **state) {
    const fixture *f = *state;
    static captured_log logged;
    char path[200];
    const char *more[] = {ASYNC,
                          "--checkpoint.interval=1",
                          "--optimizer.lr=1e30",
                          "--train.max_consecutive_nan=2",
                          "--train.max_steps=50",
                          NULL};
    ott_status status = fixture_run(
        f, &(run_options){
               .name = "diverged", .precision = &fixture_precisions[FP32], .more = more, .logged = &logged});
    assert_int_equal(status, OTT_ERR_DIVERGED);
    assert_non_null(strstr(status_text(), "too many consecutive NaNs"));
    snprintf(path, sizeof path, "%s/diverged/checkpoints/step-1/state.json", f->folder);
    assert_true(file_exists(path));
    assert_int_equal(captured_log_count(&logged, "Saved "), captured_log_count(&logged, "checkpoints/step-"));
}

/* After a stop request, the run returns with a complete checkpoint, and the run can resume from it. */
static void stopped_run_resumes(void **state) {
    static captured_log logged;
    const char *more[] = {ASYNC, NULL}, *again[] = {ASYNC, "--checkpoint.load_path=latest", NULL};
    run_options o = {.name = "stopped", .precision = &fixture_precisions[TENSORWISE], .logged = &logged};
    o.more = more;
    o.stop_after = 4;
    FIXTURE_OK(fixture_run(*state, &o));
    assert_true(captured_log_has(&logged, "saving emergency checkpoint"));
    assert_true(captured_log_has(&logged, "stopped/checkpoints/step-4"));
    o.more = again;
    o.stop_after = 0;
    FIXTURE_OK(fixture_run(*state, &o));
    assert_true(captured_log_has(&logged, "at step 4"));
    o = (run_options){.name = "straight", .precision = &fixture_precisions[TENSORWISE]};
    FIXTURE_OK(fixture_run(*state, &o));
    for (int i = 0; i < 3; i++)
        assert_true(
            same_file(*state, "stopped/checkpoints/step-6", "straight/checkpoints/step-6", file_names[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_the_same),
        cmocka_unit_test(runs_are_the_same),
        cmocka_unit_test(old_ones_go_when_the_new_one_is_there),
        cmocka_unit_test(memory_is_counted),
        cmocka_unit_test(memory_that_cannot_be_had),
        cmocka_unit_test(full_disk_ends_the_run),
        cmocka_unit_test(error_comes_before_the_next_save),
        cmocka_unit_test(thread_that_cannot_start),
        cmocka_unit_test(old_one_that_cannot_be_removed),
        cmocka_unit_test(other_ends_wait_for_the_write),
        cmocka_unit_test(stopped_run_resumes),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
