/* bench/gpu/blas: opens cuBLASLt for programs that use src/cuda/gemm/matmul. */
#ifndef BLAS_H
#define BLAS_H

#include "cuda/gemm/matmul.h"
#include <stdio.h>
#include <stdlib.h>

enum { BLAS_WORKSPACE_BYTES = 64 << 20 };

/* Returns a cuBLASLt handle; the caller destroys it. Ends the program on failure. */
static inline cublasLtHandle_t blas_handle(void) {
    cublasLtHandle_t handle = NULL;
    cublasStatus_t status = cublasLtCreate(&handle);
    if (status == CUBLAS_STATUS_SUCCESS) return handle;
    fprintf(stderr, "cublasLtCreate: %s\n", cublasLtGetStatusString(status));
    exit(1);
}

#endif
