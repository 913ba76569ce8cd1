/* fp8/tensorcore: models one dot product on Hopper's FP8 tensor cores, bit for bit (transformer-engine
   accumulation study; measurements on H100 and H200 by Khattak and Mikaitis, BSD-2). For each block of N
   products and the incoming accumulator: align all terms to the largest exponent, truncate each to F fraction
   bits, add exactly, normalize, truncate to R mantissa bits. Hardware confirms the rule for a zero incoming
   accumulator. For other accumulators it is not confirmed yet. */
#ifndef FP8_TENSORCORE_H
#define FP8_TENSORCORE_H

#include "fp8/cast.h"

/* One instruction: adds `count` (<= 32) products a[i] * b[i] of FP8 codes, in formats da and db, to
   `accumulator`. */
float tensorcore_fp8_step(const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db, int count,
                          float accumulator);
/* A dot product over k elements. fast: one chain in the tensor core's accumulator. split: restarts the
   accumulator every 128 elements and adds the parts in fp32. */
float tensorcore_fp8_dot_fast(const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db, int64_t k);
float tensorcore_fp8_dot_split(const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db, int64_t k);

#endif
