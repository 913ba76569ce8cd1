/* nn/attention/latent: MLA's projections to and from latents, and the heads of k and v. */
#include "nn/attention/latent.h"

ott_status latent_connect(latent_path *p, activation_specs *input) {
    p->specs = p->grad_a = p->grad_b = (activation_specs){0};
    TRY(linear_connect(&p->a, input, &p->grad_a));
    return linear_connect(&p->b, &p->specs, &p->grad_b);
}

static tensor latent_of(const latent_path *p, const tensor *made) {
    return tensor_columns(*made, 0, p->b.in);
}

tensor latent_extra_columns(const latent_path *p, const latent_saved *s) {
    return tensor_columns(s->made, p->b.in, p->a.out - p->b.in);
}

/* Computes y, the normed latent that projection b reads, and rstd. To save memory, backward repeats this. */
static ott_status open_latent(exec *cx, const latent_path *p, const latent_saved *s, activation *y,
                              tensor *rstd, plan_buffer *rstd_buffer) {
    tensor from = latent_of(p, &s->made);
    TRY(activation_open(cx, "latent", from.dtype, from.rows, from.columns, &p->specs, y));
    TRY(exec_open(cx, "latent rstd", OTT_F32, norm_kept(&p->norm), from.rows, rstd, rstd_buffer));
    return norm_forward(cx, &p->norm, &from, NULL, NULL, y, rstd);
}

ott_status latent_forward(exec *cx, latent_path *p, const activation *x, const tensor *y, latent_saved *s) {
    activation n;
    tensor rstd;
    plan_buffer rstd_buffer;
    TRY(exec_open(cx, "latent projection", y->dtype, y->rows, p->a.out, &s->made, &s->buffer));
    TRY(linear_forward(cx, &p->a, x, &s->made));
    TRY(open_latent(cx, p, s, &n, &rstd, &rstd_buffer));
    TRY(plan_close(cx->plan, &rstd_buffer));
    TRY(linear_forward(cx, &p->b, &n, y));
    return activation_close(cx, &n);
}

/* Computes dn, the gradient of the normed latent, from g, and sums dn over the ranks. Closes g. */
static ott_status backward_up(exec *cx, latent_path *p, const activation *n, activation *g,
                              const tensor *dn) {
    const tensor_ranks ranks = latent_ranks(p);
    partial_sum sum;
    TRY(tensor_partial_open(cx, &ranks, OTT_F32, dn, &sum));
    TRY(linear_backward(cx, &p->b, n, g, &sum.t, false));
    return tensor_partial_close(cx, &ranks, dn, &sum);
}

/* Writes the gradient of the latent before its norm to the first columns of dmade. */
static ott_status backward_latent(exec *cx, latent_path *p, const latent_saved *s, activation *g,
                                  const tensor *dmade) {
    activation n, to = {.t = latent_of(p, dmade)};
    tensor dn, rstd, from = latent_of(p, &s->made);
    plan_buffer dn_buffer, rstd_buffer;
    TRY(open_latent(cx, p, s, &n, &rstd, &rstd_buffer));
    TRY(exec_open(cx, "latent gradient", from.dtype, from.rows, from.columns, &dn, &dn_buffer));
    TRY(backward_up(cx, p, &n, g, &dn));
    TRY(activation_close(cx, &n));
    TRY(norm_backward(cx, &p->norm, &dn, &from, &rstd, NULL, &to));
    TRY(plan_close(cx->plan, &dn_buffer));
    return plan_close(cx->plan, &rstd_buffer);
}

ott_status latent_backward(exec *cx, latent_path *p, latent_saved *s, const activation *x, activation *g,
                           const tensor *extra, const tensor *dx, bool accumulate) {
    activation dmade;
    TRY(activation_open(cx, "latent projection gradient", s->made.dtype, s->made.rows, p->a.out, &p->grad_a,
                        &dmade));
    TRY(backward_latent(cx, p, s, g, &dmade.t));
    if (extra) {
        tensor to = tensor_columns(dmade.t, p->b.in, extra->columns);
        TRY(op_convert(cx, &(convert_args){.x = extra, .y = &to}));
    }
    TRY(latent_close(cx, s));
    TRY(activation_quantize(cx, &dmade));
    if (dx) TRY(linear_grad_input(cx, &p->a, &dmade, dx, accumulate));
    TRY(linear_grad_weight(cx, &p->a, x, &dmade));
    return activation_close(cx, &dmade);
}

ott_status latent_close(exec *cx, latent_saved *s) {
    return plan_close(cx->plan, &s->buffer);
}

ott_status latent_split(exec *cx, const latent_shape *s, int64_t heads, const tensor *made,
                        const tensor *rotated, const tensor *k, const tensor *v) {
    TRY(op_join_heads(
        cx, &(join_heads_args){
                .x = made, .tail = rotated, .y = k, .heads = heads, .tail_heads = 1, .count = s->nope_dim}));
    return op_join_heads(
        cx, &(join_heads_args){.x = made, .y = v, .heads = heads, .first = s->nope_dim, .count = s->value});
}

ott_status latent_merge(exec *cx, const latent_shape *s, int64_t heads, const tensor *dk, const tensor *dv,
                        const tensor *made, const tensor *rotated) {
    TRY(op_sum_heads(cx, &(sum_heads_args){.x = dk, .y = rotated, .heads = heads, .first = s->nope_dim}));
    return op_join_heads(
        cx, &(join_heads_args){
                .x = dk, .tail = dv, .y = made, .heads = heads, .tail_heads = heads, .count = s->nope_dim});
}
