/* Recipes of the public API: names, keys, descriptions, the table of recipes, and devices for each recipe. */
#include "api/api_case.h"
#include "fp8/recipe.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void assert_has(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("\"%s\" does not contain \"%s\"", text, part);
}

static void test_every_row_opens(void **state) {
    (void)state;
    int count;
    const recipe *table = recipe_table(&count);
    ott_context *context = open_context();
    for (int i = 0; i < count; i++) {
        collected text = {0};
        ott_recipe *r = open_recipe(context, table[i].name);
        succeed(ott_recipe_describe(r, collect, &text));
        assert_has(text.text, table[i].name);
        assert_has(text.text, table[i].source);
        assert_has(text.text, "grad_weight  multiplies");
        ott_recipe_close(r);
    }
    ott_context_close(context);
}

static void test_options(void **state) {
    (void)state;
    collected text = {0};
    ott_context *context = open_context();
    ott_recipe *r = open_recipe(context, "delayed"), *bf16 = open_recipe(context, "bf16");
    succeed(ott_recipe_set(r, "amax_history_len", "16"));
    succeed(ott_recipe_set(r, "amax_compute_algo", "most_recent"));
    succeed(ott_recipe_set(r, "fp8_format", "e4m3"));
    succeed(ott_recipe_describe(r, collect, &text));
    assert_has(text.text, "grad_output  e4m3 delayed history=16 algo=most_recent");
    assert_error(ott_recipe_set(r, "amax_history_length", "3"), OTT_ERR_CONFIG,
                 "no key \"amax_history_length\"; did you mean \"amax_history_len\"?");
    assert_error(ott_recipe_set(r, "filter_fqns", "output"), OTT_ERR_CONFIG,
                 "filter_fqns selects layers or steps");
    assert_error(ott_recipe_set(r, "amax_history_len", "many"), OTT_ERR_CONFIG, "amax_history_len");
    assert_error(ott_recipe_set(bf16, "margin", "1"), OTT_ERR_CONFIG,
                 "recipe bf16 has no FP8 operands, so it has no keys");
    assert_error(ott_recipe_set(NULL, "margin", "1"), OTT_ERR_ARGUMENT, "ott_recipe_set: r is NULL");
    assert_error(ott_recipe_set(r, NULL, "1"), OTT_ERR_ARGUMENT, "ott_recipe_set: key is NULL");
    assert_error(ott_recipe_set(r, "margin", NULL), OTT_ERR_ARGUMENT, "ott_recipe_set: value is NULL");
    ott_recipe_close(r);
    assert_error(ott_recipe_set(r, "margin", "1"), OTT_ERR_ARGUMENT, "r is a recipe that has been closed");
    ott_context_close(context);
}

/* Class names of TransformerEngine and other spellings are accepted as names of recipes. For a name like
   "float8", which is no recipe, the error suggests what to write. */
static void test_other_frameworks_names(void **state) {
    (void)state;
    static const struct {
        const char *given, *name;
    } names[] = {{"DelayedScaling", "delayed"},
                 {"delayed_scaling", "delayed"},
                 {"Float8CurrentScaling", "current"},
                 {"Float8BlockScaling", "block"},
                 {"blockwise", "block"},
                 {"MXFP8BlockScaling", "mxfp8"},
                 {"transformer_engine.common.recipe.MXFP8BlockScaling", "mxfp8"},
                 {"TENSORWISE", "tensorwise"},
                 {"rowwise-with-gw-hp", "rowwise_with_gw_hp"}};
    ott_recipe *r = NULL;
    ott_context *context = open_context();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        collected text = {0};
        r = open_recipe(context, names[i].given);
        succeed(ott_recipe_describe(r, collect, &text));
        assert_memory_equal(text.text, names[i].name, strlen(names[i].name));
        assert_int_equal(text.text[strlen(names[i].name)], ' ');
        ott_recipe_close(r);
        succeed(ott_supported(context, "cpu", names[i].given, NULL));
    }
    assert_error(ott_recipe_open(context, "HYBRID", &r), OTT_ERR_CONFIG, "fp8_format = \"hybrid\"");
    assert_error(ott_recipe_open(context, "float8", &r), OTT_ERR_CONFIG, "\"tensorwise\" is torchao's");
    assert_error(ott_recipe_open(context, "DelayedScalling", &r), OTT_ERR_CONFIG,
                 "did you mean \"DelayedScaling\"?");
    assert_null(r);
    ott_context_close(context);
}

/* A custom recipe is defined by a key per operand. If keys are missing, the error names them. */
static void test_custom(void **state) {
    (void)state;
    ott_qtensor *q;
    collected text = {0};
    ott_context *context = open_context();
    ott_recipe *r = open_recipe(context, "custom");
    assert_error(ott_qtensor_open(context, 2, 32, r, OTT_INPUT, &q), OTT_ERR_CONFIG,
                 "recipe \"custom\": no operand is in FP8; give input, weight and grad_output");
    succeed(ott_recipe_set(r, "input", "e4m3 row pow2"));
    succeed(ott_recipe_set(r, "weight", "e4m3 row pow2"));
    succeed(ott_recipe_set(r, "grad_output", "e5m2"));
    succeed(ott_recipe_describe(r, collect, &text));
    assert_has(text.text, "custom (");
    assert_has(text.text, "  input        e4m3 row pow2\n");
    assert_has(text.text, "  grad_output  e5m2\n");
    succeed(ott_qtensor_open(context, 2, 32, r, OTT_INPUT, &q));
    assert_error(ott_supported(context, "cuda", "custom", NULL), OTT_ERR_UNSUPPORTED,
                 "\"cpu\" computes on the CPU");
    succeed(ott_supported(context, "cpu", "custom", NULL));
    ott_context_close(context);
}

/* Messages name functions, arguments and keys of the API, not a run's configuration or the program's
   options. */
static void test_messages_use_api_names(void **state) {
    (void)state;
    ott_qtensor *q;
    ott_context *context = open_context();
    ott_recipe *r = open_recipe(context, "tensorwise");
    assert_error(ott_recipe_set(r, "amax_history_len", "many"), OTT_ERR_CONFIG,
                 "ott_recipe_set: amax_history_len=many");
    assert_null(strstr(ott_error_text(), "float8"));
    succeed(ott_recipe_set(r, "margin", "2"));
    assert_error(ott_qtensor_open(context, 2, 2, r, OTT_INPUT, &q), OTT_ERR_CONFIG,
                 "margin=2 has no effect with recipe \"tensorwise\"; it is for delayed");
    assert_null(strstr(ott_error_text(), "float8"));
    assert_null(strstr(ott_error_text(), "--"));
    ott_context_close(context);
}

/* Contradictions between keys are reported when the recipe is used, so that later calls can correct them. */
static void test_inconsistent_options(void **state) {
    (void)state;
    ott_qtensor *q;
    ott_context *context = open_context();
    ott_recipe *r = open_recipe(context, "tensorwise");
    succeed(ott_recipe_set(r, "input", "e5m2"));
    assert_error(ott_qtensor_open(context, 2, 2, r, OTT_INPUT, &q), OTT_ERR_CONFIG,
                 "grad_output.columnwise and input.columnwise are both e5m2");
    assert_null(q);
    succeed(ott_recipe_set(r, "grad_output", "e4m3"));
    succeed(ott_qtensor_open(context, 2, 2, r, OTT_INPUT, &q));
    ott_context_close(context);
}

static void test_wrong_names(void **state) {
    (void)state;
    ott_recipe *r = NULL;
    ott_context *context = open_context();
    assert_error(ott_recipe_open(context, "tensorwize", &r), OTT_ERR_CONFIG,
                 "ott_recipe_open: there is no recipe \"tensorwize\"; did you mean \"tensorwise\"?");
    assert_null(r);
    assert_error(ott_recipe_open(context, "no such thing at all", &r), OTT_ERR_CONFIG,
                 "ott_recipe_table lists");
    assert_error(ott_recipe_open(context, NULL, &r), OTT_ERR_ARGUMENT, "ott_recipe_open: name is NULL");
    assert_error(ott_recipe_open(NULL, "block", &r), OTT_ERR_ARGUMENT, "ott_recipe_open: context is NULL");
    assert_error(ott_recipe_open(context, "block", NULL), OTT_ERR_ARGUMENT, "ott_recipe_open: out is NULL");
    assert_error(ott_recipe_describe(NULL, collect, NULL), OTT_ERR_ARGUMENT,
                 "ott_recipe_describe: r is NULL");
    r = open_recipe(context, "block");
    assert_error(ott_recipe_describe(r, NULL, NULL), OTT_ERR_ARGUMENT, "ott_recipe_describe: write is NULL");
    assert_error(ott_recipe_table(context, 0, NULL, NULL), OTT_ERR_ARGUMENT,
                 "ott_recipe_table: write is NULL");
    assert_error(ott_recipe_table(NULL, 0, collect, NULL), OTT_ERR_ARGUMENT,
                 "ott_recipe_table: context is NULL");
    ott_context_close(context);
}

static void test_table(void **state) {
    (void)state;
    int count;
    const recipe *table = recipe_table(&count);
    static collected text, json;
    ott_context *context = open_context();
    succeed(ott_recipe_table(context, 0, collect, &text));
    succeed(ott_recipe_table(context, 1, collect, &json));
    for (int i = 0; i < count; i++) {
        char line[64];
        snprintf(line, sizeof line, "\n%s ", table[i].name);
        assert_has(text.text, line);
        snprintf(line, sizeof line, "{\"name\": \"%s\"", table[i].name);
        assert_has(json.text, line);
        assert_has(json.text, table[i].source);
    }
    assert_has(text.text, "e4m3 row pow2 / high");
    assert_has(json.text, "\"grad_output\": {\"by_rows\": \"e5m2\", \"by_columns\": \"e5m2\"}");
    ott_context_close(context);
}

static void assert_cuda(const char *json, const char *recipe_name, const char *begin) {
    char name[64];
    snprintf(name, sizeof name, "{\"name\": \"%s\"", recipe_name);
    const char *row = strstr(json, name), *cuda = row ? strstr(row, "\"cuda\": ") : NULL;
    assert_non_null(cuda);
    if (strncmp(cuda + 8, begin, strlen(begin)) != 0) fail_msg("\"%.200s\" is not \"%s\"", cuda, begin);
}

/* Checks which devices can run the recipes block and mxfp8, in the table's text and in its JSON. */
static void assert_table(ott_context *context, const char *block, const char *mxfp8, const char *json_block,
                         const char *json_mxfp8) {
    static collected text, json;
    text.length = json.length = 0;
    succeed(ott_recipe_table(context, 0, collect, &text));
    succeed(ott_recipe_table(context, 1, collect, &json));
    assert_has(text.text, block);
    assert_has(text.text, mxfp8);
    assert_cuda(json.text, "block", json_block);
    assert_cuda(json.text, "mxfp8", json_mxfp8);
    assert_has(json.text, "\"cpu\": {\"built\": true, \"supported\": true}");
}

/* Checks the table without the CUDA backend, with the backend but no GPU, and with a GPU. This test runs
   last, because a plugin stays loaded. */
static void test_table_asks_the_backends(void **state) {
    (void)state;
    ott_context *context = open_context();
    setenv("OTTAVA_CUDA_PATH", "/nowhere", 1);
    assert_table(context, "cpu; not built: H100/H200  ", "cpu; not built: B200, RTX 50",
                 "{\"built\": false, \"supported\": false, \"reason\": \"cuda: no CUDA backend was found",
                 "{\"built\": false");
    setenv("OTTAVA_CUDA_PATH", API_GPU_PLUGIN, 1);
    assert_table(context, "cpu; cuda: H100/H200  ", "cpu; cuda: B200, RTX 50",
                 "{\"built\": true, \"supported\": false, \"reason\": \"cuda: there is no GPU here",
                 "{\"built\": true, \"supported\": false");
    setenv("OTTAVA_TEST_GPU", "1", 1);
    assert_table(context, "cpu; cuda, this GPU and: H100/H200  ", "cpu; not this GPU, but: B200, RTX 50",
                 "{\"built\": true, \"supported\": true, \"compute_capability\": \"9.0\"",
                 "{\"built\": true, \"supported\": false, \"reason\": \"recipe mxfp8 cannot run on the "
                 "device cuda: input in 1x32: needs compute capability");
    ott_context_close(context);
}

static void test_supported(void **state) {
    (void)state;
    const char *reason = NULL;
    ott_context *context = open_context();
    succeed(ott_supported(context, "cpu", "mxfp8", &reason));
    assert_string_equal(reason, "");
    succeed(ott_supported(context, "cpu", "bf16", NULL));
    assert_error(ott_supported(context, "cuda", "block", &reason), OTT_ERR_UNSUPPORTED,
                 "recipe block needs compute capability 9.0");
    assert_has(reason, "no CUDA backend was found");
    assert_error(ott_supported(context, "cuda", "mxfp8", NULL), OTT_ERR_UNSUPPORTED, "10.0 on a GPU: B200");
    assert_error(ott_supported(context, "cudo", "mxfp8", &reason), OTT_ERR_ARGUMENT,
                 "did you mean \"cuda\"?");
    assert_error(ott_supported(context, "abacus", "mxfp8", &reason), OTT_ERR_ARGUMENT,
                 "give auto, cpu or cuda");
    assert_error(ott_supported(context, "cpu", "blok", &reason), OTT_ERR_CONFIG, "did you mean \"block\"?");
    assert_error(ott_supported(context, NULL, "block", &reason), OTT_ERR_ARGUMENT, "device_name is NULL");
    assert_error(ott_supported(context, "cpu", NULL, &reason), OTT_ERR_ARGUMENT, "recipe_name is NULL");
    assert_error(ott_supported(NULL, "cpu", "block", &reason), OTT_ERR_ARGUMENT, "context is NULL");
    ott_context_close(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_opens),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_other_frameworks_names),
        cmocka_unit_test(test_custom),
        cmocka_unit_test(test_messages_use_api_names),
        cmocka_unit_test(test_inconsistent_options),
        cmocka_unit_test(test_wrong_names),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_supported),
        cmocka_unit_test(test_table_asks_the_backends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
