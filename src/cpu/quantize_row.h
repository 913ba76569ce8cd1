/*
 * cpu/quantize_row: one row of a tensor: largest magnitudes and codes, a copy of the loop for each number
 * format.
 */
#ifndef CPU_QUANTIZE_ROW_H
#define CPU_QUANTIZE_ROW_H

#include "cpu/simd.h"
#include "tensor/tensor.h"

/* ---- amax ---- */

/* Elements [i, i + n) of a run, n at most 16, into `most` and, where it is not NULL, into columns[n]. */
SIMD v16 amax_step(const void *x, ott_dtype d, int64_t i, int64_t n, float *columns, v16 most) {
    bool full = n >= 16;
    v16 value = full ? v16_load_any(x, d, i) : v16_load_any_n(x, d, i, n);
    if (columns && full) v16_store(columns, v16_amax(v16_load(columns), value));
    if (columns && !full) v16_store_n(columns, v16_amax(v16_load_n(columns, n), value), n);
    return v16_amax(most, value);
}

/* amax of n elements from index `from` on; columns: amax of each column so far, to be raised, or NULL. */
SIMD float amax_run(const void *x, ott_dtype d, int64_t from, int64_t n, float *columns) {
    v16 most[4] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};
    int64_t i = 0;
    for (; i + 64 <= n; i += 64)
        for (int v = 0; v < 4; v++)
            most[v] = amax_step(x, d, from + i + 16 * v, 16, columns ? columns + i + 16 * v : NULL, most[v]);
    for (; i + 16 <= n; i += 16)
        most[0] = amax_step(x, d, from + i, 16, columns ? columns + i : NULL, most[0]);
    if (i < n) most[1] = amax_step(x, d, from + i, n - i, columns ? columns + i : NULL, most[1]);
    return v16_fold_amax(v16_amax(v16_amax(most[0], most[1]), v16_amax(most[2], most[3])));
}

SIMD void amax_runs(const void *x, ott_dtype d, int64_t from, int64_t n, int64_t run, float *columns,
                    float *runs) {
    for (int64_t i = 0; i < n; i += run) {
        int64_t count = n - i < run ? n - i : run;
        *runs++ = amax_run(x, d, from + i, count, columns ? columns + i : NULL);
    }
}

/* n elements of a row from `column` on: the amax of each `run` of them to runs[]; columns[n] as above. */
static void amax_row(const tensor *x, int64_t row, int64_t column, int64_t n, int64_t run, float *columns,
                     float *runs) {
    int64_t from = row * x->ld + column;
    if (x->dtype == OTT_F32 && columns)
        amax_runs(x->data, OTT_F32, from, n, run, columns, runs);
    else if (x->dtype == OTT_F32)
        amax_runs(x->data, OTT_F32, from, n, run, NULL, runs);
    else if (x->dtype == OTT_BF16 && columns)
        amax_runs(x->data, OTT_BF16, from, n, run, columns, runs);
    else if (x->dtype == OTT_BF16)
        amax_runs(x->data, OTT_BF16, from, n, run, NULL, runs);
    else
        amax_runs(x->data, OTT_F16, from, n, run, columns, runs);
}

/* ---- codes ---- */

/* Codes of n elements from index `from` on. scale: one, or with `each` one for every element. */
SIMD void cast_run(const void *x, ott_dtype d, int64_t from, int64_t n, const float *scale, bool each,
                   ott_dtype format, cast_mode mode, uint8_t *codes) {
    v16 one = v16_set1(each ? 0.0f : scale[0]);
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        v16i code[4];
        for (int v = 0; v < 4; v++) {
            v16 s = each ? v16_load(scale + i + 16 * v) : one;
            code[v] = v16_to_fp8(v16_mul(v16_load_any(x, d, from + i + 16 * v), s), format, mode);
        }
        v16i_store_u8x64(codes + i, code[0], code[1], code[2], code[3]);
    }
    for (; i < n; i += 16) {
        v16 s = each ? v16_load_n(scale + i, n - i) : one;
        v16_store_fp8_n(codes + i, v16_mul(v16_load_any_n(x, d, from + i, n - i), s), format, mode, n - i);
    }
}

SIMD void cast_format(const tensor *x, int64_t from, int64_t n, const float *scale, bool each,
                      ott_dtype format, cast_mode mode, uint8_t *codes) {
    if (x->dtype == OTT_F32)
        cast_run(x->data, OTT_F32, from, n, scale, each, format, mode, codes);
    else if (x->dtype == OTT_BF16)
        cast_run(x->data, OTT_BF16, from, n, scale, each, format, mode, codes);
    else
        cast_run(x->data, OTT_F16, from, n, scale, each, format, mode, codes);
}

/* n elements of a row from `column` on to codes[n]. */
static void cast_row_one_scale(const tensor *x, int64_t row, int64_t column, int64_t n, const float *scale,
                               const side_spec *s, uint8_t *codes) {
    int64_t from = row * x->ld + column;
    if (s->format == OTT_E4M3)
        cast_format(x, from, n, scale, false, OTT_E4M3, s->mode, codes);
    else
        cast_format(x, from, n, scale, false, OTT_E5M2, s->mode, codes);
}

static void cast_row_each(const tensor *x, int64_t row, int64_t column, int64_t n, const float *scale,
                          const side_spec *s, uint8_t *codes) {
    int64_t from = row * x->ld + column;
    if (s->format == OTT_E4M3)
        cast_format(x, from, n, scale, true, OTT_E4M3, s->mode, codes);
    else
        cast_format(x, from, n, scale, true, OTT_E5M2, s->mode, codes);
}

#endif
