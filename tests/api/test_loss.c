/* Losses of the public API: values and gradients compared with sums in double; and wrong calls. */
#include "api/api_case.h"
#include <math.h>
#include <string.h>

enum { ROWS = 37, COLUMNS = 101, COUNT = ROWS * COLUMNS };

static void read_all(const ott_tensor *t, float *out) {
    succeed(ott_tensor_read(t, out, ott_tensor_rows(t) * ott_tensor_columns(t)));
}

static void assert_close(double value, double expected, double tolerance) {
    if (!(fabs(value - expected) <= tolerance * (1 + fabs(expected))))
        fail_msg("%.9g, expected %.9g", value, expected);
}

/* ---- mean squared error ---- */

static void test_mse(void **state) {
    (void)state;
    static float y[COUNT], t[COUNT], g[COUNT];
    const ott_dtype dtypes[] = {OTT_F32, OTT_BF16, OTT_F16};
    const double roundings[] = {1e-6, 1.0 / 256, 1.0 / 2048};
    ott_context *context = open_context();
    for (int d = 0; d < 3; d++) {
        double loss = -1, sum = 0;
        ott_tensor *output = open_normal(context, dtypes[d], ROWS, COLUMNS, 3);
        ott_tensor *target = open_normal(context, OTT_F32, ROWS, COLUMNS, 4);
        ott_tensor *gradient = open_tensor(context, dtypes[d], ROWS, COLUMNS);
        succeed(ott_mse_loss(output, target, &loss, gradient));
        read_all(output, y), read_all(target, t), read_all(gradient, g);
        for (int i = 0; i < COUNT; i++) {
            double error = (double)y[i] - (double)t[i];
            sum += error * error;
            assert_close(g[i] * COUNT, 2 * error, roundings[d]);
        }
        assert_close(loss, sum / COUNT, 1e-6);
        ott_tensor_close(output), ott_tensor_close(target), ott_tensor_close(gradient);
    }
    ott_context_close(context);
}

/* ---- cross-entropy ---- */

static int is_ignored(int row) {
    return row % 5 == 2;
}

static ott_tensor *open_targets(ott_context *context, int64_t rows, int64_t columns) {
    ott_tensor *t = open_tensor(context, OTT_I32, rows, columns);
    float id[ROWS];
    for (int i = 0; i < ROWS; i++) id[i] = is_ignored(i) ? -100 : (float)(i * 7 % COLUMNS);
    succeed(ott_tensor_write(t, id, ROWS));
    return t;
}

/* Computes a row's loss and its unscaled gradient in double. */
static double row_loss(const float *x, int target, double *gradient) {
    double sum = 0;
    for (int j = 0; j < COLUMNS; j++) sum += exp((double)x[j]);
    for (int j = 0; j < COLUMNS; j++) gradient[j] = exp((double)x[j]) / sum - (j == target);
    return log(sum) - (double)x[target];
}

static void test_cross_entropy(void **state) {
    (void)state;
    static float x[COUNT], after[COUNT], g[COUNT];
    const ott_dtype dtypes[] = {OTT_F32, OTT_BF16, OTT_F16};
    const double roundings[] = {1e-6, 1.0 / 256, 1.0 / 1024};
    ott_context *context = open_context();
    for (int d = 0; d < 3; d++) {
        double loss = -1, sum = 0, expected[COLUMNS];
        int counted = 0;
        ott_tensor *logits = open_normal(context, dtypes[d], ROWS, COLUMNS, 5);
        ott_tensor *target = d ? open_targets(context, 1, ROWS) : open_targets(context, ROWS, 1);
        ott_tensor *gradient = open_tensor(context, dtypes[d], ROWS, COLUMNS);
        read_all(logits, x);
        succeed(ott_cross_entropy_loss(logits, target, &loss, gradient));
        read_all(logits, after), read_all(gradient, g);
        assert_memory_equal(x, after, sizeof x);
        for (int i = 0; i < ROWS; i++) counted += !is_ignored(i);
        for (int i = 0; i < ROWS; i++) {
            double row = row_loss(x + i * COLUMNS, i * 7 % COLUMNS, expected);
            if (!is_ignored(i)) sum += row;
            for (int j = 0; j < COLUMNS; j++)
                assert_close(g[i * COLUMNS + j] * counted, is_ignored(i) ? 0 : expected[j], roundings[d]);
        }
        assert_close(loss, sum / counted, 1e-6);
        ott_tensor_close(logits), ott_tensor_close(target), ott_tensor_close(gradient);
    }
    ott_context_close(context);
}

/* ---- both losses ---- */

static void test_null_results(void **state) {
    (void)state;
    static float apart[COUNT], in_place[COUNT];
    double loss = 0, loss_only = 0;
    ott_context *context = open_context();
    ott_tensor *x = open_normal(context, OTT_BF16, ROWS, COLUMNS, 6);
    ott_tensor *ids = open_targets(context, 1, ROWS), *g = open_tensor(context, OTT_BF16, ROWS, COLUMNS);
    ott_tensor *t = open_normal(context, OTT_BF16, ROWS, COLUMNS, 7);
    succeed(ott_cross_entropy_loss(x, ids, &loss, g));
    read_all(g, apart);
    succeed(ott_cross_entropy_loss(x, ids, &loss_only, NULL));
    assert_true(loss == loss_only);
    succeed(ott_mse_loss(x, t, &loss, NULL));
    succeed(ott_mse_loss(x, t, NULL, g));
    succeed(ott_cross_entropy_loss(x, ids, NULL, x)); /* the gradient replaces the logits */
    read_all(x, in_place);
    assert_memory_equal(apart, in_place, sizeof apart);
    ott_context_close(context);
}

static void losses_on(int threads, double *loss, float *gradient) {
    ott_context_options o;
    ott_context *context;
    ott_context_options_init(&o);
    o.threads = threads;
    succeed(ott_context_open(&o, &context));
    ott_tensor *x = open_normal(context, OTT_F32, ROWS, COLUMNS, 8), *ids = open_targets(context, 1, ROWS);
    ott_tensor *t = open_normal(context, OTT_F32, ROWS, COLUMNS, 9);
    succeed(ott_mse_loss(x, t, &loss[0], NULL));
    succeed(ott_cross_entropy_loss(x, ids, &loss[1], x));
    read_all(x, gradient);
    ott_context_close(context);
}

static void test_same_bits_on_any_threads(void **state) {
    (void)state;
    static float one[COUNT], three[COUNT];
    double loss_one[2], loss_three[2];
    losses_on(1, loss_one, one);
    losses_on(3, loss_three, three);
    assert_memory_equal(loss_one, loss_three, sizeof loss_one);
    assert_memory_equal(one, three, sizeof one);
}

static void test_misuse(void **state) {
    (void)state;
    double loss = 5;
    ott_context *context = open_context(), *elsewhere = open_context();
    ott_tensor *x = open_tensor(context, OTT_BF16, 4, 3), *small = open_tensor(context, OTT_BF16, 3, 3);
    ott_tensor *floats = open_tensor(context, OTT_F32, 4, 3), *none = open_tensor(context, OTT_BF16, 0, 3);
    ott_tensor *ids = open_tensor(context, OTT_I32, 1, 4), *square = open_tensor(context, OTT_I32, 2, 2);
    ott_tensor *foreign = open_tensor(elsewhere, OTT_BF16, 4, 3);
    assert_error(ott_mse_loss(NULL, x, &loss, NULL), OTT_ERR_ARGUMENT, "ott_mse_loss: output is NULL");
    assert_error(ott_mse_loss(x, foreign, &loss, NULL), OTT_ERR_ARGUMENT,
                 "target belongs to another context");
    assert_error(ott_mse_loss(x, small, &loss, NULL), OTT_ERR_SHAPE,
                 "target is [3, 3], but output is [4, 3]");
    assert_error(ott_mse_loss(x, x, &loss, floats), OTT_ERR_DTYPE, "gradient is fp32, but output is bf16");
    assert_error(ott_mse_loss(x, x, &loss, small), OTT_ERR_SHAPE, "gradient is [3, 3], but output is [4, 3]");
    assert_error(ott_mse_loss(x, x, &loss, foreign), OTT_ERR_ARGUMENT, "gradient belongs to another context");
    assert_error(ott_mse_loss(none, none, &loss, NULL), OTT_ERR_SHAPE, "output is [0, 3]");
    assert_error(ott_mse_loss(ids, ids, &loss, NULL), OTT_ERR_DTYPE, "output is i32");
    assert_error(ott_cross_entropy_loss(x, x, &loss, NULL), OTT_ERR_DTYPE, "target is bf16; give i32");
    assert_error(ott_cross_entropy_loss(x, square, &loss, NULL), OTT_ERR_SHAPE,
                 "target is [2, 2], but the 4 rows of logits need [1, 4]");
    succeed(ott_tensor_write(ids, (const float[]){0, 0, 3, 0}, 4));
    assert_error(ott_cross_entropy_loss(x, ids, &loss, x), OTT_ERR_ARGUMENT,
                 "target[2] is 3: give 0 to 2, a column of logits, or -100");
    succeed(ott_tensor_write(ids, (const float[]){0, 0, -1, 0}, 4));
    assert_error(ott_cross_entropy_loss(x, ids, &loss, x), OTT_ERR_ARGUMENT, "target[2] is -1");
    succeed(ott_tensor_fill(ids, -100));
    assert_error(ott_cross_entropy_loss(x, ids, &loss, x), OTT_ERR_ARGUMENT, "every target is -100");
    assert_true(loss == 5);
    ott_context_close(elsewhere);
    ott_context_close(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mse),          cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_null_results), cmocka_unit_test(test_same_bits_on_any_threads),
        cmocka_unit_test(test_misuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
