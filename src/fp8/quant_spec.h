/* fp8/quant_spec: how a tensor is quantized for its two uses (fp8/recipe.h). */
#ifndef FP8_QUANT_SPEC_H
#define FP8_QUANT_SPEC_H

#include "fp8/cast_spec.h"

/* The casts for both uses of a tensor. Activations carry a quant_spec. */
typedef struct quant_spec {
    cast_spec rowwise, columnwise;
} quant_spec;

bool quant_spec_equal(const quant_spec *a, const quant_spec *b);
/* True if at least one use is FP8. */
bool quant_spec_is_fp8(const quant_spec *s);
/* True if both uses give each element the same scale and code: same format and rule, and a block that is the
   same along rows and columns. */
bool quant_spec_shares_scales(const quant_spec *s);
/* Returns the spec for a source tensor of format d (F32, BF16 or F16): a block's infinite scale becomes d's
   largest number. */
quant_spec quant_spec_from(quant_spec q, ott_dtype d);

#endif
