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

ott_status norm_backward(exec *cx, const norm *n, const tensor *dy, const tensor *h, const tensor *rstd,
                         const tensor *dresidual, const activation *dx) {
    TRY(exec_hook(cx, n->name, "grad_output", dy));
    TRY(op_rmsnorm_backward(cx,
                            &(rmsnorm_backward_args){.dy = dy,
                                                     .h = h,
                                                     .weight = &n->weight->value,
                                                     .rstd = rstd,
                                                     .dresidual = dresidual,
                                                     .dx = &dx->t,
                                                     .dweight = n->weight->frozen ? NULL : &n->weight->grad,
                                                     .q = activation_fused(dx)}));
    return activation_finish(cx, dx);
}
