/* cpu/add: adds two tensors; multiplies a tensor by one factor or by a factor for each column; computes
   channel scales (tensor/rules/smooth.h). */
#include "cpu/rows.h"
#include "tensor/rules/smooth.h"

SIMD void add_row(ott_dtype d, ott_dtype delta_d, const void *x, const void *delta, void *y,
                  int64_t columns) {
    BY_16(c, lanes, columns,
          { v16_put(y, d, c, v16_add(v16_get(x, d, c, lanes), v16_get(delta, delta_d, c, lanes)), lanes); });
}

static void add_task(void *argument, int thread, int threads) {
    const add_args *a = argument;
    int64_t t, end;
    pool_share(a->y->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++)
        WITH_DTYPE(
            a->y->dtype, Y,
            WITH_DTYPE(a->delta->dtype, D,
                       add_row(Y, D, row_of(a->x, t), row_of(a->delta, t), row_of(a->y, t), a->y->columns)));
}

ott_status ISA(add)(exec *cx, const add_args *a) {
    cpu_run_sized(cx, tensor_count(*a->y), add_task, (void *)a);
    return OTT_OK;
}

SIMD void multiply_row(ott_dtype d, const void *x, float factor, void *y, int64_t columns) {
    v16 f = v16_set1(factor);
    BY_16(c, lanes, columns, { v16_put(y, d, c, v16_mul(v16_get(x, d, c, lanes), f), lanes); });
}

static void multiply_task(void *argument, int thread, int threads) {
    const multiply_args *a = argument;
    int64_t t, end;
    pool_share(a->y->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++)
        WITH_DTYPE(a->y->dtype, Y,
                   multiply_row(Y, row_of(a->x, t), a->factor, row_of(a->y, t), a->y->columns));
}

ott_status ISA(multiply)(exec *cx, const multiply_args *a) {
    cpu_run_sized(cx, tensor_count(*a->y), multiply_task, (void *)a);
    return OTT_OK;
}

SIMD void columns_row(ott_dtype d, ott_dtype y_d, const void *x, const float *factor, void *y,
                      bool accumulate, int64_t columns) {
    BY_16(c, lanes, columns, {
        v16 value = v16_get(x, d, c, lanes), k = v16_get(factor, OTT_F32, c, lanes);
        value = accumulate ? v16_fma(value, k, v16_get(y, y_d, c, lanes)) : v16_mul(value, k);
        v16_put(y, y_d, c, value, lanes);
    });
}

static void columns_task(void *argument, int thread, int threads) {
    const multiply_columns_args *a = argument;
    int64_t t, end;
    pool_share(a->y->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++)
        WITH_DTYPE(a->y->dtype, Y,
                   WITH_DTYPE(a->x->dtype, X,
                              columns_row(X, Y, row_of(a->x, t), a->factor->data, row_of(a->y, t),
                                          a->accumulate, a->y->columns)));
}

ott_status ISA(multiply_columns)(exec *cx, const multiply_columns_args *a) {
    cpu_run_sized(cx, tensor_count(*a->y), columns_task, (void *)a);
    return OTT_OK;
}

SIMD void raise_row(ott_dtype d, const void *x, float *amax, int64_t columns) {
    BY_16(c, lanes, columns, {
        v16 most = v16_amax(v16_get(amax, OTT_F32, c, lanes), v16_get(x, d, c, lanes));
        v16_put(amax, OTT_F32, c, most, lanes);
    });
}

/* Sets `power` to the largest magnitude of each column of the thread's share, then to the columns' scales. */
static void channel_scales_task(void *argument, int thread, int threads) {
    const channel_scales_args *a = argument;
    int64_t first, end;
    pool_share(a->x->columns, 16, thread, threads, &first, &end);
    tensor x = tensor_columns(*a->x, first, end - first);
    float *power = (float *)a->power->data + first, *inverse = power + a->power->ld;
    for (int64_t c = 0; c < x.columns; c++) power[c] = 0;
    for (int64_t r = 0; r < x.rows; r++)
        WITH_DTYPE(x.dtype, D, raise_row(D, row_of(&x, r), power, x.columns));
    for (int64_t c = 0; c < x.columns; c++) {
        int n = smooth_power(fmath_bits(power[c]) & 0x7fffffffu);
        power[c] = fmath_power_of_two(n);
        inverse[c] = fmath_power_of_two(-n);
    }
}

ott_status ISA(channel_scales)(exec *cx, const channel_scales_args *a) {
    cpu_run_sized(cx, tensor_count(*a->x), channel_scales_task, (void *)a);
    return OTT_OK;
}
