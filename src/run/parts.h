/* run/parts: everything that a training run owns, and how it is opened and closed. Internal to src/run. */
#ifndef RUN_PARTS_H
#define RUN_PARTS_H

#include "checkpoint/writer.h"
#include "folders/hf/model.h"
#include "monitor/health.h"
#include "monitor/profile.h"
#include "monitor/progress.h"
#include "run/folder/run_folder.h"
#include "run/folder/sources.h"
#include "run/loop.h"
#include "run/memory/check.h"
#include "run/process_group.h"
#include "run/resume.h"

/* Everything that a run owns; closed by run_close. */
typedef struct run {
    mem *account;
    const logger *log; /* logger of this rank */
    config *cfg;
    const train_hooks *hooks;
    process_group process_group;
    config asked; /* cfg before model_options_resolve */
    model_options shape;
    hf_model_notes notes; /* values of model.hf_path's config.json that have no key */
    memory_need need;
    memory_check_fp8 need_fp8; /* set only on rank 0 */
    precision_plan precision;
    run_folder folder;
    resume_point start;
    device *device;
    dataset *train_data, *validation_data;
    trainer *trainer;
    checkpoint_writer *writer;
    int freezing; /* current entry of train.freeze_schedule, or FREEZING_NONE */
    health *health;
    profile *profile; /* NULL if profiling.enable is false */
    progress progress;
    run_sources files;  /* data and tokenizer files of the run */
    str sources;        /* text of sources.json for the checkpoints */
    bool history_known; /* true if the run is new, or if the history of its earlier processes was read */
    int64_t first_step; /* steps that were done when this process began */
    int64_t saved_step; /* step of the newest saved checkpoint; -1: none */
    cancellation cancellation;
    bool in_steps;          /* the first step has started */
    bool stopping, stopped; /* stopping: a stop was requested; stopped: the request has ended the run */
} run;

/* Opens all parts, from the device to the profile. Resumes from a checkpoint if the configuration asks for
   it. The caller has set account, log, cfg, hooks, process_group, cancellation, saved_step and freezing. */
ott_status run_open(run *r);
void run_close(run *r); /* closes the parts that are open */
/* Creates the run folder again if it was removed or renamed while the run uses it. */
ott_status run_keep_folder(run *r);
/* Returns the operand format of most GEMMs. */
ott_dtype run_product_format(const run *r);

#endif
