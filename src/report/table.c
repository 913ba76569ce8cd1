/* report/table: the comparison as a text table, followed by verdicts and FP8 measurements. */
#include "base/text/table.h"
#include "report/internal.h"
#include <inttypes.h>

static void append_table_row(const report *r, int index, text_table *t) {
    const report_row *row = &r->rows[index];
    const report_summary *s = &row->mean;
    report_gap gap = report_gap_of(r, index);
    char text[32];
    text_table_cell(t, s->label);
    report_loss_and_error(s->train_loss, row->train_error, &t->cells);
    text_table_end_cell(t);
    report_loss_and_error(s->val_loss, row->val_error, &t->cells);
    text_table_end_cell(t);
    if (index == 0)
        str_append(&t->cells, "-");
    else
        report_gap_and_error(&gap, &t->cells);
    text_table_end_cell(t);
    text_table_cell(t, report_count_text(s->tokens_per_second, text));
    text_table_cell(t, report_bytes_text(s->peak_memory_bytes, text));
    text_table_cell(t, report_count_text((double)s->fp8_gemms, text));
}

static ott_status append_comparison(const report *r, str *out) {
    static const char *const headings[] = {"run",      "train loss",  "val loss", "gap to first",
                                           "tokens/s", "peak memory", "FP8 GEMMs"};
    enum { COLUMNS = sizeof headings / sizeof *headings };
    text_table t = {
        .columns = COLUMNS, .gap = " | ", .rule = "-+-", .right = true, .cells.account = r->account};
    for (int c = 0; c < COLUMNS; c++) text_table_cell(&t, headings[c]);
    for (int i = 0; i < r->row_count; i++) append_table_row(r, i, &t);
    return text_table_write(&t, out);
}

static void append_verdicts(const report *r, str *out) {
    bool several = false;
    for (int i = 0; i < r->row_count; i++) {
        const report_row *row = &r->rows[i];
        several |= row->count > 1;
        if (row->differs)
            str_printf(out, "%s: %s: its gap is not due to precision alone\n", row->mean.label, row->differs);
        if (report_judge(r, i) == REPORT_VERDICT_NONE) continue;
        str_printf(out, "%s: ", row->mean.label);
        report_verdict_text(r, i, out);
        str_append(out, "\n");
    }
    if (several) str_append(out, "(±: standard error of the mean over the seeds)\n");
}

static void append_phases(const report *r, str *out) {
    char steps[32], gemms[32], fp8[32];
    for (int i = 0; i < r->count; i++) {
        const report_summary *s = &r->runs[i].summary;
        for (int k = 0; s->phase_count > 1 && k < s->phase_count; k++) {
            const report_phase *p = &s->phases[k];
            str_printf(out, "%s: %s steps in %s: %s GEMMs, in FP8: %s\n", s->label,
                       report_count_text((double)p->steps, steps), p->recipe,
                       report_count_text((double)p->gemms, gemms),
                       report_count_text((double)p->fp8_gemms, fp8));
        }
    }
}

static void append_damage(const report *r, str *out) {
    for (int i = 0; i < r->count; i++) {
        const report_run_data *run = &r->runs[i];
        int64_t first = run->series[0].damaged ? run->series[0].first_damaged : run->health.first_damaged;
        int64_t lines = run->series[0].damaged + run->health.damaged;
        if (lines > 0)
            str_printf(out,
                       "%s: skipped %" PRId64 " damaged lines of metrics.jsonl (one is line %" PRId64 ")\n",
                       run->summary.label, lines, first);
    }
}

enum { WORST_USES = 5, MOST_LEFT = 5 };

static ott_status append_worst(const report_run_data *run, str *out) {
    const metrics_health *h = &run->health;
    const metrics_use **worst;
    int64_t count;
    TRY(report_worst_uses(h->account, h, &worst, &count));
    int64_t shown = count < WORST_USES ? count : WORST_USES;
    str_printf(out,
               "\n%s: lowest SQNR relative to the format's, at step %" PRId64 ", %" PRId64 " of %" PRId64
               " measured uses of tensors:\n",
               run->summary.label, h->uses[h->last].step, shown, count);
    for (int64_t i = 0; i < shown; i++) {
        char sqnr[32], sqnr_gap[32];
        str_printf(out, "  %10s  %s  %s (%s, %s%s)\n", report_sqnr_text(worst[i], sqnr),
                   h->modules[worst[i]->module].name, worst[i]->tensor, worst[i]->gemm, worst[i]->format,
                   report_sqnr_gap_text(worst[i], sqnr_gap));
    }
    mem_free(h->account, worst);
    return OTT_OK;
}

static void append_left(const report_run_data *run, str *out) {
    const metrics_module *modules = run->health.modules;
    int64_t count = 0;
    for (int64_t i = report_next_left_fp8(run, 0); i >= 0; i = report_next_left_fp8(run, i + 1))
        if (count++ < MOST_LEFT)
            str_printf(out, "%s: %s left FP8 after step %" PRId64 " (fallback or schedule)\n",
                       run->summary.label, modules[i].name, modules[i].last_step);
    if (count > MOST_LEFT)
        str_printf(out, "%s: %" PRId64 " more modules left FP8\n", run->summary.label, count - MOST_LEFT);
}

static ott_status append_health(const report *r, str *out) {
    for (int i = 0; i < r->row_count; i++) {
        const report_run_data *run = report_row_run(r, i, 0);
        if (run->health.count == 0) continue;
        TRY(append_worst(run, out));
        append_left(run, out);
    }
    return str_finish(out);
}

ott_status report_table(const report *r, str *out) {
    TRY(append_comparison(r, out));
    append_verdicts(r, out);
    for (int i = 0; i < r->count; i++)
        if (!r->runs[i].finished)
            str_printf(
                out, "%s: has no summary.json: the run is not finished; its row has the last logged values\n",
                r->runs[i].summary.label);
    append_phases(r, out);
    append_damage(r, out);
    return append_health(r, out);
}
