/* Quantized tensors of the public API: codes and scales of every recipe compared with the scalar reference,
   delayed scaling step by step, statistics, and wrong calls. */
#include "api/api_case.h"
#include "fp8/reference.h"
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 160, COLUMNS = 96, COUNT = ROWS * COLUMNS };

static const char *const recipes[] = {
    "tensorwise", "rowwise", "rowwise_with_gw_hp", "delayed", "current", "block", "mxfp8", "bf16"};
enum { RECIPES = sizeof recipes / sizeof *recipes };

static const quant_spec *spec_of(const recipe *row, ott_role role) {
    const quant_spec *specs[] = {&row->input, &row->weight, &row->grad_output};
    return specs[role];
}

/* The codes and scales of one copy (rowwise or columnwise), computed by the scalar reference. */
typedef struct expected {
    uint8_t codes[COUNT];
    float amax[COUNT], scale[COUNT], scale_inv[COUNT];
} expected;

/* Reads scale_inv as the comment of ott_qdata says. */
static float scale_inv_of(const ott_qdata *v, int64_t line, int64_t k) {
    int64_t a = line / v->block_mn, c = k / v->block_depth;
    if (v->scale_inv_format == OTT_F32) return ((const float *)v->scale_inv)[a * v->mn_step + c * v->k_step];
    assert_int_equal(v->scale_inv_format, OTT_E8M0);
    int64_t at = (a / 128 * v->tiles_along_k + c / 4) * 512 + a % 32 * 16 + a % 128 / 32 * 4 + c % 4;
    return ldexpf(1, ((const uint8_t *)v->scale_inv)[at] - 127);
}

static void check_use(ott_qtensor *q, ott_usage use, const cast_spec *spec, const void *x, ott_dtype dtype) {
    static expected e;
    ott_qdata view = use_on_host(q, use);
    bool column = use == OTT_COLUMNWISE;
    int64_t mn_size = column ? COLUMNS : ROWS, depth = column ? ROWS : COLUMNS;
    assert_int_equal(view.struct_size, sizeof view);
    assert_int_equal(view.format, spec->format);
    if (!cast_spec_is_fp8(spec)) {
        assert_null(view.codes);
        assert_int_equal(view.count, 0);
        return;
    }
    assert_int_equal(view.count, granularity_groups(spec->grain, mn_size, depth));
    memset(&e, 0, sizeof e);
    e.scale[0] = 1.0f; /* with delayed scaling, the scale is 1 before its first update */
    reference_quantize(x, dtype, ROWS, COLUMNS, COLUMNS, spec, column, e.amax, e.scale, e.scale_inv, e.codes);
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < COLUMNS; j++)
            assert_int_equal(view.codes[i * view.row_step + j * view.column_step], e.codes[i * COLUMNS + j]);
    for (int64_t mn_index = 0; mn_index < mn_size; mn_index++)
        for (int64_t k = 0; k < depth; k++) {
            int64_t theirs =
                mn_index / granularity_block(spec->grain).mn +
                k / granularity_block(spec->grain).k * granularity_mn_groups(spec->grain, mn_size);
            int64_t at = mn_index / view.block_mn * view.mn_step + k / view.block_depth * view.k_step;
            assert_true(at >= 0 && at < view.count);
            assert_true(view.scale[at] == e.scale[theirs]);
            assert_true(scale_inv_of(&view, mn_index, k) == e.scale_inv[theirs]);
            assert_true(view.amax[at] == e.amax[theirs]);
        }
}

static void check_dequantized(ott_context *context, ott_qtensor *q, ott_usage use) {
    static float values[COUNT];
    ott_qdata view = use_on_host(q, use);
    ott_tensor *out = open_tensor(context, OTT_F32, ROWS, COLUMNS);
    if (!view.codes) {
        assert_error(ott_dequantize(q, use, out), OTT_ERR_ARGUMENT, "FP8 codes: its recipe");
        return;
    }
    succeed(ott_dequantize(q, use, out));
    succeed(ott_tensor_read(out, values, COUNT));
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < COLUMNS; j++) {
            int64_t mn_index = use == OTT_ROWWISE ? i : j, k = use == OTT_ROWWISE ? j : i;
            assert_true(values[i * COLUMNS + j] ==
                        cast_from_fp8(view.codes[i * view.row_step + j * view.column_step], view.format) *
                            scale_inv_of(&view, mn_index, k));
        }
    ott_tensor_close(out);
}

/* In the rowwise copy, elements along the contraction are contiguous. In the columnwise copy they are
   contiguous only if the device requires this. */
static void check_contiguous(ott_qtensor *q, bool contiguous) {
    ott_qdata view;
    ott_qdata_init(&view);
    succeed(ott_qtensor_data(q, OTT_ROWWISE, &view));
    if (view.codes) assert_true(view.column_step == 1 && view.row_step == COLUMNS);
    succeed(ott_qtensor_data(q, OTT_COLUMNWISE, &view));
    if (view.codes) assert_int_equal(view.row_step, contiguous ? 1 : COLUMNS);
    if (view.codes) assert_int_equal(view.column_step, contiguous ? ROWS : 1);
}

/* Checks every recipe. contiguous: the device requires a contiguous contraction. */
static void check_every_recipe(bool contiguous) {
    const ott_dtype dtypes[] = {OTT_BF16, OTT_F32, OTT_F16};
    ott_context *context = open_context();
    if (contiguous) set_contiguous_contraction(context);
    contiguous = needs_contiguous_contraction(context);
    for (int i = 0; i < RECIPES; i++)
        for (int role = 0; role < 3; role++) {
            ott_dtype dtype = dtypes[(i + role) % 3];
            ott_recipe *r = open_recipe(context, recipes[i]);
            ott_tensor *x = open_normal(context, dtype, ROWS, COLUMNS, (uint64_t)(10 * i + role));
            ott_qtensor *q = open_qtensor(context, ROWS, COLUMNS, r, (ott_role)role);
            const quant_spec *spec = spec_of(recipe_find(recipes[i]), (ott_role)role);
            ott_recipe_close(r); /* q has a copy of the recipe's settings */
            succeed(ott_quantize(q, x));
            check_use(q, OTT_ROWWISE, &spec->rowwise, tensor_on_host(x), dtype);
            check_use(q, OTT_COLUMNWISE, &spec->columnwise, tensor_on_host(x), dtype);
            check_contiguous(q, contiguous);
            check_dequantized(context, q, OTT_ROWWISE);
            check_dequantized(context, q, OTT_COLUMNWISE);
            /* with delayed scaling this is the first update; other recipes ignore the call */
            succeed(ott_qtensor_update_scale(q, NULL));
            ott_qtensor_close(q);
            ott_tensor_close(x);
        }
    ott_context_close(context);
}

static void test_every_recipe_by_the_definition(void **state) {
    (void)state;
    check_every_recipe(false);
    check_every_recipe(true);
}

/* ---- delayed scaling ---- */

static float scale_of(ott_qtensor *q) {
    return use_on_host(q, OTT_ROWWISE).scale[0];
}

static void quantize_amax(ott_qtensor *q, ott_tensor *x, float amax) {
    const float values[4] = {amax, -amax / 2, 0, amax / 4};
    succeed(ott_tensor_write(x, values, 4));
    succeed(ott_quantize(q, x));
}

static void test_delayed_scale_from_history(void **state) {
    (void)state;
    ott_context *context = open_context();
    ott_recipe *r = open_recipe(context, "delayed");
    succeed(ott_recipe_set(r, "amax_history_len", "2"));
    ott_qtensor *q = open_qtensor(context, 2, 2, r, OTT_INPUT);
    ott_tensor *x = open_tensor(context, OTT_F32, 2, 2);
    quantize_amax(q, x, 7.0f);
    assert_true(scale_of(q) == 1.0f); /* this step's amax only affects the next scale */
    /* a second micro-batch of the step: its amax is smaller, so the step's amax stays 7 */
    quantize_amax(q, x, 3.5f);
    succeed(ott_qtensor_update_scale(q, NULL));
    quantize_amax(q, x, 1.75f);
    assert_true(scale_of(q) == 448.0f / 7.0f);
    succeed(ott_qtensor_update_scale(q, NULL));
    quantize_amax(q, x, 1.75f);
    assert_true(scale_of(q) == 448.0f / 7.0f); /* the history has 2 entries; amax 7 is the older one */
    succeed(ott_qtensor_update_scale(q, NULL));
    quantize_amax(q, x, 1.0f);
    assert_true(scale_of(q) == 448.0f / 1.75f);
    succeed(ott_qtensor_update_scale(q, NULL));
    succeed(ott_qtensor_update_scale(q, NULL)); /* no amax was recorded, so nothing changes */
    quantize_amax(q, x, 1.0f);
    assert_true(scale_of(q) == 448.0f / 1.75f);
    ott_context_close(context);
}

typedef struct rule {
    int64_t length;
    int amax_calls, scale_calls;
} rule;

static float own_amax(void *user, const float *window, int64_t length) {
    rule *own = user;
    own->amax_calls++;
    own->length = length;
    return 2 * window[length - 1];
}

static float own_scale(void *user, float amax, float old_scale, float max, int margin) {
    rule *own = user;
    own->scale_calls++;
    assert_true(old_scale == 1.0f && max == 448.0f && margin == 3);
    return max / amax / 4;
}

static void test_callbacks(void **state) {
    (void)state;
    rule own = {0};
    ott_delayed_callbacks callbacks;
    ott_context *context = open_context();
    ott_recipe *r = open_recipe(context, "delayed"), *current = open_recipe(context, "current");
    ott_delayed_callbacks_init(&callbacks);
    callbacks.amax = own_amax;
    callbacks.scale = own_scale;
    callbacks.user = &own;
    succeed(ott_recipe_set_callbacks(r, &callbacks));
    succeed(ott_recipe_set(r, "amax_history_len", "5"));
    succeed(ott_recipe_set(r, "margin", "3"));
    ott_qtensor *q = open_qtensor(context, 2, 2, r, OTT_WEIGHT);
    ott_recipe_close(r); /* objects made with the recipe still work */
    ott_tensor *x = open_tensor(context, OTT_F32, 2, 2);
    quantize_amax(q, x, 7.0f);
    succeed(ott_qtensor_update_scale(q, NULL));
    quantize_amax(q, x, 7.0f);
    assert_true(scale_of(q) == 448.0f / 14 / 4);
    assert_int_equal(own.amax_calls, 1);
    assert_int_equal(own.scale_calls, 1);
    assert_int_equal(own.length, 5);
    assert_error(ott_recipe_set_callbacks(current, &callbacks), OTT_ERR_ARGUMENT,
                 "ott_recipe_set_callbacks: recipe current has no delayed scaling");
    callbacks.struct_size = 1;
    assert_error(ott_recipe_set_callbacks(current, &callbacks), OTT_ERR_ARGUMENT,
                 "ott_delayed_callbacks_init");
    ott_context_close(context);
}

static float wrong_scale(void *user, float amax, float old_scale, float max, int margin) {
    (void)amax, (void)old_scale, (void)max, (void)margin;
    return *(const float *)user;
}

/* If a callback returns an invalid scale, this is an error, and the old scale stays. */
static void test_wrong_scales_of_callbacks(void **state) {
    (void)state;
    float wrong[] = {NAN, 0.0f, -2.0f, INFINITY};
    for (int i = 0; i < 4; i++) {
        ott_delayed_callbacks callbacks;
        ott_context *context = open_context();
        ott_recipe *r = open_recipe(context, "delayed");
        ott_delayed_callbacks_init(&callbacks);
        callbacks.scale = wrong_scale;
        callbacks.user = &wrong[i];
        succeed(ott_recipe_set_callbacks(r, &callbacks));
        ott_qtensor *q = open_qtensor(context, 2, 2, r, OTT_WEIGHT);
        ott_tensor *x = open_tensor(context, OTT_F32, 2, 2);
        quantize_amax(q, x, 7.0f);
        assert_error(ott_qtensor_update_scale(q, NULL), OTT_ERR_ARGUMENT, "the scale callback returned");
        quantize_amax(q, x, 7.0f);
        assert_true(scale_of(q) == 1.0f);
        ott_context_close(context);
    }
}

/* ---- groups ---- */

/* A reduction callback that acts as if a second rank had an amax of 28. */
static ott_status pretend(void *user, float *values, int64_t count, ott_reduce kind) {
    int *calls = user;
    if (++*calls > 1) return OTT_ERR_IO;
    assert_int_equal(kind, OTT_REDUCE_MAX);
    assert_int_equal(count, 1);
    values[0] = fmaxf(values[0], 28.0f);
    return OTT_OK;
}

static float first_scale(ott_context *context, ott_recipe *r, ott_dtype dtype) {
    ott_tensor *x = open_tensor(context, dtype, 2, 256);
    ott_qtensor *q = open_qtensor(context, 2, 256, r, OTT_INPUT);
    succeed(ott_tensor_fill(x, dtype == OTT_F16 ? 0x1p-24 : 1e-39));
    succeed(ott_quantize(q, x));
    return use_on_host(q, OTT_ROWWISE).scale[0];
}

/* TransformerEngine's block scaling replaces an infinite scale by the largest number of the source format. */
static void test_infinite_block_scales(void **state) {
    (void)state;
    ott_context *context = open_context();
    ott_recipe *r = open_recipe(context, "block");
    assert_true(first_scale(context, r, OTT_F32) == 0x1p127f);
    succeed(ott_recipe_set(r, "use_f32_scales", "true"));
    assert_true(first_scale(context, r, OTT_F32) == FLT_MAX);
    assert_true(first_scale(context, r, OTT_BF16) == 0x1.fep127f);
    assert_true(first_scale(context, r, OTT_F16) == 448.0f * 0x1p24f);
    ott_context_close(context);
}

static void test_group_shares_the_amax(void **state) {
    (void)state;
    int calls = 0;
    ott_group *g, *single;
    ott_group_options options;
    ott_context *context = open_context();
    ott_qtensor *q = open_qtensor(context, 2, 2, open_recipe(context, "delayed"), OTT_INPUT);
    ott_tensor *x = open_tensor(context, OTT_F32, 2, 2);
    ott_group_options_init(&options);
    succeed(ott_group_open(context, &options, &single));
    options = (ott_group_options){sizeof options, 1, 2, pretend, &calls};
    succeed(ott_group_open(context, &options, &g));
    quantize_amax(q, x, 7.0f);
    succeed(ott_qtensor_update_scale(q, g));
    quantize_amax(q, x, 7.0f);
    assert_true(scale_of(q) == 448.0f / 28.0f);
    assert_error(ott_qtensor_update_scale(q, g), OTT_ERR_IO,
                 "the all_reduce callback failed for 1 values on rank 1 of 2: input or output failed");
    succeed(ott_qtensor_update_scale(q, single));
    ott_group_close(g);
    assert_error(ott_qtensor_update_scale(q, g), OTT_ERR_ARGUMENT, "g is a group that has been closed");
    options.all_reduce = NULL;
    assert_error(ott_group_open(context, &options, &g), OTT_ERR_ARGUMENT, "all_reduce is NULL, but 2 ranks");
    options.rank = 2;
    assert_error(ott_group_open(context, &options, &g), OTT_ERR_ARGUMENT, "ott_group_open: rank 2 of 2");
    options.struct_size = 0;
    assert_error(ott_group_open(context, &options, &g), OTT_ERR_ARGUMENT, "ott_group_options_init");
    assert_error(ott_group_open(context, NULL, &g), OTT_ERR_ARGUMENT, "ott_group_open: options is NULL");
    assert_null(g);
    ott_context_close(context);
}

/* ---- statistics ---- */

static void test_statistics(void **state) {
    (void)state;
    ott_statistics s;
    ott_context *context = open_context();
    ott_tensor *x = open_tensor(context, OTT_F32, 2, 4);
    ott_qtensor *q = open_qtensor(context, 2, 4, open_recipe(context, "delayed"), OTT_INPUT);
    const float exact[8] = {1, 2, 3, 4, -1, -2, -3, -4}, rough[8] = {1000, 1e-9f, 0, 3, 4, 5, 6, 7};
    ott_statistics_init(&s);
    succeed(ott_tensor_write(x, exact, 8));
    succeed(ott_quantize(q, x)); /* the scale is 1, and E4M3 represents small integers exactly */
    succeed(ott_quantize_statistics(q, x, OTT_COLUMNWISE, &s));
    assert_true(s.saturated == 0 && s.underflowed == 0 && isinf(s.sqnr_db) && s.amax == 4);
    assert_true(s.scale_min == 1 && s.scale_max == 1);
    succeed(ott_tensor_write(x, rough, 8));
    succeed(ott_quantize(q, x));
    succeed(ott_quantize_statistics(q, x, OTT_ROWWISE, &s));
    assert_true(s.saturated == 0.125 && s.underflowed == 0.125 && s.amax == 1000);
    double noise = 552.0 * 552.0, signal = 1e6 + 9 + 16 + 25 + 36 + 49;
    assert_true(fabs(s.sqnr_db - 10 * log10(signal / noise)) < 1e-4);
    s.struct_size = offsetof(ott_statistics, sqnr_db); /* an older header has a shorter struct */
    s.sqnr_db = -5;
    succeed(ott_quantize_statistics(q, x, OTT_ROWWISE, &s));
    assert_true(s.sqnr_db == -5);
    s.struct_size = 0;
    assert_error(ott_quantize_statistics(q, x, OTT_ROWWISE, &s), OTT_ERR_ARGUMENT, "ott_statistics_init");
    ott_context_close(context);
}

/* ---- misuse ---- */

static void test_wrong_arguments(void **state) {
    (void)state;
    ott_qtensor *q = NULL;
    ott_qdata view;
    ott_statistics s;
    ott_context *context = open_context(), *other = open_context();
    ott_recipe *r = open_recipe(context, "rowwise_with_gw_hp"), *strange = open_recipe(other, "rowwise");
    ott_tensor *x = open_normal(context, OTT_BF16, 4, 8, 1), *wide = open_normal(context, OTT_BF16, 8, 4, 1),
               *tokens = open_tensor(context, OTT_I32, 4, 8),
               *foreign = open_normal(other, OTT_BF16, 4, 8, 1);
    assert_error(ott_qtensor_open(NULL, 4, 8, r, OTT_INPUT, &q), OTT_ERR_ARGUMENT, "context is NULL");
    assert_error(ott_qtensor_open(context, 4, 8, NULL, OTT_INPUT, &q), OTT_ERR_ARGUMENT,
                 "ott_qtensor_open: r is NULL");
    assert_error(ott_qtensor_open(context, 4, 8, strange, OTT_INPUT, &q), OTT_ERR_ARGUMENT,
                 "ott_qtensor_open: r belongs to another context");
    assert_error(ott_qtensor_open(context, 4, 8, (ott_recipe *)x, OTT_INPUT, &q), OTT_ERR_ARGUMENT,
                 "r is a tensor; give a recipe");
    assert_error(ott_qtensor_open(context, 0, 8, r, OTT_INPUT, &q), OTT_ERR_SHAPE, "[0, 8] is not a shape");
    assert_error(ott_qtensor_open(context, INT64_MAX, 8, r, OTT_INPUT, &q), OTT_ERR_SHAPE, "is not a shape");
    assert_error(ott_qtensor_open(context, 4, 8, r, (ott_role)3, &q), OTT_ERR_ARGUMENT, "role = 3");
    assert_null(q);
    q = open_qtensor(context, 4, 8, r, OTT_INPUT);
    ott_qdata_init(&view);
    ott_statistics_init(&s);
    assert_error(ott_dequantize(q, OTT_ROWWISE, x), OTT_ERR_ARGUMENT, "ott_dequantize: q is empty");
    assert_error(ott_quantize_statistics(q, x, OTT_ROWWISE, &s), OTT_ERR_ARGUMENT, "q is empty");
    assert_error(ott_quantize(NULL, x), OTT_ERR_ARGUMENT, "ott_quantize: q is NULL");
    assert_error(ott_quantize(q, NULL), OTT_ERR_ARGUMENT, "ott_quantize: x is NULL");
    assert_error(ott_quantize(q, tokens), OTT_ERR_DTYPE, "ott_quantize: x is i32; give fp32, bf16 or fp16");
    assert_error(ott_quantize(q, wide), OTT_ERR_SHAPE, "ott_quantize: x is [8, 4], but q is [4, 8]");
    assert_error(ott_quantize(q, foreign), OTT_ERR_ARGUMENT, "ott_quantize: x belongs to another context");
    succeed(ott_quantize(q, x));
    assert_error(ott_qtensor_data(q, (ott_usage)2, &view), OTT_ERR_ARGUMENT, "ott_qtensor_data: use = 2");
    assert_error(ott_qtensor_data(q, OTT_ROWWISE, NULL), OTT_ERR_ARGUMENT, "out is NULL");
    view.struct_size = 0;
    assert_error(ott_qtensor_data(q, OTT_ROWWISE, &view), OTT_ERR_ARGUMENT, "ott_qdata_init");
    assert_error(ott_dequantize(q, OTT_COLUMNWISE, x), OTT_ERR_ARGUMENT,
                 "q has no columnwise FP8 codes: its recipe keeps that use in bf16");
    assert_error(ott_dequantize(q, OTT_ROWWISE, wide), OTT_ERR_SHAPE, "out is [8, 4], but q is [4, 8]");
    assert_error(ott_dequantize(q, OTT_ROWWISE, tokens), OTT_ERR_DTYPE, "out is i32");
    ott_qtensor_close(q);
    assert_error(ott_quantize(q, x), OTT_ERR_ARGUMENT, "q is a quantized tensor that has been closed");
    assert_error(ott_qtensor_update_scale(q, NULL), OTT_ERR_ARGUMENT, "has been closed");
    assert_error(ott_qtensor_data(q, OTT_ROWWISE, &view), OTT_ERR_ARGUMENT, "has been closed");
    ott_qtensor_close(q);
    ott_qtensor_close(NULL);
    ott_context_close(context);
    ott_context_close(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_recipe_by_the_definition),
        cmocka_unit_test(test_delayed_scale_from_history),
        cmocka_unit_test(test_callbacks),
        cmocka_unit_test(test_wrong_scales_of_callbacks),
        cmocka_unit_test(test_infinite_block_scales),
        cmocka_unit_test(test_group_shares_the_amax),
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
