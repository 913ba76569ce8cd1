/*
 * bench/gpu/elementwise: kernels that move more bytes than they compute: casts, transposes, scales, RMSNorm
 * and SwiGLU, alone and fused. What they compute is src/fp8/reference.h's quantize, bit for bit; norm and
 * SwiGLU are fp32 arithmetic rounded to bf16 once, and a fused kernel quantizes that bf16 value.
 */
#ifndef ELEMENTWISE_H
#define ELEMENTWISE_H

#include "fp8/scale.h"
#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a call reads and writes, on the device, dense, aligned to 16 bytes. R rows, C columns; bf16 where no
   other type is said. */
typedef struct elementwise_args {
    int64_t rows, columns;
    const void *x;       /* [R,C] (quantize_weight*: fp32); SwiGLU: gate and up side by side, [R,2C] */
    const void *second;  /* [R,C]: norm: what is added to x; SwiGLU backward: the gradient of its output */
    const float *weight; /* [C]: norm */
    float epsilon;       /* norm */
    void *y;             /* [R,C]; SwiGLU backward: gradients of gate and up side by side, [R,2C] */
    void *residual;      /* [R,C]: x + second, rounded */
    float *rstd;         /* [R] */

    ott_dtype format;   /* of the codes: E4M3 or E5M2 */
    const float *scale; /* [1]: the tensor's scale, where it is given */
    scale_options rule; /* from amax to scale, where none is given: SCALE_TORCHAO or SCALE_TE, margin 0 */
    uint8_t *q, *qt;    /* codes [R,C], and transposed, [C,R]; SwiGLU backward: [R,2C], [2C,R] */
    float *inverse, *inverse_t; /* 1/scale of the codes by rows and by columns: [block of the contraction]
                                   [group of lines], as reference_quantize lays them out */
    float *amax;                /* [1], raised to the largest magnitude of what is cast; NULL: not wanted */
    float *column_amax;         /* [C], raised to the largest magnitude of each column */
} elementwise_args;

/* Each returns cudaErrorInvalidValue for what it does not take: C must be a multiple of 8, and R and C of 16
   where qt is written. Rules of scales: E4M3 only. */
typedef cudaError_t elementwise_kernel(const elementwise_args *a, cudaStream_t stream);

/* x to y, as it is. */
elementwise_kernel quantize_copy;
/* x to amax. */
elementwise_kernel quantize_amax;
/* x, scale to q. */
elementwise_kernel quantize_cast;
/* x, scale to q, qt, amax. */
elementwise_kernel quantize_tensor;
/* x, rule to q and inverse [R], one scale a row; column_amax, unless NULL. At most 16384 columns. */
elementwise_kernel quantize_rows;
/* x to column_amax. */
elementwise_kernel quantize_column_amax;
/* x, column_amax, rule to qt and inverse_t [C], one scale a column. */
elementwise_kernel quantize_columns;
/* x, rule to q, qt and the inverse scales of 1 x 128 elements along rows, [C/128][R], and along columns,
   [R/128][C]. */
elementwise_kernel quantize_blocks;
/* The same of an fp32 x with one scale for 128 x 128 elements: inverse [C/128][R/128], inverse_t
   [R/128][C/128]. */
elementwise_kernel quantize_weight_blocks;
/* fp32 x, scale to q, qt. The codes follow from the fp32 number itself, not from its bf16 value. */
elementwise_kernel quantize_weight;

/* RMSNorm of x + second, at most 4096 columns: writes residual and rstd, and */
elementwise_kernel norm_forward; /* y, amax */
elementwise_kernel norm_tensor;  /* scale to q, qt, amax */
elementwise_kernel norm_rows;    /* y; rule to q, inverse [R], column_amax */

/* SwiGLU: silu(gate) * up. */
elementwise_kernel swiglu_forward;         /* y, amax */
elementwise_kernel swiglu_tensor;          /* scale to q, qt, amax */
elementwise_kernel swiglu_backward;        /* y, amax */
elementwise_kernel swiglu_backward_tensor; /* scale to q, qt, amax */

#ifdef __cplusplus
}
#endif

#endif
