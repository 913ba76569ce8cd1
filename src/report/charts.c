/* report/charts: which curves report.html shows, and how they are made from the metrics. */
#include "report/chart.h"
#include "report/page.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDE = 530, NARROW = 255, FULL = 1080, HEIGHT = 300 };

typedef struct run_curves {
    curve loss, mean_loss; /* each logged step; moving average */
    curve val_loss, lr, norm;
    curve gap,
        val_gap; /* to the first run, in percent; of the moving averages, and of the validation losses */
} run_curves;

typedef struct figures {
    const report *r;
    run_curves *runs;  /* [r->row_count]: of each row the mean over its runs */
    chart_line *lines; /* [2 * r->row_count]: of the chart being made */
    int count;         /* lines in use */
    bool smoothed;     /* some moving average differs from what was logged */
} figures;

static ott_status load_run(const report *r, int index, run_curves *c) {
    TRY(curve_of_row(r, index, REPORT_LOSS, &c->loss));
    TRY(curve_of_row(r, index, REPORT_LOSS, &c->mean_loss));
    TRY(curve_smooth(&c->mean_loss, curve_half_window(c->loss.count)));
    TRY(curve_of_row(r, index, REPORT_VAL_LOSS, &c->val_loss));
    TRY(curve_of_row(r, index, REPORT_LR, &c->lr));
    TRY(curve_of_row(r, index, REPORT_GRAD_NORM, &c->norm));
    return curve_smooth(&c->norm, curve_half_window(c->norm.count));
}

static ott_status load_gap(const report *r, run_curves *c, const run_curves *first) {
    TRY(curve_gap(r->account, &c->mean_loss, &first->mean_loss, &c->gap));
    return curve_gap(r->account, &c->val_loss, &first->val_loss, &c->val_gap);
}

static ott_status load(figures *f) {
    for (int i = 0; i < f->r->row_count; i++) {
        TRY(load_run(f->r, i, &f->runs[i]));
        f->smoothed |= curve_half_window(f->runs[i].loss.count) > 0;
        if (i > 0) TRY(load_gap(f->r, &f->runs[i], &f->runs[0]));
    }
    return OTT_OK;
}

static void release(figures *f) {
    for (int i = 0; f->runs && i < f->r->row_count; i++) {
        run_curves *c = &f->runs[i];
        curve *all[] = {&c->loss, &c->mean_loss, &c->val_loss, &c->lr, &c->norm, &c->gap, &c->val_gap};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++) curve_free(all[k]);
    }
    mem_free(f->r->account, f->runs);
    mem_free(f->r->account, f->lines);
}

/* ---- figures ---- */

static void add_line(figures *f, int run, const curve *data, chart_style style) {
    if (data->count == 0) return;
    f->lines[f->count++] =
        (chart_line){.data = data, .color = run, .style = style, .label = f->r->rows[run].mean.label};
}

static void append_figure(const char *class, const char *name, const char *note, const chart *c, str *out) {
    str_printf(out, "<figure class=\"%s\"><figcaption>", class);
    html_append_text(out, name);
    if (note[0]) str_append(out, "<span>");
    html_append_text(out, note);
    if (note[0]) str_append(out, "</span>");
    str_append(out, "</figcaption>\n");
    chart_append(out, c);
    str_append(out, "</figure>\n");
}

/* A chart of the lines added; nothing when there are none. */
static chart begin_chart(const figures *f, const char *name, int width) {
    return (chart){.name = name,
                   .width = width,
                   .height = HEIGHT,
                   .lines = f->lines,
                   .count = f->count,
                   .low = NAN,
                   .high = NAN,
                   .data_decide = true,
                   .log = true,
                   .unit = ""};
}

static bool any_validation(const figures *f) {
    for (int i = 0; i < f->r->row_count; i++)
        if (f->runs[i].val_loss.count > 0) return true;
    return false;
}

static void append_training_loss(figures *f, str *out) {
    bool wide = any_validation(f);
    f->count = 0;
    for (int i = 0; f->smoothed && i < f->r->row_count; i++) add_line(f, i, &f->runs[i].loss, CHART_FAINT);
    for (int i = 0; i < f->r->row_count; i++) add_line(f, i, &f->runs[i].mean_loss, CHART_LINE);
    if (f->count == 0) return;
    chart c = begin_chart(f, "Training loss by step", wide ? WIDE : FULL);
    append_figure(wide ? "wide" : "full", "Training loss",
                  f->smoothed ? "Thin: each logged step. Bold: moving average." : "", &c, out);
}

static void append_validation_loss(figures *f, str *out) {
    f->count = 0;
    for (int i = 0; i < f->r->row_count; i++) add_line(f, i, &f->runs[i].val_loss, CHART_POINTS);
    if (f->count == 0) return;
    chart c = begin_chart(f, "Validation loss by step", WIDE);
    append_figure("wide", "Validation loss", "", &c, out);
}

/* Widens [low, high] to the values of the last four fifths of the steps: early on, gaps are large and say
 * little. */
static void widen_late(const curve *c, double *low, double *high) {
    double from = c->count > 0 ? c->x[0] + (c->x[c->count - 1] - c->x[0]) / 5 : 0;
    for (int64_t i = 0; i < c->count; i++) {
        if (c->x[i] < from) continue;
        *low = fmin(*low, c->y[i]);
        *high = fmax(*high, c->y[i]);
    }
}

static void append_gap(figures *f, str *out) {
    char name[160];
    double low = -1.25, high = 1.25;
    bool validation = false;
    f->count = 0;
    for (int i = 1; i < f->r->row_count; i++) validation |= f->runs[i].val_gap.count > 0;
    for (int i = 1; i < f->r->row_count; i++) {
        add_line(f, i, &f->runs[i].gap, validation ? CHART_FAINT : CHART_LINE);
        widen_late(&f->runs[i].gap, &low, &high);
    }
    for (int i = 1; i < f->r->row_count; i++) {
        add_line(f, i, &f->runs[i].val_gap, CHART_POINTS);
        widen_late(&f->runs[i].val_gap, &low, &high);
    }
    if (f->count == 0) return;
    snprintf(name, sizeof name, "Loss gap to %.100s", report_reference_name(f->r));
    chart c = begin_chart(f, name, WIDE);
    c.low = low;
    c.high = high;
    c.data_decide = c.log = false;
    c.band = 1;
    c.unit = "%";
    append_figure("wide", name,
                  validation
                      ? "Above 0: worse. Marks: validation loss. Thin: training loss. Shaded: up to 1%."
                      : "Above 0: worse. Training loss. Shaded: up to 1%.",
                  &c, out);
}

static void append_small(figures *f, const char *name, const char *note, bool logarithmic, size_t which,
                         bool narrow, str *out) {
    f->count = 0;
    for (int i = 0; i < f->r->row_count; i++)
        add_line(f, i, (const curve *)((const char *)&f->runs[i] + which), CHART_LINE);
    if (f->count == 0) return;
    chart c = begin_chart(f, name, narrow ? NARROW : WIDE);
    c.log = logarithmic;
    append_figure(narrow ? "narrow" : "wide", name, note, &c, out);
}

void report_append_swatch(int run, str *out) {
    str_printf(out, "<span class=\"swatch s%d\"></span>", run % CHART_COLORS);
}

static void append_legend(const report *r, str *out) {
    str_append(out, "<ul class=\"legend\">\n");
    for (int i = 0; i < r->row_count; i++) {
        str_append(out, "<li>");
        report_append_swatch(i, out);
        str_append(out, "<b>");
        html_append_text(out, r->rows[i].mean.label);
        str_append(out, "</b></li>\n");
    }
    str_append(out, "</ul>\n");
}

static void append_all(figures *f, str *out) {
    bool gap = false;
    for (int i = 1; i < f->r->row_count; i++) gap |= f->runs[i].gap.count > 0 || f->runs[i].val_gap.count > 0;
    str_append(out, "<h2>Curves</h2>\n");
    append_legend(f->r, out);
    str_append(out, "<div class=\"charts\">\n");
    append_training_loss(f, out);
    append_validation_loss(f, out);
    append_gap(f, out);
    append_small(f, "Learning rate", "", false, offsetof(run_curves, lr), gap, out);
    append_small(f, "Gradient norm", "Before clipping.", true, offsetof(run_curves, norm), gap, out);
    str_append(out, "</div>\n");
}

ott_status report_append_charts(const report *r, str *out) {
    void *memory;
    figures f = {.r = r};
    ott_status status;
    TRY_OUT(mem_alloc_array(r->account, MEM_OTHER, r->row_count, sizeof *f.runs, "curves", &memory));
    f.runs = memory;
    TRY_OUT(
        mem_alloc_array(r->account, MEM_OTHER, r->row_count, 2 * sizeof *f.lines, "chart lines", &memory));
    f.lines = memory;
    TRY_OUT(load(&f));
    append_all(&f, out);
    status = str_finish(out);
out:
    release(&f);
    return status;
}
