/* report/json: the comparison as JSON. */
#include "base/json/json_write.h"
#include "report/page.h"

static void append_runs(const report *r, int row, str *out) {
    json_write_open(out, "runs", "[");
    for (int i = 0; i < r->rows[row].count; i++) {
        const report_run_data *run = report_row_run(r, row, i);
        json_write_open(out, NULL, "{");
        json_write_text(out, "folder", run->folder);
        json_write_text(out, "label", run->summary.label);
        if (run->seeded) json_write_integer(out, "seed", run->seed);
        json_write_real(out, "train_loss", run->summary.train_loss);
        json_write_real(out, "val_loss", run->summary.val_loss);
        json_write_bool(out, "finished", run->finished);
        str_append(out, "}");
    }
    str_append(out, "]");
}

static void append_gap(const report *r, int row, str *out) {
    report_gap gap = report_gap_of(r, row);
    report_verdict verdict = report_judge(r, row);
    json_write_real(out, "gap_percent", gap.percent);
    json_write_real(out, "gap_error", gap.error);
    json_write_real(out, "gap_margin", gap.margin);
    json_write_text(out, "gap_of", gap.validation ? "val_loss" : "train_loss");
    if (verdict != REPORT_VERDICT_NONE) json_write_text(out, "verdict", report_verdict_name(verdict));
    if (r->rows[row].differs) json_write_text(out, "differs", r->rows[row].differs);
}

void report_append_row(const report *r, int row, str *out) {
    const report_summary *s = &r->rows[row].mean;
    json_write_text(out, "label", s->label);
    json_write_text(out, "precision", s->precision);
    json_write_text(out, "recipe", s->recipe);
    json_write_integer(out, "steps", s->steps);
    json_write_integer(out, "tokens", s->tokens);
    json_write_integer(out, "parameters", s->parameters);
    json_write_real(out, "train_loss", s->train_loss);
    json_write_real(out, "train_loss_error", r->rows[row].train_error);
    json_write_real(out, "val_loss", s->val_loss);
    json_write_real(out, "val_loss_error", r->rows[row].val_error);
    json_write_real(out, "tokens_per_second", s->tokens_per_second);
    json_write_real(out, "seconds", s->seconds);
    json_write_integer(out, "peak_memory_bytes", s->peak_memory_bytes);
    json_write_integer(out, "fp8_gemms", s->fp8_gemms);
    if (row > 0) append_gap(r, row, out);
    append_runs(r, row, out);
}

ott_status report_json(const report *r, str *out) {
    str_append(out, "{\"report\": \"runs\", \"rows\": [");
    for (int i = 0; i < r->row_count; i++) {
        str_append(out, i ? ",\n{" : "\n{");
        report_append_row(r, i, out);
        str_append(out, "}");
    }
    str_append(out, "\n]}\n");
    return str_finish(out);
}
