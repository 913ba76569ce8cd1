/*
 * cuda/gemm_check: no product of a library is believed unseen. The first of each kind that a run asks for, on the run's own
 * operands, is held against the host's on sampled elements. What it finds: scales in another order than
 * the library reads them, a mode that this version has wrong, pointers that are not those of the operands.
 */
#ifndef CUDA_GEMM_CHECK_H
#define CUDA_GEMM_CHECK_H

#include "cuda/cuda.h"

enum { GEMM_CHECK_LINES = 8 };

typedef struct gemm_check {
    float before[GEMM_CHECK_LINES * GEMM_CHECK_LINES]; /* what c had at the sampled elements */
} gemm_check;

/* Before the product is queued, where it adds to c. Waits for what is queued. */
ott_status gemm_check_begin(gemm_check *check, exec *cx, const gemm_args *g);
/* Behind it: waits, and compares. *told: whether the samples could tell right from wrong, that is, are not all zero.
   OTT_ERR_DEVICE: the product is wrong; its spec, and how far off it is. */
ott_status gemm_check_end(const gemm_check *check, exec *cx, const gemm_args *g, bool *conclusive);

#endif
