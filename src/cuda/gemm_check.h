/* cuda/gemm_check: compares the first cuBLASLt product of each spec with a product on the host, for sampled
   elements of that product's operands. Finds scales in the wrong order, modes that a library version computes
   wrong, and wrong pointers. */
#ifndef CUDA_GEMM_CHECK_H
#define CUDA_GEMM_CHECK_H

#include "cuda/cuda.h"

enum { GEMM_CHECK_ROWS = 8 };

typedef struct gemm_check {
    float before[GEMM_CHECK_ROWS * GEMM_CHECK_ROWS]; /* c's old values at the sampled elements */
} gemm_check;

/* Call before the product is queued. If the product accumulates, synchronizes and reads c's old values. */
ott_status gemm_check_begin(gemm_check *check, exec *cx, const gemm_args *g);
/* Call after the product is queued: synchronizes and compares. *conclusive: false if the sampled results are
   all zero. OTT_ERR_DEVICE if the product is wrong; the message has its spec and its error. */
ott_status gemm_check_end(const gemm_check *check, exec *cx, const gemm_args *g, bool *conclusive);

#endif
