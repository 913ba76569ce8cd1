/*
 * Modules: gradients compared with finite differences, FP8 compared with ott_gemm, names, and which calls of
 * forward and backward are allowed.
 */
#include "api/module_case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- finite differences, in fp32 ---- */

/*
 * The loss is sum(y * dy) in double. Its derivative along a direction d of length 1 is computed from four
 * points, (8 (L(h) - L(-h)) - (L(2h) - L(-2h))) / 12h with h = 2^-5, and compared with the sum of gradient *
 * d. The truncation error is about h^4 / 30 times the fifth derivative. The rounding error of n outputs near
 * 1 is 3 * 6e-8 * sqrt(n) * 1.5 / h, below 4e-4 for the 512 outputs here.
 */
#define H          0x1p-5
#define DIRECTIONS 6
#define RELATIVE   2e-3 /* allowed difference, relative to the gradient's root mean square */
#define ABSOLUTE   4e-4

typedef ott_module *(*opener)(ott_context *context);

static ott_module *fd_linear(ott_context *c) {
    return open_linear(c, 12, 7, true, OTT_F32, 3);
}
static ott_module *fd_norm(ott_context *c) {
    ott_norm_options o;
    ott_module *m;
    ott_norm_options_init(&o);
    o.dim = 16;
    o.dtype = OTT_F32;
    succeed(ott_norm_open(c, &o, &m));
    return m;
}
static ott_module *fd_attention(ott_context *c) {
    const int64_t start[] = {0, 5};
    ott_attention_options o;
    ott_module *m;
    ott_attention_options_init(&o);
    o.dim = 16;
    o.heads = 4;
    o.kv_heads = 2;
    o.dtype = OTT_F32;
    o.init_std = 0.3;
    o.seed = 5;
    succeed(ott_attention_open(c, &o, &m));
    succeed(ott_module_set_sequences(m, start, 2));
    return m;
}
static ott_module *fd_mlp(ott_context *c) {
    ott_mlp_options o;
    ott_module *m;
    ott_mlp_options_init(&o);
    o.dim = 10;
    o.hidden = 14;
    o.dtype = OTT_F32;
    o.init_std = 0.3;
    o.seed = 6;
    succeed(ott_mlp_open(c, &o, &m));
    return m;
}
static ott_module *fd_layer(ott_context *c) {
    return open_layer(c, OTT_F32, 7);
}
static ott_module *fd_sequential(ott_context *c) {
    ott_module *parts[] = {open_linear(c, 9, 16, true, OTT_F32, 8), fd_norm(c),
                           open_linear(c, 16, 5, false, OTT_F32, 9)};
    return open_sequential(c, parts, 3);
}

static double loss(ott_module *m, const flow *f) {
    forward(m, f);
    float *y = values_of(f->y), *dy = values_of(f->dy);
    double sum = 0;
    for (int64_t i = 0; i < f->rows * ott_module_out_features(m); i++) sum += (double)y[i] * (double)dy[i];
    free(y);
    free(dy);
    return sum;
}

static double loss_at(ott_module *m, const flow *f, ott_tensor *t, const float *from, const double *d,
                      int64_t count, double h) {
    float *moved = malloc((size_t)count * sizeof *moved);
    for (int64_t i = 0; i < count; i++) moved[i] = (float)((double)from[i] + h * d[i]);
    succeed(ott_tensor_write(t, moved, count));
    free(moved);
    return loss(m, f);
}

static void make_direction(ott_context *c, double *d, int64_t count, uint64_t seed) {
    double square = 0;
    ott_tensor *t = open_normal(c, OTT_F32, 1, count, seed);
    float *values = values_of(t);
    for (int64_t i = 0; i < count; i++) square += (double)values[i] * (double)values[i];
    for (int64_t i = 0; i < count; i++) d[i] = (double)values[i] / sqrt(square);
    free(values);
    ott_tensor_close(t);
}

static void check_gradient(ott_context *c, ott_module *m, const flow *f, ott_tensor *t,
                           const ott_tensor *gradient, const char *name) {
    int64_t count = ott_tensor_rows(t) * ott_tensor_columns(t);
    float *from = values_of(t), *g = values_of(gradient);
    double *d = malloc((size_t)count * sizeof *d), square = 0;
    for (int64_t i = 0; i < count; i++) square += (double)g[i] * (double)g[i];
    double rms = sqrt(square / (double)count);
    if (!(rms > 0.01)) fail_msg("%s: gradient has root mean square %g", name, rms);
    for (uint64_t k = 0; k < DIRECTIONS; k++) {
        double analytic = 0;
        make_direction(c, d, count, 50 + k);
        for (int64_t i = 0; i < count; i++) analytic += (double)g[i] * d[i];
        double one = loss_at(m, f, t, from, d, count, H) - loss_at(m, f, t, from, d, count, -H);
        double two = loss_at(m, f, t, from, d, count, 2 * H) - loss_at(m, f, t, from, d, count, -2 * H);
        double numeric = (8 * one - two) / (12 * H);
        if (!(fabs(numeric - analytic) <= RELATIVE * rms + ABSOLUTE))
            fail_msg("%s: derivative %.9g, gradient %.9g (root mean square %g)", name, numeric, analytic,
                     rms);
    }
    succeed(ott_tensor_write(t, from, count));
    free(from);
    free(g);
    free(d);
}

static void check_module(opener open) {
    ott_context *c = open_context();
    ott_module *m = open(c);
    flow f = open_flow(c, m, 11, 20);
    forward(m, &f);
    backward(m, &f);
    for (int i = 0; i < ott_module_parameter_count(m); i++) {
        const char *name = ott_module_parameter_name(m, i);
        check_gradient(c, m, &f, value_of(m, name), gradient_of(m, name), name);
    }
    check_gradient(c, m, &f, f.x, f.dx, "x");
    close_flow(&f);
    ott_module_close(m);
    ott_context_close(c);
}

static void test_gradients(void **state) {
    (void)state;
    const opener all[] = {fd_linear, fd_norm, fd_attention, fd_mlp, fd_layer, fd_sequential};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) check_module(all[i]);
}

/* ---- FP8 compared with ott_gemm ---- */

static void check_by_hand(const char *recipe_name, ott_dtype dtype) {
    ott_context *c = open_context();
    ott_recipe *r = open_recipe(c, recipe_name);
    ott_module *m = open_linear(c, 48, 32, true, dtype, 2);
    ott_convert_options o;
    flow f = open_flow(c, m, 24, 30);
    ott_qtensor *qx = open_qtensor(c, 24, 48, r, OTT_INPUT), *qw = open_qtensor(c, 32, 48, r, OTT_WEIGHT),
                *qg = open_qtensor(c, 24, 32, r, OTT_GRAD_OUTPUT);
    ott_tensor *w = value_of(m, "weight"), *bias = value_of(m, "bias"), *y = open_tensor(c, dtype, 24, 32),
               *dx = open_tensor(c, dtype, 24, 48), *dw = open_tensor(c, OTT_F32, 32, 48),
               *compute = open_tensor(c, dtype, 32, 48);
    succeed(ott_tensor_fill_normal(bias, 77, 1.0));
    succeed(ott_tensor_convert(w, compute));
    ott_convert_options_init(&o);
    o.recipe = r;
    succeed(ott_convert_to_float8_training(m, &o, NULL));
    forward(m, &f);
    backward(m, &f);

    succeed(ott_quantize(qx, f.x));
    succeed(ott_quantize(qw, w));
    succeed(ott_quantize(qg, f.dy));
    const ott_operand x = {f.x, qx}, weight = {compute, qw}, g = {f.dy, qg};
    succeed(ott_gemm(r, OTT_GEMM_OUTPUT, &x, &weight, bias, 0, y));
    succeed(ott_gemm(r, OTT_GEMM_GRAD_INPUT, &g, &weight, NULL, 0, dx));
    succeed(ott_gemm(r, OTT_GEMM_GRAD_WEIGHT, &g, &x, NULL, 0, dw));
    assert_same_values(f.y, y);
    assert_same_values(f.dx, dx);
    assert_same_values(gradient_of(m, "weight"), dw);
    close_flow(&f);
    ott_tensor *tensors[] = {y, dx, dw, compute};
    for (int i = 0; i < 4; i++) ott_tensor_close(tensors[i]);
    ott_qtensor_close(qx);
    ott_qtensor_close(qw);
    ott_qtensor_close(qg);
    ott_recipe_close(r);
    ott_module_close(m);
    ott_context_close(c);
}

static void test_fp8_against_gemms(void **state) {
    (void)state;
    const char *const names[] = {"tensorwise", "rowwise", "rowwise_with_gw_hp", "delayed", "current",
                                 "block",      "mxfp8"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) check_by_hand(names[i], OTT_BF16);
    check_by_hand("tensorwise", OTT_F32);
    check_by_hand("delayed", OTT_F32);
}

/* ---- names and parts ---- */

static void test_names(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *parts[] = {open_layer(c, OTT_BF16, 1), open_linear(c, 32, 8, true, OTT_BF16, 2)};
    assert_string_equal(ott_module_parameter_name(parts[1], 0), "weight");
    ott_module *m = open_sequential(c, parts, 2);
    static const char *const names[] = {"0.input_layernorm.weight",
                                        "0.self_attn.q_proj.weight",
                                        "0.self_attn.k_proj.weight",
                                        "0.self_attn.v_proj.weight",
                                        "0.self_attn.o_proj.weight",
                                        "0.post_attention_layernorm.weight",
                                        "0.mlp.gate_proj.weight",
                                        "0.mlp.up_proj.weight",
                                        "0.mlp.down_proj.weight",
                                        "1.weight",
                                        "1.bias"};
    assert_int_equal(ott_module_parameter_count(m), 11);
    for (int i = 0; i < 11; i++) {
        assert_string_equal(ott_module_parameter_name(m, i), names[i]);
        assert_int_equal(ott_module_parameter_index(m, names[i]), i);
    }
    ott_module *q = ott_module_child(m, "0.self_attn.q_proj");
    assert_string_equal(ott_module_kind(q), "linear");
    assert_int_equal(ott_module_out_features(ott_module_child(m, "0.self_attn.k_proj")), 16);
    assert_string_equal(ott_module_parameter_name(q, 0), "weight");
    assert_string_equal(ott_module_parameter_name(ott_module_child(m, "0.self_attn"), 3), "o_proj.weight");
    assert_ptr_equal(ott_module_child(m, ""), m);
    assert_null(ott_module_child(m, "0.self_attn.q"));
    assert_non_null(strstr(ott_error_text(), "sequential has no part \"0.self_attn.q\""));
    assert_null(ott_module_child(m, "2"));
    assert_ptr_equal(value_of(m, "1.weight"), value_of(ott_module_child(m, "1"), "weight"));
    assert_int_equal(ott_tensor_rows(value_of(m, "1.bias")), 1);
    ott_module_close(parts[0]); /* closing a part has no effect, because the sequential owns it */
    assert_string_equal(ott_module_kind(parts[0]), "transformer_layer");
    ott_module_close(m);
    assert_null(ott_module_kind(parts[0]));
    ott_context_close(c);
}

/* A getter returns the same view of a parameter each time, or a new view if the caller closed it. */
static void test_views(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *m = open_linear(c, 4, 4, false, OTT_F32, 1);
    ott_tensor *first = value_of(m, "weight");
    ott_tensor_close(first);
    ott_tensor *again = value_of(m, "weight");
    fill(again, 2.0f);
    float *values = values_of(value_of(m, "weight"));
    assert_true(values[15] == 2.0f);
    free(values);
    ott_module_close(m);
    ott_context_close(c);
}

static void test_seeds(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *a = open_linear(c, 8, 8, false, OTT_F32, 4), *b = open_linear(c, 8, 8, false, OTT_F32, 4),
               *d = open_linear(c, 8, 8, false, OTT_F32, 0), *e = open_linear(c, 8, 8, false, OTT_F32, 0);
    assert_same_parameters(a, b);
    float *x = values_of(value_of(d, "weight")), *y = values_of(value_of(e, "weight"));
    assert_true(memcmp(x, y, 64 * sizeof *x) != 0);
    free(x);
    free(y);
    ott_module *all[] = {a, b, d, e};
    for (int i = 0; i < 4; i++) ott_module_close(all[i]);
    ott_context_close(c);
}

/* ---- the rules of running ---- */

/* The output and the gradients of a pass, which are compared bit for bit. */
typedef struct result {
    float *y, *dx, *gradient;
} result;

static result run_with(ott_context *c, ott_recipe *r, bool spoil_x, bool expected_dx) {
    ott_module *m = open_layer(c, OTT_BF16, 3);
    ott_convert_options o;
    flow f = open_flow(c, m, 16, 60);
    ott_convert_options_init(&o);
    o.recipe = r;
    if (r) succeed(ott_convert_to_float8_training(m, &o, NULL));
    forward(m, &f);
    if (spoil_x) fill(f.x, 9.0f);
    succeed(ott_module_backward(m, f.dy, expected_dx ? f.dx : NULL));
    result out = {values_of(f.y), values_of(f.dx), values_of(gradient_of(m, "self_attn.q_proj.weight"))};
    close_flow(&f);
    ott_module_close(m);
    return out;
}

static void free_result(result *r) {
    free(r->y);
    free(r->dx);
    free(r->gradient);
}

/* The caller may change x after forward. backward's dx may be NULL. */
static void test_x_may_change(void **state) {
    (void)state;
    const char *const names[] = {NULL, "tensorwise", "rowwise_with_gw_hp"};
    for (int i = 0; i < 3; i++) {
        ott_context *c = open_context();
        ott_recipe *r = names[i] ? open_recipe(c, names[i]) : NULL;
        result plain = run_with(c, r, false, true), spoiled = run_with(c, r, true, true),
               without = run_with(c, r, true, false);
        assert_memory_equal(plain.dx, spoiled.dx, 16 * 32 * sizeof(float));
        assert_memory_equal(plain.gradient, spoiled.gradient, 32 * 32 * sizeof(float));
        assert_memory_equal(plain.gradient, without.gradient, 32 * 32 * sizeof(float));
        assert_true(without.dx[0] == 0.0f && plain.dx[0] != 0.0f);
        free_result(&plain);
        free_result(&spoiled);
        free_result(&without);
        ott_recipe_close(r);
        ott_context_close(c);
    }
}

static void test_one_forward_is_saved(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *m = open_layer(c, OTT_BF16, 3);
    flow f = open_flow(c, m, 16, 60), other = open_flow(c, m, 8, 61);
    assert_error(ott_module_backward(m, f.dy, f.dx), OTT_ERR_ARGUMENT, "no forward ran yet");
    forward(m, &other);
    forward(m, &f); /* replaces the state that forward saved for `other` */
    assert_error(ott_module_backward(m, other.dy, other.dx), OTT_ERR_SHAPE, "dy is [8, 32]");
    backward(m, &f);
    float *dx = values_of(f.dx);
    assert_error(ott_module_backward(m, f.dy, f.dx), OTT_ERR_ARGUMENT, "a backward already used it");
    succeed(ott_module_set_training(m, 0));
    float *trained = values_of(f.y);
    forward(m, &f);
    float *evaluated = values_of(f.y);
    assert_memory_equal(trained, evaluated, 16 * 32 * sizeof(float));
    assert_error(ott_module_backward(m, f.dy, f.dx), OTT_ERR_ARGUMENT, "the last forward was an evaluation");
    succeed(ott_module_set_training(m, 1));
    forward(m, &f);
    backward(m, &f);
    float *again = values_of(f.dx);
    assert_memory_equal(dx, again, 16 * 32 * sizeof(float));
    free(dx);
    free(again);
    free(trained);
    free(evaluated);
    close_flow(&f);
    close_flow(&other);
    ott_module_close(m);
    ott_context_close(c);
}

static void test_gradients_add_up(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *m = open_linear(c, 16, 16, true, OTT_BF16, 3);
    flow f = open_flow(c, m, 16, 60);
    forward(m, &f);
    backward(m, &f);
    float *once = values_of(gradient_of(m, "bias"));
    forward(m, &f);
    backward(m, &f);
    float *twice = values_of(gradient_of(m, "bias"));
    for (int i = 0; i < 16; i++) assert_true(fabsf(twice[i] - 2 * once[i]) <= 1e-5f * fabsf(once[i]) + 1e-6f);
    free(once);
    free(twice);
    close_flow(&f);
    ott_module_close(m);
    ott_context_close(c);
}

/* Two sequences in one batch give the same results as in two batches. */
static void test_sequences(void **state) {
    (void)state;
    const int64_t start[] = {0, 6};
    ott_context *c = open_context();
    ott_module *m = open_layer(c, OTT_BF16, 3);
    flow both = open_flow(c, m, 16, 60), second = open_flow(c, m, 10, 61);
    float *x = values_of(both.x);
    succeed(ott_tensor_write(second.x, x + 6 * 32, 10 * 32));
    forward(m, &both);
    float *unsplit = values_of(both.y);
    succeed(ott_module_set_sequences(m, start, 2));
    forward(m, &both);
    succeed(ott_module_set_sequences(m, NULL, 0));
    forward(m, &second);
    float *y = values_of(both.y), *separate = values_of(second.y);
    assert_memory_equal(y + 6 * 32, separate, 10 * 32 * sizeof(float));
    assert_memory_equal(y, unsplit, 6 * 32 * sizeof(float));
    assert_true(memcmp(y + 6 * 32, unsplit + 6 * 32, 10 * 32 * sizeof(float)) != 0);
    float *all[] = {x, unsplit, y, separate};
    for (int i = 0; i < 4; i++) free(all[i]);
    close_flow(&both);
    close_flow(&second);
    ott_module_close(m);
    ott_context_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_fp8_against_gemms),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_x_may_change),
        cmocka_unit_test(test_one_forward_is_saved),
        cmocka_unit_test(test_gradients_add_up),
        cmocka_unit_test(test_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
