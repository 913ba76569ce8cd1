/* fp8/reference: quantize and GEMM as plain loops. */
#include "fp8/reference.h"
#include "fp8/tensorcore.h"

/* ---- amax ---- */

/* Returns the larger number, but NaN if either is NaN, unlike fmaxf. */
static float larger(float a, float b) {
    if (isnan(a) || isnan(b)) return NAN;
    return a > b ? a : b;
}

/* Returns the amax of `count` elements, at the indices start, start + stride, .... */
static float amax_line(const void *x, ott_dtype d, int64_t start, int64_t count, int64_t stride) {
    float amax = 0.0f;
    for (int64_t i = 0; i < count; i++) amax = larger(amax, fabsf(cast_load(x, d, start + i * stride)));
    return amax;
}

void reference_amax_rows(const void *x, ott_dtype d, int64_t rows, int64_t columns, int64_t ld, float *amax) {
    for (int64_t i = 0; i < rows; i++) amax[i] = amax_line(x, d, i * ld, columns, 1);
}

void reference_amax_columns(const void *x, ott_dtype d, int64_t rows, int64_t columns, int64_t ld,
                            float *amax) {
    for (int64_t j = 0; j < columns; j++) amax[j] = amax_line(x, d, j, rows, ld);
}

float reference_amax(const void *x, ott_dtype d, int64_t rows, int64_t columns, int64_t ld) {
    float amax = 0.0f;
    for (int64_t i = 0; i < rows; i++) amax = larger(amax, amax_line(x, d, i * ld, columns, 1));
    return amax;
}

/* ---- quantize ---- */

/* Returns the index of the scale group of element (mn, k). */
static int64_t scale_index(granularity grain, int64_t mn, int64_t k, int64_t k_step) {
    scale_block block = granularity_block(grain);
    return mn / block.mn + k / block.k * k_step;
}

void reference_quantize(const void *x, ott_dtype d, int64_t rows, int64_t columns, int64_t ld,
                        const cast_spec *spec, bool column, float *amax, float *scale, float *scale_inv,
                        uint8_t *codes) {
    int64_t mn = column ? columns : rows, k = column ? rows : columns;
    int64_t groups = granularity_groups(spec->grain, mn, k);
    int64_t k_step = granularity_mn_groups(spec->grain, mn);
    for (int64_t g = 0; g < groups; g++) amax[g] = 0.0f;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            int64_t group = scale_index(spec->grain, column ? j : i, column ? i : j, k_step);
            amax[group] = larger(amax[group], fabsf(cast_load(x, d, i * ld + j)));
        }
    for (int64_t g = 0; g < groups; g++) {
        if (spec->policy == AMAX_CURRENT) scale[g] = scale_from_amax(amax[g], spec->format, &spec->scale);
        scale_inv[g] = scale_inverse(scale[g]);
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            int64_t group = scale_index(spec->grain, column ? j : i, column ? i : j, k_step);
            float scaled = cast_load(x, d, i * ld + j) * scale[group];
            codes[i * columns + j] = cast_to_fp8(scaled, spec->format, spec->mode);
        }
}

/* ---- GEMM ---- */

static int64_t operand_index(const reference_operand *x, int64_t mn, int64_t k) {
    return x->transposed ? k * x->ld + mn : mn * x->ld + k;
}

static float operand_scale_inv(const reference_operand *x, int64_t mn, int64_t k) {
    scale_block block = granularity_block(x->grain);
    if (x->scale_inv == NULL) return 1.0f;
    return scale_inv_at(x->scale_inv, x->mn_step, x->k_step, x->tiles, mn / block.mn, k / block.k);
}

/* Returns the sum of terms k, k + step, ... below end, added one by one in fp32, from 0. */
static float sum_chain(const reference_operand *a, int64_t i, const reference_operand *b, int64_t j,
                       int64_t k, int64_t end, int64_t step) {
    float sum = 0.0f;
    for (; k < end; k += step) {
        float left = cast_load(a->data, a->format, operand_index(a, i, k));
        float right = cast_load(b->data, b->format, operand_index(b, j, k));
        sum = fmaf(left, right, sum);
    }
    return sum;
}

static float sum_tile32(const reference_operand *a, int64_t i, const reference_operand *b, int64_t j,
                        int64_t k, int64_t end) {
    enum { TILE = 32 };
    float sum = 0.0f;
    for (; k < end; k += TILE) {
        int64_t last = end - k < TILE ? end : k + TILE;
        float even = sum_chain(a, i, b, j, k, last, 2), odd = sum_chain(a, i, b, j, k + 1, last, 2);
        sum += even + odd;
    }
    return sum;
}

static void operand_gather(const reference_operand *x, int64_t mn, int64_t k, int count, uint8_t *out) {
    for (int l = 0; l < count; l++) out[l] = ((const uint8_t *)x->data)[operand_index(x, mn, k + l)];
}

/* Returns tensorcore_fp8_dot_split if `split`, else tensorcore_fp8_dot_fast, for operands of any layout. */
static float sum_tensorcore(const reference_operand *a, int64_t i, const reference_operand *b, int64_t j,
                            int64_t k, int64_t end, bool split) {
    enum { INSTRUCTION = 32, PROMOTION = 128 };
    uint8_t left[INSTRUCTION], right[INSTRUCTION];
    float sum = 0.0f, accumulator = 0.0f;
    for (int64_t done = 0; k < end; k += INSTRUCTION) {
        int count = end - k < INSTRUCTION ? (int)(end - k) : INSTRUCTION;
        operand_gather(a, i, k, count, left);
        operand_gather(b, j, k, count, right);
        accumulator = tensorcore_fp8_step(left, a->format, right, b->format, count, accumulator);
        done += INSTRUCTION;
        if (split && done % PROMOTION == 0) {
            sum += accumulator;
            accumulator = 0.0f;
        }
    }
    return split ? sum + accumulator : accumulator;
}

static float contract(const reference_operand *a, int64_t i, const reference_operand *b, int64_t j, int64_t k,
                      int64_t end, accumulate_mode mode) {
    switch (mode) {
    case ACCUMULATE_HOPPER_FAST: return sum_tensorcore(a, i, b, j, k, end, false);
    case ACCUMULATE_HOPPER_SPLIT: return sum_tensorcore(a, i, b, j, k, end, true);
    case ACCUMULATE_TILE32: return sum_tile32(a, i, b, j, k, end);
    case ACCUMULATE_FP32: break;
    }
    return sum_chain(a, i, b, j, k, end, 1);
}

static float apply_scales(float sum, float scale_inv_a, float scale_inv_b, scale_order order) {
    return order == SCALE_PRODUCT ? sum * (scale_inv_a * scale_inv_b) : (sum * scale_inv_a) * scale_inv_b;
}

/* Adds one block's partial sum p, scaled, to y. */
static float add_scaled(float y, float p, float scale_inv_a, float scale_inv_b, scale_order order) {
    return order == SCALE_PRODUCT ? fmaf(p, scale_inv_a * scale_inv_b, y)
                                  : fmaf(p * scale_inv_a, scale_inv_b, y);
}

static float scaled_sum(const reference_operand *a, int64_t i, const reference_operand *b, int64_t j,
                        int64_t count, const gemm_spec *spec) {
    int64_t block = granularity_block(a->grain).k;
    if (block == INT64_MAX) {
        float sum = contract(a, i, b, j, 0, count, spec->accumulate);
        return apply_scales(sum, operand_scale_inv(a, i, 0), operand_scale_inv(b, j, 0), spec->order);
    }
    float y = 0.0f;
    for (int64_t k = 0; k < count; k += block) {
        int64_t end = k + block < count ? k + block : count;
        float p = contract(a, i, b, j, k, end, spec->accumulate);
        y = add_scaled(y, p, operand_scale_inv(a, i, k), operand_scale_inv(b, j, k), spec->order);
    }
    return y;
}

void reference_gemm(int64_t m, int64_t n, int64_t k, const reference_operand *a, const reference_operand *b,
                    const gemm_spec *spec, const float *bias, bool accumulate, void *c, ott_dtype dc,
                    int64_t ldc) {
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            float value = scaled_sum(a, i, b, j, k, spec);
            if (bias != NULL) value += bias[j];
            if (accumulate) value += cast_load(c, dc, i * ldc + j);
            cast_store(c, dc, i * ldc + j, value);
        }
    }
}
