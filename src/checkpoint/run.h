/*
 * checkpoint/run: runs and branches. A run has a random id. Rewinding a run to an earlier checkpoint starts a
 * new branch: later checkpoints are renamed to abandoned-BRANCH-step-N, with the number of the old branch.
 * checkpoint/run_record stores run and branch. A folder of checkpoints belongs to one run; another run with
 * the same checkpoint.dir uses its subfolder run-ID.
 */
#ifndef CHECKPOINT_RUN_H
#define CHECKPOINT_RUN_H

#include "base/log.h"
#include "checkpoint/run_record.h"

/* Reads run.json of a run folder. If there is none, draws a run id and writes run.json. */
ott_status checkpoint_run_begin(mem *account, const char *run_folder, run_record *out);
/* Finds where the run's checkpoints are: in `folder` (checkpoint.dir), or in its subfolder run-ID if `folder`
   belongs to another run. Writes nothing. The caller frees *home with mem_free. */
ott_status checkpoint_run_home(mem *account, const char *run_folder, const char *folder, char **home);
/* Like checkpoint_run_home, but the run will write there. If the folder has no owner, the run becomes its
   owner. Completes an interrupted rewind. adopts: the run may own a folder whose checkpoints have no run id.
   If the run folder is a copy of the owner's run folder, gives the run a new id, also in *r. */
ott_status checkpoint_run_claim(mem *account, const logger *log, const char *run_folder, const char *folder,
                                bool adopts, run_record *r, char **home);
/* How a checkpoint is related to a run. `home` is the folder of the run's checkpoints. */
typedef enum checkpoint_relation {
    CHECKPOINT_OWN,    /* a checkpoint in the run's folder `home` */
    CHECKPOINT_COPY,   /* a checkpoint elsewhere, of the run's current branch */
    CHECKPOINT_FOREIGN /* a checkpoint of another run or of an abandoned branch */
} checkpoint_relation;

ott_status checkpoint_run_relation(mem *account, const char *home, const char *path,
                                   checkpoint_relation *out);
/* *branch = the branch that a rewind to `step` (-1: start) ends; 0 if no checkpoint is later than `step`. */
ott_status checkpoint_run_branch_to_abandon(mem *account, const char *home, int64_t step, int64_t *branch);
/* Rewinds the run to `step`: renames the checkpoints of later steps, logs it, and starts the next branch. */
ott_status checkpoint_run_rewind(mem *account, const logger *log, const char *home, int64_t step);

#endif
