/*
 * Compares AdamW with double over several steps, also with FP8 moments. Tests every path of the op grad_norm:
 * clipping, skipping, the dynamic loss scale.
 */
#include "arrays.h"
#include "devices.h"
#include "tensor/rules/moment.h"
#include <float.h>
#include <math.h>

static devices all; /* all.list[0] is scalar code on one thread */

enum { ELEMENTS = 5003 }; /* enough elements to be divided among threads */

typedef struct adam {
    double p, m, v;
} adam;

/* Computes step t of PyTorch's AdamW for one element, in double. */
static void exact_step(adam *a, double g, int t, double lr, double decay) {
    a->p -= lr * decay * a->p;
    a->m += (g - a->m) * 0.1;
    a->v = 0.95 * a->v + 0.05 * g * g;
    a->p -= lr / (1.0 - pow(0.9, t)) * a->m / (sqrt(a->v) / sqrt(1.0 - pow(0.95, t)) + 1e-8);
}

static void test_adamw_near_double(void **state) {
    (void)state;
    for (int n = 0; n < all.count; n++) {
        exec cx = {.device = all.list[n]};
        tensor p = make_random(OTT_F32, 1, ELEMENTS, 1.0f, 1), m = make_zeros(OTT_F32, 1, ELEMENTS);
        tensor v = make_zeros(OTT_F32, 1, ELEMENTS), values = make_zeros(OTT_F32, 1, STEP_STATE_COUNT);
        float *s = values.data;
        static adam exact[ELEMENTS];
        memset(exact, 0, sizeof exact);
        for (int i = 0; i < ELEMENTS; i++) exact[i].p = element(&p, 0, i);
        for (int t = 1; t <= 20; t++) {
            tensor g = make_random(OTT_F32, 1, ELEMENTS, 1e-3f, (uint64_t)(100 + t));
            s[STEP_LEARNING_RATE] = 1e-2f, s[STEP_CLIP] = 0.5f;
            s[STEP_CORRECTION1] = (float)(1.0 - pow(0.9, t)),
            s[STEP_SQRT_CORRECTION2] = (float)sqrt(1.0 - pow(0.95, t));
            s[STEP_SKIP] = t == 7;
            succeed(op_adamw(&cx, &(adamw_args){.param = &p,
                                                .grad = &g,
                                                .moment1 = &m,
                                                .moment2 = &v,
                                                .state = &values,
                                                .beta1 = 0.9f,
                                                .beta2 = 0.95f,
                                                .epsilon = 1e-8f,
                                                .weight_decay = 0.1f}));
            for (int i = 0; i < ELEMENTS && t != 7; i++)
                exact_step(&exact[i], 0.5 * element(&g, 0, i), t, 1e-2, 0.1);
            free(g.data);
        }
        for (int i = 0; i < ELEMENTS; i++) {
            assert_true(fabs(element(&p, 0, i) - exact[i].p) < 2e-6);
            assert_true(fabs(element(&m, 0, i) - exact[i].m) < 1e-5 * (fabs(exact[i].m) + 1e-4));
            assert_true(fabs(element(&v, 0, i) - exact[i].v) < 1e-5 * exact[i].v);
        }
        free(p.data), free(m.data), free(v.data), free(values.data);
    }
}

/* 100 updates of 0.001 must change a bf16 value of 1. Each update is below half of a bf16 step, so rounding
   to nearest would lose all updates. */
static void test_bf16_keeps_small_updates(void **given) {
    (void)given;
    exec cx = {.device = all.list[0]};
    tensor p = make_zeros(OTT_BF16, 1, ELEMENTS), g = make_random(OTT_F32, 1, ELEMENTS, 1.0f, 1);
    tensor m = make_zeros(OTT_F32, 1, ELEMENTS), v = make_zeros(OTT_F32, 1, ELEMENTS);
    float s[STEP_STATE_COUNT] = {
        [STEP_LEARNING_RATE] = 1e-3f, [STEP_CLIP] = 1, [STEP_CORRECTION1] = 1, [STEP_SQRT_CORRECTION2] = 1};
    tensor state = tensor_vector(s, OTT_F32, STEP_STATE_COUNT);
    double sum = 0;
    for (int i = 0; i < ELEMENTS; i++) cast_store(p.data, OTT_BF16, i, 0.99609375f);
    /* with beta1 and beta2 0, AdamW moves each element by lr * sign(g) */
    for (int i = 0; i < ELEMENTS; i++) ((float *)g.data)[i] = 1.0f;
    for (uint64_t t = 1; t <= 100; t++) {
        step_state_set_update(s, t);
        succeed(op_adamw(
            &cx, &(adamw_args){
                     .param = &p, .grad = &g, .moment1 = &m, .moment2 = &v, .state = &state, .seed = 3}));
    }
    for (int i = 0; i < ELEMENTS; i++) sum += element(&p, 0, i);
    assert_true(fabs(sum / ELEMENTS - (0.99609375 - 0.1)) < 1e-3);
    free(p.data), free(g.data), free(m.data), free(v.data);
}

/* ---- moments in FP8 ---- */

/* Fills a group with magnitudes from 2^low to 2^high, of either sign, and a few zeros. */
static void fill_group(float x[MOMENT_GROUP], int low, int high, uint64_t seed) {
    tensor u = make_random(OTT_F32, 1, MOMENT_GROUP, 1.0f, seed);
    for (int i = 0; i < MOMENT_GROUP; i++) {
        double magnitude = exp2(low + (high - low) * fmod(fabs(element(&u, 0, i)), 1.0));
        x[i] = (float)(element(&u, 0, i) < 0 ? -magnitude : magnitude);
    }
    x[3] = ldexpf(1.0f, low), x[64] = -ldexpf(1.0f, high), x[100] = 0.0f;
    free(u.data);
}

static moment_scale scale_of(const float x[MOMENT_GROUP]) {
    float largest = 0, smallest = FLT_MAX;
    for (int i = 0; i < MOMENT_GROUP; i++) {
        largest = fmaxf(largest, fabsf(x[i]));
        if (x[i] != 0) smallest = fminf(smallest, fabsf(x[i]));
    }
    return moment_scale_of(largest, smallest);
}

/* Compares the functions for FP8 moments with formulas in double: the group's power, the values before they
   are rounded to E4M3, and the decoded elements. */
static void test_moments_near_double(void **given) {
    static const int ranges[][2] = {{-1, 0},     {-8, -5},   {-30, -14},  {-40, -10},
                                    {-126, 127}, {100, 127}, {-126, -120}};
    (void)given;
    for (uint64_t k = 0; k < sizeof ranges / sizeof *ranges; k++) {
        float x[MOMENT_GROUP];
        fill_group(x, ranges[k][0], ranges[k][1], 40 + k);
        moment_scale s = scale_of(x);
        double power = (ranges[k][1] - ranges[k][0]) / log2(448 * 512.0);
        power = fmin(fmax(power, (double)MOMENT_POWER_MIN), (double)MOMENT_POWER_MAX);
        assert_true(s.largest == ldexpf(1.0f, ranges[k][1]) && fabs((double)s.power / power - 1) < 1e-5);
        for (int i = 0; i < MOMENT_GROUP; i++) {
            double ratio = fabs((double)x[i]) / (double)s.largest, y = 448 * pow(ratio, 1 / (double)s.power);
            uint8_t code = moment_encode(x[i], &s);
            double c = (double)cast_from_e4m3(code & 0x7f);
            assert_true(x[i] == 0 || (x[i] < 0) == (code >> 7));
            if (y > 0x1p-9) assert_true(fabs((double)moment_expanded(fabsf(x[i]), &s) / y - 1) < 2e-4);
            double back = (double)s.largest * pow(c / 448, (double)s.power);
            assert_true(fabs(fabs((double)moment_decode(code, s.largest, s.power)) - back) <= 2e-5 * back);
        }
        assert_true(moment_decode(moment_encode(x[64], &s), s.largest, s.power) ==
                    x[64]); /* the group's largest element is exact */
    }
}

/* Only zeros and subnormal numbers become 0, however large the group's other elements are. A non-finite
   element makes the whole group non-finite. A group of zeros and subnormal numbers decodes to zeros. */
static void test_moments_at_the_ends(void **given) {
    (void)given;
    float x[MOMENT_GROUP] = {[5] = 1e30f, [6] = -1e-30f};
    moment_scale s = scale_of(x);
    assert_true(moment_decode(moment_encode(x[6], &s), s.largest, s.power) < 0);
    assert_true(moment_encode(0.0f, &s) == 0 && moment_encode(FLT_MIN / 2, &s) == 0);
    for (int i = 0; i < 2; i++) {
        s = moment_scale_of(i ? NAN : INFINITY, 1.0f);
        assert_true(isnan(s.largest) && isnan(moment_decode(moment_encode(1.0f, &s), s.largest, s.power)));
    }
    s = moment_scale_of(FLT_MIN / 2, FLT_MAX);
    assert_true(s.largest == 0.0f && moment_decode(moment_encode(1.0f, &s), s.largest, s.power) == 0.0f);
}

/* Returns the mean relative error of a group's elements after encoding and decoding. If `expands` is false,
   the group's power is 1, so codes are plain E4M3 numbers with a scale. */
static double error_of_group(const float x[MOMENT_GROUP], bool expands) {
    moment_scale s = scale_of(x);
    double sum = 0;
    if (!expands) s.power = s.expansion = 1.0f;
    for (int i = 0; i < MOMENT_GROUP; i++)
        if (x[i] != 0)
            sum +=
                fabs((double)moment_decode(moment_encode(x[i], &s), s.largest, s.power) / (double)x[i] - 1);
    return sum / MOMENT_GROUP;
}

/* A power that spreads a group's magnitudes over E4M3's range must reduce the error. The magnitudes span only
   a few powers of two, and E4M3 spans eighteen. */
static void test_expansion_makes_finer_steps(void **given) {
    (void)given;
    for (int bits = 1; bits <= 4; bits *= 2) {
        float x[MOMENT_GROUP];
        fill_group(x, -bits - 30, -30, 70 + (uint64_t)bits);
        assert_true(error_of_group(x, false) > 2 * error_of_group(x, true));
    }
}

/* Runs the op grad_norm on these sums of squares. */
static void norm(float *state, const float *squares, int count, float max_norm) {
    exec cx = {.device = all.list[0]};
    tensor parts = tensor_vector((void *)squares, OTT_F32, count),
           s = tensor_vector(state, OTT_F32, STEP_STATE_COUNT);
    succeed(op_grad_norm(&cx, &(grad_norm_args){.sum_squares = &parts, .state = &s, .max_norm = max_norm}));
}

static void test_clipping(void **given) {
    (void)given;
    float s[STEP_STATE_COUNT] = {[STEP_LOSS_SCALE] = 1.0f};
    norm(s, (const float[]){9.0f, 16.0f}, 2, 1.0f);
    assert_true(s[STEP_GRAD_NORM] == 5.0f && s[STEP_SKIP] == 0.0f);
    assert_true(s[STEP_CLIP] == 1.0f / (5.0f + 1e-6f));
    norm(s, (const float[]){9.0f, 16.0f}, 2, 6.0f);
    assert_true(s[STEP_CLIP] == 1.0f);
    norm(s, (const float[]){9.0f, 16.0f}, 2, 0.0f);
    assert_true(s[STEP_GRAD_NORM] == 5.0f && s[STEP_CLIP] == 1.0f);
    s[STEP_LOSS] = INFINITY; /* a non-finite loss with finite gradients */
    norm(s, (const float[]){9.0f, 16.0f}, 2, 0.0f);
    assert_true(s[STEP_GRAD_NORM] == 5.0f && s[STEP_SKIP] == 1.0f);
    s[STEP_LOSS] = 0.0f;
    /* without a dynamic scale, gradients are divided by the loss scale that they were computed with */
    s[STEP_LOSS_SCALE] = 4.0f;
    norm(s, (const float[]){9.0f, 16.0f}, 2, 0.5f);
    assert_true(s[STEP_GRAD_NORM] == 1.25f && s[STEP_LOSS_SCALE] == 4.0f);
    assert_true(s[STEP_CLIP] == 0.5f / (1.25f + 1e-6f) / 4.0f);
    /* the sum of squares exceeds fp32's range, but the norm does not */
    norm(s, (const float[]){FLT_MAX, FLT_MAX}, 2, 1.0f);
    assert_true(s[STEP_SKIP] == 0.0f && isfinite(s[STEP_GRAD_NORM]));
}

static void test_skip_without_loss_scaling(void **given) {
    (void)given;
    float s[STEP_STATE_COUNT] = {[STEP_LOSS_SCALE] = 1.0f, [STEP_GOOD_STEPS] = 3.0f};
    norm(s, (const float[]){1.0f, INFINITY}, 2, 1.0f);
    assert_true(s[STEP_SKIP] == 1.0f && s[STEP_LOSS_SCALE] == 1.0f && s[STEP_GOOD_STEPS] == 3.0f);
    norm(s, (const float[]){NAN, 1.0f}, 2, 1.0f);
    assert_true(s[STEP_SKIP] == 1.0f);
    norm(s, (const float[]){1.0f, 1.0f}, 2, 1.0f);
    assert_true(s[STEP_SKIP] == 0.0f);
}

static void test_dynamic_loss_scale(void **given) {
    (void)given;
    float s[STEP_STATE_COUNT] = {
        [STEP_LOSS_SCALE] = 3.0f, [STEP_LOSS_SCALING] = 1.0f, [STEP_GOOD_STEPS] = 7.0f};
    norm(s, (const float[]){NAN}, 1, 1.0f);
    assert_true(s[STEP_SKIP] == 1.0f && s[STEP_LOSS_SCALE] == 1.5f && s[STEP_GOOD_STEPS] == 0.0f);
    norm(s, (const float[]){INFINITY}, 1, 1.0f);
    assert_true(s[STEP_LOSS_SCALE] == 1.0f);
    for (int i = 1; i < STEP_GROWTH_INTERVAL; i++) norm(s, (const float[]){1.0f}, 1, 1.0f);
    assert_true(s[STEP_LOSS_SCALE] == 1.0f && s[STEP_GOOD_STEPS] == STEP_GROWTH_INTERVAL - 1);
    norm(s, (const float[]){4.0f}, 1, 0.0f);
    assert_true(s[STEP_LOSS_SCALE] == 2.0f && s[STEP_GOOD_STEPS] == 0.0f);
    /* computed with the loss scale before the loss scale was doubled */
    assert_true(s[STEP_GRAD_NORM] == 2.0f && s[STEP_CLIP] == 1.0f);
}

static int open_devices(void **state) {
    (void)state;
    all = devices_open();
    return 0;
}
static int close_devices(void **state) {
    (void)state;
    devices_close(&all);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adamw_near_double),           cmocka_unit_test(test_bf16_keeps_small_updates),
        cmocka_unit_test(test_moments_near_double),         cmocka_unit_test(test_moments_at_the_ends),
        cmocka_unit_test(test_expansion_makes_finer_steps), cmocka_unit_test(test_clipping),
        cmocka_unit_test(test_skip_without_loss_scaling),   cmocka_unit_test(test_dynamic_loss_scale),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
