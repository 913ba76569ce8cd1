/* data/phases: the phases of a run (KempnerForge's data.phases). From its start step on, a phase changes the
   weights of the datasets and scales the learning rate. data.anneal_start_step and data.anneal_weights define
   a single phase. */
#ifndef DATA_PHASES_H
#define DATA_PHASES_H

#include "config/config.h"

enum { PHASES_MAX = 64, PHASE_WEIGHTS_MAX = 256, PHASE_NAME_MAX = 128 };

typedef struct data_phase {
    int64_t start_step; /* number of steps before the phase */
    double lr_scale;    /* factor on the learning rate until the next phase */
    int count;
    struct {
        char name[PHASE_NAME_MAX]; /* a dataset's name; other datasets keep data.datasets' weight */
        double weight;             /* weight of the dataset; 0: not read */
    } weights[PHASE_WEIGHTS_MAX];
} data_phase;

int phases_count(const config *cfg);
/* Reads phase i, in order of start steps. OTT_ERR_CONFIG if its text is invalid. */
ott_status phases_read(const config *cfg, int i, data_phase *out);
/* Checks that all phases are complete and their start steps ascend. */
ott_status phases_check(const config *cfg);
/* Returns the lr_scale of a step, counted from 0. Call phases_check first. */
double phases_lr_scale(const config *cfg, int64_t step);
/* Returns the phase that begins at this step; -1: none. */
int phases_begin_at(const config *cfg, int64_t step);

#endif
