/* fp8/quant_spec: how a tensor is quantized for its two uses as a GEMM operand (fp8/recipe.h). */
#ifndef FP8_QUANT_SPEC_H
#define FP8_QUANT_SPEC_H

#include "fp8/cast_spec.h"

typedef struct quant_spec {
    cast_spec rowwise, columnwise;
} quant_spec;

bool quant_spec_equal(const quant_spec *a, const quant_spec *b);
/* True if at least one use is FP8. */
bool quant_spec_is_fp8(const quant_spec *s);
/* True if both uses give each element the same scale and code. For this the two casts must be equal, and
   scale blocks must be as long along MN as along K. */
bool quant_spec_shares_scales(const quant_spec *s);
/* Returns q for a source tensor of format d: SCALE_TE's `infinite` becomes d's maximum for block scales. */
quant_spec quant_spec_from(quant_spec q, ott_dtype d);

#endif
