/* report/health_html: the section of report.html on what was measured of FP8: for each run a heat map of
 * all measurements and a table of the last. */
#include "report/chart.h"
#include "base/number.h"
#include "report/page.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MOST_USES = 40, MOST_LEFT = 20 };

/* ---- the table ---- */

static void append_name(const char *text, str *out) {
    str_append(out, "<td>");
    html_append_text(out, text);
    str_append(out, "</td>");
}

static const char *digits(double x, char out[32]) {
    return isnan(x) ? "–" : number_digits(x, 4, out);
}

/* One scale, or the smallest and the largest. */
static void append_scale(const metrics_use *use, str *out) {
    char low[32], high[32];
    str_printf(out, "<td>%s", digits(use->scale_min, low));
    if (use->scale_min != use->scale_max && !isnan(use->scale_max))
        str_printf(out, " to %s", digits(use->scale_max, high));
    str_append(out, "</td>");
}

static void append_share(double share, str *out) {
    char text[32];
    str_printf(out, "<td>%s%s</td>", digits(100 * share, text), isnan(share) ? "" : "%");
}

static void append_use(const metrics_health *h, const metrics_use *use, str *out) {
    char text[32];
    str_append(out, "<tr>");
    append_name(h->modules[use->module].name, out);
    append_name(use->tensor, out);
    append_name(use->gemm, out);
    append_name(use->format, out);
    str_printf(out, "<td>%s</td>", digits(use->amax, text));
    append_scale(use, out);
    append_share(use->saturated, out);
    append_share(use->underflowed, out);
    report_sqnr_text(use, text);
    str_printf(out, "<td>%s</td>", strcmp(text, "-") == 0 ? "–" : text);
    double rank = report_use_rank(use);
    str_printf(out, "<td>%s</td></tr>\n", isinf(rank) ? "–" : number_digits(rank, 3, text));
}

static ott_status append_table(const metrics_health *h, str *out) {
    const metrics_use **worst;
    int64_t count;
    char number[32];
    TRY(report_worst_uses(h->account, h, &worst, &count));
    str_append(out,
               "<div class=\"scroll uses\"><table>\n<thead><tr><th>Module</th><th>Tensor</th><th>GEMM</th>"
               "<th>Format</th><th>amax</th><th>Scale</th><th>Saturated</th><th>Underflowed</th><th>SQNR</th>"
               "<th>To format's</th></tr>"
               "</thead>\n<tbody>\n");
    for (int64_t i = 0; i < count && i < MOST_USES; i++) append_use(h, worst[i], out);
    str_append(out, "</tbody>\n</table></div>\n");
    mem_free(h->account, worst);
    str_printf(
        out, "<p class=\"note\">The last measurement, at step %" PRId64 ", lowest beside its format's first",
        h->uses[h->last].step);
    if (count > MOST_USES)
        str_printf(out, "; %s more uses of tensors are not shown", str_commas(count - MOST_USES, number));
    str_append(out, ".</p>\n");
    return OTT_OK;
}

/* ---- a run ---- */

static void append_left(const report_run_data *run, str *out) {
    const metrics_module *modules = run->health.modules;
    int64_t count = 0;
    for (int64_t i = report_next_left_fp8(run, 0); i >= 0; i = report_next_left_fp8(run, i + 1)) {
        if (count++ >= MOST_LEFT) continue;
        str_append(out, count == 1 ? "<p class=\"facts\">Left FP8, by fallback or by schedule: " : ", ");
        html_append_text(out, modules[i].name);
        str_printf(out, " (after step %" PRId64 ")", modules[i].last_step);
    }
    if (count > MOST_LEFT) str_printf(out, " and %" PRId64 " more modules", count - MOST_LEFT);
    if (count > 0) str_append(out, ".</p>\n");
}

static void append_figure(const heatmap *m, double lowest, str *out) {
    char number[32];
    str_append(out,
               "<figure class=\"full\"><figcaption>Lowest SQNR of each module<span>Signal to quantization "
               "noise ratio of the worst of the module's tensors, less what its format gives of a good "
               "distribution: 31.5 dB in E4M3, 25.6 dB in E5M2. ");
    str_printf(out, "Measurements: %s.", str_commas(m->health->measurements, number));
    if (m->left_out > 0)
        str_printf(out, " Not drawn: %s modules with higher SQNR.", str_commas(m->left_out, number));
    str_append(out, "</span></figcaption>\n");
    str_append(out, "<div class=\"pan\">\n");
    heatmap_append(m, lowest, out);
    str_append(out, "</div></figure>\n");
}

static ott_status append_run(const report *r, int row, const heatmap *m, double lowest, str *out) {
    const report_run_data *run = report_row_run(r, row, 0);
    str_append(out, "<h3>");
    report_append_swatch(row, out);
    html_append_text(out, run->summary.label);
    str_append(out, "</h3>\n");
    append_left(run, out);
    append_figure(m, lowest, out);
    return append_table(&run->health, out);
}

/* All share one scale of colours. */
static ott_status append_runs(const report *r, heatmap *maps, str *out) {
    double lowest = 0;
    for (int i = 0; i < r->row_count; i++) {
        const metrics_health *health = &report_row_run(r, i, 0)->health;
        if (health->count == 0) continue;
        TRY(heatmap_open(health, &maps[i]));
        lowest = fmin(lowest, heatmap_lowest(&maps[i]));
    }
    str_append(out, "<h2>What FP8 does to the tensors</h2>\n");
    for (int i = 0; i < r->row_count; i++)
        if (maps[i].health) TRY(append_run(r, i, &maps[i], lowest, out));
    return str_finish(out);
}

ott_status report_append_health(const report *r, str *out) {
    void *memory;
    bool any = false;
    for (int i = 0; i < r->row_count; i++) any |= report_row_run(r, i, 0)->health.count > 0;
    if (!any) return OTT_OK;
    TRY(mem_alloc_array(r->account, MEM_OTHER, r->row_count, sizeof(heatmap), "heat maps", &memory));
    heatmap *maps = memory;
    ott_status status = append_runs(r, maps, out);
    for (int i = 0; i < r->row_count; i++) heatmap_close(&maps[i]);
    mem_free(r->account, maps);
    return status;
}
