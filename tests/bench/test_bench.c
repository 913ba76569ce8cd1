/* Benchmarks: the harness that runs the cases, the cases of each benchmark, and the options. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <jansson.h>

#include "base/collected.h"
#include "backend/open.h"
#include "bench/harness.h"
#include "train/train_fixture.h"

/* ---- a benchmark's output ---- */

static bench_options options_of(const char *what) {
    return (bench_options){.what = what, .repeats = 1, .threads = 2};
}

static ott_status run_into(const bench_options *o, collected *w) {
    mem *account;
    FIXTURE_OK(mem_open(&account));
    *w = (collected){0};
    ott_status status = bench_measure(account, NULL, o, collect, w);
    assert_int_equal(mem_read(account).now, 0);
    mem_close(account);
    return status;
}

/* Returns the benchmark's JSON object. Release it with json_decref. */
static json_t *run_json(const bench_options *o) {
    static collected w;
    bench_options json = *o;
    json.json = 1;
    FIXTURE_OK(run_into(&json, &w));
    json_t *root = json_loads(w.text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "bench")), o->what);
    return root;
}

static double number(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* ---- the harness ---- */

static int order[64], runs;

static ott_status note(bench *b, void *state) {
    (void)b;
    if (runs < 64) order[runs] = *(int *)state;
    runs++;
    return OTT_OK;
}

static ott_status add_two(bench *b) {
    static int first = 1, second = 2;
    TRY(bench_add(b, &(bench_case){.what = "op",
                                   .shape = "4",
                                   .variant = "a",
                                   .flops = 8,
                                   .once = true,
                                   .run = note,
                                   .state = &first}));
    return bench_add(b, &(bench_case){.what = "op",
                                      .shape = "4",
                                      .variant = "b",
                                      .flops = 8,
                                      .once = true,
                                      .run = note,
                                      .state = &second});
}

/* There is one warm-up round, then one round per repeat. Each round runs every case once. */
static void cases_take_turns(void **state) {
    (void)state;
    mem *account;
    bench_options o = options_of("two");
    o.repeats = 3;
    const bench_entry entry = {.name = "two", .add = add_two};
    FIXTURE_OK(mem_open(&account));
    str text = {.account = account};
    runs = 0;
    FIXTURE_OK(bench_cases(account, NULL, &entry, &o, &text));
    FIXTURE_OK(str_finish(&text));
    assert_int_equal(runs, 8);
    for (int i = 0; i < 8; i++) assert_int_equal(order[i], 1 + i % 2);
    /* one line of the output has both variants of the case */
    assert_non_null(strstr(text.text, "\nop "));
    assert_null(strstr(strstr(text.text, "\nop ") + 1, "\nop "));
    str_free(&text);
    mem_close(account);
}

static ott_status add_impossible(bench *b) {
    static int first = 1;
    return bench_add(b, &(bench_case){.what = "op",
                                      .shape = "4",
                                      .variant = "e4m3",
                                      .flops = 1e18,
                                      .format = OTT_E4M3,
                                      .once = true,
                                      .run = note,
                                      .state = &first});
}

/* The reported peak is at least the speed of the fastest GEMM, even if the measurement of the peak gave less,
   as it can on a busy machine. */
static void no_product_exceeds_its_peak(void **state) {
    (void)state;
    mem *account;
    bench_options o = options_of("impossible");
    const bench_entry entry = {.name = "impossible", .add = add_impossible};
    FIXTURE_OK(mem_open(&account));
    str text = {.account = account};
    FIXTURE_OK(bench_cases(account, NULL, &entry, &o, &text));
    FIXTURE_OK(str_finish(&text));
    assert_non_null(strstr(text.text, "GFLOP/s: e4m3\n"));
    assert_non_null(strstr(text.text, "(100.0%)"));
    str_free(&text);
    mem_close(account);
}

static void the_median_is_of_the_middle(void **state) {
    (void)state;
    double odd[] = {9, 1, 5}, even[] = {4, 1, 100, 2};
    assert_true(bench_median(odd, 3) == 5);
    assert_true(bench_median(even, 4) == 3);
}

static ott_status fail_to_add(bench *b) {
    tensor t;
    TRY(bench_tensor(b, OTT_F32, 2, 2, &t));
    return status_fail(OTT_ERR_MEMORY, "no case");
}

static int closed;
static void note_close(bench *b) {
    (void)b;
    closed++;
}

static void a_failure_gives_everything_back(void **state) {
    (void)state;
    mem *account;
    bench_options o = options_of("none");
    const bench_entry entry = {.name = "none", .add = fail_to_add, .close = note_close};
    FIXTURE_OK(mem_open(&account));
    str text = {.account = account};
    closed = 0;
    assert_int_equal(bench_cases(account, NULL, &entry, &o, &text), OTT_ERR_MEMORY);
    assert_int_equal(closed, 1);
    assert_int_equal(mem_read(account).now, 0);
    mem_close(account);
}

/* ---- the benchmarks ---- */

static void expect_results(const char *what, size_t count, const char *unit) {
    bench_options o = options_of(what);
    o.shapes = strcmp(what, "attention") == 0 || strcmp(what, "optimizer") == 0 ? NULL : "tiny";
    json_t *root = run_json(&o), *results = json_object_get(root, "results"), *result;
    const json_t *peaks = json_object_get(root, "peak_gflops");
    size_t i;
    assert_int_equal(json_array_size(results), count);
    json_array_foreach(results, i, result) {
        assert_true(number(result, unit) >= 0);
        assert_true(number(result, "seconds") > 0);
        assert_true(number(result, "of_peak") > 0);
        assert_true(number(result, "processor_seconds") >= 0);
        const char *used = json_string_value(json_object_get(result, "unit"));
        if (used) assert_true(number(result, "of_peak") <= 1 && number(peaks, used) > 0);
    }
    json_decref(root);
}

static void every_family_of_ops_runs(void **state) {
    (void)state;
    expect_results("gemm", 2 * 3 * 4, "gflops");
    expect_results("gemv", 2 * 4 * 3, "gbytes_per_second");
    expect_results("quantize", 2 * 7 * 2, "gbytes_per_second");
    expect_results("norm", 2 * 4 * 3, "gbytes_per_second");
    if (FIXTURE_SANITIZED || getenv(TEST_DEVICE_VARIABLE)) return; /* cases with these sizes take long */
    expect_results("attention", 2 * 4 * 2 * 2, "gflops");
    expect_results("optimizer", 3 * 2, "gbytes_per_second");
}

/* Measures the GEMMs of a configuration: three blocks of seven linear layers and a head, each in forward and
   for two gradients. GEMMs of equal shape are measured once. */
static void products_are_those_of_a_configuration(void **state) {
    (void)state;
    bench_options o = options_of("products");
    o.path = TEST_SOURCE_DIR "/configs/demo.toml";
    o.recipe = "rowwise";
    o.precision = "fp8";
    json_t *root = run_json(&o), *step = json_object_get(root, "step"), *result;
    size_t i, attentions = 0, products = 0;
    double calls = number(step, "calls");
    assert_true(calls == 3 * 7 * 3 + 3 + 2 * 3);
    assert_true(number(step, "seconds") > 0);
    json_array_foreach(json_object_get(root, "results"), i, result) {
        const char *what = json_string_value(json_object_get(result, "what"));
        attentions += strstr(what, "attention") != NULL;
        products += strcmp(what, "e4m3 x e4m3 row") == 0;
        assert_true(number(result, "gflops") > 0);
    }
    assert_int_equal(attentions, 2);
    assert_true(products >= 3 && i < 20);
    json_decref(root);
}

static void a_step_says_where_its_time_went(void **state) {
    (void)state;
    static const char *const precisions[] = {"fp8", "bf16", "fp32"};
    bench_options o = options_of("step");
    o.path = TEST_SOURCE_DIR "/configs/demo.toml";
    o.precision = "fp8,bf16,fp32";
    o.recipe = "rowwise";
    o.batch_size = 1;
    o.seq_len = 64;
    json_t *root = run_json(&o), *steps = json_object_get(root, "steps");
    for (int i = 0; i < 3; i++) {
        json_t *step = json_object_get(steps, precisions[i]), *share;
        const char *name;
        double sum = 0;
        assert_true(number(step, "tokens_per_second") > 0);
        assert_true(number(step, "memory_bytes") > number(step, "step_bytes"));
        json_t *shares = json_object_get(step, "shares");
        json_object_foreach(shares, name, share) sum += json_number_value(share);
        assert_true(sum > 0.995 && sum < 1.005);
        /* only the FP8 model has ops that quantize, and FP8 GEMMs */
        assert_int_equal(number(shares, "quantize") > 0, i == 0);
        assert_int_equal(number(shares, "gemm_fp8") > 0, i == 0);
    }
    assert_true(number(json_object_get(steps, "bf16"), "ratio_to_bf16") == 1);
    json_decref(root);
}

static void generation_goes_beyond_its_window(void **state) {
    (void)state;
    bench_options o = options_of("generate");
    o.preset = "demo";
    o.repeats = 3;
    json_t *root = run_json(&o), *made = json_object_get(root, "generation");
    assert_true(number(json_object_get(made, "fp8"), "tokens_per_second") > 0);
    assert_true(number(json_object_get(made, "bf16"), "tokens_per_second") > 0);
    json_decref(root);
}

static void tables_have_a_line_for_each_number(void **state) {
    (void)state;
    static collected w;
    bench_options o = options_of("step");
    o.preset = "demo";
    o.batch_size = 1;
    o.seq_len = 32;
    FIXTURE_OK(run_into(&o, &w));
    static const char *const parts[] = {"interleaved repeats", "demo, 1 x 32", "tokens/s",
                                        "times bf16's speed",  "between ops",  "MiB"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) assert_non_null(strstr(w.text, parts[i]));
}

/* ---- options ---- */

static void expect_error(const bench_options *o, const char *part) {
    static collected w;
    assert_int_equal(run_into(o, &w), OTT_ERR_ARGUMENT);
    if (!strstr(status_text(), part)) fail_msg("\"%s\" is not in: %s", part, status_text());
    assert_int_equal(w.pieces, 0);
}

static void wrong_options_are_errors(void **state) {
    (void)state;
    static const struct {
        bench_options o; /* the loop below also sets repeats and threads */
        const char *says;
    } rows[] = {
        {{.what = "gem"}, "there is no benchmark \"gem\"; there are: gemm, gemv"},
        {{.what = NULL}, "there is no benchmark \"\""},
        {{.what = "gemm", .shapes = "huge"}, "shapes = \"huge\": give small, square"},
        {{.what = "gemm", .preset = "42M"}, "gemm: does not take the option preset"},
        {{.what = "step", .shapes = "small"}, "step: does not take the option shapes"},
        {{.what = "generate", .seq_len = 8}, "generate: does not take the option seq_len"},
        {{.what = "norm", .path = "x"}, "norm: does not take the option path"},
        {{.what = "step", .precision = "fp8,,bf16"}, "precision \"\""},
        {{.what = "step", .precision = "bf16,bf16"}, "precision \"bf16\""},
        {{.what = "step", .precision = "bf16", .recipe = "rowwise"}, "recipe = \"rowwise\" needs fp8"},
        {{.what = "step", .preset = "none"}, "preset \"none\""},
        {{.what = "step", .batch_size = -1}, "batch_size = -1"},
        {{.what = "load"}, "load: path is missing: give a Hugging Face folder"},
        {{.what = "products"}, "products: path is missing: give a configuration file"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bench_options o = rows[i].o;
        o.repeats = 1;
        o.threads = 2;
        expect_error(&o, rows[i].says);
    }
    bench_options none = options_of("gemm");
    none.repeats = 0;
    expect_error(&none, "repeats = 0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases_take_turns),
        cmocka_unit_test(the_median_is_of_the_middle),
        cmocka_unit_test(a_failure_gives_everything_back),
        cmocka_unit_test(no_product_exceeds_its_peak),
        cmocka_unit_test(every_family_of_ops_runs),
        cmocka_unit_test(products_are_those_of_a_configuration),
        cmocka_unit_test(a_step_says_where_its_time_went),
        cmocka_unit_test(generation_goes_beyond_its_window),
        cmocka_unit_test(tables_have_a_line_for_each_number),
        cmocka_unit_test(wrong_options_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
