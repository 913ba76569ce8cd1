/*
 * A checkpoint records the files that its run read. A resumed run logs the files with changed contents.
 * Generation logs a changed tokenizer. A moved file is not logged, nor is any file if the checkpoint lacks
 * these records.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file/file.h"
#include "checkpoint/run_sources.h"
#include "run/folder/sources.h"
#include "train/train_fixture.h"

/* Trains 3 steps on FOLDER/text, or resumes to step 6. */
static void train(const fixture *f, const char *name, const char *data, bool again, captured_log *logged) {
    char path[200];
    snprintf(path, sizeof path, "--data.dataset_path=%s/%s", f->folder, data);
    const char *more[] = {path, again ? "--train.max_steps=6" : "--train.max_steps=3",
                          again ? "--checkpoint.load_path=latest" : NULL, NULL};
    FIXTURE_OK(fixture_run(
        f, &(run_options){
               .name = name, .precision = &fixture_precisions[FP32], .more = more, .logged = logged}));
}

static char *in(const fixture *f, const char *name) {
    static char path[4][200];
    static int next;
    char *out = path[next++ % 4];
    snprintf(out, 200, "%s/%s", f->folder, name);
    return out;
}

static void changed_data(void **state) {
    const fixture *f = *state;
    static captured_log logged;
    fixture_write_text(in(f, "a.txt"), 30000, 1);
    train(f, "same", "a.txt", false, &logged);
    train(f, "same", "a.txt", true, &logged);
    assert_int_equal(captured_log_count(&logged, "data file"), 0);

    train(f, "contents", "a.txt", false, &logged);
    fixture_write_text(in(f, "a.txt"), 30000, 2);
    train(f, "contents", "a.txt", true, &logged);
    assert_true(captured_log_has(&logged, "a.txt: this data file has changed since the checkpoint was"));

    train(f, "size", "a.txt", false, &logged);
    fixture_write_text(in(f, "a.txt"), 40000, 2);
    train(f, "size", "a.txt", true, &logged);
    assert_true(captured_log_has(&logged, "since the checkpoint was written: 30000 bytes then, 40000 now"));

    train(f, "moved", "a.txt", false, &logged);
    assert_int_equal(rename(in(f, "a.txt"), in(f, "b.txt")), 0);
    train(f, "moved", "b.txt", true, &logged);
    assert_int_equal(captured_log_count(&logged, "data file"), 0);
}

/* Resumes with a data folder that has one new file and lacks one file of the checkpoint's run. */
static void other_files(void **state) {
    const fixture *f = *state;
    static captured_log logged;
    FIXTURE_OK(file_make_folder(in(f, "many")));
    fixture_write_text(in(f, "many/a.txt"), 20000, 1);
    fixture_write_text(in(f, "many/b.txt"), 20000, 2);
    train(f, "files", "many", false, &logged);
    assert_int_equal(unlink(in(f, "many/b.txt")), 0);
    fixture_write_text(in(f, "many/c.txt"), 20000, 3);
    train(f, "files", "many", true, &logged);
    assert_true(captured_log_has(
        &logged, "many/b.txt: this data file was read by the checkpoint's run and is not read now"));
    assert_true(captured_log_has(&logged, "many/c.txt: this data file was not read by the checkpoint's run"));
    assert_int_equal(captured_log_count(&logged, "data file"), 2);
}

static void damaged_or_absent(void **state) {
    const fixture *f = *state;
    static captured_log logged;
    fixture_write_text(in(f, "d.txt"), 30000, 1);
    train(f, "damaged", "d.txt", false, &logged);
    FIXTURE_OK(file_write_atomic(in(f, "damaged/checkpoints/step-3/sources.json"), "{}", 2));
    train(f, "damaged", "d.txt", true, &logged);
    assert_true(captured_log_has(&logged, "cannot compare the run's files with the checkpoint's"));
    train(f, "absent", "d.txt", false, &logged);
    assert_int_equal(unlink(in(f, "absent/checkpoints/step-3/sources.json")), 0);
    fixture_write_text(in(f, "d.txt"), 30000, 9);
    train(f, "absent", "d.txt", true, &logged);
    assert_int_equal(captured_log_count(&logged, "data file"), 0);
}

/* Generation checks only the tokenizer. */
static void changed_tokenizer(void **state) {
    const fixture *f = *state;
    static captured_log logged;
    const logger log = capture_log(&logged);
    mem *account;
    FIXTURE_OK(mem_open(&account));
    run_sources s = {.account = account};
    str text = {.account = account};
    FIXTURE_OK(file_make_folder(in(f, "tokens")));
    FIXTURE_OK(file_make_folder(in(f, "step-1")));
    FIXTURE_OK(file_write_atomic(in(f, "tokens/tokenizer.json"), "{}", 2));
    FIXTURE_OK(run_sources_add_tokenizer(&s, in(f, "tokens")));
    FIXTURE_OK(run_sources_add(&s, SOURCE_DATA, f->text));
    FIXTURE_OK(run_sources_text(&s, &text));
    FIXTURE_OK(file_write_atomic(in(f, "step-1/sources.json"), text.text, text.length));
    FIXTURE_OK(sources_check_tokenizer(account, &log, in(f, "step-1"), in(f, "tokens")));
    assert_int_equal(logged.length, 0);
    FIXTURE_OK(file_write_atomic(in(f, "tokens/tokenizer.json"), "[]", 2));
    FIXTURE_OK(sources_check_tokenizer(account, &log, in(f, "step-1"), in(f, "tokens/tokenizer.json")));
    assert_true(captured_log_has(&logged, "tokenizer.json: this tokenizer file has changed since"));
    assert_int_equal(captured_log_count(&logged, "data file"), 0);
    str_free(&text);
    run_sources_free(&s);
    mem_close(account);
}

/* A checkpoint records a hash of each file. The hash covers all of a small file. Of a large file it covers
   samples and both ends. */
static void marks(void **state) {
    const fixture *f = *state;
    const char *path = in(f, "marked");
    static const int64_t sizes[] = {1, 7, 8, 9, 65536, 65537, (INT64_C(16) << 20) + 5, INT64_C(1) << 32};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t places[] = {0, sizes[i] / 2, sizes[i] - 1};
        file_mark first, other;
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(truncate(path, sizes[i]), 0);
        FIXTURE_OK(file_mark_of(path, &first));
        assert_int_equal(first.bytes, sizes[i]);
        for (int k = 0; k < 3; k++) {
            /* a change between two sampled pieces of a large file is not detected */
            if (k == 1 && sizes[i] > INT64_C(16) << 20) continue;
            file = fopen(path, "r+b");
            assert_non_null(file);
            assert_int_equal(fseeko(file, places[k], SEEK_SET), 0);
            assert_int_equal(fputc(k + 1, file), k + 1);
            assert_int_equal(fclose(file), 0);
            FIXTURE_OK(file_mark_of(path, &other));
            assert_true(other.hash != first.hash);
            first = other;
        }
    }
    assert_int_equal(unlink(path), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changed_data),
        cmocka_unit_test(other_files),
        cmocka_unit_test(damaged_or_absent),
        cmocka_unit_test(changed_tokenizer),
        cmocka_unit_test(marks),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
