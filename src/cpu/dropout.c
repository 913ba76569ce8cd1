/* cpu/dropout: y = x times a factor, which is 0 for dropped elements. */
#include "cpu/rows.h"
#include "tensor/rules/dropout.h"

/* Computes the factors of 16 elements, from random numbers n to n + 15 of the stream
   (tensor/rules/dropout.h). */
static void draw_factors(const dropout_args *a, uint64_t n, float factor[16]) {
    rng_block draws = rng_philox(a->seed, a->stream, n / 4);
    for (uint64_t lane = 0; lane < 16; lane++) {
        uint64_t at = n + lane;
        if (lane > 0 && at % 4 == 0) draws = rng_philox(a->seed, a->stream, at / 4);
        factor[lane] = dropout_factor(draws, at, a->rate, a->scale);
    }
}

ROW_LOOP void drop_row(ott_dtype d, const dropout_args *a, int64_t t) {
    const void *x = row_of(a->x, t);
    void *y = row_of(a->y, t);
    uint64_t n = dropout_row(a->token->data, t, a->first, a->row_step);
    float factor[16];
    BY_16(c, lanes, a->y->columns, {
        draw_factors(a, n + (uint64_t)c, factor);
        v16_put(y, d, c, v16_mul(v16_get(x, d, c, lanes), v16_get(factor, OTT_F32, 0, lanes)), lanes);
    });
}

static void dropout_task(void *argument, int thread, int threads) {
    const dropout_args *a = argument;
    int64_t t, end;
    pool_share(a->y->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++) WITH_DTYPE(a->y->dtype, D, drop_row(D, a, t));
}

ott_status ISA(dropout)(exec *cx, const dropout_args *a) {
    cpu_run_sized(cx, tensor_count(*a->y), dropout_task, (void *)a);
    return OTT_OK;
}
