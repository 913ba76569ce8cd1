/* cpu/optimizer/optimizer: gradient norm, clipping, skipping of steps and loss scale. */
#include "cpu/rows.h"

/* Updates the loss scale after a step (tensor/step_state.h). finite: gradients and loss are finite. */
static void update_loss_scale(float *state, bool finite) {
    if (!finite) {
        state[STEP_LOSS_SCALE] = fmaxf(state[STEP_LOSS_SCALE] * 0.5f, 1.0f);
        state[STEP_GOOD_STEPS] = 0.0f;
        return;
    }
    state[STEP_GOOD_STEPS] += 1.0f;
    if (state[STEP_GOOD_STEPS] < (float)STEP_GROWTH_INTERVAL) return;
    float doubled = state[STEP_LOSS_SCALE] * 2.0f;
    if (isfinite(doubled)) state[STEP_LOSS_SCALE] = doubled;
    state[STEP_GOOD_STEPS] = 0.0f;
}

ott_status ISA(grad_norm)(exec *cx, const grad_norm_args *a) {
    (void)cx;
    const float *squares = a->sum_squares->data; /* [P], a sum of squares for each gradient */
    float *state = a->state->data;               /* the values of tensor/step_state.h */
    if (a->state->columns < STEP_STATE_COUNT)
        return status_fail(OTT_ERR_SHAPE, "grad_norm: state has %lld values; at least %d are needed",
                           (long long)a->state->columns, STEP_STATE_COUNT);
    double total = 0.0;
    for (int64_t i = 0; i < a->sum_squares->columns; i++) total += (double)squares[i];
    float scale = state[STEP_LOSS_SCALE]; /* the gradients are multiplied by this scale */
    float norm = (float)(sqrt(total) / (double)scale);
    float clip = a->max_norm > 0.0f ? a->max_norm / (norm + 1e-6f) : 1.0f;
    state[STEP_GRAD_NORM] = norm;
    state[STEP_CLIP] = (clip < 1.0f ? clip : 1.0f) / scale;
    bool finite = isfinite(norm) && isfinite(state[STEP_LOSS]);
    state[STEP_SKIP] = finite ? 0.0f : 1.0f;
    if (state[STEP_LOSS_SCALING] != 0.0f) update_loss_scale(state, finite);
    return OTT_OK;
}
