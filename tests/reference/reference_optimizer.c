/* reference_optimizer: gradient norm with the loss scale, and AdamW. */
#include "reference/reference_parts.h"
#include "tensor/stochastic.h"

/* The loss scale after a step whose gradients were finite or not. */
static void update_loss_scale(float *state, bool finite) {
    if (state[STEP_LOSS_SCALING] == 0) return;
    state[STEP_GOOD_STEPS] = finite ? state[STEP_GOOD_STEPS] + 1 : 0;
    if (!finite) state[STEP_LOSS_SCALE] = state[STEP_LOSS_SCALE] * 0.5f;
    if (state[STEP_GOOD_STEPS] >= STEP_GROWTH_INTERVAL) {
        state[STEP_LOSS_SCALE] = state[STEP_LOSS_SCALE] * 2.0f;
        state[STEP_GOOD_STEPS] = 0;
    }
}

ott_status reference_op_grad_norm(exec *cx, const grad_norm_args *a) {
    (void)cx;
    float *state = a->state->data;
    double total = 0;
    for (int64_t i = 0; i < a->sum_squares->columns; i++) total += at(a->sum_squares, 0, i);
    float norm = (float)(sqrt(total) / (double)state[STEP_LOSS_SCALE]); /* the sum stays double until here */
    bool finite = isfinite(norm) && isfinite(state[STEP_LOSS]);
    float clip = a->max_norm / (norm + 1e-6f);
    state[STEP_GRAD_NORM] = norm;
    state[STEP_CLIP] = (clip < 1.0f ? clip : 1.0f) / state[STEP_LOSS_SCALE];
    state[STEP_SKIP] = finite ? 0.0f : 1.0f;
    update_loss_scale(state, finite);
    return OTT_OK;
}

/* Number `which` of element (i, j). */
static void put_rounded(const adamw_args *a, const tensor *t, int64_t i, int64_t j, float x, int which) {
    uint64_t index = (uint64_t)(a->first + i * a->row_step + j);
    rng_block block = stochastic_block(a->seed, step_state_update(a->state->data), index);
    uint64_t draw = stochastic_draw(block, index);
    put(t, i, j, t->dtype == OTT_F32 ? x : stochastic_bf16(x, draw, which));
}

/* Element (i, j) of parameter and moments. */
static void adamw_element(const adamw_args *a, int64_t i, int64_t j) {
    const float *state = a->state->data;
    float lr = state[STEP_LEARNING_RATE];
    float p = at(a->param, i, j), m = at(a->moment1, i, j), v = at(a->moment2, i, j);
    float g = at(a->grad, i, j) * state[STEP_CLIP];
    p = p - (lr * a->weight_decay) * p;
    m = fmaf(g - m, 1.0f - a->beta1, m);
    v = fmaf(g * g, 1.0f - a->beta2, v * a->beta2);
    p = p - (lr / state[STEP_CORRECTION1]) * (m / (sqrtf(v) / state[STEP_SQRT_CORRECTION2] + a->epsilon));
    put_rounded(a, a->param, i, j, p, STOCHASTIC_PARAM);
    put_rounded(a, a->moment1, i, j, m, STOCHASTIC_MOMENT1);
    put_rounded(a, a->moment2, i, j, v, STOCHASTIC_MOMENT2);
}

ott_status reference_op_adamw(exec *cx, const adamw_args *a) {
    (void)cx;
    if (((const float *)a->state->data)[STEP_SKIP] != 0) return OTT_OK;
    for (int64_t i = 0; i < a->param->rows; i++)
        for (int64_t j = 0; j < a->param->columns; j++) adamw_element(a, i, j);
    return OTT_OK;
}
