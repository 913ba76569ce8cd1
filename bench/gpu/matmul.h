/*
 * bench/gpu/matmul: one cuBLASLt product, planned and run: row-major D[M,N] = A[M,K] B[N,K]^T (+ D), fp32
 * arithmetic, with the scales of every FP8 recipe that Hopper has (cuBLAS 13 documentation, "cublasLtMatmul"
 * and "Narrow Precision Data Types").
 *
 * cuBLAS is column-major, so its A is our B, its B our A, and its D our D.
 */
#ifndef MATMUL_H
#define MATMUL_H

#include "ottava/types.h"
#include <cublasLt.h>
#include <stdbool.h>
#include <stdint.h>

/* What scales the FP8 codes: dequantizing factors, fp32, each array aligned to 16 bytes. */
typedef enum matmul_scales {
    SCALES_NONE,   /* operands in bf16 */
    SCALES_TENSOR, /* one for A, one for B */
    SCALES_ROW,    /* A: [M]; B: [N] */
    /* A: 1x128, [ceil(K/128)][M]; B: 128x128, [ceil(N/128)][ceil(K/128) rounded up to 4] */
    SCALES_BLOCK_2D,
    SCALES_BLOCK_1D, /* both 1x128: [ceil(K/128)][M] and [ceil(K/128)][N] */
} matmul_scales;

typedef struct matmul_spec {
    int64_t m, n, k;
    cudaDataType_t a, b, d; /* operands: CUDA_R_16BF, CUDA_R_8F_E4M3 or CUDA_R_8F_E5M2; D: CUDA_R_16BF or
                               CUDA_R_32F */
    /* bf16 only: A lies as [K,M], B as [K,N]. FP8 needs the contraction contiguous. */
    bool a_transposed, b_transposed;
    matmul_scales scales;
    bool fast;       /* accumulate in the tensor cores' own precision all along K */
    bool accumulate; /* D is added to */
    bool amax;       /* ask for the largest |D| as well */
} matmul_spec;

/* Device memory of one call; scales and amax may be NULL where the spec asks for none. */
typedef struct matmul_data {
    const void *a, *b;
    void *d;
    const float *a_scale, *b_scale;
    float *amax;
} matmul_data;

enum { MATMUL_CANDIDATES = 8 };
static const size_t matmul_workspace_bytes = (size_t)64 << 20;

typedef struct matmul {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulHeuristicResult_t candidate[MATMUL_CANDIDATES]; /* the library's order: best guess first */
    int candidates;
} matmul;

/* The library's handle, to be destroyed; ends the program when there is none. */
cublasLtHandle_t matmul_handle(void);
/* "ok", or the status' name. */
const char *matmul_status(cublasStatus_t status);

/* The format of an operand or of D. */
ott_dtype matmul_dtype(cudaDataType_t type);

/* Floats in the scale array of A (or of B). */
int64_t matmul_scale_count(const matmul_spec *spec, bool of_b);
/* Which of them scales element (line, depth) of A (or of B). */
int64_t matmul_scale_index(const matmul_spec *spec, bool of_b, int64_t line, int64_t depth);

/* Plans the product, with the pointers of `data` as an example. CUBLAS_STATUS_NOT_SUPPORTED when the library
   knows no algorithm. Always to be closed. */
cublasStatus_t matmul_plan(matmul *p, cublasLtHandle_t handle, const matmul_spec *spec,
                           const matmul_data *data);
/* Queues the product with algorithm `candidate`; workspace: matmul_workspace_bytes, aligned to 256. */
cublasStatus_t matmul_run(matmul *p, int candidate, const matmul_spec *spec, const matmul_data *data,
                          void *workspace, cudaStream_t stream);
void matmul_close(matmul *p);

#endif
