/* bench/gpu/tensor_core_rules: implements tensor_core_rules.h. */
#include "tensor_core_rules.h"
#include "fp8/cast.h"

enum { PRODUCTS = 32, FRACTION = 13, MANTISSA = 13 };
/* With products_lead the accumulator does not count for the largest exponent E. But join_accumulator raises E
   to the accumulator's exponent minus ACCUMULATOR_REACH: a smaller E gives the same result. */
enum { ACCUMULATOR_REACH = 30 };

const rule rules[] = {
    {.name = "model"},
    {.name = "F=12", .fraction = -1},
    {.name = "F=14", .fraction = 1},
    {.name = "R=12", .mantissa = -1},
    {.name = "R=14", .mantissa = 1},
    {.name = "F=14, R=14", .fraction = 1, .mantissa = 1},
    {.name = "R=23", .mantissa = 10},
    {.name = "F=23, R=23", .fraction = 10, .mantissa = 10},
    {.name = "terms to nearest", .terms = ROUND_TO_EVEN},
    {.name = "terms down", .terms = ROUND_DOWN},
    {.name = "result to nearest", .result = ROUND_TO_EVEN},
    {.name = "result down", .result = ROUND_DOWN},
    {.name = "accumulator of 23 bits", .accumulator_fraction = 10},
    {.name = "accumulator of 23 bits, R=23", .accumulator_fraction = 10, .mantissa = 10},
    {.name = "accumulator truncated first, then of 23 bits",
     .accumulator_fraction = 10,
     .truncate_accumulator = true},
    {.name = "E of the products", .products_lead = true},
    {.name = "E of the products, accumulator truncated first",
     .products_lead = true,
     .truncate_accumulator = true},
    {.name = "products first", .products_first = true},
    {.name = "products first, sum of 23 bits", .products_first = true, .accumulator_fraction = 10},
    {.name = "products first, sum of 23 bits, R=23",
     .products_first = true,
     .accumulator_fraction = 10,
     .mantissa = 10},
    {.name = "zero products in E", .zero_products = true},
    {.name = "E at least the smallest product's", .smallest_product = true},
    {.name = "operands normalised", .normal_operands = true},
    {.name = "accumulator normalised", .normal_accumulator = true},
    {.name = "subnormal accumulator is zero", .flush_accumulator = true},
    {.name = "minus zero kept", .minus_zero = true},
};
const int rule_count = sizeof rules / sizeof *rules;

/* A term of a sum: value * 2^unit. The largest `exponent` of all terms decides how the terms are rounded. */
typedef struct term {
    int64_t value;
    int unit, exponent;
} term;

/* ---- terms ---- */

static int top_bit(int64_t value) {
    return 63 - __builtin_clzll((unsigned long long)(value < 0 ? -value : value));
}

static term term_of_fields(bool negative, uint32_t biased, uint32_t mantissa, int bits, int bias,
                           bool normal) {
    int64_t significand = (biased > 0 ? 1ll << bits : 0) | mantissa;
    int exponent = (int)(biased > 0 ? biased : 1) - bias;
    term t = {negative ? -significand : significand, exponent - bits, exponent};
    if (normal && significand != 0) t.exponent = t.unit + top_bit(significand);
    return t;
}

static int mantissa_bits(ott_dtype d) {
    return d == OTT_E4M3 ? 3 : 2;
}
static int exponent_bias(ott_dtype d) {
    return d == OTT_E4M3 ? 7 : 15;
}

static term term_of_code(const rule *r, uint8_t code, ott_dtype d) {
    int bits = mantissa_bits(d);
    return term_of_fields(code >> 7, (code & 0x7fu) >> bits, code & ((1u << bits) - 1), bits,
                          exponent_bias(d), r->normal_operands);
}

static term term_of_product(const rule *r, uint8_t a, ott_dtype da, uint8_t b, ott_dtype db) {
    term x = term_of_code(r, a, da), y = term_of_code(r, b, db);
    return (term){x.value * y.value, x.unit + y.unit, x.exponent + y.exponent};
}

/* Returns value / 2^shift, rounded to an integer. */
static int64_t shifted(int64_t value, int shift, rule_rounding rounding) {
    if (value == 0 || shift <= 0) return value == 0 ? 0 : value * (1ll << -shift);
    if (shift > 60) return rounding == ROUND_DOWN && value < 0 ? -1 : 0;
    int64_t unit = 1ll << shift, down = value >> shift, rest = value - down * unit;
    if (rounding == ROUND_TO_ZERO) return down + (value < 0 && rest != 0);
    if (rounding == ROUND_DOWN) return down;
    return down + (rest > unit / 2 || (rest == unit / 2 && (down & 1)));
}

static term term_of_accumulator(const rule *r, float x) {
    uint32_t u = fmath_bits(x), biased = u >> 23 & 0xffu;
    if (r->flush_accumulator && biased == 0) u = 0;
    term t = term_of_fields(u >> 31, biased, u & 0x7fffffu, 23, 127, r->normal_accumulator);
    if (!r->truncate_accumulator) return t;
    int drop = 23 - MANTISSA;
    return (term){shifted(t.value, drop, ROUND_TO_ZERO), t.unit + drop, t.exponent};
}

/* ---- sums ---- */

static int largest_exponent(const rule *r, const term *t, int count) {
    int largest = RULE_NO_EXPONENT;
    for (int i = 0; i < count; i++)
        if ((t[i].value != 0 || r->zero_products) && t[i].exponent > largest) largest = t[i].exponent;
    return largest;
}

/* Returns the sum of the terms in units of 2^(largest - fraction). Terms are first rounded to this unit. */
static int64_t sum_terms(const rule *r, const term *t, int count, int largest, int fraction) {
    int64_t sum = 0;
    for (int i = 0; i < count; i++) sum += shifted(t[i].value, largest - fraction - t[i].unit, r->terms);
    return sum;
}

/* Returns the exponent E of a sum (tensor_core_rules.h). largest: the largest exponent of the products. */
static int join_accumulator(const rule *r, int largest, term accumulator) {
    if (accumulator.value == 0) return largest;
    int least = accumulator.exponent - (r->products_lead ? ACCUMULATOR_REACH : 0);
    return least > largest ? least : largest;
}

/* Rounds sum * 2^unit to R fraction bits (tensor_core_rules.h). */
static float round_sum(const rule *r, int64_t sum, int unit) {
    if (sum == 0) return 0.0f;
    int drop = top_bit(sum) - (MANTISSA + r->mantissa);
    if (drop < 0) drop = 0;
    return ldexpf((float)shifted(sum, drop, r->result), unit + drop);
}

static bool all_minus_zero(const uint8_t *a, const uint8_t *b, float accumulator) {
    for (int i = 0; i < PRODUCTS; i++)
        if (!((a[i] ^ b[i]) & 0x80) || ((a[i] & 0x7f) && (b[i] & 0x7f))) return false;
    return accumulator == 0.0f && signbit(accumulator);
}

float rule_step(const rule *r, const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db,
                float accumulator) {
    if (r->minus_zero && all_minus_zero(a, b, accumulator)) return -0.0f;
    term products[PRODUCTS], last = term_of_accumulator(r, accumulator);
    for (int i = 0; i < PRODUCTS; i++) products[i] = term_of_product(r, a[i], da, b[i], db);

    int count = PRODUCTS, fraction = FRACTION + r->fraction, grid = fraction + r->accumulator_fraction;
    int largest = largest_exponent(r, products, count);
    int smallest = 2 - exponent_bias(da) - exponent_bias(db);
    if (r->smallest_product && largest < smallest) largest = smallest;
    if (r->products_first && largest != RULE_NO_EXPONENT) {
        int64_t sum = sum_terms(r, products, count, largest, fraction);
        int unit = largest - fraction;
        products[0] = (term){sum, unit, sum != 0 ? unit + top_bit(sum) : RULE_NO_EXPONENT};
        largest = products[0].exponent;
        count = 1;
        fraction = grid;
    }
    largest = join_accumulator(r, largest, last);
    int64_t sum = sum_terms(r, products, count, largest, fraction) * (1ll << (grid - fraction));
    sum += sum_terms(r, &last, 1, largest, grid);
    return round_sum(r, sum, largest - grid);
}

int rule_largest_product(const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db) {
    term products[PRODUCTS];
    for (int i = 0; i < PRODUCTS; i++) products[i] = term_of_product(&rules[0], a[i], da, b[i], db);
    return largest_exponent(&rules[0], products, PRODUCTS);
}
