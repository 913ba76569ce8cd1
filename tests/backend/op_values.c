/* op_values: fills generated cases with numbers. */
#include "backend/op_case.h"
#include "base/rng.h"
#include <math.h>

/* Returns a normally distributed number from a table, because computing these numbers is slow. */
static float normal(op_case *c) {
    enum { COUNT = 4096 };
    static float table[COUNT];
    if (table[0] == 0)
        for (int i = 0; i < COUNT; i++) table[i] = rng_normal(8, 1, (uint64_t)i);
    return table[case_draw(c, COUNT)];
}

/* Magnitudes from 2^low to 2^high. draw_range draws a range: all, subnormal, small, large or medium. */
typedef struct range {
    int low, high;
} range;

static range draw_range(op_case *c, ott_dtype d) {
    static const range wide[] = {{-149, 127}, {-149, -126}, {-60, -50}, {50, 63}, {-8, 8}};
    static const range half[] = {{-24, 15}, {-24, -14}, {-10, -5}, {8, 15}, {-4, 4}};
    return (d == OTT_F16 ? half : wide)[case_draw(c, 5)];
}

static float extreme(op_case *c, range r) {
    int exponent = r.low + (int)case_draw(c, r.high - r.low + 1);
    float mantissa = 1.0f + (float)case_draw(c, 1 << 20) * 0x1p-20f;
    return (case_draw(c, 2) ? -1.0f : 1.0f) * ldexpf(mantissa, exponent);
}

/* Returns NaN for mixture 0, infinity for 1, -infinity for 2, and one of the three at random otherwise. */
static float nonfinite(op_case *c, int64_t mixture) {
    static const float values[] = {NAN, INFINITY, -INFINITY};
    return values[mixture < 3 ? mixture : case_draw(c, 3)];
}

static float value_of_kind(op_case *c, range r, int64_t mixture) {
    switch (c->values) {
    case VALUES_ZEROS: return case_draw(c, 3) ? normal(c) : case_draw(c, 2) ? -0.0f : 0.0f;
    case VALUES_EXTREME: return extreme(c, r);
    case VALUES_NONFINITE: return mixture < 5 && case_draw(c, 40) == 0 ? nonfinite(c, mixture) : normal(c);
    case VALUES_NORMAL:
    case VALUE_KINDS: break;
    }
    return normal(c);
}

/* Draws an FP8 code. VALUES_NORMAL gives normally distributed values, the other kinds any finite code.
   VALUES_ZEROS also gives many zeros, VALUES_NONFINITE also some NaN and infinities. */
static uint8_t fp8_code(op_case *c, ott_dtype d) {
    if (c->values == VALUES_NORMAL) return cast_to_fp8(normal(c), d, CAST_SATURATE);
    if (c->values == VALUES_ZEROS && case_draw(c, 3) == 0) return case_draw(c, 2) ? 0x80 : 0;
    uint8_t code = (uint8_t)case_draw(c, 256);
    if (c->values == VALUES_NONFINITE && case_draw(c, 40) == 0) return code;
    return isfinite(cast_from_fp8(code, d)) ? code : 0x31;
}

void values_fill(op_case *c, const region *r) {
    range magnitudes = draw_range(c, r->dtype);
    int64_t mixture = case_draw(c, 6);
    void *data = c->live + r->offset;
    for (int64_t i = 0; i < r->rows; i++)
        for (int64_t j = 0; j < r->columns; j++) {
            int64_t index = i * r->ld + j;
            if (r->dtype == OTT_I32)
                ((int32_t *)data)[index] = 0;
            else if (dtype_is_fp8(r->dtype))
                ((uint8_t *)data)[index] = fp8_code(c, r->dtype);
            else if (r->dtype == OTT_E8M0)
                cast_store(data, r->dtype, index, fabsf(value_of_kind(c, magnitudes, mixture)));
            else
                cast_store(data, r->dtype, index, value_of_kind(c, magnitudes, mixture));
        }
    if (c->values == VALUES_NONFINITE && dtype_is_high_precision(r->dtype) && mixture < 5)
        cast_store(data, r->dtype, case_draw(c, r->columns), nonfinite(c, mixture));
}

void values_make_positive(op_case *c, const region *r) {
    void *data = c->live + r->offset;
    for (int64_t i = 0; i < r->rows; i++)
        for (int64_t j = 0; j < r->columns; j++)
            cast_store(data, r->dtype, i * r->ld + j, fabsf(cast_load(data, r->dtype, i * r->ld + j)));
}
