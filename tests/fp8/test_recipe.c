/*
 * fp8/recipe: compares the recipe table with the table that torchao published, and runs recipe_check on
 * recipes with one wrong field each.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "fp8/recipe.h"
#include <string.h>

static const recipe *row(const char *name) {
    const recipe *r = recipe_find(name);
    assert_non_null(r);
    return r;
}

/* ---- the table ---- */

static void rows_in_order_and_findable(void **state) {
    (void)state;
    const char *names[] = {"fp32",    "bf16",    "fp16",  "tensorwise", "rowwise", "rowwise_with_gw_hp",
                           "delayed", "current", "block", "mxfp8"};
    const char *shown[] = {"FP32",    "BF16",    "FP16",  "TENSORWISE", "ROWWISE", "ROWWISE_WITH_GW_HP",
                           "DELAYED", "CURRENT", "BLOCK", "MXFP8"};
    int count;
    const recipe *table = recipe_table(&count);
    assert_int_equal(count, 10);
    for (int i = 0; i < count; i++) {
        assert_string_equal(table[i].name, names[i]);
        assert_string_equal(table[i].display, shown[i]);
        assert_ptr_equal(recipe_find(names[i]), &table[i]);
    }
    assert_null(recipe_find("TENSORWISE"));
    assert_null(recipe_find(""));
}

static void every_row_is_consistent(void **state) {
    (void)state;
    int count;
    const recipe *table = recipe_table(&count);
    for (int i = 0; i < count; i++)
        if (recipe_check(&table[i]) != OTT_OK) fail_msg("%s", status_text());
}

static void high_precision_rows(void **state) {
    (void)state;
    const ott_dtype formats[] = {OTT_F32, OTT_BF16, OTT_F16};
    for (int i = 0; i < 3; i++) {
        const recipe *r = recipe_high_precision(formats[i]);
        assert_non_null(r);
        assert_int_equal(r->activation, formats[i]);
        assert_false(recipe_gemm_is_fp8(r, GEMM_COUNT));
        assert_false(quant_spec_is_fp8(&r->input) || quant_spec_is_fp8(&r->weight) ||
                     quant_spec_is_fp8(&r->grad_output));
        assert_int_equal(r->input.rowwise.format, formats[i]);
    }
    assert_null(recipe_high_precision(OTT_E4M3));
}

/* The FP8 recipes have the formats, granularities and power-of-two scales of torchao's recipe table
   (float8/config.py). */
static void fp8_rows_equal_torchao(void **state) {
    (void)state;
    enum { T = GRANULARITY_TENSOR, R = GRANULARITY_ROW };
    const struct {
        const char *name;
        struct {
            int format, grain, pow2;
        } input[2], weight[2], grad_output[2]; /* [0]: rowwise copy, [1]: columnwise copy */
    } rows[] = {
        {"tensorwise",
         {{OTT_E4M3, T, 0}, {OTT_E4M3, T, 0}},
         {{OTT_E4M3, T, 0}, {OTT_E4M3, T, 0}},
         {{OTT_E5M2, T, 0}, {OTT_E5M2, T, 0}}},
        {"rowwise",
         {{OTT_E4M3, R, 1}, {OTT_E4M3, R, 1}},
         {{OTT_E4M3, R, 1}, {OTT_E4M3, R, 1}},
         {{OTT_E4M3, R, 1}, {OTT_E4M3, R, 1}}},
        {"rowwise_with_gw_hp",
         {{OTT_E4M3, R, 1}, {OTT_BF16, 0, 0}},
         {{OTT_E4M3, R, 1}, {OTT_E4M3, T, 1}},
         {{OTT_E4M3, R, 1}, {OTT_BF16, 0, 0}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const recipe *r = row(rows[i].name);
        const cast_spec *uses[6] = {&r->input.rowwise,       &r->input.columnwise,
                                    &r->weight.rowwise,      &r->weight.columnwise,
                                    &r->grad_output.rowwise, &r->grad_output.columnwise};
        assert_int_equal(r->activation, OTT_BF16);
        for (int s = 0; s < 6; s++) {
            const int *expected = s < 2   ? &rows[i].input[s].format
                                  : s < 4 ? &rows[i].weight[s - 2].format
                                          : &rows[i].grad_output[s - 4].format;
            assert_int_equal(uses[s]->format, expected[0]);
            if (!cast_spec_is_fp8(uses[s])) continue;
            assert_int_equal(uses[s]->grain, expected[1]);
            assert_int_equal(uses[s]->scale.power_of_two, expected[2]);
            assert_int_equal(uses[s]->scale.rule, SCALE_TORCHAO);
            assert_int_equal(uses[s]->mode, CAST_SATURATE);
            assert_int_equal(uses[s]->rounding, ROUND_NEAREST);
            assert_int_equal(uses[s]->policy, AMAX_CURRENT);
        }
        for (int g = 0; g < GEMM_COUNT; g++) {
            assert_int_equal(r->gemm[g].fast_accumulate, g == GEMM_OUTPUT);
            assert_int_equal(r->gemm[g].accumulate, ACCUMULATE_FP32);
            assert_int_equal(r->gemm[g].order, SCALE_PRODUCT);
        }
    }
}

static void which_gemms_are_fp8(void **state) {
    (void)state;
    const char *names[] = {"bf16", "tensorwise", "rowwise", "rowwise_with_gw_hp"};
    const bool expected[][GEMM_COUNT + 1] = {{0, 0, 0, 0}, {1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 0, 1}};
    for (int i = 0; i < 4; i++)
        for (int g = 0; g <= GEMM_COUNT; g++)
            assert_int_equal(recipe_gemm_is_fp8(row(names[i]), (recipe_gemm)g), expected[i][g]);
}

/* ---- specs ---- */

static void specs_are_compared_by_what_they_do(void **state) {
    (void)state;
    quant_spec a = row("tensorwise")->input, b = a;
    assert_true(quant_spec_equal(&a, &b));
    assert_true(quant_spec_equal(&a, &row("tensorwise")->weight));
    assert_false(quant_spec_equal(&a, &row("tensorwise")->grad_output));
    assert_false(quant_spec_equal(&a, &row("rowwise")->input));

    b.columnwise.history = 16; /* this field is ignored, because current scaling has no history */
    assert_true(quant_spec_equal(&a, &b));
    a.columnwise.policy = b.columnwise.policy = AMAX_DELAYED;
    assert_false(quant_spec_equal(&a, &b));

    b = a;
    b.rowwise.scale.epsilon = 1e-4f;
    assert_false(quant_spec_equal(&a, &b));
    b = a;
    b.rowwise.rounding = ROUND_STOCHASTIC;
    assert_false(quant_spec_equal(&a, &b));
    /* if the format is not FP8, all other fields are ignored */
    a.rowwise.format = b.rowwise.format = OTT_BF16;
    assert_true(quant_spec_equal(&a, &b));
}

static void which_specs_share_data(void **state) {
    (void)state;
    assert_true(quant_spec_shares_scales(&row("tensorwise")->input));
    assert_true(quant_spec_shares_scales(&row("tensorwise")->grad_output));
    assert_false(quant_spec_shares_scales(&row("rowwise")->input));
    assert_false(quant_spec_shares_scales(&row("rowwise_with_gw_hp")->weight));
    assert_false(quant_spec_shares_scales(&row("rowwise_with_gw_hp")->input));
    assert_true(quant_spec_shares_scales(&row("bf16")->input));
}

static void a_spec_is_fp8_by_either_use(void **state) {
    (void)state;
    assert_true(quant_spec_is_fp8(&row("rowwise_with_gw_hp")->input));
    assert_true(cast_spec_is_fp8(&row("rowwise_with_gw_hp")->input.rowwise));
    assert_false(cast_spec_is_fp8(&row("rowwise_with_gw_hp")->input.columnwise));
    assert_false(quant_spec_is_fp8(&row("bf16")->input));
}

static void compile_copies_the_row(void **state) {
    (void)state;
    int count;
    const recipe *table = recipe_table(&count);
    for (int i = 0; i < count; i++) {
        linear_spec spec;
        recipe_compile(&table[i], table[i].activation, &spec);
        assert_true(quant_spec_equal(&spec.input, &table[i].input));
        assert_true(quant_spec_equal(&spec.weight, &table[i].weight));
        assert_true(quant_spec_equal(&spec.grad_output, &table[i].grad_output));
        assert_memory_equal(spec.gemm, table[i].gemm, sizeof spec.gemm);
        assert_int_equal(spec.activation, table[i].activation);
        assert_int_equal(spec.fp8, i >= 3);
    }
}

/* ---- recipe_check ---- */

static void expect_refusal(const recipe *r, const char *field) {
    assert_int_equal(recipe_check(r), OTT_ERR_CONFIG);
    if (strstr(status_text(), field) == NULL) fail_msg("\"%s\" does not name %s", status_text(), field);
    if (strstr(status_text(), r->name) == NULL) fail_msg("\"%s\" does not name the recipe", status_text());
}

/* Changes one field of a copy of a recipe. Expects that recipe_check refuses it with a message that contains
   `field`. */
#define REFUSES(name, change, field)                                                                         \
    do {                                                                                                     \
        recipe r = *row(name);                                                                               \
        change;                                                                                              \
        expect_refusal(&r, field);                                                                           \
    } while (0)

static void check_names_a_wrong_format(void **state) {
    (void)state;
    REFUSES("tensorwise", r.activation = OTT_E4M3, "activation");
    REFUSES("tensorwise", r.input.rowwise.format = OTT_I32, "input.rowwise.format");
    REFUSES("rowwise_with_gw_hp", r.input.columnwise.format = OTT_F16, "input.columnwise.format");
    REFUSES("bf16", r.weight.columnwise.format = OTT_F32, "weight.columnwise.format");
    REFUSES("tensorwise", r.weight.columnwise.format = OTT_E5M2, "weight.columnwise.format");
    REFUSES("tensorwise", r.grad_output.rowwise.format = OTT_E4M3, "grad_output.columnwise.format");
}

static void check_names_a_wrong_pair(void **state) {
    (void)state;
    REFUSES("tensorwise", r.input.rowwise.format = OTT_BF16, "input.rowwise");
    REFUSES("tensorwise", r.weight.columnwise.format = OTT_BF16, "weight.columnwise");
    REFUSES("rowwise_with_gw_hp", r.grad_output.columnwise = r.grad_output.rowwise, "grad_output.columnwise");
    REFUSES("tensorwise", r.weight = r.grad_output, "weight.columnwise");
    REFUSES("tensorwise", r.input = r.grad_output; r.grad_output.rowwise.format = OTT_BF16;
            r.weight.columnwise.format = OTT_BF16, "input.columnwise");
}

static void check_names_a_wrong_value(void **state) {
    (void)state;
    REFUSES("rowwise", r.input.columnwise.grain = (granularity)9, "input.columnwise.grain");
    REFUSES("rowwise", r.weight.rowwise.scale.rule = (scale_rule)9, "weight.rowwise.scale.rule");
    REFUSES("rowwise", r.weight.rowwise.mode = (cast_mode)9, "weight.rowwise.mode");
    REFUSES("rowwise", r.weight.rowwise.rounding = (cast_rounding)9, "weight.rowwise.rounding");
    REFUSES("rowwise", r.weight.rowwise.policy = (amax_policy)9, "weight.rowwise.policy");
    REFUSES("rowwise", r.weight.rowwise.algorithm = (amax_algorithm)9, "weight.rowwise.algorithm");
    REFUSES("rowwise", r.gemm[GEMM_GRAD_INPUT].order = (scale_order)9, "gemm[grad_input].order");
    REFUSES("rowwise", r.gemm[GEMM_OUTPUT].accumulate = (accumulate_mode)9, "gemm[output].accumulate");
}

static void check_names_what_does_not_go_together(void **state) {
    (void)state;
    REFUSES("bf16", r.gemm[GEMM_GRAD_WEIGHT].accumulate = ACCUMULATE_HOPPER_FAST,
            "gemm[grad_weight].accumulate");
    REFUSES("rowwise", r.input.rowwise.scale.rule = SCALE_E8M0, "input.rowwise.scale.rule");
    REFUSES("rowwise", r.input.rowwise.grain = GRANULARITY_1X32, "input.rowwise.scale.rule");
    REFUSES("rowwise", r.input.rowwise.grain = GRANULARITY_1X128, "input.rowwise");
    REFUSES("rowwise", r.input.rowwise.grain = r.weight.rowwise.grain = GRANULARITY_128X128, "input.rowwise");
    REFUSES("rowwise", r.input.rowwise.policy = AMAX_DELAYED, "input.rowwise.grain");
    REFUSES("tensorwise", r.weight.rowwise.policy = AMAX_DELAYED, "weight.rowwise.history");
}

static void check_needs_its_texts(void **state) {
    (void)state;
    recipe r = *row("rowwise");
    r.source = NULL;
    assert_int_equal(recipe_check(&r), OTT_ERR_CONFIG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_in_order_and_findable),
        cmocka_unit_test(every_row_is_consistent),
        cmocka_unit_test(high_precision_rows),
        cmocka_unit_test(fp8_rows_equal_torchao),
        cmocka_unit_test(which_gemms_are_fp8),
        cmocka_unit_test(specs_are_compared_by_what_they_do),
        cmocka_unit_test(which_specs_share_data),
        cmocka_unit_test(a_spec_is_fp8_by_either_use),
        cmocka_unit_test(compile_copies_the_row),
        cmocka_unit_test(check_names_a_wrong_format),
        cmocka_unit_test(check_names_a_wrong_pair),
        cmocka_unit_test(check_names_a_wrong_value),
        cmocka_unit_test(check_names_what_does_not_go_together),
        cmocka_unit_test(check_needs_its_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
