/*
 * fp8/recipe_text: one use of one tensor (cast_spec) as text, the same in configurations, listings and pages.
 * Words separated by spaces, the format first:
 *
 *     high                            the activation format; no other word
 *     e4m3                            one scale for the tensor, torchao's rule
 *     e4m3 row pow2                   a power-of-two scale for each contracted line
 *     e4m3 1x128 te pow2              TransformerEngine's block scaling
 *     e4m3 1x32                       MX
 *     e5m2 delayed history=16 algo=most_recent
 *
 * Left out, a word has its default: one scale for the tensor; torchao's rule, but TransformerEngine's for
 * delayed and MX's for 1x32; current scaling; saturating. What an infinite scale of TransformerEngine's rule
 * becomes follows from the granularity, as published: FLT_MAX, or the largest bf16 for blocks.
 */
#ifndef FP8_RECIPE_TEXT_H
#define FP8_RECIPE_TEXT_H

#include "fp8/recipe.h"

#define RECIPE_CAST_TEXT 96

/* activation: what "high" stands for (F32, BF16 or F16). OTT_ERR_CONFIG names the word that is unknown, given
   twice, or without meaning beside another, and what is allowed. */
ott_status recipe_cast_parse(const char *text, ott_dtype activation, cast_spec *out);
/* The shortest text that parses back to an equal spec. Callbacks and stochastic rounding have no words. */
void recipe_cast_write(const cast_spec *s, char out[RECIPE_CAST_TEXT]);

#endif
