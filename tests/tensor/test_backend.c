/* Backend capabilities: sizes are rounded up to the alignment, and recipes that cannot run are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tensor/gpus.h"

static void sizes_are_rounded_up(void **state) {
    (void)state;
    const backend_capabilities can = {.alignment = 256};
    assert_int_equal(backend_align(&can, 0), 0);
    assert_int_equal(backend_align(&can, 1), 256);
    assert_int_equal(backend_align(&can, 256), 256);
    assert_int_equal(backend_align(&can, INT64_MAX - 256), INT64_MAX - 255);
}

static void one_that_can_do_all_refuses_nothing(void **state) {
    (void)state;
    const backend_capabilities can = {.name = "all"};
    int count;
    const recipe *table = recipe_table(&count);
    for (int i = 0; i < count; i++) assert_int_equal(backend_check_recipe(&can, &table[i]), OTT_OK);
}

static void refused(const backend_capabilities *can, const char *name, const char *why) {
    assert_int_equal(backend_check_recipe(can, recipe_find(name)), OTT_ERR_UNSUPPORTED);
    assert_string_equal(status_text(), why);
}

static void accepted(const backend_capabilities *can, const char *name) {
    assert_int_equal(backend_check_recipe(can, recipe_find(name)), OTT_OK);
}

static void a_granularity_it_has_not(void **state) {
    (void)state;
    const backend_capabilities can = {
        .name = "cuda",
        .no_granularity = {[GRANULARITY_1X32] = "needs compute capability 10.0",
                           [GRANULARITY_1X128] = "needs compute capability 9.0"}};
    refused(&can, "mxfp8",
            "recipe mxfp8 cannot run on the device cuda: input in 1x32: needs compute capability 10.0; "
            "supported: "
            "fp32, bf16, fp16, tensorwise, rowwise, rowwise_with_gw_hp, delayed, current");
    refused(&can, "block",
            "recipe block cannot run on the device cuda: input in 1x128: needs compute capability 9.0; "
            "supported: "
            "fp32, bf16, fp16, tensorwise, rowwise, rowwise_with_gw_hp, delayed, current");
    accepted(&can, "rowwise");
}

static void a_format_it_has_not(void **state) {
    (void)state;
    backend_capabilities can = {.name = "old", .no_format = {[OTT_E5M2] = "it has E4M3 only"}};
    refused(
        &can, "tensorwise",
        "recipe tensorwise cannot run on the device old: grad_output in e5m2: it has E4M3 only; supported: "
        ""
        "fp32, bf16, fp16, rowwise, rowwise_with_gw_hp, block, mxfp8");
    accepted(&can, "rowwise");
    can.no_format[OTT_BF16] = "it has no BF16";
    refused(&can, "bf16",
            "recipe bf16 cannot run on the device old: input in bf16: it has no BF16; supported: "
            "fp32, fp16, rowwise, block, mxfp8");
}

static void a_sum_it_has_not(void **state) {
    (void)state;
    backend_capabilities can = {.name = "gpu"};
    for (int i = 0; i < ACCUMULATE_MODES; i++) can.no_accumulate[i] = "the library sums in its own order";
    refused(&can, "fp32",
            "recipe fp32 cannot run on the device gpu: the output GEMM in fp32: the library sums in its own "
            "order; "
            "supported: none");
    can.no_accumulate[ACCUMULATE_FP32] = NULL;
    recipe hopper = *recipe_find("tensorwise");
    hopper.gemm[GEMM_GRAD_WEIGHT].accumulate = ACCUMULATE_HOPPER_SPLIT;
    assert_int_equal(backend_check_recipe(&can, &hopper), OTT_ERR_UNSUPPORTED);
    assert_non_null(strstr(status_text(), "the grad_weight GEMM in hopper split: the library"));
    accepted(&can, "tensorwise");
}

static bool runs(int capability, const char *name) {
    backend_capabilities can;
    gpu_fill_capabilities(capability, "gpu", false, &can);
    return backend_can_run(&can, recipe_find(name));
}

static void gpus_run_what_their_capability_allows(void **state) {
    (void)state;
    static const struct {
        const char *recipe;
        bool runs[5];
    } rows[] = {{"bf16", {true, true, true, true, true}},
                {"tensorwise", {false, true, true, true, true}},
                {"rowwise", {false, true, true, true, true}},
                {"block", {false, false, true, false, false}},
                {"mxfp8", {false, false, false, true, true}}};
    static const int capabilities[5] = {80, 89, 90, 100, 120};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int c = 0; c < 5; c++) assert_int_equal(runs(capabilities[c], rows[r].recipe), rows[r].runs[c]);
}

/* Each row is found by its name, although "H200" is a part of "GH200". A family is one run of rows with one
   compute capability. */
static void rows_of_gpus_are_in_order(void **state) {
    (void)state;
    for (int i = 0; i < GPU_COUNT; i++) {
        const gpu *g = &gpu_table[i];
        assert_true(gpu_peak(g->name, OTT_F32) == g->fp32 && gpu_peak(g->name, OTT_E4M3) == g->fp8);
        assert_true((g->fp8 > 0) == runs(g->capability, "tensorwise"));
        for (int j = 0; j < i; j++) {
            bool same = strcmp(gpu_table[j].family, g->family) == 0;
            assert_true(same == (gpu_table[j].capability == g->capability));
            assert_true(gpu_table[j].capability <= g->capability);
        }
    }
    assert_true(gpu_peak("NVIDIA H100 80GB HBM3", OTT_BF16) == 989e12);
    assert_true(gpu_peak("NVIDIA H100 PCIe", OTT_BF16) == 756e12);
    assert_true(gpu_peak("NVIDIA GH200 480GB", OTT_E5M2) == 1979e12);
    assert_true(gpu_peak("NVIDIA H100 80GB HBM3 MIG 3g.40gb", OTT_BF16) == 3 / 7.0 * 989e12);
    assert_true(gpu_peak("CPU shim", OTT_BF16) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_rounded_up),      cmocka_unit_test(one_that_can_do_all_refuses_nothing),
        cmocka_unit_test(a_granularity_it_has_not),  cmocka_unit_test(a_format_it_has_not),
        cmocka_unit_test(a_sum_it_has_not),          cmocka_unit_test(gpus_run_what_their_capability_allows),
        cmocka_unit_test(rows_of_gpus_are_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
