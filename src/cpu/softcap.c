/* cpu/softcap: soft-caps logits to (-cap, cap), and computes the gradient of the softcap. */
#include "cpu/rows.h"

SIMD void forward_row(ott_dtype d, const void *x, float cap, void *y, int64_t columns) {
    v16 limit = v16_set1(cap);
    BY_16(c, lanes, columns, { v16_put(y, d, c, v16_softcap(v16_get(x, d, c, lanes), limit), lanes); });
}

static void forward_task(void *argument, int thread, int threads) {
    const softcap_forward_args *a = argument;
    int64_t t, end;
    pool_share(a->y->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++)
        WITH_DTYPE(a->y->dtype, D, forward_row(D, row_of(a->x, t), a->cap, row_of(a->y, t), a->y->columns));
}

ott_status ISA(softcap_forward)(exec *cx, const softcap_forward_args *a) {
    cpu_run_sized(cx, tensor_count(*a->y), forward_task, (void *)a);
    return OTT_OK;
}

SIMD void backward_row(ott_dtype d, const void *dy, const void *y, float cap, void *dx, int64_t columns) {
    v16 limit = v16_set1(cap), one = v16_set1(1.0f);
    BY_16(c, lanes, columns, {
        v16 r = v16_div(v16_get(y, d, c, lanes), limit);
        v16_put(dx, d, c, v16_mul(v16_get(dy, d, c, lanes), v16_fma(v16_neg(r), r, one)), lanes);
    });
}

static void backward_task(void *argument, int thread, int threads) {
    const softcap_backward_args *a = argument;
    int64_t t, end;
    pool_share(a->dx->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++)
        WITH_DTYPE(
            a->dx->dtype, D,
            backward_row(D, row_of(a->dy, t), row_of(a->y, t), a->cap, row_of(a->dx, t), a->dx->columns));
}

ott_status ISA(softcap_backward)(exec *cx, const softcap_backward_args *a) {
    cpu_run_sized(cx, tensor_count(*a->dx), backward_task, (void *)a);
    return OTT_OK;
}
