/* Tensors of the public API: values, memory, and wrong calls. */
#include "api/api_case.h"
#include "backend/open.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void test_read_and_write(void **state) {
    (void)state;
    ott_context *context = open_context();
    const float values[6] = {0, 1.0f, -2.5f, 1.0f / 3, 70000.0f, 1e-9f};
    const ott_dtype dtypes[] = {OTT_F32, OTT_BF16, OTT_F16, OTT_I32};
    const float third[] = {1.0f / 3, 0x1.56p-2f, 0x1.554p-2f, 0};
    for (int d = 0; d < 4; d++) {
        float back[6];
        ott_tensor *t = open_tensor(context, dtypes[d], 2, 3);
        succeed(ott_tensor_read(t, back, 6));
        for (int i = 0; i < 6; i++) assert_true(back[i] == 0);
        succeed(ott_tensor_fill(t, 3));
        succeed(ott_tensor_read(t, back, 6));
        for (int i = 0; i < 6; i++) assert_true(back[i] == 3);
        succeed(ott_tensor_write(t, values, 6));
        succeed(ott_tensor_read(t, back, 6));
        assert_true(back[0] == 0 && back[1] == 1 && back[3] == third[d]);
        assert_int_equal(ott_tensor_dtype(t), dtypes[d]);
        assert_int_equal(ott_tensor_rows(t), 2);
        assert_int_equal(ott_tensor_columns(t), 3);
        assert_non_null(ott_tensor_data(t));
        ott_tensor_close(t);
    }
    ott_context_close(context);
}

static void test_only_memory_of_the_device_is_wrapped(void **state) {
    (void)state;
    float mine[4] = {1, 2, 3, 4}, back[4];
    ott_tensor *t, *inside;
    ott_context *context = open_context();
    const char *device_name = getenv(TEST_DEVICE_VARIABLE);
    if (device_name && *device_name) {
        assert_error(ott_tensor_wrap(context, mine, OTT_F32, 2, 2, &t), OTT_ERR_ARGUMENT,
                     "data is not in the memory of the context's device");
        assert_null(t);
    }
    t = open_tensor(context, OTT_F32, 2, 2);
    succeed(ott_tensor_write(t, mine, 4));
    succeed(ott_tensor_wrap(context, (float *)ott_tensor_data(t) + 2, OTT_F32, 1, 2, &inside));
    succeed(ott_tensor_read(inside, back, 2));
    assert_true(back[0] == 3 && back[1] == 4);
    ott_tensor_close(inside);
    ott_tensor_close(t);
    ott_context_close(context);
}

static void test_wrapped_memory_is_the_callers(void **state) {
    (void)state;
    needs_host_memory();
    float mine[4] = {1, 2, 3, 4}, back[4];
    ott_tensor *t;
    ott_context *context = open_context();
    succeed(ott_tensor_wrap(context, mine, OTT_F32, 2, 2, &t));
    assert_ptr_equal(ott_tensor_data(t), mine);
    mine[2] = 7;
    succeed(ott_tensor_read(t, back, 4));
    assert_true(back[2] == 7);
    succeed(ott_tensor_write(t, (const float[]){5, 6, 7, 8}, 4));
    assert_true(mine[0] == 5 && mine[3] == 8);
    ott_tensor_close(t);
    assert_true(mine[1] == 6);
    assert_error(ott_tensor_wrap(context, NULL, OTT_F32, 2, 2, &t), OTT_ERR_ARGUMENT,
                 "ott_tensor_wrap: data is NULL");
    assert_null(t);
    assert_error(ott_tensor_wrap(context, (char *)mine + 1, OTT_F32, 1, 2, &t), OTT_ERR_ARGUMENT,
                 "not aligned for fp32");
    /* a tensor without elements needs no memory */
    succeed(ott_tensor_wrap(context, NULL, OTT_F32, 0, 8, &t));
    assert_int_equal(ott_tensor_columns(t), 8);
    succeed(ott_tensor_read(t, back, 0));
    ott_tensor_close(t);
    ott_context_close(context);
}

/* The same seed gives the same numbers in every format. Their standard deviation is near `deviation`. */
static void test_fill_normal(void **state) {
    (void)state;
    enum { N = 4096 };
    static float a[N], b[N];
    double sum = 0, squares = 0;
    ott_context *context = open_context();
    ott_tensor *x = open_tensor(context, OTT_F32, 64, 64), *y = open_tensor(context, OTT_F32, 32, 128);
    succeed(ott_tensor_fill_normal(x, 5, 0.5));
    succeed(ott_tensor_fill_normal(y, 5, 0.5));
    succeed(ott_tensor_read(x, a, N));
    succeed(ott_tensor_read(y, b, N));
    assert_memory_equal(a, b, sizeof a);
    succeed(ott_tensor_fill_normal(y, 6, 0.5));
    succeed(ott_tensor_read(y, b, N));
    assert_memory_not_equal(a, b, sizeof a);
    for (int i = 0; i < N; i++) {
        sum += a[i];
        squares += a[i] * a[i];
    }
    assert_true(fabs(sum / N) < 0.03 && fabs(sqrt(squares / N) - 0.5) < 0.03);
    ott_tensor *half = open_tensor(context, OTT_BF16, 64, 64);
    succeed(ott_tensor_convert(x, half));
    succeed(ott_tensor_read(half, b, N));
    for (int i = 0; i < N; i++) assert_true(fabsf(a[i] - b[i]) <= fabsf(a[i]) * 0x1p-8f);
    ott_context_close(context); /* three tensors are still open */
}

/* ---- misuse ---- */

static void test_wrong_arguments(void **state) {
    (void)state;
    float values[8] = {0};
    ott_tensor *t = (ott_tensor *)values;
    ott_context *context = open_context();
    assert_error(ott_tensor_open(NULL, OTT_F32, 1, 1, &t), OTT_ERR_ARGUMENT,
                 "ott_tensor_open: context is NULL");
    assert_error(ott_tensor_open(context, OTT_F32, 1, 1, NULL), OTT_ERR_ARGUMENT,
                 "ott_tensor_open: out is NULL");
    assert_error(ott_tensor_open(context, OTT_E4M3, 1, 1, &t), OTT_ERR_DTYPE,
                 "ott_tensor_open: dtype is e4m3, which needs scales");
    assert_null(t);
    assert_error(ott_tensor_open(context, OTT_I64, 1, 1, &t), OTT_ERR_DTYPE, "dtype is i64");
    assert_error(ott_tensor_open(context, (ott_dtype)99, 1, 1, &t), OTT_ERR_DTYPE, "unknown");
    assert_error(ott_tensor_open(context, OTT_F32, -1, 4, &t), OTT_ERR_SHAPE, "[-1, 4] is not a shape");
    assert_error(ott_tensor_open(context, OTT_F32, INT64_MAX, 4, &t), OTT_ERR_SHAPE, "is not a shape");
    assert_error(ott_tensor_open(context, OTT_F32, INT64_C(1) << 50, 16, &t), OTT_ERR_MEMORY, "a tensor");
    assert_null(t);
    t = open_tensor(context, OTT_F32, 2, 4);
    assert_error(ott_tensor_read(t, values, 7), OTT_ERR_SHAPE, "ott_tensor_read: count = 7");
    assert_error(ott_tensor_write(t, values, 9), OTT_ERR_SHAPE, "the tensor is [2, 4]: 8 elements");
    assert_error(ott_tensor_read(t, NULL, 8), OTT_ERR_ARGUMENT, "ott_tensor_read: out is NULL");
    assert_error(ott_tensor_write(t, NULL, 8), OTT_ERR_ARGUMENT, "ott_tensor_write: values is NULL");
    assert_error(ott_tensor_fill_normal(t, 1, -1.0), OTT_ERR_ARGUMENT, "deviation = -1");
    assert_error(ott_tensor_fill_normal(t, 1, NAN), OTT_ERR_ARGUMENT, "deviation = ");
    ott_tensor *tokens = open_tensor(context, OTT_I32, 2, 4), *wide = open_tensor(context, OTT_F32, 2, 5);
    assert_error(ott_tensor_fill_normal(tokens, 1, 1.0), OTT_ERR_DTYPE, "ott_tensor_fill_normal: t is i32");
    assert_error(ott_tensor_convert(t, tokens), OTT_ERR_DTYPE, "ott_tensor_convert: to is i32");
    assert_error(ott_tensor_convert(t, wide), OTT_ERR_SHAPE, "to is [2, 5], but from is [2, 4]");
    ott_context_close(context);
}

static void test_invalid_handles(void **state) {
    (void)state;
    float value;
    char noise[64];
    memset(noise, 0x5a, sizeof noise);
    ott_context *context = open_context();
    ott_tensor *t = open_tensor(context, OTT_F32, 1, 1), *other = open_tensor(context, OTT_F32, 1, 1);
    ott_recipe *r = open_recipe(context, "tensorwise");
    assert_error(ott_tensor_read(NULL, &value, 1), OTT_ERR_ARGUMENT, "ott_tensor_read: t is NULL");
    ott_tensor_close(t);
    assert_error(ott_tensor_read(t, &value, 1), OTT_ERR_ARGUMENT,
                 "ott_tensor_read: t is a tensor that has been closed");
    assert_error(ott_tensor_convert(other, t), OTT_ERR_ARGUMENT,
                 "ott_tensor_convert: to is a tensor that has");
    assert_error(ott_tensor_write((ott_tensor *)r, &value, 1), OTT_ERR_ARGUMENT,
                 "ott_tensor_write: t is a recipe; give a tensor");
    assert_error(ott_tensor_read((ott_tensor *)noise, &value, 1), OTT_ERR_ARGUMENT,
                 "no object of this library");
    assert_int_equal(ott_tensor_rows(t), -1);
    assert_non_null(strstr(ott_error_text(), "ott_tensor_rows: t is a tensor that has been closed"));
    assert_int_equal(ott_tensor_columns(NULL), -1);
    assert_int_equal(ott_tensor_dtype(t), OTT_DTYPE_COUNT);
    assert_null(ott_tensor_data(t));
    /* closing a tensor twice has no effect, nor does closing NULL or an object of another kind */
    ott_tensor_close(t);
    ott_tensor_close((ott_tensor *)r);
    ott_tensor_close(NULL);
    ott_recipe_close((ott_recipe *)other);
    succeed(ott_tensor_read(other, &value, 1));
    ott_recipe_close(r);
    ott_tensor_close(other);
    ott_context_close(context);
}

static void test_another_context(void **state) {
    (void)state;
    ott_context *one = open_context(), *two = open_context();
    ott_tensor *a = open_tensor(one, OTT_F32, 2, 2), *b = open_tensor(two, OTT_F32, 2, 2);
    assert_error(ott_tensor_convert(a, b), OTT_ERR_ARGUMENT,
                 "ott_tensor_convert: to belongs to another context");
    ott_tensor_close(a);
    ott_context_close(one);
    float values[4];
    succeed(ott_tensor_read(b, values, 4)); /* tensor b still works */
    ott_tensor_close(b);
    ott_context_close(two);
}

/* Opening and closing tensors in a loop needs no more memory. Late use of the last closed ones is an
   error. */
static void test_closed_tensors_are_recycled(void **state) {
    (void)state;
    enum { MANY = 5000 };
    float value;
    static ott_tensor *closed[MANY];
    ott_context *context = open_context();
    int fresh = 0;
    for (int i = 0; i < MANY; i++) {
        closed[i] = open_tensor(context, OTT_F32, 1, 1);
        assert_true(ott_tensor_rows(closed[i]) == 1);
        ott_tensor_close(closed[i]);
        bool seen = i >= 1025 && closed[i] == closed[i - 1025];
        fresh += !seen;
    }
    assert_true(fresh <= 1100);
    for (int i = MANY - 1000; i < MANY; i++)
        assert_error(ott_tensor_read(closed[i], &value, 1), OTT_ERR_ARGUMENT, "has been closed");
    ott_context_close(context);
}

/* Opening a context checks the device's name and copies it. */
static void a_context_uses_its_device(void **state) {
    (void)state;
    char name[] = "cpu";
    ott_context_options o;
    ott_context *own = NULL;
    ott_tensor *t;
    ott_context_options_init(&o);
    o.device = "cuda:0";
    assert_error(ott_context_open(&o, &own), OTT_ERR_UNSUPPORTED, "no CUDA backend was found");
    assert_null(own);
    o.device = "cpi";
    assert_error(ott_context_open(&o, &own), OTT_ERR_ARGUMENT, "did you mean \"cpu\"?");
    o.device = name;
    succeed(ott_context_open(&o, &own));
    name[0] = 'x';
    succeed(ott_tensor_open(own, OTT_F32, 2, 2, &t));
    ott_context_close(own);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_and_write),
        cmocka_unit_test(test_only_memory_of_the_device_is_wrapped),
        cmocka_unit_test(test_wrapped_memory_is_the_callers),
        cmocka_unit_test(test_fill_normal),
        cmocka_unit_test(test_wrong_arguments),
        cmocka_unit_test(test_invalid_handles),
        cmocka_unit_test(test_another_context),
        cmocka_unit_test(test_closed_tensors_are_recycled),
        cmocka_unit_test(a_context_uses_its_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
