/* train/loss_monitor: detects a loss that stays above its start. */
#include "train/loss_monitor.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MARGIN 1.1

_Static_assert(LOSS_MONITOR_START < LOSS_MONITOR_STEPS, "the first losses alone must not cause a warning");

void loss_monitor_open(loss_monitor *w, int64_t vocab) {
    *w = (loss_monitor){.guess = log((double)vocab)};
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void set_start(loss_monitor *w) {
    double sorted[LOSS_MONITOR_START];
    memcpy(sorted, w->first, sizeof sorted);
    qsort(sorted, LOSS_MONITOR_START, sizeof *sorted, by_size);
    double median = 0.5 * (sorted[LOSS_MONITOR_START / 2 - 1] + sorted[LOSS_MONITOR_START / 2]);
    w->start = fmin(median, fmax(w->first[0], w->guess));
}

static bool judge_loss(loss_monitor *w, double loss, double *mean) {
    if (loss <= MARGIN * w->start) {
        w->above = 0;
        w->sum = 0;
        if (++w->below >= LOSS_MONITOR_STEPS) w->warned = false;
        return false;
    }
    w->below = 0;
    w->sum += loss;
    if (++w->above < LOSS_MONITOR_STEPS || w->warned) return false;
    *mean = w->sum / w->above;
    return w->warned = true;
}

bool loss_monitor_add(loss_monitor *w, double loss, double *mean) {
    if (!isfinite(loss)) return false;
    if (w->count == LOSS_MONITOR_START) return judge_loss(w, loss, mean);
    w->first[w->count++] = loss;
    if (w->count < LOSS_MONITOR_START) return false;
    set_start(w);
    for (int i = 0; i < LOSS_MONITOR_START; i++) judge_loss(w, w->first[i], mean); /* too few for a warning */
    return false;
}
