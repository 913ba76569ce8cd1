/*
 * Tests which recipe each layer gets: by rules for modules, by keep_first_layers and keep_last_layers, after
 * a fallback to bf16, and by torchao's thresholds. A second conversion keeps the delayed-scaling state of
 * unchanged layers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "model/tiny_model.h"

/* Appends a letter for one layer: T with tensorwise scales, R with other FP8 scales, - in high precision. The
   order of layers is q k v o gate up down for each block, then the head. */
static void expect(tiny *t, const convert_options *o, const char *wanted) {
    char found[32] = "";
    convert_summary summary;
    HARNESS_OK(model_convert(t->m, o, &summary));
    int at = 0;
    for (linear *l; (l = model_next_linear(t->m, &at));)
        strcat(found, !l->spec.fp8 ? "-" : l->spec.input.rowwise.grain == GRANULARITY_TENSOR ? "T" : "R");
    assert_string_equal(found, wanted);
    int converted = 0;
    for (const char *c = wanted; *c; c++) converted += *c != '-';
    assert_int_equal(summary.converted, converted);
    assert_int_equal(summary.linears, (int)strlen(wanted));
}

static tiny t;

static void refuse(const convert_options *o, const char *part) {
    assert_int_equal(model_convert(t.m, o, NULL), OTT_ERR_CONFIG);
    if (!strstr(status_text(), part))
        fail_msg("the error \"%s\" does not contain \"%s\"", status_text(), part);
}

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

/* A recipe that the device cannot run is refused before any layer changes, also if only a rule has it. */
static void what_the_device_cannot_run_is_refused(void **state) {
    (void)state;
    const backend_capabilities *own = t.h.device->can;
    backend_capabilities less = *own;
    const module_rule rule = {"*.down_proj", recipe_find("mxfp8")};
    convert_options o = {.recipe = recipe_find("tensorwise"), .rules = &rule, .rule_count = 1};
    less.no_granularity[GRANULARITY_1X32] = "the test forbids it";
    t.h.device->can = &less;
    assert_int_equal(model_convert(t.m, &o, NULL), OTT_ERR_UNSUPPORTED);
    assert_non_null(strstr(status_text(), "recipe mxfp8 cannot run on"));
    assert_non_null(strstr(status_text(), "1x32: the test forbids it; supported: fp32"));
    o.recipe = rule.recipe;
    assert_int_equal(model_convert(t.m, &o, NULL), OTT_ERR_UNSUPPORTED);
    expect(&t, &(convert_options){.recipe = recipe_find("tensorwise")}, "TTTTTTTTTTTTTTT");
    t.h.device->can = own;
}

static void rules(void **state) {
    (void)state;
    const recipe *rowwise = recipe_find("rowwise"), *bf16 = recipe_find("bf16");
    const module_rule list[] = {{"model.layers.0.self_attn.*", bf16},
                                {"*.down_proj", rowwise},
                                {"layers.1.attention.wq", rowwise}, /* torchtitan's name of a layer */
                                {"model.layers.0.*", rowwise}};
    convert_options o = {.recipe = recipe_find("tensorwise"), .rules = list, .rule_count = 4};
    expect(&t, &o, "----RRRRTTTTTRT");
    o.rule_count = 1;
    expect(&t, &o, "----TTTTTTTTTTT");
    const char *filter[] = {"down_proj"}; /* a filter has priority over a rule */
    o = (convert_options){
        .recipe = o.recipe, .rules = list, .rule_count = 4, .filter = filter, .filter_count = 1};
    expect(&t, &o, "----RR-RTTTTT-T");
    /* with a high-precision recipe it is no error that no layer is in FP8 */
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
    expect(&t, &o, "TTTTTTT-------T"); /* the head is in no block, so it stays in FP8 */
    o = (convert_options){.recipe = o.recipe, .keep_first = 5, .keep_last = 5};
    expect(&t, &o, "--------------T");
}

/* Fused projections are layers with their own names, which rules and filters match. */
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

static void fallback_layers_stay(void **state) {
    (void)state;
    linear *up = &t.m->blocks[1].mlp.up;
    convert_options o = {.recipe = recipe_find("tensorwise")};
    up->low_sqnr_count = LINEAR_FELL_BACK;
    expect(&t, &o, "TTTTTTTTTTTT-TT");
    assert_non_null(strstr(up->skip_reason, "float8.fallback"));
    up->low_sqnr_count = 2; /* two measurements had a low SQNR, but the layer has not fallen back */
    expect(&t, &o, "TTTTTTTTTTTTTTT");
    up->low_sqnr_count = 0;
}

/* Returns the decision of the automatic filter for a layer with these dimensions. */
static ott_status judge(const char *recipe_name, int64_t in, int64_t out, bool *taken) {
    parameter weight = parameter_of_shape(2, (int64_t[]){out, in});
    linear l = {.in = in, .out = out, .weight = &weight};
    const model_module e = {.role = ROLE_COUNT, .layer = MODULES_OUTSIDE, .name = "one", .linear = &l};
    const convert_options o = {
        .recipe = recipe_find(recipe_name), .any_dimension = true, .small = true, .by_call = true};
    convert_verdict v;
    ott_status status = convert_judge(&o, &e, 0, OTT_BF16, &v);
    *taken = status == OTT_OK && !*v.reason;
    return status;
}

/* Test cases of torchao's _auto_filter_for_recipe, in which K is `in` and N is `out`. */
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
        HARNESS_OK(judge(rows[i].recipe, rows[i].in, rows[i].out, &found));
        assert_int_equal(found, rows[i].worth);
    }
    bool found;
    assert_int_equal(judge("rowwise_with_gw_hp", 4096, 4096, &found), OTT_ERR_CONFIG);
    assert_int_equal(judge("block", 4096, 4096, &found), OTT_ERR_CONFIG);
    const char *filter[] = {CONVERT_FILTER_SMALL, "lm_head"};
    convert_options o = {.recipe = recipe_find("tensorwise"), .filter = filter, .filter_count = 2};
    refuse(&o, "convert none of the 15 linear layers: float8.filter_fqns keeps 1, "
               "auto_filter_small_kn finds too small 14"); /* all layers are too small */
    o.reduced = true;
    expect(&t, &o, "TTTTTTTTTTTTTT-");
}

/* If no layer runs in FP8, the error names the reasons. */
static void fp8_must_reach_a_layer(void **state) {
    (void)state;
    const char *all[] = {"self_attn", "mlp", "lm_head"};
    const module_rule rule = {"*", recipe_find("bf16")};
    convert_options o = {.recipe = recipe_find("tensorwise"), .filter = all, .filter_count = 3};
    refuse(&o, "recipe tensorwise would convert none of the 15 linear layers: "
               "float8.filter_fqns keeps 15;");
    o.recipe = recipe_find("bf16");
    expect(&t, &o, "---------------");
    o = (convert_options){.recipe = recipe_find("rowwise"), .rules = &rule, .rule_count = 1};
    refuse(&o, "float8.module keeps 15;");
    o = (convert_options){.recipe = o.recipe, .keep_first = 2, .filter = &all[2], .filter_count = 1};
    refuse(&o, "float8.filter_fqns keeps 1, float8.keep_first_layers and keep_last_layers keep 14;");
    tiny odd;
    model_options m = tiny_options();
    m.dim = 24;
    tiny_open(&odd, &m, 1, NULL);
    o = (convert_options){.recipe = recipe_find("tensorwise")};
    assert_int_equal(model_convert(odd.m, &o, NULL), OTT_ERR_CONFIG);
    assert_non_null(strstr(status_text(), "not multiples of 16 (without float8.pad_inner_dim) keep 15"));
    tiny_close(&odd);
}

static void set_low_sqnr_counts(float count) {
    int at = 0;
    for (linear *l; (l = model_next_linear(t.m, &at));) l->low_sqnr_count = count;
}

/* If all layers fell back to bf16 during the run, conversion succeeds without an FP8 layer. */
static void all_may_fall(void **state) {
    (void)state;
    set_low_sqnr_counts(LINEAR_FELL_BACK);
    expect(&t, &(convert_options){.recipe = recipe_find("tensorwise")}, "---------------");
    set_low_sqnr_counts(0);
}

static void keep_message(void *user, ott_log_level level, const char *text) {
    (void)level;
    snprintf(user, 256, "%s", text);
}

/* A filter that matches no layer is an error, which suggests the nearest name. It is no error if a filter
   matches modules that are never converted, or experts, which this model does not have. */
static void a_filter_names_a_layer(void **state) {
    (void)state;
    static const struct {
        const char *filter, *error, *line;
    } rows[] = {
        {"lm_haed",
         "float8.filter_fqns has \"lm_haed\", which is in the name of no linear layer; the nearest "
         "is lm_head",
         ""},
        {"self_attn.q_prj", "the nearest is model.layers.0.self_attn.q_proj", ""},
        {"layers.5.mlp.up_proj", "the nearest is layers.1.mlp.up_proj", ""},
        {"outputs", "the nearest is output", ""},
        {"lm_head.weight", "the nearest is lm_head", ""},
        {"qkv_proj", "the nearest is model.layers.0.self_attn.q_proj", ""},
        {"zzzzzzzzz", "names look like", ""},
        {"bad\nname", "has \"bad?name\"", ""},
        {"router.gate", NULL, "\"router.gate\", a part of mixture-of-experts models"},
        {"experts", NULL, "a part of mixture-of-experts models"},
        {"router", NULL, "a part of mixture-of-experts models"},
        {"expert", "in the name of no linear layer", ""},
        {"tok_embeddings", NULL, "names no linear layer; FP8 converts only linear layers"},
        {"w2", NULL, "Not converted"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char logged[256] = "";
        const logger log = {.callback = keep_message, .user = logged, .level = OTT_LOG_INFO};
        const convert_options o = {
            .recipe = recipe_find("tensorwise"), .filter = &rows[i].filter, .filter_count = 1, .log = &log};
        if (rows[i].error)
            refuse(&o, rows[i].error);
        else
            HARNESS_OK(model_convert(t.m, &o, NULL));
        if (!strstr(logged, rows[i].line)) fail_msg("\"%s\" logged: %s", rows[i].filter, logged);
    }
}

static void a_rule_names_a_layer(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"*.q_prj", "float8.module has \"*.q_prj\", a pattern that matches no linear layer; the nearest is "
                    "model.layers.0.self_attn.q_proj"},
        {"model.layers.1.self_atn.*", "the nearest is model.layers.1.self_attn"},
        {"lm_head.weight", "matches no linear layer"},
        {"model.embed_tokens", "matches no linear layer"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const module_rule list[] = {{"*.down_proj", recipe_find("rowwise")},
                                    {rows[i][0], recipe_find("rowwise")}};
        refuse(&(convert_options){.recipe = recipe_find("tensorwise"), .rules = list, .rule_count = 2},
               rows[i][1]);
    }
}

/* Writes one element of a state vector on the device. */
static void put_at(const tensor *values, int64_t index, float value) {
    tensor at = tensor_columns(*values, index, 1);
    harness_put(&t.h, &at, &value);
}

static float get_at(const tensor *values, int64_t index) {
    tensor at = tensor_columns(*values, index, 1);
    float value;
    harness_get(&t.h, &at, &value);
    return value;
}

/* Converting again keeps the delayed-scaling state of a tensor, unless its format changes. The history gets
   the new length. */
static void state_continues(void **state) {
    (void)state;
    const recipe *delayed = recipe_find("delayed");
    recipe shorter = *delayed, e4m3 = *delayed;
    cast_spec *uses[] = {&shorter.input.rowwise,       &shorter.input.columnwise,
                         &shorter.weight.rowwise,      &shorter.weight.columnwise,
                         &shorter.grad_output.rowwise, &shorter.grad_output.columnwise};
    for (int i = 0; i < 6; i++) uses[i]->history = 2;
    e4m3.grad_output = e4m3.input;
    HARNESS_OK(model_convert(t.m, &(convert_options){.recipe = delayed}, NULL));
    delayed_state *d = t.m->blocks[0].mlp.up.delayed;
    for (int i = 0; i < TENSOR_COUNT; i++) {
        put_at(&d[i].scale, 0, 8.0f);
        put_at(&d[i].amax_history, 1022, 3.0f); /* newest earlier amax; entry 1023 is this step's */
    }
    HARNESS_OK(model_convert(t.m, &(convert_options){.recipe = &shorter}, NULL));
    assert_int_equal(d[TENSOR_INPUT].amax_history.columns, 2);
    assert_true(get_at(&d[TENSOR_INPUT].amax_history, 0) == 3.0f);
    assert_true(get_at(&d[TENSOR_GRAD_OUTPUT].scale, 0) == 8.0f);
    HARNESS_OK(model_convert(t.m, &(convert_options){.recipe = &e4m3}, NULL));
    assert_true(get_at(&d[TENSOR_INPUT].scale, 0) == 8.0f);
    assert_true(get_at(&d[TENSOR_GRAD_OUTPUT].scale, 0) == 1.0f); /* another format resets the state */
    HARNESS_OK(model_convert(t.m, &(convert_options){.recipe = recipe_find("bf16")}, NULL));
    assert_null(d[TENSOR_INPUT].scale.data);
    assert_null(t.m->delayed.block);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_device_cannot_run_is_refused),
        cmocka_unit_test(rules),
        cmocka_unit_test(a_rule_of_another_activation_is_refused),
        cmocka_unit_test(ends_stay),
        cmocka_unit_test(fused_projections),
        cmocka_unit_test(fallback_layers_stay),
        cmocka_unit_test(worth),
        cmocka_unit_test(fp8_must_reach_a_layer),
        cmocka_unit_test(all_may_fall),
        cmocka_unit_test(a_filter_names_a_layer),
        cmocka_unit_test(a_rule_names_a_layer),
        cmocka_unit_test(state_continues),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
