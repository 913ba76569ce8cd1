/*
 * monitor/profile: profiles selected training steps (config section `profiling`). Writes a Chrome trace with
 * a slice for each operation, phase and step, and a summary of the time by operation and of GEMMs in FP8:
 *
 *     TRACE_DIR/iteration_N/rank0_trace.json, summary.md       N: the last step profiled
 *
 * Each rank writes a trace; rank 0 writes the summary. Other steps are not timed. Profiling changes no
 * result.
 */
#ifndef MONITOR_PROFILE_H
#define MONITOR_PROFILE_H

#include "train/trainer.h"

typedef struct profile profile;

/* *out is NULL if profiling.enable is false. trace_dir is relative to run_folder. Borrows t and cfg. */
ott_status profile_open(trainer *t, const config *cfg, const char *run_folder, int rank, profile **out);
/* Call before and after trainer_step; p may be NULL. Logs the path of each profile. */
ott_status profile_begin_step(profile *p);
ott_status profile_end_step(profile *p);
/* At the end of a run: writes the profile, even if not all of its steps have run. p may be NULL. */
ott_status profile_finish(profile *p);
void profile_close(profile *p); /* p may be NULL; discards a profile that was not written */

#endif
