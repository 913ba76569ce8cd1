/*
 * train/profile: profiles of single training steps (section profiling of the configuration): a Chrome trace
 * with a slice for each operation inside its phase and step, and a summary that says where the time went and
 * how many matrix products ran in FP8:
 *
 *     TRACE_DIR/iteration_N/rank0_trace.json, summary.md       N: the last step profiled
 *
 * Each rank writes its trace; the summary is rank 0's.
 *
 * Nothing is looked at in the other steps, and no bit of the training changes.
 */
#ifndef TRAIN_PROFILE_H
#define TRAIN_PROFILE_H

#include "train/trainer.h"

typedef struct profile profile;

/* *out is NULL when profiling.enable is false. A relative profiling.trace_dir lies in run_folder. t, cfg and
   run_folder are borrowed. */
ott_status profile_open(trainer *t, const config *cfg, const char *run_folder, int rank, profile **out);
/* Around trainer_step; p may be NULL. The log says where a profile was written. */
ott_status profile_begin_step(profile *p);
ott_status profile_end_step(profile *p);
/* The run ends here: what is profiled so far of a range of steps is written. */
ott_status profile_finish(profile *p);
void profile_close(profile *p); /* NULL is allowed; a profile that is not written is dropped */

#endif
