/* AdamW against double over some steps, and every path of grad_norm: clipping, skipping, the dynamic loss
 * scale. */
#include "arrays.h"
#include "devices.h"
#include <float.h>
#include <math.h>

static devices all; /* the first: scalar code, one thread */

enum { ELEMENTS = 5003 }; /* enough to be shared among threads */

typedef struct adam {
    double p, m, v;
} adam;

/* PyTorch's AdamW, one element and step t in double. */
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

/* Of 100 updates of 0.001, which is less than half of what bf16 tells apart below 1, nearest would leave nothing. */
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
    for (int i = 0; i < ELEMENTS; i++) ((float *)g.data)[i] = 1.0f; /* with betas 0 an update is its sign */
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

/* Runs grad_norm on some sums of squares. */
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
    s[STEP_LOSS] = INFINITY; /* gradients may be finite all the same */
    norm(s, (const float[]){9.0f, 16.0f}, 2, 0.0f);
    assert_true(s[STEP_GRAD_NORM] == 5.0f && s[STEP_SKIP] == 1.0f);
    s[STEP_LOSS] = 0.0f;
    s[STEP_LOSS_SCALE] = 4.0f; /* fixed: what the gradients were made with is taken out again */
    norm(s, (const float[]){9.0f, 16.0f}, 2, 0.5f);
    assert_true(s[STEP_GRAD_NORM] == 1.25f && s[STEP_LOSS_SCALE] == 4.0f);
    assert_true(s[STEP_CLIP] == 0.5f / (1.25f + 1e-6f) / 4.0f);
    norm(s, (const float[]){FLT_MAX, FLT_MAX}, 2, 1.0f); /* the sum is beyond fp32, its root is not */
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
    assert_true(s[STEP_GRAD_NORM] == 2.0f &&
                s[STEP_CLIP] == 1.0f); /* of the step that was, with the old scale */
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
        cmocka_unit_test(test_adamw_near_double),  cmocka_unit_test(test_bf16_keeps_small_updates),
        cmocka_unit_test(test_clipping),           cmocka_unit_test(test_skip_without_loss_scaling),
        cmocka_unit_test(test_dynamic_loss_scale),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
