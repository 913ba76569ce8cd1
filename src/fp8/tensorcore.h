/* fp8/tensorcore: what Hopper's tensor cores compute, bit for bit, for one dot product (transformer-engine
   accumulation study, H100 and H200 measurements by Khattak and Mikaitis, BSD-2). For every block of N
   products plus the incoming accumulator: align all to the largest exponent, keep F fraction bits of each
   (truncated), add exactly, normalise, truncate to R mantissa bits. Confirmed on hardware for a zero incoming
   accumulator; a non-zero one follows the same rule but awaits confirmation. */
#ifndef FP8_TENSORCORE_H
#define FP8_TENSORCORE_H

#include "fp8/cast.h"

/* One instruction: `count` (<= 32) products of FP8 codes a[i] of format da with b[i] of format db, added to
 * `accumulator`. */
float tensorcore_fp8_step(const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db, int count,
                          float accumulator);
/* A dot product over k elements: fast keeps the whole chain in the tensor core's accumulator; split restarts
   it every 128 elements and adds the parts in fp32. */
float tensorcore_fp8_dot_fast(const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db, int64_t k);
float tensorcore_fp8_dot_split(const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db, int64_t k);

#endif
