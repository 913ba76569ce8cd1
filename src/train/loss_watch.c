/* train/loss_watch: a loss that stays above its start. */
#include "train/loss_watch.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MARGIN 1.1

_Static_assert(LOSS_WATCH_START < LOSS_WATCH_STEPS, "the first losses alone are no reason for a warning");

void loss_watch_open(loss_watch *w, int64_t vocab) {
    *w = (loss_watch){.guess = log((double)vocab)};
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void set_start(loss_watch *w) {
    double sorted[LOSS_WATCH_START];
    memcpy(sorted, w->first, sizeof sorted);
    qsort(sorted, LOSS_WATCH_START, sizeof *sorted, by_size);
    double median = 0.5 * (sorted[LOSS_WATCH_START / 2 - 1] + sorted[LOSS_WATCH_START / 2]);
    w->start = fmin(median, fmax(w->first[0], w->guess));
}

static bool judge(loss_watch *w, double loss, double *mean) {
    if (loss <= MARGIN * w->start) {
        w->above = 0;
        w->sum = 0;
        if (++w->below >= LOSS_WATCH_STEPS) w->told = false;
        return false;
    }
    w->below = 0;
    w->sum += loss;
    if (++w->above < LOSS_WATCH_STEPS || w->told) return false;
    *mean = w->sum / w->above;
    return w->told = true;
}

bool loss_watch_add(loss_watch *w, double loss, double *mean) {
    if (!isfinite(loss)) return false;
    if (w->count == LOSS_WATCH_START) return judge(w, loss, mean);
    w->first[w->count++] = loss;
    if (w->count < LOSS_WATCH_START) return false;
    set_start(w);
    for (int i = 0; i < LOSS_WATCH_START; i++) judge(w, w->first[i], mean); /* too few for a warning */
    return false;
}
