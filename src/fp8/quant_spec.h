/* fp8/quant_spec: how a tensor is quantized for its two uses (fp8/recipe.h). */
#ifndef FP8_QUANT_SPEC_H
#define FP8_QUANT_SPEC_H

#include "fp8/cast_spec.h"

/* What an activation of the graph carries: both uses of the tensor that flows along it. */
typedef struct quant_spec {
    cast_spec rowwise, columnwise;
} quant_spec;

bool quant_spec_equal(const quant_spec *a, const quant_spec *b);
/* True when at least one use is FP8. */
bool quant_spec_is_fp8(const quant_spec *s);
/* True when both uses give each element the same scale and code: same format and rule, and a block of elements
   that is the same seen along rows and along columns. */
bool quant_spec_shares_scales(const quant_spec *s);
/* The spec as it casts a tensor of format d (F32, BF16 or F16): what an infinite scale of a block becomes is
   the largest number of that format. */
quant_spec quant_spec_from(quant_spec q, ott_dtype d);

#endif
