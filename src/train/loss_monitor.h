/*
 * train/loss_monitor: sees that a loss, finite as it may be, stays above where it began.
 *
 * The start is the median of the first 10 losses that this process computed, but no more than the first of
 * them or than guessing has (the logarithm of the vocabulary's size), whichever is larger: a run may diverge
 * within 10 steps. A loss is above it that exceeds it by a tenth. 20 such in a row are worth a warning, and
 * another one after 20 in a row that were not. Losses that are no numbers do not count: the loop has them.
 */
#ifndef TRAIN_LOSS_MONITOR_H
#define TRAIN_LOSS_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

enum { LOSS_MONITOR_START = 10, LOSS_MONITOR_STEPS = 20 };

typedef struct loss_monitor {
    double guess; /* the loss of guessing */
    double first[LOSS_MONITOR_START];
    int count;        /* of them */
    double start;     /* known when count is LOSS_MONITOR_START */
    int above, below; /* in a row, until now */
    double sum;       /* of those above */
    bool warned;
} loss_monitor;

void loss_monitor_open(loss_monitor *w, int64_t vocab);
/* A step's loss. True: a warning is due; `*mean` is then that of the last LOSS_MONITOR_STEPS losses. */
bool loss_monitor_add(loss_monitor *w, double loss, double *mean);

#endif
