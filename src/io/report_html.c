/*
 * io/report_html: the page. It holds everything it shows and asks for nothing: no scripts, fonts or images
 * from elsewhere. Every tag is closed, so that it is well-formed XML too and a test can parse it.
 */
#include "io/chart.h"
#include "io/report_page.h"
#include <math.h>
#include <string.h>

/* ---- head ---- */

static void append_title(const report *r, const char *title, str *out) {
    if (title)
        html_append_text(out, title);
    else if (r->count == 1)
        html_append_text(out, r->runs[0].summary.label);
    else
        str_printf(out, "%d runs compared", r->count);
}

static void append_fact(const char *what, int64_t count, bool *any, str *out) {
    char number[32];
    if (count <= 0) return;
    str_printf(out, "%s%s %s", *any ? " · " : "", str_commas(count, number), what);
    *any = true;
}

/* Facts of the first run; the runs of one comparison are meant to agree in them. */
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

static void append_card(const report *r, int index, report_verdict verdict, str *out) {
    char gap[32];
    bool validation;
    report_gap_text(report_gap(r, index, &validation), gap);
    str_append(out, "<div class=\"card\">");
    report_append_swatch(index, out);
    str_append(out, "<b>");
    html_append_text(out, r->runs[index].summary.label);
    str_printf(out, "</b><span class=\"big\">%s</span><span class=\"small\">%s loss against ", gap,
               validation ? "validation" : "training");
    html_append_text(out, r->runs[0].summary.label);
    str_printf(out, "</span><span class=\"pill %s\">%s 1%% of ", verdict == REPORT_VERDICT_YES ? "yes" : "no",
               verdict == REPORT_VERDICT_YES ? "within" : "not within");
    html_append_text(out, report_reference_name(r));
    str_append(out, "</span></div>\n");
}

static void append_cards(const report *r, str *out) {
    bool any = false;
    for (int i = 0; i < r->count; i++) {
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

static void append_row(const report *r, int index, str *out) {
    const report_summary *s = &r->runs[index].summary;
    char text[32];
    str_append(out, "<tr><td>");
    report_append_swatch(index, out);
    html_append_text(out, s->label);
    if (!r->runs[index].finished) str_append(out, " *");
    str_append(out, "</td>");
    append_cell(report_loss_text(s->train_loss, text), out);
    append_cell(report_loss_text(s->val_loss, text), out);
    append_cell(index == 0 ? "-" : report_gap_text(report_gap(r, index, NULL), text), out);
    append_cell(report_count_text(s->tokens_per_second, text), out);
    append_cell(report_bytes_text(s->peak_memory_bytes, text), out);
    append_cell(report_count_text((double)s->fp8_gemms, text), out);
    append_cell(isfinite(s->seconds) ? str_duration(s->seconds, text) : "-", out);
    str_append(out, "</tr>\n");
}

static void append_table(const report *r, str *out) {
    bool unfinished = false;
    str_append(out, "<div class=\"scroll\"><table>\n<thead><tr><th>Run</th><th>Training loss</th>"
                    "<th>Validation loss</th><th>Gap to first</th><th>Tokens/s</th><th>Peak memory</th>"
                    "<th>FP8 GEMMs</th><th>Time</th></tr></thead>\n<tbody>\n");
    for (int i = 0; i < r->count; i++) {
        append_row(r, i, out);
        unfinished |= !r->runs[i].finished;
    }
    str_append(out, "</tbody>\n</table></div>\n");
    if (unfinished) str_append(out, "<p class=\"note\">* Not finished: what it logged last.</p>\n");
}

/* ---- samples and configurations ---- */

static void append_samples(const report *r, str *out) {
    bool any = false;
    for (int i = 0; i < r->count; i++) {
        if (!r->runs[i].sample) continue;
        if (!any) str_append(out, "<h2>What the models write</h2>\n");
        any = true;
        str_append(out, "<details open=\"open\"><summary>");
        report_append_swatch(i, out);
        html_append_text(out, r->runs[i].summary.label);
        str_append(out, "</summary><pre class=\"wrap\">");
        html_append_text(out, r->runs[i].sample);
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
    for (int i = 0; i < r->count; i++) {
        if (!r->runs[i].config) continue;
        if (!any) str_append(out, "<h2>Configurations</h2>\n");
        any = true;
        str_append(out, "<details><summary>");
        report_append_swatch(i, out);
        html_append_text(out, r->runs[i].summary.label);
        str_append(out, "</summary><pre>");
        append_config(r->runs[i].config, i > 0 ? r->runs[0].config : NULL, out);
        str_append(out, "</pre></details>\n");
    }
    if (any && r->count > 1 && r->runs[0].config)
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
    str_append(
        out,
        "<footer>Gap: loss against the first run's, validation loss where both have one. A run is within 1% "
        "when its gap is at most that, in either direction.</footer>\n</main>\n</body>\n</html>\n");
    return str_finish(out);
}
