/*
 * train/loss_watch: sees that a loss, finite as it may be, stays above where it began.
 *
 * The start is the median of the first 10 losses that this process computed, but no more than the first of
 * them or than guessing has (the logarithm of the vocabulary's size), whichever is larger: a run may diverge
 * within 10 steps. A loss is above it that exceeds it by a tenth. 20 such in a row are worth a warning, and
 * another one after 20 in a row that were not. Losses that are no numbers do not count: the loop has them.
 */
#ifndef TRAIN_LOSS_WATCH_H
#define TRAIN_LOSS_WATCH_H

#include <stdbool.h>
#include <stdint.h>

enum { LOSS_WATCH_START = 10, LOSS_WATCH_STEPS = 20 };

typedef struct loss_watch {
    double guess; /* the loss of guessing */
    double first[LOSS_WATCH_START];
    int count;        /* of them */
    double start;     /* known when count is LOSS_WATCH_START */
    int above, below; /* in a row, until now */
    double sum;       /* of those above */
    bool told;
} loss_watch;

void loss_watch_open(loss_watch *w, int64_t vocab);
/* A step's loss. True: a warning is due; `*mean` is then that of the last LOSS_WATCH_STEPS losses. */
bool loss_watch_add(loss_watch *w, double loss, double *mean);

#endif
