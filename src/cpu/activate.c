/* cpu/activate: MLP activations other than SiLU, gated or not. */
#include "cpu/rows.h"

/* f(x) and f'(x) of an activation function (tensor/rules/activate.h) for 16 values of x. */
typedef struct activated16 {
    v16 value, slope;
} activated16;

SIMD activated16 tanh_of(v16 x) {
    v16 square = v16_mul(x, x), one = v16_set1(ACTIVATE_TANH_1);
    v16 share = v16_sigmoid(v16_mul(x, v16_fma(v16_set1(ACTIVATE_TANH_3), square, one)));
    v16 y = v16_mul(x, share), inner = v16_fma(v16_set1(ACTIVATE_TANH_3_SLOPE), square, one);
    return (activated16){y, v16_fma(v16_mul(y, v16_sub(v16_set1(1.0f), share)), inner, share)};
}

SIMD activated16 erf_of(v16 x) {
    v16 one = v16_set1(1.0f), t = v16_div(one, v16_fma(v16_set1(ACTIVATE_ERF_T), v16_abs(x), one));
    v16 e = v16_exp(v16_mul(v16_set1(-0.5f), v16_mul(x, x)));
    v16 p = v16_fma(v16_set1(ACTIVATE_ERF_5), t, v16_set1(ACTIVATE_ERF_4));
    p = v16_fma(p, t, v16_set1(ACTIVATE_ERF_3));
    p = v16_fma(p, t, v16_set1(ACTIVATE_ERF_2));
    p = v16_fma(p, t, v16_set1(ACTIVATE_ERF_1));
    v16 tail = v16_mul(v16_mul(p, t), e);
    v16 share = v16_select(v16_lt(x, v16_zero()), tail, v16_sub(one, tail));
    return (activated16){v16_mul(x, share), v16_fma(v16_mul(x, v16_set1(ACTIVATE_DENSITY)), e, share)};
}

SIMD activated16 relu_of(v16 x) {
    v16m is_off = v16_le(x, v16_zero());
    return (activated16){v16_select(is_off, v16_zero(), x), v16_select(is_off, v16_zero(), v16_set1(1.0f))};
}

SIMD activated16 activated_of(activate_kind kind, v16 x) {
    if (kind == ACTIVATE_GELU_TANH) return tanh_of(x);
    return kind == ACTIVATE_GELU_ERF ? erf_of(x) : relu_of(x);
}

SIMD void forward_row(ott_dtype d, const activate_forward_args *a, int64_t t) {
    const void *gate = row_of(a->gate, t), *up = row_of(a->up, t);
    void *y = row_of(a->y, t);
    BY_16(c, lanes, a->y->columns, {
        v16 value = activated_of(a->kind, v16_get(gate, d, c, lanes)).value;
        if (up) value = v16_mul(value, v16_get(up, d, c, lanes));
        v16_put(y, d, c, value, lanes);
    });
}

static void forward_task(void *argument, int thread, int threads) {
    const activate_forward_args *a = argument;
    int64_t t, end;
    pool_share(a->y->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++) WITH_DTYPE(a->y->dtype, D, forward_row(D, a, t));
}

ott_status ISA(activate_forward)(exec *cx, const activate_forward_args *a) {
    cpu_run_sized(cx, tensor_count(*a->y), forward_task, (void *)a);
    return ISA(quantize_list)(cx, a->y, a->q);
}

SIMD void backward_row(ott_dtype d, const activate_backward_args *a, int64_t t) {
    const void *dy = row_of(a->dy, t), *gate = row_of(a->gate, t), *up = row_of(a->up, t);
    void *dgate = row_of(a->dgate, t), *dup = row_of(a->dup, t);
    BY_16(c, lanes, a->dy->columns, {
        v16 grad = v16_get(dy, d, c, lanes);
        activated16 f = activated_of(a->kind, v16_get(gate, d, c, lanes));
        v16 through = up ? v16_mul(grad, v16_get(up, d, c, lanes)) : grad;
        if (dup) v16_put(dup, d, c, v16_mul(grad, f.value), lanes);
        v16_put(dgate, d, c, v16_mul(through, f.slope), lanes);
    });
}

static void backward_task(void *argument, int thread, int threads) {
    const activate_backward_args *a = argument;
    int64_t t, end;
    pool_share(a->dy->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++) WITH_DTYPE(a->dy->dtype, D, backward_row(D, a, t));
}

ott_status ISA(activate_backward)(exec *cx, const activate_backward_args *a) {
    if ((a->up == NULL) != (a->dup == NULL))
        return status_fail(OTT_ERR_ARGUMENT, "activate_backward: give both up and dup, or neither");
    cpu_run_sized(cx, tensor_count(*a->dy), backward_task, (void *)a);
    TRY(ISA(quantize_list)(cx, a->dgate, a->q_gate));
    return a->dup ? ISA(quantize_list)(cx, a->dup, a->q_up) : OTT_OK;
}
