/* Tests of train/precision: the effect of each [float8] key on recipes, the grammar of float8.schedule, rules
   for single modules, and custom recipes with a key per operand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "fp8/recipe_text.h"
#include "train/precision.h"
#include <stdio.h>

/* A precision plan and the configuration that it was read from. */
typedef struct plan_case {
    mem *account;
    config *cfg;
    precision_plan plan;
} plan_case;

static plan_case now; /* the current test's plan */

static int close_case(void **state) {
    (void)state;
    config_close(now.cfg);
    now.cfg = NULL;
    int leaked = now.account && mem_read(now.account).now != 0;
    if (now.account) mem_close(now.account);
    now.account = NULL;
    return leaked;
}

#define ARGUMENTS 12

static int gather(const char **out, va_list list) {
    int count = 0;
    for (const char *next; (next = va_arg(list, const char *)) != NULL;) {
        assert_true(count < ARGUMENTS);
        out[count++] = next;
    }
    return count;
}

static ott_status read_list(va_list list) {
    const char *arguments[ARGUMENTS];
    int count = gather(arguments, list);
    close_case(NULL);
    assert_int_equal(mem_open(&now.account), OTT_OK);
    ott_status status = config_parse(now.account, NULL, count, arguments, &now.cfg);
    return status == OTT_OK ? precision_plan_read(now.cfg, &now.plan) : status;
}

/* Reads the precision plan for a list of options, which ends with NULL. */
static const precision_plan *plan_of(const char *first, ...) {
    va_list list;
    (void)first;
    va_start(list, first);
    ott_status status = read_list(list);
    va_end(list);
    if (status != OTT_OK) fail_msg("%s", status_text());
    return &now.plan;
}
#define PLAN(...)     plan_of("", __VA_ARGS__, (const char *)NULL)
#define FP8_PLAN(...) PLAN("--train.mixed_precision=fp8", __VA_ARGS__)

/* Expects that reading a plan for these options fails with one line that contains `wanted`. The list ends
   with NULL. */
static void bad(const char *wanted, ...) {
    va_list list;
    va_start(list, wanted);
    ott_status status = read_list(list);
    va_end(list);
    if (status == OTT_OK) fail_msg("the options are accepted, but the expected error is: %s", wanted);
    assert_int_equal(status, OTT_ERR_CONFIG);
    if (!strstr(status_text(), wanted) || strchr(status_text(), '\n'))
        fail_msg("\"%s\" is not in: %s", wanted, status_text());
}
#define BAD(wanted, ...)     bad(wanted, __VA_ARGS__, (const char *)NULL)
#define FP8_BAD(wanted, ...) BAD(wanted, "--train.mixed_precision=fp8", __VA_ARGS__)

static bool same(const recipe *a, const recipe *b) {
    linear_spec x, y;
    recipe_compile(a, a->activation, &x);
    recipe_compile(b, b->activation, &y);
    return recipe_spec_equal(&x, &y);
}

static void assert_use(const cast_spec *s, const char *wanted) {
    char text[RECIPE_CAST_TEXT];
    recipe_cast_write(s, text);
    assert_string_equal(text, wanted);
}

/* Compares the six operands, in the order of the configuration's keys. */
static void assert_uses(const recipe *r, const char *const wanted[6]) {
    assert_use(&r->input.rowwise, wanted[0]);
    assert_use(&r->input.columnwise, wanted[1]);
    assert_use(&r->weight.rowwise, wanted[2]);
    assert_use(&r->weight.columnwise, wanted[3]);
    assert_use(&r->grad_output.rowwise, wanted[4]);
    assert_use(&r->grad_output.columnwise, wanted[5]);
}

/* ---- without options ---- */

static void every_recipe_is_its_row(void **state) {
    (void)state;
    int count;
    const recipe *table = recipe_table(&count);
    for (int i = 0; i < count; i++) {
        char argument[64];
        bool fp8 = recipe_gemm_is_fp8(&table[i], GEMM_COUNT);
        snprintf(argument, sizeof argument, fp8 ? "--float8.recipe_name=%s" : "--train.mixed_precision=%s",
                 table[i].name);
        const precision_plan *p = fp8 ? FP8_PLAN(argument) : PLAN(argument);
        assert_int_equal(p->phase_count, 1);
        assert_int_equal(p->rule_count, 0);
        const recipe *r = precision_at(p, 0);
        assert_string_equal(r->name, table[i].name);
        assert_string_equal(r->display, table[i].display);
        assert_int_equal(r->activation, table[i].activation);
        assert_true(same(r, &table[i]));
        assert_true(same(&p->fp8, &table[i]));
        assert_int_equal(p->row_count, count);
        for (int k = 0; k < count; k++) assert_true(same(&p->rows[k], &table[k]));
    }
}

/* If train.mixed_precision is not "fp8", every key in [float8] except the schedule is ignored. */
static void other_precisions(void **state) {
    (void)state;
    const precision_plan *p = PLAN("--float8.input=nonsense", "--float8.module=x", "--float8.margin=3");
    assert_string_equal(precision_at(p, 5)->name, "bf16");
    assert_int_equal(p->rule_count, 0);
    BAD("float8.schedule = \"bf16:1, fp8\" needs train.mixed_precision = \"fp8\"; it is \"bf16\"",
        "--float8.schedule=bf16:1, fp8");
}

/* ---- options of single recipes ---- */

static void delayed_options(void **state) {
    (void)state;
    const precision_plan *p =
        FP8_PLAN("--float8.recipe_name=delayed", "--float8.margin=-3", "--float8.amax_history_len=16",
                 "--float8.amax_compute_algo=most_recent", "--float8.reduce_amax=false");
    static const char forward[] = "e4m3 delayed margin=-3 history=16 algo=most_recent no_reduce";
    static const char backward[] = "e5m2 delayed margin=-3 history=16 algo=most_recent no_reduce";
    assert_uses(&p->fp8, (const char *const[]){forward, forward, forward, forward, backward, backward});
    assert_string_equal(p->fp8.name, "delayed"); /* the name is not "custom" */
    assert_string_equal(p->fp8.display, "DELAYED");
    p = FP8_PLAN("--float8.recipe_name=delayed", "--float8.fp8_format=e4m3");
    assert_use(&p->fp8.grad_output.rowwise, "e4m3 delayed");
    assert_use(&p->fp8.grad_output.columnwise, "e4m3 delayed");
    assert_use(&p->fp8.input.rowwise, "e4m3 delayed");
}

static void current_options(void **state) {
    (void)state;
    const precision_plan *p = FP8_PLAN("--float8.recipe_name=current", "--float8.amax_epsilon=1e-4",
                                       "--float8.round_scales_to_power_of_2", "--float8.fp8_format=e4m3");
    static const char all[] = "e4m3 te pow2 eps=1e-4";
    assert_uses(&p->fp8, (const char *const[]){all, all, all, all, all, all});
    assert_string_equal(p->fp8.name, "current");
}

static void block_options(void **state) {
    (void)state;
    const precision_plan *p = FP8_PLAN("--float8.recipe_name=block", "--float8.use_f32_scales",
                                       "--float8.amax_epsilon=0.5", "--float8.fp8_format=hybrid");
    assert_use(&p->fp8.input.columnwise, "e4m3 1x128 te eps=0.5");
    assert_use(&p->fp8.weight.rowwise, "e4m3 128x128 te eps=0.5");
    assert_use(&p->fp8.grad_output.rowwise, "e5m2 1x128 te eps=0.5");
    assert_string_equal(p->fp8.name, "block");
    assert_int_equal(p->fp8.gemm[GEMM_OUTPUT].order, SCALE_A_THEN_B);
}

static void mxfp8_options(void **state) {
    (void)state;
    const precision_plan *p =
        FP8_PLAN("--float8.recipe_name=mxfp8", "--float8.mx_scale=floor", "--float8.fp8_format=hybrid");
    assert_use(&p->fp8.input.rowwise, "e4m3 1x32 e8m0_floor");
    assert_use(&p->fp8.grad_output.columnwise, "e5m2 1x32 e8m0_floor");
    assert_string_equal(p->fp8.display, "MXFP8");
}

static void torchao_options(void **state) {
    (void)state;
    const precision_plan *p = FP8_PLAN("--float8.round_scales_to_power_of_2");
    assert_uses(&p->fp8, (const char *const[]){"e4m3 pow2", "e4m3 pow2", "e4m3 pow2", "e4m3 pow2",
                                               "e5m2 pow2", "e5m2 pow2"});
    assert_string_equal(p->fp8.name, "tensorwise");
    p = FP8_PLAN("--float8.recipe_name=rowwise_with_gw_hp", "--float8.round_scales_to_power_of_2");
    /* casts to bf16, and scales that are powers of two anyway, stay the same */
    assert_true(same(&p->fp8, recipe_find("rowwise_with_gw_hp")));
}

/* round_scales_to_power_of_2 = false gives fp32 scales without a custom recipe, except for an operand key
   that asks for powers of two. */
static void fp32_scales(void **state) {
    (void)state;
    static const char off[] = "--float8.round_scales_to_power_of_2=false", row[] = "e4m3 row";
    const precision_plan *p = FP8_PLAN("--float8.recipe_name=rowwise", off);
    assert_uses(&p->fp8, (const char *const[]){row, row, row, row, row, row});
    assert_string_equal(p->fp8.name, "rowwise");
    p = FP8_PLAN("--float8.recipe_name=rowwise_with_gw_hp", off);
    assert_uses(&p->fp8, (const char *const[]){row, "high", row, "e4m3", row, "high"});
    p = FP8_PLAN("--float8.recipe_name=block", off);
    assert_use(&p->fp8.weight.rowwise, "e4m3 128x128 te");
    assert_use(&p->fp8.grad_output.columnwise, "e4m3 1x128 te");
    assert_string_equal(p->fp8.name, "block");
    p = FP8_PLAN("--float8.recipe_name=rowwise", "--float8.weight=e4m3 row pow2", off);
    assert_use(&p->fp8.input.rowwise, row);
    assert_use(&p->fp8.weight.rowwise, "e4m3 row pow2");
}

/* Recipe options in [float8] also apply to recipes that a schedule or a rule names. */
static void options_of_other_rows(void **state) {
    (void)state;
    const precision_plan *p = FP8_PLAN("--float8.module=lm_head=delayed", "--float8.margin=2",
                                       "--float8.schedule=block:10, fp8", "--float8.use_f32_scales");
    assert_use(&p->rules[0].recipe->weight.rowwise, "e4m3 delayed margin=2");
    assert_use(&precision_at(p, 0)->weight.rowwise, "e4m3 128x128 te");
    assert_string_equal(precision_at(p, 10)->name, "tensorwise");
}

/* ---- GEMMs ---- */

static void fast_accumulation(void **state) {
    (void)state;
    const precision_plan *p =
        FP8_PLAN("--float8.fast_accum_output=false", "--float8.fast_accum_grad_input=true");
    assert_false(p->fp8.gemm[GEMM_OUTPUT].fast_accumulate);
    assert_true(p->fp8.gemm[GEMM_GRAD_INPUT].fast_accumulate);
    assert_false(p->fp8.gemm[GEMM_GRAD_WEIGHT].fast_accumulate);
    assert_string_equal(p->fp8.name, "custom");
    assert_string_equal(p->fp8.display, "CUSTOM");
    p = FP8_PLAN("--float8.fast_accum_output=true", "--float8.fast_accum_grad_weight=false");
    assert_string_equal(p->fp8.name, "tensorwise"); /* not "custom": the keys give tensorwise's values */
}

static void assert_modes(const recipe *r, accumulate_mode y, accumulate_mode dx, accumulate_mode dw) {
    assert_int_equal(r->gemm[GEMM_OUTPUT].accumulate, y);
    assert_int_equal(r->gemm[GEMM_GRAD_INPUT].accumulate, dx);
    assert_int_equal(r->gemm[GEMM_GRAD_WEIGHT].accumulate, dw);
}

static void accumulation(void **state) {
    (void)state;
    const accumulate_mode fp32 = ACCUMULATE_FP32, fast = ACCUMULATE_HOPPER_FAST,
                          split = ACCUMULATE_HOPPER_SPLIT;
    const precision_plan *p = FP8_PLAN("--float8.accumulate=hopper");
    assert_modes(&p->fp8, fast, split, split);
    assert_string_equal(p->fp8.name, "custom");
    assert_modes(&p->rows[3], fp32, fp32, fp32);
    p = FP8_PLAN("--float8.accumulate=hopper", "--float8.fast_accum_grad_weight=true",
                 "--float8.accumulate_grad_input=fp32");
    assert_modes(&p->fp8, fast, fp32, fast);
    p = FP8_PLAN("--float8.accumulate=hopper_fast", "--float8.accumulate_output=hopper_split");
    assert_modes(&p->fp8, split, fast, fast);
    p = FP8_PLAN("--float8.accumulate_grad_weight=hopper");
    assert_modes(&p->fp8, fp32, fp32, split);
    p = FP8_PLAN("--float8.accumulate=tile32", "--float8.accumulate_grad_input=fp32");
    assert_modes(&p->fp8, ACCUMULATE_TILE32, fp32, ACCUMULATE_TILE32);
    p = FP8_PLAN("--float8.accumulate_output=tile32");
    assert_modes(&p->fp8, ACCUMULATE_TILE32, fp32, fp32);
    assert_modes(p->bf16, fp32, fp32, fp32);
    /* the options change FP8 GEMMs only */
    p = FP8_PLAN("--float8.accumulate=hopper_split", "--float8.recipe_name=rowwise_with_gw_hp");
    assert_modes(&p->fp8, split, split, fp32);
    FP8_BAD("float8.accumulate_grad_weight: the grad_weight GEMM of recipe rowwise_with_gw_hp has no FP8",
            "--float8.recipe_name=rowwise_with_gw_hp", "--float8.accumulate_grad_weight=hopper_fast");
    FP8_BAD("float8.fast_accum_grad_weight = true: the grad_weight GEMM of recipe rowwise_with_gw_hp",
            "--float8.recipe_name=rowwise_with_gw_hp", "--float8.fast_accum_grad_weight=true");
}

static void accumulation_of_bf16(void **state) {
    (void)state;
    const accumulate_mode fp32 = ACCUMULATE_FP32, tiles = ACCUMULATE_TILE32;
    const precision_plan *p =
        FP8_PLAN("--float8.recipe_name=rowwise_with_gw_hp", "--train.bf16_accumulate=tile32");
    assert_modes(&p->fp8, fp32, fp32, tiles);
    assert_string_equal(p->fp8.name, "rowwise_with_gw_hp");
    assert_modes(p->bf16, tiles, tiles, tiles);
    p = PLAN("--train.mixed_precision=bf16", "--train.bf16_accumulate=tile32");
    assert_modes(&p->fp8, tiles, tiles, tiles);
    BAD("train.bf16_accumulate = \"tile32\": with train.mixed_precision = \"fp32\" no product has bf16 "
        "operands",
        "--train.mixed_precision=fp32", "--train.bf16_accumulate=tile32");
}

/* ---- operands ---- */

static void operands_follow(void **state) {
    (void)state;
    const precision_plan *p =
        FP8_PLAN("--float8.input=e4m3 row", "--float8.weight_for_grad_input=e4m3 row pow2",
                 "--float8.grad_output=e4m3 overflow", "--float8.grad_output_for_grad_weight=e4m3 row");
    assert_uses(&p->fp8, (const char *const[]){"e4m3 row", "e4m3 row", "e4m3", "e4m3 row pow2",
                                               "e4m3 overflow", "e4m3 row"});
    assert_string_equal(p->fp8.name, "custom");
    /* settings without a key keep the values of the recipe tensorwise */
    assert_true(p->fp8.gemm[GEMM_OUTPUT].fast_accumulate);
    p = FP8_PLAN("--float8.input=e4m3 tensor torchao");
    assert_string_equal(p->fp8.name, "tensorwise"); /* not "custom": the key gives tensorwise's value */
    /* float8.input replaces all options of the input's casts, except round_scales_to_power_of_2, which
       applies to every cast. */
    p = FP8_PLAN("--float8.recipe_name=current", "--float8.amax_epsilon=1e-4", "--float8.input=e4m3 te",
                 "--float8.round_scales_to_power_of_2");
    assert_use(&p->fp8.input.rowwise, "e4m3 te pow2");
    assert_use(&p->fp8.weight.rowwise, "e4m3 te pow2 eps=1e-4");
}

/* Configures a custom recipe by keys that describe a recipe of the table. The two recipes must be equal. */
static void rows_spelled_out(void **state) {
    (void)state;
    int count;
    const recipe *table = recipe_table(&count);
    for (int i = 0; i < count; i++) {
        const recipe *r = &table[i];
        char arguments[7][160];
        if (!recipe_gemm_is_fp8(r, GEMM_COUNT)) continue;
        const struct {
            const char *key;
            const cast_spec *use;
        } keys[6] = {{"input", &r->input.rowwise},
                     {"input_for_grad_weight", &r->input.columnwise},
                     {"weight", &r->weight.rowwise},
                     {"weight_for_grad_input", &r->weight.columnwise},
                     {"grad_output", &r->grad_output.rowwise},
                     {"grad_output_for_grad_weight", &r->grad_output.columnwise}};
        for (int k = 0; k < 6; k++) {
            char text[RECIPE_CAST_TEXT];
            recipe_cast_write(keys[k].use, text);
            snprintf(arguments[k], sizeof arguments[k], "--float8.%s=%s", keys[k].key, text);
        }
        snprintf(arguments[6], sizeof arguments[6], "--float8.fast_accum_output=%s",
                 r->gemm[GEMM_OUTPUT].fast_accumulate ? "true" : "false");
        const precision_plan *p =
            FP8_PLAN("--float8.recipe_name=custom", arguments[0], arguments[1], arguments[2], arguments[3],
                     arguments[4], arguments[5], arguments[6]);
        assert_true(same(&p->fp8, r));
        assert_string_equal(p->fp8.name, "custom");
    }
}

/* A custom recipe with FP8 values and all scales 1, as for a negative control of FP8 training. */
static void all_unit(void **state) {
    (void)state;
    const precision_plan *p =
        FP8_PLAN("--float8.recipe_name=custom", "--float8.input=e4m3 tensor unit",
                 "--float8.weight=e4m3 tensor unit", "--float8.grad_output=e4m3 tensor unit");
    static const char unit[] = "e4m3 unit";
    assert_uses(&p->fp8, (const char *const[]){unit, unit, unit, unit, unit, unit});
    assert_int_equal(p->fp8.input.rowwise.scale.rule, SCALE_NONE);
    for (int g = 0; g < GEMM_COUNT; g++) assert_true(recipe_gemm_is_fp8(&p->fp8, (recipe_gemm)g));
    assert_string_equal(p->fp8.name, "custom");
    assert_ptr_equal(precision_at(p, 0), &p->fp8);
}

static void custom_in_part(void **state) {
    (void)state;
    const precision_plan *p =
        FP8_PLAN("--float8.recipe_name=custom", "--float8.input=e4m3 row pow2",
                 "--float8.weight=e4m3 row pow2", "--float8.input_for_grad_weight=high",
                 "--float8.weight_for_grad_input=high", "--float8.accumulate=hopper_fast");
    assert_use(&p->fp8.input.columnwise, "high");
    assert_modes(&p->fp8, ACCUMULATE_HOPPER_FAST, ACCUMULATE_FP32, ACCUMULATE_FP32);
}

static void inconsistent_operands(void **state) {
    (void)state;
    FP8_BAD(
        "float8: recipe custom: input.rowwise is e4m3 but weight.rowwise is bf16: the output GEMM needs both",
        "--float8.recipe_name=custom", "--float8.input=e4m3");
    FP8_BAD("float8: recipe custom: input.rowwise is bf16 but weight.rowwise is e4m3", "--float8.input=high");
    FP8_BAD("float8: recipe custom: grad_output.rowwise and weight.columnwise are both e5m2",
            "--float8.weight=e5m2");
    FP8_BAD("float8: recipe custom: input.columnwise.format is e4m3 but input.rowwise.format is e5m2",
            "--float8.input=e5m2", "--float8.input_for_grad_weight=e4m3");
    FP8_BAD("both grains must split K into the same blocks", "--float8.input=e4m3 1x128");
    FP8_BAD("only one may have grain 128x128", "--float8.input=e4m3 128x128", "--float8.weight=e4m3 128x128");
    FP8_BAD("delayed scaling keeps one scale for both uses", "--float8.input=e4m3 delayed",
            "--float8.input_for_grad_weight=e4m3");
    FP8_BAD("no operand is in FP8; give float8.input", "--float8.recipe_name=custom");
    FP8_BAD("float8.recipe_name = \"tensorwise\": no operand is in FP8", "--float8.input=high",
            "--float8.weight=high", "--float8.grad_output=high");
    FP8_BAD("--float8.weight=e4m3 colum: \"colum\" is not a word", "--float8.weight=e4m3 colum");
}

/* ---- the schedule ---- */

static void assert_phase(const precision_plan *p, int at, const char *name, int64_t first) {
    assert_string_equal(p->phases[at].recipe->name, name);
    assert_int_equal(p->phases[at].first, first);
}

static void schedules(void **state) {
    (void)state;
    const precision_plan *p = FP8_PLAN("--train.max_steps=1000", "--float8.schedule=bf16:100, fp8, bf16:200");
    assert_int_equal(p->phase_count, 3);
    assert_phase(p, 0, "bf16", 0);
    assert_phase(p, 1, "tensorwise", 100);
    assert_phase(p, 2, "bf16", 800);
    assert_ptr_equal(p->phases[1].recipe, &p->fp8);
    const struct {
        int64_t step;
        const char *name;
    } steps[] = {{0, "bf16"},   {99, "bf16"},  {100, "tensorwise"}, {799, "tensorwise"},
                 {800, "bf16"}, {999, "bf16"}, {1000000, "bf16"}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        assert_string_equal(precision_at(p, steps[i].step)->name, steps[i].name);
    p = FP8_PLAN("--train.max_steps=1000", "--float8.schedule= bf16 : 10% ,rowwise:0.25,fp8,fp32:1 ");
    assert_int_equal(p->phase_count, 4);
    assert_phase(p, 0, "bf16", 0);
    assert_phase(p, 1, "rowwise", 100);
    assert_phase(p, 2, "tensorwise", 350);
    assert_phase(p, 3, "fp32", 999);
    assert_int_equal(p->phases[3].recipe->activation, OTT_F32);
    p = FP8_PLAN("--train.max_steps=7", "--float8.schedule=bf16:12.5%,fp8:5,block");
    assert_phase(p, 1, "tensorwise", 1);
    assert_phase(p, 2, "block", 6);
    p = FP8_PLAN("--train.max_steps=9", "--float8.schedule=bf16:1, DelayedScaling:2, blockwise",
                 "--float8.margin=1");
    assert_phase(p, 1, "delayed", 1);
    assert_phase(p, 2, "block", 3);
    p = FP8_PLAN("--train.max_steps=2", "--float8.schedule=fp8:1,bf16");
    assert_phase(p, 1, "bf16", 1);
    p = FP8_PLAN("--float8.schedule=custom:5,bf16", "--float8.input=e4m3 row");
    assert_ptr_equal(p->phases[0].recipe, &p->fp8);
}

static void wrong_schedules(void **state) {
    (void)state;
    static const char *const texts[][2] = {
        {"fp9", "float8.schedule = \"fp9\": recipe \"fp9\" is not one of \"fp8\", \"fp32\", \"bf16\", "
                "\"tensorwise\""},
        {"bf16:5, rowise", "; did you mean \"rowwise\"?"},
        {"bf16:5, HYBRID", "recipe \"HYBRID\": that is a choice of formats"},
        {"fp16:5, fp8", "fp16: loss scaling applies to a full run"},
        {"bf16:5,,fp8", "an entry is empty"},
        {"bf16:5,fp8,", "an entry is empty"},
        {" ", "an entry is empty"},
        {":5, fp8", "recipe \"\" is not one of"},
        {"bf16:, fp8",
         "\"bf16:\": a length is a number of steps, or a share of train.max_steps such as 10% or 0.1"},
        {"bf16:x, fp8", "\"bf16:x\": a length is"},
        {"bf16:5:6, fp8", "a length is"},
        {"bf16:%, fp8", "a length is"},
        {"bf16:nan, fp8", "a length is"},
        {"bf16:0, fp8", "\"bf16:0\": a length is at least 1 step"},
        {"bf16:-5, fp8", "at least 1 step"},
        {"bf16:100%, fp8", "\"bf16:100%\": a share must be between 0 and 1, or 0% and 100%"},
        {"bf16:1.0, fp8", "a share must be between"},
        {"bf16:-0.5, fp8", "a share must be between"},
        {"bf16:0.1%, fp8", "\"bf16:0.1%\" of train.max_steps = 100 is less than one step"},
        {"bf16:5, fp8:95",
         "every entry has a length; leave out one length, for the entry that takes the rest"},
        {"bf16, fp8", "\"bf16\" and \"fp8\" both have no length; only one entry may take the rest"},
        {"bf16:60, fp8, bf16:40",
         "entry 3 needs 40 steps, but 40 of train.max_steps = 100 are left and \"fp8\" needs at least 1"},
        {"bf16:100, fp8", "entry 1 needs 100 steps, but 100 of"},
        {"bf16:9223372036854775807, fp8, fp8:9223372036854775807", "entry 1 needs 9223372036854775807 steps"},
        {"bf16:10, fp32", "no entry is in FP8; set train.mixed_precision instead"},
        {"bf16:1\nfp8", "a length is"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char argument[160];
        snprintf(argument, sizeof argument, "--float8.schedule=%s", texts[i][0]);
        FP8_BAD(texts[i][1], "--train.max_steps=100", argument);
    }
}

static void long_schedules(void **state) {
    (void)state;
    char text[4096] = "--float8.schedule=fp8";
    for (int i = 1; i < PRECISION_PHASES_MAX; i++) strcat(text, ",bf16:1");
    const precision_plan *p = FP8_PLAN("--train.max_steps=100", text);
    assert_int_equal(p->phase_count, PRECISION_PHASES_MAX);
    assert_phase(p, PRECISION_PHASES_MAX - 1, "bf16", 99);
    strcat(text, ",bf16:1");
    FP8_BAD("more than 32 entries", "--train.max_steps=100", text);
    strcpy(text, "--float8.schedule=");
    memset(text + strlen(text), 'b', 3000);
    FP8_BAD("an entry has 3000 characters; at most 63 are allowed", text);
}

/* Changes random bytes of a schedule. The result must be valid ascending phases within the run, or a one-line
   error. */
static void hostile_schedules(void **state) {
    (void)state;
    static const char likely[] = ",: %.0195-ebfp8\n\x80";
    plan_of("", "--train.mixed_precision=fp8", "--train.max_steps=100", (const char *)NULL);
    for (uint64_t i = 0; i < 20000; i++) {
        char text[] = "bf16:10, fp8, rowwise:20%";
        for (uint64_t k = 0; k <= i % 3; k++)
            text[rng_u32(7, i, 2 * k) % (sizeof text - 1)] =
                likely[rng_u32(7, i, 2 * k + 1) % (sizeof likely - 1)];
        now.cfg->float8.schedule = text;
        if (precision_plan_read(now.cfg, &now.plan) != OTT_OK) {
            assert_true(status_text()[0] && !strchr(status_text(), '\n'));
            continue;
        }
        const precision_plan *p = &now.plan;
        assert_int_equal(p->phases[0].first, 0);
        for (int k = 1; k < p->phase_count; k++) assert_true(p->phases[k].first > p->phases[k - 1].first);
        assert_true(p->phases[p->phase_count - 1].first < 100);
    }
    now.cfg->float8.schedule = "";
}

/* ---- rules ---- */

static void rules(void **state) {
    (void)state;
    const precision_plan *p = FP8_PLAN("--float8.module=model.layers.0.*=bf16,lm_head = rowwise,*=fp8");
    assert_int_equal(p->rule_count, 3);
    assert_string_equal(p->rules[0].match, "model.layers.0.*");
    assert_string_equal(p->rules[0].recipe->name, "bf16");
    assert_string_equal(p->rules[1].match, "lm_head");
    assert_string_equal(p->rules[1].recipe->name, "rowwise");
    assert_ptr_equal(p->rules[2].recipe, &p->fp8);
    p = FP8_PLAN("--float8.module=a=b=bf16");
    assert_string_equal(p->rules[0].match, "a=b");
    FP8_BAD("float8.module \"lm_head\": a rule is written pattern=recipe, such as \"model.layers.0.*=bf16\"",
            "--float8.module=lm_head");
    FP8_BAD("float8.module \"=bf16\": the pattern is empty", "--float8.module==bf16");
    FP8_BAD("recipe \"rowise\" is not one of \"fp8\", \"bf16\", \"tensorwise\"", "--float8.module=x=rowise");
    FP8_BAD("did you mean \"rowwise\"?", "--float8.module=x=rowise");
    FP8_BAD("recipe \"\" is not one of", "--float8.module=x=");
    FP8_BAD("write bf16", "--float8.module=x=fp32");
    FP8_BAD("write bf16", "--float8.module=x=fp16");
}

static void too_many_rules(void **state) {
    (void)state;
    static char text[PRECISION_TEXT + 400] = "--float8.module=x=bf16";
    for (int i = 1; i < PRECISION_RULES_MAX; i++) strcat(text, ",x=bf16");
    assert_int_equal(FP8_PLAN(text)->rule_count, PRECISION_RULES_MAX);
    strcat(text, ",x=bf16");
    FP8_BAD("more than 128 rules", text);
    strcpy(text, "--float8.module=");
    memset(text + strlen(text), 'x', PRECISION_TEXT);
    strcat(text, "=bf16");
    FP8_BAD("all patterns together have more than 8191 characters", text);
    memset(text, 0, sizeof text);
    strcpy(text, "--float8.module=x=");
    memset(text + strlen(text), 'x', 1000);
    FP8_BAD("xxxxx...\" is not one of", text);
}

#define CASE(name) cmocka_unit_test_teardown(name, close_case)

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(every_recipe_is_its_row),
        CASE(other_precisions),
        CASE(delayed_options),
        CASE(current_options),
        CASE(block_options),
        CASE(mxfp8_options),
        CASE(torchao_options),
        CASE(fp32_scales),
        CASE(options_of_other_rows),
        CASE(fast_accumulation),
        CASE(accumulation),
        CASE(accumulation_of_bf16),
        CASE(operands_follow),
        CASE(rows_spelled_out),
        CASE(all_unit),
        CASE(custom_in_part),
        CASE(inconsistent_operands),
        CASE(schedules),
        CASE(wrong_schedules),
        CASE(long_schedules),
        CASE(hostile_schedules),
        CASE(rules),
        CASE(too_many_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
