/*
 * train/resume_rows: the rows of a step and the number of steps of a run that resumes, maybe on another number of ranks.
 */
#ifndef TRAIN_RESUME_ROWS_H
#define TRAIN_RESUME_ROWS_H

#include "data/dataset.h"
#include "train/resume.h"

/* Keeps the rows of a step as the checkpoint had them, by another train.grad_accum_steps, unless the configuration asks for
   others or the ranks do not divide them: then it logs both figures. Counts the steps of train.num_epochs by the rows that are
   left. Every rank calls it. */
ott_status resume_fit_rows(const logger *log, mem *account, config *cfg, const resume_point *p,
                           const dataset *train);

#endif
