/* io/report_table: the comparison as text: one row a run, aligned, then a verdict for each FP8 run. */
#include "io/report_data.h"
#include <string.h>

enum { LABEL, TRAIN_LOSS, VAL_LOSS, GAP, SPEED, MEMORY, FP8_GEMMS, COLUMNS };

static const char *const headings[COLUMNS] = {"run",      "train loss",  "val loss", "gap to first",
                                              "tokens/s", "peak memory", "FP8 GEMMs"};

typedef struct row {
    const char *label;
    char cell[COLUMNS][32]; /* [LABEL] is not used */
} row;

static const char *cell(const row *r, int column) {
    return column == LABEL ? r->label : r->cell[column];
}

/* Columns a text takes on a terminal: its characters, not its bytes. */
static int width_of(const char *text) {
    int width = 0;
    for (; *text; text++) width += (*text & 0xc0) != 0x80;
    return width;
}

static void fill_row(const report *r, int index, row *out) {
    const report_summary *s = &r->runs[index].summary;
    out->label = s->label;
    report_loss_text(s->train_loss, out->cell[TRAIN_LOSS]);
    report_loss_text(s->val_loss, out->cell[VAL_LOSS]);
    if (index == 0)
        strcpy(out->cell[GAP], "-");
    else
        report_gap_text(report_gap(r, index, NULL), out->cell[GAP]);
    report_count_text(s->tokens_per_second, out->cell[SPEED]);
    report_bytes_text(s->peak_memory_bytes, out->cell[MEMORY]);
    report_count_text((double)s->fp8_gemms, out->cell[FP8_GEMMS]);
}

/* Labels stand left, numbers right. */
static void append_cell(str *out, const char *text, int column, int width) {
    int pad = width - width_of(text);
    if (column == LABEL) str_append(out, text);
    for (int i = 0; i < pad && (column != LABEL); i++) str_append(out, " ");
    if (column != LABEL) str_append(out, text);
    for (int i = 0; i < pad && (column == LABEL); i++) str_append(out, " ");
}

static void append_line(str *out, const row *r, const int *width) {
    for (int c = 0; c < COLUMNS; c++) {
        if (c > 0) str_append(out, " | ");
        append_cell(out, cell(r, c), c, width[c]);
    }
    str_append(out, "\n");
}

static void append_rule(str *out, const int *width) {
    for (int c = 0; c < COLUMNS; c++) {
        if (c > 0) str_append(out, "-+-");
        for (int i = 0; i < width[c]; i++) str_append(out, "-");
    }
    str_append(out, "\n");
}

static void append_verdicts(const report *r, str *out) {
    char gap[32];
    bool validation;
    for (int i = 1; i < r->count; i++) {
        report_verdict verdict = report_judge(r, i);
        if (verdict == REPORT_VERDICT_NONE) continue;
        report_gap_text(report_gap(r, i, &validation), gap);
        str_printf(out, "%s: within 1%% of %s: %s (%s loss %s)\n", r->runs[i].summary.label,
                   report_reference_name(r), verdict == REPORT_VERDICT_YES ? "yes" : "no",
                   validation ? "validation" : "training", gap);
    }
}

static void append_unfinished(const report *r, str *out) {
    for (int i = 0; i < r->count; i++)
        if (!r->runs[i].finished)
            str_printf(out,
                       "%s: has no summary.json: the run is not finished; its row is what it logged last\n",
                       r->runs[i].summary.label);
}

ott_status report_table(const report *r, str *out) {
    int width[COLUMNS];
    void *memory;
    row heading = {.label = headings[LABEL]};
    TRY(mem_take_array(r->account, MEM_OTHER, r->count, sizeof(row), "a table", &memory));
    row *rows = memory;
    for (int c = 0; c < COLUMNS; c++) {
        strcpy(heading.cell[c], headings[c]);
        width[c] = width_of(headings[c]);
    }
    for (int i = 0; i < r->count; i++) {
        fill_row(r, i, &rows[i]);
        for (int c = 0; c < COLUMNS; c++)
            if (width_of(cell(&rows[i], c)) > width[c]) width[c] = width_of(cell(&rows[i], c));
    }
    append_line(out, &heading, width);
    append_rule(out, width);
    for (int i = 0; i < r->count; i++) append_line(out, &rows[i], width);
    append_verdicts(r, out);
    append_unfinished(r, out);
    mem_give(r->account, rows);
    return str_finish(out);
}
