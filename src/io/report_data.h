/* io/report_data: what the three forms of the report share: the runs as read, and curves made of their
 * metrics. */
#ifndef IO_REPORT_DATA_H
#define IO_REPORT_DATA_H

#include "io/metrics.h"
#include "io/report.h"
#include "base/arena.h"
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
} report_run_data;

struct report {
    mem *account;
    arena *texts;
    int count;
    report_run_data *runs; /* [count] */
};

/* Points of a series that can be drawn. */
typedef struct curve {
    mem *account;
    int64_t count;
    double *x, *y; /* [count]; finite */
} curve;

/* The finite points of a series. */
ott_status curve_of(mem *account, const metrics_series *s, curve *out);
/* A moving average in place: each point becomes the mean over `half` points on both sides. At the beginning,
   where losses fall steeply, it takes as few on the right as there are on the left, so as not to lag; at the
   end it takes what there is. */
ott_status curve_smooth(curve *c, int64_t half);
/* Half the width of the window the report smooths `count` points with: a sixtieth of them, at most 500; 0 for
 * few points. */
int64_t curve_half_window(int64_t count);
/* 100 * (run / reference - 1) at the steps both have. */
ott_status curve_gap(mem *account, const curve *run, const curve *reference, curve *out);
void curve_free(curve *c);

/* ---- what was measured of FP8 ---- */

/* The smaller, the worse: the SQNR; -infinity of values that are not finite, infinity where there is none
   (only zeros, or no error at all). */
double report_use_rank(const metrics_use *use);
/* "27.3 dB", "not finite" or "-" */
const char *report_sqnr_text(const metrics_use *use, char out[32]);
/* The *count uses of the last measurement, worst first; to be given back with mem_give. */
ott_status report_worst_uses(mem *account, const metrics_health *h, const metrics_use ***out, int64_t *count);
/* The next module, from index `from` on, that was measured earlier, but not in the last measurement, where
   others were: it left FP8, by fallback or by the precision schedule. -1: no more. */
int64_t report_next_left_fp8(const report_run_data *run, int64_t from);

int report_compare_doubles(const void *a, const void *b); /* for qsort */

/* ---- text for people ---- */

/* A loss for people: "1.6721", or "-" when there is none. Returns out. */
const char *report_loss_text(double loss, char out[32]);
/* "+0.12%" or "-" */
const char *report_gap_text(double gap, char out[32]);
/* "1.50 GiB" or "-" */
const char *report_bytes_text(int64_t bytes, char out[32]);
/* "12,345" or "-" for NaN, negative and too large */
const char *report_count_text(double count, char out[32]);

/* An FP8 run beside a reference: within 1% of it, or not. NONE: nothing to judge (no FP8, or no reference).
 */
typedef enum report_verdict { REPORT_VERDICT_NONE, REPORT_VERDICT_YES, REPORT_VERDICT_NO } report_verdict;
report_verdict report_judge(const report *r, int index);
/* "BF16" when the first run is one, else its label. */
const char *report_reference_name(const report *r);

#endif
