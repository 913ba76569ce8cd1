/* report/curve: series of a run as points that can be drawn. */
#ifndef REPORT_CURVE_H
#define REPORT_CURVE_H

#include "report/internal.h"

/* Points of a series that can be drawn. */
typedef struct curve {
    mem *account;
    int64_t count;
    double *x, *y; /* [count]; finite */
} curve;

/* The finite points of a series. */
ott_status curve_from_series(mem *account, const metrics_series *s, curve *out);
/* The mean over the runs of a row, at the steps that all of them have. */
ott_status curve_row_mean(const report *r, int row, report_key key, curve *out);
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

#endif
