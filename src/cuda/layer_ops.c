/* cuda/layer_ops: launches of layer ops that also quantize their output: norm, gated activations, loss. */
#include "cuda/cuda.h"
#include "cuda/kernels/kernels.h"
#include "cuda/ops.h"
#include "cuda/quantize_ops.h"

/* Quantizes all copies in separate passes. */
static ott_status quantize_after(exec *cx, const char *op, const tensor *y, const qlist *q) {
    quantize_uses made;
    TRY(cuda_quantize_begin(cx, op, NULL, QUANTIZE_BY_ROWS, &made));
    return cuda_quantize_finish(cx, op, y, q, &made);
}

/* The kernel for narrow rows does not quantize; separate passes do. */
static ott_status begin_norm(exec *cx, const char *op, const tensor *y, const qlist *q, quantize_uses *made) {
    return cuda_quantize_begin(cx, op, norm_is_wide(y) ? q : NULL, QUANTIZE_BY_ROWS, made);
}

ott_status cuda_rmsnorm_forward(exec *cx, const rmsnorm_forward_args *a) {
    if (a->delta && !a->h)
        return status_fail(OTT_ERR_ARGUMENT,
                           "rmsnorm_forward: delta is given but h, where x + delta goes, is not");
    quantize_uses made;
    TRY(begin_norm(cx, "rmsnorm_forward", a->y, a->q, &made));
    TRY(cuda_check(norm_forward_launch(a, &made, cuda_stream(cx)), "rmsnorm_forward"));
    return cuda_quantize_finish(cx, "rmsnorm_forward", a->y, a->q, &made);
}

ott_status cuda_rmsnorm_backward(exec *cx, const rmsnorm_backward_args *a) {
    cudaStream_t stream = cuda_stream(cx);
    quantize_uses made;
    TRY(begin_norm(cx, "rmsnorm_backward", a->dx, a->q, &made));
    TRY(cuda_check(norm_backward_launch(a, &made, stream), "rmsnorm_backward"));
    if (a->dweight)
        TRY(cuda_check(norm_weight_gradient_launch(a->dy, a->h, a->rstd, a->dweight, stream),
                       "rmsnorm_backward"));
    return cuda_quantize_finish(cx, "rmsnorm_backward", a->dx, a->q, &made);
}

ott_status cuda_layernorm_forward(exec *cx, const layernorm_forward_args *a) {
    if (a->delta && !a->h)
        return status_fail(OTT_ERR_ARGUMENT,
                           "layernorm_forward: delta is given but h, where x + delta goes, is not");
    TRY(cuda_check(layernorm_forward_launch(a, cuda_stream(cx)), "layernorm_forward"));
    return quantize_after(cx, "layernorm_forward", a->y, a->q);
}

ott_status cuda_layernorm_backward(exec *cx, const layernorm_backward_args *a) {
    TRY(cuda_check(layernorm_backward_launch(a, cuda_stream(cx)), "layernorm_backward"));
    return quantize_after(cx, "layernorm_backward", a->dx, a->q);
}

ott_status cuda_swiglu_forward(exec *cx, const swiglu_forward_args *a) {
    quantize_uses made;
    TRY(cuda_quantize_begin(cx, "swiglu_forward", a->q, QUANTIZE_BY_TILES, &made));
    TRY(cuda_check(swiglu_forward_launch(a, &made, cuda_stream(cx)), "swiglu_forward"));
    return cuda_quantize_finish(cx, "swiglu_forward", a->y, a->q, &made);
}

ott_status cuda_swiglu_backward(exec *cx, const swiglu_backward_args *a) {
    quantize_uses made[2];
    TRY(cuda_quantize_begin(cx, "swiglu_backward", a->q_gate, QUANTIZE_BY_TILES, &made[0]));
    TRY(cuda_quantize_begin(cx, "swiglu_backward", a->q_up, QUANTIZE_BY_TILES, &made[1]));
    TRY(cuda_check(swiglu_backward_launch(a, made, cuda_stream(cx)), "swiglu_backward"));
    TRY(cuda_quantize_finish(cx, "swiglu_backward", a->dgate, a->q_gate, &made[0]));
    return cuda_quantize_finish(cx, "swiglu_backward", a->dup, a->q_up, &made[1]);
}

ott_status cuda_activate_forward(exec *cx, const activate_forward_args *a) {
    TRY(cuda_check(activate_forward_launch(a, cuda_stream(cx)), "activate_forward"));
    return quantize_after(cx, "activate_forward", a->y, a->q);
}

ott_status cuda_activate_backward(exec *cx, const activate_backward_args *a) {
    if (!a->up != !a->dup)
        return status_fail(OTT_ERR_ARGUMENT, "activate_backward: give both up and dup, or neither");
    TRY(cuda_check(activate_backward_launch(a, cuda_stream(cx)), "activate_backward"));
    TRY(quantize_after(cx, "activate_backward", a->dgate, a->q_gate));
    return a->dup ? quantize_after(cx, "activate_backward", a->dup, a->q_up) : OTT_OK;
}

/* With grad_scale NULL, the op computes only losses. It makes no gradient and no quantized copies. */
ott_status cuda_cross_entropy(exec *cx, const cross_entropy_args *a) {
    const qlist *q = a->grad_scale ? a->q : NULL;
    quantize_uses made;
    TRY(cuda_quantize_begin(cx, "cross_entropy", q, QUANTIZE_ROW_AMAX, &made));
    TRY(cuda_check(cross_entropy_launch(a->logits, a->target, NULL, a->grad_scale, a->loss, a->z, a->z_weight,
                                        0, 0, &made, cuda_stream(cx)),
                   "cross_entropy"));
    return cuda_quantize_finish(cx, "cross_entropy", a->logits, q, &made);
}

ott_status cuda_cross_entropy_finish(exec *cx, const cross_entropy_finish_args *a) {
    const qlist *q = a->grad_scale ? a->q : NULL;
    quantize_uses made;
    TRY(cuda_quantize_begin(cx, "cross_entropy_finish", q, QUANTIZE_ROW_AMAX, &made));
    TRY(cuda_check(cross_entropy_launch(a->logits, a->target, a->parts, a->grad_scale, a->loss, a->z,
                                        a->z_weight, a->before, a->after, &made, cuda_stream(cx)),
                   "cross_entropy_finish"));
    return cuda_quantize_finish(cx, "cross_entropy_finish", a->logits, q, &made);
}
