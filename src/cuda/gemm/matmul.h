/*
 * cuda/gemm/matmul: plans and runs one cuBLASLt product: row-major D[M,N] = A[M,K] B[N,K]^T (+ D), fp32
 * arithmetic, with the scales of every FP8 recipe that Hopper supports (cuBLAS 13 documentation,
 * "cublasLtMatmul" and "Narrow Precision Data Types").
 *
 * cuBLAS is column-major. So cuBLAS' A is our B, cuBLAS' B is our A, and cuBLAS' D is our D.
 */
#ifndef CUDA_GEMM_MATMUL_H
#define CUDA_GEMM_MATMUL_H

#include "ottava/types.h"
#include <cublasLt.h>
#include <stdbool.h>
#include <stdint.h>

/* Scale modes of FP8 operands, with the shapes of the arrays of scales. Scales are dequantization factors, in
   fp32 except for SCALES_MX. The arrays are 16-byte aligned. */
typedef enum matmul_scales {
    SCALES_NONE,   /* operands in bf16, fp16 or fp32 */
    SCALES_ONE,    /* FP8 operands without scales */
    SCALES_TENSOR, /* one scale for A, one for B */
    SCALES_ROW,    /* one scale per row: [M] for A, [N] for B */
    /* 1x128 blocks of A: [ceil(K/128)][M]; 128x128 blocks of B: [ceil(N/128)][ceil(K/128) rounded up to 4] */
    SCALES_BLOCK_2D,
    SCALES_BLOCK_1D, /* 1x128 blocks of A: [ceil(K/128)][M]; 1x128 blocks of B: [ceil(K/128)][N] */
    SCALES_MX        /* 1x32 blocks: E8M0 bytes in tiles (fp8/scale_tiles.h) */
} matmul_scales;

typedef struct matmul_spec {
    int64_t m, n, k;
    int64_t lda, ldb, ldd; /* row strides in elements; 0: dense */
    /* formats of A and B: CUDA_R_32F, _16BF, _16F, _8F_E4M3 or _8F_E5M2; of D: one of the first three */
    cudaDataType_t a, b, d;
    bool a_transposed, b_transposed; /* A is stored as [K,M], B as [K,N]; not for FP8 */
    matmul_scales scales;
    bool fast;         /* fast accumulation: all of K is summed in the tensor cores' own precision */
    bool accumulate;   /* add the product to D */
    int alignment;     /* alignment of the addresses of A, B and D, in bytes; 0: 256 */
    int64_t workspace; /* bytes of workspace; its address is a multiple of 256 */
} matmul_spec;

/* Device memory of one call. The scales are NULL for SCALES_NONE and SCALES_ONE. */
typedef struct matmul_data {
    const void *a, *b;
    void *d;
    const void *a_scale, *b_scale;
} matmul_data;

enum { MATMUL_CANDIDATES = 8 };

typedef struct matmul {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
    /* algorithms that the library's heuristics suggest, best first */
    cublasLtMatmulHeuristicResult_t candidate[MATMUL_CANDIDATES];
    int candidates;
} matmul;

/* Returns "ok" or the name of the error. */
const char *matmul_status(cublasStatus_t status);

/* Returns "scales of rows" and the like, for messages. */
const char *matmul_scales_text(matmul_scales scales);

/* Converts between cuBLAS types and dtypes. */
ott_dtype matmul_dtype(cudaDataType_t type);
cudaDataType_t matmul_type(ott_dtype d);

/* Number of scales in the array of A (or of B), and bytes per scale. */
int64_t matmul_scale_count(const matmul_spec *spec, bool of_b);
int64_t matmul_scale_bytes(matmul_scales scales);
/* Number of tiles of scales along K (SCALES_MX). */
int64_t matmul_mx_tiles(const matmul_spec *spec);

/* Index of the fp32 scale of an element of A (or of B). mn_index, depth: its indices along MN and K.
   Returns 0 for SCALES_MX. */
int64_t matmul_scale_index(const matmul_spec *spec, bool of_b, int64_t mn_index, int64_t depth);

/* Plans the product. Returns CUBLAS_STATUS_NOT_SUPPORTED if the library has no algorithm. Close the plan even
   after an error. */
cublasStatus_t matmul_plan(matmul *p, cublasLtHandle_t handle, const matmul_spec *spec);
/* Queues the product with algorithm `candidate`. */
cublasStatus_t matmul_run(matmul *p, int candidate, const matmul_spec *spec, const matmul_data *data,
                          void *workspace, cudaStream_t stream);
void matmul_close(matmul *p);

#endif
