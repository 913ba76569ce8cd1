/* cpu/swiglu: the gated SiLU activation of the MLP (Shazeer 2020). */
#include "cpu/rows.h"

SIMD void forward_row(ott_dtype d, const void *gate, const void *up, void *y, int64_t columns) {
    BY_16(c, lanes, columns, {
        v16 g = v16_get(gate, d, c, lanes);
        v16_put(y, d, c, v16_mul(v16_mul(g, v16_sigmoid(g)), v16_get(up, d, c, lanes)), lanes);
    });
}

static void forward_task(void *argument, int thread, int threads) {
    const swiglu_forward_args *a = argument;
    int64_t t, end;
    pool_share(a->y->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++)
        WITH_DTYPE(a->y->dtype, D,
                   forward_row(D, row_of(a->gate, t), row_of(a->up, t), row_of(a->y, t), a->y->columns));
}

ott_status ISA(swiglu_forward)(exec *cx, const swiglu_forward_args *a) {
    cpu_run_sized(cx, tensor_count(*a->y), forward_task, (void *)a);
    return ISA(quantize_list)(cx, a->y, a->q);
}

SIMD void backward_row(ott_dtype d, const swiglu_backward_args *a, int64_t t) {
    const void *dy = row_of(a->dy, t), *gate = row_of(a->gate, t), *up = row_of(a->up, t);
    void *dgate = row_of(a->dgate, t), *dup = row_of(a->dup, t);
    v16 one = v16_set1(1.0f);
    BY_16(c, lanes, a->dy->columns, {
        v16 g = v16_get(gate, d, c, lanes), u = v16_get(up, d, c, lanes), grad = v16_get(dy, d, c, lanes);
        v16 sig = v16_sigmoid(g);
        v16 slope = v16_mul(sig, v16_fma(g, v16_sub(one, sig), one));
        v16_put(dup, d, c, v16_mul(grad, v16_mul(g, sig)), lanes);
        v16_put(dgate, d, c, v16_mul(v16_mul(grad, u), slope), lanes);
    });
}

static void backward_task(void *argument, int thread, int threads) {
    const swiglu_backward_args *a = argument;
    int64_t t, end;
    pool_share(a->dy->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++) WITH_DTYPE(a->dy->dtype, D, backward_row(D, a, t));
}

ott_status ISA(swiglu_backward)(exec *cx, const swiglu_backward_args *a) {
    cpu_run_sized(cx, tensor_count(*a->dy), backward_task, (void *)a);
    TRY(ISA(quantize_list)(cx, a->dgate, a->q_gate));
    return ISA(quantize_list)(cx, a->dup, a->q_up);
}
