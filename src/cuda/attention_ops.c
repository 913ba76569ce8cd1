/* cuda/attention_ops: attention as launches. */
#include "cuda/cuda.h"
#include "cuda/kernels.h"
#include "cuda/ops.h"

ott_status cuda_attention_forward(exec *cx, const attention_forward_args *a) {
    TRY(attention_check_heads("attention_forward", a->q, a->k, a->cu_seqlens, a->lse, a->head_dim, a->past));
    return cuda_check(attention_forward_launch(a, cuda_stream(cx)), "attention_forward");
}

ott_status cuda_attention_backward(exec *cx, const attention_backward_args *a) {
    TRY(attention_check_heads("attention_backward", a->q, a->k, a->cu_seqlens, a->lse, a->head_dim, 0));
    return cuda_check(attention_backward_launch(a, cx->workspace, cuda_stream(cx)), "attention_backward");
}
