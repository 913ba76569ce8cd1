/* cpu/permute: copies token rows to expert rows, multiplies expert rows by weights, adds expert rows. */
#include "cpu/rows.h"

static int32_t number_at(const tensor *t, int64_t row, int64_t column) {
    return ((const int32_t *)t->data)[row * t->ld + column];
}

/* Fails if an assignment's row is not in [0, rows). Allows negative rows: the assignment has no row. */
static ott_status check_rows(const char *op, const tensor *row, int64_t rows) {
    for (int64_t t = 0; t < row->rows; t++) {
        tensor one = tensor_vector((int32_t *)row->data + t * row->ld, OTT_I32, row->columns);
        TRY(row_check_indices(op, "row", &one, rows, true));
    }
    return OTT_OK;
}

SIMD void copy_row(ott_dtype d, const void *x, float weight, void *y, int64_t columns) {
    v16 by = v16_set1(weight);
    BY_16(c, lanes, columns, v16_put(y, d, c, v16_mul(v16_get(x, d, c, lanes), by), lanes););
}

SIMD void zero_row(ott_dtype d, void *y, int64_t columns) {
    BY_16(c, lanes, columns, v16_put(y, d, c, v16_zero(), lanes););
}

static void permute_task(void *argument, int thread, int threads) {
    const permute_args *a = argument;
    int64_t r, end, columns = a->y->columns;
    pool_share(a->y->rows, 1, thread, threads, &r, &end);
    for (; r < end; r++) {
        int32_t source = number_at(a->source, 0, r);
        if (source < 0)
            WITH_DTYPE(a->y->dtype, D, zero_row(D, row_of(a->y, r), columns));
        else /* multiplying by 1 changes nothing */
            WITH_DTYPE(a->y->dtype, D,
                       copy_row(D, row_of(a->x, source % a->x->rows), 1.0f, row_of(a->y, r), columns));
    }
}

ott_status ISA(permute)(exec *cx, const permute_args *a) {
    cpu_run_sized(cx, tensor_count(*a->y), permute_task, (void *)a);
    return OTT_OK;
}

static void weigh_task(void *argument, int thread, int threads) {
    const weigh_args *a = argument;
    int64_t r, end, columns = a->y->columns, tokens = a->weight->rows;
    pool_share(a->y->rows, 1, thread, threads, &r, &end);
    for (; r < end; r++) {
        int32_t source = number_at(a->source, 0, r);
        if (source < 0) {
            WITH_DTYPE(a->y->dtype, D, zero_row(D, row_of(a->y, r), columns));
            continue;
        }
        float weight = ((const float *)row_of(a->weight, source % tokens))[source / tokens];
        WITH_DTYPE(a->y->dtype, D, copy_row(D, row_of(a->x, r), weight, row_of(a->y, r), columns));
    }
}

ott_status ISA(weigh)(exec *cx, const weigh_args *a) {
    TRY(row_check_indices("weigh", "source", a->source, tensor_count(*a->weight), true));
    cpu_run_sized(cx, tensor_count(*a->y), weigh_task, (void *)a);
    return OTT_OK;
}

SIMD void sum_rows(ott_dtype d, const unpermute_args *a, int64_t t) {
    const void *plus = row_of(a->plus, t);
    BY_16(c, lanes, a->x->columns, {
        v16 sum = plus ? v16_get(plus, d, c, lanes) : v16_zero();
        for (int64_t k = 0; k < a->row->columns; k++) {
            int32_t r = number_at(a->row, t, k);
            if (r >= 0) sum = v16_add(sum, v16_get(row_of(a->y, r), d, c, lanes));
        }
        v16_put(row_of(a->x, t), d, c, sum, lanes);
    });
}

static void unpermute_task(void *argument, int thread, int threads) {
    const unpermute_args *a = argument;
    int64_t t, end;
    pool_share(a->x->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++) WITH_DTYPE(a->x->dtype, D, sum_rows(D, a, t));
}

ott_status ISA(unpermute)(exec *cx, const unpermute_args *a) {
    TRY(check_rows("unpermute", a->row, a->y->rows));
    cpu_run_sized(cx, tensor_count(*a->y), unpermute_task, (void *)a);
    return OTT_OK;
}

SIMD float row_dot(ott_dtype d, const void *x, const void *y, int64_t columns) {
    v16 sum = v16_zero();
    BY_16(c, lanes, columns, { sum = v16_fma(v16_get(x, d, c, lanes), v16_get(y, d, c, lanes), sum); });
    return v16_fold_sum(sum);
}

static void dot_task(void *argument, int thread, int threads) {
    const weigh_backward_args *a = argument;
    int64_t t, end, columns = a->x->columns;
    pool_share(a->row->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++)
        for (int64_t k = 0; k < a->row->columns; k++) {
            int32_t r = number_at(a->row, t, k);
            float *dweight = (float *)row_of(a->dweight, t) + k;
            *dweight = 0.0f;
            if (r >= 0)
                WITH_DTYPE(a->x->dtype, D, *dweight = row_dot(D, row_of(a->x, r), row_of(a->dy, r), columns));
        }
}

ott_status ISA(weigh_backward)(exec *cx, const weigh_backward_args *a) {
    TRY(check_rows("weigh_backward", a->row, a->x->rows));
    cpu_run_sized(cx, tensor_count(*a->x), dot_task, (void *)a);
    return OTT_OK;
}
