/*
 * tensor/rules/update: the optimizers' update rules (tensor/ops.def) for one element, in fp32.
 */
#ifndef TENSOR_RULES_UPDATE_H
#define TENSOR_RULES_UPDATE_H

#include "tensor/step_state.h"
#include <math.h>
#include <stdbool.h>

/* Options of all update rules. Each rule uses only some of the options. */
typedef struct update_options {
    float beta1, beta2, epsilon, weight_decay;
    float factor; /* factor of the momentum, for SGD and Muon */
    bool nesterov;
} update_options;

/* Values that are the same for all elements, computed from the options and the step state. `o` points to the
   caller's options, because a copy would take registers in a kernel. */
typedef struct update_constants {
    const update_options *o;
    float clip, lr, decay, step_size, sqrt_correction2, average;
    float inverse2;   /* 1 / sqrt_correction2, used if has_inverse */
    bool has_inverse; /* true: update_root divides faster, but gives NaN for infinity */
    bool is_first;    /* true in the first update of the run */
} update_constants;

/* An element: parameter, gradient, and the rule's slots: momentum (Lion, SGD), moments 1 and 2 (AdamW, Adam),
   or z, x, moment2 (schedule-free). */
typedef struct update_element {
    float p, g, slot[3];
} update_element;

ANYWHERE update_constants update_constants_of(const update_options *o, const float *state) {
    float lr = state[STEP_LEARNING_RATE];
    update_constants c;
    c.o = o;
    c.clip = state[STEP_CLIP];
    c.lr = lr;
    c.decay = lr * o->weight_decay;
    c.step_size = lr / state[STEP_CORRECTION1];
    c.sqrt_correction2 = state[STEP_SQRT_CORRECTION2];
    c.average = state[STEP_AVERAGE];
    c.inverse2 = 0.0f;
    c.has_inverse = false;
    c.is_first = step_state_update(state) == 1;
    return c;
}

/* Returns the root of the second moment v without its bias. With has_inverse, two fused operations correct
   the product with the inverse to the quotient (Markstein 1990). */
ANYWHERE float update_root(const update_constants *c, float v) {
    float root = sqrtf(v), quotient = root * c->inverse2;
    if (!c->has_inverse) return root / c->sqrt_correction2;
    return fmaf(fmaf(-c->sqrt_correction2, quotient, root), c->inverse2, quotient);
}

/* Returns the sign of x: 1 or -1; 0 for 0 and NaN. */
ANYWHERE float update_sign(float x) {
    return (x > 0.0f ? 1.0f : 0.0f) - (x < 0.0f ? 1.0f : 0.0f);
}

ANYWHERE void update_adamw(const update_constants *c, update_element *e) {
    float g = e->g * c->clip, m = e->slot[0], v = e->slot[1];
    float p = e->p - c->decay * e->p;
    m = fmaf(g - m, 1.0f - c->o->beta1, m);
    v = fmaf(g * g, 1.0f - c->o->beta2, v * c->o->beta2);
    e->p = p - c->step_size * (m / (update_root(c, v) + c->o->epsilon));
    e->slot[0] = m;
    e->slot[1] = v;
}

ANYWHERE void update_lion(const update_constants *c, update_element *e) {
    float g = e->g * c->clip, m = e->slot[0];
    float sign = update_sign(fmaf(g - m, 1.0f - c->o->beta1, m));
    float p = e->p - c->decay * e->p;
    e->p = p - c->lr * sign;
    e->slot[0] = fmaf(g - m, 1.0f - c->o->beta2, m);
}

ANYWHERE void update_sgd(const update_constants *c, update_element *e) {
    float g = fmaf(e->p, c->o->weight_decay, e->g * c->clip);
    float m = fmaf(e->slot[0], c->o->factor, g);
    float along = c->o->nesterov ? fmaf(m, c->o->factor, g) : m;
    e->p = e->p - c->lr * along;
    e->slot[0] = m;
}

ANYWHERE void update_adam(const update_constants *c, update_element *e) {
    float g = fmaf(e->p, c->o->weight_decay, e->g * c->clip);
    float m = fmaf(g - e->slot[0], 1.0f - c->o->beta1, e->slot[0]);
    float v = fmaf(g * g, 1.0f - c->o->beta2, e->slot[1] * c->o->beta2);
    e->p = e->p - c->step_size * (m / (update_root(c, v) + c->o->epsilon));
    e->slot[0] = m;
    e->slot[1] = v;
}

/* Returns the point between the iterate z and the average x at which gradients are computed. */
ANYWHERE float update_point(const update_options *o, float z, float x) {
    return fmaf(x - z, o->beta1, z);
}

ANYWHERE void update_schedule_free(const update_constants *c, update_element *e) {
    float z = c->is_first ? e->p : e->slot[0], x = c->is_first ? e->p : e->slot[1];
    float g = e->g * c->clip;
    float v = fmaf(g * g, 1.0f - c->o->beta2, e->slot[2] * c->o->beta2);
    float along = g / (update_root(c, v) + c->o->epsilon);
    z = z - c->lr * fmaf(e->p, c->o->weight_decay, along);
    x = fmaf(z - x, c->average, x);
    e->p = update_point(c->o, z, x);
    e->slot[0] = z;
    e->slot[1] = x;
    e->slot[2] = v;
}

/* Updates the momentum e->p. The op `muon` updates the parameter. */
ANYWHERE void update_muon_momentum(const update_constants *c, update_element *e) {
    e->p = fmaf(e->p, c->o->factor, e->g * c->clip);
}

/* Returns Nesterov's direction. Muon then makes it orthogonal. */
ANYWHERE float update_muon_direction(float momentum, float factor, float grad, float clip) {
    return fmaf(momentum, factor, grad * clip);
}

#endif
