/*
 * train/resume: where a run begins: with fresh weights, or with a checkpoint; and what of its configuration
 * has changed since that was written.
 */
#ifndef TRAIN_RESUME_H
#define TRAIN_RESUME_H

#include "train/run_folder.h"
#include "train/trainer.h"

typedef struct resume_point {
    char *checkpoint; /* NULL: a fresh start */
    checkpoint_exclusions choice;
    int64_t step;      /* the run has done */
    int64_t rows;      /* the run has read */
    int64_t step_rows; /* the last of its steps read; 0: not known */
    int64_t metrics;   /* the rows of metrics.jsonl up to this step are of this run; -1: none */
} resume_point;

/* What checkpoint.load_path means: a checkpoint, "latest" of this run, or "auto": that, or else a fresh
   start. Given back with resume_close, also when this fails. */
ott_status resume_find(const logger *log, const config *cfg, const run_folder *folder, resume_point *out);
void resume_close(mem *account, resume_point *p);
/* data.chat_date of the run that is resumed, before its folder is open; "undefined" if its checkpoint is older than the key; "" if no run
   is resumed or the checkpoint cannot be read (resume_find reports that). */
void resume_chat_date(mem *account, const config *cfg, char out[16]);
/* Loads the checkpoint, if any, and says so, and which keys that matter have changed. */
ott_status resume_load(trainer *t, const config *cfg, const resume_point *p);
/* Makes the run's folder that of a run which stands at this point: checkpoints and metrics of a branch that
   is left are set aside. To be called once the checkpoint has proved to be good, before metrics are written.
 */
ott_status resume_finalize(const logger *log, run_folder *folder, resume_point *p);
/* Appends the command that goes on with the run in this folder. */
void resume_command(const run_folder *folder, str *out);

#endif
