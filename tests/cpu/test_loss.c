/* Compares cross-entropy with double, and tests edge cases: huge logits, ignored rows, NaN, targets out of
   range. */
#include "arrays.h"
#include "devices.h"
#include <math.h>

static devices all; /* all.list[0] is scalar code on one thread */

/* Compares loss and gradient of row t with double. */
static void compare_row(const tensor *logits, const tensor *gradient, int64_t t, int64_t target,
                        double loss) {
    double most = -INFINITY, sum = 0.0;
    for (int64_t j = 0; j < logits->columns; j++) most = fmax(most, element(logits, t, j));
    for (int64_t j = 0; j < logits->columns; j++) sum += exp(element(logits, t, j) - most);
    double wanted = most + log(sum) - element(logits, t, target);
    assert_true(fabs(loss - wanted) <= 1e-6 * (1.0 + fabs(most)));
    for (int64_t j = 0; j < logits->columns; j++) {
        double g = 0.5 * (exp(element(logits, t, j) - most) / sum - (j == target));
        assert_true(fabs(element(gradient, t, j) - g) <= 1e-6);
    }
}

static void test_near_double(void **state) {
    (void)state;
    const int32_t targets[] = {0, 999, 17, 500, 3};
    for (int i = 0; i < all.count; i++) {
        exec cx = {.device = all.list[i]};
        tensor logits = make_random(OTT_F32, 5, 1000, 1.0f, 1), given, target = make_integers(targets, 5);
        tensor loss = make_zeros(OTT_F32, 1, 5), scale = make_zeros(OTT_F32, 1, 1);
        *(float *)scale.data = 0.5f;
        float *x = logits.data;
        for (int j = 0; j < 1000; j++)
            x[1000 + j] *= 3e4f, x[2000 + j] -= 1e6f, x[3000 + j] = j == 500 ? 1e30f : -1e30f;
        given = make_zeros(OTT_F32, 5, 1000);
        memcpy(given.data, logits.data, (size_t)tensor_bytes(logits));
        succeed(op_cross_entropy(
            &cx, &(cross_entropy_args){
                     .logits = &logits, .target = &target, .grad_scale = &scale, .loss = &loss}));
        for (int t = 0; t < 5; t++) compare_row(&given, &logits, t, targets[t], element(&loss, 0, t));
        free(logits.data), free(given.data), free(target.data), free(loss.data), free(scale.data);
    }
}

static void test_ignored_and_nan_rows(void **state) {
    (void)state;
    const int32_t targets[] = {-100, 4, -1};
    for (int i = 0; i < all.count; i++) {
        exec cx = {.device = all.list[i]};
        tensor logits = make_random(OTT_BF16, 3, 37, 5.0f, 1), target = make_integers(targets, 3);
        tensor loss = make_random(OTT_F32, 1, 3, 1.0f, 2), scale = make_random(OTT_F32, 1, 1, 1.0f, 3);
        cast_store(logits.data, OTT_BF16, 2, NAN); /* a NaN in an ignored row has no effect */
        /* changes a logit that is neither the largest logit nor the target's logit */
        cast_store(logits.data, OTT_BF16, 37 + 20, NAN);
        succeed(op_cross_entropy(
            &cx, &(cross_entropy_args){
                     .logits = &logits, .target = &target, .grad_scale = &scale, .loss = &loss}));
        assert_true(element(&loss, 0, 0) == 0.0 && element(&loss, 0, 2) == 0.0);
        assert_true(isnan(element(&loss, 0, 1)));
        for (int j = 0; j < 37; j++) {
            assert_true(element(&logits, 0, j) == 0.0 && element(&logits, 2, j) == 0.0);
            assert_true(isnan(element(&logits, 1, j)));
        }
        free(logits.data), free(target.data), free(loss.data), free(scale.data);
    }
}

static void test_without_gradient_logits_stay(void **state) {
    (void)state;
    exec cx = {.device = all.list[all.count - 1]};
    tensor logits = make_random(OTT_F32, 2, 50, 1.0f, 1), same = make_random(OTT_F32, 2, 50, 1.0f, 1);
    tensor target = make_integers((const int32_t[]){3, -1}, 2), loss = make_zeros(OTT_F32, 1, 2);
    succeed(
        op_cross_entropy(&cx, &(cross_entropy_args){.logits = &logits, .target = &target, .loss = &loss}));
    assert_memory_equal(logits.data, same.data, (size_t)tensor_bytes(same));
    free(logits.data), free(same.data), free(target.data), free(loss.data);
}

/* An index out of range is an error. The message names the index, and nothing beyond the table is read. */
static void test_indices_out_of_range(void **state) {
    (void)state;
    exec cx = {.device = all.list[0]};
    tensor logits = make_zeros(OTT_F32, 2, 50), loss = make_zeros(OTT_F32, 1, 2),
           y = make_zeros(OTT_F32, 2, 50);
    tensor high = make_integers((const int32_t[]){3, 50}, 2),
           low = make_integers((const int32_t[]){-1, 0}, 2);
    assert_int_equal(
        op_cross_entropy(&cx, &(cross_entropy_args){.logits = &logits, .target = &high, .loss = &loss}),
        OTT_ERR_INTERNAL);
    assert_string_equal(status_text(), "cross_entropy: target[1] is 50; it must be below 50");
    assert_int_equal(
        op_embedding_forward(&cx, &(embedding_forward_args){.token = &low, .table = &logits, .y = &y}),
        OTT_ERR_INTERNAL);
    assert_string_equal(status_text(),
                        "embedding_forward: token[0] is -1; it must be at least 0 and below 2");
    assert_int_equal(
        op_embedding_backward(&cx, &(embedding_backward_args){.token = &high, .dy = &y, .dtable = &logits}),
        OTT_ERR_INTERNAL);
    free(logits.data), free(loss.data), free(y.data), free(high.data), free(low.data);
}

static int open_devices(void **state) {
    (void)state;
    all = devices_open();
    return 0;
}
static int close_devices(void **state) {
    (void)state;
    devices_close(&all);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_near_double),
        cmocka_unit_test(test_ignored_and_nan_rows),
        cmocka_unit_test(test_without_gradient_logits_stay),
        cmocka_unit_test(test_indices_out_of_range),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
