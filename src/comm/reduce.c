/* comm/reduce: sums and maxima over ranks, in rank order. */
#include "comm/reduce.h"
#include "fp8/cast.h"

void reduce_first(float *sum, const void *values, ott_dtype d, int64_t count) {
    for (int64_t i = 0; i < count; i++) sum[i] = cast_load(values, d, i);
}

static float larger_or_nan(float a, float b) {
    if (isnan(a)) return a;
    return b > a || isnan(b) ? b : a;
}

void reduce_next(float *sum, const void *values, ott_dtype d, int64_t count, reduce_kind kind) {
    for (int64_t i = 0; i < count; i++) {
        float value = cast_load(values, d, i);
        sum[i] = kind == REDUCE_MAX ? larger_or_nan(sum[i], value) : sum[i] + value;
    }
}

void reduce_last(void *out, ott_dtype d, const float *sum, int64_t count) {
    for (int64_t i = 0; i < count; i++) cast_store(out, d, i, sum[i]);
}
