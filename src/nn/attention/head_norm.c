/* nn/attention/head_norm: forward and backward of norms of heads. */
#include "nn/attention/head_norm.h"

/* x[T, heads * head_dim] as [T * heads, head_dim]. */
static tensor by_head(const tensor *x, int64_t head_dim) {
    return tensor_matrix(x->data, x->dtype, tensor_count(*x) / head_dim, head_dim);
}

/* True if the norm is over the heads of all ranks, but x has only this rank's heads. */
static bool is_over_ranks(const norm *n, const tensor *x) {
    return n->part == 0 && n->weight->columns > x->columns;
}

static tensor own_heads(const tensor_ranks *r, const tensor *all, int64_t columns) {
    return tensor_columns(*all, r->group->rank * columns, columns);
}

/* For a norm over the heads of all ranks: computes its rstd, and y, its output for this rank's heads. */
static ott_status normalize_all(exec *cx, const norm *n, const tensor_ranks *r, const tensor *x,
                                const tensor *y, const tensor *rstd) {
    tensor all;
    plan_buffer all_buffer, normed_buffer;
    activation normed = {0};
    TRY(tensor_ranks_gather_columns(cx, r, "heads of all ranks", x, &all, &all_buffer));
    TRY(exec_open(cx, "normed heads of all ranks", x->dtype, all.rows, all.columns, &normed.t,
                  &normed_buffer));
    TRY(norm_forward(cx, n, &all, NULL, NULL, &normed, rstd));
    tensor own = own_heads(r, &normed.t, y->columns);
    TRY(op_convert(cx, &(convert_args){.x = &own, .y = y}));
    TRY(plan_close(cx->plan, &normed_buffer));
    return plan_close(cx->plan, &all_buffer);
}

ott_status head_norm_forward(exec *cx, const norm *n, const tensor_ranks *r, tensor *x, plan_buffer *x_buffer,
                             head_norm_saved *s) {
    if (!n->weight) return OTT_OK;
    int64_t head_dim = n->weight->columns;
    bool over_ranks = is_over_ranks(n, x), by_token = over_ranks || n->part > 0;
    s->raw = *x;
    s->raw_buffer = *x_buffer;
    TRY(exec_open(cx, "normed heads", s->raw.dtype, s->raw.rows, s->raw.columns, x, x_buffer));
    TRY(exec_open(cx, "heads' rstd", OTT_F32, norm_kept(n),
                  by_token ? s->raw.rows : tensor_count(s->raw) / head_dim, &s->rstd, &s->rstd_buffer));
    if (over_ranks) return normalize_all(cx, n, r, &s->raw, x, &s->rstd);
    if (by_token) return norm_forward(cx, n, &s->raw, NULL, NULL, &(activation){.t = *x}, &s->rstd);
    tensor from = by_head(&s->raw, head_dim);
    activation to = {.t = by_head(x, head_dim)};
    return norm_forward(cx, n, &from, NULL, NULL, &to, &s->rstd);
}

/* Does the same as head_norm_backward, for a norm over the heads of all ranks. */
static ott_status backward_all(exec *cx, const norm *n, const tensor_ranks *r, const head_norm_saved *s,
                               const tensor *own_dy, const tensor *dx) {
    tensor dy, raw;
    plan_buffer dy_buffer, raw_buffer, all_buffer;
    activation all = {0};
    TRY(tensor_ranks_gather_columns(cx, r, "gradient of all heads", own_dy, &dy, &dy_buffer));
    TRY(tensor_ranks_gather_columns(cx, r, "heads of all ranks", &s->raw, &raw, &raw_buffer));
    TRY(exec_open(cx, "gradient of all heads", dy.dtype, dy.rows, dy.columns, &all.t, &all_buffer));
    TRY(norm_backward(cx, n, &dy, &raw, &s->rstd, NULL, &all));
    tensor own = own_heads(r, &all.t, dx->columns);
    TRY(op_convert(cx, &(convert_args){.x = &own, .y = dx}));
    TRY(plan_close(cx->plan, &all_buffer));
    TRY(plan_close(cx->plan, &raw_buffer));
    return plan_close(cx->plan, &dy_buffer);
}

ott_status head_norm_backward(exec *cx, const norm *n, const tensor_ranks *r, const head_norm_saved *s,
                              const tensor *dy, const tensor *dx) {
    int64_t head_dim = n->weight->columns;
    if (is_over_ranks(n, dy)) return backward_all(cx, n, r, s, dy, dx);
    if (n->part > 0) return norm_backward(cx, n, dy, &s->raw, &s->rstd, NULL, &(activation){.t = *dx});
    tensor heads = by_head(dy, head_dim), raw = by_head(&s->raw, head_dim);
    activation to = {.t = by_head(dx, head_dim)};
    return norm_backward(cx, n, &heads, &raw, &s->rstd, NULL, &to);
}

ott_status head_norm_close(exec *cx, head_norm_saved *s) {
    TRY(plan_close(cx->plan, &s->raw_buffer));
    return plan_close(cx->plan, &s->rstd_buffer);
}
