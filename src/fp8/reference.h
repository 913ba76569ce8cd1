/* fp8/reference: quantize and GEMM as plain loops: the definition that every backend's kernels must equal bit
   for bit. */
#ifndef FP8_REFERENCE_H
#define FP8_REFERENCE_H

#include "fp8/recipe.h"

/* Largest |x| of rows x columns elements (leading dimension ld) of format d; NaN (0x7fc00000) if any is NaN;
 * 0 when empty.
 */
float reference_amax(const void *x, ott_dtype d, int64_t rows, int64_t columns, int64_t ld);
/* Of each row: amax[rows]; of each column: amax[columns]. */
void reference_amax_rows(const void *x, ott_dtype d, int64_t rows, int64_t columns, int64_t ld, float *amax);
void reference_amax_columns(const void *x, ott_dtype d, int64_t rows, int64_t columns, int64_t ld,
                            float *amax);
/* One use of quantize: amax, scale, inverse scale and codes. `column` selects the columnwise use. Any
   granularity; rounding NEAREST. AMAX_DELAYED: scale[0] is given, all else follows from it. Arrays: amax,
   scale, scale_inv have granularity_groups entries, [block of K][block of MN]; codes is rows x
   columns, dense. */
void reference_quantize(const void *x, ott_dtype d, int64_t rows, int64_t columns, int64_t ld,
                        const cast_spec *spec, bool column, float *amax, float *scale, float *scale_inv,
                        uint8_t *codes);

/* A GEMM operand: element (i, k) of op(A) is a[i*ld + k], or a[k*ld + i] when transposed. scale_inv: NULL (no
   scale), or that of (i, k) is scale_inv[i / block.mn * mn_step + k / block.k * k_step], block =
   granularity_block(grain). */
typedef struct reference_operand {
    const void *data;
    ott_dtype format;
    int64_t ld;
    bool transposed;
    granularity grain;
    const float *scale_inv;
    int64_t mn_step, k_step;
} reference_operand;

/* C[m,n] (format dc, leading dimension ldc) = round(scaled sum + bias + C): sum is the fp32 chain
   s = fmaf(a(i,k), b(j,k), s), k ascending from s = 0; scaled by the scale_inv scales in the order of `spec`
   (scale_order). With block scales, which are as long along K in both operands, each block of
   the contraction is a chain of its own from 0, p, and the scaled sum is y, starting from 0, after y = fmaf
   for each block in order. Then bias[j] (fp32, may be NULL) is added, then, when accumulate is true, C(i,j),
   each one fp32 operation; the result is rounded to dc once. ACCUMULATE_HOPPER_* replace the chain by
   fp8/tensorcore's (FP8 operands only). ACCUMULATE_TILE32 replaces it by s = s + (even + odd) for each 32 terms (the last
   tile may have fewer), s = 0 before; even and odd are chains from 0 over the tile's terms 0, 2, ... and 1, 3, .... Any NaN equals any NaN in an fp32 result; in bf16 and fp16 it is the
   canonical one of fp8/cast. */
void reference_gemm(int64_t m, int64_t n, int64_t k, const reference_operand *a, const reference_operand *b,
                    const gemm_spec *spec, const float *bias, bool accumulate, void *c, ott_dtype dc,
                    int64_t ldc);

#endif
