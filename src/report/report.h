/*
 * report/report: writes a run's summary.json, and compares runs as a text table, a terminal plot, a
 * self-contained page (report.html) and JSON.
 *
 * A run folder has metrics.jsonl (keys step, loss, val_loss, lr, grad_norm, tps, and the health lines of
 * train/health.h), summary.json, and optionally config.toml and sample.txt. All runs are compared with the
 * first folder. Runs with the same config.toml except for the seed form one row with means and standard
 * errors.
 */
#ifndef REPORT_REPORT_H
#define REPORT_REPORT_H

#include "base/str.h"

/* Part of a run with one recipe. */
enum { REPORT_MOST_PHASES = 64 };
typedef struct report_phase {
    char recipe[32]; /* "bf16", "rowwise", ... */
    int64_t steps, tokens;
    double seconds; /* time spent in training steps */
    int64_t gemms, fp8_gemms;
} report_phase;

/* The contents of summary.json. A missing loss or rate is NaN (null in the file). */
typedef struct report_summary {
    const char *label;     /* name of the run in tables and legends */
    const char *precision; /* "fp32", "bf16", "fp8", ... */
    const char *recipe;    /* FP8 recipe, or "" */
    int64_t steps, tokens; /* since step 0, over all ranks */
    int64_t parameters;
    double train_loss; /* final training loss */
    double val_loss;
    double tokens_per_second;
    double seconds;
    int64_t peak_memory_bytes; /* of the device, or of the process on a CPU */
    int64_t fp8_gemms;         /* GEMMs that ran in FP8 */
    int64_t gemms;             /* all GEMMs */
    int phase_count;           /* at most REPORT_MOST_PHASES; 0 if unknown */
    const report_phase *phases;
} report_summary;

/* Writes FOLDER/summary.json atomically. */
ott_status report_summary_write(mem *account, const char *folder, const report_summary *summary);

typedef struct report report;

/* Reads run folders. Without a summary.json (unfinished runs) the summary comes from the metrics. */
ott_status report_open(mem *account, const char *const *folders, int count, report **out);
void report_close(report *r); /* NULL is allowed */

/* All functions append to `out`, and return the errors of str_finish. */
/* One line per row, then verdicts, other differences, and the FP8 tensors with the lowest SQNR. */
ott_status report_table(const report *r, str *out);
/* Training loss by step in width x height characters, including legend and axes. The size is clamped to 32 x
   8 ... 80 x 20; a long legend may add lines. Needs neither colour nor wide fonts. */
ott_status report_plot(const report *r, int width, int height, str *out);
ott_status report_html(const report *r, const char *title, str *out); /* title NULL: default */
/* OTT_ERR_ARGUMENT unless `path` is missing, empty, a device or an older page. */
ott_status report_check_page(const report *r, const char *path);
/* The rows as one JSON object. */
ott_status report_json(const report *r, str *out);

#endif
