/* cpu/rope: rotary position embedding (Su et al. 2021), pairs half a head apart. */
#include "cpu/rows.h"

/* Rotates every head of one token's row x[heads * 2 * half]. */
SIMD void rotate_row(ott_dtype d, void *x, int64_t heads, int64_t half, const float *cosine,
                     const float *sine, bool inverse) {
    BY_16(j, lanes, half, {
        v16 c = v16_get(cosine, OTT_F32, j, lanes), s = v16_get(sine, OTT_F32, j, lanes);
        if (inverse) s = v16_neg(s);
        for (int64_t h = 0; h < heads; h++) {
            int64_t low = h * 2 * half + j, high = low + half;
            v16 x0 = v16_get(x, d, low, lanes), x1 = v16_get(x, d, high, lanes);
            v16_put(x, d, low, v16_fma(x0, c, v16_neg(v16_mul(x1, s))), lanes);
            v16_put(x, d, high, v16_fma(x1, c, v16_mul(x0, s)), lanes);
        }
    });
}

static void rotate_task(void *argument, int thread, int threads) {
    const rope_args *a = argument;
    const int32_t *position = a->position->data; /* [T] */
    int64_t half = a->head_dim / 2, heads = a->x->columns / a->head_dim, t, end;
    pool_share(a->x->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++) {
        const float *cosine = row_of(a->cosine, position[t]), *sine = row_of(a->sine, position[t]);
        WITH_DTYPE(a->x->dtype, D, rotate_row(D, row_of(a->x, t), heads, half, cosine, sine, a->inverse));
    }
}

ott_status ISA(rope)(exec *cx, const rope_args *a) {
    if (a->head_dim <= 0 || a->x->columns % a->head_dim != 0 || a->cosine->columns * 2 != a->head_dim)
        return status_fail(OTT_ERR_SHAPE,
                           "rope: head_dim is %lld; x has %lld columns, cosine and sine have %lld",
                           (long long)a->head_dim, (long long)a->x->columns, (long long)a->cosine->columns);
    TRY(row_check_indices("rope", "position", a->position, a->cosine->rows, false));
    cpu_run_sized(cx, tensor_count(*a->x), rotate_task, (void *)a);
    return OTT_OK;
}
