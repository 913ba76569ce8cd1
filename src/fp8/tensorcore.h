/* fp8/tensorcore: models one dot product on Hopper's FP8 tensor cores, bit for bit (measured on H100 and H200
   by Khattak and Mikaitis, BSD-2). An instruction adds 32 products to the accumulator: it aligns all 33 terms
   to the largest exponent, truncates each to 13 fraction bits, adds exactly, normalizes, and truncates to 13
   mantissa bits. Hardware confirms the rule if the accumulator is 0 before the instruction. For other
   accumulators the rule is not confirmed yet. */
#ifndef FP8_TENSORCORE_H
#define FP8_TENSORCORE_H

#include "fp8/cast.h"

/* Models one instruction: adds `count` (<= 32) products a[i] * b[i] of FP8 codes, in formats da and db, to
   `accumulator`, and returns the sum. */
float tensorcore_fp8_step(const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db, int count,
                          float accumulator);
/* Return the dot product of k elements. In _fast all instructions use one accumulator. In _split the
   accumulator is added to an fp32 sum, and set to 0, after every 128 elements. */
float tensorcore_fp8_dot_fast(const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db, int64_t k);
float tensorcore_fp8_dot_split(const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db, int64_t k);

#endif
