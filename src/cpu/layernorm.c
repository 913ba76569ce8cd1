/* cpu/layernorm: layer normalization (Ba et al. 2016) after adding to the residual stream. */
#include "cpu/rows.h"

/* Computes h by row_add_delta. Returns the sum of h (SUM16 in ops.def). */
SIMD float residual_row(ott_dtype d, const void *x, const void *delta, void *h, int64_t columns) {
    v16 sum = v16_zero();
    BY_16(c, lanes, columns, {
        v16 value = row_add_delta(d, x, delta, h, c, lanes);
        sum = v16_add(sum, value);
    });
    return v16_fold_sum(sum);
}

/* Returns the sum of (h - mean)^2 over a row, in the order SUM16 of tensor/ops.def. */
SIMD float squares_of_row(ott_dtype d, const void *h, float mean, int64_t columns) {
    v16 squares = v16_zero(), middle = v16_set1(mean);
    BY_16(c, lanes, columns, {
        v16 x = v16_sub(v16_get(h, d, c, lanes), middle);
        if (lanes < 16) x = v16_keep_n(x, lanes);
        squares = v16_fma(x, x, squares);
    });
    return v16_fold_sum(squares);
}

SIMD void scale_row(ott_dtype d, const layernorm_forward_args *a, const void *h, float mean, float rstd,
                    void *y) {
    v16 middle = v16_set1(mean), factor = v16_set1(rstd);
    const float *weight = a->weight->data, *bias = a->bias ? a->bias->data : NULL;
    BY_16(c, lanes, a->x->columns, {
        v16 xhat = v16_mul(v16_sub(v16_get(h, d, c, lanes), middle), factor);
        v16 w = v16_get(weight, OTT_F32, c, lanes);
        v16_put(y, d, c, bias ? v16_fma(xhat, w, v16_get(bias, OTT_F32, c, lanes)) : v16_mul(xhat, w), lanes);
    });
}

SIMD void forward_row(ott_dtype d, const layernorm_forward_args *a, int64_t t) {
    int64_t columns = a->x->columns;
    const void *x = row_of(a->x, t);
    void *h = row_of(a->h, t);
    float mean = residual_row(d, x, row_of(a->delta, t), h, columns) / (float)columns;
    if (h) x = h;
    float rstd = 1.0f / sqrtf(squares_of_row(d, x, mean, columns) / (float)columns + a->eps);
    ((float *)row_of(a->statistics, 0))[t] = mean;
    ((float *)row_of(a->statistics, 1))[t] = rstd;
    scale_row(d, a, x, mean, rstd, row_of(a->y, t));
}

static void forward_task(void *argument, int thread, int threads) {
    const layernorm_forward_args *a = argument;
    int64_t t, end;
    pool_share(a->x->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++) WITH_DTYPE(a->x->dtype, D, forward_row(D, a, t));
}

ott_status ISA(layernorm_forward)(exec *cx, const layernorm_forward_args *a) {
    if (a->delta != NULL && a->h == NULL)
        return status_fail(OTT_ERR_ARGUMENT,
                           "layernorm_forward: delta is given, but h, the output for x + delta, is not");
    cpu_run_sized(cx, tensor_count(*a->x), forward_task, (void *)a);
    return ISA(quantize_list)(cx, a->y, a->q);
}

/* For columns [at, at + n): wdy = dy * weight, xhat = (h - mean) * rstd. Other lanes are 0. */
typedef struct gradient_pair {
    v16 wdy, xhat;
} gradient_pair;

SIMD gradient_pair load_pair(ott_dtype d, const void *dy, const void *h, const float *weight, v16 mean,
                             v16 rstd, int64_t at, int64_t n) {
    gradient_pair p;
    p.wdy = v16_mul(v16_get(dy, d, at, n), v16_get(weight, OTT_F32, at, n));
    p.xhat = v16_mul(v16_sub(v16_get(h, d, at, n), mean), rstd);
    if (n < 16) p.xhat = v16_keep_n(p.xhat, n);
    return p;
}

SIMD void input_gradient_row(ott_dtype d, const layernorm_backward_args *a, int64_t t) {
    const void *dy = row_of(a->dy, t), *h = row_of(a->h, t), *dresidual = row_of(a->dresidual, t);
    const float *weight = a->weight->data; /* [D], one weight for each column */
    void *dx = row_of(a->dx, t);
    int64_t columns = a->dy->columns;
    v16 mean = v16_set1(((const float *)row_of(a->statistics, 0))[t]), sum = v16_zero(), both = v16_zero();
    v16 rstd = v16_set1(((const float *)row_of(a->statistics, 1))[t]);
    BY_16(c, lanes, columns, {
        gradient_pair p = load_pair(d, dy, h, weight, mean, rstd, c, lanes);
        sum = v16_add(sum, p.wdy);
        both = v16_fma(p.wdy, p.xhat, both);
    });
    v16 m = v16_set1(v16_fold_sum(sum) / (float)columns), k = v16_set1(v16_fold_sum(both) / (float)columns);
    BY_16(c, lanes, columns, {
        gradient_pair p = load_pair(d, dy, h, weight, mean, rstd, c, lanes);
        v16 g = v16_mul(v16_sub(v16_sub(p.wdy, m), v16_mul(p.xhat, k)), rstd);
        if (dresidual) g = v16_add(v16_get(dresidual, d, c, lanes), g);
        v16_put(dx, d, c, g, lanes);
    });
}

/* Adds dy * (h - mean) * rstd of row t to dweight[first, first + columns). */
SIMD void weight_gradient_row(ott_dtype d, const layernorm_backward_args *a, int64_t t, int64_t first,
                              int64_t columns) {
    float *dweight = (float *)a->dweight->data + first;
    const void *dy = row_of(a->dy, t), *h = row_of(a->h, t);
    v16 mean = v16_set1(((const float *)row_of(a->statistics, 0))[t]);
    v16 rstd = v16_set1(((const float *)row_of(a->statistics, 1))[t]);
    BY_16(c, lanes, columns, {
        v16 xhat = v16_mul(v16_sub(v16_get(h, d, first + c, lanes), mean), rstd);
        v16 sum = v16_fma(v16_get(dy, d, first + c, lanes), xhat, v16_get(dweight, OTT_F32, c, lanes));
        v16_put(dweight, OTT_F32, c, sum, lanes);
    });
}

/* Computes the thread's rows of dx, then its columns of dweight. dweight does not depend on dx. */
static void backward_task(void *argument, int thread, int threads) {
    const layernorm_backward_args *a = argument;
    int64_t rows = a->dy->rows, t, end, first, last;
    pool_share(rows, 1, thread, threads, &t, &end);
    for (; t < end; t++) WITH_DTYPE(a->dy->dtype, D, input_gradient_row(D, a, t));
    if (!a->dweight) return;
    pool_share(a->dy->columns, 16, thread, threads, &first, &last);
    for (t = 0; t < rows; t++) WITH_DTYPE(a->dy->dtype, D, weight_gradient_row(D, a, t, first, last - first));
}

ott_status ISA(layernorm_backward)(exec *cx, const layernorm_backward_args *a) {
    cpu_run_sized(cx, tensor_count(*a->dy), backward_task, (void *)a);
    return ISA(quantize_list)(cx, a->dx, a->q);
}
