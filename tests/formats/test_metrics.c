/* metrics.jsonl: the exact lines, truncation when a run resumes, full disks, and reading curves and health
   lines. */
#include "support/folder.h"
#include "formats/metrics.h"
#include "base/text/number.h"
#include "base/file/file.h"
#include "base/rng.h"
#include "base/text/str.h"
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <cmocka.h>

static metrics_writer *open_writer(folder *f, int64_t last_step) {
    metrics_writer *w;
    if (metrics_open(f->account, NULL, folder_file(f, "metrics.jsonl"), last_step, &w) != OTT_OK)
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
    mem_free(f->account, text);
}

static void exact_lines(void **state) {
    folder *f = *state;
    const metrics_value values[] = {metrics_real("loss", 2.345f),
                                    metrics_int("tokens", INT64_C(9007199254740993)),
                                    metrics_text("phase", "a \"b\"\n"), metrics_real("grad_norm", NAN)};
    metrics_writer *w = open_writer(f, -1);
    assert_int_equal(metrics_write(w, 1, values, 4), OTT_OK);
    assert_file(f, "{\"step\":1,\"loss\":2.345,\"tokens\":9007199254740993,\"phase\":\"a \\\"b\\\"\\n\","
                   "\"grad_norm\":null}\n"); /* the line is in the file although the writer is still open */
    assert_int_equal(metrics_write(w, 2, NULL, 0), OTT_OK);
    metrics_close(w);
    metrics_close(NULL);
    char *text = folder_read(f, "metrics.jsonl", NULL);
    assert_non_null(strstr(text, "}\n{\"step\":2}\n"));
    mem_free(f->account, text);
}

static void formats_of_numbers(void **state) {
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

/* A program with a decimal comma in its locale still writes valid JSON. */
static void numbers_of_any_locale(void **state) {
    (void)state;
    char out[32];
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8") && !setlocale(LC_NUMERIC, "fr_FR.UTF-8")) skip();
    number_json(1.5, out);
    setlocale(LC_NUMERIC, "C");
    assert_string_equal(out, "1.5");
}

static void resume_truncates(void **state) {
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
    metrics_close(open_writer(f, 6)); /* no line is after step 6 */
    assert_file(f, uninterrupted);
    metrics_close(open_writer(f, 0));
    assert_file(f, "");
    mem_free(f->account, uninterrupted);
}

static void resume_repairs_the_last_line(void **state) {
    folder *f = *state;
    folder_write_text(f, "metrics.jsonl", "{\"step\":1,\"loss\":1}\n{\"step\":2,\"lo");
    metrics_writer *w = open_writer(f, 5);
    write_loss(w, 2, "loss", 2);
    metrics_close(w);
    assert_file(f, "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":2}\n");
    w = open_writer(f, -1); /* -1: a new run, which removes all lines */
    metrics_close(w);
    assert_file(f, "");
    assert_int_equal(file_remove_tree(folder_file(f, "metrics.jsonl")), OTT_OK);
    w = open_writer(f, 3); /* the file may be missing */
    write_loss(w, 4, "loss", 2);
    metrics_close(w);
    assert_file(f, "{\"step\":4,\"loss\":2}\n");
}

/* A reader skips and counts lines that are not metrics. Truncation keeps them in the file. */
static void passes_over_damage(void **state) {
    folder *f = *state;
    static const char *const bad[] = {
        "noise", "{\"loss\":1}", "[2]", "{\"step\":1.5}", "", "{\"step\":1,\"step\":2}", "\x1b[2J\xff"};
    const char *keys[] = {"loss"};
    char text[200], wanted[300];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        metrics_series s;
        snprintf(text, sizeof text, "{\"step\":1,\"loss\":1}\n%s\n{\"step\":2,\"loss\":2}\n%s\n", bad[i],
                 bad[i]);
        const char *path = folder_write_text(f, "metrics.jsonl", text);
        assert_int_equal(metrics_read(f->account, path, keys, 1, &s), OTT_OK);
        assert_true(s.count == 2 && s.value[1] == 2);
        assert_true(s.damaged == 2 && s.first_damaged == 2);
        metrics_series_free(&s);
        metrics_writer *w = open_writer(f, 2);
        write_loss(w, 3, "loss", 3);
        metrics_close(w);
        snprintf(wanted, sizeof wanted, "%s{\"step\":3,\"loss\":3}\n", text);
        assert_file(f, wanted);
    }
    metrics_writer *w;
    assert_int_equal(metrics_open(f->account, NULL, folder_file(f, "no/such/folder"), -1, &w),
                     OTT_ERR_NOT_FOUND);
    assert_error_names("No such file");
}

static void keep_warning(void *user, ott_log_level level, const char *text) {
    if (level == OTT_LOG_WARNING) snprintf(user, 300, "%s", text);
}

/* Truncation removes all lines from the first line of a later step on. Damaged lines among the removed lines
   are reported. */
static void truncates_damage(void **state) {
    folder *f = *state;
    char warning[300] = "";
    const logger log = {.callback = keep_warning, .user = warning, .level = OTT_LOG_INFO};
    metrics_writer *w;
    const char *path = folder_write_text(f, "metrics.jsonl",
                                         "noise\n{\"step\":1}\n{\"step\":2}\nnoise\n{\"step\":3}\n\n"
                                         "{\"step\":4}\nnoise\n{\"step\":5");
    assert_int_equal(metrics_open(f->account, &log, path, 2, &w), OTT_OK);
    metrics_close(w);
    assert_file(f, "noise\n{\"step\":1}\n{\"step\":2}\nnoise\n");
    assert_non_null(strstr(warning, "metrics.jsonl: removed 2 damaged lines after step 2"));
}

/* A file of more than 2 GiB. Most of it is one line without an end. Only the end of the file is read. */
static void huge_file(void **state) {
    folder *f = *state;
    metrics_writer *w;
    int64_t bytes;
    const char *path = folder_write_text(f, "metrics.jsonl", "{\"step\":1}\n");
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseeko(file, INT64_C(3) << 30, SEEK_SET), 0);
    assert_true(fputs("\n{\"step\":2}\n{\"step\":3}\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(metrics_open(f->account, NULL, path, 2, &w), OTT_OK);
    assert_true(mem_read(f->account).peak < 1 << 20);
    metrics_close(w);
    assert_int_equal(file_size(path, &bytes), OTT_OK);
    assert_int_equal(bytes, (INT64_C(3) << 30) + 12);
}

/* Reads lines that cross the end of the reader's buffer, and a line that is longer than the buffer. */
static void lines_of_any_length(void **state) {
    folder *f = *state;
    const char *keys[] = {"loss"};
    metrics_series s;
    str text = {.account = f->account};
    for (int i = 1; i <= 300; i++) {
        str_printf(&text, "{\"step\":%d,\"text\":\"", i);
        for (int k = 0; k < i * (i == 250 ? 1000 : 40); k++) str_append(&text, "x");
        str_printf(&text, "\",\"loss\":%d}\n", i);
    }
    assert_int_equal(str_finish(&text), OTT_OK);
    const char *path = folder_write(f, "metrics.jsonl", text.text, text.length);
    str_free(&text);
    assert_int_equal(metrics_read(f->account, path, keys, 1, &s), OTT_OK);
    assert_int_equal(s.count, 299);
    assert_true(s.damaged == 1 && s.first_damaged == 250);
    for (int64_t i = 0; i < s.count; i++) assert_true(s.value[i] == (double)s.step[i]);
    metrics_series_free(&s);
    metrics_close(open_writer(f, 100));
    assert_int_equal(metrics_read(f->account, path, keys, 1, &s), OTT_OK);
    assert_int_equal(s.count, 100);
    metrics_series_free(&s);
}

/* If the file was removed or renamed, the writer writes it again with all its lines. If another file replaced
   it, the writer appends to that file. */
static void file_that_went_away(void **state) {
    folder *f = *state;
    char aside[200];
    metrics_writer *w = open_writer(f, -1);
    const char *path = folder_file(f, "metrics.jsonl");
    snprintf(aside, sizeof aside, "%s.aside", path);
    write_loss(w, 1, "loss", 1);
    assert_true(metrics_path_is_current(w));
    assert_int_equal(rename(path, aside), 0);
    assert_false(metrics_path_is_current(w));
    assert_int_equal(metrics_restore(w), OTT_OK);
    assert_true(metrics_path_is_current(w));
    write_loss(w, 2, "loss", 2);
    assert_int_equal(metrics_sync(w), OTT_OK);
    assert_file(f, "{\"step\":1,\"loss\":1}\n{\"step\":2,\"loss\":2}\n");
    assert_int_equal(rename(aside, path), 0);
    assert_false(metrics_path_is_current(w));
    assert_int_equal(metrics_restore(w), OTT_OK);
    write_loss(w, 3, "loss", 3);
    metrics_close(w);
    assert_file(f, "{\"step\":1,\"loss\":1}\n{\"step\":3,\"loss\":3}\n");
}

/* The number of points of a curve is limited. The first and the last point are always kept. */
static void very_long_series(void **state) {
    folder *f = *state;
    enum { LINES = METRICS_MOST_POINTS * 5 / 2 };
    const char *keys[] = {"loss"};
    metrics_series s;
    str text = {.account = f->account};
    for (int i = 0; i < LINES; i++) str_printf(&text, "{\"step\":%d,\"loss\":%d}\n", i, i);
    const char *path = folder_write(f, "metrics.jsonl", text.text, text.length);
    str_free(&text);
    assert_int_equal(metrics_read(f->account, path, keys, 1, &s), OTT_OK);
    assert_in_range(s.count, METRICS_MOST_POINTS / 2, METRICS_MOST_POINTS);
    for (int64_t i = 0; i < s.count - 1; i++)
        assert_true(s.step[i] == 4 * i && s.value[i] == 4.0 * (double)i);
    assert_int_equal(s.step[s.count - 1], LINES - 1);
    metrics_series_free(&s);
}

static void full_disk(void **state) {
    folder *f = *state;
    metrics_writer *w;
    struct rlimit before, none;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(metrics_open(f->account, NULL, folder_write_text(f, "full.jsonl", ""), -1, &w), OTT_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = (struct rlimit){0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0); /* no file may grow, as on a full disk */
    ott_status first = metrics_write(w, 1, NULL, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(first, OTT_ERR_IO);
    assert_error_names("full.jsonl: cannot write: File too large");
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
    assert_int_equal(mem_read(f->account).allocations, allocations); /* logging a step allocates nothing */
    metrics_close(w);
    assert_int_equal(metrics_read(f->account, folder_file(f, "metrics.jsonl"), keys, 1, &s), OTT_OK);
    assert_int_equal(s.count, 1000);
    for (int64_t i = 0; i < s.count; i++) assert_true(s.step[i] == i && s.value[i] == (double)i / 8);
    metrics_series_free(&s);
}

/* ---- health lines ---- */

#define USE(step, module, rest)                                                                              \
    "{\"step\":" step ",\"module\":" module                                                                  \
    ",\"tensor\":\"input\",\"gemm\":\"output\",\"format\":\"e4m3\"," rest "}\n"

static metrics_health read_health(folder *f, const char *text) {
    metrics_health h;
    const char *path = folder_write_text(f, "metrics.jsonl", text);
    if (metrics_read_health(f->account, path, &h) != OTT_OK) fail_msg("%s", status_text());
    return h;
}

static void reads_health(void **state) {
    folder *f = *state;
    metrics_health h = read_health(
        f, "{\"step\":1,\"loss\":2}\n" USE("1", "\"b\"",
                                           "\"amax\":3.5,\"scale_min\":128,\"scale_max\":256,"
                                           "\"saturated\":0.25,\"underflowed\":0.5,\"sqnr_db\":31.5")
               USE("1", "\"a\"", "\"amax\":null,\"sqnr_db\":null") "{\"step\":2,\"loss\":2}\n" USE(
                   "2", "\"b\"", "\"sqnr_db\":-3"));
    assert_int_equal(h.count, 3);
    assert_int_equal(h.measurements, 2);
    assert_int_equal(h.last, 2);
    assert_false(h.complete); /* the last measurement may be incomplete, because no later step follows */
    assert_int_equal(h.module_count, 2);
    assert_string_equal(h.modules[0].name, "b"); /* modules are in the order in which they first occur */
    assert_string_equal(h.modules[1].name, "a");
    assert_true(h.modules[0].last_step == 2 && h.modules[1].last_step == 1);
    const metrics_use *u = h.uses;
    assert_true(u[0].step == 1 && u[0].module == 0 && u[1].module == 1 && u[2].step == 2 && u[2].module == 0);
    assert_string_equal(u[0].tensor, "input");
    assert_string_equal(u[0].gemm, "output");
    assert_string_equal(u[2].format, "e4m3");
    assert_true(u[0].amax == 3.5 && u[0].scale_min == 128 && u[0].scale_max == 256);
    assert_true(u[0].saturated == 0.25 && u[0].underflowed == 0.5 && u[0].sqnr_db == 31.5 &&
                u[2].sqnr_db == -3);
    assert_true(isnan(u[1].amax) && isnan(u[1].scale_min) && isnan(u[1].sqnr_db));
    metrics_health_free(&h);
    metrics_health_free(&h);
    h = read_health(f, USE("1", "\"b\"", "\"sqnr_db\":1") "{\"step\":2,\"loss\":2}\n");
    assert_true(h.complete);
    metrics_health_free(&h);
    h = read_health(f, "");
    assert_true(h.count == 0 && h.module_count == 0 && h.measurements == 0);
    metrics_health_free(&h);
    assert_int_equal(metrics_read_health(f->account, folder_file(f, "absent"), &h), OTT_ERR_NOT_FOUND);
}

/* A health line may have a key with the name of a curve. The key's value is not a point of this curve. */
static void curves_without_health(void **state) {
    folder *f = *state;
    const char *keys[] = {"amax", "loss"};
    metrics_series s[2];
    const char *path = folder_write_text(f, "metrics.jsonl",
                                         USE("1", "\"a\"", "\"amax\":3,\"loss\":9,\"sqnr_db\":1")
                                             USE("1", "[]", "\"loss\":9") "{\"step\":1,\"loss\":2}\n");
    assert_int_equal(metrics_read(f->account, path, keys, 2, s), OTT_OK);
    assert_int_equal(s[0].count, 0);
    assert_int_equal(s[1].count, 1);
    assert_true(s[1].value[0] == 2);
    for (int i = 0; i < 2; i++) metrics_series_free(&s[i]);
}

static void hostile_health(void **state) {
    folder *f = *state;
    char long_name[METRICS_NAME_BYTES + 3] = {0}, line[512];
    static const char *const passed_over[] = {
        USE("1", "7", "\"sqnr_db\":1"),
        USE("1", "null", "\"sqnr_db\":1"),
        USE("1", "{\"sqnr_db\":1}", "\"amax\":1"),
        USE("1", "\"\\\"sqnr_db\\\"\"", "\"amax\":1"),
        "{\"step\":1,\"module\":\"a\",\"sqnr_db\":1}\n",
        "{\"step\":1,\"sqnr_db\":1}\n",
        "{\"step\":1,\"module\":\"a\",\"tensor\":\"x\",\"gemm\":[\"x\"],\"format\":\"e4m3\",\"sqnr_db\":1}\n",
        "{\"step\":1,\"module\":\"a\",\"tensor\":\"input\",\"sqnr_db\":1", /* a line that a crash truncated */
    };
    static const char *const damaged[] = {
        "{\"module\":\"a\",\"sqnr_db\":1}\n",
        "{\"step\":1,\"module\":\"a\",\"sqnr_db\":1e999}\n",
        "{\"step\":1,\"module\":\"a\",\"sqnr_db\":NaN}\n",
        "\"module\":\"sqnr_db\"\n",
        "{\"step\":1,\"module\":\"a\",\"sqnr_db\":1,\"sqnr_db\":2}\n",
    };
    metrics_health h;
    for (size_t i = 0; i < sizeof passed_over / sizeof *passed_over; i++) {
        h = read_health(f, passed_over[i]);
        assert_int_equal(h.count, 0);
        metrics_health_free(&h);
    }
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        h = read_health(f, damaged[i]);
        assert_true(h.count == 0 && h.damaged == 1 && h.first_damaged == 1);
        metrics_health_free(&h);
    }
    memset(long_name + 1, 'x', METRICS_NAME_BYTES);
    long_name[0] = '"';
    long_name[METRICS_NAME_BYTES + 1] = '"';
    snprintf(line, sizeof line, USE("1", "%s", "\"sqnr_db\":\"low\""), long_name);
    h = read_health(f, line);
    assert_true(h.count == 1 && isnan(h.uses[0].sqnr_db)); /* a value that is not a number is read as null */
    metrics_health_free(&h);
    h = read_health(f, USE("1", "\"a\\n\\u007fb\"", "\"sqnr_db\":[1]"));
    assert_string_equal(h.modules[0].name, "a  b");
    metrics_health_free(&h);
    strcpy(long_name + METRICS_NAME_BYTES, "xx");
    snprintf(line, sizeof line, USE("1", "%s\"", "\"sqnr_db\":1"), long_name);
    h = read_health(f, line);
    assert_int_equal(h.count, 0);
    metrics_health_free(&h);
}

/* Writes `measurements` health measurements of `modules` modules each. All have the step `step`; if `step` is
   0, they have steps 1, 2, ... */
static const char *write_health(folder *f, int measurements, int modules, int64_t step) {
    str text = {.account = f->account};
    for (int i = 0; i < measurements; i++)
        for (int k = 0; k < modules; k++)
            str_printf(&text, USE("%lld", "\"m%d\"", "\"sqnr_db\":%d"), (long long)(step ? step : i + 1), k,
                       k);
    assert_int_equal(str_finish(&text), OTT_OK);
    const char *path = folder_write(f, "metrics.jsonl", text.text, text.length);
    str_free(&text);
    return path;
}

static void long_health(void **state) {
    folder *f = *state;
    enum { MODULES = 256, MEASUREMENTS = 4 * METRICS_MOST_USES / (3 * MODULES) };
    metrics_health h;
    const char *path = write_health(f, MEASUREMENTS, MODULES, 0);
    assert_int_equal(metrics_read_health(f->account, path, &h), OTT_OK);
    assert_int_equal(h.measurements, MEASUREMENTS);
    assert_in_range(h.count, METRICS_MOST_USES / 2, METRICS_MOST_USES);
    assert_int_equal(h.count - h.last, MODULES);
    /* every second earlier measurement was dropped; the others are complete */
    for (int64_t i = 0; i < h.last; i++)
        assert_true(h.uses[i].step == 2 * (i / MODULES + 1) && h.uses[i].module == i % MODULES);
    for (int64_t i = h.last; i < h.count; i++)
        assert_true(h.uses[i].step == MEASUREMENTS && h.uses[i].module == i - h.last);
    assert_int_equal(h.modules[MODULES - 1].last_step, MEASUREMENTS);
    metrics_health_free(&h);
    path = write_health(f, METRICS_MOST_USES + 1, 1, 7);
    assert_int_equal(metrics_read_health(f->account, path, &h), OTT_ERR_FORMAT);
    assert_error_names("metrics.jsonl: line 262145: more than 262144 uses of tensors at one step");
    path = write_health(f, 1, METRICS_MOST_MODULES + 1, 7);
    assert_int_equal(metrics_read_health(f->account, path, &h), OTT_ERR_FORMAT);
    assert_error_names("metrics.jsonl: line 65537: more than 65536 modules");
}

/* Each of two measurements has 3/4 of the allowed number of values. So only the last one is kept. */
static void large_measurements(void **state) {
    folder *f = *state;
    enum { USES = METRICS_MOST_USES * 3 / 4 };
    metrics_health h;
    str text = {.account = f->account};
    for (int i = 0; i < 2 * USES; i++)
        str_append(&text, i < USES ? USE("1", "\"a\"", "\"sqnr_db\":1") : USE("2", "\"a\"", "\"sqnr_db\":1"));
    const char *path = folder_write(f, "metrics.jsonl", text.text, text.length);
    str_free(&text);
    assert_int_equal(metrics_read_health(f->account, path, &h), OTT_OK);
    assert_int_equal(h.count, USES);
    assert_int_equal(h.last, 0);
    assert_int_equal(h.measurements, 2);
    assert_int_equal(h.uses[0].step, 2);
    metrics_health_free(&h);
}

static void memory_runs_out_for_health(void **state) {
    folder *f = *state;
    metrics_health h = {0};
    int64_t n;
    /* every table grows with this number of measurements and modules */
    const char *path = write_health(f, 40, 70, 0);
    for (n = 1; !h.uses; n++) {
        mem_fail_after(f->account, n);
        ott_status status = metrics_read_health(f->account, path, &h);
        assert_true(status == (h.uses ? OTT_OK : OTT_ERR_MEMORY));
    }
    mem_fail_after(f->account, 0);
    assert_true(n > 8);
    assert_int_equal(h.count, 2800);
    metrics_health_free(&h);
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
        ott_status status = metrics_open(f->account, NULL, path, 1, &w);
        assert_true(status == (w ? OTT_OK : OTT_ERR_MEMORY));
    }
    mem_fail_after(f->account, 0);
    metrics_close(w);
    assert_file(f, "{\"step\":1,\"loss\":1}\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(exact_lines, folder_setup, folder_teardown),
        cmocka_unit_test(formats_of_numbers),
        cmocka_unit_test(numbers_of_any_locale),
        cmocka_unit_test_setup_teardown(resume_truncates, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(resume_repairs_the_last_line, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(passes_over_damage, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(truncates_damage, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(huge_file, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(lines_of_any_length, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(file_that_went_away, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(very_long_series, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(full_disk, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(reads_series, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(long_series, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(memory_runs_out, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(reads_health, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(curves_without_health, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(hostile_health, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(long_health, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(large_measurements, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(memory_runs_out_for_health, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
