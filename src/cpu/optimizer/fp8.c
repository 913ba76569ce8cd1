/* cpu/optimizer/fp8: AdamW with moments in FP8 (tensor/rules/moment.h), group by group. */
#include "cpu/optimizer/stochastic.h"
#include "tensor/rules/moment_check.h"

/* ---- functions of tensor/rules/moment.h for 16 lanes, bit for bit ---- */

SIMD v16 moment16_log(v16 x) {
    v16i bits = v16_bits(x);
    v16i exponent = v16i_sub(v16i_shr(v16i_add(bits, v16i_set1(0xcafb0du)), 23), v16i_set1(128));
    v16 f = v16_sub(v16_from_bits(v16i_sub(bits, v16i_shl(exponent, 23))), v16_set1(1.0f));
    v16 e = v16_from_int(exponent), square = v16_mul(f, f), p = v16_set1(MOMENT_LOG_P0);
    p = v16_fma(p, f, v16_set1(MOMENT_LOG_P1));
    p = v16_fma(p, f, v16_set1(MOMENT_LOG_P2));
    p = v16_fma(p, f, v16_set1(MOMENT_LOG_P3));
    p = v16_fma(p, f, v16_set1(MOMENT_LOG_P4));
    p = v16_fma(p, f, v16_set1(MOMENT_LOG_P5));
    p = v16_fma(p, f, v16_set1(MOMENT_LOG_P6));
    p = v16_fma(p, f, v16_set1(MOMENT_LOG_P7));
    p = v16_fma(p, f, v16_set1(MOMENT_LOG_P8));
    p = v16_fma(v16_mul(p, f), square, v16_mul(e, v16_set1(FMATH_LN2_LO)));
    p = v16_add(v16_fma(v16_set1(-0.5f), square, p), f);
    return v16_fma(e, v16_set1(FMATH_LN2_HI), p);
}

SIMD v16 moment16_signed(v16 magnitude, v16 sign) {
    return v16_from_bits(v16i_xor(v16_bits(magnitude), v16i_and(v16_bits(sign), v16i_set1(0x80000000u))));
}

SIMD v16 moment16_decode(v16 code, float largest, float power) {
    v16 c = v16_abs(code), log_ratio = v16_sub(moment16_log(c), v16_set1(moment_log(MOMENT_LARGEST)));
    v16 x = v16_mul(v16_set1(largest), v16_exp(v16_mul(log_ratio, v16_set1(power))));
    x = v16_select(v16_eq(c, v16_zero()), v16_zero(), moment16_signed(x, code));
    return v16_select(v16_isnan(c), c, x);
}

SIMD v16 moment16_expanded(v16 x, const moment_scale *s) {
    v16 magnitude = v16_abs(x), log_ratio = v16_sub(moment16_log(magnitude), v16_set1(s->log_largest));
    v16 y = v16_mul(v16_exp(v16_mul(log_ratio, v16_set1(s->expansion))), v16_set1(MOMENT_LARGEST));
    y = v16_min(v16_max(y, v16_set1(MOMENT_SMALLEST)), v16_set1(MOMENT_LARGEST));
    return v16_select(v16_lt(magnitude, v16_set1(FLT_MIN)), v16_zero(), moment16_signed(y, x));
}

/* Moment 1 or moment 2 of a group. */
typedef struct moment_group {
    float x[MOMENT_GROUP]; /* updated in place; largest, least: measured after the update */
    v16 largest;           /* largest magnitude in each lane */
    v16i least; /* largest value of 0x7fffffff - bits of a normal magnitude, in each lane; 0: none yet */
} moment_group;

SIMD void measure_moment(moment_group *g, int64_t at) {
    v16 x = v16_load(g->x + at);
    v16i magnitude = v16_bits(v16_abs(x));
    v16m is_small = v16i_gt(v16i_set1(0x00800000u), magnitude);
    g->largest = v16_amax(g->largest, x);
    g->least =
        v16i_umax(g->least, v16i_select(is_small, v16i_set1(0), v16i_xor(magnitude, v16i_set1(0x7fffffffu))));
}

SIMD void store_moment(const moment_group *g, uint8_t *codes, float *group_scales, int64_t count) {
    moment_scale s =
        moment_scale_of(v16_fold_amax(g->largest), fmath_from_bits(v16i_fold_umax(g->least) ^ 0x7fffffffu));
    group_scales[0] = s.largest;
    group_scales[1] = s.power;
    if (!moment_has_scales(s.largest)) {
        memset(codes, moment_encode(0.0f, &s), (size_t)count);
        return;
    }
    BY_16(i, lanes, count, {
        v16 y = moment16_expanded(v16_load(g->x + i), &s);
        v16_store_fp8_n(codes + i, y, OTT_E4M3, CAST_SATURATE, lanes);
    });
}

typedef struct adamw_job {
    const adamw_fp8_args *a;
    update_constants constants;
    uint64_t update;
} adamw_job;

/* A group of `count` elements in each tensor. index: the first element's index in the full parameter. */
typedef struct adamw_place {
    void *param;
    const void *grad;
    uint8_t *codes1, *codes2;
    float *group_scales1, *group_scales2;
    int64_t index, count;
} adamw_place;

SIMD void adamw_group(const adamw_job *j, ott_dtype param, ott_dtype grad, const adamw_place *at) {
    moment_group first = {.largest = v16_zero(), .least = v16i_set1(0)}, second = first;
    float p[MOMENT_GROUP], g[MOMENT_GROUP];
    const update_options o = *j->constants.o;
    update_constants c = j->constants;
    draws d;
    c.o = &o;
    c.has_inverse = false; /* known to the compiler */
    BY_16(i, lanes, at->count, {
        v16_store(p + i, v16_get(at->param, param, i, lanes));
        v16_store(g + i, v16_get(at->grad, grad, i, lanes));
        v16_store(first.x + i, moment16_decode(v16_load_fp8_n(at->codes1 + i, OTT_E4M3, lanes),
                                               at->group_scales1[0], at->group_scales1[1]));
        v16_store(second.x + i, moment16_decode(v16_load_fp8_n(at->codes2 + i, OTT_E4M3, lanes),
                                                at->group_scales2[0], at->group_scales2[1]));
    });
    for (int64_t i = 0; i < at->count; i++) {
        update_element e = {p[i], g[i], {first.x[i], second.x[i]}};
        update_adamw(&c, &e);
        p[i] = e.p;
        first.x[i] = e.slot[0];
        second.x[i] = e.slot[1];
    }
    if (param != OTT_F32) draws_take(&d, j->a->seed, j->update, at->index, at->count, false);
    BY_16(i, lanes, at->count, {
        v16 x = v16_load(p + i);
        if (param != OTT_F32) x = draws_round(&d, i, x, STOCHASTIC_SUM);
        v16_put(at->param, param, i, x, lanes);
        measure_moment(&first, i);
        measure_moment(&second, i);
    });
    store_moment(&first, at->codes1, at->group_scales1, at->count);
    store_moment(&second, at->codes2, at->group_scales2, at->count);
}

static adamw_place place_of(const adamw_fp8_args *a, int64_t row, int64_t number) {
    int64_t column = number * MOMENT_GROUP, left = a->param->columns - column;
    return (adamw_place){.param = row_element(a->param, row, column),
                         .grad = row_element(a->grad, row, column),
                         .codes1 = row_element(a->moment1, row, column),
                         .codes2 = row_element(a->moment2, row, column),
                         .group_scales1 = row_element(a->group_scales1, row, number * MOMENT_SCALES),
                         .group_scales2 = row_element(a->group_scales2, row, number * MOMENT_SCALES),
                         .index = a->first + row * a->row_step + column,
                         .count = left < MOMENT_GROUP ? left : MOMENT_GROUP};
}

static void adamw_fp8_task(void *argument, int thread, int threads) {
    const adamw_job *j = argument;
    const adamw_fp8_args *a = j->a;
    int64_t groups = a->group_scales1->columns / MOMENT_SCALES, begin, end;
    pool_share(a->param->rows * groups, 1, thread, threads, &begin, &end);
    for (int64_t g = begin; g < end; g++) {
        adamw_place at = place_of(a, g / groups, g % groups);
        if (a->param->dtype == OTT_BF16)
            adamw_group(j, OTT_BF16, a->grad->dtype, &at);
        else
            adamw_group(j, OTT_F32, a->grad->dtype, &at);
    }
}

ott_status ISA(adamw_fp8)(exec *cx, const adamw_fp8_args *a) {
    const float *state = a->state->data; /* the values of tensor/step_state.h */
    const update_options o = ADAM_OPTIONS(a);
    TRY(moment_check(a));
    if (state[STEP_SKIP] != 0.0f) return OTT_OK;
    adamw_job j = {a, update_constants_of(&o, state), step_state_update(state)};
    cpu_run_sized(cx, tensor_count(*a->param), adamw_fp8_task, &j);
    return OTT_OK;
}
