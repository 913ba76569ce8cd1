/* bench/gpu/blas: what the programs that multiply give to src/cuda/matmul. */
#ifndef BLAS_H
#define BLAS_H

#include "cuda/matmul.h"
#include <stdio.h>
#include <stdlib.h>

enum { BLAS_WORKSPACE_BYTES = 64 << 20 };

/* The library's handle, to be destroyed; ends the program when there is none. */
static inline cublasLtHandle_t blas_handle(void) {
    cublasLtHandle_t handle = NULL;
    cublasStatus_t status = cublasLtCreate(&handle);
    if (status == CUBLAS_STATUS_SUCCESS) return handle;
    fprintf(stderr, "cublasLtCreate: %s\n", cublasLtGetStatusString(status));
    exit(1);
}

#endif
