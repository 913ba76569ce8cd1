/* AdamW for a module: values, weight decay, clipping, skipped steps. */
#include "api/module_case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN = 8, OUT = 8, COUNT = IN * OUT };

static ott_optimizer *open_adamw(ott_context *c, ott_module *m, double decay, double max_norm) {
    ott_adamw_options o;
    ott_optimizer *made;
    ott_adamw_options_init(&o);
    o.lr = 0.01;
    o.beta2 = 0.95;
    o.weight_decay = decay;
    o.max_norm = max_norm;
    succeed(ott_adamw_open(c, m, &o, &made));
    return made;
}

/* Expected parameters and moments, computed in fp32 in the order of operations that ops.def defines. */
typedef struct reference {
    float p[COUNT], m[COUNT], v[COUNT];
} reference;

static void update(reference *r, const float *grad, int t, float decay, float clip) {
    const float lr = 0.01f, beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f;
    float correction1 = (float)(1.0 - pow((double)beta1, t)), root = (float)sqrt(1.0 - pow((double)beta2, t));
    for (int i = 0; i < COUNT; i++) {
        float g = grad[i] * clip;
        r->p[i] = r->p[i] - (lr * decay) * r->p[i];
        r->m[i] = fmaf(g - r->m[i], 1 - beta1, r->m[i]);
        r->v[i] = fmaf(g * g, 1 - beta2, r->v[i] * beta2);
        r->p[i] = r->p[i] - (lr / correction1) * (r->m[i] / (sqrtf(r->v[i]) / root + epsilon));
    }
}

static void assert_parameter(ott_module *m, const reference *r, int step) {
    float *p = values_of(value_of(m, "weight"));
    for (int i = 0; i < COUNT; i++)
        if (p[i] != r->p[i])
            fail_msg("step %d: parameter %d is %.9g, not %.9g", step, i, (double)p[i], (double)r->p[i]);
    free(p);
}

static void check_numbers(double decay, double max_norm) {
    ott_context *c = open_context();
    ott_module *m = open_linear(c, IN, OUT, false, OTT_F32, 1);
    ott_optimizer *o = open_adamw(c, m, decay, max_norm);
    ott_step_info info;
    reference r = {0};
    float *start = values_of(value_of(m, "weight"));
    memcpy(r.p, start, sizeof r.p);
    free(start);
    ott_step_info_init(&info);
    for (int t = 1; t <= 6; t++) {
        succeed(ott_tensor_fill_normal(gradient_of(m, "weight"), (uint64_t)t, t == 3 ? 10.0 : 0.1));
        float *g = values_of(gradient_of(m, "weight"));
        succeed(ott_optimizer_step(o, &info));
        float norm = (float)info.grad_norm, clip = 1;
        if (max_norm > 0) clip = fminf(1, (float)max_norm / (norm + 1e-6f));
        double square = 0;
        for (int i = 0; i < COUNT; i++) square += (double)g[i] * (double)g[i];
        assert_true(fabs(info.grad_norm - sqrt(square)) < 1e-5 * sqrt(square));
        assert_int_equal(info.updates, t);
        assert_int_equal(info.skipped, 0);
        update(&r, g, t, (float)decay, clip);
        assert_parameter(m, &r, t);
        free(g);
    }
    ott_optimizer_close(o);
    ott_module_close(m);
    ott_context_close(c);
}

static void test_numbers(void **state) {
    (void)state;
    check_numbers(0, 0);
    check_numbers(0.1, 0);
    check_numbers(0.1, 1.0);
}

/* With zero gradients, weight decay makes matrices smaller. Norms and biases do not decay. */
static void test_decay(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_norm_options no;
    ott_module *parts[2];
    ott_norm_options_init(&no);
    no.dim = IN;
    no.dtype = OTT_F32;
    succeed(ott_norm_open(c, &no, &parts[0]));
    parts[1] = open_linear(c, IN, OUT, true, OTT_F32, 1);
    ott_module *m = open_sequential(c, parts, 2);
    fill(value_of(m, "1.bias"), 3.0f);
    fill(value_of(m, "1.weight"), 2.0f);
    ott_optimizer *o = open_adamw(c, m, 0.5, 0);
    succeed(ott_optimizer_step(o, NULL));
    float *norm = values_of(value_of(m, "0.weight")), *bias = values_of(value_of(m, "1.bias")),
          *weight = values_of(value_of(m, "1.weight"));
    assert_true(norm[0] == 1.0f && bias[0] == 3.0f);
    assert_true(weight[0] == 2.0f - (0.01f * 0.5f) * 2.0f);
    free(norm);
    free(bias);
    free(weight);
    ott_optimizer_close(o);
    ott_module_close(m);
    ott_context_close(c);
}

static void test_skipped(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *m = open_linear(c, IN, OUT, true, OTT_F32, 1),
               *same = open_linear(c, IN, OUT, true, OTT_F32, 1);
    ott_optimizer *o = open_adamw(c, m, 0.1, 1.0), *plain = open_adamw(c, same, 0.1, 1.0);
    ott_step_info info;
    ott_step_info_init(&info);
    fill(gradient_of(m, "bias"), NAN);
    succeed(ott_optimizer_step(o, &info));
    assert_int_equal(info.skipped, 1);
    assert_int_equal(info.updates, 0);
    assert_true(isnan(info.grad_norm));
    assert_same_parameters(m, same);
    succeed(ott_optimizer_zero_grad(o));
    fill(gradient_of(m, "weight"), 0.5f);
    fill(gradient_of(same, "weight"), 0.5f);
    succeed(ott_optimizer_step(o, &info)); /* after skipped steps this step updates normally */
    succeed(ott_optimizer_step(plain, NULL));
    assert_int_equal(info.skipped, 0);
    assert_same_parameters(m, same);
    succeed(ott_optimizer_zero_grad(o));
    float *g = values_of(gradient_of(m, "weight"));
    for (int i = 0; i < COUNT; i++) assert_true(g[i] == 0.0f);
    free(g);
    ott_optimizer_close(o);
    ott_optimizer_close(plain);
    ott_module_close(m);
    ott_module_close(same);
    ott_context_close(c);
}

static void test_learning_rate(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *m = open_linear(c, IN, OUT, false, OTT_F32, 1);
    ott_optimizer *o = open_adamw(c, m, 0, 0);
    float *before = values_of(value_of(m, "weight"));
    fill(gradient_of(m, "weight"), 1.0f);
    succeed(ott_optimizer_set_lr(o, 0.5));
    succeed(ott_optimizer_step(o, NULL));
    float *after = values_of(value_of(m, "weight"));
    /* Adam's first step moves a weight by the learning rate */
    assert_true(fabsf(before[3] - after[3] - 0.5f) < 1e-6f);
    free(before);
    free(after);
    ott_optimizer_close(o);
    ott_module_close(m);
    ott_context_close(c);
}

/* A step between forward and backward drops the state that forward saved. */
static void test_step_between(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *m = open_linear(c, IN, OUT, false, OTT_BF16, 1);
    ott_optimizer *o = open_adamw(c, m, 0, 0);
    flow f = open_flow(c, m, 4, 1);
    forward(m, &f);
    succeed(ott_optimizer_step(o, NULL));
    assert_error(ott_module_backward(m, f.dy, f.dx), OTT_ERR_ARGUMENT, "an optimizer step ran after it");
    close_flow(&f);
    ott_optimizer_close(o);
    ott_module_close(m);
    ott_context_close(c);
}

/* Trains an FP8 layer to have the same outputs as another layer. */
static void test_it_learns(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *parts[] = {open_linear(c, 32, 64, true, OTT_BF16, 1),
                           open_linear(c, 64, 16, true, OTT_BF16, 2)};
    ott_module *m = open_sequential(c, parts, 2);
    ott_optimizer *o = open_adamw(c, m, 0, 1.0);
    flow f = open_flow(c, m, 64, 5);
    float first = 0, last = 0, target[64 * 16];
    succeed(ott_tensor_read(f.dy, target, 64 * 16));
    succeed(ott_convert_to_float8_training(m, NULL, NULL));
    for (int t = 0; t < 40; t++) {
        float *y;
        succeed(ott_optimizer_zero_grad(o));
        forward(m, &f);
        y = values_of(f.y);
        last = 0;
        for (int i = 0; i < 64 * 16; i++) {
            y[i] -= target[i];
            last += y[i] * y[i] / (64 * 16);
        }
        if (t == 0) first = last;
        succeed(ott_tensor_write(f.dy, y, 64 * 16));
        backward(m, &f);
        succeed(ott_optimizer_step(o, NULL));
        free(y);
    }
    if (!(last < 0.5f * first)) fail_msg("loss %g at first, %g at last", (double)first, (double)last);
    close_flow(&f);
    ott_optimizer_close(o);
    ott_module_close(m);
    ott_context_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),      cmocka_unit_test(test_decay),
        cmocka_unit_test(test_skipped),      cmocka_unit_test(test_learning_rate),
        cmocka_unit_test(test_step_between), cmocka_unit_test(test_it_learns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
