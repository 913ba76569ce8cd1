/* report/json: the rows of the comparison for programs to read. */
#include "base/number.h"
#include "report/data.h"
#include <inttypes.h>
#include <string.h>

static void append_name(const char *key, str *out) {
    str_printf(out, ", \"%s\": ", key);
}

static void append_text(const char *key, const char *text, str *out) {
    append_name(key, out);
    str_append_json(out, text, (int64_t)strlen(text));
}

/* null where there is none. */
static void append_real(const char *key, double value, str *out) {
    char number[32];
    append_name(key, out);
    str_append(out, number_metric(value, number));
}

static void append_integer(const char *key, int64_t value, str *out) {
    append_name(key, out);
    str_printf(out, "%" PRId64, value);
}

static void append_runs(const report *r, int index, str *out) {
    append_name("runs", out);
    for (int i = 0; i < r->rows[index].count; i++) {
        const report_run_data *run = report_row_run(r, index, i);
        str_append(out, i ? ", {\"folder\": " : "[{\"folder\": ");
        str_append_json(out, run->folder, (int64_t)strlen(run->folder));
        if (run->seeded) append_integer("seed", run->seed, out);
        append_real("train_loss", run->summary.train_loss, out);
        append_real("val_loss", run->summary.val_loss, out);
        append_name("finished", out);
        str_append(out, run->finished ? "true}" : "false}");
    }
    str_append(out, "]");
}

static void append_gap(const report *r, int index, str *out) {
    report_gap gap = report_gap_of(r, index);
    report_verdict verdict = report_judge(r, index);
    append_real("gap_percent", gap.percent, out);
    append_real("gap_error", gap.error, out);
    append_real("gap_margin", gap.margin, out);
    append_text("gap_of", gap.validation ? "val_loss" : "train_loss", out);
    if (verdict != REPORT_VERDICT_NONE) append_text("verdict", report_verdict_name(verdict), out);
    if (r->rows[index].differs) append_text("differs", r->rows[index].differs, out);
}

static void append_row(const report *r, int index, str *out) {
    const report_row *row = &r->rows[index];
    const report_summary *s = &row->mean;
    str_append(out, "{\"label\": ");
    str_append_json(out, s->label, (int64_t)strlen(s->label));
    append_text("precision", s->precision, out);
    append_text("recipe", s->recipe, out);
    append_integer("steps", s->steps, out);
    append_integer("tokens", s->tokens, out);
    append_integer("parameters", s->parameters, out);
    append_real("train_loss", s->train_loss, out);
    append_real("train_loss_error", row->train_error, out);
    append_real("val_loss", s->val_loss, out);
    append_real("val_loss_error", row->val_error, out);
    append_real("tokens_per_second", s->tokens_per_second, out);
    append_real("seconds", s->seconds, out);
    append_integer("peak_memory_bytes", s->peak_memory_bytes, out);
    append_integer("fp8_gemms", s->fp8_gemms, out);
    if (index > 0) append_gap(r, index, out);
    append_runs(r, index, out);
    str_append(out, "}");
}

ott_status report_json(const report *r, str *out) {
    str_append(out, "{\"report\": \"runs\", \"rows\": [");
    for (int i = 0; i < r->row_count; i++) {
        str_append(out, i ? ",\n" : "\n");
        append_row(r, i, out);
    }
    str_append(out, "\n]}\n");
    return str_finish(out);
}
