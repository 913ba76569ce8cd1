/* bench/gpu/fill: random operands, made on the device. */
#ifndef FILL_H
#define FILL_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number formats that operands have here. */
typedef enum fill_format { FILL_F32, FILL_BF16, FILL_E4M3, FILL_E5M2 } fill_format;

/* `count` numbers, approximately normal (a sum of four uniform ones) with the given standard deviation, a
   pure function of (seed, index), rounded to the format. */
cudaError_t fill_normal(void *data, fill_format format, size_t count, float deviation, uint64_t seed,
                        cudaStream_t stream);
/* `count` fp32 numbers 2^u, u uniform in [low, high): scales. */
cudaError_t fill_scales(float *data, size_t count, float low, float high, uint64_t seed, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
