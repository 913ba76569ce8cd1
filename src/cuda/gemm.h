/* cuda/gemm: kernels that complement cuBLASLt: products that the library cannot compute, grouped products
   (only the device knows the group sizes), the epilogue with a bias, and scales in the library's order. */
#ifndef CUDA_GEMM_H
#define CUDA_GEMM_H

#include "fp8/recipe.h"
#include "tensor/ops.h"
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* c = round(scaled sum + bias + c), by ops.def's rules; one thread per element, which sums in order. bias may
   be NULL. c's old value is added if `accumulate`. Only for spec.accumulate ACCUMULATE_FP32. */
cudaError_t gemm_launch(const operand *a, const operand *b, const tensor *bias, const tensor *c,
                        bool accumulate, scale_order order, cudaStream_t stream);
/* The grouped ops. deep: the expert weights are concatenated along the contraction. */
cudaError_t gemm_grouped_launch(const grouped_gemm_args *a, bool deep, cudaStream_t stream);
cudaError_t gemm_grouped_weight_launch(const grouped_gemm_weight_args *a, cudaStream_t stream);
/* c = round(sum + bias + c). sum: fp32, dense, with c's rows and columns. */
cudaError_t gemm_epilogue_launch(const float *sum, const tensor *bias, const tensor *c, bool accumulate,
                                 cudaStream_t stream);

/* Copies scales [mn][k] of an operand from strides mn_step, k_step to strides to_mn_step, to_k_step. */
typedef struct gemm_scales {
    const float *from;
    void *to;
    int64_t mn, k, mn_step, k_step, to_mn_step, to_k_step;
} gemm_scales;

cudaError_t gemm_scales_launch(const gemm_scales *s, cudaStream_t stream);
/* Same, but as E8M0 exponents in tiles of 128 x 4 (SCALES_MX), `tiles` of them per row of tiles. Padding rows
   and blocks get 2^0. Ignores to_mn_step and to_k_step. */
cudaError_t gemm_mx_scales_launch(const gemm_scales *s, int64_t tiles, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
