/*
 * train/inference: a trained model, opened to run forward only: first what its configuration says of it,
 * which the caller may change, then the model with its weights. Generation, evaluation and export open theirs
 * so.
 */
#ifndef TRAIN_INFERENCE_H
#define TRAIN_INFERENCE_H

#include "model/model.h"
#include "train/precision.h"

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
/* The model, converted and loaded, for sequences of `positions` tokens. `log` (may be NULL) hears what
   loading has to say. *out is not set on failure. */
ott_status inference_open(const inference_plan *p, device *d, int64_t positions, const logger *log,
                          model **out);

#endif
