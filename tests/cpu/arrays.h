/* arrays: makes small tensors for tests: of zeros, random numbers or integers. */
#ifndef TESTS_CPU_ARRAYS_H
#define TESTS_CPU_ARRAYS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "tensor/exec.h"

static inline void succeed(ott_status status) {
    if (status != OTT_OK) fail_msg("%s", status_text());
}

/* Makes a matrix of zeros. The caller frees its data with free(). */
static inline tensor make_zeros(ott_dtype d, int64_t rows, int64_t columns) {
    return tensor_matrix(calloc((size_t)(rows * columns), (size_t)dtype_bytes(d)), d, rows, columns);
}
/* Makes a matrix of numbers that are uniform in [-size, size). The same seed gives the same numbers. */
static inline tensor make_random(ott_dtype d, int64_t rows, int64_t columns, float size, uint64_t seed) {
    tensor t = make_zeros(d, rows, columns);
    for (int64_t i = 0; i < rows * columns; i++)
        cast_store(t.data, d, i, size * (2.0f * rng_uniform(seed, 1, (uint64_t)i) - 1.0f));
    return t;
}
static inline tensor make_integers(const int32_t *values, int64_t count) {
    tensor t = make_zeros(OTT_I32, 1, count);
    memcpy(t.data, values, (size_t)count * sizeof *values);
    return t;
}
static inline double element(const tensor *t, int64_t row, int64_t column) {
    return (double)cast_load(t->data, t->dtype, row * t->ld + column);
}

#endif
