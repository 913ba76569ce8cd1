/* Tests of fp8/dtype. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "fp8/dtype.h"
#include <float.h>
#include <string.h>

static void names_are_distinct_and_round_trip(void **state) {
    (void)state;
    for (int d = 0; d < OTT_DTYPE_COUNT; d++) {
        ott_dtype found = OTT_DTYPE_COUNT;
        assert_true(dtype_from_safetensors_name(dtype_safetensors_name((ott_dtype)d), &found));
        assert_int_equal(found, d);
        for (int e = 0; e < d; e++)
            assert_string_not_equal(dtype_name((ott_dtype)d), dtype_name((ott_dtype)e));
        assert_string_not_equal(dtype_name((ott_dtype)d), "unknown");
    }
    assert_string_equal(dtype_name(OTT_BF16), "bf16");
    assert_string_equal(dtype_name(OTT_F32), "fp32");
    assert_string_equal(dtype_name(OTT_DTYPE_COUNT), "unknown");
    assert_string_equal(dtype_safetensors_name(OTT_E4M3), "F8_E4M3");
}

static void unknown_safetensors_names_are_refused(void **state) {
    (void)state;
    ott_dtype found = OTT_U8;
    assert_false(dtype_from_safetensors_name("F64", &found));
    assert_false(dtype_from_safetensors_name("bf16", &found));
    assert_false(dtype_from_safetensors_name("", &found));
    assert_int_equal(found, OTT_U8);
}

static void sizes(void **state) {
    (void)state;
    static const int64_t bytes[OTT_DTYPE_COUNT] = {
        [OTT_F32] = 4,  [OTT_BF16] = 2, [OTT_F16] = 2, [OTT_E4M3] = 1, [OTT_E5M2] = 1,
        [OTT_E8M0] = 1, [OTT_U8] = 1,   [OTT_I32] = 4, [OTT_I64] = 8,
    };
    for (int d = 0; d < OTT_DTYPE_COUNT; d++) {
        assert_int_equal(dtype_bytes((ott_dtype)d), bytes[d]);
        assert_int_equal(dtype_count_bytes((ott_dtype)d, 7), 7 * bytes[d]);
        assert_int_equal(dtype_count_bytes((ott_dtype)d, 0), 0);
    }
}

static void families(void **state) {
    (void)state;
    for (int d = 0; d < OTT_DTYPE_COUNT; d++) {
        assert_int_equal(dtype_is_fp8((ott_dtype)d), d == OTT_E4M3 || d == OTT_E5M2);
        assert_int_equal(dtype_is_high_precision((ott_dtype)d),
                         d == OTT_F32 || d == OTT_BF16 || d == OTT_F16);
    }
}

static void maxima(void **state) {
    (void)state;
    assert_true(dtype_max(OTT_E4M3) == 448.0f);
    assert_true(dtype_max(OTT_E5M2) == 57344.0f);
    assert_true(dtype_max(OTT_F16) == 65504.0f);
    assert_true(dtype_max(OTT_F32) == FLT_MAX);
    uint32_t bits;
    float bf16 = dtype_max(OTT_BF16);
    memcpy(&bits, &bf16, 4);
    assert_int_equal(bits, 0x7f7f0000);
    for (int d = 0; d < OTT_DTYPE_COUNT; d++) assert_true(dtype_max((ott_dtype)d) > 0.0f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_distinct_and_round_trip),
        cmocka_unit_test(unknown_safetensors_names_are_refused),
        cmocka_unit_test(sizes),
        cmocka_unit_test(families),
        cmocka_unit_test(maxima),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
