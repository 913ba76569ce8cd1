/*
 * cpu/optimizer/adamw: AdamW's update of 16 elements in fp32 (tensor/ops.def: adamw), and the rounding of its
 * results. Private to cpu/optimizer/optimizer and cpu/optimizer/fp8.
 */
#ifndef CPU_OPTIMIZER_ADAMW_H
#define CPU_OPTIMIZER_ADAMW_H

#include "cpu/optimizer/stochastic.h"

/* Constants of update number t, equal for all elements of a parameter. decay: learning rate * weight decay;
   step_size: learning rate / (1 - beta1^t); sqrt_correction2: sqrt(1 - beta2^t); keep1, keep2: 1 - beta1, 1 -
   beta2; update: t. */
typedef struct adamw_constants {
    float clip, decay, step_size, sqrt_correction2, keep1, keep2, beta2, epsilon;
    uint64_t seed, update;
} adamw_constants;

/* Returns the constants for the arguments `a` of the op adamw or adamw_fp8. */
#define ADAMW_CONSTANTS(a)                                                                                   \
    adamw_constants_of((a)->state, (a)->beta1, (a)->beta2, (a)->epsilon, (a)->weight_decay, (a)->seed)

static inline adamw_constants adamw_constants_of(const tensor *step, float beta1, float beta2, float epsilon,
                                                 float weight_decay, uint64_t seed) {
    const float *state = step->data; /* the values of tensor/step_state.h */
    return (adamw_constants){.clip = state[STEP_CLIP],
                             .decay = state[STEP_LEARNING_RATE] * weight_decay,
                             .step_size = state[STEP_LEARNING_RATE] / state[STEP_CORRECTION1],
                             .sqrt_correction2 = state[STEP_SQRT_CORRECTION2],
                             .keep1 = 1.0f - beta1,
                             .keep2 = 1.0f - beta2,
                             .beta2 = beta2,
                             .epsilon = epsilon,
                             .seed = seed,
                             .update = step_state_update(state)};
}

/* The floats of adamw_constants, each in all lanes. */
typedef struct adamw_lanes {
    v16 clip, decay, step_size, sqrt_correction2, keep1, keep2, beta2, epsilon;
} adamw_lanes;

SIMD adamw_lanes adamw_lanes_of(const adamw_constants *n) {
    return (adamw_lanes){.clip = v16_set1(n->clip),
                         .decay = v16_set1(n->decay),
                         .step_size = v16_set1(n->step_size),
                         .sqrt_correction2 = v16_set1(n->sqrt_correction2),
                         .keep1 = v16_set1(n->keep1),
                         .keep2 = v16_set1(n->keep2),
                         .beta2 = v16_set1(n->beta2),
                         .epsilon = v16_set1(n->epsilon)};
}

/* Updates parameter p and moments m and v in fp32. The results are not rounded yet. */
SIMD void adamw_update(const adamw_lanes *c, v16 gradient, v16 *p, v16 *m, v16 *v) {
    v16 g = v16_mul(gradient, c->clip);
    *p = v16_sub(*p, v16_mul(c->decay, *p));
    *m = v16_fma(v16_sub(g, *m), c->keep1, *m);
    *v = v16_fma(v16_mul(g, g), c->keep2, v16_mul(*v, c->beta2));
    v16 denominator = v16_add(v16_div(v16_sqrt(*v), c->sqrt_correction2), c->epsilon);
    *p = v16_sub(*p, v16_mul(c->step_size, v16_div(*m, denominator)));
}

/* Rounds x to d: bf16 stochastically, by random number `which` of `draws`; fp32 not at all. */
SIMD v16 adamw_round(v16 x, ott_dtype d, draws16 *draws, int which) {
    return d == OTT_F32 ? x : draws16_round(draws, x, which);
}

static inline void *adamw_element(const tensor *t, int64_t row, int64_t column) {
    return (char *)row_of(t, row) + column * dtype_bytes(t->dtype);
}

#endif
