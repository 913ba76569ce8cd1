/* report/curve: curves computed from metrics. */
#ifndef REPORT_CURVE_H
#define REPORT_CURVE_H

#include "report/internal.h"

/* The finite points of a series. */
typedef struct curve {
    mem *account;
    int64_t count;
    double *x, *y; /* [count] coordinates of the points */
} curve;

/* Copies the finite points of a series. Free the curve with curve_free. */
ott_status curve_from_series(mem *account, const metrics_series *s, curve *out);
/* Mean over the runs of a row, at the steps that all runs have. Free the curve with curve_free. */
ott_status curve_row_mean(const report *r, int row, report_key key, curve *out);
/* Replaces each point by the mean of this point and `half` points on both sides. Near the start, where
   losses fall steeply, both sides use fewer points, so the average does not lag. Near the end, only
   the right side uses fewer. */
ott_status curve_smooth(curve *c, int64_t half);
/* Half width of the smoothing window for `count` points: count / 60, at most 500; 0 below 60 points. */
int64_t curve_half_window(int64_t count);
/* Computes 100 * (run / reference - 1) at the steps that both curves have. */
ott_status curve_gap(mem *account, const curve *run, const curve *reference, curve *out);
void curve_free(curve *c);

#endif
