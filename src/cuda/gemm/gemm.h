/* cuda/gemm/gemm: kernels that complement cuBLASLt: products that the library cannot compute, grouped
   products (only the device knows the group sizes), the epilogue with a bias, and the reordering of
   scales. Each product has two kernels. One multiplies tiles on the tensor cores (tensor_cores.cu): bf16 by
   bf16, fp16 by fp16, FP8 by FP8. The exact kernel (gemm.cu) multiplies any formats, with the bits of
   fp8/reference.h, slowly. */
#ifndef CUDA_GEMM_GEMM_H
#define CUDA_GEMM_GEMM_H

#include "fp8/recipe.h"
#include "tensor/ops.h"
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* c = round(scaled sum + bias + c), as tensor/ops.def defines it. bias may be NULL. The old c is added only
   if `accumulate`. gemm_launch uses the tensor cores if they can multiply the formats. */
cudaError_t gemm_launch(const operand *a, const operand *b, const tensor *bias, const tensor *c,
                        bool accumulate, scale_order order, cudaStream_t stream);
cudaError_t gemm_exact_launch(const operand *a, const operand *b, const tensor *bias, const tensor *c,
                              bool accumulate, scale_order order, cudaStream_t stream);
/* True if the tensor cores can multiply the operands. */
bool gemm_is_for_tensor_cores(const operand *a, const operand *b);
/* The grouped GEMM ops. deep: the matrices B of all experts are concatenated along K; if false, along N. */
cudaError_t gemm_grouped_launch(const grouped_gemm_args *a, bool deep, cudaStream_t stream);
cudaError_t gemm_grouped_weight_launch(const grouped_gemm_weight_args *a, cudaStream_t stream);
cudaError_t gemm_exact_grouped_launch(const grouped_gemm_args *a, bool deep, cudaStream_t stream);
cudaError_t gemm_exact_weight_launch(const grouped_gemm_weight_args *a, cudaStream_t stream);
/* Scales of the rows of a sum, a[i * a_step], and of its columns, b[j * b_step]; a and b may be NULL. */
typedef struct gemm_factors {
    const float *a, *b;
    int64_t a_step, b_step;
} gemm_factors;

/* c = round(sum * (a * b) + bias + c). The old c is added only if `accumulate`. sum: fp32, with row stride
   sum_ld. */
cudaError_t gemm_epilogue_launch(const float *sum, int64_t sum_ld, const gemm_factors *factors,
                                 const tensor *bias, const tensor *c, bool accumulate, cudaStream_t stream);
/* Copies a tensor to `to`, in a format that has all its values: bf16 or fp32. Reads to's data, dtype and
   ld. */
cudaError_t gemm_widen_launch(const tensor *from, const tensor *to, cudaStream_t stream);

/* A copy of an operand's decode scales [mn][k]. mn_step, k_step, tiles: their order in `from`
   (fp8/scale_tiles.h). */
typedef struct gemm_scales {
    const void *from;
    void *to;
    int64_t mn, k, mn_step, k_step;
    scale_tiles tiles;
    int64_t to_mn_step, to_k_step; /* strides of fp32 scales in `to` */
} gemm_scales;

cudaError_t gemm_scales_launch(const gemm_scales *s, cudaStream_t stream); /* copies fp32 scales */
/* Copies the E8M0 scales of a view to tiles that begin with the view. along_k: number of tiles along K. */
cudaError_t gemm_tiles_launch(const gemm_scales *s, int64_t along_k, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
