/* run/resume_rows: sets a resumed run's rows per step and number of steps; the number of ranks may differ. */
#ifndef RUN_RESUME_ROWS_H
#define RUN_RESUME_ROWS_H

#include "data/dataset.h"
#include "run/resume.h"

/* Changes train.grad_accum_steps so that a step has as many rows as before. If the configuration changes the
   batch, or the ranks cannot divide the old number of rows, only logs the old and the new number. Then sets
   train.max_steps from train.num_epochs and the rows that are left. Call it on every rank. */
ott_status resume_fit_rows(const logger *log, mem *account, config *cfg, const resume_point *p,
                           const dataset *train);

#endif
