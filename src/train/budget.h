/* train/budget: memory_budget as in torchtitan. Chooses the activation checkpointing of each block so that a
   step needs a given share of the memory between full recomputation (0) and none (1). Each choice is measured
   by recording the memory plan; nothing is computed. */
#ifndef TRAIN_BUDGET_H
#define TRAIN_BUDGET_H

#include "base/log.h"
#include "model/model.h"
#include "tensor/group_host.h"

typedef struct budget {
    double share; /* 0: the memory with all blocks recomputed; 1: with no block recomputed */
    /* *bytes = size of a step's plan with the blocks' current checkpointing. */
    ott_status (*measure)(void *user, int64_t *bytes);
    void *user;
    group_host *host_exchange; /* ranks that must make the same choice; NULL: this rank only */
    const logger *log;
} budget;

/* Sets the checkpointing of every block of m and logs it. The first n blocks recompute all but matrix
   products. If n = all is not enough, all blocks do so and the first n recompute everything. Chooses the
   smallest n that fits. */
ott_status budget_fit(const budget *b, model *m);

#endif
