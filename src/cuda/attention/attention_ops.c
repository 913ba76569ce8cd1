/* cuda/attention/attention_ops: decides who computes attention. One new token of a KV cache: decode.cu. All
   else: cuDNN, if it has a plan; Ottava's tensor-core kernels (flash.cu), if they support the call; Ottava's
   exact kernels (attention.cu). With OTTAVA_CUDA_ATTENTION=own only decode.cu and the exact kernels. */
#include "cuda/attention/attention_plans.h"
#include "cuda/cuda.h"
#include "cuda/kernels/kernels.h"
#include "cuda/ops.h"

static attention_call forward_call(const attention_forward_args *a) {
    return (attention_call){.head_dim = a->head_dim,
                            .window = a->window,
                            .past = a->past,
                            .longest = a->longest,
                            .softcap = a->softcap,
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
                            .longest = a->longest,
                            .softcap = a->softcap,
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

static bool uses_flash(const cuda_device *c, const attention_call *call) {
    bool aligned = true;
    for (int uid = ATTENTION_Q; uid <= ATTENTION_GRAD_V; uid++) {
        const tensor *t = call->tensors[uid];
        if (t && uid != ATTENTION_LSE) aligned = aligned && flash_supports(t, call->head_dim);
    }
    return aligned && !c->own_attention;
}

int64_t cuda_attention_forward_workspace(const device *d, const attention_forward_args *a) {
    attention_call call = forward_call(a);
    bool refused;
    return decode_supports(a) ? decode_workspace(a)
                              : attention_plans_workspace(cuda_device_of(d), &call, &refused);
}

/* Returns the larger of cuDNN's workspace and that of Ottava's kernels, because the tensors' alignment
   decides at run time which of them runs. */
int64_t cuda_attention_backward_workspace(const device *d, const attention_backward_args *a) {
    attention_call call = backward_call(a);
    bool refused;
    int64_t own = attention_backward_workspace(a),
            by_plan = attention_plans_workspace(cuda_device_of(d), &call, &refused);
    return own > by_plan ? own : by_plan;
}

/* The exact kernels reach a 300th of the peak of 16-bit products (docs/explanation/estimates.md). They are
   not slow for fp32, which tensor cores do not multiply, nor if the user asks for them. */
op_slowness cuda_attention_slowness(const device *d, enum op_index op, const void *args) {
    cuda_device *c = cuda_device_of(d);
    attention_call call = op == OP_INDEX_attention_forward ? forward_call(args) : backward_call(args);
    bool refused, is_fp32 = call.tensors[ATTENTION_Q]->dtype == OTT_F32;
    attention_plans_workspace(c, &call, &refused);
    if (!refused || is_fp32 || c->own_attention || uses_flash(c, &call)) return (op_slowness){0};
    return (op_slowness){300, "Ottava's kernels without tensor cores compute some"};
}

ott_status cuda_attention_forward(exec *cx, const attention_forward_args *a) {
    static const char name[] = "attention_forward";
    cudaStream_t stream = cuda_stream(cx);
    attention_call call = forward_call(a);
    const char *refusal;
    TRY(attention_check_heads(name, a->q, a->k, a->cu_seqlens, a->lse, a->head_dim, a->past));
    if (decode_supports(a)) return cuda_check(decode_launch(a, cx->workspace, stream), name);
    TRY(attention_plans_run(cx, &call, cx->workspace, &refusal));
    if (!refusal) return OTT_OK;
    bool fast = uses_flash(cuda_device_of(cx->device), &call);
    if (a->past == 0) attention_plans_log(cx, refusal, fast);
    if (!fast) return cuda_check(attention_forward_launch(a, stream), name);
    TRY(cuda_check(flash_forward_launch(a, stream), name));
    return a->past == 0 ? attention_plans_check_own(cx, &call) : OTT_OK;
}

ott_status cuda_attention_backward(exec *cx, const attention_backward_args *a) {
    static const char name[] = "attention_backward";
    cudaStream_t stream = cuda_stream(cx);
    attention_call call = backward_call(a);
    const char *refusal;
    TRY(attention_check_heads(name, a->q, a->k, a->cu_seqlens, a->lse, a->head_dim, 0));
    TRY(attention_plans_run(cx, &call, cx->workspace, &refusal));
    if (!refusal) return OTT_OK;
    bool fast = uses_flash(cuda_device_of(cx->device), &call);
    attention_plans_log(cx, refusal, fast);
    if (!fast) return cuda_check(attention_backward_launch(a, cx->workspace, stream), name);
    TRY(cuda_check(flash_backward_launch(a, cx->workspace, stream), name));
    return attention_plans_check_own(cx, &call);
}
