/* train/budget: implements memory_budget as torchtitan does. Limits a step's memory by choosing the
   activation checkpointing of each block. Budget 0 is the memory with all blocks recomputed; budget 1 is the
   memory with no block recomputed. To measure a choice, the memory plan is recorded; nothing is computed. */
#ifndef TRAIN_BUDGET_H
#define TRAIN_BUDGET_H

#include "base/log.h"
#include "model/model.h"
#include "tensor/group/group_host.h"

typedef struct budget {
    double share; /* from 0 (memory with all blocks recomputed) to 1 (memory with no block recomputed) */
    /* *bytes = memory of a step's plan with the blocks' current checkpointing. */
    ott_status (*measure)(void *user, int64_t *bytes);
    void *user;
    group_host *host_exchange; /* the ranks that must make the same choice; NULL: only one rank */
    const logger *log;
} budget;

/* Sets the checkpointing of every block of m so that memory is within the budget, and logs it. The first n
   blocks recompute all but matrix products, with the smallest n that suffices. If all blocks do not suffice,
   the first n blocks recompute everything and the others all but matrix products. */
ott_status budget_fit(const budget *b, model *m);

#endif
