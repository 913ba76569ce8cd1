/* cuda/samples: a few lines of what a library has computed, brought to the host to be looked at. */
#ifndef CUDA_SAMPLES_H
#define CUDA_SAMPLES_H

#include "cuda/cuda.h"

/* Which line is the i-th of `count` samples: evenly spaced up to the last, where tails are. */
static inline int64_t samples_at(int64_t lines, int64_t count, int64_t i) {
    int64_t step = count > 1 ? (lines - 1) / (count - 1) : 0;
    return lines - 1 - step * (count - 1 - i);
}

/* Queues a copy to the host of `count` lines of `width` bytes, `step` bytes apart there and beside each other here. */
ott_status samples_fetch(exec *cx, void *to, const void *from, int64_t step, int64_t width, int64_t count);
/* Waits for it, and for all before it. */
ott_status samples_finish(exec *cx);

#endif
