/* run/inference: opens a trained model for forward passes only; used by generation, evaluation and export.
   First find the model's configuration, which the caller may change, then read it into a plan, then open the
   model with its weights. A live_model is open for training already. */
#ifndef RUN_INFERENCE_H
#define RUN_INFERENCE_H

#include "model/model.h"
#include "train/precision.h"

/*
 * Finds the configuration and the checkpoint of the model at `path`, which depend on what `path` is:
 *   run folder or checkpoint   *cfg = the training configuration; *checkpoint = the run's newest, or `path`
 *   Hugging Face folder        *cfg = made from config.json, in bf16; *checkpoint = NULL
 *   PEFT folder                *cfg = made from base model and adapters, in bf16; *checkpoint = NULL
 * window: train.seq_len for a Hugging Face or PEFT folder, at most the model's context; 0: 2048. base: NULL,
 * or a folder with base weights that is used instead of model.hf_path. Free *cfg with config_close and
 * *checkpoint with mem_free. Both are NULL on failure.
 */
ott_status inference_find(mem *account, const char *path, const char *base, int64_t window, config **cfg,
                          char **checkpoint);

/* Do not move or copy a plan after inference_read: it has pointers into itself. */
typedef struct inference_plan {
    const config *cfg;      /* borrowed configuration */
    const char *checkpoint; /* borrowed; NULL: load the folder model.hf_path */
    model_options shape;
    precision_plan precision;
    /* The recipes that the run's next step would use. recipe NULL: load only masters, to export them. */
    convert_options convert;
} inference_plan;

/* Fills *out. checkpoint may be NULL. Sets the keys of [model] in cfg that are computed from other keys. */
ott_status inference_read(mem *account, config *cfg, const char *checkpoint, inference_plan *out);

/* Another precision than the one in the model's configuration. */
typedef struct inference_choice {
    const char *user;            /* caller's name for messages, such as "eval" */
    const char *precision;       /* as in ott_eval_options; NULL or "trained": the model's precision */
    const char *const *settings; /* setting_count arguments that set keys in `allowed` (config_override) */
    int setting_count;
    const char *const *allowed;
} inference_choice;

/* Like inference_read, after applying *choice to cfg. */
ott_status inference_choose(mem *account, config *cfg, const char *checkpoint, const inference_choice *choice,
                            inference_plan *out);
/* Opens, converts and loads the model for sequences of at most `positions` tokens. `log` receives the
   loader's messages and may be NULL. Close with model_close. *out is not set on failure. */
ott_status inference_open(const inference_plan *p, device *d, int64_t positions, const logger *log,
                          model **out);

/* A model that is open for training, between two steps. All pointers are borrowed. */
typedef struct live_model {
    config *cfg;
    model *m;
    struct trainer *trainer; /* the trainer of a run; NULL: a model without one */
    int64_t step;            /* steps done: exec.step of a pass with the current weights */
} live_model;

/* OTT_ERR_UNSUPPORTED if this rank has only a part of the weights. */
ott_status inference_check_live(const live_model *l);
/* Before and after passes: gives a run's model the averaged weights of a schedule-free optimizer, or the
   training weights again, as for a checkpoint. */
ott_status inference_use_average(const live_model *l, bool average);

#endif
