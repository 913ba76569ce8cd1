/* report/axis: which numbers stand beside a plot: a scale, and round ticks on it. */
#ifndef REPORT_AXIS_H
#define REPORT_AXIS_H

#include <stdbool.h>
#include <stdint.h>

enum { AXIS_MAX_TICKS = 16 };

typedef struct axis {
    double low, high; /* the ends of the plot */
    bool log;         /* positions are those of the logarithms */
    int count;
    double tick[AXIS_MAX_TICKS];
} axis;

/* An axis from low to high with at most `ticks` (2 to 16) ticks. Not finite, or empty, ranges are widened to
   something that can be drawn. */
axis axis_linear(double low, double high, int ticks);
axis axis_steps(double low, double high, int ticks); /* linear; begins at 0 when low is near it */
axis axis_log(double low, double high, int ticks);   /* low > 0 */
/* The one that suits a loss or a norm: logarithmic when the values are positive and span more than a factor
 * of 4. */
axis axis_choose(double low, double high, int ticks);
/* Where x lies: 0 at low, 1 at high; beyond for values outside. NaN for what has no place (0 on a log axis).
 */
double axis_position(const axis *a, double x);
/* A tick's number: "2.5", "20k", "3e-4". Returns out. */
const char *axis_label(double tick, char out[32]);

#endif
