/* fp8/history: sequences and tables of scales that are published for TransformerEngine's fused update, and
   edge cases. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "fp8/history.h"
#include <float.h>
#include <string.h>

static cast_spec delayed(ott_dtype format, amax_algorithm algorithm, int history, int margin) {
    return (cast_spec){.format = format,
                       .policy = AMAX_DELAYED,
                       .algorithm = algorithm,
                       .history = history,
                       .scale = {.rule = SCALE_TE, .margin = margin, .infinite = FLT_MAX}};
}

static void assert_trace(const cast_spec *spec, const float *seen, const float *scales, int count) {
    float amax_history[64] = {0}, scale = 1.0f;
    for (int i = 0; i < count; i++) {
        history_update(spec, seen[i], amax_history, &scale);
        if (scale != scales[i])
            fail_msg("after step %d the scale is %g, expected %g", i, (double)scale, (double)scales[i]);
        assert_true(amax_history[spec->history - 1] == 0.0f); /* the last entry is for the next amax */
    }
}

/* TransformerEngine's update rule for E4M3 with a history of 4 amaxes. */
static void published_traces(void **state) {
    (void)state;
    const float seen[] = {2, 8, 0, 1, INFINITY, 4, .5f, .25f, .25f, .25f};
    const float max[] = {224, 56, 56, 56, 56, 56, 56, 56, 112, 896};
    const float recent[] = {224, 56, 56, 448, 448, 112, 896, 1792, 1792, 1792};
    cast_spec s = delayed(OTT_E4M3, AMAX_MAX, 4, 0);
    assert_trace(&s, seen, max, 10);
    s.algorithm = AMAX_MOST_RECENT;
    assert_trace(&s, seen, recent, 10);
}

/* The history shifts only if an amax was recorded. If it always shifted, the amax 8 would be lost, and the
   last scale would be 448. */
static void rolls_only_what_was_seen(void **state) {
    (void)state;
    const float seen[] = {8, 0, 0, 0, 0, 1}, scales[] = {56, 56, 56, 56, 56, 56};
    cast_spec s = delayed(OTT_E4M3, AMAX_MAX, 4, 0);
    assert_trace(&s, seen, scales, 6);
}

/* The amax is t + 0.25 in steps t < 40, then 0.25. A history of 31 entries loses an amax after 31 steps. The
   scale is divided by 2^margin. */
static void follows_formula(void **state) {
    (void)state;
    for (int margin = 0; margin <= 2; margin += 2)
        for (int format = 0; format < 2; format++) {
            cast_spec s = delayed(format ? OTT_E5M2 : OTT_E4M3, AMAX_MAX, 31, margin);
            float amax_history[31] = {0}, scale = 1.0f;
            for (int t = 0; t < 80; t++) {
                float amax = t < 40 ? (float)t + 0.25f : 0.25f;
                float most = t < 40 ? amax : t - 39 < 31 ? 39.25f : 0.25f;
                history_update(&s, amax, amax_history, &scale);
                assert_true(scale == (format ? 57344.0f : 448.0f) / (float)(1 << margin) / most);
            }
        }
}

static void edges(void **state) {
    (void)state;
    cast_spec s = delayed(OTT_E5M2, AMAX_MAX, 3, 0);
    float amax_history[3] = {0}, scale = 1.0f;
    history_update(&s, 0x1p-149f, amax_history, &scale); /* 57344 / 2^-149 is infinite */
    assert_true(scale == FLT_MAX);
    /* the maximum ignores a NaN, but the history shifts */
    history_update(&s, NAN, amax_history, &scale);
    assert_true(scale == FLT_MAX);
    s.algorithm = AMAX_MOST_RECENT;
    history_update(&s, NAN, amax_history, &scale);
    assert_true(scale == FLT_MAX);
    cast_spec one = delayed(OTT_E4M3, AMAX_MAX, 1, 0);
    history_update(&one, 2.0f, amax_history, &scale);
    assert_true(scale == 224.0f && amax_history[0] == 0.0f);
}

static void records_the_largest_finite(void **state) {
    (void)state;
    assert_true(history_record(0.0f, 3.0f) == 3.0f);
    assert_true(history_record(3.0f, 2.0f) == 3.0f);
    assert_true(history_record(3.0f, INFINITY) == 3.0f);
    assert_true(history_record(3.0f, NAN) == 3.0f);
}

static void a_resized_window_keeps_the_newest(void **state) {
    (void)state;
    /* the newest amax is 3; the last entry is for the next amax */
    const float amax_history[4] = {1, 2, 3, 0};
    float longer[6], shorter[2];
    const float expected_longer[6] = {0, 0, 1, 2, 3, 0}, expected_shorter[2] = {3, 0};
    history_resize(amax_history, 4, longer, 6);
    assert_memory_equal(longer, expected_longer, sizeof longer);
    history_resize(amax_history, 4, shorter, 2);
    assert_memory_equal(shorter, expected_shorter, sizeof shorter);
}

/* ---- callbacks ---- */

static float second_newest(void *user, const float *amax_history, int64_t length) {
    *(int *)user += (int)length;
    return amax_history[length - 2];
}

static float half(void *user, float amax, float old_scale, float max, int margin) {
    (void)user;
    assert_int_equal(margin, 1);
    return old_scale / 2 + 0 * amax * max;
}

static void callbacks_take_the_place_of_the_rules(void **state) {
    (void)state;
    int lengths = 0;
    delayed_callbacks own = {.amax = second_newest, .user = &lengths};
    cast_spec s = delayed(OTT_E4M3, AMAX_MAX, 4, 1);
    s.callbacks = &own;
    float amax_history[4] = {0}, scale = 1.0f;
    history_update(&s, 7.0f, amax_history, &scale);
    assert_true(scale == 1.0f); /* the amax before was 0, which gives scale 1 */
    history_update(&s, 9.0f, amax_history, &scale);
    assert_true(scale == 448.0f / 2 / 7);
    assert_int_equal(lengths, 8);
    own.scale = half;
    history_update(&s, 1.0f, amax_history, &scale);
    assert_true(scale == 448.0f / 2 / 7 / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_traces),
        cmocka_unit_test(rolls_only_what_was_seen),
        cmocka_unit_test(follows_formula),
        cmocka_unit_test(edges),
        cmocka_unit_test(records_the_largest_finite),
        cmocka_unit_test(a_resized_window_keeps_the_newest),
        cmocka_unit_test(callbacks_take_the_place_of_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
