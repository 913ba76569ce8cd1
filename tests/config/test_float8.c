/* Tests the keys of [float8]: which recipes a key applies to, keys of operands, rules for modules as texts
   and as tables, and other spellings. */
#include "config/case.h"

#define FP8 "[train]\nmixed_precision = \"fp8\"\n[float8]\n"

static void test_recipes(void **state) {
    config_case *c = *state;
    static const char *const names[] = {
        "tensorwise", "rowwise", "rowwise_with_gw_hp", "delayed", "current", "block", "mxfp8", "custom"};
    for (int i = 0; i < 8; i++) {
        char argument[64] = "--float8.recipe_name=";
        config *cfg = NULL;
        assert_int_equal(
            case_arguments(c, &cfg, "--train.mixed_precision=fp8", strcat(argument, names[i]), (char *)NULL),
            OTT_OK);
        assert_string_equal(config_word(cfg, "float8.recipe_name"), names[i]);
        config_close(cfg);
    }
    case_bad_argument(c, "--float8.recipe_name=blocks", "did you mean \"block\"?", NULL);
}

static void test_defaults(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".toml", FP8 "recipe_name = \"tensorwise\"\n", NULL);
    assert_int_equal(cfg->float8.fp8_format, FP8_FORMAT_RECIPE);
    assert_int_equal(cfg->float8.amax_compute_algo, ALGO_MAX);
    assert_true(cfg->float8.reduce_amax && cfg->float8.amax_epsilon == 0.0);
    assert_int_equal(cfg->float8.accumulate, SUM_FP32);
    assert_int_equal(cfg->float8.accumulate_output, GEMM_SUM_DEFAULT);
    assert_int_equal(cfg->float8.fast_accum_output, FAST_ACCUM_RECIPE);
    assert_int_equal(cfg->float8.health_interval, 100);
    assert_true(cfg->float8.fallback_sqnr_db == 0.0 && cfg->float8.fallback_window == 10);
    assert_string_equal(cfg->float8.schedule, "");
    assert_string_equal(cfg->float8.input, "");
    config_close(cfg);
}

/* ---- options of single recipes ---- */

static const struct {
    const char *option, *list;    /* key = value; recipes that the error names */
    const char *good[3], *bad[3]; /* recipes that accept the value; recipes that refuse it */
} options[] = {
    {"margin = 2", "delayed", {"delayed"}, {"tensorwise", "current", "custom"}},
    {"amax_history_len = 16", "delayed", {"delayed"}, {"block", "rowwise"}},
    {"amax_compute_algo = \"most_recent\"", "delayed", {"delayed"}, {"mxfp8"}},
    {"reduce_amax = false", "delayed", {"delayed"}, {"current"}},
    {"amax_epsilon = 0.5", "current, block", {"current", "block"}, {"delayed", "tensorwise", "mxfp8"}},
    {"use_f32_scales = true", "block", {"block"}, {"current", "tensorwise"}},
    {"mx_scale = \"floor\"", "mxfp8", {"mxfp8"}, {"block"}},
    {"round_scales_to_power_of_2 = true",
     "tensorwise, rowwise, rowwise_with_gw_hp, current, block, custom",
     {"tensorwise", "current", "custom"},
     {"delayed", "mxfp8"}},
    {"round_scales_to_power_of_2 = false",
     "tensorwise, rowwise, rowwise_with_gw_hp, current, block, custom",
     {"rowwise", "rowwise_with_gw_hp", "block"},
     {"delayed", "mxfp8"}},
    {"fp8_format = \"e4m3\"",
     "delayed, current, block, mxfp8",
     {"delayed", "block", "mxfp8"},
     {"tensorwise", "rowwise", "custom"}},
};

/* Returns the text of a file with this key and this recipe. */
static const char *file_of(const char *option, const char *recipe) {
    static char text[256];
    strcpy(text, FP8);
    strcat(strcat(strcat(strcat(strcat(text, option), "\nrecipe_name = \""), recipe), "\""), "\n");
    return text;
}

static void test_options(void **state) {
    config_case *c = *state;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        for (int k = 0; k < 3 && options[i].good[k]; k++)
            config_close(case_good(c, ".toml", file_of(options[i].option, options[i].good[k]), NULL));
        for (int k = 0; k < 3 && options[i].bad[k]; k++) {
            char wanted[200] = "has no effect with float8.recipe_name = \"";
            strcat(strcat(strcat(wanted, options[i].bad[k]), "\"; it is for "), options[i].list);
            case_bad(c, ".toml", file_of(options[i].option, options[i].bad[k]), ":4: float8.",
                     options[i].option, wanted, NULL);
        }
    }
}

/* A key for one recipe: its default value is accepted with any recipe. Another value is accepted if the
   schedule or a module rule uses the recipe. */
static void test_options_that_count(void **state) {
    config_case *c = *state;
    config_close(
        case_good(c, ".toml", FP8 "margin = 0\nreduce_amax = true\namax_history_len = 1024\n", NULL));
    config_close(case_good(c, ".toml", FP8 "margin = 1\nschedule = \"fp8:10, delayed\"\n", NULL));
    config_close(case_good(c, ".toml", FP8 "margin = 1\nmodule = [\"*=delayed\"]\n", NULL));
    case_bad(c, ".toml", FP8 "margin = 1\nmodule = [\"delayed.*=bf16\"]\n", "it is for delayed", NULL);
    case_bad(c, ".toml", FP8 "margin = 1\nschedule = \"fp8:10, undelayed\"\n", "it is for delayed", NULL);
}

static void test_words(void **state) {
    config_case *c = *state;
    case_bad(c, ".toml", FP8 "amax_compute_algo = \"maximum\"\n", "is not one of \"max\", \"most_recent\"",
             NULL);
    case_bad(c, ".toml", FP8 "fp8_format = \"e5m2\"\n", "\"recipe\", \"hybrid\", \"e4m3\"", NULL);
    case_bad(c, ".toml", FP8 "mx_scale = \"round_up\"\n", "did you mean \"roundup\"?", NULL);
    case_bad(c, ".toml", FP8 "accumulate = \"hoper\"\n", "did you mean \"hopper\"?", NULL);
    case_bad(c, ".toml", FP8 "accumulate_output = \"half\"\n", "\"default\", \"fp32\", \"hopper\"", NULL);
    case_bad(c, ".toml", FP8 "margin = 17\n", "must be in [-16, 16]", NULL);
    case_bad(c, ".toml", FP8 "amax_history_len = 0\n", "must be in [1, 1048576]", NULL);
    case_bad(c, ".toml", FP8 "amax_epsilon = -1.0\n", "must be in [0, 1e38]", NULL);
    case_bad(c, ".toml", FP8 "keep_first_layers = -1\n", "must be in [0, 2147483647]", NULL);
    case_bad(c, ".toml", FP8 "fallback_window = 0\n", "must be in [1, 2147483647]", NULL);
}

/* ---- operands ---- */

static void test_operands(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".toml", FP8 "input = \"e4m3 row\"\ngrad_output = \"e4m3\"\n",
                            "--float8.weight=e4m3 row pow2", NULL);
    assert_string_equal(cfg->float8.input, "e4m3 row");
    assert_string_equal(cfg->float8.weight, "e4m3 row pow2");
    config_close(cfg);
    case_bad(c, ".toml", FP8 "weight_for_grad_input = \"e4m3 colum\"\n",
             ":4: float8.weight_for_grad_input = \"e4m3 colum\": \"colum\" is not a word", NULL);
    case_bad(c, ".toml", FP8 "grad_output = \"e6m3\"\n", "did you mean \"e4m3\"?", NULL);
    case_bad(c, ".toml", FP8 "input = 5\n", "float8.input = 5 must be a text", NULL);
    cfg = case_good(c, ".toml", FP8 "input = \"e4m3 row\"\n", "--float8.input=", NULL);
    assert_string_equal(cfg->float8.input, "");
    config_close(cfg);
}

/* The FP8 all-gather is possible if the weight has one scale per tensor, as in torchao. */
static void test_all_gather(void **state) {
    config_case *c = *state;
    static const char *const tensorwise[] = {"recipe_name = \"tensorwise\"\n", "recipe_name = \"delayed\"\n",
                                             "recipe_name = \"current\"\n",
                                             "recipe_name = \"custom\"\nweight = \"e4m3 unit\"\n",
                                             "recipe_name = \"rowwise\"\nweight = \"e4m3\"\n"};
    static const char *const other[][2] = {
        {"recipe_name = \"rowwise\"\n", "got rowwise"}, {"recipe_name = \"block\"\n", "got block"},
        {"recipe_name = \"mxfp8\"\n", "got mxfp8"},     {"recipe_name = \"custom\"\n", "got custom"},
        {"weight = \"e4m3 row\"\n", "got e4m3 row"},    {"weight = \"high\"\n", "got high"}};
    char text[256];
    for (size_t i = 0; i < sizeof tensorwise / sizeof *tensorwise; i++) {
        strcat(strcpy(text, FP8 "enable_fsdp_float8_all_gather = true\n"), tensorwise[i]);
        config *cfg = case_good(c, ".toml", text, NULL);
        assert_true(cfg->float8.enable_fsdp_float8_all_gather);
        config_close(cfg);
    }
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        strcat(strcpy(text, FP8 "enable_fsdp_float8_all_gather = true\n"), other[i][0]);
        case_bad(c, ".toml", text, ":4: float8.enable_fsdp_float8_all_gather = true",
                 "only supports tensorwise scaling granularity", other[i][1], NULL);
        strcat(strcpy(text, FP8), other[i][0]);
        config *cfg = case_good(c, ".toml", text, NULL);
        /* the default is false with this recipe: FP8 all-gather needs one scale per tensor */
        assert_false(cfg->float8.enable_fsdp_float8_all_gather);
        config_close(cfg);
    }
}

/* ---- rules ---- */

static void assert_rules(config *cfg) {
    assert_int_equal(cfg->float8.module.count, 2);
    assert_string_equal(cfg->float8.module.items[0], "model.layers.0.*=bf16");
    assert_string_equal(cfg->float8.module.items[1], "lm_head=rowwise");
    config_close(cfg);
}

static void test_rules(void **state) {
    config_case *c = *state;
    assert_rules(
        case_good(c, ".toml", FP8 "module = [\"model.layers.0.*=bf16\", \"lm_head=rowwise\"]\n", NULL));
    assert_rules(case_good(c, ".toml",
                           FP8 "[[float8.module]]\nmatch = \"model.layers.0.*\"\nrecipe = \"bf16\"\n"
                               "[[float8.module]]\nrecipe = \"rowwise\"\nmatch = \"lm_head\"\n",
                           NULL));
    assert_rules(case_good(
        c, ".toml", FP8 "module = [{match = \"model.layers.0.*\", recipe = \"bf16\"}, \"lm_head=rowwise\"]\n",
        NULL));
    assert_rules(case_good(c, ".yaml",
                           "train:\n  mixed_precision: fp8\nfloat8:\n  module:\n"
                           "    - match: model.layers.0.*\n      recipe: bf16\n"
                           "    - {match: \"lm_head\", recipe: rowwise}\n",
                           NULL));
    assert_rules(case_good(c, ".toml", FP8 "module = [\"x=bf16\"]\n",
                           "--float8.module=model.layers.0.*=bf16,lm_head=rowwise", NULL));
}

static void test_wrong_rules(void **state) {
    config_case *c = *state;
    case_bad(
        c, ".toml", FP8 "[[float8.module]]\nmatsh = \"x\"\nrecipe = \"bf16\"\n",
        "float8.module = [a table]: unknown key matsh in a rule, which has match and recipe; did you mean "
        "match?",
        NULL);
    case_bad(c, ".toml", FP8 "[[float8.module]]\nmatch = \"x\"\n", "a rule needs the texts match and recipe",
             NULL);
    case_bad(c, ".toml", FP8 "[[float8.module]]\n", "a rule needs the texts match", NULL);
    case_bad(c, ".toml", FP8 "[[float8.module]]\nmatch = 5\nrecipe = \"bf16\"\n",
             "a rule needs the texts match", NULL);
    case_bad(c, ".toml", FP8 "module = [{match = \"x\", recipe = \"bf16\"}, 5]\n", "must be a list of texts",
             NULL);
    case_bad(c, ".toml", FP8 "module = [[\"x\"]]\n", "must be a list of texts", NULL);
    case_bad(c, ".toml", FP8 "[float8.module]\nmatch = \"x\"\nrecipe = \"bf16\"\n", "must be a list of texts",
             NULL);
    case_bad(c, ".toml", FP8 "filter_fqns = [{match = \"x\", recipe = \"bf16\"}]\n",
             "must be a list of texts", NULL);
    case_bad(c, ".yaml", "float8:\n  module:\n    - match: [a]\n      recipe: bf16\n",
             "a rule needs the texts match", NULL);
}

/* ---- scales that are rounded, or not ---- */

/* round_scales_to_power_of_2 = false means "recipe" in config.toml files of old versions, and in AutoModel's
   files. In other files it means fp32 scales. */
static void test_rounding(void **state) {
    static const char older[] = "# Ottava: the configuration of a run with every value it used.\n" FP8
                                "recipe_name = \"rowwise\"\nround_scales_to_power_of_2 = false\n";
    config_case *c = *state;
    str text = {.account = c->account};
    config *cfg = case_good(c, ".toml", older, NULL);
    assert_int_equal(cfg->float8.round_scales_to_power_of_2, SCALE_ROUNDING_RECIPE);
    config_close(cfg);
    cfg = case_good(c, ".toml", strchr(older, '\n') + 1, NULL);
    assert_int_equal(cfg->float8.round_scales_to_power_of_2, SCALE_ROUNDING_FALSE);
    assert_int_equal(config_write_toml(cfg, &text), OTT_OK);
    config_close(cfg);
    cfg = case_good(c, ".toml", text.text, NULL);
    assert_int_equal(cfg->float8.round_scales_to_power_of_2, SCALE_ROUNDING_FALSE);
    config_close(cfg);
    str_free(&text);
    cfg = case_good(c, ".toml", FP8, "--float8.round_scales_to_power_of_2", NULL);
    assert_int_equal(cfg->float8.round_scales_to_power_of_2, SCALE_ROUNDING_TRUE);
    config_close(cfg);
    cfg = case_good(c, ".yaml", "fp8:\n  enabled: true\n  round_scales_to_power_of_2: False\n", NULL);
    assert_int_equal(cfg->float8.round_scales_to_power_of_2, SCALE_ROUNDING_RECIPE);
    config_close(cfg);
}

/* ---- other spellings, and round trips ---- */

static void test_spellings(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".toml", FP8 "fallback = {sqnr_db = 12.5, window = 3}\n", NULL);
    assert_true(cfg->float8.fallback_sqnr_db == 12.5 && cfg->float8.fallback_window == 3);
    config_close(cfg);
    cfg = case_good(c, ".yaml",
                    "fp8:\n  enabled: true\n  round_scales_to_power_of_2: True\nfloat8:\n"
                    "  fallback: {sqnr_db: 5, window: 7}\n  fast_accum_output: False\n"
                    "  gemm_config_grad_input: {use_fast_accum: true}\n",
                    "--float8.fallback.sqnr_db=6", NULL);
    assert_true(cfg->float8.fallback_sqnr_db == 6.0 && cfg->float8.fallback_window == 7);
    assert_int_equal(cfg->float8.round_scales_to_power_of_2, SCALE_ROUNDING_TRUE);
    assert_int_equal(cfg->float8.fast_accum_output, FAST_ACCUM_FALSE);
    assert_int_equal(cfg->float8.fast_accum_grad_input, FAST_ACCUM_TRUE);
    config_close(cfg);
    cfg = case_good(c, ".toml",
                    "[training]\nsteps = 5\n[model]\nconverters = [\"quantize.linear.float8\"]\n"
                    "[quantize.linear.float8]\nround_scales_to_power_of_2 = true\n"
                    "force_recompute_fp8_weight_in_bwd = true\n",
                    "--float8.fast_accum_grad_weight=true", NULL);
    assert_int_equal(cfg->float8.round_scales_to_power_of_2, SCALE_ROUNDING_TRUE);
    assert_true(cfg->float8.force_recompute_fp8_weight_in_bwd);
    assert_int_equal(cfg->float8.fast_accum_grad_weight, FAST_ACCUM_TRUE);
    config_close(cfg);
}

static void fail_difference(void *user, const char *key, const char *a, const char *b) {
    (void)user;
    fail_msg("%s: %s | %s", key, a, b);
}

/* Writes the resolved configuration and parses it again. The written file has every key, so the recipe must
   accept all keys. */
static void round_trip(config_case *c, config *cfg) {
    str text = {.account = c->account};
    assert_int_equal(config_write_toml(cfg, &text), OTT_OK);
    config *again = case_good(c, ".toml", text.text, NULL);
    assert_int_equal(config_differences(cfg, again, fail_difference, NULL), OTT_OK);
    config_close(again);
    config_close(cfg);
    str_free(&text);
}

static void test_round_trip(void **state) {
    config_case *c = *state;
    static const char *const texts[] = {
        FP8 "recipe_name = \"delayed\"\nmargin = -2\namax_history_len = 7\nreduce_amax = false\n"
            "fp8_format = \"e4m3\"\nschedule = \"bf16:10%, fp8\"\n",
        FP8 "recipe_name = \"block\"\nuse_f32_scales = true\namax_epsilon = 1e-7\nkeep_first_layers = 1\n",
        FP8 "recipe_name = \"custom\"\ninput = \"e4m3 te eps=1e-4\"\naccumulate = \"hopper\"\n"
            "accumulate_output = \"fp32\"\nfast_accum_output = true\n",
        FP8 "recipe_name = \"rowwise\"\nfallback = {sqnr_db = 1.5}\n[[float8.module]]\n"
            "match = \"a \\\"b\\\",\\\\c\"\nrecipe = \"bf16\"\n",
        "[float8]\nmargin = 3\nrecipe_name = \"mxfp8\"\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        round_trip(c, case_good(c, ".toml", texts[i], NULL));
}

/* Without FP8, keys of [float8] have no effect. Each key that is set is logged, and its value is not
   checked. */
static void test_without_fp8(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".toml", "[float8]\nmargin = 3\ninput = \"x\"\nemulate = false\n", NULL);
    assert_non_null(
        strstr(c->log, ":2: float8.margin = 3 has no effect: train.mixed_precision is bf16, not fp8"));
    assert_non_null(strstr(c->log, "float8.input = \"x\" has no effect"));
    assert_null(strstr(c->log, "float8.emulate"));
    config_close(cfg);
}

static void test_tensorboard(void **state) {
    config_case *c = *state;
    config *cfg =
        case_good(c, ".toml", "[metrics]\nenable_tensorboard = true\nsave_tb_folder = \"tb\"\n", NULL);
    assert_true(cfg->metrics.enable_tensorboard);
    assert_string_equal(cfg->metrics.tensorboard_dir, "tb");
    config_close(cfg);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_recipes),     CASE(test_defaults),    CASE(test_options),    CASE(test_options_that_count),
        CASE(test_words),       CASE(test_operands),    CASE(test_all_gather), CASE(test_rules),
        CASE(test_wrong_rules), CASE(test_rounding),    CASE(test_spellings),  CASE(test_round_trip),
        CASE(test_without_fp8), CASE(test_tensorboard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
