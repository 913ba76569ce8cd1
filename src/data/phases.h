/*
 * data/phases: data.phases, from which step on a run reads its datasets in other shares and learns at another rate; one phase
 * may be written as data.anneal_start_step and data.anneal_weights. KempnerForge's.
 */
#ifndef DATA_PHASES_H
#define DATA_PHASES_H

#include "config/config.h"

enum { PHASES_MAX = 64, PHASE_WEIGHTS_MAX = 256, PHASE_NAME_MAX = 128 };

typedef struct data_phase {
    int64_t start_step; /* steps before it */
    double lr_scale;    /* the learning rate is multiplied by it until the next phase */
    int count;
    struct {
        char name[PHASE_NAME_MAX]; /* of a dataset; one that is not named has the weight of data.datasets */
        double weight;             /* 0: it rests */
    } weights[PHASE_WEIGHTS_MAX];
} data_phase;

int phases_count(const config *cfg);
/* Phase i, in the order of their steps. OTT_ERR_CONFIG where its text is none. */
ott_status phases_read(const config *cfg, int i, data_phase *out);
/* Are they whole, and do their steps ascend? */
ott_status phases_check(const config *cfg);
/* The lr_scale in force in that step, counted from 0; which were checked. */
double phases_lr_scale(const config *cfg, int64_t step);
/* Does a phase begin with that step? -1: no. */
int phases_begin_at(const config *cfg, int64_t step);

#endif
