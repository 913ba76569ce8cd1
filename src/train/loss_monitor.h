/*
 * train/loss_monitor: detects a training loss that stays above its value at the start.
 *
 * The start is the median of this process's first 10 losses. Since a run may diverge within 10 steps, the
 * start is at most the larger of the first loss and the loss of guessing (log of the vocabulary size). The
 * limit is 1.1 times the start. After 20 losses in a row above the limit, a warning is due. Before the next
 * warning, 20 losses in a row must be at or below the limit. Non-finite losses are ignored here; train/loop
 * handles them.
 */
#ifndef TRAIN_LOSS_MONITOR_H
#define TRAIN_LOSS_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

enum { LOSS_MONITOR_START = 10, LOSS_MONITOR_STEPS = 20 };

typedef struct loss_monitor {
    double guess; /* loss of a uniform guess: log of the vocabulary size */
    double first[LOSS_MONITOR_START];
    int count;        /* number of losses in `first` */
    double start;     /* start value; set when count is LOSS_MONITOR_START */
    int above, below; /* latest losses in a row above the limit; latest losses in a row not above it */
    double sum;       /* sum of the latest `above` losses */
    bool warned;
} loss_monitor;

void loss_monitor_open(loss_monitor *m, int64_t vocab);
/* Adds a step's loss. True if a warning is due; then *mean = mean of the last LOSS_MONITOR_STEPS losses. */
bool loss_monitor_add(loss_monitor *m, double loss, double *mean);

#endif
