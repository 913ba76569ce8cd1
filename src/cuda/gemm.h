/*
 * cuda/gemm: kernels around cuBLASLt's products: the product of any operands as ops.def defines it, for what the library does
 * not take, and those of groups, whose sizes only the device knows; what an epilogue of the library cannot do; and scales in the order in which the library reads them.
 */
#ifndef CUDA_GEMM_H
#define CUDA_GEMM_H

#include "fp8/recipe.h"
#include "tensor/ops.h"
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* c = round(scaled sum + bias + c): in order, one thread for each element. bias and c's old value count where asked for. For
   spec.accumulate ACCUMULATE_FP32. */
cudaError_t gemm_launch(const operand *a, const operand *b, const tensor *bias, const tensor *c,
                        bool accumulate, scale_order order, cudaStream_t stream);
/* The ops. deep: the stack's matrices lie one after the other along the contraction. */
cudaError_t gemm_grouped_launch(const grouped_gemm_args *a, bool deep, cudaStream_t stream);
cudaError_t gemm_grouped_weight_launch(const grouped_gemm_weight_args *a, cudaStream_t stream);
/* c = round(sum + bias + c); sum: fp32, as many rows and columns as c, dense. */
cudaError_t gemm_epilogue_launch(const float *sum, const tensor *bias, const tensor *c, bool accumulate,
                                 cudaStream_t stream);

/* Scales [mn][k] of an operand at mn_step and k_step, to be at to_mn_step and to_k_step. */
typedef struct gemm_scales {
    const float *from;
    void *to;
    int64_t mn, k, mn_step, k_step, to_mn_step, to_k_step;
} gemm_scales;

cudaError_t gemm_scales_launch(const gemm_scales *s, cudaStream_t stream);
/* The same as exponents, E8M0, in tiles of 128 x 4 (SCALES_MX), `tiles` of them side by side; of lines and blocks that are not
   there 2^0. The steps of s to which they go are not used. */
cudaError_t gemm_mx_scales_launch(const gemm_scales *s, int64_t tiles, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
