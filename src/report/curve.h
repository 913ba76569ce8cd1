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
/* *out: mean of a row's runs, at the steps that all these runs have. Free the curve with curve_free. */
ott_status curve_row_mean(const report *r, int row, report_key key, curve *out);
/* Replaces each point by the mean of this point and `half` points before and after it. Near the start, it
   uses only as many points after it as there are before it: losses fall steeply there, and later points would
   make the mean too low. Near the end, it uses fewer points after it. */
ott_status curve_smooth(curve *c, int64_t half);
/* Returns `half` for curve_smooth of `count` points: count / 60, at most 500; 0 for fewer than 60 points. */
int64_t curve_half_window(int64_t count);
/* Computes 100 * (run / reference - 1) at the steps that both curves have. */
ott_status curve_gap(mem *account, const curve *run, const curve *reference, curve *out);
void curve_free(curve *c);

#endif
