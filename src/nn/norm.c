/* nn/norm: RMSNorm and LayerNorm. */
#include "nn/norm.h"

/* Returns a view of part i's columns (norm.part) of `all`; `all` itself if it is NULL or has one part. */
static const tensor *columns_of_part(const norm *n, const tensor *all, int64_t i, tensor *part) {
    if (!all || n->part == 0) return all;
    *part = tensor_columns(*all, i * n->part, n->part);
    return part;
}

static tensor kept_of(const norm *n, const tensor *statistics, int64_t i) {
    int64_t rows = n->centered ? 2 : 1;
    return tensor_rows(*statistics, i * rows, rows);
}

static ott_status center(exec *cx, const norm *n, const tensor *x, const tensor *delta, const tensor *h,
                         const activation *y, const tensor *statistics) {
    enum { X, DELTA, H, Y, WEIGHT, BIAS, COUNT };
    const tensor *bias = n->bias ? &n->bias->value : NULL;
    const tensor *all[] = {x, delta, h, &y->t, &n->weight->value, bias};
    for (int64_t i = 0; i < norm_parts(n); i++) {
        tensor part[COUNT], kept = kept_of(n, statistics, i);
        const tensor *t[COUNT];
        for (int k = 0; k < COUNT; k++) t[k] = columns_of_part(n, all[k], i, &part[k]);
        TRY(op_layernorm_forward(cx, &(layernorm_forward_args){.x = t[X],
                                                               .delta = t[DELTA],
                                                               .weight = t[WEIGHT],
                                                               .bias = t[BIAS],
                                                               .h = t[H],
                                                               .y = t[Y],
                                                               .statistics = &kept,
                                                               .q = n->part ? NULL : activation_fused(y),
                                                               .eps = n->epsilon}));
    }
    return OTT_OK;
}

static ott_status normalize_rows(exec *cx, const norm *n, const tensor *x, const tensor *delta,
                                 const tensor *h, const activation *y, const tensor *rstd) {
    if (n->centered) return center(cx, n, x, delta, h, y, rstd);
    return op_rmsnorm_forward(cx, &(rmsnorm_forward_args){.x = x,
                                                          .delta = delta,
                                                          .weight = &n->weight->value,
                                                          .h = h,
                                                          .y = &y->t,
                                                          .rstd = rstd,
                                                          .q = activation_fused(y),
                                                          .eps = n->epsilon,
                                                          .one_plus = n->one_plus});
}

ott_status norm_forward(exec *cx, const norm *n, const tensor *x, const tensor *delta, const tensor *h,
                        const activation *y, const tensor *rstd) {
    TRY(normalize_rows(cx, n, x, delta, h, y, rstd));
    TRY(activation_finish(cx, y));
    return exec_hook(cx, n->name, "output", &y->t);
}

/* Gradient of a norm's weight or bias. The kernel adds to *to: the parameter's gradient, or `partial`, which
   is later summed over ranks and added to that gradient. to is NULL if the parameter is missing or frozen. */
typedef struct norm_gradient {
    parameter *weight; /* weight or bias; NULL: the norm has no such parameter */
    tensor partial, *to;
    plan_buffer buffer;
} norm_gradient;

static ott_status open_norm_gradient(exec *cx, const norm *n, parameter *p, norm_gradient *g) {
    *g = (norm_gradient){.weight = p, .buffer = PLAN_NONE};
    if (!p || p->frozen) return OTT_OK;
    g->to = &p->grad;
    if (!n->ranks) return OTT_OK;
    TRY(exec_open(cx, "gradient of a norm", OTT_F32, 1, p->columns, &g->partial, &g->buffer));
    g->to = &g->partial;
    return plan_recording(cx->plan) ? OTT_OK
                                    : device_zero(cx->device, g->partial.data, tensor_bytes(g->partial));
}

static ott_status close_gradient(exec *cx, const norm *n, norm_gradient *g) {
    if (!g->to || !n->ranks) return OTT_OK;
    TRY(group_all_reduce(n->ranks, cx, &g->partial, REDUCE_SUM));
    TRY(op_add(cx, &(add_args){.x = &g->weight->grad, .delta = &g->partial, .y = &g->weight->grad}));
    return plan_close(cx->plan, &g->buffer);
}

static ott_status add_centered_gradients(exec *cx, const norm *n, const tensor *dy, const tensor *h,
                                         const tensor *statistics, const tensor *dresidual,
                                         const activation *dx, const tensor *dweight) {
    enum { DY, H, DRESIDUAL, DX, WEIGHT, DWEIGHT, COUNT };
    const tensor *all[] = {dy, h, dresidual, &dx->t, &n->weight->value, dweight};
    for (int64_t i = 0; i < norm_parts(n); i++) {
        tensor part[COUNT], kept = kept_of(n, statistics, i);
        const tensor *t[COUNT];
        for (int k = 0; k < COUNT; k++) t[k] = columns_of_part(n, all[k], i, &part[k]);
        TRY(op_layernorm_backward(cx,
                                  &(layernorm_backward_args){.dy = t[DY],
                                                             .h = t[H],
                                                             .weight = t[WEIGHT],
                                                             .statistics = &kept,
                                                             .dresidual = t[DRESIDUAL],
                                                             .dx = t[DX],
                                                             .dweight = t[DWEIGHT],
                                                             .q = n->part ? NULL : activation_fused(dx)}));
    }
    return OTT_OK;
}

static ott_status add_gradients(exec *cx, const norm *n, const tensor *dy, const tensor *h,
                                const tensor *rstd, const tensor *dresidual, const activation *dx,
                                const tensor *dweight) {
    if (n->centered) return add_centered_gradients(cx, n, dy, h, rstd, dresidual, dx, dweight);
    return op_rmsnorm_backward(cx, &(rmsnorm_backward_args){.dy = dy,
                                                            .h = h,
                                                            .weight = &n->weight->value,
                                                            .rstd = rstd,
                                                            .dresidual = dresidual,
                                                            .dx = &dx->t,
                                                            .dweight = dweight,
                                                            .q = activation_fused(dx),
                                                            .one_plus = n->one_plus});
}

ott_status norm_backward(exec *cx, const norm *n, const tensor *dy, const tensor *h, const tensor *rstd,
                         const tensor *dresidual, const activation *dx) {
    norm_gradient weight, bias;
    TRY(exec_hook(cx, n->name, "grad_output", dy));
    TRY(open_norm_gradient(cx, n, n->weight, &weight));
    TRY(open_norm_gradient(cx, n, n->bias, &bias));
    if (bias.to) TRY(op_column_sum(cx, &(column_sum_args){.x = dy, .sum = bias.to}));
    TRY(add_gradients(cx, n, dy, h, rstd, dresidual, dx, weight.to));
    TRY(close_gradient(cx, n, &weight));
    TRY(close_gradient(cx, n, &bias));
    return activation_finish(cx, dx);
}
