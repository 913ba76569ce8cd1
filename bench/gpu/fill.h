/* bench/gpu/fill: random operands, made on the device. */
#ifndef FILL_H
#define FILL_H

#include "ottava/types.h"
#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `count` numbers, approximately normal (a sum of four uniform ones) with the given standard deviation, a
   pure function of (seed, index), rounded to the format: fp32, bf16, E4M3 or E5M2. */
cudaError_t fill_normal(void *data, ott_dtype format, size_t count, float deviation, uint64_t seed,
                        cudaStream_t stream);
/* `count` fp32 numbers 2^u, u uniform in [low, high): scales. */
cudaError_t fill_scales(float *data, size_t count, float low, float high, uint64_t seed, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
