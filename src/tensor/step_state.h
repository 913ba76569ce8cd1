/*
 * tensor/step_state: values of a training step in device memory: a vector of floats with one slot for each
 * value. With this vector a full step can be queued without waiting for the device. The host writes the first
 * values (LEARNING_RATE to AVERAGE) before a step and reads the results after it.
 */
#ifndef TENSOR_STEP_STATE_H
#define TENSOR_STEP_STATE_H

#include "base/anywhere.h"
#include <stdint.h>

#define STEP_STATE_MAP(X)                                                                                    \
    /* values that the host writes */                                                                        \
    X(LEARNING_RATE)                                                                                         \
    X(CORRECTION1)      /* 1 - beta1^t for update t */                                                       \
    X(SQRT_CORRECTION2) /* sqrt(1 - beta2^t) for update t */                                                 \
    X(TOKENS)           /* number of label tokens in the global batch */                                     \
    X(LOSS_SCALING)     /* 1: dynamic loss scaling (fp16), 0: LOSS_SCALE does not change */                  \
    X(UPDATE_LOW)       /* low 24 bits of the update's index; a float holds 24 bits exactly */               \
    X(UPDATE_HIGH)      /* the higher bits of the update's index */                                          \
    X(BALANCE)          /* factor of the rate at which the routers' balancing biases change */               \
    X(AVERAGE)          /* schedule-free: weight of the newest iterate in the average */                     \
    /* values that stay on the device from step to step */                                                   \
    X(LOSS_SCALE) /* 1 unless activations are fp16 */                                                        \
    X(GOOD_STEPS) /* finite steps since the loss scale last changed */                                       \
    /* results of the step */                                                                                \
    X(GRAD_NORM) /* L2 norm of all gradients, loss scale removed, before clipping */                         \
    X(CLIP)      /* factor of each gradient: min(1, max_norm / (norm + 1e-6)) / loss scale */                \
    X(SKIP)      /* 1: a gradient or the loss is not finite, so no parameter changes */                      \
    X(LOSS)      /* sum of token losses */                                                                   \
    X(Z_LOSS)    /* sum over tokens of logsumexp(logits)^2, if the head has a z-loss */

enum step_state {
#define X(name) STEP_##name,
    STEP_STATE_MAP(X)
#undef X
        STEP_STATE_COUNT
};

/* Write and read the update's index. */
static inline void step_state_set_update(float *state, uint64_t update) {
    state[STEP_UPDATE_LOW] = (float)(update & 0xffffffu);
    state[STEP_UPDATE_HIGH] = (float)(update >> 24);
}
ANYWHERE uint64_t step_state_update(const float *state) {
    return (uint64_t)state[STEP_UPDATE_HIGH] << 24 | (uint64_t)state[STEP_UPDATE_LOW];
}

/* Dynamic loss scaling (Micikevicius et al. 2018) with the constants of PyTorch's GradScaler: a non-finite
   gradient halves the scale, down to 1; STEP_GROWTH_INTERVAL finite steps in a row double it. */
#define STEP_GROWTH_INTERVAL  2000
#define STEP_LOSS_SCALE_START 65536.0f

#endif
