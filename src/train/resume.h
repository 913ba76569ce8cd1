/*
 * train/resume: where a run begins: with fresh weights, or with a checkpoint; and what of its configuration
 * has changed since that was written.
 */
#ifndef TRAIN_RESUME_H
#define TRAIN_RESUME_H

#include "train/trainer.h"

/* The checkpoint that checkpoint.load_path means, to be given back with mem_give (NULL: none, a fresh start),
   and how many steps it has done. `folder`: of this run's checkpoints. */
ott_status resume_find(mem *account, const config *cfg, const char *folder, char **path, int64_t *step);
/* Loads the checkpoint (NULL: nothing) and says so, and which keys that matter have changed. */
ott_status resume_load(trainer *t, const config *cfg, const char *path);

#endif
