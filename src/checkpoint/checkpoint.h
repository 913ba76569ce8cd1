/*
 * checkpoint/checkpoint: saves and loads training state. A checkpoint is a folder `step-N`:
 *
 *     model.safetensors      master weights, fp32 or bf16, under their Hugging Face names. Frozen weights may
 *                            be FP8 codes with scales, or missing if adapters are trained on a base folder
 *     optimizer.safetensors  optimizer state: "<name>.exp_avg", "<name>.exp_avg_sq", ... It has no tensors if
 *                            checkpoint.save_model_only is set and training is complete (train.max_steps)
 *     float8.safetensors     delayed scaling: "<module>.<tensor>.<format>.amax_history" and ".scale";
 *                            float8.fallback: "<module>.below": number of low measurements of the layer's
 *                            SQNR in a row, or -1 if the layer fell back to high precision;
 *                            metadata: recipe and margins (float8.h)
 *     config.toml            the run's resolved configuration
 *     history.json           the run's progress so far (run_history.h); missing in old checkpoints
 *     sources.json           the files that the run reads (run_sources.h); missing in old checkpoints
 *     state.json             counters, run and branch, model dimensions; size and CRC-32C of the other files,
 *                            except the two JSON files above, which have their own checksums
 *
 * The public API (api/state.c) saves in the same format, in a folder with any name that belongs to no run. A
 * model saved by the API has no history.json and no sources.json. A single module also has no config.toml and
 * no dimensions.
 *
 * A checkpoint is complete or absent: the files are written to a staging folder and synced, then the folder
 * is renamed. The files hold global tensors. They are the same bytes for any number of ranks, and any number
 * of ranks can load them. All ranks write their shards in parallel, so they need a shared file system. Rank 0
 * renames the folder when all ranks are done. A run saves with checkpoint/writer, which adds both JSON files.
 */
#ifndef CHECKPOINT_CHECKPOINT_H
#define CHECKPOINT_CHECKPOINT_H

#include "base/log.h"
#include "config/config.h"
#include "model/model.h"

/* Counters of a run. A run is resumed from these, the weights and the optimizer state. */
typedef struct run_state {
    int64_t step;    /* completed training steps */
    int64_t updates; /* completed optimizer updates: steps minus skipped steps */
    /* sequences read by all ranks; the data loader's position follows from it */
    int64_t samples;
    int64_t tokens;               /* tokens trained on by all ranks */
    int64_t nan_steps;            /* consecutive skipped steps up to now */
    float loss_scale, good_steps; /* fp16: the loss scale, and the steps without overflow since it changed */
    int64_t schedule_start;       /* step at which the learning rate schedule starts */
    int64_t step_rows;            /* sequences of the last step, on all ranks; 0 if unknown */
} run_state;

/* The parts of a checkpoint that loading skips. All zero: loads everything. */
typedef struct checkpoint_exclusions {
    bool no_model;     /* keep the current weights and FP8 state */
    bool no_optimizer; /* keep the current optimizer state; updates = 0 */
    bool no_schedule;  /* restart the learning rate schedule */
    bool no_data;      /* restart at the first row of the data */
    /* restart the counts of steps and tokens; set it only together with no_optimizer and no_schedule */
    bool no_counters;
    /* The set of frozen parameters may differ from the checkpoint's. State that the checkpoint lacks keeps
       its initial value; state of parameters that are now frozen is ignored. */
    bool any_frozen;
} checkpoint_exclusions;

/* Writes `folder`/step-N, without history.json and sources.json. m must have an optimizer. Then removes the
   oldest checkpoints so that `keep` remain (0: all); a failed removal is not an error. A folder step-N of
   another run is renamed. recipe_name: the current FP8 recipe. `path` may be NULL; it receives the new
   folder's path, which the caller frees with mem_free. Collective over `ranks` (NULL: one rank), which
   together hold the model. An error on one rank is returned by all ranks, and its text names the rank. */
ott_status checkpoint_save(const model *m, const config *cfg, const char *recipe_name, const run_state *state,
                           group *ranks, const char *folder, int64_t keep, char **path);

/* Finds the checkpoint that `load_path` means. It may be a checkpoint (a step-N folder, or any folder with a
   state.json), a folder of checkpoints or a run folder (the newest checkpoint is taken), or "latest" (the
   newest checkpoint in `folder`). Ignores other runs' checkpoints in the folder, and those that a rewind of
   the run has abandoned (run.h). If the checkpoint is incomplete, the error names the newest complete one in
   its parent folder. OTT_ERR_NOT_FOUND if there is none. The caller frees *path with mem_free. */
ott_status checkpoint_find(mem *account, const char *load_path, const char *folder, char **path);
/* Compares all files of a checkpoint with their checksums. OTT_OK if `path` is not a checkpoint. */
ott_status checkpoint_check(mem *account, const char *path);
/* Reads a checkpoint's counters without its tensors. */
ott_status checkpoint_peek(mem *account, const char *path, run_state *state);
/* *fits is true if `folder` has the base weights of the checkpoint, or if the checkpoint needs none. */
ott_status checkpoint_base_matches(mem *account, const char *path, const char *folder, bool *fits);
/* Reads the configuration that the checkpoint was trained with; free it with config_close. */
ott_status checkpoint_config(mem *account, const char *path, config **out);
/* *any is true if `folder` has step-N checkpoints of the run that owns the folder. */
ott_status checkpoint_has_any(mem *account, const char *folder, bool *any);

/* Loads weights, optimizer state (if the model has an optimizer), counters and FP8 state. Call model_convert
   first: FP8 state that the model's recipe does not need is ignored, FP8 state that the checkpoint lacks is
   initialized; the log reports both. *fell_back is true if a layer fell back to high precision in the saved
   run and is in FP8 in this model: then call model_convert again. Files are checked before the model changes.
   Errors: a damaged file, or different model dimensions (the text names the first key that differs, with both
   values). Collective over `ranks` (NULL: one rank), each of which loads its shards; all ranks return the
   same error. */
ott_status checkpoint_load(model *m, const logger *log, group *ranks, const char *path, run_state *state,
                           bool *fell_back);
/* Like checkpoint_load, but skips the state that `choice` excludes. */
ott_status checkpoint_load_part(model *m, const logger *log, group *ranks, const char *path,
                                const checkpoint_exclusions *choice, run_state *state, bool *fell_back);

#endif
