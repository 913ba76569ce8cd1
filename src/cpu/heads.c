/* cpu/heads: the ops join_heads and sum_heads, for latent attention, in which heads share columns. */
#include "cpu/rows.h"
#include "tensor/rules/heads_check.h"

SIMD void copy_columns(ott_dtype d, const void *x, int64_t from, void *y, int64_t to, int64_t count) {
    BY_16(c, lanes, count, v16_put(y, d, to + c, v16_get(x, d, from + c, lanes), lanes););
}

SIMD void zero_columns(ott_dtype d, void *y, int64_t to, int64_t count) {
    BY_16(c, lanes, count, v16_put(y, d, to + c, v16_zero(), lanes););
}

SIMD void join_row(ott_dtype d, const join_heads_args *a, int64_t t) {
    const void *x = row_of(a->x, t), *tail = row_of(a->tail, t);
    void *y = row_of(a->y, t);
    int64_t x_width = a->x->columns / a->heads, y_width = a->y->columns / a->heads;
    int64_t tail_width = tail ? a->tail->columns / a->tail_heads : 0, free_columns = y_width - a->count;
    int64_t behind = tail_width < free_columns ? tail_width : free_columns;
    for (int64_t h = 0; h < a->heads; h++) {
        int64_t to = h * y_width + a->count;
        copy_columns(d, x, h * x_width + a->first, y, h * y_width, a->count);
        copy_columns(d, tail, a->tail_heads == 1 ? 0 : h * tail_width, y, to, behind);
        zero_columns(d, y, to + behind, free_columns - behind);
    }
}

static void join_task(void *argument, int thread, int threads) {
    const join_heads_args *a = argument;
    int64_t t, end;
    pool_share(a->y->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++) WITH_DTYPE(a->y->dtype, D, join_row(D, a, t));
}

ott_status ISA(join_heads)(exec *cx, const join_heads_args *a) {
    TRY(heads_check_join(a));
    cpu_run_sized(cx, tensor_count(*a->y), join_task, (void *)a);
    return OTT_OK;
}

SIMD void sum_row(ott_dtype d, const sum_heads_args *a, int64_t t) {
    const void *x = row_of(a->x, t);
    ott_dtype y = a->y->dtype;
    int64_t width = a->x->columns / a->heads;
    BY_16(c, lanes, a->y->columns, {
        v16 sum = v16_zero();
        for (int64_t h = 0; h < a->heads; h++)
            sum = v16_add(sum, v16_get(x, d, h * width + a->first + c, lanes));
        v16_put(row_of(a->y, t), y, c, sum, lanes);
    });
}

static void sum_task(void *argument, int thread, int threads) {
    const sum_heads_args *a = argument;
    int64_t t, end;
    pool_share(a->y->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++) WITH_DTYPE(a->x->dtype, D, sum_row(D, a, t));
}

ott_status ISA(sum_heads)(exec *cx, const sum_heads_args *a) {
    TRY(heads_check_sum(a));
    cpu_run_sized(cx, tensor_count(*a->x), sum_task, (void *)a);
    return OTT_OK;
}
