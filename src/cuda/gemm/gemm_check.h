/* cuda/gemm/gemm_check: compares the first cuBLASLt product of each matmul_spec (cuda/gemm/matmul.h) with a
   product on the host, for sampled elements. Finds wrong orders of scales, wrong pointers, and bugs of
   cuBLASLt. */
#ifndef CUDA_GEMM_GEMM_CHECK_H
#define CUDA_GEMM_GEMM_CHECK_H

#include "cuda/cuda.h"

enum { GEMM_CHECK_ROWS = 8 };

typedef struct gemm_check {
    float before[GEMM_CHECK_ROWS * GEMM_CHECK_ROWS]; /* c's old values at the sampled elements */
} gemm_check;

/* Call before the product is queued. If it accumulates into c, waits for the GPU and saves c's old values. */
ott_status gemm_check_begin(gemm_check *check, exec *cx, const gemm_args *g);
/* Call after the product is queued. Waits for it and compares. *conclusive: false if the samples are all 0.
   Returns OTT_ERR_DEVICE if the product is wrong; the message has its spec and its error. */
ott_status gemm_check_end(const gemm_check *check, exec *cx, const gemm_args *g, bool *conclusive);

#endif
