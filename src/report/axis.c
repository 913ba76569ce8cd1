/* report/axis: computes axes. */
#include "report/axis.h"
#include "base/text/number.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Sets tick marks at multiples of a step, the smallest round step for which there are at most `ticks`. */
static void put_linear_ticks(axis *a, int ticks) {
    static const double mantissas[] = {1, 2, 2.5, 5, 10};
    double power = pow(10, floor(log10((a->high - a->low) / ticks)));
    for (int m = 0; m < 5; m++) {
        double step = power * mantissas[m], slack = step * 1e-6;
        double first = ceil((a->low - slack) / step), last = floor((a->high + slack) / step);
        a->count = 0;
        if (last - first + 1 > ticks) continue;
        for (double i = first; i <= last; i++) a->tick[a->count++] = i * step;
        return;
    }
}

axis axis_linear(double low, double high, int ticks) {
    axis a = {.low = low, .high = high};
    if (!isfinite(low) || !isfinite(high)) a.low = 0, a.high = 1;
    if (!(a.high - a.low > fabs(a.high) * 1e-12)) { /* a single value gets the center */
        double margin = a.high != 0 ? fabs(a.high) / 2 : 1;
        a.low -= margin;
        a.high += margin;
    }
    put_linear_ticks(&a, ticks);
    return a;
}

axis axis_steps(double low, double high, int ticks) {
    return axis_linear(low > 0 && low <= high / 8 ? 0 : low, high, ticks);
}

/* Sets tick marks at mantissa * 10^k for each k that `stride` divides. Returns the number of marks; limit + 1
   if there are more than `limit`. */
static int put_log_ticks(axis *a, const double *mantissas, int count, int stride, int limit) {
    a->count = 0;
    int first = (int)floor(log10(a->low)), last = (int)ceil(log10(a->high));
    for (int k = first; k <= last; k++) {
        if (k % stride != 0) continue;
        for (int m = 0; m < count; m++) {
            double tick = mantissas[m] * pow(10, k);
            if (tick < a->low * (1 - 1e-9) || tick > a->high * (1 + 1e-9)) continue;
            if (a->count == limit) return limit + 1;
            a->tick[a->count++] = tick;
        }
    }
    return a->count;
}

axis axis_log(double low, double high, int ticks) {
    static const double dense[] = {1, 1.5, 2, 3, 4, 5, 7}, middle[] = {1, 2, 3, 5}, sparse[] = {1, 2, 5},
                        one[] = {1};
    axis a = {.low = low, .high = high, .log = true};
    if (!(low > 0 && isfinite(high) && high > low)) return axis_linear(low, high, ticks);
    if (high / low < 2) { /* nearly linear, so use linear ticks */
        put_linear_ticks(&a, ticks);
        return a;
    }
    if (put_log_ticks(&a, dense, 7, 1, ticks) <= ticks) return a;
    if (put_log_ticks(&a, middle, 4, 1, ticks) <= ticks) return a;
    if (put_log_ticks(&a, sparse, 3, 1, ticks) <= ticks) return a;
    for (int stride = 1; put_log_ticks(&a, one, 1, stride, ticks) > ticks; stride++) {
    }
    return a;
}

axis axis_choose(double low, double high, int ticks) {
    return low > 0 && high / low > 4 ? axis_log(low, high, ticks) : axis_linear(low, high, ticks);
}

double axis_position(const axis *a, double x) {
    if (!a->log) return (x - a->low) / (a->high - a->low);
    return x > 0 ? log(x / a->low) / log(a->high / a->low) : (double)NAN;
}

const char *axis_label(double tick, char out[32]) {
    char number[32];
    double size = fabs(tick);
    if (size < 1e-300) return strcpy(out, "0");
    if (size < 1e-3 || size >= 1e9) {
        int exponent = (int)floor(log10(size) + 1e-9);
        snprintf(out, 32, "%se%d", number_digits(tick / pow(10, exponent), 3, number), exponent);
        return out;
    }
    bool millions = size >= 1e6, thousands = !millions && size >= 1e4;
    number_digits(thousands ? tick / 1e3 : millions ? tick / 1e6 : tick, 4, out);
    return strcat(out, thousands ? "k" : millions ? "M" : "");
}
