/* fp8/tensorcore: the accumulation rule of Hopper's FP8 tensor cores in exact integer arithmetic. */
#include "fp8/tensorcore.h"

enum {
    PRODUCTS = 32,            /* products that an instruction adds */
    FRACTION_BITS = 13,       /* an aligned term is a multiple of 2^(largest exponent - FRACTION_BITS) */
    MANTISSA_BITS = 13,       /* bits of the result after its leading bit */
    PROMOTION_INTERVAL = 128, /* elements after which _split adds the accumulator to an fp32 sum */
    NO_EXPONENT = -100000     /* the largest exponent if all terms are 0 */
};

/* The number (-1)^negative * significand * 2^(exponent - fraction), not normalized. */
typedef struct term {
    bool negative;
    int64_t significand;
    int fraction; /* fraction bits of the significand */
    int exponent;
} term;

/* Returns the term of a finite number from its bit fields. A subnormal has the format's smallest exponent and
   a significand without hidden bit. */
static term term_of_fields(bool negative, uint32_t biased, uint32_t mantissa, int mantissa_bits, int bias) {
    uint32_t hidden = biased > 0 ? 1u << mantissa_bits : 0u;
    return (term){negative, hidden | mantissa, mantissa_bits, (int)(biased > 0 ? biased : 1) - bias};
}

static term term_of_code(uint8_t code, ott_dtype d) {
    int bits = d == OTT_E4M3 ? 3 : 2, bias = d == OTT_E4M3 ? 7 : 15;
    return term_of_fields(code >> 7, (code & 0x7fu) >> bits, code & ((1u << bits) - 1), bits, bias);
}

static term term_product(term a, term b) {
    return (term){a.negative != b.negative, a.significand * b.significand, a.fraction + b.fraction,
                  a.exponent + b.exponent};
}

/* Returns the term as a multiple of 2^(largest - FRACTION_BITS), truncated towards zero. */
static int64_t term_align(term t, int largest) {
    int shift = t.fraction - FRACTION_BITS + (largest - t.exponent);
    if (t.significand == 0 || shift > 62) return 0;
    int64_t units = shift >= 0 ? t.significand >> shift : t.significand << -shift;
    return t.negative ? -units : units;
}

/* Returns sum * 2^exponent, truncated towards zero to MANTISSA_BITS after the leading bit; +0 for sum 0. */
static float round_result(int64_t sum, int exponent) {
    int64_t magnitude = sum < 0 ? -sum : sum;
    while (magnitude >> (MANTISSA_BITS + 1)) {
        magnitude >>= 1;
        exponent++;
    }
    float result = ldexpf((float)magnitude, exponent);
    return sum < 0 ? -result : result;
}

/* Returns the sum by plain fp32 additions. It is infinite or NaN only if a term is. */
static float plain_sum(const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db, int count,
                       float accumulator) {
    for (int i = 0; i < count; i++) accumulator += cast_from_fp8(a[i], da) * cast_from_fp8(b[i], db);
    return accumulator;
}

float tensorcore_fp8_step(const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db, int count,
                          float accumulator) {
    float plain = plain_sum(a, da, b, db, count, accumulator);
    if (!isfinite(plain)) return plain;

    term terms[PRODUCTS + 1];
    for (int i = 0; i < count; i++) terms[i] = term_product(term_of_code(a[i], da), term_of_code(b[i], db));
    uint32_t u = fmath_bits(accumulator);
    terms[count] = term_of_fields(u >> 31, u >> 23 & 0xffu, u & 0x7fffffu, 23, 127);

    /* The published model bounds the largest exponent from below by -133. This has no effect: exponents of
       products are at least -28, and of accumulators at least -126. */
    int largest = NO_EXPONENT;
    for (int i = 0; i <= count; i++)
        if (terms[i].significand != 0 && terms[i].exponent > largest) largest = terms[i].exponent;

    int64_t sum = 0;
    for (int i = 0; i <= count; i++) sum += term_align(terms[i], largest);
    return round_result(sum, largest - FRACTION_BITS);
}

float tensorcore_fp8_dot_fast(const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db, int64_t k) {
    float accumulator = 0.0f;
    for (int64_t i = 0; i < k; i += PRODUCTS) {
        int count = k - i < PRODUCTS ? (int)(k - i) : PRODUCTS;
        accumulator = tensorcore_fp8_step(a + i, da, b + i, db, count, accumulator);
    }
    return accumulator;
}

float tensorcore_fp8_dot_split(const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db, int64_t k) {
    float sum = 0.0f;
    for (int64_t i = 0; i < k; i += PROMOTION_INTERVAL) {
        int64_t count = k - i < PROMOTION_INTERVAL ? k - i : PROMOTION_INTERVAL;
        sum += tensorcore_fp8_dot_fast(a + i, da, b + i, db, count);
    }
    return sum;
}
