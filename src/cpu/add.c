/* cpu/add: y = x + delta, and y = x * factor. */
#include "cpu/rows.h"

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
