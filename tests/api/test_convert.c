/* Conversion to FP8: which layers are converted, the log lines, and unchanged names and weights. */
#include "api/module_case.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ott_module *open_three(ott_context *c) {
    ott_module *parts[] = {open_linear(c, 64, 128, true, OTT_BF16, 1),
                           open_linear(c, 128, 32, true, OTT_BF16, 2),
                           open_linear(c, 32, 1, true, OTT_BF16, 3)};
    return open_sequential(c, parts, 3);
}

typedef struct asked {
    char names[256];
} asked;

/* A filter as in torchao's tutorial: skips layer "1", and layers with dimensions that 16 does not divide. */
static int tutorial_filter(void *user, const char *fqn, const ott_module *module) {
    asked *a = user;
    strcat(strcat(a->names, fqn), " ");
    assert_string_equal(ott_module_kind(module), "linear");
    if (strcmp(fqn, "1") == 0) return 0;
    return ott_module_in_features(module) % 16 == 0 && ott_module_out_features(module) % 16 == 0;
}

static void test_tutorial(void **state) {
    (void)state;
    captured_log h;
    asked a = {""};
    ott_convert_options o;
    ott_convert_summary s;
    ott_context *c = open_logging_context(&h);
    ott_module *m = open_three(c), *same = open_three(c);
    ott_convert_options_init(&o);
    ott_convert_summary_init(&s);
    o.filter = tutorial_filter;
    o.user = &a;
    succeed(ott_convert_to_float8_training(m, &o, &s));
    assert_string_equal(a.names, "0 1 2 ");
    assert_int_equal(s.converted, 1);
    assert_int_equal(s.linears, 3);
    assert_int_equal(ott_module_is_float8(ott_module_child(m, "0")), 1);
    assert_int_equal(ott_module_is_float8(ott_module_child(m, "1")), 0);
    assert_string_equal(ott_module_recipe(ott_module_child(m, "0")), "tensorwise");
    assert_null(ott_module_skip_reason(ott_module_child(m, "0")));
    assert_string_equal(ott_module_skip_reason(ott_module_child(m, "2")), "the filter refused it");
    assert_int_equal(count_logged(&h, "Not converted to Float8: 1, because the filter refused it\n"), 1);
    assert_int_equal(count_logged(&h, "Not converted to Float8: "), 2);
    assert_int_equal(
        count_logged(&h, "Applied Float8 training: recipe=TENSORWISE, 1 of 3 linear layers converted\n"), 1);
    assert_same_parameters(m, same); /* conversion changes no name and no weight */
    flow f = open_flow(c, m, 16, 5), g = open_flow(c, same, 16, 5);
    forward(m, &f);
    forward(same, &g);
    float *x = values_of(f.y), *y = values_of(g.y);
    assert_true(memcmp(x, y, 16 * sizeof *x) != 0); /* the results of FP8 are close to bf16's but not equal */
    double difference = 0, size = 0;
    for (int i = 0; i < 16; i++) {
        difference += pow((double)x[i] - (double)y[i], 2);
        size += pow((double)y[i], 2);
    }
    assert_true(difference < 0.01 * size);
    free(x);
    free(y);
    close_flow(&f);
    close_flow(&g);
    ott_module_close(m);
    ott_module_close(same);
    ott_context_close(c);
}

/* If a linear layer is the root of the module tree, its name is "". */
static void test_root(void **state) {
    (void)state;
    captured_log h;
    asked a = {""};
    ott_convert_options o;
    ott_context *c = open_logging_context(&h);
    ott_module *m = open_linear(c, 32, 32, true, OTT_BF16, 1), *n = open_linear(c, 32, 17, true, OTT_BF16, 1);
    ott_convert_options_init(&o);
    o.filter = tutorial_filter;
    o.user = &a;
    succeed(ott_convert_to_float8_training(m, &o, NULL));
    succeed(ott_convert_to_float8_training(n, &o, NULL));
    assert_string_equal(a.names, "  ");
    assert_int_equal(ott_module_is_float8(m), 1);
    assert_int_equal(ott_module_is_float8(n), 0);
    assert_int_equal(count_logged(&h, "Not converted to Float8: the module itself, because"), 1);
    ott_module_close(m);
    ott_module_close(n);
    ott_context_close(c);
}

/* Without auto_filter every shape runs in FP8, under every recipe. */
static void test_any_shape(void **state) {
    (void)state;
    const char *const names[] = {"tensorwise", "rowwise", "rowwise_with_gw_hp", "delayed", "current",
                                 "block",      "mxfp8"};
    ott_context *c = open_context();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ott_module *parts[] = {open_linear(c, 19, 37, true, OTT_BF16, 1),
                               open_linear(c, 37, 3, false, OTT_BF16, 2)};
        ott_module *m = open_sequential(c, parts, 2);
        ott_recipe *r = open_recipe(c, names[i]);
        ott_convert_options o;
        ott_convert_summary s;
        flow f = open_flow(c, m, 7, 5);
        ott_convert_options_init(&o);
        ott_convert_summary_init(&s);
        o.recipe = r;
        succeed(ott_convert_to_float8_training(m, &o, &s));
        assert_int_equal(s.converted, 2);
        forward(m, &f);
        backward(m, &f);
        float *dx = values_of(f.dx), sum = 0;
        for (int k = 0; k < 7 * 19; k++) sum += fabsf(dx[k]);
        assert_true(isfinite(sum) && sum > 1.0f);
        free(dx);
        close_flow(&f);
        ott_recipe_close(r);
        ott_module_close(m);
    }
    ott_context_close(c);
}

static void test_filter_names(void **state) {
    (void)state;
    captured_log h;
    const char *const filters[] = {"q_proj", "mlp"};
    ott_convert_options o;
    ott_convert_summary s;
    ott_context *c = open_logging_context(&h);
    ott_module *m = open_layer(c, OTT_BF16, 1);
    ott_convert_options_init(&o);
    ott_convert_summary_init(&s);
    o.filter_fqns = filters;
    o.filter_fqn_count = 2;
    succeed(ott_convert_to_float8_training(m, &o, &s));
    assert_int_equal(s.converted, 3);
    assert_int_equal(s.linears, 7);
    assert_int_equal(count_logged(&h, "self_attn.q_proj, because filter_fqns has \"q_proj\""), 1);
    assert_int_equal(count_logged(&h, "because filter_fqns has \"mlp\""), 3);
    /* A second call converts to another recipe. Layers that its filter skips keep their recipe. */
    ott_recipe *r = open_recipe(c, "rowwise");
    const char *const others[] = {"self_attn"};
    o.recipe = r;
    o.filter_fqns = others;
    o.filter_fqn_count = 1;
    succeed(ott_convert_to_float8_training(m, &o, &s));
    assert_int_equal(s.converted, 3);
    assert_string_equal(ott_module_recipe(ott_module_child(m, "mlp.up_proj")), "rowwise");
    assert_string_equal(ott_module_recipe(ott_module_child(m, "self_attn.k_proj")), "tensorwise");
    assert_null(ott_module_recipe(ott_module_child(m, "self_attn.q_proj")));
    ott_recipe_close(r); /* the module has its own copy of the recipe */
    flow f = open_flow(c, m, 16, 5);
    forward(m, &f);
    backward(m, &f);
    close_flow(&f);
    ott_module_close(m);
    ott_context_close(c);
}

/* Tests the warnings for a filter that matches no layer and for a call that converts nothing. */
static void test_nothing_converted(void **state) {
    (void)state;
    captured_log h;
    const char *const filters[] = {"q_prj", "self_attn", "mlp"};
    ott_convert_options o;
    ott_convert_summary s;
    ott_context *c = open_logging_context(&h);
    ott_module *m = open_layer(c, OTT_BF16, 1);
    ott_convert_options_init(&o);
    ott_convert_summary_init(&s);
    o.filter_fqns = filters;
    o.filter_fqn_count = 3;
    succeed(ott_convert_to_float8_training(m, &o, &s));
    assert_int_equal(s.converted, 0);
    assert_int_equal(count_logged(&h, "has \"q_prj\", which is in the name of no linear layer"), 1);
    assert_int_equal(count_logged(&h, "which is in the name of no linear layer"), 1);
    assert_int_equal(count_logged(&h, "Nothing was converted to Float8: none of the 7 linear layers"), 1);
    succeed(ott_convert_to_float8_training(m, NULL, NULL));
    assert_int_equal(count_logged(&h, "Nothing was converted"), 1);
    ott_module_close(m);
    ott_context_close(c);
}

/* Compares the automatic filter with torchao's _auto_filter_for_recipe, for sizes around its limits. */
static void test_auto_filter(void **state) {
    (void)state;
    static const struct {
        const char *recipe;
        int64_t in, out;
        int converted;
    } cases[] = {{"tensorwise", 4096, 1024, 0}, {"tensorwise", 4112, 1024, 1}, {"tensorwise", 4096, 1040, 1},
                 {"rowwise", 4096, 2048, 0},    {"rowwise", 1024, 4112, 0},    {"rowwise", 2048, 4096, 0},
                 {"rowwise", 2064, 4096, 1},    {"tensorwise", 4112, 1025, 0}};
    ott_context *c = open_context();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ott_linear_options lo;
        ott_module *m;
        ott_linear_options_init(&lo);
        lo.in_features = cases[i].in;
        lo.out_features = cases[i].out;
        lo.init_std = 0;
        succeed(ott_linear_open(c, &lo, &m));
        ott_recipe *r = open_recipe(c, cases[i].recipe);
        ott_convert_options o;
        ott_convert_summary s;
        ott_convert_options_init(&o);
        ott_convert_summary_init(&s);
        o.recipe = r;
        o.auto_filter = 1;
        succeed(ott_convert_to_float8_training(m, &o, &s));
        if (s.converted != cases[i].converted) fail_msg("case %d: %d converted", (int)i, s.converted);
        ott_recipe_close(r);
        ott_module_close(m);
    }
    ott_context_close(c);
}

static void test_refused(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *m = open_linear(c, 32, 32, true, OTT_BF16, 1);
    ott_recipe *plain = open_recipe(c, "bf16"), *block = open_recipe(c, "rowwise_with_gw_hp");
    flow f = open_flow(c, m, 16, 5);
    ott_convert_options o;
    ott_convert_options_init(&o);
    o.recipe = plain;
    assert_error(ott_convert_to_float8_training(m, &o, NULL), OTT_ERR_ARGUMENT,
                 "keeps every layer in high precision");
    o.recipe = block;
    o.auto_filter = 1;
    assert_error(ott_convert_to_float8_training(m, &o, NULL), OTT_ERR_CONFIG, "tensorwise and rowwise");
    assert_int_equal(ott_module_is_float8(m), 0);
    forward(m, &f); /* conversion drops the state that this forward saved */
    succeed(ott_convert_to_float8_training(m, NULL, NULL));
    assert_error(ott_module_backward(m, f.dy, f.dx), OTT_ERR_ARGUMENT, "the module was converted after it");
    close_flow(&f);
    ott_recipe_close(plain);
    ott_recipe_close(block);
    ott_module_close(m);
    ott_context_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tutorial),          cmocka_unit_test(test_root),
        cmocka_unit_test(test_any_shape),         cmocka_unit_test(test_filter_names),
        cmocka_unit_test(test_nothing_converted), cmocka_unit_test(test_auto_filter),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
