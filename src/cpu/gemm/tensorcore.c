/*
 * cpu/gemm/tensorcore: the micro-kernel that accumulates like Hopper's FP8 tensor cores (fp8/tensorcore.h),
 * to study them and to check a GPU.
 *
 * The terms of an instruction are its products and the accumulator. A tensor core aligns them to their
 * largest exponent E and truncates them. Here fp32 numbers and integers do this exactly. A number's `power`
 * is 2^exponent, or 0 for a zero. A product has the product of both powers. 2^E is the largest one. term *
 * 2^(13 - E), converted to an integer, is the aligned and truncated term. The sum of these integers is below
 * 2^24, so it is exact as a float. Clearing its last 10 bits truncates the significand to 14 bits.
 */
#include "cpu/gemm/tile.h"

enum {
    PRODUCTS = 32,            /* products of one instruction */
    FRACTION_BITS = 13,       /* an aligned term is a multiple of 2^(E - FRACTION_BITS) */
    MANTISSA_BITS = 13,       /* bits of the result after its leading bit */
    PROMOTION_INTERVAL = 128, /* HOPPER_SPLIT adds the accumulator to an fp32 sum after 128 terms */
};

/* Used instead of the largest power 2^E if all terms are 0. Terms that are not 0 are at least 2^-41. */
#define LEAST_MAXIMUM 0x1p-60f

static inline float power_of(float x, float smallest) {
    float power = fmath_from_bits(fmath_bits(x) & 0x7f800000u);
    power = power > smallest ? power : smallest;
    return x == 0.0f ? 0.0f : power;
}

/* The operands of one instruction: `count` terms of all rows of A and B of the tile. */
typedef struct instruction {
    int64_t count;
    const float *b; /* packed B: [PRODUCTS][GEMM_NR] */
    _Alignas(64) float b_power[PRODUCTS * GEMM_NR];
    float a[GEMM_MR * PRODUCTS], a_power[GEMM_MR * PRODUCTS];
} instruction;

SIMD void instruction_load(instruction *in, const gemm_tile *t, int64_t k, int64_t count,
                           gemm_a_layout layout) {
    in->count = count;
    in->b = t->b + k * GEMM_NR;
    for (int64_t i = 0; i < count * GEMM_NR; i++) in->b_power[i] = power_of(in->b[i], t->smallest_b);
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < count; j++) {
            float a = layout == GEMM_A_ROWS ? t->a[i * GEMM_A_LD + k + j] : t->a[(k + j) * GEMM_A_STEP + i];
            in->a[i * PRODUCTS + j] = a;
            in->a_power[i * PRODUCTS + j] = power_of(a, t->smallest_a);
        }
}

/* Returns what tensorcore_fp8_step computes, for row i of A and the 16 rows of B in vector v. */
SIMD v16 instruction_step(const instruction *in, int64_t i, int v, v16 accumulator) {
    const float *a = in->a + i * PRODUCTS, *a_power = in->a_power + i * PRODUCTS;
    v16i exponent = v16i_set1(0x7f800000u);
    v16 most = v16_max(v16_from_bits(v16i_and(v16_bits(accumulator), exponent)), v16_set1(LEAST_MAXIMUM));
    for (int64_t k = 0; k < in->count; k++)
        most = v16_max(v16_mul(v16_set1(a_power[k]), v16_load(in->b_power + k * GEMM_NR + 16 * v)), most);
    /* units = 2^FRACTION_BITS / most */
    v16 units = v16_from_bits(v16i_sub(v16i_set1((uint32_t)(254 + FRACTION_BITS) << 23), v16_bits(most)));
    v16i sum = v16_to_int(v16_mul(accumulator, units));
    v16 plain = accumulator;
    for (int64_t k = 0; k < in->count; k++) {
        v16 product = v16_mul(v16_set1(a[k]), v16_load(in->b + k * GEMM_NR + 16 * v));
        plain = v16_add(plain, product);
        sum = v16i_add(sum, v16_to_int(v16_mul(product, units)));
    }
    const uint32_t kept = ~((1u << (23 - MANTISSA_BITS)) - 1);
    v16 result = v16_from_bits(v16i_and(v16_bits(v16_from_int(sum)), v16i_set1(kept)));
    result = v16_mul(result, v16_mul(most, v16_set1(1.0f / (1 << FRACTION_BITS))));
    /* If a term is infinite or NaN, so is the plain fp32 sum, and the result is the plain sum. */
    return v16_select(v16_lt(v16_abs(plain), v16_set1(INFINITY)), result, plain);
}

SIMD void tensorcore_extend(const gemm_tile *t, gemm_a_layout layout, bool split) {
    instruction in;
    v16 sum[GEMM_MR][GEMM_NV], accumulator[GEMM_MR][GEMM_NV];
    for (int64_t i = 0; i < t->rows; i++)
        for (int v = 0; v < GEMM_NV; v++) {
            v16 start = t->start ? v16_load(t->start + i * GEMM_NR + 16 * v) : v16_zero();
            sum[i][v] = split ? start : v16_zero();
            accumulator[i][v] = split ? v16_zero() : start;
        }
    for (int64_t k = 0; k < t->kc; k += PRODUCTS) {
        int64_t count = t->kc - k < PRODUCTS ? t->kc - k : PRODUCTS;
        bool promote = split && ((k + PRODUCTS) % PROMOTION_INTERVAL == 0 || k + PRODUCTS >= t->kc);
        instruction_load(&in, t, k, count, layout);
        for (int64_t i = 0; i < t->rows; i++)
            for (int v = 0; v < GEMM_NV; v++) {
                accumulator[i][v] = instruction_step(&in, i, v, accumulator[i][v]);
                if (!promote) continue;
                sum[i][v] = v16_add(sum[i][v], accumulator[i][v]);
                accumulator[i][v] = v16_zero();
            }
    }
    gemm_leave(t, (int)t->rows, GEMM_NV, split ? sum : accumulator);
}

static void fast_rows(const gemm_tile *t) {
    tensorcore_extend(t, GEMM_A_ROWS, false);
}
static void fast_panel(const gemm_tile *t) {
    tensorcore_extend(t, GEMM_A_PANEL, false);
}
static void split_rows(const gemm_tile *t) {
    tensorcore_extend(t, GEMM_A_ROWS, true);
}
static void split_panel(const gemm_tile *t) {
    tensorcore_extend(t, GEMM_A_PANEL, true);
}

gemm_kernel ISA(gemm_tensorcore)(gemm_a_layout layout, bool split) {
    if (layout == GEMM_A_ROWS) return split ? split_rows : fast_rows;
    return split ? split_panel : fast_panel;
}
