/* report/internal: runs, rows and verdicts, shared by the table, the plot, the page and the JSON. */
#ifndef REPORT_INTERNAL_H
#define REPORT_INTERNAL_H

#include "config/parse/tree.h"
#include "formats/metrics.h"
#include "report/report.h"
#include <stdbool.h>

/* X(name, key in metrics.jsonl) */
#define REPORT_KEY_MAP(X)                                                                                    \
    X(LOSS, "loss")                                                                                          \
    X(VAL_LOSS, "val_loss")                                                                                  \
    X(LR, "lr")                                                                                              \
    X(GRAD_NORM, "grad_norm")                                                                                \
    X(TPS, "tps")

typedef enum report_key {
#define X(name, key) REPORT_##name,
    REPORT_KEY_MAP(X)
#undef X
        REPORT_KEY_COUNT
} report_key;

typedef struct report_run_data {
    const char *folder;
    report_summary summary;
    bool finished; /* the run has a summary.json */
    metrics_series series[REPORT_KEY_COUNT];
    metrics_health health;
    const char *config, *sample; /* text of config.toml, sample.txt; NULL: no such file */
    const node *settings;        /* the parsed configuration; NULL if there is none, or it is damaged */
    bool seeded;                 /* the settings have a seed */
    int64_t seed, data_seed;
} report_run_data;

/* A row of the comparison: runs that differ only in the seed. */
typedef struct report_row {
    int count; /* number of runs; each has another seed */
    int *run;  /* [count]: indices into report.runs. Output that shows one run of the row shows run[0]. */
    /* means of losses, speed and time, maximum of peak memory; other members are copied from run[0] */
    report_summary mean;
    double train_error, val_error; /* standard errors of the mean losses; NaN for one run */
    /* differences from the first row, except in precision: "other data than bf16 (...)"; NULL: none */
    const char *differs;
} report_row;

struct report {
    mem *account;
    arena *texts;
    int count, row_count;
    report_run_data *runs; /* [count] runs of the report */
    report_row *rows;      /* [row_count] rows of the comparison */
};

/* Parses config.toml into run->settings, which becomes NULL if the file is damaged. */
ott_status report_read_settings(report *r, report_run_data *run);
/* True if both runs are finished and their configurations differ only in the seed. */
bool report_same_but_seed(const report_run_data *a, const report_run_data *b);
/* Describes how `run` differs from `first`, except in precision and seed, for report_row.differs. */
ott_status report_differences(report *r, const report_run_data *run, const report_run_data *first,
                              const char **out);
/* Groups the runs into rows. */
ott_status report_make_rows(report *r);
const report_run_data *report_row_run(const report *r, int row, int member);

/* How much larger the loss of a row is than the loss of the first row, in percent. */
typedef struct report_gap {
    double percent; /* positive if worse; NaN if a loss is missing */
    double error;   /* standard error of `percent`; NaN if both rows have one seed */
    /* with 95% confidence the true gap is below percent + margin; NaN if both rows have one seed */
    double margin;
    bool validation; /* gap of the validation loss, if both rows have one; else of the training loss */
} report_gap;
report_gap report_gap_of(const report *r, int row);

/* Percent by which the losses of BF16 and FP32 runs of the demo's model differed with one seed
   (docs/howto/choose-recipe.md). If rows have one seed each, a smaller difference is not significant. */
#define REPORT_SEED_NOISE 1.5
/* percent; a run is worse if its loss is higher than the first row's loss by more than this */
#define REPORT_WORSE 1.0
/* The verdict on a row with FP8, compared with a first row without FP8. */
typedef enum report_verdict {
    /* no verdict: the row has no FP8, the first row has FP8, or they differ in more than precision */
    REPORT_VERDICT_NONE,
    /* at most 1% worse, with 95% confidence; with one seed each: over REPORT_SEED_NOISE percent better */
    REPORT_VERDICT_NO_WORSE,
    /* over 1% worse, with 95% confidence; with one seed each: over REPORT_SEED_NOISE percent; or no loss */
    REPORT_VERDICT_WORSE,
    REPORT_VERDICT_OPEN,    /* not decided: more seeds are needed */
    REPORT_VERDICT_ONE_SEED /* one seed each, and at most REPORT_SEED_NOISE apart */
} report_verdict;
report_verdict report_judge(const report *r, int row);
const char *report_verdict_name(report_verdict verdict);
/* "BF16" if the first row is a BF16 run, else the label of the row. */
const char *report_reference_name(const report *r);

/* ---- FP8 health ---- */

/* SQNR in dB that a format has on Gaussian data (docs/reference/recipes.md); 0 for unknown formats. */
double report_format_sqnr(const char *format);
/* SQNR minus the SQNR that the format has on Gaussian data; smaller is worse. -infinity for a tensor with a
   NaN or infinity. Infinity if there is no SQNR, because all elements are 0 or there is no error. */
double report_use_rank(const metrics_use *use);
/* Formats an SQNR: "27.3 dB", "not finite" or "-". */
const char *report_sqnr_text(const metrics_use *use, char out[32]);
/* Formats the measured SQNR minus the format's expected SQNR: ", -3.1 from expected 31.5"; "" if unknown. */
const char *report_sqnr_gap_text(const metrics_use *use, char out[32]);
/* Returns the *count uses of tensors in the last measurement, the worst first. Free *out with mem_free. */
ott_status report_worst_uses(mem *account, const metrics_health *h, const metrics_use ***out, int64_t *count);
/* Returns the index of the first module, from `from` on, that left FP8 (by fallback or by the precision
   schedule), so that the last measurement does not include it. -1 if there is none. */
int64_t report_next_left_fp8(const report_run_data *run, int64_t from);

/* ---- text ---- */

/* Formats bytes: "1.50 GiB" or "-". */
const char *report_bytes_text(int64_t bytes, char out[32]);
/* Formats a number: "12,345", or "-" for NaN, negative or too large values. */
const char *report_count_text(double count, char out[32]);

/* Append "1.6721 ± 0.0012", "+0.12% ± 0.05%", "validation loss +0.12%: one seed ..."; with one seed no ±. */
void report_loss_and_error(double loss, double error, str *out);
void report_gap_and_error(const report_gap *gap, str *out);
void report_verdict_text(const report *r, int row, str *out);

#endif
