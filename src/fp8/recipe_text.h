/*
 * fp8/recipe_text: a cast_spec as text, for configurations, listings and pages. Words are separated by
 * spaces; the format is first:
 *
 *     high                            the activation format; no other word
 *     e4m3                            one scale for the tensor, torchao's rule
 *     e4m3 row pow2                   a power-of-two scale for each row along K
 *     e4m3 1x128 te pow2              TransformerEngine's block scaling
 *     e4m3 1x32                       MX
 *     e5m2 delayed history=16 algo=most_recent
 *
 * Defaults of omitted words: one scale for the tensor; current scaling; a saturating cast; torchao's scale
 * rule, but TransformerEngine's for delayed scaling and e8m0 for 1x32. With TransformerEngine's rule an
 * infinite scale becomes FLT_MAX, or the largest bf16 number for block scales.
 */
#ifndef FP8_RECIPE_TEXT_H
#define FP8_RECIPE_TEXT_H

#include "fp8/recipe.h"

#define RECIPE_CAST_TEXT 96

/* Parses text. activation: the format of "high" (F32, BF16 or F16). OTT_ERR_CONFIG if a word is unknown,
   repeated, or has no effect because of another word. The message names this word. */
ott_status recipe_cast_parse(const char *text, ott_dtype activation, cast_spec *out);
/* Writes the shortest text that parses to an equal spec. Omits callbacks and stochastic rounding. */
void recipe_cast_write(const cast_spec *s, char out[RECIPE_CAST_TEXT]);

#endif
