/*
 * train/budget: which blocks are recomputed, so that a step's memory is a share of what lies between recomputing all of
 * them and none (torchtitan's memory_budget). The plan is recorded for each choice that is looked at; nothing is computed.
 */
#ifndef TRAIN_BUDGET_H
#define TRAIN_BUDGET_H

#include "base/log.h"
#include "model/model.h"
#include "tensor/group_host.h"

typedef struct budget {
    double share; /* 0: as much as with all blocks recomputed; 1: as with none */
    /* Bytes of a step's plan as the blocks are now. */
    ott_status (*measure)(void *user, int64_t *bytes);
    void *user;
    group_host *host_exchange; /* its group's ranks choose alike; NULL: this one alone */
    const logger *log;
} budget;

/* Sets the blocks' checkpointing: from the first on some recompute all but matrix products; where all do and that is not
   enough, from the first on some recompute everything. */
ott_status budget_fit(const budget *b, model *m);

#endif
