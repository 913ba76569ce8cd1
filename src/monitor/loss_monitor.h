/*
 * monitor/loss_monitor: detects a training loss that stays above its initial value.
 *
 * The initial value is the median of this process's first 10 losses. A run may diverge within these 10 steps.
 * So the initial value is at most the first loss or the loss of a uniform guess (log of the vocabulary size),
 * whichever is larger. The limit is 1.1 times the initial value. After 20 losses in a row above the limit, a
 * warning is due. Before the next warning, 20 losses in a row must be at or below the limit. Non-finite
 * losses are ignored here; run/loop handles them.
 */
#ifndef MONITOR_LOSS_MONITOR_H
#define MONITOR_LOSS_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

enum { LOSS_MONITOR_START = 10, LOSS_MONITOR_STEPS = 20 };

typedef struct loss_monitor {
    double guess; /* loss of a uniform guess: log of the vocabulary size */
    double first[LOSS_MONITOR_START];
    int count;        /* number of losses in `first` */
    double start;     /* start value; set when count is LOSS_MONITOR_START */
    int above, below; /* number of latest losses in a row above the limit, or not above it */
    double sum;       /* sum of the latest `above` losses */
    bool warned;
} loss_monitor;

void loss_monitor_open(loss_monitor *m, int64_t vocab);
/* Adds a step's loss. True if a warning is due; then *mean = mean of the last LOSS_MONITOR_STEPS losses. */
bool loss_monitor_add(loss_monitor *m, double loss, double *mean);

#endif
