/*
 * Signal to quantization noise ratio (SQNR) of each recipe on Gaussian data, for every cast and the three
 * GEMMs of a linear layer. The SQNR is within 0.3 dB of published values: casts 31.5 dB (E4M3) and 25.6 dB
 * (E5M2), products 28.5 dB (E4M3 x E4M3) and 24.6 dB (E5M2 x E4M3), for every scaling. A row of outliers
 * shows how much each kind of scaling loses. Grouped GEMMs have the same SQNR as GEMMs of the single
 * matrices.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "nn/layer_harness.h"
#include "nn/linear/linear.h"

enum { M = 256, KK = 512, N = 256 };
#define TOLERANCE 0.3

/* A linear layer, its operands, and the statistics of the casts of one pass. */
typedef struct bench {
    harness h;
    linear l;
    parameter weight;
    delayed_store store;
    activation_specs input_specs, grad_specs;
    bool smooths; /* the input's channels are smoothed (SmoothQuant) */
    tensor input, grad_output, y, dx, statistics;
    hook hook;
    float cast[TENSOR_COUNT][2][STATISTICS_COUNT];
    quant_spec spec[TENSOR_COUNT];
} bench;

static ott_status see(void *user, exec *cx, const char *module, recipe_tensor which, const tensor *t,
                      const qtensor *q) {
    bench *b = user;
    (void)module;
    b->spec[which] = q->spec;
    TRY(op_quantize_statistics(cx,
                               &(quantize_statistics_args){.x = t, .q = q, .statistics = &b->statistics}));
    return device_copy_out(cx->device, b->cast[which], b->statistics.data, sizeof b->cast[which]);
}

static ott_status step(exec *cx, void *user) {
    bench *b = user;
    activation x, g;
    TRY(activation_open(cx, "x", OTT_BF16, M, KK, &b->input_specs, &x));
    TRY(activation_open(cx, "g", OTT_BF16, M, N, &b->grad_specs, &g));
    TRY(op_convert(cx, &(convert_args){.x = &b->input, .y = &x.t}));
    TRY(op_convert(cx, &(convert_args){.x = &b->grad_output, .y = &g.t}));
    if (b->smooths) TRY(activation_smooth(cx, &x));
    TRY(activation_quantize(cx, &x));
    TRY(activation_quantize(cx, &g));
    TRY(linear_forward(cx, &b->l, &x, &b->y));
    TRY(linear_grad_input(cx, &b->l, &g, &b->dx, false));
    TRY(linear_grad_weight(cx, &b->l, &x, &g));
    TRY(activation_close(cx, &x));
    return activation_close(cx, &g);
}

static void open_bench(bench *b, float outlier) {
    *b = (bench){0};
    harness_open(&b->h, 2, NULL);
    b->input = harness_tensor_normal(&b->h, OTT_BF16, M, KK, 1.0, 11);
    b->grad_output = harness_tensor_normal(&b->h, OTT_BF16, M, N, 1.0, 12);
    b->y = harness_tensor(&b->h, OTT_F32, M, N);
    b->dx = harness_tensor(&b->h, OTT_F32, M, KK);
    b->statistics = harness_tensor(&b->h, OTT_F32, 2, STATISTICS_COUNT);
    b->weight = harness_parameter(&b->h, "weight", N, KK, 1.0, 13);
    b->l = (linear){.name = "linear", .in = KK, .out = N, .weight = &b->weight};
    b->hook = (hook){.quantized = see, .user = b};
    b->h.cx.phase = PHASE_TRAIN;
    tensor row = tensor_rows(b->input, 0, 1);
    float values[KK];
    harness_get(&b->h, &row, values);
    for (int i = 0; i < KK; i++) values[i] *= outlier;
    harness_put(&b->h, &row, values);
}

static void run(bench *b, const recipe *r) {
    linear_spec spec;
    delayed_request wanted[TENSOR_COUNT];
    recipe_compile(r, OTT_BF16, &spec);
    HARNESS_OK(linear_set_spec(&b->l, b->h.device, &spec));
    linear_delayed_requests(&b->l, wanted);
    HARNESS_OK(delayed_store_set(&b->store, b->h.device, wanted, TENSOR_COUNT));
    b->input_specs = b->grad_specs = (activation_specs){0};
    HARNESS_OK(linear_connect(&b->l, &b->input_specs, &b->grad_specs));
    harness_record(&b->h, step, b);
    for (int pass = 0; pass < 2; pass++) { /* delayed scaling has a useful scale in the second pass */
        b->h.cx.hook = pass ? &b->hook : NULL;
        harness_zero(&b->h, &b->weight.grad);
        harness_replay(&b->h, step, b);
        for (int t = 0; t < TENSOR_COUNT; t++) HARNESS_OK(delayed_update(&b->h.cx, &b->l.delayed[t]));
    }
}

static void close_bench(bench *b) {
    delayed_store_release(&b->store, b->h.device);
    weight_release(&b->l.source, b->h.device);
    harness_close(&b->h);
}

static double decibel(double signal, double noise) {
    return 10 * log10(signal / noise);
}

/* Copies the rows from row `first` on to the host. The caller frees the result. */
static float *fetch(bench *b, const tensor *t, int64_t first) {
    tensor rows = tensor_rows(*t, first, t->rows - first);
    float *values = malloc((size_t)tensor_count(rows) * sizeof *values);
    harness_get(&b->h, &rows, values);
    return values;
}

/* Returns the SQNR of a result's rows from row `first` on. one_less: leaves out the first column. */
static double sqnr_of(bench *b, const tensor *found, bench *exactly, const tensor *exact, int64_t first,
                      bool one_less) {
    float *f = fetch(b, found, first), *e = fetch(exactly, exact, first);
    double signal = 0, noise = 0;
    for (int64_t i = 0; i < (exact->rows - first) * exact->columns; i++) {
        if (one_less && i % exact->columns == 0) continue;
        double d = (double)f[i] - (double)e[i];
        signal += (double)e[i] * (double)e[i];
        noise += d * d;
    }
    free(f);
    free(e);
    return decibel(signal, noise);
}

static double sqnr(bench *b, const tensor *found, bench *exactly, const tensor *exact, int64_t first) {
    return sqnr_of(b, found, exactly, exact, first, false);
}

/* ---- Gaussian data ---- */

/* Returns the expected SQNR of a product of operands in these formats. */
static double expected_product(ott_dtype a, ott_dtype b) {
    if (!dtype_is_fp8(a)) return INFINITY;
    return a == OTT_E5M2 || b == OTT_E5M2 ? 24.6 : 28.5;
}

static void expect(const char *recipe_name, const char *what, double found, double wanted) {
    print_message("  %-20s %-12s %.2f dB\n", recipe_name, what, found);
    if (isinf(wanted))
        assert_true(found > 45); /* the only noise is rounding to bf16 */
    else
        assert_true(fabs(found - wanted) <= TOLERANCE);
}

static void check_casts(const bench *b, const recipe *r) {
    static const char *const words[TENSOR_COUNT] = {"input", "weight", "grad_output"};
    for (int t = 0; t < TENSOR_COUNT; t++)
        for (int use = 0; use < 2; use++) {
            const cast_spec *s = use ? &b->spec[t].columnwise : &b->spec[t].rowwise;
            const float *c = b->cast[t][use];
            if (!cast_spec_is_fp8(s)) continue;
            expect(r->name, words[t], decibel((double)c[STATISTICS_SIGNAL], (double)c[STATISTICS_NOISE]),
                   s->format == OTT_E4M3 ? 31.5 : 25.6);
            assert_true(c[STATISTICS_SATURATED] == 0);
        }
}

/* Computes the three GEMMs of the layer in fp32. */
static void reference_results(bench *exact) {
    open_bench(exact, 1.0f);
    recipe r = *recipe_find("fp32");
    run(exact, &r);
}

static void every_recipe_keeps_what_is_published(void **state) {
    (void)state;
    static bench exact, b;
    int count;
    const recipe *table = recipe_table(&count);
    reference_results(&exact);
    for (int i = 0; i < count; i++) {
        const recipe *r = &table[i];
        if (!recipe_gemm_is_fp8(r, GEMM_COUNT)) continue;
        open_bench(&b, 1.0f);
        run(&b, r);
        check_casts(&b, r);
        expect(r->name, "output", sqnr(&b, &b.y, &exact, &exact.y, 0),
               expected_product(r->input.rowwise.format, r->weight.rowwise.format));
        expect(r->name, "grad_input", sqnr(&b, &b.dx, &exact, &exact.dx, 0),
               expected_product(r->grad_output.rowwise.format, r->weight.columnwise.format));
        expect(r->name, "grad_weight", sqnr(&b, &b.weight.grad, &exact, &exact.weight.grad, 0),
               expected_product(r->grad_output.columnwise.format, r->input.columnwise.format));
        close_bench(&b);
    }
    close_bench(&exact);
}

/* ---- outliers ---- */

/* Makes one input row `outlier` times as large. Returns the SQNR of the output's other rows. */
static double with_outlier(const char *name, float outlier) {
    static bench exact, b;
    open_bench(&exact, outlier);
    run(&exact, recipe_find("fp32"));
    open_bench(&b, outlier);
    run(&b, recipe_find(name));
    double found = sqnr(&b, &b.y, &exact, &exact.y, 1);
    print_message("  %-12s one row x %-7g other rows %.2f dB\n", name, (double)outlier, found);
    close_bench(&b);
    close_bench(&exact);
    return found;
}

/* With one scale per tensor, the other rows keep their SQNR until the outlier needs the full range of E4M3.
   With scales per row or per block, the outlier does not change their SQNR. */
static void outlier_rows(void **state) {
    (void)state;
    assert_true(with_outlier("tensorwise", 3e3f) > 28.0);
    double lost = with_outlier("tensorwise", 3e4f);
    assert_true(lost > 10 && lost < 20);
    assert_true(with_outlier("tensorwise", 3e5f) < 3);
    assert_true(fabs(with_outlier("rowwise", 3e5f) - 28.5) <= TOLERANCE);
    assert_true(fabs(with_outlier("block", 3e5f) - 28.5) <= TOLERANCE);
    assert_true(fabs(with_outlier("mxfp8", 3e5f) - 28.5) <= TOLERANCE);
}

/* Multiplies one input channel by `outlier`, and divides the weights of this channel by it. */
static void open_channel(bench *b, float outlier) {
    tensor *both[] = {&b->input, &b->weight.value};
    open_bench(b, 1.0f);
    for (int k = 0; k < 2; k++) {
        float *values = fetch(b, both[k], 0);
        for (int64_t i = 0; i < both[k]->rows; i++) values[i * KK] *= k ? 1 / outlier : outlier;
        harness_put(&b->h, both[k], values);
        free(values);
    }
}

/* found[0]: SQNR of the output. found[1]: SQNR of the weight gradient without the channel of outliers.
   smooths: with SmoothQuant. */
static void of_channels(const char *name, float outlier, bool smooths, double found[2]) {
    static bench exact, b;
    open_channel(&exact, outlier);
    run(&exact, recipe_find("fp32"));
    open_channel(&b, outlier);
    b.smooths = smooths;
    run(&b, recipe_find(name));
    found[0] = sqnr(&b, &b.y, &exact, &exact.y, 0);
    found[1] = sqnr_of(&b, &b.weight.grad, &exact, &exact.weight.grad, 0, true);
    print_message("  %-12s one channel x %-6g %-8s output %.2f dB, grad_weight %.2f dB\n", name,
                  (double)outlier, smooths ? "smoothed" : "", found[0], found[1]);
    close_bench(&b);
    close_bench(&exact);
}

/* Channels share a scale. A channel of outliers takes its full range, so the other channels lose precision.
   With SmoothQuant the SQNR is as high as without outliers. */
static void smoothed_channels(void **state) {
    (void)state;
    static const char *const names[] = {"tensorwise", "delayed", "rowwise"};
    for (int i = 0; i < 3; i++) {
        double plain[2], smooth[2];
        bool e4m3 = recipe_find(names[i])->grad_output.columnwise.format == OTT_E4M3;
        of_channels(names[i], 0x1p17f, false, plain);
        of_channels(names[i], 0x1p17f, true, smooth);
        assert_true(plain[0] < 14 && smooth[0] > 28.0);
        assert_true(smooth[1] > (e4m3 ? 28.0 : 24.2));
        /* in the rowwise recipe, each channel of the weight gradient has its own scale */
        if (!e4m3) assert_true(plain[1] < 10);
    }
}

/* ---- expert weights ---- */

enum { MATRICES = 3 };
static const int32_t ends[MATRICES] = {100, 100, M}; /* one expert has no rows */

/* A grouped layer, or a separate linear layer of one expert's matrix with the expert's rows of input and
   grad_output. */
typedef struct expert_layer {
    bench b;
    parameter weight; /* all expert matrices, shape [MATRICES N, KK] */
    parameter matrix; /* one of the expert matrices */
    linear layer, single;
    grouped_rows rows;
    activation_specs input_specs, grad_specs;
    int64_t first, count;
} expert_layer;

static ott_status grouped_step(exec *cx, void *user) {
    expert_layer *s = user;
    TRY(linear_forward_grouped(cx, &s->layer, &s->b.input, &s->rows, &s->b.y));
    TRY(linear_grad_input_grouped(cx, &s->layer, &s->b.grad_output, &s->rows, &s->b.dx, false));
    return linear_grad_weight_grouped(cx, &s->layer, &s->b.input, &s->b.grad_output, &s->rows, NULL);
}

static ott_status single_step(exec *cx, void *user) {
    expert_layer *s = user;
    activation x, g;
    tensor input = tensor_rows(s->b.input, s->first, s->count), y = tensor_rows(s->b.y, s->first, s->count);
    tensor grad = tensor_rows(s->b.grad_output, s->first, s->count),
           dx = tensor_rows(s->b.dx, s->first, s->count);
    TRY(activation_open(cx, "x", OTT_BF16, s->count, KK, &s->input_specs, &x));
    TRY(activation_open(cx, "g", OTT_BF16, s->count, N, &s->grad_specs, &g));
    TRY(op_convert(cx, &(convert_args){.x = &input, .y = &x.t}));
    TRY(op_convert(cx, &(convert_args){.x = &grad, .y = &g.t}));
    TRY(activation_quantize(cx, &x));
    TRY(activation_quantize(cx, &g));
    TRY(linear_forward(cx, &s->single, &x, &y));
    TRY(linear_grad_input(cx, &s->single, &g, &dx, false));
    TRY(linear_grad_weight(cx, &s->single, &x, &g));
    TRY(activation_close(cx, &x));
    return activation_close(cx, &g);
}

static void open_expert_layer(expert_layer *s, const recipe *r) {
    *s = (expert_layer){0};
    open_bench(&s->b, 1.0f);
    harness *h = &s->b.h;
    s->weight = harness_parameter(h, "stack", MATRICES * N, KK, 1.0, 14);
    s->layer = (linear){.name = "stack", .in = KK, .out = MATRICES * N, .weight = &s->weight};
    s->rows = (grouped_rows){harness_vector_of_int(h, MATRICES, ends), M};
    linear_spec high;
    recipe_compile(r, OTT_BF16, &s->layer.grouped);
    recipe_compile(recipe_high_precision(OTT_BF16), OTT_BF16, &high);
    HARNESS_OK(linear_set_spec(&s->layer, h->device, &high));
}

static void close_expert_layer(expert_layer *s) {
    weight_release(&s->layer.source, s->b.h.device);
    close_bench(&s->b);
}

static void run_single(expert_layer *s, const recipe *r, int part) {
    harness *h = &s->b.h;
    linear_spec spec;
    s->first = part > 0 ? ends[part - 1] : 0;
    s->count = ends[part] - s->first;
    if (s->count == 0) return;
    s->matrix = s->weight;
    s->matrix.rows = N;
    s->matrix.value = tensor_rows(s->weight.value, part * N, N);
    s->matrix.grad = tensor_rows(s->weight.grad, part * N, N);
    s->single = (linear){.name = "matrix", .in = KK, .out = N, .weight = &s->matrix};
    s->input_specs = s->grad_specs = (activation_specs){0};
    recipe_compile(r, OTT_BF16, &spec);
    HARNESS_OK(linear_set_spec(&s->single, h->device, &spec));
    HARNESS_OK(linear_connect(&s->single, &s->input_specs, &s->grad_specs));
    harness_record(h, single_step, s);
    harness_replay(h, single_step, s);
    weight_release(&s->single.source, h->device);
}

static void expect_same(expert_layer *a, const tensor *x, expert_layer *b, const tensor *y,
                        const char *what) {
    float *found = fetch(&a->b, x, 0), *wanted = fetch(&b->b, y, 0);
    if (memcmp(found, wanted, (size_t)tensor_count(*x) * sizeof *found) != 0) fail_msg("different %s", what);
    free(found);
    free(wanted);
}

/* A grouped layer gives the same bits, and so the same error, as a separate layer for each matrix. */
static void expert_weights_match_their_matrices(void **state) {
    (void)state;
    static const char *const names[] = {"rowwise", "rowwise_with_gw_hp", "block", "mxfp8"};
    static expert_layer exact, together, apart;
    const recipe *plain = recipe_find("bf16");
    open_expert_layer(&exact, plain);
    for (int part = 0; part < MATRICES; part++) run_single(&exact, plain, part);
    for (int i = 0; i < 4; i++) {
        const recipe *r = recipe_find(names[i]);
        open_expert_layer(&together, r);
        open_expert_layer(&apart, r);
        harness_record(&together.b.h, grouped_step, &together);
        harness_replay(&together.b.h, grouped_step, &together);
        for (int part = 0; part < MATRICES; part++) run_single(&apart, r, part);
        expect_same(&together, &together.b.y, &apart, &apart.b.y, "output");
        expect_same(&together, &together.b.dx, &apart, &apart.b.dx, "grad_input");
        expect_same(&together, &together.weight.grad, &apart, &apart.weight.grad, "grad_weight");
        assert_true(sqnr(&together.b, &together.b.y, &exact.b, &exact.b.y, 0) > 28.5 - TOLERANCE);
        assert_true(sqnr(&together.b, &together.b.dx, &exact.b, &exact.b.dx, 0) > 24.6 - TOLERANCE);
        assert_int_equal(together.b.h.cx.gemms[GEMM_OUTPUT][1], 1);
        close_expert_layer(&together);
        close_expert_layer(&apart);
    }
    close_expert_layer(&exact);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_recipe_keeps_what_is_published),
        cmocka_unit_test(outlier_rows),
        cmocka_unit_test(smoothed_channels),
        cmocka_unit_test(expert_weights_match_their_matrices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
