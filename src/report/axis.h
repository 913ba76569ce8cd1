/* report/axis: the scale and the tick marks of a plot's axis. */
#ifndef REPORT_AXIS_H
#define REPORT_AXIS_H

#include <stdbool.h>
#include <stdint.h>

enum { AXIS_MAX_TICKS = 16 };

typedef struct axis {
    double low, high; /* values at both ends of the axis */
    bool log;         /* the scale is logarithmic */
    int count;
    double tick[AXIS_MAX_TICKS];
} axis;

/* A linear axis with at most `ticks` (2 to 16) tick marks. A range that is empty or not finite is widened. */
axis axis_linear(double low, double high, int ticks);
axis axis_steps(double low, double high, int ticks); /* linear; starts at 0 if low is near 0 */
axis axis_log(double low, double high, int ticks);   /* requires low > 0 */
/* Returns an axis for losses or norms: logarithmic if they are positive and span more than a factor of 4. */
axis axis_choose(double low, double high, int ticks);
/* Position of x: 0 at low, 1 at high. NaN for x <= 0 on a logarithmic axis. */
double axis_position(const axis *a, double x);
/* Formats a tick mark's value: "2.5", "20k", "3e-4". Returns out. */
const char *axis_label(double tick, char out[32]);

#endif
