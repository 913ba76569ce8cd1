/*
 * Compares Ottava's rules with a Python transcription of TransformerEngine's
 * (tests/golden/te_rules.safetensors). Updates of delayed scaling, scales of current scaling, and block and
 * MX casts must be equal bit for bit. Block-scaled products must be equal up to the rounding of their fp32
 * sums. The test runs the plain definitions in fp8/. tests/backend compares every backend with these.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fp8/history.h"
#include "fp8/reference.h"
#include "nn/golden.h"
#include "nn/layer_harness.h"
#include <float.h>

static const char *const format_words[] = {"e4m3", "e5m2"};
static const ott_dtype formats[] = {OTT_E4M3, OTT_E5M2};

static int setup(void **state) {
    static golden g;
    mem *account;
    HARNESS_OK(mem_open(&account));
    golden_open(&g, account, "te_rules");
    *state = &g;
    return 0;
}

static int teardown(void **state) {
    golden *g = *state;
    mem *account = g->account;
    golden_close(g);
    assert_int_equal(mem_read(account).now, 0);
    mem_close(account);
    return 0;
}

/* ---- scales ---- */

static void check_history(golden *g, int length, amax_algorithm algorithm, int margin, int format) {
    const char *algorithms[] = {[AMAX_MAX] = "max", [AMAX_MOST_RECENT] = "most_recent"};
    cast_spec s = {.format = formats[format],
                   .policy = AMAX_DELAYED,
                   .algorithm = algorithm,
                   .history = length,
                   .scale = {.rule = SCALE_TE, .margin = margin, .infinite = FLT_MAX}};
    char key[64];
    snprintf(key, sizeof key, "history.%d.%s.%d.%s", length, algorithms[algorithm], margin,
             format_words[format]);
    golden_tensor seen = golden_read(g, "%s.seen", key), scales = golden_read(g, "%s.scale", key);
    float amax_history[31] = {0}, scale = 1.0f;
    for (int64_t i = 0; i < seen.count; i++) {
        history_update(&s, seen.values[i], amax_history, &scale);
        if (fmath_bits(scale) != fmath_bits(scales.values[i]))
            fail_msg("%s: after update %d the scale is %a, expected %a", key, (int)i, (double)scale,
                     (double)scales.values[i]);
    }
    golden_free(g, &seen);
    golden_free(g, &scales);
}

static void histories_equal(void **state) {
    const int lengths[] = {1, 2, 4, 31};
    for (int l = 0; l < 4; l++)
        for (int margin = 0; margin <= 2; margin += 2)
            for (int format = 0; format < 2; format++) {
                check_history(*state, lengths[l], AMAX_MAX, margin, format);
                check_history(*state, lengths[l], AMAX_MOST_RECENT, margin, format);
            }
}

static void current_scales_equal(void **state) {
    golden *g = *state;
    for (int format = 0; format < 2; format++)
        for (int eps = 0; eps < 2; eps++)
            for (int pow2 = 0; pow2 < 2; pow2++) {
                scale_options o = {.rule = SCALE_TE,
                                   .power_of_two = pow2,
                                   .epsilon = eps ? 1e-4f : 0.0f,
                                   .infinite = FLT_MAX};
                char key[64];
                snprintf(key, sizeof key, "current.%s.%s.%d", format_words[format], eps ? "0.0001" : "0",
                         pow2);
                golden_tensor amax = golden_read(g, "%s.amax", key), scales = golden_read(g, "%s.scale", key);
                for (int64_t i = 0; i < amax.count; i++) {
                    float scale = scale_from_amax(amax.values[i], formats[format], &o);
                    if (fmath_bits(scale) != fmath_bits(scales.values[i]))
                        fail_msg("%s: of amax %a the scale is %a, expected %a", key, (double)amax.values[i],
                                 (double)scale, (double)scales.values[i]);
                }
                golden_free(g, &amax);
                golden_free(g, &scales);
            }
}

/* ---- casts ---- */

typedef struct cast {
    uint8_t *codes;
    float *amax, *scale, *scale_inv;
    int64_t groups;
} cast;

static cast cast_of(const golden_tensor *x, const cast_spec *s, bool column) {
    int64_t rows = x->t.rows, columns = x->t.columns;
    cast c = {.groups = granularity_groups(s->grain, column ? columns : rows, column ? rows : columns)};
    c.codes = malloc((size_t)(rows * columns));
    c.amax = malloc((size_t)c.groups * 12);
    c.scale = c.amax + c.groups;
    c.scale_inv = c.scale + c.groups;
    reference_quantize(x->values, OTT_F32, rows, columns, columns, s, column, c.amax, c.scale, c.scale_inv,
                       c.codes);
    return c;
}

static void cast_free(cast *c) {
    free(c->codes);
    free(c->amax);
}

static int differences(golden *g, const char *key, const cast *c) {
    golden_tensor codes = golden_read(g, "%s.codes", key), scale_inv = golden_read(g, "%s.inverse", key);
    int count = 0;
    assert_int_equal(scale_inv.count, c->groups);
    for (int64_t i = 0; i < codes.count; i++) count += ((const uint8_t *)codes.t.data)[i] != c->codes[i];
    for (int64_t i = 0; i < scale_inv.count; i++)
        count += fmath_bits(scale_inv.values[i]) != fmath_bits(c->scale_inv[i]);
    golden_free(g, &codes);
    golden_free(g, &scale_inv);
    return count;
}

static void check_cast(golden *g, const golden_tensor *x, const char *name, const cast_spec *s, bool column) {
    char key[64];
    snprintf(key, sizeof key, "%s.%s", name, column ? "column" : "row");
    cast c = cast_of(x, s, column);
    int count = differences(g, key, &c);
    if (count) fail_msg("%s: %d codes or scales differ", key, count);
    cast_free(&c);
}

static void block_and_mx_casts_equal(void **state) {
    golden *g = *state;
    golden_tensor x = golden_read(g, "tensor.x");
    cast_spec row = recipe_find("block")->input.rowwise, block = recipe_find("block")->weight.rowwise,
              mx = recipe_find("mxfp8")->input.rowwise, ocp = mx;
    ocp.scale.rule = SCALE_E8M0_FLOOR;
    for (int column = 0; column < 2; column++) {
        check_cast(g, &x, "block.1x128", &row, column);
        check_cast(g, &x, "block.128x128", &block, column);
        check_cast(g, &x, "mx.roundup", &mx, column);
        check_cast(g, &x, "mx.floor", &ocp, column);
    }
    golden_free(g, &x);
}

static void another_rule_is_found(void **state) {
    golden *g = *state;
    golden_tensor x = golden_read(g, "tensor.x");
    cast_spec s = recipe_find("block")->input.rowwise;
    s.scale.power_of_two = false;
    cast c = cast_of(&x, &s, false);
    assert_true(differences(g, "block.1x128.row", &c) > 0);
    cast_free(&c);
    s = recipe_find("mxfp8")->input.rowwise;
    s.scale.rule = SCALE_E8M0_FLOOR;
    c = cast_of(&x, &s, false);
    assert_true(differences(g, "mx.roundup.row", &c) > 0);
    cast_free(&c);
    golden_free(g, &x);
}

/* ---- products ---- */

static reference_operand operand_from(const cast *c, const cast_spec *s, const golden_tensor *t,
                                      bool column) {
    int64_t mn = column ? t->t.columns : t->t.rows;
    return (reference_operand){.data = c->codes,
                               .format = s->format,
                               .ld = t->t.columns,
                               .transposed = column,
                               .grain = s->grain,
                               .scale_inv = c->scale_inv,
                               .mn_step = 1,
                               .k_step = granularity_mn_groups(s->grain, mn)};
}

/* Compares a product with the golden file, which has every seventh row, and a bound for each element. */
static void compare_product(golden *g, const char *key, const float *ours, int64_t rows, int64_t columns) {
    golden_tensor theirs = golden_read(g, "%s", key), bound = golden_read(g, "%s.bound", key);
    double worst = 0;
    for (int64_t i = 0; i < rows; i += 7)
        for (int64_t j = 0; j < columns; j++) {
            int64_t at = i / 7 * columns + j;
            double error = fabs((double)ours[i * columns + j] - (double)theirs.values[at]);
            double share = error == 0 ? 0 : error / (1e-6 * (double)bound.values[at]);
            if (!(share <= worst)) worst = share;
        }
    print_message("  %-26s %.3f of the bound\n", key, worst);
    assert_true(worst <= 1);
    golden_free(g, &theirs);
    golden_free(g, &bound);
}

/* Checks a GEMM of casts of two tensors. a_column true: a's columnwise copy is multiplied, and the
   contraction is over a's rows. False: a's rowwise copy is multiplied, and the contraction is over a's
   columns. The same for b_column and b. */
static void check_product(golden *g, const recipe *r, recipe_gemm which, const char *word, const char *a_name,
                          const cast_spec *a_use, bool a_column, const char *b_name, const cast_spec *b_use,
                          bool b_column) {
    char key[64];
    snprintf(key, sizeof key, "gemm.%s.%s", r->name, word);
    golden_tensor a = golden_read(g, "tensor.%s", a_name), b = golden_read(g, "tensor.%s", b_name);
    cast left = cast_of(&a, a_use, a_column), right = cast_of(&b, b_use, b_column);
    reference_operand x = operand_from(&left, a_use, &a, a_column),
                      y = operand_from(&right, b_use, &b, b_column);
    int64_t m = a_column ? a.t.columns : a.t.rows, n = b_column ? b.t.columns : b.t.rows;
    int64_t k = a_column ? a.t.rows : a.t.columns;
    float *c = malloc((size_t)(m * n) * sizeof *c);
    reference_gemm(m, n, k, &x, &y, &r->gemm[which], NULL, false, c, OTT_F32, n);
    compare_product(g, key, c, m, n);
    free(c);
    cast_free(&left);
    cast_free(&right);
    golden_free(g, &a);
    golden_free(g, &b);
}

static void products_equal(void **state) {
    golden *g = *state;
    const char *names[] = {"block", "mxfp8"};
    for (int i = 0; i < 2; i++) {
        const recipe *r = recipe_find(names[i]);
        check_product(g, r, GEMM_OUTPUT, "output", "x", &r->input.rowwise, false, "w", &r->weight.rowwise,
                      false);
        check_product(g, r, GEMM_GRAD_INPUT, "grad_input", "g", &r->grad_output.rowwise, false, "w",
                      &r->weight.columnwise, true);
        check_product(g, r, GEMM_GRAD_WEIGHT, "grad_weight", "g", &r->grad_output.columnwise, true, "x",
                      &r->input.columnwise, true);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(histories_equal),          cmocka_unit_test(current_scales_equal),
        cmocka_unit_test(block_and_mx_casts_equal), cmocka_unit_test(another_rule_is_found),
        cmocka_unit_test(products_equal),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
