/* cpu/norm: RMSNorm (Zhang and Sennrich 2019) after adding to the residual stream. */
#include "cpu/rows.h"

/* Computes h by row_add_delta. Returns the sum of h^2 (SUM16 in ops.def). */
SIMD float residual_row(ott_dtype d, const void *x, const void *delta, void *h, int64_t columns) {
    v16 squares = v16_zero();
    BY_16(c, lanes, columns, {
        v16 value = row_add_delta(d, x, delta, h, c, lanes);
        squares = v16_fma(value, value, squares);
    });
    return v16_fold_sum(squares);
}

SIMD v16 weight_at(const float *weight, bool one_plus, int64_t at, int64_t n) {
    v16 w = v16_get(weight, OTT_F32, at, n);
    return one_plus ? v16_add(v16_set1(1.0f), w) : w;
}

SIMD void scale_row(ott_dtype d, const rmsnorm_forward_args *a, const void *h, float rstd, void *y) {
    v16 factor = v16_set1(rstd);
    BY_16(c, lanes, a->x->columns, {
        v16 xhat = v16_mul(v16_get(h, d, c, lanes), factor);
        v16_put(y, d, c, v16_mul(xhat, weight_at(a->weight->data, a->one_plus, c, lanes)), lanes);
    });
}

SIMD void forward_row(ott_dtype d, const rmsnorm_forward_args *a, int64_t t) {
    int64_t columns = a->x->columns;
    const void *x = row_of(a->x, t);
    void *h = row_of(a->h, t);
    float squares = residual_row(d, x, row_of(a->delta, t), h, columns);
    float rstd = 1.0f / sqrtf(squares / (float)columns + a->eps);
    ((float *)a->rstd->data)[t] = rstd;
    scale_row(d, a, h ? h : x, rstd, row_of(a->y, t));
}

static void forward_task(void *argument, int thread, int threads) {
    const rmsnorm_forward_args *a = argument;
    int64_t t, end;
    pool_share(a->x->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++) WITH_DTYPE(a->x->dtype, D, forward_row(D, a, t));
}

ott_status ISA(rmsnorm_forward)(exec *cx, const rmsnorm_forward_args *a) {
    if (a->delta != NULL && a->h == NULL)
        return status_fail(OTT_ERR_ARGUMENT,
                           "rmsnorm_forward: delta is given, but h, the output for x + delta, is not");
    cpu_run_sized(cx, tensor_count(*a->x), forward_task, (void *)a);
    return ISA(quantize_list)(cx, a->y, a->q);
}

/* For columns [at, at + n): wdy = dy * weight, xhat = h * rstd. Other lanes are 0 for any rstd. */
typedef struct gradient_pair {
    v16 wdy, xhat;
} gradient_pair;

SIMD gradient_pair load_pair(ott_dtype d, const void *dy, const void *h, const float *weight, bool one_plus,
                             v16 rstd, int64_t at, int64_t n) {
    gradient_pair p;
    p.wdy = v16_mul(v16_get(dy, d, at, n), weight_at(weight, one_plus, at, n));
    p.xhat = v16_mul(v16_get(h, d, at, n), rstd);
    if (n < 16) p.xhat = v16_keep_n(p.xhat, n);
    return p;
}

SIMD void input_gradient_row(ott_dtype d, const rmsnorm_backward_args *a, int64_t t) {
    const void *dy = row_of(a->dy, t), *h = row_of(a->h, t), *dresidual = row_of(a->dresidual, t);
    const float *weight = a->weight->data; /* [D], one weight for each column */
    void *dx = row_of(a->dx, t);
    int64_t columns = a->dy->columns;
    v16 rstd = v16_set1(((const float *)a->rstd->data)[t]), sum = v16_zero();
    BY_16(c, lanes, columns, {
        gradient_pair p = load_pair(d, dy, h, weight, a->one_plus, rstd, c, lanes);
        sum = v16_fma(p.wdy, p.xhat, sum);
    });
    v16 mean = v16_set1(v16_fold_sum(sum) / (float)columns);
    BY_16(c, lanes, columns, {
        gradient_pair p = load_pair(d, dy, h, weight, a->one_plus, rstd, c, lanes);
        v16 g = v16_mul(v16_sub(p.wdy, v16_mul(p.xhat, mean)), rstd);
        if (dresidual) g = v16_add(v16_get(dresidual, d, c, lanes), g);
        v16_put(dx, d, c, g, lanes);
    });
}

/* Adds dy * h * rstd of rows [t, t + count) to dweight[first, first + columns). count: a constant. */
SIMD void weight_gradient_rows(ott_dtype d, const rmsnorm_backward_args *a, int64_t t, int count,
                               int64_t first, int64_t columns) {
    const float *rstd = (const float *)a->rstd->data + t;
    float *dweight = (float *)a->dweight->data + first;
    const char *dy = row_of(a->dy, t), *h = row_of(a->h, t);
    int64_t ld_dy = a->dy->ld, ld_h = a->h->ld;
    BY_16(c, lanes, columns, {
        v16 sum = v16_get(dweight, OTT_F32, c, lanes);
        for (int r = 0; r < count; r++) {
            v16 xhat = v16_mul(v16_get(h, d, r * ld_h + first + c, lanes), v16_set1(rstd[r]));
            sum = v16_fma(v16_get(dy, d, r * ld_dy + first + c, lanes), xhat, sum);
        }
        v16_put(dweight, OTT_F32, c, sum, lanes);
    });
}

/* Computes the thread's rows of dx, then its columns of dweight. dweight does not depend on dx. */
static void backward_task(void *argument, int thread, int threads) {
    const rmsnorm_backward_args *a = argument;
    int64_t rows = a->dy->rows, t, end, first, last;
    pool_share(rows, 1, thread, threads, &t, &end);
    for (; t < end; t++) WITH_DTYPE(a->dy->dtype, D, input_gradient_row(D, a, t));
    if (!a->dweight) return;
    pool_share(a->dy->columns, 16, thread, threads, &first, &last);
    for (t = 0; t + 4 <= rows; t += 4)
        WITH_DTYPE(a->dy->dtype, D, weight_gradient_rows(D, a, t, 4, first, last - first));
    for (; t < rows; t++) WITH_DTYPE(a->dy->dtype, D, weight_gradient_rows(D, a, t, 1, first, last - first));
}

ott_status ISA(rmsnorm_backward)(exec *cx, const rmsnorm_backward_args *a) {
    cpu_run_sized(cx, tensor_count(*a->dy), backward_task, (void *)a);
    return ISA(quantize_list)(cx, a->dx, a->q);
}
