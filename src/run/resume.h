/* run/resume: finds the checkpoint that a run resumes from, loads it, and logs which configuration keys
   have changed since the checkpoint was saved. */
#ifndef RUN_RESUME_H
#define RUN_RESUME_H

#include "run/folder/run_folder.h"
#include "train/trainer.h"

typedef struct resume_point {
    char *checkpoint; /* path of the checkpoint; NULL: start from scratch */
    checkpoint_exclusions exclusions;
    int64_t step;      /* number of training steps done */
    int64_t rows;      /* number of rows that all ranks have read */
    int64_t step_rows; /* rows of the last step; 0: unknown number */
    int64_t metrics;   /* last step to keep in metrics.jsonl; -1: keep no step */
} resume_point;

/* Resolves checkpoint.load_path: a path; "latest", this run's newest checkpoint; or "auto", which is "latest"
   if there is a checkpoint, else a start from scratch. Close *out with resume_close, even on failure. */
ott_status resume_find(const logger *log, const config *cfg, const run_folder *folder, resume_point *out);
void resume_close(mem *account, resume_point *p);
/* Reads the configuration of the resumed run, before the run's folder is opened. *out = NULL if no run is
   resumed or the checkpoint cannot be read; resume_find reports the error. Close *out with config_close. */
ott_status resume_config(mem *account, const config *cfg, config **out);
/* Loads the checkpoint, if any. Logs its path and step, and the changed keys that can affect the losses. */
ott_status resume_load(trainer *t, const config *cfg, const resume_point *p);
/* Returns the run folder to the step of the checkpoint: copies the metrics and renames later checkpoints as
   an abandoned branch. Sets p->metrics. Only on rank 0, between loading and the first metrics. */
ott_status resume_finalize(const logger *log, run_folder *folder, resume_point *p);
/* Appends the shell command that resumes the run in this folder. */
void resume_command(const run_folder *folder, str *out);

/* Changes train.grad_accum_steps so that a step has as many rows as before, also on another number of ranks;
   if that is not possible or the configuration changes the batch, only logs both numbers. Then sets
   train.max_steps from train.num_epochs. Call it on every rank. Defined in run/resume_rows.c. */
ott_status resume_fit_rows(const logger *log, mem *account, config *cfg, const resume_point *p,
                           const dataset *train);

#endif
