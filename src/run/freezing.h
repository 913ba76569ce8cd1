/* run/freezing: train.freeze_schedule, which freezes parameters from given steps on. */
#ifndef RUN_FREEZING_H
#define RUN_FREEZING_H

#include "train/trainer.h"

enum { FREEZING_NONE = -1 };

/* OTT_ERR_CONFIG if an entry is malformed or the steps do not ascend. */
ott_status freezing_check(const config *cfg);
/* Applies each entry on trial. OTT_ERR_CONFIG if an entry names no trained parameter or freezes all
   parameters. Afterwards no entry is applied. Call it before step 1. */
ott_status freezing_check_names(const config *cfg, model *m);
/* Returns the index of the schedule's entry for a step (counted from 0); FREEZING_NONE if there is none. */
int freezing_at(const config *cfg, int64_t step);
/* Freezes the parameters that the entry names, and unfreezes parameters of other entries. Call it between
   steps. *frozen_count = number of parameters that the entry freezes. */
ott_status freezing_apply(const config *cfg, trainer *t, int entry, int *frozen_count);

#endif
