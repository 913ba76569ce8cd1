/* reference_optimizer: gradient norm with the loss scale, and the update rules, as plain loops. */
#include "reference/reference_parts.h"
#include "tensor/rules/moment.h"
#include "tensor/rules/stochastic.h"

/* Computes the loss scale of the next step. finite: all gradients of this step were finite. */
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
    /* the sum is in double, all following values are in fp32 */
    float norm = (float)(sqrt(total) / (double)state[STEP_LOSS_SCALE]);
    bool finite = isfinite(norm) && isfinite(state[STEP_LOSS]);
    float clip = a->max_norm / (norm + 1e-6f);
    state[STEP_GRAD_NORM] = norm;
    state[STEP_CLIP] = (clip < 1.0f ? clip : 1.0f) / state[STEP_LOSS_SCALE];
    state[STEP_SKIP] = finite ? 0.0f : 1.0f;
    update_loss_scale(state, finite);
    return OTT_OK;
}

/* What determines the random bits of stochastic rounding: the seed, the positions of the shard's elements in
   the full tensor, and the step state. */
typedef struct draws {
    uint64_t seed;
    int64_t first, row_step;
    const tensor *state;
} draws;
#define DRAWS(a) ((draws){(a)->seed, (a)->first, (a)->row_step, (a)->state})

/* Stores x in element (i, j); rounds it stochastically if t is bf16, with number `which` of the element's
   draw (STOCHASTIC_SUM, STOCHASTIC_AVERAGE, or the next). */
static void put_rounded(draws d, const tensor *t, int64_t i, int64_t j, float x, int which) {
    uint64_t index = (uint64_t)(d.first + i * d.row_step + j);
    uint64_t update = step_state_update(d.state->data);
    uint32_t number = stochastic_number(stochastic_words_of(d.seed, update, index), update, index, which);
    put(t, i, j, t->dtype == OTT_F32 ? x : stochastic_bf16(x, number));
}

/* Updates element (i, j) of the parameter and its moments. */
static void adamw_element(const adamw_args *a, int64_t i, int64_t j) {
    const float *state = a->state->data;
    float lr = state[STEP_LEARNING_RATE];
    float p = at(a->param, i, j), m = at(a->moment1, i, j), v = at(a->moment2, i, j);
    float g = at(a->grad, i, j) * state[STEP_CLIP];
    p = p - (lr * a->weight_decay) * p;
    m = fmaf(g - m, 1.0f - a->beta1, m);
    v = fmaf(g * g, 1.0f - a->beta2, v * a->beta2);
    p = p - (lr / state[STEP_CORRECTION1]) * (m / (sqrtf(v) / state[STEP_SQRT_CORRECTION2] + a->epsilon));
    put_rounded(DRAWS(a), a->param, i, j, p, STOCHASTIC_SUM);
    put_rounded(DRAWS(a), a->moment1, i, j, m, STOCHASTIC_AVERAGE);
    put_rounded(DRAWS(a), a->moment2, i, j, v, STOCHASTIC_AVERAGE + 1);
}

ott_status reference_op_adamw(exec *cx, const adamw_args *a) {
    bool skips = ((const float *)a->state->data)[STEP_SKIP] != 0;
    for (int64_t i = 0; i < a->param->rows && !skips; i++)
        for (int64_t j = 0; j < a->param->columns; j++) adamw_element(a, i, j);
    if (!a->q) return OTT_OK;
    if (!qtensor_has_codes(a->q)) return reference_op_amax(cx, &(amax_args){.x = a->param, .q = a->q});
    return reference_op_quantize(cx, &(quantize_args){.x = a->param, .q = a->q});
}

/* Decodes a group of elements of one moment, with the group's scales. */
static void widen_group(const tensor *codes, const tensor *group_scales, int64_t i, int64_t g,
                        float x[MOMENT_GROUP]) {
    for (int64_t j = g * MOMENT_GROUP, k = 0; j < codes->columns && k < MOMENT_GROUP; j++, k++)
        x[k] = moment_decode(((const uint8_t *)codes->data)[i * codes->ld + j], at(group_scales, i, 2 * g),
                             at(group_scales, i, 2 * g + 1));
}

static void narrow_group(const tensor *codes, const tensor *group_scales, int64_t i, int64_t g,
                         const float x[MOMENT_GROUP]) {
    uint32_t largest = 0, smallest = 0x7f7fffff;
    int64_t first = g * MOMENT_GROUP, count = codes->columns - first;
    if (count > MOMENT_GROUP) count = MOMENT_GROUP;
    for (int64_t k = 0; k < count; k++) {
        uint32_t magnitude = fmath_bits(x[k]) & 0x7fffffffu;
        if (magnitude > largest) largest = magnitude;
        if (magnitude >= 0x00800000u && magnitude < smallest) smallest = magnitude;
    }
    moment_scale s = moment_scale_of(fmath_from_bits(largest), fmath_from_bits(smallest));
    put(group_scales, i, 2 * g, s.largest);
    put(group_scales, i, 2 * g + 1, s.power);
    for (int64_t k = 0; k < count; k++)
        ((uint8_t *)codes->data)[i * codes->ld + first + k] = moment_encode(x[k], &s);
}

/* Updates a group of elements that have FP8 moments: decodes the moments to fp32 and runs adamw_element,
   which then need not round them stochastically. */
static void adamw_group(const adamw_fp8_args *a, int64_t i, int64_t g) {
    float m[MOMENT_GROUP] = {0}, v[MOMENT_GROUP] = {0};
    int64_t first = g * MOMENT_GROUP;
    widen_group(a->moment1, a->group_scales1, i, g, m);
    widen_group(a->moment2, a->group_scales2, i, g, v);
    for (int64_t j = first; j < a->param->columns && j < first + MOMENT_GROUP; j++) {
        tensor p = tensor_columns(tensor_rows(*a->param, i, 1), j, 1),
               d = tensor_columns(tensor_rows(*a->grad, i, 1), j, 1);
        tensor m1 = tensor_vector(&m[j - first], OTT_F32, 1), m2 = tensor_vector(&v[j - first], OTT_F32, 1);
        adamw_element(&(adamw_args){.param = &p,
                                    .grad = &d,
                                    .moment1 = &m1,
                                    .moment2 = &m2,
                                    .state = a->state,
                                    .beta1 = a->beta1,
                                    .beta2 = a->beta2,
                                    .epsilon = a->epsilon,
                                    .weight_decay = a->weight_decay,
                                    .seed = a->seed,
                                    .first = a->first + i * a->row_step + j},
                      0, 0);
    }
    narrow_group(a->moment1, a->group_scales1, i, g, m);
    narrow_group(a->moment2, a->group_scales2, i, g, v);
}

ott_status reference_op_adamw_fp8(exec *cx, const adamw_fp8_args *a) {
    (void)cx;
    if (((const float *)a->state->data)[STEP_SKIP] != 0) return OTT_OK;
    for (int64_t i = 0; i < a->param->rows; i++)
        for (int64_t g = 0; g * MOMENT_GROUP < a->param->columns; g++) adamw_group(a, i, g);
    return OTT_OK;
}

/* ---- optimizers other than AdamW ---- */

static float state_of(const tensor *state, enum step_state slot) {
    return at(state, 0, slot);
}
static bool is_skipped(const tensor *state) {
    return state_of(state, STEP_SKIP) != 0;
}

/* A loop over all elements (i, j) of tensor t. */
#define EACH(t)                                                                                              \
    for (int64_t i = 0; i < (t)->rows; i++)                                                                  \
        for (int64_t j = 0; j < (t)->columns; j++)

ott_status reference_op_lion(exec *cx, const lion_args *a) {
    (void)cx;
    float lr = state_of(a->state, STEP_LEARNING_RATE);
    if (is_skipped(a->state)) return OTT_OK;
    EACH(a->param) {
        float p = at(a->param, i, j), m = at(a->momentum, i, j);
        float g = at(a->grad, i, j) * state_of(a->state, STEP_CLIP);
        float direction = fmaf(g - m, 1.0f - a->beta1, m);
        float sign = direction > 0 ? 1.0f : direction < 0 ? -1.0f : 0.0f;
        p = p - (lr * a->weight_decay) * p;
        put_rounded(DRAWS(a), a->param, i, j, p - lr * sign, STOCHASTIC_SUM);
        put_rounded(DRAWS(a), a->momentum, i, j, fmaf(g - m, 1.0f - a->beta2, m), STOCHASTIC_AVERAGE);
    }
    return OTT_OK;
}

ott_status reference_op_sgd(exec *cx, const sgd_args *a) {
    (void)cx;
    if (is_skipped(a->state)) return OTT_OK;
    EACH(a->param) {
        float p = at(a->param, i, j);
        float g = fmaf(p, a->weight_decay, at(a->grad, i, j) * state_of(a->state, STEP_CLIP));
        float m = fmaf(at(a->momentum, i, j), a->factor, g);
        if (a->nesterov) g = fmaf(m, a->factor, g);
        p = p - state_of(a->state, STEP_LEARNING_RATE) * (a->nesterov ? g : m);
        put_rounded(DRAWS(a), a->param, i, j, p, STOCHASTIC_SUM);
        put_rounded(DRAWS(a), a->momentum, i, j, m, STOCHASTIC_AVERAGE);
    }
    return OTT_OK;
}

ott_status reference_op_adam(exec *cx, const adam_args *a) {
    (void)cx;
    float step_size = state_of(a->state, STEP_LEARNING_RATE) / state_of(a->state, STEP_CORRECTION1);
    if (is_skipped(a->state)) return OTT_OK;
    EACH(a->param) {
        float p = at(a->param, i, j), m = at(a->moment1, i, j), v = at(a->moment2, i, j);
        float g = fmaf(p, a->weight_decay, at(a->grad, i, j) * state_of(a->state, STEP_CLIP));
        m = fmaf(g - m, 1.0f - a->beta1, m);
        v = fmaf(g * g, 1.0f - a->beta2, v * a->beta2);
        float root = sqrtf(v) / state_of(a->state, STEP_SQRT_CORRECTION2);
        put_rounded(DRAWS(a), a->param, i, j, p - step_size * (m / (root + a->epsilon)), STOCHASTIC_SUM);
        put_rounded(DRAWS(a), a->moment1, i, j, m, STOCHASTIC_AVERAGE);
        put_rounded(DRAWS(a), a->moment2, i, j, v, STOCHASTIC_AVERAGE + 1);
    }
    return OTT_OK;
}

ott_status reference_op_schedule_free(exec *cx, const schedule_free_args *a) {
    (void)cx;
    bool first = step_state_update(a->state->data) == 1;
    float lr = state_of(a->state, STEP_LEARNING_RATE);
    if (is_skipped(a->state)) return OTT_OK;
    EACH(a->param) {
        float z = at(first ? a->param : a->z, i, j), x = at(first ? a->param : a->x, i, j);
        float g = at(a->grad, i, j) * state_of(a->state, STEP_CLIP);
        float v = fmaf(g * g, 1.0f - a->beta2, at(a->moment2, i, j) * a->beta2);
        float along = g / (sqrtf(v) / state_of(a->state, STEP_SQRT_CORRECTION2) + a->epsilon);
        z = z - lr * fmaf(at(a->param, i, j), a->weight_decay, along);
        x = fmaf(z - x, state_of(a->state, STEP_AVERAGE), x);
        put_rounded(DRAWS(a), a->z, i, j, z, STOCHASTIC_SUM);
        put_rounded(DRAWS(a), a->x, i, j, x, STOCHASTIC_SUM + 1);
        put_rounded(DRAWS(a), a->moment2, i, j, v, STOCHASTIC_AVERAGE);
        put(a->param, i, j, fmaf(at(a->x, i, j) - at(a->z, i, j), a->beta1, at(a->z, i, j)));
    }
    return OTT_OK;
}

ott_status reference_op_lerp(exec *cx, const lerp_args *a) {
    (void)cx;
    EACH(a->y)
    put(a->y, i, j, fmaf(at(a->to, i, j) - at(a->from, i, j), a->weight, at(a->from, i, j)));
    return OTT_OK;
}

ott_status reference_op_muon_momentum(exec *cx, const muon_momentum_args *a) {
    (void)cx;
    if (is_skipped(a->state)) return OTT_OK;
    EACH(a->momentum) {
        float g = at(a->grad, i, j) * state_of(a->state, STEP_CLIP);
        put_rounded(DRAWS(a), a->momentum, i, j, fmaf(at(a->momentum, i, j), a->factor, g),
                    STOCHASTIC_AVERAGE);
    }
    return OTT_OK;
}

ott_status reference_op_muon_direction(exec *cx, const muon_direction_args *a) {
    (void)cx;
    EACH(a->y) {
        float g = at(a->grad, i, j) * state_of(a->state, STEP_CLIP);
        put(a->y, i, j, fmaf(at(a->momentum, i, j), a->factor, g));
    }
    return OTT_OK;
}

ott_status reference_op_muon_normalize(exec *cx, const muon_normalize_args *a) {
    (void)cx;
    EACH(a->y) put(a->y, i, j, at(a->x, i, j) / (sqrtf(at(a->sum_squares, 0, 0)) + 1e-7f));
    return OTT_OK;
}

ott_status reference_op_muon(exec *cx, const muon_args *a) {
    (void)cx;
    float lr = state_of(a->state, STEP_LEARNING_RATE);
    if (is_skipped(a->state)) return OTT_OK;
    EACH(a->param) {
        float p = at(a->param, i, j);
        p = p - (lr * a->weight_decay) * p;
        p = p - (lr * a->scale) * at(a->update, i, j);
        put_rounded(DRAWS(a), a->param, i, j, p, STOCHASTIC_SUM);
    }
    return OTT_OK;
}
