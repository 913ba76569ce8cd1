/* nn/norm: RMSNorm. */
#include "nn/norm.h"

ott_status norm_forward(exec *cx, const norm *n, const tensor *x, const tensor *delta, const tensor *h,
                        const activation *y, const tensor *rstd) {
    TRY(op_rmsnorm_forward(cx, &(rmsnorm_forward_args){.x = x,
                                                       .delta = delta,
                                                       .weight = &n->weight->value,
                                                       .h = h,
                                                       .y = &y->t,
                                                       .rstd = rstd,
                                                       .q = activation_fused(y),
                                                       .eps = n->epsilon}));
    TRY(activation_finish(cx, y));
    return exec_hook(cx, n->name, "output", &y->t);
}

/* Where the weight's gradient goes: NULL where it is frozen, the gradient itself, or, where ranks add theirs up, a
   tensor apart, from zero. */
static ott_status open_gradient(exec *cx, const norm *n, tensor *apart, plan_buffer *buffer, tensor **out) {
    *buffer = PLAN_NONE;
    *out = n->weight->frozen ? NULL : &n->weight->grad;
    if (!*out || !n->ranks) return OTT_OK;
    TRY(exec_open(cx, "gradient of a norm", OTT_F32, 1, n->weight->columns, apart, buffer));
    *out = apart;
    return plan_recording(cx->plan) ? OTT_OK : device_zero(cx->device, apart->data, tensor_bytes(*apart));
}

static ott_status close_gradient(exec *cx, const norm *n, tensor *apart, plan_buffer *buffer) {
    tensor *grad = &n->weight->grad;
    if (n->weight->frozen || !n->ranks) return OTT_OK;
    TRY(group_all_reduce(n->ranks, cx, apart, REDUCE_SUM));
    TRY(op_add(cx, &(add_args){.x = grad, .delta = apart, .y = grad}));
    return plan_close(cx->plan, buffer);
}

ott_status norm_backward(exec *cx, const norm *n, const tensor *dy, const tensor *h, const tensor *rstd,
                         const tensor *dresidual, const activation *dx) {
    tensor apart, *dweight;
    plan_buffer buffer;
    TRY(exec_hook(cx, n->name, "grad_output", dy));
    TRY(open_gradient(cx, n, &apart, &buffer, &dweight));
    TRY(op_rmsnorm_backward(cx, &(rmsnorm_backward_args){.dy = dy,
                                                         .h = h,
                                                         .weight = &n->weight->value,
                                                         .rstd = rstd,
                                                         .dresidual = dresidual,
                                                         .dx = &dx->t,
                                                         .dweight = dweight,
                                                         .q = activation_fused(dx)}));
    TRY(close_gradient(cx, n, &apart, &buffer));
    return activation_finish(cx, dx);
}
