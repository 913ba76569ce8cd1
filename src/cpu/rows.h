/*
 * cpu/rows: private to the floor: what the row by row ops share: loops over 16 lanes with a shorter last
 * step, code made once for each number format, shares of a tensor, checks of indices.
 */
#ifndef CPU_ROWS_H
#define CPU_ROWS_H

#include "cpu/simd/simd.h"
#include "cpu/isa.h"

/* v16_get and v16_put: lanes [0, n) of element `index` on; the others read as 0. BY_16 runs the statements
   for `at` = 0, 16, 32, ... below count, with `lanes` 16 (a constant) or what is left; and WITH_DTYPE runs a
   statement with the constant `D` equal to d, a high-precision format: one specialized copy for each;
   WITH_FP8 is the same for the two formats of codes. A ROW_LOOP is a function that they make copies of, and
   ROW_UNROLL keeps its arrays of vectors in registers. */
#ifndef CPU_ISA_scalar
SIMD v16 v16_get(const void *p, ott_dtype d, int64_t index, int64_t n) {
    return n >= 16 ? v16_load_any(p, d, index) : v16_load_any_n(p, d, index, n);
}
SIMD void v16_put(void *p, ott_dtype d, int64_t index, v16 x, int64_t n) {
    if (n >= 16)
        v16_store_any(p, d, index, x);
    else
        v16_store_any_n(p, d, index, x, n);
}
#define BY_16(at, lanes, count, ...)                                                                         \
    do {                                                                                                     \
        int64_t at = 0;                                                                                      \
        for (; at + 16 <= (count); at += 16) {                                                               \
            const int64_t lanes = 16;                                                                        \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
        if (at < (count)) {                                                                                  \
            const int64_t lanes = (count)-at;                                                                \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    } while (0)
#define WITH_DTYPE(d, D, ...)                                                                                \
    do {                                                                                                     \
        if ((d) == OTT_F32) {                                                                                \
            const ott_dtype D = OTT_F32;                                                                     \
            __VA_ARGS__;                                                                                     \
        } else if ((d) == OTT_BF16) {                                                                        \
            const ott_dtype D = OTT_BF16;                                                                    \
            __VA_ARGS__;                                                                                     \
        } else {                                                                                             \
            const ott_dtype D = OTT_F16;                                                                     \
            __VA_ARGS__;                                                                                     \
        }                                                                                                    \
    } while (0)
#define WITH_FP8(d, D, ...)                                                                                  \
    do {                                                                                                     \
        if ((d) == OTT_E4M3) {                                                                               \
            const ott_dtype D = OTT_E4M3;                                                                    \
            __VA_ARGS__;                                                                                     \
        } else {                                                                                             \
            const ott_dtype D = OTT_E5M2;                                                                    \
            __VA_ARGS__;                                                                                     \
        }                                                                                                    \
    } while (0)
#define ROW_LOOP   SIMD
#define ROW_UNROLL SIMD_UNROLL
#else /* plain loops gain nothing from the copies, and a compiler takes minutes over them */
static inline v16 v16_get(const void *p, ott_dtype d, int64_t index, int64_t n) {
    return v16_load_any_n(p, d, index, n);
}
static inline void v16_put(void *p, ott_dtype d, int64_t index, v16 x, int64_t n) {
    v16_store_any_n(p, d, index, x, n);
}
#define BY_16(at, lanes, count, ...)                                                                         \
    do {                                                                                                     \
        for (int64_t at = 0; at < (count); at += 16) {                                                       \
            const int64_t lanes = (count)-at < 16 ? (count)-at : 16;                                         \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    } while (0)
#define WITH_DTYPE(d, D, ...)                                                                                \
    do {                                                                                                     \
        const ott_dtype D = (d);                                                                             \
        __VA_ARGS__;                                                                                         \
    } while (0)
#define WITH_FP8 WITH_DTYPE
#define ROW_LOOP static __attribute__((noinline))
#define ROW_UNROLL
#endif

SIMD v16 v16_sigmoid(v16 x) {
    v16 one = v16_set1(1.0f);
    return v16_div(one, v16_add(one, v16_exp(v16_neg(x))));
}
/* cap * tanh(x / cap); fmath_tanh. */
SIMD v16 v16_softcap(v16 x, v16 cap) {
    v16 one = v16_set1(1.0f), two = v16_set1(2.0f);
    v16 e = v16_exp(v16_mul(two, v16_div(x, cap)));
    return v16_mul(cap, v16_sub(one, v16_div(two, v16_add(e, one))));
}

/* Row r of t, NULL when t is. */
SIMD void *row_of(const tensor *t, int64_t r) {
    return t == NULL ? NULL : (char *)t->data + r * t->ld * dtype_bytes(t->dtype);
}

/* A dense tensor as one row, so that its elements can be shared among threads however few rows it has. */
SIMD tensor row_flattened(const tensor *t) {
    return t->ld == t->columns ? tensor_vector(t->data, t->dtype, tensor_count(*t)) : *t;
}

/* Thread t's part of rows x columns: some columns of a single row, else some rows. */
typedef struct row_share {
    int64_t row, row_end, column, columns;
} row_share;

SIMD row_share row_share_of(int64_t rows, int64_t columns, int thread, int threads) {
    row_share s = {.row = 0, .row_end = rows, .column = 0, .columns = columns};
    int64_t end = columns;
    if (rows == 1)
        pool_share(columns, 64, thread, threads, &s.column, &end);
    else
        pool_share(rows, 1, thread, threads, &s.row, &s.row_end);
    s.columns = end - s.column;
    return s;
}

/* Every entry must be below limit and, unless negative ones mean something, at least 0. */
static inline ott_status row_check_indices(const char *op, const char *what, const tensor *t, int64_t limit,
                                           bool negative) {
    const int32_t *index = t->data;
    for (int64_t i = 0; i < t->columns; i++)
        if (index[i] >= limit || (index[i] < 0 && !negative))
            return status_fail(OTT_ERR_INTERNAL, "%s: %s[%lld] is %d; it must be %s%lld", op, what,
                               (long long)i, index[i], negative ? "below " : "at least 0 and below ",
                               (long long)limit);
    return OTT_OK;
}

/* Ends of groups of rows ascend, and none is behind the last row. */
static inline ott_status row_check_ends(const char *op, const tensor *end, int64_t rows) {
    int64_t last = 0;
    for (int64_t e = 0; e < end->columns; e++) {
        int32_t here = ((const int32_t *)end->data)[e];
        if (here < last || here > rows)
            return status_fail(OTT_ERR_INTERNAL, "%s: group %lld ends at row %d, after %lld, of %lld", op,
                               (long long)e, here, (long long)last, (long long)rows);
        last = here;
    }
    return OTT_OK;
}

#endif
