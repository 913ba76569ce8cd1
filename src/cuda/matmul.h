/*
 * cuda/matmul: one cuBLASLt product, planned and run: row-major D[M,N] = A[M,K] B[N,K]^T (+ D), fp32
 * arithmetic, with the scales of every FP8 recipe that Hopper has (cuBLAS 13 documentation, "cublasLtMatmul"
 * and "Narrow Precision Data Types").
 *
 * cuBLAS is column-major, so its A is our B, its B our A, and its D our D.
 */
#ifndef CUDA_MATMUL_H
#define CUDA_MATMUL_H

#include "ottava/types.h"
#include <cublasLt.h>
#include <stdbool.h>
#include <stdint.h>

/* What scales the FP8 codes: dequantizing factors, fp32 but for SCALES_MX, each array aligned to 16 bytes. */
typedef enum matmul_scales {
    SCALES_NONE,   /* operands in bf16, fp16 or fp32 */
    SCALES_TENSOR, /* one for A, one for B */
    SCALES_ROW,    /* A: [M]; B: [N] */
    /* A: 1x128, [ceil(K/128)][M]; B: 128x128, [ceil(N/128)][ceil(K/128) rounded up to 4] */
    SCALES_BLOCK_2D,
    SCALES_BLOCK_1D, /* both 1x128: [ceil(K/128)][M] and [ceil(K/128)][N] */
    SCALES_MX,       /* both 1x32: E8M0 bytes in tiles of 128 lines x 4, a line's tiles side by side */
} matmul_scales;

typedef struct matmul_spec {
    int64_t m, n, k;
    int64_t lda, ldb, ldd; /* elements from one row as it lies to the next; 0: it lies dense */
    /* Operands: CUDA_R_32F, CUDA_R_16BF, CUDA_R_16F, CUDA_R_8F_E4M3 or CUDA_R_8F_E5M2; D: one of the first three */
    cudaDataType_t a, b, d;
    bool a_transposed, b_transposed; /* not FP8: A lies as [K,M], B as [K,N] */
    matmul_scales scales;
    bool fast;         /* accumulate in the tensor cores' own precision all along K */
    bool accumulate;   /* D is added to */
    bool amax;         /* ask for the largest |D| as well */
    int alignment;     /* bytes: A, B and D begin at multiples of it; 0: of 256 */
    int64_t workspace; /* bytes, aligned to 256 */
} matmul_spec;

/* Device memory of one call; scales and amax may be NULL where the spec asks for none. */
typedef struct matmul_data {
    const void *a, *b;
    void *d;
    const void *a_scale, *b_scale;
    float *amax;
} matmul_data;

enum { MATMUL_CANDIDATES = 8 };

typedef struct matmul {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulHeuristicResult_t candidate[MATMUL_CANDIDATES]; /* the library's order: best guess first */
    int candidates;
} matmul;

/* "ok", or the status' name. */
const char *matmul_status(cublasStatus_t status);

/* The format of an operand or of D, and the other way. */
ott_dtype matmul_dtype(cudaDataType_t type);
cudaDataType_t matmul_type(ott_dtype d);

/* Scales in the array of A (or of B), and the bytes of one. */
int64_t matmul_scale_count(const matmul_spec *spec, bool of_b);
int64_t matmul_scale_bytes(matmul_scales scales);
/* SCALES_MX: tiles that a line goes through. */
int64_t matmul_mx_tiles(const matmul_spec *spec);

/* Which of them scales element (line, depth) of A (or of B). */
int64_t matmul_scale_index(const matmul_spec *spec, bool of_b, int64_t line, int64_t depth);

/* Plans the product, with the pointers of `data` as an example. CUBLAS_STATUS_NOT_SUPPORTED when the library
   knows no algorithm. Always to be closed. */
cublasStatus_t matmul_plan(matmul *p, cublasLtHandle_t handle, const matmul_spec *spec,
                           const matmul_data *data);
/* Queues the product with algorithm `candidate`. */
cublasStatus_t matmul_run(matmul *p, int candidate, const matmul_spec *spec, const matmul_data *data,
                          void *workspace, cudaStream_t stream);
void matmul_close(matmul *p);

#endif
