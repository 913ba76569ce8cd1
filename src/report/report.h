/*
 * report/report: writes a run's summary.json, and compares runs as a text table, a terminal plot, a
 * self-contained page (report.html) and JSON.
 *
 * A run folder has metrics.jsonl (keys step, loss, val_loss, lr, grad_norm, tps, and the health lines of
 * monitor/health.h), summary.json, and optionally config.toml and sample.txt. All runs are compared with the
 * first folder. Runs whose config.toml differs only in the seed are one row, with means and standard errors.
 */
#ifndef REPORT_REPORT_H
#define REPORT_REPORT_H

#include "base/text/str.h"

/* A phase is a part of a run with one recipe. */
enum { REPORT_MOST_PHASES = 64 };
typedef struct report_phase {
    char recipe[32]; /* recipe, "bf16", "rowwise", ... */
    int64_t steps, tokens;
    double seconds; /* seconds in training steps */
    int64_t gemms, fp8_gemms;
} report_phase;

/* The contents of summary.json. A loss or rate that is missing is NaN (null in the file). */
typedef struct report_summary {
    const char *label;     /* name of the run in tables and legends */
    const char *precision; /* precision, "fp32", "bf16", "fp8", ... */
    const char *recipe;    /* FP8 recipe; "": none */
    int64_t steps, tokens; /* steps since step 0, and their tokens on all ranks */
    int64_t parameters;
    double train_loss; /* final training loss */
    double val_loss;
    double tokens_per_second;
    double seconds;
    int64_t peak_memory_bytes; /* memory of the device; on a CPU: of the process */
    int64_t fp8_gemms;         /* number of GEMMs that ran in FP8 */
    int64_t gemms;             /* number of all GEMMs */
    int phase_count;           /* at most REPORT_MOST_PHASES; 0: not known */
    const report_phase *phases;
} report_summary;

/* Writes FOLDER/summary.json atomically. */
ott_status report_summary_write(mem *account, const char *folder, const report_summary *summary);

typedef struct report report;

/* Reads run folders. A run without summary.json is not finished; its summary comes from the metrics. */
ott_status report_open(mem *account, const char *const *folders, int count, report **out);
void report_close(report *r); /* does nothing for NULL */

/* All functions append to `out`, and return the errors of str_finish. */
/* One line per row, then verdicts, differences between the rows, and the FP8 tensors with the lowest SQNR. */
ott_status report_table(const report *r, str *out);
/* Training loss by step, in width x height characters with legend and axes. The size is limited to 32 x 8 ...
   80 x 20; a long legend may add lines. Needs neither colours nor a special font. */
ott_status report_plot(const report *r, int width, int height, str *out);
ott_status report_html(const report *r, const char *title, str *out); /* title NULL: a default title */
/* Fails with OTT_ERR_ARGUMENT unless `path` is absent, an empty file, a device or an older report page. */
ott_status report_check_page(const report *r, const char *path);
/* The rows as one JSON object. */
ott_status report_json(const report *r, str *out);

#endif
