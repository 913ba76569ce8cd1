/* bench/gpu/fill: fills device memory with random operands. */
#ifndef FILL_H
#define FILL_H

#include "ottava/types.h"
#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes `count` random numbers with this standard deviation, rounded to fp32, bf16, E4M3 or E5M2. They are
   approximately normal: sums of four uniform numbers. They depend only on seed and index. */
cudaError_t fill_normal(void *data, ott_dtype format, size_t count, float deviation, uint64_t seed,
                        cudaStream_t stream);
/* Writes `count` fp32 scales 2^u, where u is uniform in [low, high). */
cudaError_t fill_scales(float *data, size_t count, float low, float high, uint64_t seed, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
