/*
 * train/admission: is there memory for this run? Decided before anything large is taken: the trainer is
 * opened on a dry run (tensor/dry_run.h), under every recipe of the precision schedule, and what it would
 * take is compared with what the device has left.
 */
#ifndef TRAIN_ADMISSION_H
#define TRAIN_ADMISSION_H

#include "tensor/dry_run.h"
#include "train/run.h"

/* What a run is made of; all borrowed. */
typedef struct admission {
    mem *account;
    const device *device;
    const config *cfg;   /* resolved */
    const config *asked; /* as it was before model_options_resolve made the reduced model of it */
    const model_options *shape;
    int64_t step; /* the run starts with */
    const dataset *train_data, *validation_data;
    const dry_run_listener *listener;           /* hears the first step's operations; NULL: nobody */
    ott_status (*look)(void *user, trainer *t); /* at the trainer, once the step is recorded; NULL: nobody */
    void *user;
} admission;

/* Bytes, by kind, at the moment when a run needs the most; with what is already taken. */
typedef struct admission_need {
    int64_t total, of[MEM_KIND_COUNT];     /* of the device's memory */
    int64_t host, host_of[MEM_KIND_COUNT]; /* of the host's, where that is another */
    int64_t saved;                         /* of the step arena: what forward leaves for backward */
} admission_need;

/* What the run needs, whatever there is. */
ott_status admission_measure(const admission *a, admission_need *out);
/* OTT_ERR_MEMORY when it is more than what is left: then it names the kinds that are large, whose limit it
 * is, and the three settings that would save most, with how much. */
ott_status admission_decide(const admission *a, admission_need *out);

#endif
