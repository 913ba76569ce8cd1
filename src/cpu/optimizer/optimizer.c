/* cpu/optimizer/optimizer: gradient norm, clipping, skipping of steps, loss scale, and AdamW. */
#include "cpu/optimizer/adamw.h"

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

typedef struct adamw_formats {
    ott_dtype param, grad, moment1, moment2;
} adamw_formats;

/* Arguments of the op that are equal for all elements. */
typedef struct adamw_job {
    tensor param, grad, moment1, moment2;
    adamw_constants constants;
    int64_t first, row_step;
} adamw_job;

/* Consecutive elements of a row in each tensor. index: the first element's index in the full parameter. */
typedef struct adamw_place {
    void *param, *moment1, *moment2;
    const void *grad;
    int64_t index;
} adamw_place;

/* Prefetches 4096 bytes ahead into the second-level cache. Without this the loop would wait for memory: the
   four arrays are larger than the caches, and the hardware prefetcher stops at the end of a page. */
#define FETCH(array, d, i, written)                                                                          \
    __builtin_prefetch((const char *)(array) + (i)*dtype_bytes(d) + 4096, written, 2)

SIMD void adamw_row(const adamw_job *j, adamw_formats f, adamw_place at, int64_t count) {
    bool rounds = f.param != OTT_F32 || f.moment1 != OTT_F32 || f.moment2 != OTT_F32;
    draws16 draws;
    const adamw_lanes c = adamw_lanes_of(&j->constants);
    BY_16(i, lanes, count, {
        FETCH(at.param, f.param, i, 1), FETCH(at.grad, f.grad, i, 0);
        FETCH(at.moment1, f.moment1, i, 1), FETCH(at.moment2, f.moment2, i, 1);
        v16 p = v16_get(at.param, f.param, i, lanes), g = v16_get(at.grad, f.grad, i, lanes);
        v16 m = v16_get(at.moment1, f.moment1, i, lanes), v = v16_get(at.moment2, f.moment2, i, lanes);
        adamw_update(&c, g, &p, &m, &v);
        if (rounds)
            draws16_take(&draws, j->constants.seed, j->constants.update, at.index + i, STOCHASTIC_SUM_PARAM);
        v16_put(at.param, f.param, i, adamw_round(p, f.param, &draws, STOCHASTIC_PARAM), lanes);
        v16_put(at.moment1, f.moment1, i, adamw_round(m, f.moment1, &draws, STOCHASTIC_SLOT), lanes);
        v16_put(at.moment2, f.moment2, i, adamw_round(v, f.moment2, &draws, STOCHASTIC_SLOT + 1), lanes);
    });
}

static void adamw_task(void *argument, int thread, int threads) {
    const adamw_job *j = argument;
    const adamw_formats all_f32 = {OTT_F32, OTT_F32, OTT_F32, OTT_F32};
    const adamw_formats f = {j->param.dtype, j->grad.dtype, j->moment1.dtype, j->moment2.dtype};
    bool is_f32 = memcmp(&f, &all_f32, sizeof f) == 0;
    row_share s = row_share_of(j->param.rows, j->param.columns, thread, threads);
    for (int64_t r = s.row; r < s.row_end; r++) {
        adamw_place at = {.param = adamw_element(&j->param, r, s.column),
                          .grad = adamw_element(&j->grad, r, s.column),
                          .moment1 = adamw_element(&j->moment1, r, s.column),
                          .moment2 = adamw_element(&j->moment2, r, s.column),
                          .index = j->first + r * j->row_step + s.column};
        if (is_f32)
            adamw_row(j, all_f32, at, s.columns);
        else
            adamw_row(j, f, at, s.columns);
    }
}

static void update_adamw(exec *cx, const adamw_args *a) {
    adamw_job j = {
        .param = *a->param,
        .grad = *a->grad,
        .moment1 = *a->moment1,
        .moment2 = *a->moment2,
        .constants = ADAMW_CONSTANTS(a),
        .first = a->first,
        .row_step = a->row_step,
    };
    tensor *all[] = {&j.param, &j.grad, &j.moment1, &j.moment2};
    bool dense = j.row_step == j.param.columns || j.param.rows == 1;
    for (int i = 0; i < 4; i++) dense = dense && all[i]->ld == all[i]->columns;
    for (int i = 0; dense && i < 4; i++) *all[i] = row_flattened(all[i]);
    cpu_run_sized(cx, tensor_count(j.param), adamw_task, &j);
}

ott_status ISA(adamw)(exec *cx, const adamw_args *a) {
    if (((const float *)a->state->data)[STEP_SKIP] == 0.0f) update_adamw(cx, a);
    if (!a->q) return OTT_OK;
    if (qtensor_has_codes(a->q)) return ISA(quantize)(cx, &(quantize_args){.x = a->param, .q = a->q});
    return ISA(amax)(cx, &(amax_args){.x = a->param, .q = a->q});
}
