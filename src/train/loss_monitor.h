/*
 * train/loss_monitor: warns if a finite loss stays above its start.
 *
 * The start is the median of this process's first 10 losses. Since a run may diverge within 10 steps, it is
 * limited to the first loss or to the loss of guessing (log of the vocabulary size), whichever is larger.
 * After 20 losses in a row that exceed the start by 10%, a warning is due. The next warning needs 20 lower
 * losses in between. Non-finite losses are ignored (train/loop).
 */
#ifndef TRAIN_LOSS_MONITOR_H
#define TRAIN_LOSS_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

enum { LOSS_MONITOR_START = 10, LOSS_MONITOR_STEPS = 20 };

typedef struct loss_monitor {
    double guess; /* the loss of guessing */
    double first[LOSS_MONITOR_START];
    int count;        /* of `first` */
    double start;     /* set when count is LOSS_MONITOR_START */
    int above, below; /* latest losses in a row above or below the limit */
    double sum;       /* of the `above` losses */
    bool warned;
} loss_monitor;

void loss_monitor_open(loss_monitor *m, int64_t vocab);
/* Adds a step's loss. True if a warning is due; then *mean is of the last LOSS_MONITOR_STEPS losses. */
bool loss_monitor_add(loss_monitor *m, double loss, double *mean);

#endif
