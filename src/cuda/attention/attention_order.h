/* cuda/attention/attention_order: the ways in which cuDNN can compute attention's backward, by GPU and
   version. cuDNN does not report which of its engines sum in a fixed order. The sources are NVIDIA's
   cudnn-frontend 1.32 (scaled_dot_product_flash_attention.h) and its pull request 398. */
#ifndef CUDA_ATTENTION_ATTENTION_ORDER_H
#define CUDA_ATTENTION_ATTENTION_ORDER_H

#include "cuda/attention/attention_cudnn.h"

typedef struct attention_way {
    bool ordered; /* every sum has one order, so all runs have the same bits */
    bool direct;  /* attention_config.direct */
    bool split;   /* separate runs for groups of key heads, because the workspace grows with length^2 */
    /* compute capabilities, times ten; cuDNN versions */
    int first_gpu, last_gpu;
    size_t first_version, last_version;
    int64_t head_least, head_most;  /* head_dim */
    const attention_engine *engine; /* NULL: the heuristics choose */
} attention_way;

/* The ways of the backward of a call, best first. Returns their number, at most ATTENTION_WAYS_MOST.
   unordered_first, unordered_last: whether sums in a changing order are allowed, before or after the others.
   */
enum { ATTENTION_WAYS_MOST = 6 };
int attention_order_backward(int capability, size_t version, const attention_config *c, bool unordered_first,
                             bool unordered_last, const attention_way *out[ATTENTION_WAYS_MOST]);

/* Key heads of one run of a split way. 0: not even one fits ATTENTION_SQUARES_MOST. */
int64_t attention_order_key_heads(const attention_config *c);

#endif
