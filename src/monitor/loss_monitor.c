/* monitor/loss_monitor: detects a loss that stays above its start. */
#include "monitor/loss_monitor.h"
#include "base/text/number.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MARGIN 1.1

_Static_assert(LOSS_MONITOR_START < LOSS_MONITOR_STEPS, "the first losses alone must not cause a warning");

void loss_monitor_open(loss_monitor *m, int64_t vocab) {
    *m = (loss_monitor){.guess = log((double)vocab)};
}

static bool judge_loss(loss_monitor *m, double loss, double *mean) {
    if (loss <= MARGIN * m->start) {
        m->above = 0;
        m->sum = 0;
        if (++m->below >= LOSS_MONITOR_STEPS) m->warned = false;
        return false;
    }
    m->below = 0;
    m->sum += loss;
    if (++m->above < LOSS_MONITOR_STEPS || m->warned) return false;
    *mean = m->sum / m->above;
    return m->warned = true;
}

bool loss_monitor_add(loss_monitor *m, double loss, double *mean) {
    if (!isfinite(loss)) return false;
    if (m->count == LOSS_MONITOR_START) return judge_loss(m, loss, mean);
    m->first[m->count++] = loss;
    if (m->count < LOSS_MONITOR_START) return false;
    double sorted[LOSS_MONITOR_START];
    memcpy(sorted, m->first, sizeof sorted);
    qsort(sorted, LOSS_MONITOR_START, sizeof *sorted, number_compare);
    double median = 0.5 * (sorted[LOSS_MONITOR_START / 2 - 1] + sorted[LOSS_MONITOR_START / 2]);
    m->start = fmin(median, fmax(m->first[0], m->guess));
    for (int i = 0; i < LOSS_MONITOR_START; i++) judge_loss(m, m->first[i], mean); /* 10 losses cannot warn */
    return false;
}
