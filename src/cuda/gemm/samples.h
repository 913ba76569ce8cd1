/* cuda/gemm/samples: fetches sampled rows of results of cuBLASLt and cuDNN to the host, which checks them. */
#ifndef CUDA_GEMM_SAMPLES_H
#define CUDA_GEMM_SAMPLES_H

#include "cuda/cuda.h"

/* The i-th of `count` sampled rows: evenly spaced, including the last row, where a tile may be partial. */
static inline int64_t samples_at(int64_t rows, int64_t count, int64_t i) {
    int64_t step = count > 1 ? (rows - 1) / (count - 1) : 0;
    return rows - 1 - step * (count - 1 - i);
}

/* Queues a copy of `count` rows of `width` bytes, `step` bytes apart on the device, to dense host memory. */
ott_status samples_fetch(exec *cx, void *to, const void *from, int64_t step, int64_t width, int64_t count);
/* Synchronizes the stream, so that all fetches are complete. */
ott_status samples_finish(exec *cx);

#endif
