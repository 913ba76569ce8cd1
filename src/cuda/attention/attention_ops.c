/* cuda/attention/attention_ops: computes attention with cuDNN if it supports the call, otherwise with
   Ottava's kernels (attention.cu). Scores with a soft cap always use Ottava's kernels. */
#include "cuda/attention/attention_plans.h"
#include "cuda/cuda.h"
#include "cuda/kernels/kernels.h"
#include "cuda/ops.h"

static attention_call forward_call(const attention_forward_args *a) {
    return (attention_call){.head_dim = a->head_dim,
                            .window = a->window,
                            .past = a->past,
                            .scale = a->softmax_scale,
                            .cu_seqlens = a->cu_seqlens,
                            .tensors = {[ATTENTION_Q] = a->q,
                                        [ATTENTION_K] = a->k,
                                        [ATTENTION_V] = a->v,
                                        [ATTENTION_O] = a->o,
                                        [ATTENTION_LSE] = a->lse}};
}

static attention_call backward_call(const attention_backward_args *a) {
    return (attention_call){.backward = true,
                            .head_dim = a->head_dim,
                            .window = a->window,
                            .scale = a->softmax_scale,
                            .cu_seqlens = a->cu_seqlens,
                            .tensors = {[ATTENTION_Q] = a->q,
                                        [ATTENTION_K] = a->k,
                                        [ATTENTION_V] = a->v,
                                        [ATTENTION_O] = a->o,
                                        [ATTENTION_LSE] = a->lse,
                                        [ATTENTION_GRAD_O] = a->dout,
                                        [ATTENTION_GRAD_Q] = a->dq,
                                        [ATTENTION_GRAD_K] = a->dk,
                                        [ATTENTION_GRAD_V] = a->dv}};
}

int64_t cuda_attention_forward_workspace(const device *d, const attention_forward_args *a) {
    attention_call call = forward_call(a);
    return a->softcap > 0 ? 0 : attention_plans_workspace(cuda_device_of(d), &call);
}

/* Returns the larger of cuDNN's workspace and that of Ottava's kernels, because the tensors' alignment
   decides at run time which of them runs. */
int64_t cuda_attention_backward_workspace(const device *d, const attention_backward_args *a) {
    attention_call call = backward_call(a);
    int64_t own = attention_backward_workspace(a),
            by_plan = a->softcap > 0 ? 0 : attention_plans_workspace(cuda_device_of(d), &call);
    return own > by_plan ? own : by_plan;
}

static ott_status run_on_cudnn(exec *cx, const attention_call *call, float softcap, bool *ran) {
    *ran = false;
    return softcap > 0 ? OTT_OK : attention_plans_run(cx, call, cx->workspace, ran);
}

ott_status cuda_attention_forward(exec *cx, const attention_forward_args *a) {
    bool ran;
    attention_call call = forward_call(a);
    TRY(attention_check_heads("attention_forward", a->q, a->k, a->cu_seqlens, a->lse, a->head_dim, a->past));
    TRY(run_on_cudnn(cx, &call, a->softcap, &ran));
    return ran ? OTT_OK : cuda_check(attention_forward_launch(a, cuda_stream(cx)), "attention_forward");
}

ott_status cuda_attention_backward(exec *cx, const attention_backward_args *a) {
    bool ran;
    attention_call call = backward_call(a);
    TRY(attention_check_heads("attention_backward", a->q, a->k, a->cu_seqlens, a->lse, a->head_dim, 0));
    TRY(run_on_cudnn(cx, &call, a->softcap, &ran));
    return ran ? OTT_OK
               : cuda_check(attention_backward_launch(a, cx->workspace, cuda_stream(cx)),
                            "attention_backward");
}
