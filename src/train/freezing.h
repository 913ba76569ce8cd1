/* train/freezing: train.freeze_schedule, which parameters rest from which step on. */
#ifndef TRAIN_FREEZING_H
#define TRAIN_FREEZING_H

#include "train/trainer.h"

enum { FREEZING_NONE = -1 };

/* Are the entries of the schedule whole, and do their steps ascend? Names are looked up when the model is there. */
ott_status freezing_check(const config *cfg);
/* The entry in force in a step, counted from 0; FREEZING_NONE: nothing rests. */
int freezing_at(const config *cfg, int64_t step);
/* Between steps: goes on with what rests by that entry. *resting: how many parameters. */
ott_status freezing_apply(const config *cfg, trainer *t, int entry, int *resting);

#endif
