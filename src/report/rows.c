/* report/rows: groups runs that differ only in their seed, and compares losses with the first row. */
#include "report/internal.h"
#include <math.h>
#include <string.h>
#include <strings.h>

const report_run_data *report_row_run(const report *r, int row, int member) {
    return &r->runs[r->rows[row].run[member]];
}

static bool has_seed(const report *r, const report_row *row, const report_run_data *run) {
    for (int i = 0; i < row->count; i++) {
        const report_run_data *there = &r->runs[row->run[i]];
        if (there->seed == run->seed && there->data_seed == run->data_seed) return true;
    }
    return false;
}

/* Returns the row of the run, or a new row. A second run with the same seed gets a new row. */
static report_row *find_or_add_row(report *r, const report_run_data *run) {
    for (int i = 0; i < r->row_count; i++) {
        report_row *row = &r->rows[i];
        if (report_same_but_seed(&r->runs[row->run[0]], run) && !has_seed(r, row, run)) return row;
    }
    return &r->rows[r->row_count++];
}

static ott_status group_runs(report *r) {
    TRY(mem_alloc_array(r->account, MEM_OTHER, r->count, sizeof *r->rows, "rows of a report", &r->rows));
    for (int i = 0; i < r->count; i++) {
        report_row *row = find_or_add_row(r, &r->runs[i]);
        if (!row->run) {
            TRY(arena_alloc(r->texts, r->count * (int64_t)sizeof *row->run, &row->run));
        }
        row->run[row->count++] = i;
    }
    return OTT_OK;
}

typedef struct sample {
    int count;
    double mean, squares; /* squares: sum of the squared deviations from the mean */
} sample;

/* Returns mean and deviations of a member (a double) over the runs of a row. at: the member's offset. */
static sample sample_of(const report *r, const report_row *row, size_t at) {
    sample s = {.count = row->count};
    double value[1];
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < row->count; i++) {
            memcpy(value, (const char *)&r->runs[row->run[i]].summary + at, sizeof *value);
            if (pass == 0)
                s.mean += *value / row->count;
            else
                s.squares += (*value - s.mean) * (*value - s.mean);
        }
    return s;
}

static double error_of(const sample *s) {
    return s->count > 1 ? sqrt(s->squares / (s->count - 1) / s->count) : (double)NAN;
}

static void compute_means(const report *r, report_row *row) {
    report_summary *mean = &row->mean;
    *mean = r->runs[row->run[0]].summary;
    sample train = sample_of(r, row, offsetof(report_summary, train_loss));
    sample val = sample_of(r, row, offsetof(report_summary, val_loss));
    mean->train_loss = train.mean;
    mean->val_loss = val.mean;
    row->train_error = error_of(&train);
    row->val_error = error_of(&val);
    mean->tokens_per_second = sample_of(r, row, offsetof(report_summary, tokens_per_second)).mean;
    mean->seconds = sample_of(r, row, offsetof(report_summary, seconds)).mean;
    for (int i = 1; i < row->count; i++) {
        const report_summary *run = &r->runs[row->run[i]].summary;
        if (run->peak_memory_bytes > mean->peak_memory_bytes)
            mean->peak_memory_bytes = run->peak_memory_bytes;
    }
}

/* Labels the row of bf16-1, bf16-2 and bf16-3 "bf16 (3 seeds)": their common beginning, up to a separator. */
static ott_status label_row(report *r, report_row *row) {
    const char *first = row->mean.label;
    size_t length = strlen(first), common = length;
    if (row->count == 1) return OTT_OK;
    for (int i = 1; i < row->count; i++) {
        const char *label = r->runs[row->run[i]].summary.label;
        size_t n = 0;
        while (n < common && label[n] == first[n]) n++;
        if (n < common || label[n]) common = n;
    }
    size_t end = common;
    while (end > 0 && common < length && !strchr("-_. ", first[end - 1])) end--;
    while (end > 0 && common < length && strchr("-_. ", first[end - 1])) end--;
    if (end == 0)
        return arena_printf(r->texts, &row->mean.label, "%s and %d more (%d seeds)", first, row->count - 1,
                            row->count);
    return arena_printf(r->texts, &row->mean.label, "%.*s (%d seeds)", (int)end, first, row->count);
}

ott_status report_make_rows(report *r) {
    TRY(group_runs(r));
    for (int i = 0; i < r->row_count; i++) {
        report_row *row = &r->rows[i];
        compute_means(r, row);
        TRY(label_row(r, row));
        if (i > 0)
            TRY(report_differences(r, report_row_run(r, i, 0), report_row_run(r, 0, 0), &row->differs));
    }
    return OTT_OK;
}

/* 95% quantile of Student's t distribution: from a table up to 10 degrees of freedom, else by a series. */
static double student_95(int freedom) {
    static const double first[] = {6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812};
    if (freedom <= 10) return first[freedom - 1];
    return 1.6449 + 1.5238 / freedom + 1.4202 / ((double)freedom * freedom);
}

static bool has_same_seeds(const report *r, const report_row *a, const report_row *b) {
    if (a->count != b->count) return false;
    for (int i = 0; i < a->count; i++)
        if (!r->runs[a->run[i]].seeded || !has_seed(r, b, &r->runs[a->run[i]])) return false;
    return true;
}

static double final_loss(const report_run_data *run, bool validation) {
    return validation ? run->summary.val_loss : run->summary.train_loss;
}

static const report_run_data *run_of_same_seed(const report *r, const report_row *row,
                                               const report_run_data *run) {
    int i = 0;
    while (r->runs[row->run[i]].seed != run->seed || r->runs[row->run[i]].data_seed != run->data_seed) i++;
    return &r->runs[row->run[i]];
}

/* Squared standard error of the difference between the means of two rows. *freedom: degrees of freedom; 0 if
   both rows have one seed. Runs with the same seed have the same initial weights and batches. So rows with
   the same seeds are compared run by run. Other rows are compared as two samples with equal variance. */
static double squared_error(const report *r, const report_row *a, const report_row *b, bool validation,
                            int *freedom) {
    size_t at = validation ? offsetof(report_summary, val_loss) : offsetof(report_summary, train_loss);
    sample x = sample_of(r, a, at), y = sample_of(r, b, at);
    *freedom = a->count + b->count - 2;
    if (*freedom == 0) return NAN;
    if (!has_same_seeds(r, a, b))
        return (x.squares + y.squares) / *freedom * (1.0 / a->count + 1.0 / b->count);
    double squares = 0;
    for (int i = 0; i < a->count; i++) {
        const report_run_data *run = &r->runs[a->run[i]];
        double difference = final_loss(run, validation) - final_loss(run_of_same_seed(r, b, run), validation);
        squares += (difference - (x.mean - y.mean)) * (difference - (x.mean - y.mean));
    }
    *freedom = a->count - 1;
    return squares / *freedom / a->count;
}

report_gap report_gap_of(const report *r, int index) {
    const report_row *first = &r->rows[0], *row = &r->rows[index];
    report_gap gap = {.percent = NAN, .error = NAN, .margin = NAN};
    int freedom;
    gap.validation = isfinite(first->mean.val_loss) && isfinite(row->mean.val_loss);
    double reference = gap.validation ? first->mean.val_loss : first->mean.train_loss;
    double loss = gap.validation ? row->mean.val_loss : row->mean.train_loss;
    if (!(reference > 0) || !isfinite(loss)) return gap;
    gap.percent = 100 * (loss / reference - 1);
    gap.error = 100 / reference * sqrt(squared_error(r, row, first, gap.validation, &freedom));
    if (isfinite(gap.error)) gap.margin = student_95(freedom) * gap.error;
    return gap;
}

report_verdict report_judge(const report *r, int index) {
    const report_summary *first = &r->rows[0].mean, *row = &r->rows[index].mean;
    if (index == 0 || row->fp8_gemms <= 0 || first->fp8_gemms > 0 || r->rows[index].differs)
        return REPORT_VERDICT_NONE;
    report_gap gap = report_gap_of(r, index);
    if (!isfinite(gap.percent)) return REPORT_VERDICT_WORSE;
    if (isnan(gap.error) && fabs(gap.percent) <= REPORT_SEED_NOISE) return REPORT_VERDICT_ONE_SEED;
    if (isnan(gap.error)) return gap.percent > 0 ? REPORT_VERDICT_WORSE : REPORT_VERDICT_NO_WORSE;
    if (gap.percent + gap.margin <= REPORT_WORSE) return REPORT_VERDICT_NO_WORSE;
    return gap.percent - gap.margin > REPORT_WORSE ? REPORT_VERDICT_WORSE : REPORT_VERDICT_OPEN;
}

const char *report_reference_name(const report *r) {
    const report_summary *first = &r->rows[0].mean;
    return strcasecmp(first->precision, "bf16") == 0 ? "BF16" : first->label;
}
