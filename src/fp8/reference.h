/* fp8/reference: quantize and GEMM as plain loops, which define the result. The CPU's kernels must give the
   same bits, and so must a GPU's quantization kernels. */
#ifndef FP8_REFERENCE_H
#define FP8_REFERENCE_H

#include "fp8/recipe.h"

/* Returns max |x| over rows x columns elements of format d (leading dimension ld); NaN (0x7fc00000) if any is
   NaN; 0 if empty. */
float reference_amax(const void *x, ott_dtype d, int64_t rows, int64_t columns, int64_t ld);
/* Write the amax of each row to amax[rows], or of each column to amax[columns]. */
void reference_amax_rows(const void *x, ott_dtype d, int64_t rows, int64_t columns, int64_t ld, float *amax);
void reference_amax_columns(const void *x, ott_dtype d, int64_t rows, int64_t columns, int64_t ld,
                            float *amax);
/* Quantizes a tensor rowwise, or columnwise if `column`: writes amax, scale, scale_inv and codes. Rounds to
   nearest, whatever spec->rounding is. With AMAX_DELAYED, scale[0] is an input. amax, scale and scale_inv
   (here always fp32) have granularity_groups entries, [block of K][block of MN]. codes: rows x columns,
   dense. */
void reference_quantize(const void *x, ott_dtype d, int64_t rows, int64_t columns, int64_t ld,
                        const cast_spec *spec, bool column, float *amax, float *scale, float *scale_inv,
                        uint8_t *codes);

/* A GEMM operand: element (i, k) is data[i*ld + k], or data[k*ld + i] if transposed. The inverse scale of (i,
   k) is at position (i / block.mn, k / block.k) of scale_inv (fp8/scale_tiles.h), with block =
   granularity_block(grain); 1 if scale_inv is NULL. */
typedef struct reference_operand {
    const void *data;
    ott_dtype format;
    int64_t ld;
    bool transposed;
    granularity grain;
    const void *scale_inv;
    int64_t mn_step, k_step;
    scale_tiles tiles;
} reference_operand;

/* C[m,n] = round(scaled sum + bias + C), in format dc, leading dimension ldc. The sum is s = fmaf(a(i,k),
   b(j,k), s) for each k, ascending, from s = 0. It is scaled by both scale_inv in the order of `spec`
   (scale_order). With block scales (equally long along K in both operands), each block has such a sum p, and
   the blocks' scaled sums are added in order (scale_order: y). Then bias[j] (fp32, may be NULL) is added,
   then C(i,j) if accumulate, each by one fp32 operation. The result is rounded to dc once.
   ACCUMULATE_HOPPER_* computes s by tensorcore_fp8_dot_fast or _split (fp8/tensorcore.h; FP8 operands only).
   ACCUMULATE_TILE32 computes s = s + (even + odd) for each tile of 32 terms, from s = 0 (the last tile may be
   shorter). even is the sum of the tile's terms 0, 2, ..., odd of its terms 1, 3, ..., both starting at 0.
   Backends may return other NaNs in fp32; in bf16 and fp16 a NaN is 0x7FFF (fp8/cast.h). */
void reference_gemm(int64_t m, int64_t n, int64_t k, const reference_operand *a, const reference_operand *b,
                    const gemm_spec *spec, const float *bias, bool accumulate, void *c, ott_dtype dc,
                    int64_t ldc);

#endif
