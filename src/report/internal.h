/* report/internal: what the forms of the report share: the runs as read, the rows of the comparison, and curves
 * made of their metrics. */
#ifndef REPORT_INTERNAL_H
#define REPORT_INTERNAL_H

#include "config/tree.h"
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
    bool finished; /* it has a summary.json */
    metrics_series series[REPORT_KEY_COUNT];
    metrics_health health;
    const char *config, *sample; /* NULL when there is none */
    const node *settings;        /* of config; NULL when there is none that can be read */
    bool seeded;                 /* settings say so: */
    int64_t seed, data_seed;
} report_run_data;

/* Runs that differ only in their seed. */
typedef struct report_row {
    int count; /* runs, each of another seed */
    int *run;  /* [count]: indices into runs; where one is shown, it is the first */
    /* label; means of losses, speed and time; the largest peak memory; the rest is the first run's. */
    report_summary mean;
    double train_error, val_error; /* standard errors of the losses' means; NaN of one run */
    const char *differs; /* from the first row, beside precision: "other data than bf16 (...)", or NULL */
} report_row;

struct report {
    mem *account;
    arena *texts;
    int count, row_count;
    report_run_data *runs; /* [count] */
    report_row *rows;      /* [row_count] */
};

/* config.toml, where it can be read, into run->settings. */
ott_status report_read_settings(report *r, report_run_data *run);
/* Finished runs whose configurations say so. */
bool report_same_but_seed(const report_run_data *a, const report_run_data *b);
/* In what `run` differs from the first one beside precision and seed, for report_row.differs. */
ott_status report_differences(report *r, const report_run_data *run, const report_run_data *first,
                              const char **out);
/* Makes the rows of the runs read. */
ott_status report_make_rows(report *r);
const report_run_data *report_row_run(const report *r, int row, int member);

/* A row's loss against the first row's, in percent: positive is worse. */
typedef struct report_gap {
    double percent;  /* NaN when it cannot be said */
    double error;    /* its standard error; NaN of one seed each */
    double margin;   /* it is below percent + margin with 95% confidence; NaN of one seed each */
    bool validation; /* of the validation loss, which both rows have; else of the training loss */
} report_gap;
report_gap report_gap_of(const report *r, int row);

/* Percent by which losses of small models differ when only the seed does: the most that BF16 and FP32 were
   apart on the demo's model (docs/recipes.md). Below it one seed each tells nothing. */
#define REPORT_SEED_NOISE 1.5
#define REPORT_WORSE      1.0 /* percent above the first row's loss that count as worse */
/* An FP8 row beside a first one without FP8. */
typedef enum report_verdict {
    REPORT_VERDICT_NONE, /* nothing to judge: no FP8, no such reference, or more than the precision differs */
    REPORT_VERDICT_NO_WORSE, /* than by 1%: with 95% confidence over the seeds */
    REPORT_VERDICT_WORSE,    /* with 95% confidence; of one seed each, by more than a seed does; or no loss */
    REPORT_VERDICT_OPEN,     /* neither: more seeds would tell */
    REPORT_VERDICT_ONE_SEED  /* each, and a gap that the seed alone can make */
} report_verdict;
report_verdict report_judge(const report *r, int row);
const char *report_verdict_name(report_verdict verdict);
/* "BF16" when the first row is one, else its label. */
const char *report_reference_name(const report *r);

/* ---- what was measured of FP8 ---- */

/* The SQNR that a format gives a Gaussian, whatever its scale (docs/recipes.md), in dB; 0 of a format we do not know. */
double report_format_sqnr(const char *format);
/* The smaller, the worse: the SQNR less what its format gives; -infinity of values that are not finite, infinity where there is
   none (only zeros, or no error at all). */
double report_use_rank(const metrics_use *use);
/* "27.3 dB", "not finite" or "-" */
const char *report_sqnr_text(const metrics_use *use, char out[32]);
/* ", -4.2 beside e4m3's 31.5", or "" where there is no SQNR or no such format. */
const char *report_sqnr_gap_text(const metrics_use *use, char out[32]);
/* The *count uses of the last measurement, worst first; to be given back with mem_free. */
ott_status report_worst_uses(mem *account, const metrics_health *h, const metrics_use ***out, int64_t *count);
/* The next module, from index `from` on, that was measured earlier, but not in the last measurement, where
   others were: it left FP8, by fallback or by the precision schedule. -1: no more. */
int64_t report_next_left_fp8(const report_run_data *run, int64_t from);

int report_compare_doubles(const void *a, const void *b); /* for qsort */

/* ---- text for people ---- */

/* "1.50 GiB" or "-" */
const char *report_bytes_text(int64_t bytes, char out[32]);
/* "12,345" or "-" for NaN, negative and too large */
const char *report_count_text(double count, char out[32]);

/* "1.6721 ± 0.0012", "+0.12% ± 0.05%", without ± of one seed; "validation loss +0.12%: one seed each cannot ..."
 */
void report_loss_and_error(double loss, double error, str *out);
void report_gap_and_error(const report_gap *gap, str *out);
void report_verdict_text(const report *r, int row, str *out);

#endif
