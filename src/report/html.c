/*
 * report/html: the page. It holds everything it shows and asks for nothing: no scripts, fonts or images
 * from elsewhere. Every tag is closed, so that it is well-formed XML too and a test can parse it.
 */
#include "report/chart.h"
#include "report/page.h"
#include <math.h>
#include <string.h>

/* ---- head ---- */

static void append_title(const report *r, const char *title, str *out) {
    if (title)
        html_append_text(out, title);
    else if (r->row_count == 1)
        html_append_text(out, r->rows[0].mean.label);
    else
        str_printf(out, "%d runs compared", r->count);
}

static void append_fact(const char *what, int64_t count, bool *any, str *out) {
    char number[32];
    if (count <= 0) return;
    str_printf(out, "%s%s %s", *any ? " · " : "", str_commas(count, number), what);
    *any = true;
}

/* Facts of the first run; where others differ from it, the table says so. */
static void append_head(const report *r, const char *title, str *out) {
    const report_summary *s = &r->runs[0].summary;
    bool any = false;
    str_append(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
                    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>");
    append_title(r, title, out);
    str_append(out, "</title>\n<style>\n");
    str_append(out, report_style);
    str_append(
        out,
        "</style>\n</head>\n<body>\n<main>\n<header>\n<p class=\"kicker\">Ottava training report</p>\n<h1>");
    append_title(r, title, out);
    str_append(out, "</h1>\n<p class=\"facts\">");
    append_fact("parameters", s->parameters, &any, out);
    append_fact("steps", s->steps, &any, out);
    append_fact("tokens", s->tokens, &any, out);
    str_append(out, "</p>\n</header>\n");
}

/* ---- verdicts and table ---- */

/* "no more than 1% worse", as a class and in words */
static void append_pill(const report *r, report_verdict verdict, str *out) {
    static const struct {
        const char *class, *before, *after;
    } pills[] = {[REPORT_VERDICT_NO_WORSE] = {"yes", "no more than 1% worse than ", ""},
                 [REPORT_VERDICT_WORSE] = {"no", "worse than ", ""},
                 [REPORT_VERDICT_OPEN] = {"open", "beside ", ": not settled by these seeds"},
                 [REPORT_VERDICT_ONE_SEED] = {"open", "not told from ", " by one seed"}};
    str_printf(out, "<span class=\"pill %s\">%s", pills[verdict].class, pills[verdict].before);
    html_append_text(out, report_reference_name(r));
    str_printf(out, "%s</span>", pills[verdict].after);
}

static void append_card(const report *r, int index, report_verdict verdict, str *out) {
    report_gap gap = report_gap_of(r, index);
    str_append(out, "<div class=\"card\">");
    report_append_swatch(index, out);
    str_append(out, "<b>");
    html_append_text(out, r->rows[index].mean.label);
    str_append(out, "</b><span class=\"big\">");
    report_gap_and_error(&gap, out);
    str_printf(out, "</span><span class=\"small\">%s loss against ",
               gap.validation ? "validation" : "training");
    html_append_text(out, r->rows[0].mean.label);
    str_append(out, "</span>");
    append_pill(r, verdict, out);
    str_append(out, "</div>\n");
}

static void append_cards(const report *r, str *out) {
    bool any = false;
    for (int i = 0; i < r->row_count; i++) {
        report_verdict verdict = report_judge(r, i);
        if (verdict == REPORT_VERDICT_NONE) continue;
        if (!any) str_append(out, "<section class=\"cards\">\n");
        any = true;
        append_card(r, i, verdict, out);
    }
    if (any) str_append(out, "</section>\n");
}

static void append_cell(const char *text, str *out) {
    str_printf(out, "<td>%s</td>", strcmp(text, "-") == 0 ? "–" : text);
}

static void append_loss(double loss, double error, str *out) {
    str_append(out, "<td>");
    if (isfinite(loss))
        report_loss_and_error(loss, error, out);
    else
        str_append(out, "–");
    str_append(out, "</td>");
}

/* The gap beside the name, and the loss that it is of next: what a narrow screen shows first. */
static void append_row(const report *r, int index, str *out) {
    const report_row *row = &r->rows[index];
    const report_summary *s = &row->mean;
    report_gap gap = report_gap_of(r, index);
    char text[32];
    str_append(out, "<tr><td>");
    report_append_swatch(index, out);
    html_append_text(out, s->label);
    if (!report_row_run(r, index, 0)->finished) str_append(out, " *");
    str_append(out, "</td><td>");
    if (index > 0 && isfinite(gap.percent))
        report_gap_and_error(&gap, out);
    else
        str_append(out, "–");
    str_append(out, "</td>");
    append_loss(s->val_loss, row->val_error, out);
    append_loss(s->train_loss, row->train_error, out);
    append_cell(report_count_text(s->tokens_per_second, text), out);
    append_cell(report_bytes_text(s->peak_memory_bytes, text), out);
    append_cell(report_count_text((double)s->fp8_gemms, text), out);
    append_cell(isfinite(s->seconds) ? str_duration(s->seconds, text) : "-", out);
    str_append(out, "</tr>\n");
}

/* What the verdicts say in full, and what else differs. */
static void append_notes(const report *r, str *out) {
    bool unfinished = false;
    str said = {.account = r->account};
    for (int i = 0; i < r->count; i++) unfinished |= !r->runs[i].finished;
    if (unfinished) str_append(out, "<p class=\"note\">* Not finished: what it logged last.</p>\n");
    for (int i = 1; i < r->row_count; i++) {
        const report_row *row = &r->rows[i];
        if (!row->differs && report_judge(r, i) == REPORT_VERDICT_NONE) continue;
        str_printf(&said, "%s: ", row->mean.label);
        if (row->differs)
            str_printf(&said, "%s: its gap is not the precision's.", row->differs);
        else
            report_verdict_text(r, i, &said);
        str_append(out, "<p class=\"note\">");
        if (str_finish(&said) == OTT_OK) html_append_text(out, said.text);
        str_append(out, "</p>\n");
        str_free(&said);
    }
}

static void append_table(const report *r, str *out) {
    str_append(out, "<div class=\"scroll\"><table>\n<thead><tr><th>Run</th><th>Gap to first</th>"
                    "<th>Validation loss</th><th>Training loss</th><th>Tokens/s</th><th>Peak memory</th>"
                    "<th>FP8 GEMMs</th><th>Time</th></tr></thead>\n<tbody>\n");
    for (int i = 0; i < r->row_count; i++) append_row(r, i, out);
    str_append(out, "</tbody>\n</table></div>\n");
    append_notes(r, out);
}

/* ---- samples and configurations ---- */

static void append_samples(const report *r, str *out) {
    bool any = false;
    for (int i = 0; i < r->row_count; i++) {
        const report_run_data *run = report_row_run(r, i, 0);
        if (!run->sample) continue;
        if (!any) str_append(out, "<h2>What the models write</h2>\n");
        any = true;
        str_append(out, "<details open=\"open\"><summary>");
        report_append_swatch(i, out);
        html_append_text(out, run->summary.label);
        str_append(out, "</summary><pre class=\"wrap\">");
        html_append_text(out, run->sample);
        str_append(out, "</pre></details>\n");
    }
}

static bool has_line(const char *text, const char *line, size_t length) {
    for (const char *at = text; at; at = strchr(at, '\n'), at = at ? at + 1 : NULL)
        if (strncmp(at, line, length) == 0 && (at[length] == '\n' || at[length] == '\0')) return true;
    return false;
}

/* The configuration, with the lines marked that the first run's does not have. */
static void append_config(const char *config, const char *first, str *out) {
    for (const char *line = config; *line;) {
        size_t length = strcspn(line, "\n");
        bool differs = first && length > 0 && !has_line(first, line, length);
        if (differs) str_append(out, "<mark>");
        html_append(out, line, (int64_t)length);
        if (differs) str_append(out, "</mark>");
        str_append(out, "\n");
        line += length + (line[length] == '\n');
    }
}

static void append_configs(const report *r, str *out) {
    bool any = false;
    for (int i = 0; i < r->row_count; i++) {
        const report_run_data *run = report_row_run(r, i, 0);
        if (!run->config) continue;
        if (!any) str_append(out, "<h2>Configurations</h2>\n");
        any = true;
        str_append(out, "<details><summary>");
        report_append_swatch(i, out);
        html_append_text(out, run->summary.label);
        str_append(out, "</summary><pre>");
        append_config(run->config, i > 0 ? r->runs[0].config : NULL, out);
        str_append(out, "</pre></details>\n");
    }
    if (any && r->row_count > 1 && r->runs[0].config)
        str_append(out,
                   "<p class=\"facts\">Marked: lines the first run's configuration does not have.</p>\n");
}

ott_status report_html(const report *r, const char *title, str *out) {
    append_head(r, title, out);
    append_cards(r, out);
    append_table(r, out);
    TRY(report_append_charts(r, out));
    TRY(report_append_health(r, out));
    append_samples(r, out);
    append_configs(r, out);
    str_append(out,
               "<footer>Gap: loss against the first run's, validation loss where both have one; above 0 is "
               "worse. Runs that differ only in the seed are one row: means, ± their standard error, curves "
               "averaged; tensors, samples and configuration are the first seed's.</footer>\n</main>\n"
               "</body>\n</html>\n");
    return str_finish(out);
}
