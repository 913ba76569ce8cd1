/* cpu/optimizer: the gradient norm with what follows from it (clipping, skipping, the loss scale), and AdamW.
 */
#include "cpu/rows.h"

/* A non-finite gradient halves the scale, though never below 1; STEP_GROWTH_INTERVAL finite steps double it.
 */
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
    const float *squares = a->sum_squares->data; /* [P] */
    float *state = a->state->data;               /* [S] */
    if (a->state->columns < STEP_STATE_COUNT)
        return status_fail(OTT_ERR_SHAPE, "grad_norm: state has %lld values; a step's state has %d",
                           (long long)a->state->columns, STEP_STATE_COUNT);
    double total = 0.0;
    for (int64_t i = 0; i < a->sum_squares->columns; i++) total += (double)squares[i];
    float scale = state[STEP_LOSS_SCALE]; /* the one these gradients were made with */
    float norm = (float)(sqrt(total) / (double)scale);
    float clip = a->max_norm > 0.0f ? a->max_norm / (norm + 1e-6f) : 1.0f;
    state[STEP_GRAD_NORM] = norm;
    state[STEP_CLIP] = (clip < 1.0f ? clip : 1.0f) / scale;
    bool finite = isfinite(norm) && isfinite(state[STEP_LOSS]);
    state[STEP_SKIP] = finite ? 0.0f : 1.0f;
    if (state[STEP_LOSS_SCALING] != 0.0f) update_loss_scale(state, finite);
    return OTT_OK;
}

/* What is the same for every element. */
typedef struct adamw_job {
    tensor param, grad, moment1, moment2;
    float clip, decay, step_size, sqrt_correction2, keep1, keep2, beta2, epsilon;
} adamw_job;

/* Asks for what comes a page later, into the second cache: four arrays that no cache holds, and so little to
   do for each element that a processor's own looking ahead, which ends with a page, leaves it waiting. */
SIMD void fetch_all(const float *param, const float *grad, const float *moment1, const float *moment2) {
    enum { AHEAD = 1024 };
    __builtin_prefetch(param + AHEAD, 1, 2);
    __builtin_prefetch(grad + AHEAD, 0, 2);
    __builtin_prefetch(moment1 + AHEAD, 1, 2);
    __builtin_prefetch(moment2 + AHEAD, 1, 2);
}

SIMD void adamw_row(const adamw_job *j, float *param, const float *grad, float *moment1, float *moment2,
                    int64_t count) {
    v16 clip = v16_set1(j->clip), decay = v16_set1(j->decay), step_size = v16_set1(j->step_size);
    v16 keep1 = v16_set1(j->keep1), keep2 = v16_set1(j->keep2), beta2 = v16_set1(j->beta2);
    v16 correction = v16_set1(j->sqrt_correction2), epsilon = v16_set1(j->epsilon);
    BY_16(i, lanes, count, {
        fetch_all(param + i, grad + i, moment1 + i, moment2 + i);
        v16 p = v16_get(param, OTT_F32, i, lanes), g = v16_mul(v16_get(grad, OTT_F32, i, lanes), clip);
        v16 m = v16_get(moment1, OTT_F32, i, lanes), v = v16_get(moment2, OTT_F32, i, lanes);
        p = v16_sub(p, v16_mul(decay, p));
        m = v16_fma(v16_sub(g, m), keep1, m);
        v = v16_fma(v16_mul(g, g), keep2, v16_mul(v, beta2));
        v16 denominator = v16_add(v16_div(v16_sqrt(v), correction), epsilon);
        p = v16_sub(p, v16_mul(step_size, v16_div(m, denominator)));
        v16_put(param, OTT_F32, i, p, lanes);
        v16_put(moment1, OTT_F32, i, m, lanes);
        v16_put(moment2, OTT_F32, i, v, lanes);
    });
}

static void adamw_task(void *argument, int thread, int threads) {
    const adamw_job *j = argument;
    row_share s = row_share_of(j->param.rows, j->param.columns, thread, threads);
    for (int64_t r = s.row; r < s.row_end; r++)
        adamw_row(j, (float *)row_of(&j->param, r) + s.column, (const float *)row_of(&j->grad, r) + s.column,
                  (float *)row_of(&j->moment1, r) + s.column, (float *)row_of(&j->moment2, r) + s.column,
                  s.columns);
}

ott_status ISA(adamw)(exec *cx, const adamw_args *a) {
    const float *state = a->state->data; /* [S] */
    if (state[STEP_SKIP] != 0.0f) return OTT_OK;
    adamw_job j = {
        .param = *a->param,
        .grad = *a->grad,
        .moment1 = *a->moment1,
        .moment2 = *a->moment2,
        .clip = state[STEP_CLIP],
        .decay = state[STEP_LEARNING_RATE] * a->weight_decay,
        .step_size = state[STEP_LEARNING_RATE] / state[STEP_CORRECTION1],
        .sqrt_correction2 = state[STEP_SQRT_CORRECTION2],
        .keep1 = 1.0f - a->beta1,
        .keep2 = 1.0f - a->beta2,
        .beta2 = a->beta2,
        .epsilon = a->epsilon,
    };
    tensor *all[] = {&j.param, &j.grad, &j.moment1, &j.moment2};
    bool dense = true;
    for (int i = 0; i < 4; i++) dense = dense && all[i]->ld == all[i]->columns;
    for (int i = 0; dense && i < 4; i++) *all[i] = row_flattened(all[i]);
    cpu_run_sized(cx, tensor_count(j.param), adamw_task, &j);
    return OTT_OK;
}
