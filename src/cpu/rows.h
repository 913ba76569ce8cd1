/*
 * cpu/rows: private to src/cpu. Helpers of ops that work row by row: loops over 16 elements with a shorter
 * last step, code specialized for each number format, a thread's share of a tensor, checks of indices.
 */
#ifndef CPU_ROWS_H
#define CPU_ROWS_H

#include "cpu/simd/simd.h"
#include "cpu/isa.h"

/* v16_get and v16_put access lanes [0, n) from element `index` on; v16_get sets the other lanes to 0.
   BY_16 runs its statements for `at` = 0, 16, 32, ... below count. `lanes` is the constant 16, or the number
   of elements in the shorter last step.
   WITH_DTYPE runs a statement with a constant D equal to d, a high-precision format: the compiler specializes
   the code for each format. WITH_FP8 does the same for E4M3 and E5M2. ROW_LOOP declares a function that is
   specialized this way. ROW_UNROLL unrolls its loops, so that arrays of vectors stay in registers. */
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
#else /* at the scalar level, specialized copies gain nothing and take minutes to compile */
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
/* Returns cap * tanh(x / cap), as fmath_tanh computes it. */
SIMD v16 v16_softcap(v16 x, v16 cap) {
    v16 one = v16_set1(1.0f), two = v16_set1(2.0f);
    v16 e = v16_exp(v16_mul(two, v16_div(x, cap)));
    return v16_mul(cap, v16_sub(one, v16_div(two, v16_add(e, one))));
}

/* Returns row r of t, or NULL if t is NULL. */
SIMD void *row_of(const tensor *t, int64_t r) {
    return t == NULL ? NULL : (char *)t->data + r * t->ld * dtype_bytes(t->dtype);
}

/* Returns x + delta, rounded to format d, for columns [at, at + n) of a row, and stores it to h. If delta is
   NULL, returns x, and h may be NULL. */
SIMD v16 row_add_delta(ott_dtype d, const void *x, const void *delta, void *h, int64_t at, int64_t n) {
    v16 value = v16_get(x, d, at, n);
    if (delta) {
        v16_put(h, d, at, v16_add(value, v16_get(delta, d, at, n)), n);
        return v16_get(h, d, at, n);
    }
    if (h) v16_put(h, d, at, value, n);
    return value;
}

/* Returns elements [first, first + count) of x in row order. Copies them to `buffer` if not contiguous. */
static inline const void *row_elements(const tensor *x, int64_t first, int64_t count, void *buffer) {
    int64_t row = first / x->columns, column = first % x->columns, size = dtype_bytes(x->dtype);
    if (x->ld == x->columns || column + count <= x->columns)
        return (const char *)row_of(x, row) + column * size;
    for (int64_t done = 0; done < count; row++, column = 0) {
        int64_t part = x->columns - column < count - done ? x->columns - column : count - done;
        memcpy((char *)buffer + done * size, (const char *)row_of(x, row) + column * size,
               (size_t)(part * size));
        done += part;
    }
    return buffer;
}

/* Returns a dense tensor as one row, so that threads share a few long rows; any other tensor unchanged. */
SIMD tensor row_flattened(const tensor *t) {
    return t->ld == t->columns ? tensor_vector(t->data, t->dtype, tensor_count(*t)) : *t;
}

/* Thread t's part of a tensor: some columns if it has a single row, else some rows. */
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

/* Fails if an element of t, i32[columns], is not in [0, limit). `negative`: negative elements are allowed. */
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

/* Fails unless the ends of row groups, i32 end[E], ascend and are at most `rows`. */
static inline ott_status row_check_ends(const char *op, const tensor *end, int64_t rows) {
    int64_t last = 0;
    for (int64_t e = 0; e < end->columns; e++) {
        int32_t here = ((const int32_t *)end->data)[e];
        if (here < last || here > rows)
            return status_fail(OTT_ERR_INTERNAL, "%s: group %lld ends at row %d; it must be %lld to %lld", op,
                               (long long)e, here, (long long)last, (long long)rows);
        last = here;
    }
    return OTT_OK;
}

#endif
