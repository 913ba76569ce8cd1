/* report/page: fills the template page.html with the data of the runs. Every "<" in the data is escaped, so
   that a text of a run cannot end the script element. */
#include "base/json/json_write.h"
#include "base/text/number.h"
#include "report/page.h"
#include <stdio.h>
#include <string.h>

#define DATA_MARK "@DATA@"

enum { MOST_POINTS = 700 }; /* a page cannot show more points of a curve */

static void append_point(const curve *c, int64_t i, str *out) {
    char x[32], y[32];
    json_write_key(out, NULL);
    str_printf(out, "[%s,%s]", number_json(c->x[i], x), number_digits(c->y[i], 6, y));
}

/* Appends the lowest and the highest point of a group, in the order of their steps. So curves keep their
   spikes when they are thinned. */
static void append_extremes(const curve *c, int64_t begin, int64_t end, str *out) {
    int64_t low = begin, high = begin;
    for (int64_t i = begin; i < end; i++) {
        if (c->y[i] < c->y[low]) low = i;
        if (c->y[i] > c->y[high]) high = i;
    }
    append_point(c, low < high ? low : high, out);
    if (low != high) append_point(c, low < high ? high : low, out);
}

void report_append_curve(const char *name, const curve *c, str *out) {
    int64_t groups = c->count > MOST_POINTS ? MOST_POINTS / 2 : c->count;
    if (c->count == 0) return;
    json_write_open(out, name, "[");
    if (groups < c->count) append_point(c, 0, out);
    for (int64_t g = 0; g < groups; g++)
        append_extremes(c, g * c->count / groups, (g + 1) * c->count / groups, out);
    if (groups < c->count) append_point(c, c->count - 1, out);
    str_append(out, "]");
}

static ott_status load_curve(const report *r, int row, report_key key, bool smooth, curve *out) {
    TRY(curve_row_mean(r, row, key, out));
    return smooth ? curve_smooth(out, curve_half_window(out->count)) : OTT_OK;
}

/* Appends a row's curve. gap_name not NULL: also appends its difference from row 0's curve, in percent. */
static ott_status append_curve(const report *r, int row, report_key key, bool smooth, const char *name,
                               const char *gap_name, str *out) {
    curve c = {0}, first = {0}, gap = {0};
    ott_status status;
    TRY_OUT(load_curve(r, row, key, smooth, &c));
    report_append_curve(name, &c, out);
    status = OTT_OK;
    if (!gap_name || row == 0) goto out;
    TRY_OUT(load_curve(r, 0, key, smooth, &first));
    TRY_OUT(curve_gap(r->account, &c, &first, &gap));
    report_append_curve(gap_name, &gap, out);
out:
    curve_free(&c);
    curve_free(&first);
    curve_free(&gap);
    return status;
}

/* Appends the loss curves. Omits the curve without smoothing if smoothing does not change it. */
static ott_status append_curves(const report *r, int row, str *out) {
    curve logged = {0};
    json_write_open(out, "curves", "{");
    TRY(curve_row_mean(r, row, REPORT_LOSS, &logged));
    if (curve_half_window(logged.count) > 0) report_append_curve("logged_loss", &logged, out);
    curve_free(&logged);
    TRY(append_curve(r, row, REPORT_LOSS, true, "loss", "gap", out));
    TRY(append_curve(r, row, REPORT_VAL_LOSS, false, "val_loss", "val_gap", out));
    TRY(append_curve(r, row, REPORT_LR, false, "lr", NULL, out));
    TRY(append_curve(r, row, REPORT_GRAD_NORM, true, "grad_norm", NULL, out));
    str_append(out, "}");
    return OTT_OK;
}

/* Appends the full verdict, or the differences that prevent one. */
static ott_status append_note(const report *r, int row, str *out) {
    const char *differs = r->rows[row].differs;
    str note = {.account = r->account};
    if (row == 0 || (!differs && report_judge(r, row) == REPORT_VERDICT_NONE)) return OTT_OK;
    if (differs)
        str_printf(&note, "%s: its gap is not due to precision alone.", differs);
    else
        report_verdict_text(r, row, &note);
    ott_status status = str_finish(&note);
    if (status == OTT_OK) json_write_text(out, "note", note.text);
    str_free(&note);
    return status;
}

static ott_status append_row_data(const report *r, int row, str *out) {
    const report_run_data *run = report_row_run(r, row, 0);
    str_append(out, row ? ",\n{" : "\n{");
    report_append_row(r, row, out);
    TRY(append_note(r, row, out));
    TRY(append_curves(r, row, out));
    TRY(report_append_health(r, row, out));
    if (run->sample) json_write_text(out, "sample", run->sample);
    if (run->config) json_write_text(out, "config", run->config);
    str_append(out, "}");
    return OTT_OK;
}

static ott_status append_data(const report *r, const char *title, str *out) {
    str_append(out, "{");
    char runs[48];
    snprintf(runs, sizeof runs, "%d runs compared", r->count);
    json_write_text(out, "title", title ? title : r->row_count == 1 ? r->rows[0].mean.label : runs);
    json_write_text(out, "reference", report_reference_name(r));
    json_write_open(out, "format_sqnr", "{");
    json_write_real(out, "e4m3", report_format_sqnr("e4m3"));
    json_write_real(out, "e5m2", report_format_sqnr("e5m2"));
    str_append(out, "}");
    json_write_open(out, "rows", "[");
    for (int i = 0; i < r->row_count; i++) TRY(append_row_data(r, i, out));
    str_append(out, "\n]}");
    return str_finish(out);
}

static void append_escaped_data(const char *json, str *out) {
    for (size_t plain; *json; json += plain + (json[plain] == '<')) {
        plain = strcspn(json, "<");
        str_append_bytes(out, json, (int64_t)plain);
        if (json[plain]) str_append(out, "\\u003c");
    }
}

ott_status report_html(const report *r, const char *title, str *out) {
    const char *mark = strstr(report_page_template, DATA_MARK);
    str data = {.account = r->account};
    ott_status status = append_data(r, title, &data);
    if (status == OTT_OK) {
        str_append_bytes(out, report_page_template, mark - report_page_template);
        append_escaped_data(data.text, out);
        str_append(out, mark + strlen(DATA_MARK));
        status = str_finish(out);
    }
    str_free(&data);
    return status;
}
