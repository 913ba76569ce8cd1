/* train/freezing: train.freeze_schedule, which parameters rest from which step on. */
#ifndef TRAIN_FREEZING_H
#define TRAIN_FREEZING_H

#include "train/trainer.h"

enum { FREEZING_NONE = -1 };

/* Are the entries of the schedule whole, and do their steps ascend? */
ott_status freezing_check(const config *cfg);
/* Does each name trained parameters, and leave some? Before the first step: nothing rests after it. */
ott_status freezing_check_names(const config *cfg, model *m);
/* The entry in force in a step, counted from 0; FREEZING_NONE: nothing rests. */
int freezing_at(const config *cfg, int64_t step);
/* Between steps: goes on with what rests by that entry. *resting: how many parameters. */
ott_status freezing_apply(const config *cfg, trainer *t, int entry, int *frozen_count);

#endif
