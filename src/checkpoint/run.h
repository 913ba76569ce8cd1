/*
 * checkpoint/run: which run a checkpoint is of, and which branch of it. A run has an id, drawn once.
 * Going back to an earlier checkpoint begins a new branch: the later ones are set aside as
 * abandoned-BRANCH-step-N, under the number of the branch that is left. The records that say so are
 * checkpoint/run_record's.
 *
 * A folder of checkpoints belongs to one run. Another that is given the same checkpoint.dir has its own in
 * run-ID inside it.
 */
#ifndef CHECKPOINT_RUN_H
#define CHECKPOINT_RUN_H

#include "base/log.h"
#include "checkpoint/run_record.h"

/* The record of a run's folder, with an id drawn now when it has none. */
ott_status checkpoint_run_begin(mem *account, const char *run_folder, run_record *out);
/* Where this run's checkpoints are: `folder` (its checkpoint.dir), or run-ID in it when that is another
   run's; given back with mem_free. Nothing is written. */
ott_status checkpoint_run_home(mem *account, const char *run_folder, const char *folder, char **home);
/* The same for the run that will write there: makes the folder its own when it is nobody's, and finishes what
   was left undone in it. `adopts`: checkpoints there that name no run are this run's. A run folder that is a
   copy of one that uses the same checkpoints becomes a run of its own, and r is that one's record. */
ott_status checkpoint_run_claim(mem *account, const logger *log, const char *run_folder, const char *folder,
                                bool adopts, run_record *r, char **home);
/* What a checkpoint is to the run whose checkpoints are in `home`. */
typedef enum checkpoint_relation {
    CHECKPOINT_OWN,    /* step-N in home */
    CHECKPOINT_COPY,   /* it lies elsewhere, but is of the run's present branch */
    CHECKPOINT_FOREIGN /* of another run, or of a branch that was left */
} checkpoint_relation;

ott_status checkpoint_run_relation(mem *account, const char *home, const char *path,
                                   checkpoint_relation *out);
/* The branch that going back to `step` (-1: before all of them) leaves; 0: no checkpoint is later. */
ott_status checkpoint_run_branch_to_abandon(mem *account, const char *home, int64_t step, int64_t *branch);
/* Leaves it: sets the later checkpoints aside, says so, and begins the next branch. */
ott_status checkpoint_run_rewind(mem *account, const logger *log, const char *home, int64_t step);

#endif
