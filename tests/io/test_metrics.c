/* metrics.jsonl: exact lines, cutting on resume, full disks, reading back. */
#include "io/folder.h"
#include "io/metrics.h"
#include "io/number.h"
#include "base/file.h"
#include "base/rng.h"
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static metrics_writer *open_writer(folder *f, int64_t last_step) {
    metrics_writer *w;
    if (metrics_open(f->account, folder_file(f, "metrics.jsonl"), last_step, &w) != OTT_OK)
        fail_msg("%s", status_text());
    return w;
}

static void write_loss(metrics_writer *w, int64_t step, const char *key, double loss) {
    const metrics_value values[] = {metrics_real(key, loss)};
    assert_int_equal(metrics_write(w, step, values, 1), OTT_OK);
}

static void assert_file(folder *f, const char *expected) {
    char *text = folder_read(f, "metrics.jsonl", NULL);
    assert_string_equal(text, expected);
    mem_give(f->account, text);
}

static void exact_lines(void **state) {
    folder *f = *state;
    const metrics_value values[] = {metrics_real("loss", 2.345f),
                                    metrics_int("tokens", INT64_C(9007199254740993)),
                                    metrics_text("phase", "a \"b\"\n"), metrics_real("grad_norm", NAN)};
    metrics_writer *w = open_writer(f, -1);
    assert_int_equal(metrics_write(w, 1, values, 4), OTT_OK);
    assert_file(f, "{\"step\":1,\"loss\":2.345,\"tokens\":9007199254740993,\"phase\":\"a \\\"b\\\"\\n\","
                   "\"grad_norm\":null}\n"); /* the line is in the file before the writer is closed */
    assert_int_equal(metrics_write(w, 2, NULL, 0), OTT_OK);
    metrics_close(w);
    metrics_close(NULL);
    char *text = folder_read(f, "metrics.jsonl", NULL);
    assert_non_null(strstr(text, "}\n{\"step\":2}\n"));
    mem_give(f->account, text);
}

static void numbers(void **state) {
    (void)state;
    static const struct {
        double x;
        const char *text;
    } cases[] = {
        {0, "0"},
        {-0.0, "-0"},
        {1, "1"},
        {210, "210"},
        {-200, "-200"},
        {0.1, "0.1"},
        {0.1f, "0.1"},
        {3e-4, "0.0003"},
        {1e-5, "1e-05"},
        {123456789, "123456789"},
        {1e15, "1000000000000000"},
        {1e22, "1e+22"},
        {1.0 / 3, "0.3333333333333333"},
        {99.99999999, "99.99999999"},
        {9.5, "9.5"},
        {INFINITY, "null"},
        {-INFINITY, "null"},
        {NAN, "null"},
        {5e-324, "5e-324"},
    };
    char out[32];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(number_metric(cases[i].x, out), cases[i].text);
    assert_string_equal(number_json(0.1f, out), "0.10000000149011612");
    assert_string_equal(number_json(0.1, out), "0.1");
    assert_string_equal(number_json(-INFINITY, out), "null");
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t bits = (uint64_t)rng_u32(1, 2, 2 * i) << 32 | rng_u32(1, 2, 2 * i + 1);
        double x;
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x)) continue;
        assert_true(strtod(number_json(x, out), NULL) == x);
        if (fabs(x) > 3e38) continue;
        float narrow = (float)x;
        assert_true(strtof(number_metric(narrow, out), NULL) == narrow);
        assert_true(strtod(number_json(narrow, out), NULL) == narrow);
    }
}

/* A program that set a locale with a decimal comma still writes JSON. */
static void numbers_of_any_locale(void **state) {
    (void)state;
    char out[32];
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8") && !setlocale(LC_NUMERIC, "fr_FR.UTF-8")) skip();
    number_json(1.5, out);
    setlocale(LC_NUMERIC, "C");
    assert_string_equal(out, "1.5");
}

static void resume_cuts(void **state) {
    folder *f = *state;
    metrics_writer *w = open_writer(f, -1);
    for (int64_t step = 1; step <= 6; step++) write_loss(w, step, "loss", (double)step);
    write_loss(w, 6, "val_loss", 7);
    metrics_close(w);
    char *uninterrupted = folder_read(f, "metrics.jsonl", NULL);
    w = open_writer(f, 4);
    assert_file(f, "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":2}\n{\"step\":3,\"loss\":3}\n{\"step\":4,"
                   "\"loss\":4}\n");
    for (int64_t step = 5; step <= 6; step++) write_loss(w, step, "loss", (double)step);
    write_loss(w, 6, "val_loss", 7);
    metrics_close(w);
    assert_file(f, uninterrupted);
    metrics_close(open_writer(f, 6)); /* nothing to cut */
    assert_file(f, uninterrupted);
    metrics_close(open_writer(f, 0));
    assert_file(f, "");
    mem_give(f->account, uninterrupted);
}

static void resume_mends_a_crash(void **state) {
    folder *f = *state;
    folder_write_text(f, "metrics.jsonl", "{\"step\":1,\"loss\":1}\n{\"step\":2,\"lo");
    metrics_writer *w = open_writer(f, 5);
    write_loss(w, 2, "loss", 2);
    metrics_close(w);
    assert_file(f, "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":2}\n");
    w = open_writer(f, -1); /* a new run */
    metrics_close(w);
    assert_file(f, "");
    assert_int_equal(file_remove_tree(folder_file(f, "metrics.jsonl")), OTT_OK);
    w = open_writer(f, 3); /* the file may be gone */
    write_loss(w, 4, "loss", 2);
    metrics_close(w);
    assert_file(f, "{\"step\":4,\"loss\":2}\n");
}

static void refuses_other_files(void **state) {
    folder *f = *state;
    static const char *const bad[] = {"{\"step\":1}\nnoise\n", "{\"step\":1}\n{\"loss\":1}\n",
                                      "{\"step\":1}\n[2]\n",   "{\"step\":1}\n{\"step\":1.5}\n",
                                      "{\"step\":1}\n\n",      "{\"step\":1}\n{\"step\":1,\"step\":2}\n"};
    const char *keys[] = {"loss"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        metrics_writer *w;
        metrics_series s;
        const char *path = folder_write_text(f, "metrics.jsonl", bad[i]);
        assert_int_equal(metrics_open(f->account, path, 5, &w), OTT_ERR_FORMAT);
        assert_null(w);
        assert_error_names("metrics.jsonl: line 2 is not a JSON object with a step");
        assert_file(f, bad[i]); /* left as it was */
        assert_int_equal(metrics_read(f->account, path, keys, 1, &s), OTT_ERR_FORMAT);
        assert_error_names("line 2");
    }
    metrics_writer *w;
    assert_int_equal(metrics_open(f->account, folder_file(f, "no/such/folder"), -1, &w), OTT_ERR_IO);
    assert_error_names("No such file");
}

static void full_disk(void **state) {
    folder *f = *state;
    metrics_writer *w;
    assert_int_equal(metrics_open(f->account, "/dev/full", -1, &w), OTT_OK);
    assert_int_equal(metrics_write(w, 1, NULL, 0), OTT_ERR_IO);
    assert_string_equal(status_text(), "/dev/full: cannot write: No space left on device");
    assert_int_equal(metrics_write(w, 2, NULL, 0), OTT_ERR_IO);
    assert_error_names("an earlier write failed");
    metrics_close(w);
}

static void reads_series(void **state) {
    folder *f = *state;
    const char *keys[] = {"loss", "val_loss", "absent", "text"};
    metrics_series s[4];
    const char *path =
        folder_write_text(f, "metrics.jsonl",
                          "{\"step\":1,\"loss\":2.5,\"text\":\"x\"}\n{\"step\":2,\"loss\":null,\"lr\":1}\n"
                          "{\"step\":2,\"val_loss\":3}\n{\"step\":4,\"loss\":1e1}\n{\"step\":5,\"loss\":");
    assert_int_equal(metrics_read(f->account, path, keys, 4, s), OTT_OK);
    assert_int_equal(s[0].count, 3);
    assert_int_equal(s[0].step[2], 4);
    assert_true(s[0].value[0] == 2.5 && isnan(s[0].value[1]) && s[0].value[2] == 10);
    assert_int_equal(s[1].count, 1);
    assert_int_equal(s[1].step[0], 2);
    assert_true(s[1].value[0] == 3);
    assert_int_equal(s[2].count, 0);
    assert_int_equal(s[3].count, 0);
    for (int i = 0; i < 4; i++) metrics_series_free(&s[i]);
    assert_int_equal(metrics_read(f->account, folder_file(f, "absent"), keys, 4, s), OTT_ERR_NOT_FOUND);
}

static void long_series(void **state) {
    folder *f = *state;
    const char *keys[] = {"loss"};
    metrics_series s;
    metrics_writer *w = open_writer(f, -1);
    write_loss(w, 0, "loss", 0);
    int64_t allocations = mem_read(f->account).allocations;
    for (int64_t step = 1; step < 1000; step++) write_loss(w, step, "loss", (double)step / 8);
    assert_int_equal(mem_read(f->account).allocations, allocations); /* none per step */
    metrics_close(w);
    assert_int_equal(metrics_read(f->account, folder_file(f, "metrics.jsonl"), keys, 1, &s), OTT_OK);
    assert_int_equal(s.count, 1000);
    for (int64_t i = 0; i < s.count; i++) assert_true(s.step[i] == i && s.value[i] == (double)i / 8);
    metrics_series_free(&s);
}

static void memory_runs_out(void **state) {
    folder *f = *state;
    const char *keys[] = {"loss"};
    metrics_series s = {0};
    metrics_writer *w = NULL;
    int64_t n;
    const char *path =
        folder_write_text(f, "metrics.jsonl", "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":1}\n");
    for (n = 1; !s.step; n++) {
        mem_fail_after(f->account, n);
        ott_status status = metrics_read(f->account, path, keys, 1, &s);
        assert_true(status == (s.step ? OTT_OK : OTT_ERR_MEMORY));
    }
    assert_true(n > 3);
    mem_fail_after(f->account, 0);
    metrics_series_free(&s);
    for (n = 1; !w; n++) {
        mem_fail_after(f->account, n);
        ott_status status = metrics_open(f->account, path, 1, &w);
        assert_true(status == (w ? OTT_OK : OTT_ERR_MEMORY));
    }
    mem_fail_after(f->account, 0);
    metrics_close(w);
    assert_file(f, "{\"step\":1,\"loss\":1}\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(exact_lines, folder_setup, folder_teardown),
        cmocka_unit_test(numbers),
        cmocka_unit_test(numbers_of_any_locale),
        cmocka_unit_test_setup_teardown(resume_cuts, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(resume_mends_a_crash, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(refuses_other_files, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(full_disk, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(reads_series, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(long_series, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(memory_runs_out, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
