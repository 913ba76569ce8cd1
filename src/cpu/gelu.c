/* cpu/gelu: GELU by tanh (Hendrycks and Gimpel 2016), alone or gated. */
#include "cpu/rows.h"

/* sig of tensor/ops.def. */
SIMD v16 gelu_sigmoid(v16 x, v16 square) {
    return v16_sigmoid(v16_mul(x, v16_fma(v16_set1(0.07135481627f), square, v16_set1(1.5957691216f))));
}

SIMD void forward_row(ott_dtype d, const void *gate, const void *up, void *y, int64_t columns) {
    BY_16(c, lanes, columns, {
        v16 x = v16_get(gate, d, c, lanes), g = v16_mul(x, gelu_sigmoid(x, v16_mul(x, x)));
        if (up) g = v16_mul(g, v16_get(up, d, c, lanes));
        v16_put(y, d, c, g, lanes);
    });
}

static void forward_task(void *argument, int thread, int threads) {
    const gelu_forward_args *a = argument;
    int64_t t, end;
    pool_share(a->y->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++)
        WITH_DTYPE(a->y->dtype, D,
                   forward_row(D, row_of(a->gate, t), row_of(a->up, t), row_of(a->y, t), a->y->columns));
}

ott_status ISA(gelu_forward)(exec *cx, const gelu_forward_args *a) {
    cpu_run_sized(cx, tensor_count(*a->y), forward_task, (void *)a);
    return ISA(quantize_list)(cx, a->y, a->q);
}

SIMD void backward_row(ott_dtype d, const gelu_backward_args *a, int64_t t) {
    const void *dy = row_of(a->dy, t), *gate = row_of(a->gate, t), *up = row_of(a->up, t);
    void *dgate = row_of(a->dgate, t), *dup = row_of(a->dup, t);
    v16 one = v16_set1(1.0f);
    BY_16(c, lanes, a->dy->columns, {
        v16 x = v16_get(gate, d, c, lanes), grad = v16_get(dy, d, c, lanes), square = v16_mul(x, x);
        v16 sig = gelu_sigmoid(x, square), g = v16_mul(x, sig);
        v16 inner = v16_fma(v16_set1(0.21406444881f), square, v16_set1(1.5957691216f));
        v16 slope = v16_fma(v16_mul(g, v16_sub(one, sig)), inner, sig);
        v16 through = up ? v16_mul(grad, v16_get(up, d, c, lanes)) : grad;
        if (dup) v16_put(dup, d, c, v16_mul(grad, g), lanes);
        v16_put(dgate, d, c, v16_mul(through, slope), lanes);
    });
}

static void backward_task(void *argument, int thread, int threads) {
    const gelu_backward_args *a = argument;
    int64_t t, end;
    pool_share(a->dy->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++) WITH_DTYPE(a->dy->dtype, D, backward_row(D, a, t));
}

ott_status ISA(gelu_backward)(exec *cx, const gelu_backward_args *a) {
    if ((a->up == NULL) != (a->dup == NULL))
        return status_fail(OTT_ERR_ARGUMENT, "gelu_backward: one of up and dup is given, the other is not");
    cpu_run_sized(cx, tensor_count(*a->dy), backward_task, (void *)a);
    TRY(ISA(quantize_list)(cx, a->dgate, a->q_gate));
    return a->dup ? ISA(quantize_list)(cx, a->dup, a->q_up) : OTT_OK;
}
