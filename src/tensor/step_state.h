/*
 * tensor/step_state: the values of a training step that live on the device, so that a whole step can be
 * queued without asking the host anything: a vector of floats, one slot each. The host writes the first group
 * before a step and reads the second after it.
 */
#ifndef TENSOR_STEP_STATE_H
#define TENSOR_STEP_STATE_H

#include "base/anywhere.h"
#include <stdint.h>

#define STEP_STATE_MAP(X)                                                                                    \
    /* written by the host */                                                                                \
    X(LEARNING_RATE)                                                                                         \
    X(CORRECTION1)      /* 1 - beta1^t */                                                                    \
    X(SQRT_CORRECTION2) /* sqrt(1 - beta2^t) */                                                              \
    X(TOKENS)           /* label tokens of the global batch */                                               \
    X(LOSS_SCALING)     /* 1: dynamic loss scaling (fp16), 0: LOSS_SCALE stays as it is */                   \
    X(UPDATE_LOW)       /* the update's number: its low 24 bits, which a float holds */                      \
    X(UPDATE_HIGH)      /* and the bits above them */                                                        \
    X(BALANCE)          /* what the step of routing biases is multiplied by: their schedule */               \
    X(AVERAGE)          /* schedule-free: the newest iterate's share in the average of iterates */           \
    /* kept on the device from step to step */                                                               \
    X(LOSS_SCALE) /* 1 unless fp16 */                                                                        \
    X(GOOD_STEPS) /* finite steps since the loss scale last changed */                                       \
    /* results */                                                                                            \
    X(GRAD_NORM) /* L2 norm of all gradients, loss scale removed, before clipping */                         \
    X(CLIP)      /* what each gradient is multiplied by: min(1, max_norm / (norm + 1e-6)) / loss scale */    \
    X(SKIP)      /* 1: a gradient or the loss is not finite, parameters stay */                              \
    X(LOSS)      /* sum of token losses */                                                                   \
    X(Z_LOSS)    /* sum of tokens' squared log-partitions, where the head has a z-loss */

enum step_state {
#define X(name) STEP_##name,
    STEP_STATE_MAP(X)
#undef X
        STEP_STATE_COUNT
};

/* The number of the update. */
static inline void step_state_set_update(float *state, uint64_t update) {
    state[STEP_UPDATE_LOW] = (float)(update & 0xffffffu);
    state[STEP_UPDATE_HIGH] = (float)(update >> 24);
}
ANYWHERE uint64_t step_state_update(const float *state) {
    return (uint64_t)state[STEP_UPDATE_HIGH] << 24 | (uint64_t)state[STEP_UPDATE_LOW];
}

/* Dynamic loss scaling (Micikevicius et al. 2018, PyTorch GradScaler's numbers): a non-finite gradient halves
   the scale, but not below 1; STEP_GROWTH_INTERVAL finite steps in a row double it, but not to infinity. */
#define STEP_GROWTH_INTERVAL  2000
#define STEP_LOSS_SCALE_START 65536.0f

#endif
