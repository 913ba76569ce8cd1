/*
 * Autocast regions and delayed scaling of modules: sequences of scales as in TransformerEngine, nested
 * regions, evaluation, when scales are updated, and over which ranks amaxes are reduced.
 */
#include "api/module_case.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 16, DIM = 16 };

static ott_recipe *open_delayed(ott_context *c, const char *length, const char *algorithm,
                                const char *margin) {
    ott_recipe *r = open_recipe(c, "delayed");
    succeed(ott_recipe_set(r, "amax_history_len", length));
    succeed(ott_recipe_set(r, "amax_compute_algo", algorithm));
    succeed(ott_recipe_set(r, "margin", margin));
    return r;
}

static void begin(ott_context *c, ott_recipe *r, int enabled, ott_group *g) {
    ott_autocast_options o;
    ott_autocast_options_init(&o);
    o.enabled = enabled;
    o.recipe = r;
    o.amax_group = g;
    succeed(ott_autocast_begin(c, &o));
}

static void end(ott_context *c) {
    succeed(ott_autocast_end(c));
}

/* ---- traces ---- */

/* Computes scales by TransformerEngine's rule, from the last `length` recorded amaxes (0 is not recorded). */
typedef struct reference {
    float window[8];
    int length, margin;
    bool most_recent;
    float max, scale;
} reference;

static void advance(reference *r, float amax) {
    if (amax == 0) return;
    memmove(r->window, r->window + 1, (size_t)(r->length - 1) * sizeof(float));
    r->window[r->length - 1] = amax;
    float most = amax;
    for (int i = 0; i < r->length && !r->most_recent; i++) most = fmaxf(most, r->window[i]);
    r->scale = ldexpf(r->max, -r->margin) / most;
}

static void assert_scale(ott_module *m, const char *which, const reference *r, int step) {
    float scale = scale_of(m, "", which);
    if (scale != r->scale)
        fail_msg("step %d: scale of %s is %g, not %g", step, which, (double)scale, (double)r->scale);
}

/* Trains a linear layer and compares its delayed scales with TransformerEngine's rule. All elements of x, w
   and dy are a + .25, a + .5 and a + .75, where a rises and then falls. converted: the layer is converted;
   false: it runs in an autocast region. */
static void trace(bool converted, bool most_recent, int margin) {
    char margin_text[8];
    ott_context *c = open_context();
    snprintf(margin_text, sizeof margin_text, "%d", margin);
    ott_recipe *r = open_delayed(c, "3", most_recent ? "most_recent" : "max", margin_text);
    ott_module *m = open_linear(c, DIM, DIM, false, OTT_BF16, 1);
    ott_optimizer *o = NULL;
    flow f = open_flow(c, m, ROWS, 1);
    reference input = {.length = 3, .margin = margin, .most_recent = most_recent, .max = 448, .scale = 1};
    reference weight = input, gradient = input;
    gradient.max = 57344;
    if (converted) {
        ott_convert_options options;
        ott_adamw_options adamw;
        ott_convert_options_init(&options);
        options.recipe = r;
        succeed(ott_convert_to_float8_training(m, &options, NULL));
        ott_adamw_options_init(&adamw);
        adamw.lr = 0; /* the update must not change the weights that the test sets */
        succeed(ott_adamw_open(c, m, &adamw, &o));
    }
    for (int t = 0; t < 12; t++) {
        float at = (float)(t < 5 ? t : 12 - t); /* amaxes rise and fall, so that the history length matters */
        fill(f.x, at + 0.25f);
        fill(value_of(m, "weight"), at + 0.5f);
        fill(f.dy, at + 0.75f);
        if (!converted) begin(c, r, 1, NULL);
        forward(m, &f);
        if (!converted) end(c);
        backward(m, &f);
        if (converted) succeed(ott_optimizer_step(o, NULL));
        advance(&input, at + 0.25f);
        advance(&weight, at + 0.5f);
        advance(&gradient, at + 0.75f);
        assert_scale(m, "input", &input, t);
        assert_scale(m, "weight", &weight, t);
        assert_scale(m, "grad_output", &gradient, t);
    }
    ott_optimizer_close(o);
    close_flow(&f);
    ott_module_close(m);
    ott_recipe_close(r);
    ott_context_close(c);
}

static void test_traces(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) trace(i & 1, i & 2, i & 4 ? 2 : 0);
}

/* Compares with TransformerEngine's scales for 10 amaxes. One amax is infinite, which Ottava ignores. */
static void test_reference_trace(void **state) {
    (void)state;
    static const float amaxes[] = {2, 8, 0, 1, INFINITY, 4, 0.5f, 0.25f, 0.25f, 0.25f};
    static const float expected[2][10] = {{224, 56, 56, 56, 56, 56, 56, 112, 112, 896},
                                          {224, 56, 56, 448, 448, 112, 896, 1792, 1792, 1792}};
    for (int recent = 0; recent < 2; recent++) {
        ott_context *c = open_context();
        ott_recipe *r = open_delayed(c, "4", recent ? "most_recent" : "max", "0");
        ott_module *m = open_linear(c, DIM, DIM, false, OTT_BF16, 1);
        flow f = open_flow(c, m, ROWS, 1);
        for (int t = 0; t < 10; t++) {
            fill(f.x, amaxes[t]);
            begin(c, r, 1, NULL);
            forward(m, &f);
            end(c);
            float scale = scale_of(m, "", "input");
            if (scale != expected[recent][t])
                fail_msg("step %d: scale %g, not %g", t, (double)scale, (double)expected[recent][t]);
        }
        close_flow(&f);
        ott_module_close(m);
        ott_recipe_close(r);
        ott_context_close(c);
    }
}

/* ---- nesting ---- */

enum { NONE = -1 };

static const struct matrix_row {
    const char *name;
    int outer, inner; /* `enabled` of the outer and the inner region; NONE: no region */
    int training;
    int fp8, updated;
} matrix[] = {
    {"no region", NONE, NONE, 1, 0, 0},     {"enabled", 1, NONE, 1, 1, 1},
    {"disabled", 0, NONE, 1, 0, 0},         {"disabled in enabled", 1, 0, 1, 0, 0},
    {"enabled in disabled", 0, 1, 1, 1, 1}, {"enabled in enabled", 1, 1, 1, 1, 1},
    {"evaluation", 1, NONE, 0, 1, 0},       {"evaluation, enabled in disabled", 0, 1, 0, 1, 0},
};

static void check_row(const struct matrix_row *row) {
    ott_context *c = open_context();
    ott_module *m = open_linear(c, DIM, DIM, false, OTT_BF16, 1);
    flow f = open_flow(c, m, ROWS, 1);
    fill(f.x, 2.0f);
    succeed(ott_module_set_training(m, row->training));
    if (row->outer != NONE) begin(c, NULL, row->outer, NULL);
    if (row->inner != NONE) begin(c, NULL, row->inner, NULL);
    forward(m, &f);
    if (ott_module_is_float8(m) != row->fp8) fail_msg("%s: FP8 %d", row->name, ott_module_is_float8(m));
    if (row->inner != NONE) {
        end(c);
        if (row->fp8 && scale_of(m, "", "input") != 1.0f)
            fail_msg("%s: the end of an inner region updates the scale", row->name);
    }
    assert_int_equal(ott_autocast_depth(c), row->outer != NONE);
    if (row->outer != NONE) end(c);
    float wanted = row->updated ? 224.0f : 1.0f;
    if (row->fp8 && scale_of(m, "", "input") != wanted)
        fail_msg("%s: scale %g", row->name, (double)scale_of(m, "", "input"));
    close_flow(&f);
    ott_module_close(m);
    ott_context_close(c);
}

static void test_nesting(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof matrix / sizeof *matrix; i++) check_row(&matrix[i]);
}

/* An evaluation between training steps changes no scale, even if the evaluation's amax is larger. */
static void test_evaluation_records_nothing(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *m = open_linear(c, DIM, DIM, false, OTT_BF16, 1);
    flow f = open_flow(c, m, ROWS, 1);
    begin(c, NULL, 1, NULL);
    fill(f.x, 100.0f);
    succeed(ott_module_set_training(m, 0));
    forward(m, &f);
    succeed(ott_module_set_training(m, 1));
    fill(f.x, 2.0f);
    forward(m, &f);
    end(c);
    assert_true(scale_of(m, "", "input") == 224.0f);
    close_flow(&f);
    ott_module_close(m);
    ott_context_close(c);
}

/* ---- when scales of grad_output are updated ---- */

static void test_backward_of_the_first(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *norm_like = open_linear(c, DIM, DIM, false, OTT_BF16, 1); /* a layer that runs without FP8 */
    ott_module *first = open_linear(c, DIM, DIM, false, OTT_BF16, 2),
               *second = open_linear(c, DIM, DIM, false, OTT_BF16, 3);
    flow f = open_flow(c, first, ROWS, 1), g = open_flow(c, second, ROWS, 2),
         h = open_flow(c, norm_like, ROWS, 3);
    fill(f.dy, 1.0f);
    fill(g.dy, 2.0f);
    begin(c, NULL, 0, NULL);
    forward(norm_like, &h);
    begin(c, NULL, 1, NULL);
    forward(first, &f);
    forward(second, &g);
    end(c);
    end(c);
    backward(second, &g);
    assert_true(scale_of(second, "", "grad_output") == 1.0f);
    backward(norm_like, &h);
    assert_true(scale_of(second, "", "grad_output") == 1.0f);
    /* `first` was the first FP8 module in the region: its backward updates the scales of all layers */
    backward(first, &f);
    assert_true(scale_of(second, "", "grad_output") == 57344.0f / 2);
    assert_true(scale_of(first, "", "grad_output") == 57344.0f);
    ott_module *all[] = {norm_like, first, second};
    for (int i = 0; i < 3; i++) ott_module_close(all[i]);
    close_flow(&f);
    close_flow(&g);
    close_flow(&h);
    ott_context_close(c);
}

/* A module that ran once and does not run now keeps its scale. A closed module leaves the context's list. */
static void test_layers_that_do_not_run(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *a = open_linear(c, DIM, DIM, false, OTT_BF16, 1),
               *b = open_linear(c, DIM, DIM, false, OTT_BF16, 2),
               *d = open_linear(c, DIM, DIM, false, OTT_BF16, 3);
    ott_module *all[] = {a, b, d};
    flow f = open_flow(c, a, ROWS, 1);
    fill(f.x, 2.0f);
    begin(c, NULL, 1, NULL);
    for (int i = 0; i < 3; i++) forward(all[i], &f);
    end(c);
    ott_module_close(b); /* removes b from the middle of the context's list of modules */
    fill(f.x, 4.0f);
    begin(c, NULL, 1, NULL);
    forward(d, &f);
    end(c);
    assert_true(scale_of(a, "", "input") == 224.0f);
    assert_true(scale_of(d, "", "input") == 112.0f);
    ott_module_close(d); /* removes d from the end of the context's list of modules */
    ott_module *e = open_linear(c, DIM, DIM, false, OTT_BF16, 4);
    begin(c, NULL, 1, NULL);
    forward(e, &f);
    end(c);
    assert_true(scale_of(e, "", "input") == 112.0f);
    ott_module_close(a);
    ott_module_close(e);
    close_flow(&f);
    ott_context_close(c);
}

/* ---- groups ---- */

typedef struct ranks {
    int calls;
    int64_t count;
    float least; /* amax that the other rank reports for all tensors */
    bool fail;
} ranks;

static ott_status all_reduce(void *user, float *values, int64_t count, ott_reduce kind) {
    ranks *r = user;
    assert_int_equal(kind, OTT_REDUCE_MAX);
    r->calls++;
    r->count = count;
    if (r->fail) return OTT_ERR_IO;
    for (int64_t i = 0; i < count; i++) values[i] = fmaxf(values[i], r->least);
    return OTT_OK;
}

static ott_group *open_ranks(ott_context *c, ranks *r) {
    ott_group_options o;
    ott_group *g;
    ott_group_options_init(&o);
    o.size = 2;
    o.all_reduce = all_reduce;
    o.user = r;
    succeed(ott_group_open(c, &o, &g));
    return g;
}

static void test_group(void **state) {
    (void)state;
    ranks r = {.least = 4.0f};
    ott_context *c = open_context();
    ott_module *m = open_layer(c, OTT_BF16, 1);
    ott_group *g = open_ranks(c, &r);
    flow f = open_flow(c, m, ROWS, 1);
    begin(c, NULL, 1, g);
    forward(m, &f);
    assert_int_equal(r.calls, 0);
    end(c);
    assert_int_equal(r.calls, 1); /* one reduction for all layers together */
    assert_int_equal(r.count, 14);
    assert_true(scale_of(m, "self_attn.q_proj", "weight") == 112.0f);
    backward(m, &f);
    assert_int_equal(r.calls, 2);
    assert_int_equal(r.count, 7);
    r.fail = true;
    begin(c, NULL, 1, g);
    forward(m, &f);
    assert_int_equal(ott_autocast_end(c), OTT_ERR_IO);
    assert_int_equal(ott_autocast_depth(c), 0);
    ott_group_close(g);
    assert_error(ott_module_backward(m, f.dy, f.dx), OTT_ERR_ARGUMENT,
                 "amax_group is a group that has been closed");
    close_flow(&f);
    ott_module_close(m);
    ott_context_close(c);
}

static void test_group_of_conversion(void **state) {
    (void)state;
    ranks r = {.least = 4.0f};
    ott_context *c = open_context();
    ott_module *m = open_linear(c, DIM, DIM, false, OTT_BF16, 1);
    ott_recipe *recipe = open_recipe(c, "delayed");
    ott_group *g = open_ranks(c, &r);
    ott_convert_options o;
    ott_optimizer *optimizer;
    flow f = open_flow(c, m, ROWS, 1);
    ott_convert_options_init(&o);
    o.recipe = recipe;
    o.amax_group = g;
    succeed(ott_convert_to_float8_training(m, &o, NULL));
    succeed(ott_adamw_open(c, m, NULL, &optimizer));
    fill(f.x, 2.0f);
    forward(m, &f);
    backward(m, &f);
    succeed(ott_optimizer_step(optimizer, NULL));
    assert_int_equal(r.calls, 1);
    assert_int_equal(r.count, 3);
    assert_true(scale_of(m, "", "input") == 112.0f);
    ott_optimizer_close(optimizer);
    close_flow(&f);
    ott_module_close(m);
    ott_group_close(g);
    ott_recipe_close(recipe);
    ott_context_close(c);
}

/* ---- recipes that change ---- */

static void test_recipe_changes(void **state) {
    (void)state;
    captured_log h;
    ott_context *c = open_logging_context(&h);
    ott_module *m = open_layer(c, OTT_BF16, 1);
    ott_recipe *four = open_delayed(c, "4", "max", "0"), *two = open_delayed(c, "2", "max", "0"),
               *tensorwise = open_recipe(c, "tensorwise");
    flow f = open_flow(c, m, ROWS, 1);
    begin(c, four, 1, NULL);
    forward(m, &f);
    end(c);
    backward(m, &f);
    float scale = scale_of(m, "mlp.up_proj", "weight");
    forward(m, &f); /* a pass in bf16 keeps the FP8 state */
    assert_int_equal(ott_module_is_float8(ott_module_child(m, "mlp.up_proj")), 0);
    begin(c, two, 1, NULL);
    forward(m, &f);
    /* the next FP8 pass uses the state, with a shorter history */
    assert_true(scale_of(m, "mlp.up_proj", "weight") == scale);
    end(c);
    assert_int_equal(count_logged(&h, "Recipe type changed from delayed to delayed with other settings"), 1);
    begin(c, tensorwise, 1, NULL);
    forward(m, &f);
    forward(m, &f);
    end(c);
    assert_int_equal(count_logged(&h, "Recipe type changed from delayed to tensorwise. This may affect"), 1);
    assert_string_equal(ott_module_recipe(ott_module_child(m, "mlp.up_proj")), "tensorwise");
    assert_error(ott_module_scale(ott_module_child(m, "mlp.up_proj"), "weight", &scale, NULL),
                 OTT_ERR_NOT_FOUND, "linear \"mlp.up_proj\" has no delayed scaling");
    begin(c, four, 1, NULL);
    forward(m, &f);
    assert_true(scale_of(m, "mlp.up_proj", "weight") == 1.0f);
    end(c);
    assert_int_equal(count_logged(&h, "Recipe type changed"), 3);
    close_flow(&f);
    ott_module_close(m);
    ott_recipe_close(four);
    ott_recipe_close(two);
    ott_recipe_close(tensorwise);
    ott_context_close(c);
}

/* A converted layer uses its own recipe inside of a region with another recipe. */
static void test_converted_in_region(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *parts[] = {open_linear(c, DIM, DIM, false, OTT_BF16, 1),
                           open_linear(c, DIM, DIM, false, OTT_BF16, 2)};
    ott_module *m = open_sequential(c, parts, 2);
    const char *const filter[] = {"1"};
    ott_convert_options o;
    ott_recipe *rowwise = open_recipe(c, "rowwise");
    flow f = open_flow(c, m, ROWS, 1);
    ott_convert_options_init(&o);
    o.filter_fqns = filter;
    o.filter_fqn_count = 1;
    succeed(ott_convert_to_float8_training(m, &o, NULL));
    begin(c, rowwise, 1, NULL);
    forward(m, &f);
    end(c);
    assert_string_equal(ott_module_recipe(ott_module_child(m, "0")), "tensorwise");
    assert_string_equal(ott_module_recipe(ott_module_child(m, "1")), "rowwise");
    begin(c, rowwise, 0, NULL);
    forward(m, &f);
    end(c);
    assert_string_equal(ott_module_recipe(ott_module_child(m, "0")), "tensorwise");
    assert_null(ott_module_recipe(ott_module_child(m, "1")));
    close_flow(&f);
    ott_recipe_close(rowwise);
    ott_module_close(m);
    ott_context_close(c);
}

/* ---- micro-batches ---- */

static void test_micro_batches(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *m = open_linear(c, DIM, DIM, false, OTT_BF16, 1);
    flow f = open_flow(c, m, ROWS, 1);
    ott_optimizer *o;
    ott_adamw_options adamw;
    ott_adamw_options_init(&adamw);
    adamw.lr = 0;
    succeed(ott_adamw_open(c, m, &adamw, &o));
    float expected[] = {1.0f, 448.0f, 448.0f, 112.0f, 112.0f};
    float first = 0;
    /* The micro-batch index in each step: 0 is the first micro-batch, -1 means that no index is set. */
    const int index[] = {0, 1, -1, 0};
    for (int t = 0; t < 4; t++) {
        fill(value_of(m, "weight"), t == 0 ? 1.0f : 4.0f);
        fill(f.x, 1.0f);
        succeed(ott_module_set_micro_batch(m, index[t]));
        begin(c, NULL, 1, NULL);
        forward(m, &f);
        end(c);
        backward(m, &f);
        float scale = scale_of(m, "", "weight"), *y = values_of(f.y);
        if (scale != expected[t + 1]) fail_msg("step %d: scale of weight %g", t, (double)scale);
        if (t == 0) first = y[0];
        if (t == 1) assert_true(y[0] == first); /* this step uses the weight's codes of micro-batch 0 */
        if (t == 2) assert_true(y[0] == first); /* with the old scale, the weight 4 saturates to 1 */
        if (t == 3) assert_true(y[0] == 4 * first);
        free(y);
    }
    /* The weight's codes are kept only until the next optimizer step. */
    fill(value_of(m, "weight"), 2.0f);
    succeed(ott_optimizer_step(o, NULL));
    succeed(ott_module_set_micro_batch(m, 1));
    begin(c, NULL, 1, NULL);
    forward(m, &f);
    end(c);
    float *y = values_of(f.y);
    assert_true(y[0] == 2 * first);
    /* the scale did not change, because no amax was recorded */
    assert_true(scale_of(m, "", "weight") == 112.0f);
    free(y);
    ott_optimizer_close(o);
    close_flow(&f);
    ott_module_close(m);
    ott_context_close(c);
}

/* ---- a user's own rules ---- */

static float half(void *user, float amax, float old_scale, float max, int margin) {
    (void)old_scale;
    (void)margin;
    ++*(int *)user;
    return max / amax / 2;
}

static void test_callbacks(void **state) {
    (void)state;
    int calls = 0;
    ott_delayed_callbacks callbacks;
    ott_context *c = open_context();
    ott_module *m = open_linear(c, DIM, DIM, false, OTT_BF16, 1);
    ott_recipe *r = open_recipe(c, "delayed");
    flow f = open_flow(c, m, ROWS, 1);
    ott_delayed_callbacks_init(&callbacks);
    callbacks.scale = half;
    callbacks.user = &calls;
    succeed(ott_recipe_set_callbacks(r, &callbacks));
    fill(f.x, 2.0f);
    begin(c, r, 1, NULL);
    ott_recipe_close(r); /* the region has its own copy of the recipe */
    forward(m, &f);
    end(c);
    assert_int_equal(calls, 2);
    assert_true(scale_of(m, "", "input") == 112.0f);
    close_flow(&f);
    ott_module_close(m);
    ott_context_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traces),
        cmocka_unit_test(test_reference_trace),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_evaluation_records_nothing),
        cmocka_unit_test(test_backward_of_the_first),
        cmocka_unit_test(test_layers_that_do_not_run),
        cmocka_unit_test(test_group),
        cmocka_unit_test(test_group_of_conversion),
        cmocka_unit_test(test_recipe_changes),
        cmocka_unit_test(test_converted_in_region),
        cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_callbacks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
