/* fp8/reference: quantize and GEMM as plain loops. */
#include "fp8/reference.h"
#include "fp8/tensorcore.h"

/* ---- amax ---- */

/* max that lets NaN win, which fmaxf does not */
static float larger(float a, float b) {
    if (isnan(a) || isnan(b)) return NAN;
    return a > b ? a : b;
}

/* amax of `count` elements that lie `stride` apart. */
static float amax_line(const void *x, ott_dtype d, int64_t start, int64_t count, int64_t stride) {
    float amax = 0.0f;
    for (int64_t i = 0; i < count; i++) amax = larger(amax, fabsf(dtype_load(x, d, start + i * stride)));
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

/* Fills amax for the groups of one side and returns how many groups there are. */
static int64_t amax_groups(const void *x, ott_dtype d, int64_t rows, int64_t columns, int64_t ld,
                           granularity grain, bool column, float *amax) {
    if (grain == GRANULARITY_TENSOR) {
        amax[0] = reference_amax(x, d, rows, columns, ld);
        return 1;
    }
    if (column)
        reference_amax_columns(x, d, rows, columns, ld, amax);
    else
        reference_amax_rows(x, d, rows, columns, ld, amax);
    return column ? columns : rows;
}

void reference_quantize(const void *x, ott_dtype d, int64_t rows, int64_t columns, int64_t ld,
                        const side_spec *spec, bool column, float *amax, float *scale, float *inverse,
                        uint8_t *codes) {
    int64_t groups = amax_groups(x, d, rows, columns, ld, spec->grain, column, amax);
    for (int64_t g = 0; g < groups; g++) {
        scale[g] = scale_from_amax(amax[g], spec->format, &spec->scale);
        inverse[g] = scale_inverse(scale[g]);
    }
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            int64_t group = spec->grain == GRANULARITY_TENSOR ? 0 : column ? j : i;
            float scaled = dtype_load(x, d, i * ld + j) * scale[group];
            codes[i * columns + j] = fp8_from_float(scaled, spec->format, spec->mode);
        }
    }
}

/* ---- GEMM ---- */

static int64_t operand_index(const reference_operand *x, int64_t line, int64_t k) {
    return x->transposed ? k * x->ld + line : line * x->ld + k;
}

static float operand_inverse(const reference_operand *x, int64_t line) {
    if (x->inverse == NULL) return 1.0f; /* multiplying by one changes nothing */
    return x->inverse[x->per_line ? line : 0];
}

static float sum_fp32(const reference_operand *a, int64_t i, const reference_operand *b, int64_t j,
                      int64_t k) {
    float sum = 0.0f;
    for (int64_t l = 0; l < k; l++) {
        float left = dtype_load(a->data, a->format, operand_index(a, i, l));
        float right = dtype_load(b->data, b->format, operand_index(b, j, l));
        sum = fmaf(left, right, sum);
    }
    return sum;
}

static void operand_gather(const reference_operand *x, int64_t line, int64_t k, int count, uint8_t *out) {
    for (int l = 0; l < count; l++) out[l] = ((const uint8_t *)x->data)[operand_index(x, line, k + l)];
}

/* tensorcore_fp8_dot_fast and _split over operands of any layout: gathered one instruction at a time. */
static float sum_tensorcore(const reference_operand *a, int64_t i, const reference_operand *b, int64_t j,
                            int64_t k, bool split) {
    enum { INSTRUCTION = 32, PROMOTION = 128 };
    uint8_t left[INSTRUCTION], right[INSTRUCTION];
    float sum = 0.0f, accumulator = 0.0f;
    for (int64_t l = 0; l < k; l += INSTRUCTION) {
        int count = k - l < INSTRUCTION ? (int)(k - l) : INSTRUCTION;
        operand_gather(a, i, l, count, left);
        operand_gather(b, j, l, count, right);
        accumulator = tensorcore_fp8_step(left, a->format, right, b->format, count, accumulator);
        if (split && (l + INSTRUCTION) % PROMOTION == 0) {
            sum += accumulator;
            accumulator = 0.0f;
        }
    }
    return split ? sum + accumulator : accumulator;
}

static float contract(const reference_operand *a, int64_t i, const reference_operand *b, int64_t j, int64_t k,
                      accumulate_mode mode) {
    switch (mode) {
    case ACCUMULATE_HOPPER_FAST: return sum_tensorcore(a, i, b, j, k, false);
    case ACCUMULATE_HOPPER_SPLIT: return sum_tensorcore(a, i, b, j, k, true);
    case ACCUMULATE_FP32: break;
    }
    return sum_fp32(a, i, b, j, k);
}

static float apply_scales(float sum, float inverse_a, float inverse_b, scale_order order) {
    return order == SCALE_PRODUCT ? sum * (inverse_a * inverse_b) : (sum * inverse_a) * inverse_b;
}

void reference_gemm(int64_t m, int64_t n, int64_t k, const reference_operand *a, const reference_operand *b,
                    const gemm_spec *spec, const float *bias, bool accumulate, void *c, ott_dtype dc,
                    int64_t ldc) {
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            float value = contract(a, i, b, j, k, spec->accumulate);
            value = apply_scales(value, operand_inverse(a, i), operand_inverse(b, j), spec->order);
            if (bias != NULL) value += bias[j];
            if (accumulate) value += dtype_load(c, dc, i * ldc + j);
            dtype_store(c, dc, i * ldc + j, value);
        }
    }
}
