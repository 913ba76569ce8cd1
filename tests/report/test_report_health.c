/* Health lines in the report: the text, the heat map of the page, and its table. */
#include "support/folder.h"
#include "report/drawn.h"
#include "report/report.h"
#include "report/curve.h"
#include "base/file/file.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* HTML of a table cell, and of the first four cells of a row for one use of a tensor. */
#define CELL(heading, text) "<td data-heading=\"" heading "\">" text "</td>"
#define USE(module, tensor_of)                                                                               \
    CELL("Module", module) CELL("Tensor", tensor_of) CELL("GEMM", "output") CELL("Format", "e4m3")

static metrics_writer *open_writer(folder *f, const char *name) {
    metrics_writer *w;
    assert_int_equal(metrics_open(f->account, NULL, folder_file(f, name), -1, &w), OTT_OK);
    return w;
}

static void write_loss(metrics_writer *w, int64_t step) {
    const metrics_value values[] = {metrics_real("loss", 2)};
    assert_int_equal(metrics_write(w, step, values, 1), OTT_OK);
}

/* Writes a health line as monitor/health does. */
static void write_format(metrics_writer *w, int64_t step, const char *module, const char *tensor,
                         const char *format, double amax, double sqnr_db) {
    const metrics_value values[] = {
        metrics_text("module", module),   metrics_text("tensor", tensor),     metrics_text("gemm", "output"),
        metrics_text("format", format),   metrics_real("amax", amax),         metrics_real("scale_min", 0.5),
        metrics_real("scale_max", 1024),  metrics_real("saturated", 0.00125), metrics_real("underflowed", 0),
        metrics_real("sqnr_db", sqnr_db),
    };
    assert_int_equal(metrics_write(w, step, values, sizeof values / sizeof *values), OTT_OK);
}

static void write_use(metrics_writer *w, int64_t step, const char *module, const char *tensor, double amax,
                      double sqnr_db) {
    write_format(w, step, module, tensor, "e4m3", amax, sqnr_db);
}

/* Writes two measurements of three modules. Module c leaves FP8 after the first measurement. */
static void write_run(metrics_writer *w) {
    for (int64_t step = 10; step <= 20; step += 10) {
        write_loss(w, step);
        write_use(w, step, "a", "input", 1, 30);
        write_use(w, step, "a", "weight", 2, 31 - (double)step);
        write_use(w, step, "<b> & \xff", "input", 3, 25.25);
        if (step == 10) write_use(w, step, "c", "input", 4, 3);
    }
    write_loss(w, 21);
}

static void make_run(folder *f) {
    metrics_writer *w = open_writer(f, "metrics.jsonl");
    write_run(w);
    metrics_close(w);
}

static report *open_report(folder *f) {
    report *r;
    const char *folders[] = {f->path};
    if (report_open(f->account, folders, 1, &r) != OTT_OK) fail_msg("%s", status_text());
    return r;
}

static str table_of(folder *f) {
    report *r = open_report(f);
    str text = {.account = f->account};
    assert_int_equal(report_table(r, &text), OTT_OK);
    report_close(r);
    return text;
}

static drawn_page page_of(folder *f) {
    report *r = open_report(f);
    drawn_page p = drawn_open(f, r, NULL);
    report_close(r);
    assert_not_drawn(&p, "NaN");
    return p;
}

static void assert_has(const str *text, const char *part) {
    if (!strstr(text->text, part)) fail_msg("\"%s\" is not in\n%s", part, text->text);
}

static void assert_lacks(const str *text, const char *part) {
    if (strstr(text->text, part)) fail_msg("\"%s\" is in\n%s", part, text->text);
}

static void text(void **state) {
    folder *f = *state;
    make_run(f);
    str t = table_of(f);
    const char *name = strrchr(f->path, '/') + 1;
    char expected[1024];
    snprintf(expected, sizeof expected,
             "\n%s: lowest SQNR relative to the format's, at step 20, 3 of 3 measured uses of tensors:\n"
             "     11.0 dB  a  weight (output, e4m3, -20.5 from expected 31.5)\n"
             "     25.2 dB  <b> & \xef\xbf\xbd  input (output, e4m3, -6.2 from expected 31.5)\n"
             "     30.0 dB  a  input (output, e4m3, -1.5 from expected 31.5)\n"
             "%s: c left FP8 after step 10 (fallback or schedule)\n",
             name, name);
    assert_has(&t, expected);
    str_free(&t);
}

static void page(void **state) {
    folder *f = *state;
    make_run(f);
    drawn_page p = page_of(f);
    assert_non_null(strstr(
        p.data, "\"health\": {\"measurements\": 2, \"left_out\": 0, \"steps\": [10, 20], \"modules\": "
                "[\"a\", \"\\u003cb> & \xef\xbf\xbd\", \"c\"], \"cells\": [\n[{\"step\": 10, \"tensor\": "
                "\"weight\", \"gemm\": \"output\", \"format\": \"e4m3\", \"sqnr_db\": 21}, "));
    assert_int_equal(occurrences(p.data, "null]"), 1);
    assert_non_null(strstr(p.data, "\"left\": [{\"module\": \"c\", \"step\": 10}], \"more_left\": 0"));
    assert_drawn_times(&p, "<h2>What FP8 does to the tensors</h2>", 1);
    assert_drawn_times(&p, "</title></rect>", 5); /* two cells per module, but one of module c */
    assert_drawn(&p, "Left FP8, by fallback or by schedule: c (after step 10).</p>");
    /* Checks the cells of the heat map. An SQNR 28.5 dB below the 31.5 dB expected of E4M3 has the darkest
       color. Each color covers 4 dB, down to 32 dB below. The cells fill the page. */
    assert_drawn(
        &p,
        "<rect class=\"h0\" x=\"236\" y=\"80\" width=\"412.5\" height=\"13.5\"><title>c, step 10: 3.0 dB, "
        "-28.5 from expected 31.5 (input of output, e4m3)</title>");
    assert_drawn(
        &p,
        "<rect class=\"h5\" x=\"236\" y=\"50\" width=\"412.5\" height=\"13.5\"><title>a, step 10: 21.0 dB, "
        "-10.5 from expected 31.5 (weight of output, e4m3)</title>");
    assert_drawn(
        &p,
        "<rect class=\"h6\" x=\"650\" y=\"65\" width=\"412.5\" height=\"13.5\">"
        "<title>&lt;b&gt; &amp; \xef\xbf\xbd, step 20: 25.3 dB, -6.3 from expected 31.5 (input of output, "
        "e4m3)</title>");
    assert_drawn(&p, ">-32</text>");
    assert_drawn(&p, ">0</text>");
    assert_drawn(&p, USE("a", "weight") CELL("amax", "2") CELL("Scale", "0.5 to 1024")
                         CELL("Saturated", "0.125%") CELL("Underflowed", "0%") CELL("SQNR", "11.0 dB")
                             CELL("To format's", "-20.5") "</tr><tr><td data-heading=\"Module\">&lt;b&gt;");
    assert_drawn(&p, "The last measurement, at step 20, lowest relative to its format first.</p>");
    assert_not_drawn(&p, "not finite");
    assert_not_drawn(&p, "only zeros");
    drawn_close(&p);
}

static void no_module_measured(void **state) {
    folder *f = *state;
    metrics_writer *w = open_writer(f, "metrics.jsonl");
    write_loss(w, 1);
    metrics_close(w);
    str t = table_of(f);
    assert_lacks(&t, "SQNR");
    str_free(&t);
    drawn_page p = page_of(f);
    assert_not_drawn(&p, "What FP8 does");
    drawn_close(&p);
}

static void one_step(void **state) {
    folder *f = *state;
    metrics_writer *w = open_writer(f, "metrics.jsonl");
    write_use(w, 12345, "a", "input", 1, 30);
    metrics_close(w);
    drawn_page p = page_of(f);
    assert_drawn_times(&p, "</title></rect>", 1);
    assert_drawn(
        &p, "<rect class=\"h6\" x=\"236\" y=\"50\" width=\"826.5\""); /* 30 dB is 1.5 below E4M3's value */
    assert_drawn(&p, ">12.35k</text>");
    assert_drawn(&p, "Measurements: 1.<");
    assert_not_drawn(&p, "Left FP8");
    drawn_close(&p);
}

/* A null SQNR ranks worst if the tensor is not finite; it has no rank if all elements are zero or exact. */
static void without_sqnr(void **state) {
    folder *f = *state;
    metrics_writer *w = open_writer(f, "metrics.jsonl");
    write_use(w, 1, "exact", "input", 1, INFINITY);
    write_use(w, 1, "zeros", "input", 0, NAN);
    write_use(w, 1, "broken", "input", NAN, NAN);
    write_use(w, 1, "infinite", "input", INFINITY, -INFINITY);
    write_use(w, 1, "broken", "weight", 1, -4);
    metrics_close(w);
    str t = table_of(f);
    assert_has(&t, "at step 1, 5 of 5 measured uses of tensors:\n"
                   "  not finite  broken  input (output, e4m3)\n"
                   "  not finite  infinite  input (output, e4m3)\n"
                   "     -4.0 dB  broken  weight (output, e4m3, -35.5 from expected 31.5)\n"
                   "           -  exact  input (output, e4m3)\n"
                   "           -  zeros  input (output, e4m3)\n");
    str_free(&t);
    drawn_page p = page_of(f);
    /* two uses; each is written in a cell and in a list of the worst uses */
    assert_int_equal(occurrences(p.data, "\"sqnr_db\": \"not finite\""), 4);
    assert_int_equal(occurrences(p.data, "\"sqnr_db\": null"), 4);
    assert_drawn_times(&p, "<rect class=\"hx\"", 3); /* two heat-map cells, and one in the legend */
    assert_drawn_times(&p, "<rect class=\"hz\"", 3);
    assert_drawn(&p, "<title>broken, step 1: not finite (input of output, e4m3)</title>");
    assert_drawn(&p, USE("broken", "input") CELL("amax", "–"));
    drawn_close(&p);
}

/* The last measurement may be incomplete. A module that is missing in it has not left FP8. */
static void half_a_measurement(void **state) {
    folder *f = *state;
    metrics_writer *w = open_writer(f, "metrics.jsonl");
    write_use(w, 1, "a", "input", 1, 30);
    write_use(w, 1, "b", "input", 1, 30);
    write_use(w, 2, "a", "input", 1, 30);
    metrics_close(w);
    str t = table_of(f);
    assert_lacks(&t, "left FP8");
    str_free(&t);
    const report_summary summary = {.label = "run", .precision = "fp8", .recipe = "", .fp8_gemms = 1};
    assert_int_equal(report_summary_write(f->account, f->path, &summary), OTT_OK);
    t = table_of(f); /* the run has ended, so the measurement is complete */
    assert_has(&t, "run: b left FP8 after step 1 (fallback or schedule)\n");
    str_free(&t);
}

/* For a long run of a large model the page shows the worst values, and the number of omitted values. */
static void large_run(void **state) {
    folder *f = *state;
    enum { MODULES = 300, STEPS = 150 };
    char name[64];
    metrics_writer *w = open_writer(f, "metrics.jsonl");
    for (int64_t step = 1; step <= STEPS; step++)
        for (int i = 0; i < MODULES; i++) {
            snprintf(name, sizeof name, "x\xc3\xa9\xc3\xa9.a.long.name.of.module.layers.%d.x", i);
            write_use(w, step, name, "input", 1, i == 7 && step == 75 ? -20 : 30 - i * 0.05);
        }
    metrics_close(w);
    drawn_page p = page_of(f);
    assert_int_equal(occurrences(p.data, "{\"step\": "), 240 * 60);
    assert_non_null(strstr(p.data, "\"measurements\": 150, \"left_out\": 60, "));
    assert_non_null(strstr(p.data, "\"more_uses\": 260, "));
    assert_drawn_times(&p, "</title></rect>", 240 * 60);
    assert_drawn(&p, "Measurements: 150. Not drawn: 60 modules with higher SQNR.<");
    /* this module has good values except in one measurement */
    assert_drawn(&p, "layers.7.x, step 75: -20.0 dB, ");
    assert_not_drawn(&p, "layers.60.x");
    assert_drawn(&p, ">…\xc3\xa9.a.long.name.of.module.layers.299.x</text>");
    assert_drawn_times(&p, CELL("Scale", "0.5 to 1024"), 40);
    assert_drawn(&p, "; 260 more uses of tensors are not shown.</p>");
    assert_true(p.text.length < 4 << 20);
    drawn_close(&p);
    str t = table_of(f);
    assert_has(&t, "at step 150, 5 of 300 measured uses of tensors:\n     15.0 dB  x\xc3\xa9");
    str_free(&t);
}

static void equal_modules(void **state) {
    folder *f = *state;
    char name[32];
    metrics_writer *w = open_writer(f, "metrics.jsonl");
    for (int i = 0; i < 241; i++) {
        snprintf(name, sizeof name, "m%d", i);
        write_use(w, 1, name, "input", 1, 30);
    }
    metrics_close(w);
    drawn_page p = page_of(f);
    assert_drawn_times(&p, "</title></rect>", 240);
    assert_drawn(&p, "Not drawn: 1 modules");
    drawn_close(&p);
}

/* The color scale ends at the SQNR expected of the format. It begins below the lowest SQNR in the file. */
static void scale_of_colors(void **state) {
    folder *f = *state;
    static const struct {
        double low, high;
        const char *first, *second, *last;
    } cases[] = {
        /* 9 dB is 22.5 dB below the expected 31.5 dB: 8 colors of 2.5 dB would not reach it, 8 of 3 dB do */
        {9, 25, ">-24</text>", ">-21</text>", ">0</text>"},
        {31, 60, ">-8</text>", ">-7</text>", ">0</text>"},
        {-5000, 12, ">-1000</text>", ">-875</text>", ">0</text>"}, /* drawn as -1000 dB */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        metrics_writer *w = open_writer(f, "metrics.jsonl");
        write_use(w, 1, "a", "input", 1, cases[i].low);
        write_use(w, 1, "b", "input", 1, cases[i].high);
        metrics_close(w);
        drawn_page p = page_of(f);
        assert_drawn(&p, cases[i].first);
        assert_drawn(&p, cases[i].second);
        assert_drawn(&p, cases[i].last);
        drawn_close(&p);
    }
}

/* E5M2 is expected to have 25.6 dB and E4M3 31.5 dB, so tensors with these values are not marked. The tensor
   with 28 dB in E4M3 is 3.5 dB too low, so it is the worst. */
static void formats_have_their_norm(void **state) {
    folder *f = *state;
    metrics_writer *w = open_writer(f, "metrics.jsonl");
    write_format(w, 1, "a", "grad_output", "e5m2", 1, 25.6);
    write_format(w, 1, "a", "input", "e4m3", 1, 31.5);
    write_format(w, 1, "b", "grad_output", "e5m2", 1, 25.6);
    write_format(w, 1, "b", "input", "e4m3", 1, 28);
    metrics_close(w);
    drawn_page p = page_of(f);
    assert_drawn(&p, "<rect class=\"h7\" x=\"236\" y=\"50\"");
    assert_drawn(&p, "<title>b, step 1: 28.0 dB, -3.5 from expected 31.5 (input of output, e4m3)</title>");
    drawn_close(&p);
    str t = table_of(f);
    assert_has(&t,
               "tensors:\n     28.0 dB  b  input (output, e4m3, -3.5 from expected 31.5)\n     25.6 dB  a  "
               "grad_output (output, e5m2, +0.0 from expected 25.6)\n");
    str_free(&t);
}

static void many_modules_leave(void **state) {
    folder *f = *state;
    char name[32];
    metrics_writer *w = open_writer(f, "metrics.jsonl");
    for (int i = 0; i < 30; i++) {
        snprintf(name, sizeof name, "m%d", i);
        write_use(w, 1, name, "input", 1, 5);
    }
    write_use(w, 2, "m3", "input", 1, 30);
    write_loss(w, 3);
    metrics_close(w);
    str t = table_of(f);
    assert_int_equal(occurrences(t.text, "left FP8 after step 1"), 5);
    assert_has(&t, ": 24 more modules left FP8\n");
    str_free(&t);
    drawn_page p = page_of(f);
    assert_drawn_times(&p, "(after step 1)", 20);
    assert_drawn(&p, " and 9 more modules.</p>");
    drawn_close(&p);
}

/* Draws valid lines with values that no run has. */
static void absurd_numbers(void **state) {
    folder *f = *state;
    metrics_writer *w = open_writer(f, "metrics.jsonl");
    write_use(w, INT64_MIN, "a", "input", 1e300, -1e300);
    write_use(w, INT64_MAX, "a", "input", -1e300, 1e300);
    write_format(w, -5, "", "", "e9m9", 1, 1e-300);
    metrics_close(w);
    drawn_page p = page_of(f);
    assert_drawn_times(&p, "</title></rect>", 3);
    assert_drawn(&p, "-1e+300 dB");
    drawn_close(&p);
    str t = table_of(f);
    assert_has(&t, "0.0 dB");
    str_free(&t);
}

/* The heat maps of all runs have one color scale, also if some runs have no health lines. */
static void two_runs(void **state) {
    folder *f = *state;
    report *r;
    char a[128], b[128];
    const char *folders[] = {a, b, b};
    str t = {.account = f->account};
    snprintf(a, sizeof a, "%s", folder_file(f, "a"));
    snprintf(b, sizeof b, "%s", folder_file(f, "b"));
    assert_int_equal(file_make_folder(a), OTT_OK);
    assert_int_equal(file_make_folder(b), OTT_OK);
    metrics_writer *w = open_writer(f, "a/metrics.jsonl");
    write_loss(w, 1);
    metrics_close(w);
    w = open_writer(f, "b/metrics.jsonl");
    write_run(w);
    metrics_close(w);
    assert_int_equal(report_open(f->account, folders, 3, &r), OTT_OK);
    drawn_page p = drawn_open(f, r, NULL);
    assert_int_equal(occurrences(p.data, "\"health\": {"), 2);
    assert_drawn_times(&p, "<h3>", 2);
    assert_drawn_times(&p, "<h2>What FP8 does", 1);
    drawn_close(&p);
    assert_int_equal(report_table(r, &t), OTT_OK);
    assert_int_equal(occurrences(t.text, "\nb: lowest SQNR relative to the format's, at step 20"), 2);
    str_free(&t);
    report_close(r);
}

static void memory_runs_out(void **state) {
    folder *f = *state;
    report *r = NULL;
    const char *folders[] = {f->path};
    ott_status status = OTT_ERR_MEMORY;
    make_run(f);
    for (int64_t n = 1; !r; n++) {
        mem_fail_after(f->account, n);
        status = report_open(f->account, folders, 1, &r);
        assert_true(status == (r ? OTT_OK : OTT_ERR_MEMORY));
    }
    for (int page_too = 0; page_too < 2; page_too++) {
        status = OTT_ERR_MEMORY;
        for (int64_t n = 1; status != OTT_OK; n++) {
            str t = {.account = f->account};
            mem_fail_after(f->account, n);
            status = page_too ? report_html(r, NULL, &t) : report_table(r, &t);
            assert_true(status == OTT_OK || status == OTT_ERR_MEMORY);
            str_free(&t);
        }
    }
    mem_fail_after(f->account, 0);
    report_close(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(text, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(page, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(no_module_measured, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(one_step, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(without_sqnr, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(half_a_measurement, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(large_run, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(equal_modules, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(scale_of_colors, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(formats_have_their_norm, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(many_modules_leave, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(absurd_numbers, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(two_runs, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(memory_runs_out, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
