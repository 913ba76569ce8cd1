/*
 * cuda/gemm/method: the ways to compute a product, fastest first. A product takes the first method that its
 * shape, formats and scales allow and for which cuBLASLt has an algorithm. All methods have the same
 * arithmetic: sums in fp32, then scales, bias and the old C, then one rounding. The choice depends only on
 * the call and on cuBLASLt, so the workspace is known when the step is planned.
 */
#ifndef CUDA_GEMM_METHOD_H
#define CUDA_GEMM_METHOD_H

#include "cuda/cuda.h"
#include "cuda/gemm/matmul.h"

typedef enum product_method {
    METHOD_LIBRARY, /* cuBLASLt computes C */
    METHOD_SUMS, /* cuBLASLt computes scaled sums in fp32. A kernel adds the bias and the old C, and rounds */
    METHOD_UNSCALED, /* the same, and the kernel also multiplies the sums by the scales of tensors or rows */
    METHOD_WIDENED,  /* the same, for exact copies of the operands: FP8 codes in bf16, other mixes in fp32 */
    METHOD_OWN,      /* Ottava's kernel computes C */
    METHOD_COUNT
} product_method;

/* How to compute a product. A field with _at is the byte offset of a buffer in the workspace; -1: none. */
typedef struct gemm_choice {
    product_method method;
    matmul_spec spec; /* spec.alignment counts only row strides; addresses are known at run time */
    int64_t library_at, a_scales_at, b_scales_at;
    int64_t a_copy_at, b_copy_at; /* copies of the operands: padded or widened */
    int64_t sum_at;               /* fp32 sums, [spec.m][spec.ldd], at least C's shape */
    int64_t bytes;
} gemm_choice;

/* Describes the product on a method. Returns false if the method cannot compute it. */
bool method_describe(const cuda_device *c, const gemm_args *g, product_method method, gemm_choice *out);
/* Describes the product on the first method for which cuBLASLt has an algorithm. */
ott_status method_choose(cuda_device *c, const gemm_args *g, gemm_choice *out);
/* Returns what computes a product on this method, for messages. */
const char *method_text(product_method method);

#endif
