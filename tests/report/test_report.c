/* The report: summaries, table, terminal plot and page. The test writes the files of the runs. */
#include "support/folder.h"
#include "report/drawn.h"
#include "report/page.h"
#include "report/axis.h"
#include "report/report.h"
#include "report/curve.h"
#include "base/file/file.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { RUNS = 3 };

typedef struct made {
    char path[RUNS][128];
    const char *folders[RUNS];
} made;

static void write_metrics(folder *f, const char *name, int64_t steps, double factor) {
    metrics_writer *w;
    assert_int_equal(metrics_open(f->account, NULL, folder_file(f, name), -1, &w), OTT_OK);
    for (int64_t i = 1; i <= steps; i++) {
        double loss = factor * (2 + 4 * exp(-(double)i / 20));
        const metrics_value train[] = {metrics_real("loss", loss), metrics_real("lr", 1e-3 / (double)i),
                                       metrics_real("grad_norm", i == 3 ? NAN : 1 + 1 / (double)i),
                                       metrics_real("tps", 1000 + (double)i)};
        const metrics_value validation[] = {metrics_real("val_loss", loss * 1.05)};
        assert_int_equal(metrics_write(w, i, train, 4), OTT_OK);
        if (i % 20 == 0) assert_int_equal(metrics_write(w, i, validation, 1), OTT_OK);
    }
    metrics_close(w);
}

static const report_summary summaries[RUNS] = {
    {"bf16", "bf16", "", 200, 409600, 1234567, 2.0, 2.1, 1100, 61.5, 3 << 20, 0, 16800, 0, NULL},
    {"fp8 tensorwise", "fp8", "tensorwise", 200, 409600, 1234567, 2.01, 2.1105, 900, 70, 4 << 20, 16800,
     16800, 0, NULL},
    {"fp8 <é> & \"x\"", "fp8", "delayed", 200, 409600, 1234567, 2.1, 2.205, 950.4, 70, INT64_C(5) << 30,
     16800, 16800, 0, NULL},
};

static void make_runs(folder *f, made *m) {
    static const char *const names[RUNS] = {"a", "b", "c"};
    static const double factors[RUNS] = {1, 1.005, 1.25};
    char name[64];
    for (int i = 0; i < RUNS; i++) {
        snprintf(m->path[i], sizeof m->path[i], "%s", folder_file(f, names[i]));
        m->folders[i] = m->path[i];
        assert_int_equal(file_make_folder(m->path[i]), OTT_OK);
        snprintf(name, sizeof name, "%s/metrics.jsonl", names[i]);
        write_metrics(f, name, 200, factors[i]);
        assert_int_equal(report_summary_write(f->account, m->path[i], &summaries[i]), OTT_OK);
    }
}

static report *open_report(folder *f, const made *m, int count) {
    report *r;
    if (report_open(f->account, m->folders, count, &r) != OTT_OK) fail_msg("%s", status_text());
    return r;
}

/* ---- summaries ---- */

static void summary_round_trip(void **state) {
    folder *f = *state;
    report_summary s = summaries[2];
    const char *folders[] = {f->path};
    report *r;
    s.val_loss = NAN;
    assert_int_equal(report_summary_write(f->account, f->path, &s), OTT_OK);
    char *text = folder_read(f, "summary.json", NULL);
    assert_non_null(strstr(text, "  \"label\": \"fp8 <é> & \\\"x\\\"\",\n"));
    assert_non_null(strstr(text, "  \"val_loss\": null,\n"));
    assert_non_null(strstr(text, "  \"fp8_gemms\": 16800,\n  \"gemms\": 16800,\n  \"phases\": []\n}\n"));
    mem_free(f->account, text);
    assert_int_equal(report_open(f->account, folders, 1, &r), OTT_OK);
    const report_summary *back = &r->runs[0].summary;
    assert_string_equal(back->label, s.label);
    assert_string_equal(back->precision, "fp8");
    assert_string_equal(back->recipe, "delayed");
    assert_true(back->train_loss == 2.1 && isnan(back->val_loss) && back->tokens_per_second == 950.4);
    assert_true(back->steps == 200 && back->tokens == 409600 && back->parameters == 1234567 &&
                back->seconds == 70);
    assert_true(back->peak_memory_bytes == INT64_C(5) << 30 && back->fp8_gemms == 16800);
    report_close(r);
    report_close(NULL);
}

static void refuse_summary(folder *f, const char *text, const char *message) {
    const char *folders[] = {f->path};
    report *r;
    folder_write_text(f, "summary.json", text);
    assert_int_equal(report_open(f->account, folders, 1, &r), OTT_ERR_FORMAT);
    assert_null(r);
    assert_error_names("summary.json: ");
    assert_error_names(message);
}

static void bad_folders(void **state) {
    folder *f = *state;
    const char *folders[] = {f->path};
    report *r;
    assert_int_equal(report_open(f->account, folders, 1, &r), OTT_ERR_NOT_FOUND);
    assert_error_names("neither metrics.jsonl nor summary.json");
    assert_int_equal(report_open(f->account, folders, 0, &r), OTT_ERR_ARGUMENT);
    refuse_summary(f, "", "is not a JSON object");
    refuse_summary(f, "[]", "is not a JSON object");
    refuse_summary(f, "{\"label\":1}", "label is a whole number, not a text");
    refuse_summary(f, "{\"val_loss\":\"low\"}", "val_loss is a text, not a number");
    refuse_summary(f, "{\"steps\":1.5}", "steps is a number, not a whole number");
    refuse_summary(f, "{\"steps\":1,\"steps\":2}", "is not a JSON object");
}

/* If a run has no summary.json, its metrics are used. */
static void unfinished_run(void **state) {
    folder *f = *state;
    char path[128];
    const char *folders[] = {path};
    report *r;
    str text = {.account = f->account};
    snprintf(path, sizeof path, "%s/", folder_file(f, "my run"));
    assert_int_equal(file_make_folder(path), OTT_OK);
    write_metrics(f, "my run/metrics.jsonl", 50, 1);
    assert_int_equal(report_open(f->account, folders, 1, &r), OTT_OK);
    const report_summary *s = &r->runs[0].summary;
    assert_string_equal(s->label, "my run");
    assert_int_equal(s->steps, 50);
    assert_true(fabs(s->train_loss - (2 + 4 * exp(-2.5))) < 1e-6);
    assert_true(fabs(s->val_loss - 1.05 * (2 + 4 * exp(-2))) < 1e-6);
    assert_true(s->tokens_per_second == 1026); /* the median over the steps */
    assert_int_equal(report_table(r, &text), OTT_OK);
    assert_non_null(strstr(text.text, "my run: has no summary.json"));
    str_free(&text);
    drawn_page p = drawn_open(f, r, NULL);
    assert_drawn(&p, "* Not finished");
    drawn_close(&p);
    report_close(r);
}

/* Lines that are not metrics are counted. The report is made of all other lines. */
static void damaged_metrics(void **state) {
    folder *f = *state;
    const char *folders[] = {f->path};
    report *r;
    str text = {.account = f->account};
    folder_write_text(f, "metrics.jsonl",
                      "{\"step\":1,\"loss\":4}\nnoise\n{\"step\":2,\"loss\":3}\n{\"step\":3,\"loss\":2\n");
    assert_int_equal(report_open(f->account, folders, 1, &r), OTT_OK);
    assert_true(r->runs[0].summary.train_loss == 3);
    assert_int_equal(report_table(r, &text), OTT_OK);
    assert_non_null(strstr(text.text, "skipped 2 damaged lines of metrics.jsonl (one is line 2)"));
    str_free(&text);
    report_close(r);
}

/* ---- the table ---- */

static void table(void **state) {
    folder *f = *state;
    made m;
    str text = {.account = f->account};
    make_runs(f, &m);
    report *r = open_report(f, &m, RUNS);
    assert_int_equal(r->count, RUNS);
    assert_int_equal(report_table(r, &text), OTT_OK);
    assert_string_equal(
        text.text,
        "run            | train loss | val loss | gap to first | tokens/s | peak memory | FP8 GEMMs\n"
        "---------------+------------+----------+--------------+----------+-------------+----------\n"
        "bf16           |     2.0000 |   2.1000 |            - |    1,100 |    3.00 MiB |         0\n"
        "fp8 tensorwise |     2.0100 |   2.1105 |       +0.50% |      900 |    4.00 MiB |    16,800\n"
        "fp8 <é> & \"x\"  |     2.1000 |   2.2050 |       +5.00% |      950 |    5.00 GiB |    16,800\n"
        "fp8 tensorwise: validation loss +0.50%: one seed each cannot distinguish it from BF16 "
        "(seeds alone differ by up to about 1.5%)\n"
        "fp8 <é> & \"x\": validation loss +5.00%: worse than BF16, by more than seeds differ (about "
        "1.5%)\n");
    str_free(&text);
    report_close(r);
}

/* Returns the verdict on an FP8 run compared with another run. */
static report_verdict judge(folder *f, report_summary first, report_summary second, double *gap) {
    char a[128], b[128];
    const char *folders[] = {a, b};
    report *r;
    snprintf(a, sizeof a, "%s", folder_file(f, "x"));
    snprintf(b, sizeof b, "%s", folder_file(f, "y"));
    assert_int_equal(file_make_folder(a), OTT_OK);
    assert_int_equal(file_make_folder(b), OTT_OK);
    assert_int_equal(report_summary_write(f->account, a, &first), OTT_OK);
    assert_int_equal(report_summary_write(f->account, b, &second), OTT_OK);
    assert_int_equal(report_open(f->account, folders, 2, &r), OTT_OK);
    assert_string_equal(report_reference_name(r),
                        strcmp(first.precision, "bf16") == 0 ? "BF16" : first.label);
    assert_int_equal(report_judge(r, 0), REPORT_VERDICT_NONE);
    report_verdict verdict = report_judge(r, 1);
    *gap = report_gap_of(r, 1).percent;
    report_close(r);
    return verdict;
}

/* If each row has one seed, a gap gives a verdict only if it is larger than what a seed can cause. */
static void verdicts(void **state) {
    folder *f = *state;
    report_summary bf16 = {"ref", "bf16", "", .train_loss = 2, .val_loss = NAN}, fp8 = bf16;
    double gap;
    fp8.fp8_gemms = 1;
    fp8.train_loss = 2.0299;
    assert_int_equal(judge(f, bf16, fp8, &gap), REPORT_VERDICT_ONE_SEED);
    assert_true(fabs(gap - 1.495) < 1e-9);
    fp8.train_loss = 2.0301;
    assert_int_equal(judge(f, bf16, fp8, &gap), REPORT_VERDICT_WORSE);
    fp8.train_loss = 1.9701; /* a lower loss is not a problem */
    assert_int_equal(judge(f, bf16, fp8, &gap), REPORT_VERDICT_ONE_SEED);
    fp8.train_loss = 1.9;
    assert_int_equal(judge(f, bf16, fp8, &gap), REPORT_VERDICT_NO_WORSE);
    assert_true(fabs(gap + 5) < 1e-9);
    fp8.train_loss = NAN; /* the run diverged */
    assert_int_equal(judge(f, bf16, fp8, &gap), REPORT_VERDICT_WORSE);
    assert_true(isnan(gap));
    fp8.train_loss = 2;
    fp8.val_loss = 9; /* the first run has no validation loss, so the training losses are compared */
    assert_int_equal(judge(f, bf16, fp8, &gap), REPORT_VERDICT_ONE_SEED);
    bf16.val_loss = 8;
    assert_int_equal(judge(f, bf16, fp8, &gap), REPORT_VERDICT_WORSE);
    assert_true(fabs(gap - 12.5) < 1e-9);
    /* two runs of one kind, FP8 or bf16, get no verdict */
    assert_int_equal(judge(f, fp8, fp8, &gap), REPORT_VERDICT_NONE);
    assert_int_equal(judge(f, bf16, bf16, &gap), REPORT_VERDICT_NONE);
    bf16.precision = "fp32";
    fp8.val_loss = 8;
    assert_int_equal(judge(f, bf16, fp8, &gap), REPORT_VERDICT_ONE_SEED);
}

/* ---- seeds ---- */

typedef struct seeded {
    const char *label, *precision;
    int seed;
    double val_loss;
    const char *more; /* further lines of config.toml */
} seeded;

enum { MOST_SEEDED = 16 };

/* Writes the files of the runs, and opens a report. */
static report *open_seeded(folder *f, const seeded *runs, int count) {
    static char path[MOST_SEEDED][128];
    const char *folders[MOST_SEEDED];
    char name[64], text[512];
    report *r;
    for (int i = 0; i < count; i++) {
        bool fp8 = strcmp(runs[i].precision, "fp8") == 0;
        report_summary s = {.label = runs[i].label, .precision = runs[i].precision, .recipe = ""};
        s.steps = 100;
        s.train_loss = s.val_loss = runs[i].val_loss;
        s.fp8_gemms = fp8 ? 1000 : 0;
        s.peak_memory_bytes = (1 + i) << 20;
        snprintf(path[i], sizeof path[i], "%s",
                 folder_file(f, (snprintf(name, sizeof name, "r%d", i), name)));
        folders[i] = path[i];
        assert_int_equal(file_make_folder(path[i]), OTT_OK);
        assert_int_equal(report_summary_write(f->account, path[i], &s), OTT_OK);
        snprintf(name, sizeof name, "r%d/config.toml", i);
        snprintf(text, sizeof text,
                 "[run]\ndir = \"r%d\"\n[train]\nseed = %d\ndata_seed = -1\nmixed_precision = \"%s\"\n"
                 "[float8]\nrecipe_name = \"%s\"\n%s",
                 i, runs[i].seed, runs[i].precision, fp8 || i % 2 ? "tensorwise" : "rowwise", runs[i].more);
        folder_write_text(f, name, text);
        snprintf(name, sizeof name, "r%d/metrics.jsonl", i);
        snprintf(text, sizeof text, "{\"step\":1,\"loss\":%g}\n{\"step\":%d,\"loss\":%s}\n", 2.0 + i, 50 + i,
                 isnan(runs[i].val_loss) ? "null" : "2");
        folder_write_text(f, name, text);
    }
    if (report_open(f->account, folders, count, &r) != OTT_OK) fail_msg("%s", status_text());
    return r;
}

/* Runs that differ only in seed and folder are one row. Rows of the same seeds are compared seed by seed. */
static void seeds_make_rows(void **state) {
    folder *f = *state;
    static const seeded runs[] = {
        {"bf16-s1", "bf16", 1, 2.00, ""}, {"bf16-s2", "bf16", 2, 2.20, ""}, {"bf16-s3", "bf16", 3, 2.40, ""},
        {"fp8-s1", "fp8", 1, 2.01, ""},   {"fp8-s2", "fp8", 2, 2.22, ""},   {"fp8-s3", "fp8", 3, 2.40, ""},
        {"fp8-s3", "fp8", 3, 2.40, ""}, /* a seed that occurs twice counts once */
    };
    report *r = open_seeded(f, runs, 7);
    str text = {.account = f->account};
    assert_int_equal(r->row_count, 3);
    assert_int_equal(r->rows[0].count, 3);
    assert_int_equal(r->rows[1].count, 3);
    assert_string_equal(r->rows[1].mean.label, "fp8 (3 seeds)");
    assert_true(fabs(r->rows[0].mean.val_loss - 2.2) < 1e-12);
    assert_true(fabs(r->rows[0].val_error - 0.2 / sqrt(3)) < 1e-12);
    assert_true(r->rows[0].mean.peak_memory_bytes == 3 << 20);
    /* the gaps 0.01, 0.02 and 0 have the mean 0.01, with a standard error of 0.01/sqrt(3) */
    report_gap gap = report_gap_of(r, 1);
    assert_true(fabs(gap.percent - 100 * 0.01 / 2.2) < 1e-9);
    assert_true(fabs(gap.error - 100 * 0.01 / sqrt(3) / 2.2) < 1e-9);
    assert_true(fabs(gap.margin / gap.error - 2.920) < 1e-9);
    assert_int_equal(report_judge(r, 1), REPORT_VERDICT_OPEN); /* 0.45% + 0.77% uncertainty > 1% */
    /* The losses are 2.40 for one seed, and 2.2 +- 0.2 for three seeds. So the error is 0.2 sqrt(1/3 +
       1/1). */
    gap = report_gap_of(r, 2);
    assert_true(fabs(gap.error - 100 * 0.2 * sqrt(4.0 / 3) / 2.2) < 1e-9);
    assert_int_equal(report_table(r, &text), OTT_OK);
    assert_non_null(strstr(text.text, "bf16 (3 seeds) | 2.2000 ± 0.1155 | 2.2000 ± 0.1155 |"));
    assert_non_null(strstr(text.text, " +0.45% ± 0.26% |"));
    assert_non_null(strstr(text.text,
                           "fp8 (3 seeds): validation loss +0.45% ± 0.26%: at most 1% worse than "
                           "BF16: not settled by these seeds (at most +1.22% with 95% confidence)\n"));
    assert_non_null(strstr(text.text, "standard error of the mean over the seeds"));
    str_free(&text);
    assert_int_equal(report_json(r, &text), OTT_OK);
    assert_non_null(strstr(text.text, "\"verdict\": \"not settled\""));
    assert_non_null(strstr(text.text, "\"seed\": 3,"));
    assert_int_equal(occurrences(text.text, "\"folder\""), 7);
    str_free(&text);
    drawn_page p = drawn_open(f, r, NULL);
    assert_drawn(&p, "<span class=\"pill open\">not settled by these seeds, compared with BF16</span>");
    drawn_close(&p);
    report_close(r);
}

/* A verdict needs one-sided 95% confidence: that FP8 is at most 1% worse, or that it is worse. */
static void seeds_decide(void **state) {
    folder *f = *state;
    seeded runs[] = {
        {"a", "bf16", 1, 2.00, ""}, {"a", "bf16", 2, 2.20, ""}, {"a", "bf16", 3, 2.40, ""},
        {"b", "fp8", 1, 2.008, ""}, {"b", "fp8", 2, 2.210, ""}, {"b", "fp8", 3, 2.409, ""},
    };
    report *r = open_seeded(f, runs, 6);
    assert_int_equal(r->row_count, 2);
    assert_string_equal(r->rows[1].mean.label, "b (3 seeds)");
    assert_int_equal(report_judge(r, 1), REPORT_VERDICT_NO_WORSE);
    report_close(r);
    for (int i = 3; i < 6; i++) runs[i].val_loss += 0.05;
    r = open_seeded(f, runs, 6);
    assert_int_equal(report_judge(r, 1), REPORT_VERDICT_WORSE);
    report_close(r);
    runs[4].val_loss = NAN; /* one run diverged, so its training loss is NaN too */
    r = open_seeded(f, runs, 6);
    assert_int_equal(report_judge(r, 1), REPORT_VERDICT_WORSE);
    report_close(r);
}

/* The curve of a row is the mean of its runs, at the steps that all its runs have. */
static void seeds_share_a_curve(void **state) {
    folder *f = *state;
    static const seeded runs[] = {{"a", "bf16", 1, 2, ""}, {"a", "bf16", 2, 2, ""}};
    report *r = open_seeded(f, runs, 2);
    curve c;
    assert_int_equal(r->row_count, 1);
    assert_int_equal(curve_row_mean(r, 0, REPORT_LOSS, &c), OTT_OK);
    assert_int_equal(c.count, 1);
    assert_true(c.x[0] == 1 && c.y[0] == 2.5);
    curve_free(&c);
    report_close(r);
}

/* If runs differ in more than the precision, the differences are listed, and there is no verdict on FP8. */
static void other_models_and_data(void **state) {
    folder *f = *state;
    static const seeded runs[] = {
        {"first", "bf16", 1, 2,
         "[model]\ndim = 256\n[data]\ndataset_path = \"a.txt\"\n[eval]\ninterval = 5\n"},
        {"same", "fp8", 1, 2, "[model]\ndim = 256\n[data]\ndataset_path = \"a.txt\"\n[eval]\ninterval = 7\n"},
        {"model", "fp8", 1, 2, "[model]\ndim = 512\n[data]\ndataset_path = \"a.txt\"\n"},
        {"both", "fp8", 1, 2, "[model]\ndim = 512\nn = 3\n[data]\ndataset_path = \"b.txt\"\n"},
        /* a key that only this run's file has is not a difference */
        {"rate", "fp8", 1, 2, "[optimizer]\nlr = 0.1\n"},
        {"edited", "fp8", 1, 2, "[optimizer\n"}, /* a file that cannot be parsed is not a difference either */
        {"seeds", "bf16", 2, 2,
         "[model]\ndim = 512\n[data]\ndataset_path = \"a.txt\"\n[eval]\ninterval = 5\n"},
    };
    report *r = open_seeded(f, runs, 7);
    str text = {.account = f->account};
    assert_int_equal(r->row_count, 7);
    assert_null(r->rows[1].differs);
    assert_string_equal(r->rows[2].differs, "another model than first (model.dim = 512, not 256)");
    assert_string_equal(r->rows[3].differs,
                        "another model and other data than first (model.dim = 512, not 256; "
                        "data.dataset_path = \"b.txt\", not \"a.txt\")");
    assert_null(r->rows[4].differs);
    assert_null(r->rows[5].differs);
    assert_int_equal(report_judge(r, 1), REPORT_VERDICT_ONE_SEED);
    assert_int_equal(report_judge(r, 2), REPORT_VERDICT_NONE);
    assert_int_equal(report_table(r, &text), OTT_OK);
    assert_non_null(strstr(text.text,
                           "model: another model than first (model.dim = 512, not 256): its gap is not "
                           "due to precision alone\n"));
    assert_null(strstr(text.text, "seeds)"));
    str_free(&text);
    drawn_page p = drawn_open(f, r, NULL);
    assert_non_null(strstr(p.data, "other data than first (model.dim = 512, not 256; data.dataset_path"));
    assert_drawn(&p, "other data than first (model.dim = 512, not 256; data.dataset_path");
    drawn_close(&p);
    report_close(r);
}

/* ---- the plot ---- */

static int characters(const char *line, size_t bytes) {
    int count = 0;
    for (size_t i = 0; i < bytes; i++) count += (line[i] & 0xc0) != 0x80;
    return count;
}

/* Counts the lines of `text`. Fails if a line is wider than `width`. */
static int count_lines(const char *text, int width) {
    int lines = 0;
    for (; *text; lines++) {
        size_t bytes = strcspn(text, "\n");
        if (characters(text, bytes) > width) fail_msg("wider than %d: %.*s", width, (int)bytes, text);
        assert_int_equal(text[bytes], '\n');
        text += bytes + 1;
    }
    return lines;
}

static void plot(void **state) {
    folder *f = *state;
    made m;
    static const struct {
        int width, height, most_width, most_lines;
    } sizes[] = {{80, 20, 80, 20}, {500, 500, 80, 20}, {40, 12, 40, 12}, {1, 1, 32, 11}};
    make_runs(f, &m);
    report *r = open_report(f, &m, RUNS);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        str text = {.account = f->account};
        assert_int_equal(report_plot(r, sizes[i].width, sizes[i].height, &text), OTT_OK);
        assert_true(count_lines(text.text, sizes[i].most_width) <= sizes[i].most_lines);
        assert_non_null(strstr(text.text, "training loss"));
        assert_non_null(strstr(text.text, "A bf16\n"));
        assert_non_null(strstr(text.text, "B fp8 tensorwise\n"));
        assert_int_equal(str_utf8_error(text.text, text.length), -1);
        assert_null(strchr(text.text, '\x1b'));
        if (i == 0) {
            /* C's label is above A's and B's, and apart from both */
            assert_non_null(strstr(text.text, " C\n"));
            assert_true(strstr(text.text, " C\n") < strstr(text.text, " AB\n"));
            assert_non_null(strstr(text.text, "      4 ┤"));
            assert_non_null(strstr(text.text, "150"));
        }
        str_free(&text);
    }
    report_close(r);
}

/* Plots one straight line. Every character of the plot is known. */
static void plot_of_a_line(void **state) {
    folder *f = *state;
    const char *folders[] = {f->path};
    report *r;
    str text = {.account = f->account};
    folder_write_text(f, "metrics.jsonl", "{\"step\":0,\"loss\":3}\n{\"step\":10,\"loss\":1}\n");
    assert_int_equal(report_open(f->account, folders, 1, &r), OTT_OK);
    assert_int_equal(report_plot(r, 32, 8, &text), OTT_OK);
    assert_string_equal(text.text, "         training loss by step\n"
                                   "      3 ┤⠉⠓⠦⣄⣀\n"
                                   "        │    ⠈⠙⠒⠦⣄⡀\n"
                                   "      2 ┤         ⠉⠙⠲⢤⣀⡀\n"
                                   "        │              ⠉⠓⠦⢤⣀\n"
                                   "      1 ┤                  ⠈⠉⠓⠦⣄\n"
                                   "        └┴─────────────────────┴\n"
                                   "         0                    10\n");
    str_free(&text);
    report_close(r);
}

static void plot_without_data(void **state) {
    folder *f = *state;
    const char *folders[] = {f->path};
    report *r;
    str text = {.account = f->account};
    folder_write_text(f, "metrics.jsonl", "{\"step\":1,\"loss\":null}\n");
    assert_int_equal(report_open(f->account, folders, 1, &r), OTT_OK);
    assert_int_equal(report_plot(r, 80, 20, &text), OTT_OK);
    assert_non_null(strstr(text.text, "no training loss to plot"));
    str_free(&text);
    drawn_page p = drawn_open(f, r, NULL);
    assert_not_drawn(&p, "<figure");
    drawn_close(&p);
    folder_write_text(f, "metrics.jsonl", "{\"step\":7,\"loss\":2}\n"); /* a run with a single point */
    report_close(r);
    assert_int_equal(report_open(f->account, folders, 1, &r), OTT_OK);
    assert_int_equal(report_plot(r, 80, 20, &text), OTT_OK);
    assert_non_null(strstr(text.text, "      2 ┤"));
    str_free(&text);
    p = drawn_open(f, r, NULL);
    assert_drawn(&p, "<polyline class=\"line s0 first\" points=\"558,138\"");
    drawn_close(&p);
    report_close(r);
}

/* ---- the page ---- */

static void page(void **state) {
    folder *f = *state;
    made m;
    make_runs(f, &m);
    folder_write_text(f, "a/config.toml", "[train]\nseed = 1\n");
    folder_write_text(f, "b/config.toml", "[train]\nseed = 1\nname = \"<script>alert(1)</script>\"");
    folder_write_text(f, "c/sample.txt", "Thou </pre> & I\x01\xff\n");
    report *r = open_report(f, &m, RUNS);
    drawn_page p = drawn_open(f, r, "A & <B>");
    assert_drawn(&p, "<title>A &amp; &lt;B&gt;</title>");
    assert_drawn(&p, "1,234,567 parameters · 200 steps · 409,600 tokens");
    assert_drawn(
        &p, "fp8 &lt;é&gt; &amp; &quot;x&quot;</td><td data-heading=\"Gap to first\">+5.00%</td>"
            "<td data-heading=\"Validation loss\">2.2050</td><td data-heading=\"Training loss\">2.1000</td>"
            "<td data-heading=\"Tokens/s\">950</td><td data-heading=\"Peak memory\">5.00 GiB</td>"
            "<td data-heading=\"FP8 GEMMs\">16,800</td><td data-heading=\"Time\">0:01:10</td></tr>");
    assert_drawn(&p, "<span class=\"pill open\">one seed cannot distinguish it from BF16</span>");
    assert_drawn(&p, "<span class=\"pill no\">worse than BF16</span>");
    assert_drawn(
        &p, "[train]\nseed = 1\n<mark>name = &quot;&lt;script&gt;alert(1)&lt;/script&gt;&quot;</mark>\n");
    assert_drawn(&p, "Thou &lt;/pre&gt; &amp; I\x01\xef\xbf\xbd\n");
    assert_drawn_times(&p, "<figure ", 5);
    /* 3 curves of 10 validation losses, and 2 curves of 10 gaps */
    assert_drawn_times(&p, "<circle ", 3 * 10 + 2 * 10);
    assert_drawn(&p, "<title>fp8 tensorwise, step 20: 0.5000%</title>");
    assert_drawn(&p, ">Loss gap to BF16<");
    assert_not_drawn(&p, "NaN");
    drawn_close(&p);
    report_close(r);
    r = open_report(f, &m, 1);
    p = drawn_open(f, r, NULL);
    assert_drawn(&p, "<h1>bf16</h1>");
    assert_not_drawn(&p, "Loss gap");
    assert_not_drawn(&p, "<span class=\"pill");
    drawn_close(&p);
    report_close(r);
}

/* On a narrow page, charts have the screen's width, so that their text is readable. Each row of a table
   becomes several lines, each with its column's heading. */
static void narrow_page(void **state) {
    folder *f = *state;
    made m;
    make_runs(f, &m);
    report *r = open_report(f, &m, RUNS);
    drawn_page wide = drawn_open(f, r, NULL), narrow = drawn_open_narrow(f, r, NULL);
    assert_drawn_times(&wide, "viewBox=\"0 0 530 300\"", 3);
    assert_drawn_times(&wide, "viewBox=\"0 0 255 300\"", 2);
    assert_drawn_times(&narrow, "viewBox=\"0 0 340 300\"", 5);
    assert_non_null(strstr(narrow.text.text, "td::before{content:attr(data-heading)"));
    drawn_close(&wide);
    drawn_close(&narrow);
    report_close(r);
}

/* Run names of any characters are shown as plain text. The page loads nothing from other servers. */
static void hostile_names(void **state) {
    folder *f = *state;
    static const char *const names[] = {"</script><script>x()</script>", "<!--<script>", "\xff\x01\x7f\"\\",
                                        "@DATA@"};
    const char *folders[] = {f->path};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const report_summary s = {.label = names[i], .precision = names[i], .recipe = names[i]};
        report *r;
        assert_int_equal(report_summary_write(f->account, f->path, &s), OTT_OK);
        folder_write_text(f, "sample.txt", names[i]);
        folder_write_text(f, "config.toml", names[i]);
        assert_int_equal(report_open(f->account, folders, 1, &r), OTT_OK);
        drawn_page p = drawn_open(f, r, names[i]);
        assert_int_equal(occurrences(p.text.text, "</script>"), 2); /* the template's two script elements */
        assert_int_equal(occurrences(p.text.text, "http://"), 1);   /* only the name of SVG's namespace */
        assert_non_null(strstr(p.text.text, "\"http://www.w3.org/2000/svg\""));
        assert_null(strstr(p.text.text, "https:"));
        assert_null(strstr(p.text.text, "url("));
        assert_int_equal(occurrences(p.text.text, "<noscript>"), 1);
        assert_not_drawn(&p, "<script");
        drawn_close(&p);
        report_close(r);
    }
}

/* Checks the coordinates of a chart with known points. The chart has 530 x 300 pixels: 56 left of the frame,
   20 right, 10 above and 34 below it. A margin of 3% is above and below the curve. */
static void chart_places_points(void **state) {
    folder *f = *state;
    const char *folders[] = {f->path};
    report *r;
    folder_write_text(
        f, "metrics.jsonl",
        "{\"step\":0,\"val_loss\":10}\n{\"step\":50,\"val_loss\":5}\n{\"step\":100,\"val_loss\":0}\n");
    assert_int_equal(report_open(f->account, folders, 1, &r), OTT_OK);
    drawn_page p = drawn_open(f, r, NULL);
    assert_non_null(strstr(p.data, "\"val_loss\": [[0,10], [50,5], [100,0]]"));
    assert_drawn(&p, "points=\"56,17.2 283,138 510,258.8\"");
    assert_drawn(&p, " cx=\"283\" cy=\"138\"><title>");
    assert_drawn(&p, ", step 50: 5.0000</title>");
    assert_drawn(&p, ">8</text>");
    drawn_close(&p);
    report_close(r);
}

static void long_curves_keep_spikes_and_ends(void **state) {
    folder *f = *state;
    enum { POINTS = 100000 };
    void *memory;
    assert_int_equal(mem_alloc(f->account, MEM_OTHER, 2 * POINTS * 8, "points", &memory), OTT_OK);
    curve data = {.count = POINTS, .x = memory};
    data.y = data.x + POINTS;
    for (int i = 0; i < POINTS; i++) {
        data.x[i] = i;
        data.y[i] = i == 77777 ? 10 : 0;
    }
    str text = {.account = f->account};
    report_append_curve("c", &data, &text);
    assert_int_equal(str_finish(&text), OTT_OK);
    assert_true(text.length < 20000);
    assert_non_null(strstr(text.text, "\"c\": [[0,0], "));
    assert_non_null(strstr(text.text, " [77777,10], "));
    assert_non_null(strstr(text.text, " [99999,0]]"));
    str_free(&text);
    mem_free(f->account, memory);
}

/* ---- axes and curves ---- */

static void assert_ticks(const axis *a, const char *expected) {
    char all[512] = "", label[32];
    for (int i = 0; i < a->count; i++) {
        strcat(all, i ? " " : "");
        strcat(all, axis_label(a->tick[i], label));
    }
    assert_string_equal(all, expected);
}

static void axes(void **state) {
    (void)state;
    axis a = axis_linear(0, 10, 6);
    assert_ticks(&a, "0 2 4 6 8 10");
    a = axis_linear(-1.25, 2.6, 6);
    assert_ticks(&a, "-1 0 1 2");
    a = axis_linear(1, 200000, 5);
    assert_ticks(&a, "50k 100k 150k 200k");
    a = axis_steps(1, 1000, 5);
    assert_ticks(&a, "0 250 500 750 1000");
    a = axis_steps(900, 1000, 3);
    assert_ticks(&a, "900 950 1000");
    a = axis_linear(0, 6e-4, 4);
    assert_ticks(&a, "0 2e-4 4e-4 6e-4");
    a = axis_linear(5, 5, 4);
    assert_true(a.low == 2.5 && a.high == 7.5);
    a = axis_linear(INFINITY, -INFINITY, 4); /* bounds of an empty set of points */
    assert_ticks(&a, "0 0.5 1");
    a = axis_log(1.4, 11, 8);
    assert_ticks(&a, "1.5 2 3 4 5 7 10");
    a = axis_log(0.1, 1000, 6);
    assert_ticks(&a, "0.1 1 10 100 1000");
    a = axis_log(1e-12, 1e12, 5);
    assert_true(a.count >= 2 && a.count <= 5);
    a = axis_log(1e3, 1.5e3, 6);
    assert_true(a.log && a.count >= 3);
    assert_true(axis_choose(1, 10, 5).log);
    assert_false(axis_choose(1, 3, 5).log);
    assert_false(axis_choose(0, 3, 5).log);
    assert_false(axis_choose(-1, 3, 5).log);
    a = axis_log(1, 100, 5);
    assert_true(fabs(axis_position(&a, 10) - 0.5) < 1e-12 && isnan(axis_position(&a, 0)));
    char label[32];
    assert_string_equal(axis_label(2.5e6, label), "2.5M");
    assert_string_equal(axis_label(1e10, label), "1e10");
    assert_string_equal(axis_label(-3e-7, label), "-3e-7");
}

static void curves(void **state) {
    folder *f = *state;
    int64_t step[] = {1, 2, 3, 4, 5};
    double value[] = {5, NAN, 3, 8, 1};
    const metrics_series s = {.account = f->account, .count = 5, .step = step, .value = value};
    const metrics_series t = {
        .account = f->account, .count = 3, .step = (int64_t[]){1, 4, 5}, .value = (double[]){4, 4, 4}};
    curve a, b, gap;
    assert_int_equal(curve_from_series(f->account, &s, &a), OTT_OK);
    assert_int_equal(a.count, 4);
    assert_true(a.x[1] == 3 && a.y[1] == 3);
    assert_int_equal(curve_from_series(f->account, &t, &b), OTT_OK);
    assert_int_equal(curve_gap(f->account, &a, &b, &gap), OTT_OK);
    assert_int_equal(gap.count, 3);
    assert_true(gap.x[0] == 1 && gap.y[0] == 25 && gap.x[1] == 4 && gap.y[1] == 100 && gap.y[2] == -75);
    assert_int_equal(curve_smooth(&a, 1), OTT_OK);
    assert_true(a.y[0] == 5 && a.y[1] == 16.0 / 3 && a.y[2] == 4 && a.y[3] == 4.5);
    curve_free(&a);
    curve_free(&b);
    curve_free(&gap);
}

static void memory_runs_out(void **state) {
    folder *f = *state;
    made m;
    report *r = NULL;
    ott_status status = OTT_ERR_MEMORY;
    make_runs(f, &m);
    folder_write_text(f, "a/config.toml", "[train]\n");
    for (int64_t n = 1; !r; n++) {
        mem_fail_after(f->account, n);
        status = report_open(f->account, m.folders, RUNS, &r);
        assert_true(status == (r ? OTT_OK : OTT_ERR_MEMORY));
    }
    for (int64_t n = 1; n < 60; n++) {
        str text = {.account = f->account};
        mem_fail_after(f->account, n);
        status = n % 3 == 0   ? report_table(r, &text)
                 : n % 3 == 1 ? report_plot(r, 80, 20, &text)
                              : report_html(r, NULL, &text);
        assert_true(status == OTT_OK || status == OTT_ERR_MEMORY);
        str_free(&text);
    }
    mem_fail_after(f->account, 0);
    assert_int_equal(status, OTT_OK); /* the last call needs fewer than 59 allocations */
    report_close(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(summary_round_trip, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(bad_folders, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(unfinished_run, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(damaged_metrics, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(table, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(verdicts, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(seeds_make_rows, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(seeds_decide, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(seeds_share_a_curve, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(other_models_and_data, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(plot, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(plot_of_a_line, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(plot_without_data, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(page, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(chart_places_points, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(narrow_page, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(hostile_names, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(long_curves_keep_spikes_and_ends, folder_setup, folder_teardown),
        cmocka_unit_test(axes),
        cmocka_unit_test_setup_teardown(curves, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(memory_runs_out, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
