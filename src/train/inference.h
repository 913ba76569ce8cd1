/*
 * train/inference: a trained model, opened to run forward only: first what its configuration says of it,
 * which the caller may change, then the model with its weights. Generation, evaluation and export open theirs
 * so.
 */
#ifndef TRAIN_INFERENCE_H
#define TRAIN_INFERENCE_H

#include "model/model.h"
#include "train/precision.h"

/*
 * The model at `path`. A PEFT folder: its adapters on the base model that its adapter_config.json names. A run folder or a checkpoint: the configuration that trained it, and the checkpoint
 * (the newest of a run). A Hugging Face folder, which has a config.json and no run's files: a configuration
 * made of it, in bf16, with train.seq_len = window (0: 2048) or the model's context where that is shorter;
 * *checkpoint NULL. base: where the weights beside adapters are, instead of model.hf_path; NULL: there. Closed with config_close, given back with mem_free; both NULL on failure.
 */
ott_status inference_find(mem *account, const char *path, const char *base, int64_t window, config **cfg,
                          char **checkpoint);

/* Must not be moved once it is read (precision_plan). */
typedef struct inference_plan {
    const config *cfg;      /* borrowed */
    const char *checkpoint; /* borrowed; NULL: the Hugging Face folder model.hf_path */
    model_options shape;
    precision_plan precision;
    convert_options convert; /* as the run's next training step would; recipe NULL: masters only, nothing that
                                runs */
} inference_plan;

/* Puts derived values of [model] into cfg. */
ott_status inference_read(mem *account, config *cfg, const char *checkpoint, inference_plan *out);

/* The precision to compute in, if it is not the model's own. */
typedef struct inference_choice {
    const char *user;      /* who chooses, in messages: "eval" */
    const char *precision; /* NULL or "trained": the model's own; else as precision in ott_eval_options */
    const char *const *settings; /* [setting_count] arguments that give keys of `allowed` (config_override) */
    int setting_count;
    const char *const *allowed;
} inference_choice;

/* inference_read, with the chosen precision and settings put into cfg. */
ott_status inference_choose(mem *account, config *cfg, const char *checkpoint, const inference_choice *choice,
                            inference_plan *out);
/* The model, converted and loaded, for sequences of `positions` tokens. `log` (may be NULL) hears what
   loading has to say. *out is not set on failure. */
ott_status inference_open(const inference_plan *p, device *d, int64_t positions, const logger *log,
                          model **out);

#endif
