/* cpu/rope: rotary position embedding (Su et al. 2021), with half-split or interleaved pairs. */
#include "cpu/rows.h"
#include "tensor/rules/heads_check.h"

/* Rotates 16 pairs (x0, x1) by 16 angles, which have the cosines c and the sines s. */
SIMD void rotate_pairs(v16 *x0, v16 *x1, v16 c, v16 s) {
    v16 low = *x0;
    *x0 = v16_fma(low, c, v16_neg(v16_mul(*x1, s)));
    *x1 = v16_fma(*x1, c, v16_mul(low, s));
}

/* Rotates every head of one token's row. The columns of a pair are `half` columns apart. */
SIMD void rotate_row(ott_dtype d, const rope_args *a, void *x, const float *cosine, const float *sine) {
    int64_t half = a->cosine->columns;
    BY_16(j, lanes, half, {
        v16 c = v16_get(cosine, OTT_F32, j, lanes), s = v16_get(sine, OTT_F32, j, lanes);
        if (a->inverse) s = v16_neg(s);
        for (int64_t low = a->first + j; low < a->x->columns; low += a->head_dim) {
            v16 x0 = v16_get(x, d, low, lanes), x1 = v16_get(x, d, low + half, lanes);
            rotate_pairs(&x0, &x1, c, s);
            v16_put(x, d, low, x0, lanes);
            v16_put(x, d, low + half, x1, lanes);
        }
    });
}

/* Copies 2 * lanes elements of x from `at` on to `pair`, or with `back` from `pair` to x. */
SIMD void move_pairs(ott_dtype d, void *x, int64_t at, int64_t lanes, float pair[32], bool back) {
    for (int64_t i = 0; i < 2 * lanes; i += 16) {
        int64_t count = 2 * lanes - i < 16 ? 2 * lanes - i : 16;
        if (back)
            v16_put(x, d, at + i, v16_load(pair + i), count);
        else
            v16_store(pair + i, v16_get(x, d, at + i, count));
    }
}

/* Rotates every head of one token's row. The columns of a pair are neighbours. */
SIMD void rotate_interleaved_row(ott_dtype d, const rope_args *a, void *x, const float *cosine,
                                 const float *sine) {
    float pair[32], first[16], second[16];
    BY_16(j, lanes, a->cosine->columns, {
        v16 c = v16_get(cosine, OTT_F32, j, lanes), s = v16_get(sine, OTT_F32, j, lanes);
        if (a->inverse) s = v16_neg(s);
        for (int64_t at = a->first + 2 * j; at < a->x->columns; at += a->head_dim) {
            move_pairs(d, x, at, lanes, pair, false);
            for (int64_t i = 0; i < 16; i++)
                first[i] = i < lanes ? pair[2 * i] : 0.0f, second[i] = i < lanes ? pair[2 * i + 1] : 0.0f;
            v16 x0 = v16_load(first), x1 = v16_load(second);
            rotate_pairs(&x0, &x1, c, s);
            v16_store(first, x0);
            v16_store(second, x1);
            for (int64_t i = 0; i < lanes; i++) pair[2 * i] = first[i], pair[2 * i + 1] = second[i];
            move_pairs(d, x, at, lanes, pair, true);
        }
    });
}

static void rotate_task(void *argument, int thread, int threads) {
    const rope_args *a = argument;
    const int32_t *position = a->position->data; /* [T], the position of each token */
    int64_t t, end;
    pool_share(a->x->rows, 1, thread, threads, &t, &end);
    for (; t < end; t++) {
        const float *cosine = row_of(a->cosine, position[t]), *sine = row_of(a->sine, position[t]);
        void *x = row_of(a->x, t);
        if (a->interleaved)
            WITH_DTYPE(a->x->dtype, D, rotate_interleaved_row(D, a, x, cosine, sine));
        else
            WITH_DTYPE(a->x->dtype, D, rotate_row(D, a, x, cosine, sine));
    }
}

ott_status ISA(rope)(exec *cx, const rope_args *a) {
    TRY(heads_check_rope(a));
    TRY(row_check_indices("rope", "position", a->position, a->cosine->rows, false));
    cpu_run_sized(cx, tensor_count(*a->x), rotate_task, (void *)a);
    return OTT_OK;
}
