/*
 * checkpoint/checkpoint: training state on disk, and back. A checkpoint is a folder `step-N`:
 *
 *     model.safetensors      masters, fp32 or bf16, under their Hugging Face names
 *     optimizer.safetensors  "<name>.exp_avg" and "<name>.exp_avg_sq"; no tensor with checkpoint.save_model_only
 *                            after train.max_steps
 *     float8.safetensors     delayed scaling: "<module>.<tensor>.<format>.amax_history" and ".scale";
 *                            "<module>.below": its count towards float8.fallback, -1 when it has fallen;
 *                            metadata: recipe and margins (float8.h)
 *     config.toml            the resolved configuration of the run
 *     history.json           what the run has come to (run_history.h); older ones have none
 *     sources.json           the files it reads (run_sources.h); older ones have none
 *     state.json             counters, run and branch, model dimensions, and size and CRC-32C of the other files
 *
 * The public API saves in the same format (api/state.c), in a folder of any name and of no run: a whole model without
 * history.json and sources.json, another module without config.toml and the dimensions too.
 *
 * It is complete or absent: written into a staging folder, synced, renamed. A tensor is stored whole, whatever
 * the layout that wrote it, so any layout can read it: the same bytes whether one rank or many wrote it. Ranks that share
 * a model write each its own part of the files, at once, on a file system that all see; rank 0 renames the folder when all
 * are done. When a run's checkpoints are written is checkpoint/writer's.
 */
#ifndef CHECKPOINT_CHECKPOINT_H
#define CHECKPOINT_CHECKPOINT_H

#include "base/log.h"
#include "model/model.h"

/* The counters of a run: with parameters and moments, all that a run is. */
typedef struct run_state {
    int64_t step;                 /* training steps done */
    int64_t updates;              /* optimizer updates done: steps less the skipped ones */
    int64_t samples;              /* sequences read by all ranks: the whole state of the data loader */
    int64_t tokens;               /* tokens trained on by all ranks */
    int64_t nan_steps;            /* steps skipped in a row just before */
    float loss_scale, good_steps; /* STEP_LOSS_SCALE, STEP_GOOD_STEPS */
    int64_t schedule_start;       /* step from which the learning rate's schedule counts */
    int64_t step_rows;            /* sequences that the newest step read, on all ranks; 0: not known */
} run_state;

/* What of a checkpoint is left out; all zero: nothing. */
typedef struct checkpoint_exclusions {
    bool no_model;     /* weights and FP8 state stay as they are */
    bool no_optimizer; /* its state stays as it is, and no update was done */
    bool no_schedule;  /* the learning rate's begins anew */
    bool no_data;      /* rows are read from the first one on */
    bool no_counters;  /* steps and tokens are counted anew; only with no_optimizer and no_schedule */
    /* Other parameters may have been frozen: state that is not there stays as it is, and what is there of those that are
       frozen now is left out. */
    bool any_frozen;
} checkpoint_exclusions;

/* Writes `folder`/step-N (recipe_name: that of the recipe in force) and then removes the oldest so that
   `keep` remain (0: all), where they can be removed. `path` (may be NULL) gets the folder written, to be given back with mem_free.
   `ranks` (NULL: one) hold the model between them and all call this; what fails on one is every rank's error, which names
   it. */
ott_status checkpoint_save(const model *m, const config *cfg, const char *recipe_name, const run_state *state,
                           group *ranks, const char *folder, int64_t keep, char **path);

/* What a load path means: a step-N folder itself, or the newest one in the folder given, in the folder of
   checkpoints of the run it is, or, for "latest", in `folder`; of the run that folder is of, and of its
   present branch (run.h). An incomplete or damaged one is an error that names the newest complete
   one beside it. */
ott_status checkpoint_find(mem *account, const char *load_path, const char *folder, char **path);
/* Compares every file of a checkpoint with its checksum. A path that is no checkpoint is none to check. */
ott_status checkpoint_check(mem *account, const char *path);
/* The counters of a checkpoint, without its tensors. */
ott_status checkpoint_peek(mem *account, const char *path, run_state *state);
/* Does `folder` have the weights beside which a checkpoint's adapters stand? One that holds all weights needs none. */
ott_status checkpoint_base_matches(mem *account, const char *path, const char *folder, bool *fits);
/* The configuration the checkpoint was trained with; closed with config_close. */
ott_status checkpoint_config(mem *account, const char *path, config **out);
/* Step-N folders of its run in `folder`: is there any? */
ott_status checkpoint_has_any(mem *account, const char *folder, bool *any);

/* Fills parameters, and moments where the model has them, the counters, and the FP8 state: what the model's
   recipe wants and the checkpoint has not starts anew, what it has beyond that is dropped, and the log says
   so. *fallen: some layer has fallen back to high precision, and the model must be converted again. A
   checkpoint of other dimensions is an error that names the first field that differs, with both values; so is
   a damaged file. `ranks` (NULL: one) all call this, each for its part of the model; what fails on one is every rank's
   error. */
ott_status checkpoint_load(model *m, const logger *log, group *ranks, const char *path, run_state *state,
                           bool *fell_back);
/* The same of a part of it. */
ott_status checkpoint_load_part(model *m, const logger *log, group *ranks, const char *path,
                                const checkpoint_exclusions *choice, run_state *state, bool *fell_back);

#endif
