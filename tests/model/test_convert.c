/*
 * Which recipe each layer runs under: rules for single modules, blocks kept at either end, layers that have
 * fallen back, torchao's thresholds; and that converting again keeps the state of what goes on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "model/tiny_model.h"

/* The layers of `m` in one letter each: T one scale a tensor, R one a line, - high precision, in forward
 * order: q k v o gate up down, ..., head. */
static ott_status spell(void *user, linear *l) {
    char *text = user;
    strcat(text, !l->spec.fp8 ? "-" : l->spec.input.row.grain == GRANULARITY_TENSOR ? "T" : "R");
    return OTT_OK;
}

static void expect(tiny *t, const convert_options *o, const char *wanted) {
    char found[32] = "";
    convert_summary summary;
    HARNESS_OK(model_convert(t->m, o, &summary));
    HARNESS_OK(model_visit_linears(t->m, spell, found));
    assert_string_equal(found, wanted);
    int converted = 0;
    for (const char *c = wanted; *c; c++) converted += *c != '-';
    assert_int_equal(summary.converted, converted);
    assert_int_equal(summary.linears, (int)strlen(wanted));
}

static tiny t;

static int setup(void **state) {
    (void)state;
    model_options o = tiny_options();
    tiny_open(&t, &o, 1, NULL);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    tiny_close(&t);
    return 0;
}

static void rules(void **state) {
    (void)state;
    const recipe *rowwise = recipe_find("rowwise"), *bf16 = recipe_find("bf16");
    const module_rule list[] = {{"model.layers.0.self_attn.*", bf16},
                                {"*.down_proj", rowwise},
                                {"layers.1.attention.wq", rowwise}, /* torchtitan's name */
                                {"model.layers.0.*", rowwise}};
    convert_options o = {.recipe = recipe_find("tensorwise"), .rules = list, .rule_count = 4};
    expect(&t, &o, "----RRRRTTTTTRT");
    o.rule_count = 1;
    expect(&t, &o, "----TTTTTTTTTTT");
    const char *filter[] = {"down_proj"}; /* a filter comes before the rules */
    o = (convert_options){
        .recipe = o.recipe, .rules = list, .rule_count = 4, .filter = filter, .filter_count = 1};
    expect(&t, &o, "----RR-RTTTTT-T");
    /* under a high-precision recipe nobody asked for FP8 */
    o.recipe = bf16;
    expect(&t, &o, "---------------");
}

static void a_rule_of_another_activation_is_refused(void **state) {
    (void)state;
    const module_rule rule = {"lm_head", recipe_find("fp32")};
    assert_int_equal(
        model_convert(
            t.m, &(convert_options){.recipe = recipe_find("tensorwise"), .rules = &rule, .rule_count = 1},
            NULL),
        OTT_ERR_CONFIG);
    assert_non_null(strstr(status_text(), "lm_head the recipe fp32"));
}

static void ends_stay(void **state) {
    (void)state;
    convert_options o = {.recipe = recipe_find("tensorwise"), .keep_first = 1};
    expect(&t, &o, "-------TTTTTTTT");
    o = (convert_options){.recipe = o.recipe, .keep_last = 1};
    expect(&t, &o, "TTTTTTT-------T"); /* the head is in no block */
    o = (convert_options){.recipe = o.recipe, .keep_first = 5, .keep_last = 5};
    expect(&t, &o, "--------------T");
}

/* Fused projections are layers like others, by their own names. */
static void fused_projections(void **state) {
    (void)state;
    tiny fused;
    model_options m = tiny_options();
    m.fused_qkv = m.fused_gate_up = true;
    tiny_open(&fused, &m, 1, NULL);
    const recipe *rowwise = recipe_find("rowwise");
    const module_rule list[] = {{"model.layers.*.qkv_proj", rowwise}, {"layers.1.feed_forward.w13", rowwise}};
    convert_options o = {.recipe = recipe_find("tensorwise"), .rules = list, .rule_count = 2};
    expect(&fused, &o, "RTTTRTRTT");
    o = (convert_options){.recipe = o.recipe, .keep_last = 1};
    expect(&fused, &o, "TTTT----T");
    tiny_close(&fused);
}

static void fallen_layers_stay(void **state) {
    (void)state;
    linear *up = &t.m->blocks[1].mlp.up;
    convert_options o = {.recipe = recipe_find("tensorwise")};
    up->below = LINEAR_FALLEN;
    expect(&t, &o, "TTTTTTTTTTTT-TT");
    assert_non_null(strstr(up->kept_because, "float8.fallback"));
    up->below = 2; /* counting, not fallen */
    expect(&t, &o, "TTTTTTTTTTTTTTT");
    up->below = 0;
}

/* torchao's test cases of _auto_filter_for_recipe: K in features, N out features. */
static void worth(void **state) {
    (void)state;
    const struct {
        const char *recipe;
        int64_t in, out;
        bool worth;
    } rows[] = {
        {"tensorwise", 8192, 2048, true}, {"tensorwise", 4096, 1024, false}, {"tensorwise", 4112, 1024, true},
        {"tensorwise", 4096, 1040, true}, {"rowwise", 4096, 8192, true},     {"rowwise", 2048, 4096, false},
        {"rowwise", 4096, 2048, false},   {"rowwise", 1024, 4112, false},    {"rowwise", 2064, 4096, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool found;
        HARNESS_OK(convert_is_worth(recipe_find(rows[i].recipe), rows[i].in, rows[i].out, &found));
        assert_int_equal(found, rows[i].worth);
    }
    bool found;
    assert_int_equal(convert_is_worth(recipe_find("rowwise_with_gw_hp"), 4096, 4096, &found), OTT_ERR_CONFIG);
    assert_int_equal(convert_is_worth(recipe_find("block"), 4096, 4096, &found), OTT_ERR_CONFIG);
    const char *filter[] = {CONVERT_FILTER_SMALL, "lm_head"};
    convert_options o = {.recipe = recipe_find("tensorwise"), .filter = filter, .filter_count = 2};
    expect(&t, &o, "---------------"); /* all of it is tiny */
}

/* Delayed scaling's state goes on where the rule does, and starts anew elsewhere. */
static void state_goes_on(void **state) {
    (void)state;
    const recipe *delayed = recipe_find("delayed");
    recipe shorter = *delayed, e4m3 = *delayed;
    side_spec *sides[] = {&shorter.input.row,     &shorter.input.column,    &shorter.weight.row,
                          &shorter.weight.column, &shorter.grad_output.row, &shorter.grad_output.column};
    for (int i = 0; i < 6; i++) sides[i]->history = 2;
    e4m3.grad_output = e4m3.input;
    HARNESS_OK(model_convert(t.m, &(convert_options){.recipe = delayed}, NULL));
    delayed_state *d = t.m->blocks[0].mlp.up.delayed;
    for (int i = 0; i < TENSOR_COUNT; i++) {
        *(float *)d[i].scale.data = 8.0f;
        ((float *)d[i].window.data)[1022] = 3.0f; /* the newest; the last place waits */
    }
    HARNESS_OK(model_convert(t.m, &(convert_options){.recipe = &shorter}, NULL));
    assert_int_equal(d[TENSOR_INPUT].window.columns, 2);
    assert_true(((float *)d[TENSOR_INPUT].window.data)[0] == 3.0f);
    assert_true(*(float *)d[TENSOR_GRAD_OUTPUT].scale.data == 8.0f);
    HARNESS_OK(model_convert(t.m, &(convert_options){.recipe = &e4m3}, NULL));
    assert_true(*(float *)d[TENSOR_INPUT].scale.data == 8.0f);
    assert_true(*(float *)d[TENSOR_GRAD_OUTPUT].scale.data == 1.0f); /* another format: anew */
    HARNESS_OK(model_convert(t.m, &(convert_options){.recipe = recipe_find("bf16")}, NULL));
    assert_null(d[TENSOR_INPUT].scale.data);
    assert_null(t.m->delayed.block);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules),
        cmocka_unit_test(a_rule_of_another_activation_is_refused),
        cmocka_unit_test(ends_stay),
        cmocka_unit_test(fused_projections),
        cmocka_unit_test(fallen_layers_stay),
        cmocka_unit_test(worth),
        cmocka_unit_test(state_goes_on),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
