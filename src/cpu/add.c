/* cpu/add: y = x + delta. */
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
