/* train/optimizer: gradient norm, clipping and AdamW over all parameters, on the device. */
#ifndef TRAIN_OPTIMIZER_H
#define TRAIN_OPTIMIZER_H

#include "model/model.h"

typedef struct optimizer_options {
    float beta1, beta2, epsilon, weight_decay;
    float max_norm; /* 0: no clipping */
} optimizer_options;

/* The host's part of the step state for update number `update` (from 1). */
void optimizer_schedule(const optimizer_options *o, double learning_rate, int64_t update, float *host_state);
/* One update from the accumulated gradients. norms: fp32[parameters], workspace; state:
 * fp32[STEP_STATE_COUNT]. */
ott_status optimizer_update(exec *cx, model *m, const optimizer_options *o, const tensor *norms,
                            const tensor *state);
/* The same for parameters[count] of any origin. */
ott_status optimizer_update_parameters(exec *cx, const parameter *parameters, int count,
                                       const optimizer_options *o, const tensor *norms, const tensor *state);

#endif
