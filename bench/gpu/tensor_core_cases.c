/* bench/gpu/tensor_core_cases: implements tensor_core_cases.h. */
#include "tensor_core_cases.h"
#include "base/rng.h"
#include "fp8/cast.h"
#include "tensor_core_rules.h"
#include "wgmma.h"

enum { ROWS = WGMMA_ROWS, COLUMNS = WGMMA_COLUMNS, K = WGMMA_PRODUCTS, SEED = 20 };

/* ---- random numbers ---- */

typedef struct draws {
    uint64_t stream, taken;
} draws;

static uint32_t draw(draws *r) {
    return rng_u32(SEED, r->stream, r->taken++);
}

/* Draws an integer in [low, high], uniformly. */
static int between(draws *r, int low, int high) {
    return low + (int)(draw(r) % (uint32_t)(high - low + 1));
}

static int mantissa_bits(ott_dtype d) {
    return d == OTT_E4M3 ? 3 : 2;
}

/* Returns the largest exponent field that a finite number has. */
static int top_field(ott_dtype d) {
    return d == OTT_E4M3 ? 15 : 30;
}
static int field_of_one(ott_dtype d) {
    return d == OTT_E4M3 ? 7 : 15;
}

/* Draws a finite code with an exponent field in [low, high]. Field 0 has zero and the subnormal numbers. */
static uint8_t draw_code(draws *r, ott_dtype d, int low, int high) {
    int bits = mantissa_bits(d), field = between(r, low, high);
    uint32_t random = draw(r);
    uint8_t code = (uint8_t)((random & 0x80u) | (uint32_t)field << bits | (random & ((1u << bits) - 1)));
    return d == OTT_E4M3 && (code & 0x7f) == 0x7f ? code - 1 : code;
}

static void draw_codes(draws *r, ott_dtype d, int low, int high, int count, uint8_t *codes) {
    for (int i = 0; i < count; i++) codes[i] = draw_code(r, d, low, high);
}

/* Draws a number with an exponent of fp32 in [low, high]. The last `zeros` bits of its mantissa are 0. */
static float draw_float(draws *r, int low, int high, int zeros) {
    int field = between(r, low, high) + 127;
    field = field < 0 ? 0 : field > 254 ? 254 : field;
    uint32_t random = draw(r);
    return fmath_from_bits((random & 0x80000000u) | (uint32_t)field << 23 |
                           ((random & 0x7fffffu) >> zeros << zeros));
}

static uint8_t sign_of(draws *r) {
    return draw(r) & 1 ? 0x80 : 0;
}

/* ---- operands: a [64,32], b [8,32] ---- */

typedef void fill_operands(draws *r, ott_dtype da, ott_dtype db, uint8_t *a, uint8_t *b);

static void fill_normal(draws *r, ott_dtype da, ott_dtype db, uint8_t *a, uint8_t *b) {
    case_normal(r->stream + 1, false, da, ROWS * K, a);
    case_normal(r->stream + 2, false, db, COLUMNS * K, b);
}

/* Fills operands of nearly equal size, so all products have nearly the same size. All products of a row of A
   have one sign. So each sum is as large as it can be relative to its largest product. */
static void fill_one_sign(draws *r, ott_dtype da, ott_dtype db, uint8_t *a, uint8_t *b) {
    draw_codes(r, da, field_of_one(da), field_of_one(da), ROWS * K, a);
    draw_codes(r, db, field_of_one(db), field_of_one(db), COLUMNS * K, b);
    for (int i = 0; i < ROWS * K; i++) a[i] = (a[i] & 0x7f) | (i / K % 2 ? 0x80 : 0);
    for (int i = 0; i < COLUMNS * K; i++) b[i] &= 0x7f;
}

static void fill_any(draws *r, ott_dtype da, ott_dtype db, uint8_t *a, uint8_t *b) {
    draw_codes(r, da, 0, top_field(da), ROWS * K, a);
    draw_codes(r, db, 0, top_field(db), COLUMNS * K, b);
}

/* Fills subnormal numbers, the smallest normal numbers, and zeros. */
static void fill_subnormal(draws *r, ott_dtype da, ott_dtype db, uint8_t *a, uint8_t *b) {
    draw_codes(r, da, 0, 1, ROWS * K, a);
    draw_codes(r, db, 0, 2, COLUMNS * K, b);
}

/* Sets all codes to zero, except the codes at the `count` places of each row, but keeps the sign bits. */
static void clear_all_but(uint8_t *codes, int rows, const int *places, int count) {
    for (int row = 0; row < rows; row++) {
        uint8_t kept[K];
        memcpy(kept, codes + row * K, K);
        for (int i = 0; i < K; i++) codes[row * K + i] &= 0x80;
        for (int i = 0; i < count; i++) codes[row * K + places[i]] = kept[places[i]];
    }
}

/* Fills operands that are zero except at two places of each row, so that each result has two products. */
static void fill_two(draws *r, ott_dtype da, ott_dtype db, uint8_t *a, uint8_t *b) {
    int first = between(r, 0, K - 1), places[] = {first, (first + between(r, 1, K - 1)) % K};
    fill_any(r, da, db, a, b);
    clear_all_but(a, ROWS, places, 2);
    clear_all_but(b, COLUMNS, places, 2);
}

/* Fills operands so that each result is the sum of one small product and of zeros. In the products that are
   zero, the factor from A is zero and the factor from B is an arbitrary number. */
static void fill_zero_times(draws *r, ott_dtype da, ott_dtype db, uint8_t *a, uint8_t *b) {
    int place = between(r, 0, K - 1);
    fill_any(r, da, db, a, b);
    clear_all_but(a, ROWS, &place, 1);
    for (int row = 0; row < ROWS; row++) a[row * K + place] = draw_code(r, da, 0, 3);
    for (int row = 0; row < COLUMNS; row++) b[row * K + place] = draw_code(r, db, 0, 3);
}

/* Fills operands so that products k and k + 16 of each result cancel. In some odd rows of A one element is
   changed, so that the sum is not exactly zero. */
static void fill_pairs(draws *r, ott_dtype da, ott_dtype db, uint8_t *a, uint8_t *b) {
    fill_any(r, da, db, a, b);
    for (int row = 0; row < COLUMNS; row++) memcpy(b + row * K + K / 2, b + row * K, K / 2);
    for (int row = 0; row < ROWS; row++) {
        for (int i = 0; i < K / 2; i++) a[row * K + K / 2 + i] = a[row * K + i] ^ 0x80;
        uint8_t *off = a + row * K + between(r, 0, K - 1);
        if (row % 2 && !(*off & 1)) *off ^= 2;
    }
}

/* A is +0 in a quarter of its rows, -0 in a quarter, mixed in the rest. Odd rows of B have no minus sign. */
static void fill_zeros(draws *r, ott_dtype da, ott_dtype db, uint8_t *a, uint8_t *b) {
    fill_any(r, da, db, a, b);
    for (int i = 0; i < ROWS * K; i++) {
        int row = i / K;
        a[i] = row % 4 == 0 ? 0 : row % 4 == 1 ? 0x80 : a[i] & 0x80;
    }
    for (int i = 0; i < COLUMNS * K; i++)
        if (i / K % 2) b[i] &= 0x7f;
}

static uint8_t draw_special(draws *r, ott_dtype d) {
    uint8_t sign = sign_of(r);
    return (d == OTT_E4M3 ? 0x7f : (uint8_t)between(r, 0x7c, 0x7f)) | sign;
}

/* Every second row of A and of B has one infinity or NaN. Every fourth row of A is zero. */
static void fill_special(draws *r, ott_dtype da, ott_dtype db, uint8_t *a, uint8_t *b) {
    fill_normal(r, da, db, a, b);
    for (int row = 0; row < ROWS; row++) {
        if (row % 4 == 2) memset(a + row * K, 0, K);
        if (row % 2) a[row * K + between(r, 0, K - 1)] = draw_special(r, da);
    }
    for (int row = 0; row < COLUMNS; row += 2) b[row * K + between(r, 0, K - 1)] = draw_special(r, db);
}

/* ---- accumulators; top: largest exponent of the products; sum: their exact sum ---- */

typedef float fill_accumulator(draws *r, int top, double sum);

static float draw_zero(draws *r, int top, double sum) {
    (void)top, (void)sum;
    return sign_of(r) ? -0.0f : 0.0f;
}

/* Draws an accumulator of 13 fraction bits, like the result of an earlier instruction. */
static float draw_short(draws *r, int top, double sum) {
    (void)sum;
    return draw_float(r, top - 4, top + 6, 10);
}

static float draw_near(draws *r, int top, double sum) {
    (void)sum;
    return draw_float(r, top - 4, top + 6, 0);
}

static float draw_above(draws *r, int top, double sum) {
    (void)sum;
    return draw_float(r, top + 6, top + 40, 0);
}

static float draw_below(draws *r, int top, double sum) {
    (void)sum;
    return draw_float(r, top - 40, top - 4, 0);
}

/* Draws an accumulator whose mantissa begins with many ones, so that an addition carries through them. */
static float draw_ones(draws *r, int top, double sum) {
    (void)sum;
    float x = draw_float(r, top - 14, top + 14, 0);
    return fmath_from_bits(fmath_bits(x) | (0x7fffffu & ~((1u << between(r, 0, 16)) - 1)));
}

/* Draws an accumulator that is the negative sum of the products plus -2 to 2 units in the last place. */
static float draw_opposite(draws *r, int top, double sum) {
    (void)top;
    float x = (float)-sum;
    if (x == 0.0f || !isfinite(x)) return isnan(x) ? 0.0f : x;
    return fmath_from_bits(fmath_bits(x) + (uint32_t)between(r, -2, 2));
}

static float draw_subnormal(draws *r, int top, double sum) {
    (void)top, (void)sum;
    uint32_t u = draw(r);
    return fmath_from_bits((u & 0x80000000u) | (u & 0xffffffu) >> between(r, 0, 23));
}

static float draw_special_float(draws *r, int top, double sum) {
    (void)top, (void)sum;
    static const uint32_t specials[] = {0x7f800000, 0x7fc00000, 0x7f800001,
                                        0x7fffffff, 0x7f7fffff, 0x7f7fe000};
    return fmath_from_bits(specials[between(r, 0, 5)] | (uint32_t)sign_of(r) << 24);
}

/* ---- cases ---- */

#define OPERAND_KINDS(X)                                                                                     \
    X(normal) X(one_sign) X(any) X(subnormal) X(two) X(zero_times) X(pairs) X(zeros) X(special)
#define ACCUMULATOR_KINDS(X)                                                                                 \
    X(zero) X(short) X(near) X(above) X(below) X(ones) X(opposite) X(subnormal) X(special_float)

#define NAME(kind) #kind,
#define FILL(kind) fill_##kind,
#define DRAW(kind) draw_##kind,
const char *const operand_kinds[] = {OPERAND_KINDS(NAME)};
const char *const accumulator_kinds[] = {ACCUMULATOR_KINDS(NAME)};
static fill_operands *const operand_fills[] = {OPERAND_KINDS(FILL)};
static fill_accumulator *const accumulator_draws[] = {ACCUMULATOR_KINDS(DRAW)};
const int operand_kind_count = sizeof operand_kinds / sizeof *operand_kinds;
const int accumulator_kind_count = sizeof accumulator_kinds / sizeof *accumulator_kinds;

static double exact_sum(const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db) {
    double sum = 0;
    for (int i = 0; i < K; i++) sum += (double)cast_from_fp8(a[i], da) * (double)cast_from_fp8(b[i], db);
    return sum;
}

void case_tile(int operand_kind, int accumulator_kind, int tile, ott_dtype da, ott_dtype db, uint8_t *a,
               uint8_t *b, float *c) {
    uint64_t formats = (uint64_t)(2 * (da == OTT_E5M2) + (db == OTT_E5M2));
    draws r = {.stream = (uint64_t)operand_kind << 48 | (uint64_t)accumulator_kind << 40 |
                         (uint64_t)tile << 16 | formats << 8};
    operand_fills[operand_kind](&r, da, db, a, b);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        const uint8_t *x = a + i / COLUMNS * K, *y = b + i % COLUMNS * K;
        int top = rule_largest_product(x, da, y, db);
        if (top == RULE_NO_EXPONENT) top = between(&r, -30, 16);
        c[i] = accumulator_draws[accumulator_kind](&r, top, exact_sum(x, da, y, db));
    }
}

void case_normal(uint64_t stream, bool one_sign, ott_dtype d, int64_t count, uint8_t *codes) {
    float deviation = dtype_max(d) / 8.0f;
    for (int64_t i = 0; i < count; i++) {
        float x = deviation * rng_normal(SEED, stream, (uint64_t)i);
        codes[i] = cast_to_fp8(one_sign ? fabsf(x) : x, d, CAST_SATURATE);
    }
}

void case_integers(uint64_t stream, ott_dtype d, int64_t count, uint8_t *codes) {
    draws r = {.stream = stream};
    for (int64_t i = 0; i < count; i++) codes[i] = cast_to_fp8((float)between(&r, -4, 4), d, CAST_SATURATE);
}
