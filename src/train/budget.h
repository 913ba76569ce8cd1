/* train/budget: memory_budget as in torchtitan. Chooses the activation checkpointing of each block by the
   memory of a step. Share 0 is the memory with all blocks recomputed; share 1 is the memory with no block
   recomputed. Each choice is measured by recording the memory plan; nothing is computed. */
#ifndef TRAIN_BUDGET_H
#define TRAIN_BUDGET_H

#include "base/log.h"
#include "model/model.h"
#include "tensor/group_host.h"

typedef struct budget {
    double share; /* from 0 (memory with all blocks recomputed) to 1 (memory with no block recomputed) */
    /* *bytes = memory of a step's plan with the blocks' current checkpointing. */
    ott_status (*measure)(void *user, int64_t *bytes);
    void *user;
    group_host *host_exchange; /* for the ranks that must make one common choice; NULL: one rank */
    const logger *log;
} budget;

/* Sets the checkpointing of every block of m and logs it. Chooses the smallest number of blocks that
   recompute all but matrix products, counted from the first block. If all blocks do so and the memory is
   still above the share, chooses the smallest number of blocks that recompute everything. */
ott_status budget_fit(const budget *b, model *m);

#endif
