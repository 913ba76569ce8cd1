/*
 * report/report: what a run came to (summary.json), and the comparison of runs as a text table, a plot for the
 * terminal, a page that needs nothing else (report.html) and JSON.
 *
 * A run folder holds metrics.jsonl (keys step, loss, val_loss, lr, grad_norm, tps, and the health lines of
 * train/health.h), summary.json, and perhaps config.toml and sample.txt. The first folder is what the others
 * are compared with. Runs whose config.toml differ only in the seed are one row: means and standard errors.
 */
#ifndef REPORT_REPORT_H
#define REPORT_REPORT_H

#include "base/str.h"

/* A part of a run, between changes of its recipe. */
enum { REPORT_MOST_PHASES = 64 };
typedef struct report_phase {
    char recipe[32]; /* "bf16", "rowwise", ... */
    int64_t steps, tokens;
    double seconds; /* in training steps */
    int64_t gemms, fp8_gemms;
} report_phase;

/* summary.json: the same names as keys. A loss or rate that does not exist is NaN (null in the file). */
typedef struct report_summary {
    const char *label;     /* name of the run in tables and legends */
    const char *precision; /* "fp32", "bf16", "fp8", ... */
    const char *recipe;    /* FP8 recipe, or "" */
    int64_t steps, tokens; /* done since step 0, over all ranks */
    int64_t parameters;
    double train_loss; /* at the end, as the run reports it */
    double val_loss;
    double tokens_per_second;
    double seconds;
    int64_t peak_memory_bytes; /* of the process, or of the device where there is one */
    int64_t fp8_gemms;         /* matrix products that really ran in FP8 */
    int64_t gemms;             /* all */
    int phase_count;           /* at most REPORT_MOST_PHASES; 0: not known */
    const report_phase *phases;
} report_summary;

/* Writes FOLDER/summary.json, complete or not at all. */
ott_status report_summary_write(mem *account, const char *folder, const report_summary *summary);

typedef struct report report;

/* Reads the run folders. A folder without summary.json (the run still goes, or crashed) is summed up from its
 * metrics. */
ott_status report_open(mem *account, const char *const *folders, int count, report **out);
void report_close(report *r); /* NULL is allowed */

/* All append to `out`; errors are those of str_finish. */
/* One row a run, or of runs that differ only in their seed; then a verdict for each FP8 row, in what else rows
   differ, and the tensors that FP8 held worst in each that measured them. */
ott_status report_table(const report *r, str *out);
/* Training loss against steps in width x height characters, legend and axes included; kept within 32 x 8 and
   80 x 20 (the legend of many runs may need more lines). Needs neither colour nor a wide font. */
ott_status report_plot(const report *r, int width, int height, str *out);
ott_status report_html(const report *r, const char *title, str *out); /* title: NULL for a default */
/* OTT_ERR_ARGUMENT unless `path` is absent, empty, a device or an earlier page: a page replaces nothing else. */
ott_status report_check_page(const report *r, const char *path);
/* The rows as one JSON object. */
ott_status report_json(const report *r, str *out);

#endif
