/* model/block: one transformer block, forward, recompute and backward. */
#include "model/block.h"

static mixer_saved saved_mixer(block_saved *s) {
    return (mixer_saved){.attention = &s->attention};
}

static ffn_saved saved_ffn(block_saved *s) {
    return (ffn_saved){.mlp = &s->mlp};
}

/* True if a projection's output is added to the residual without a norm or a multiplier. */
static bool is_added_unchanged(const block *b, const norm *post) {
    return !post->weight && (b->multiplier == 0 || b->multiplier == 1);
}

/* *projection: quantized copies of the gradient that a projection needs. *residual = the same copies of the
   residual stream's gradient; none if a post norm or multiplier makes it another gradient. */
static void separate_gradients(const block *b, const norm *post, activation_specs *projection,
                               activation_specs *residual) {
    *residual = *projection;
    if (!is_added_unchanged(b, post)) *residual = (activation_specs){.shard = projection->shard};
}

ott_status block_connect(block *b) {
    b->attention_input = b->mlp_input = b->grad_attention = b->grad_mlp = (activation_specs){0};
    TRY(b->mixer->connect(block_mixer(b), &b->attention_input, &b->grad_attention));
    TRY(b->ffn->connect(block_ffn(b), &b->mlp_input, &b->grad_mlp));
    separate_gradients(b, &b->attention_post_norm, &b->grad_attention, &b->grad_h2);
    separate_gradients(b, &b->mlp_post_norm, &b->grad_mlp, &b->grad_output);
    return OTT_OK;
}

/* ---- post norm or multiplier of a projection ---- */

/* *t is a projection. Multiplies it in place, or replaces it by its post norm. */
static ott_status finish_added(exec *cx, const block *b, const norm *post, tensor *t, plan_buffer *buffer,
                               block_added *s) {
    if (is_added_unchanged(b, post)) return OTT_OK;
    if (!post->weight) return op_multiply(cx, &(multiply_args){.x = t, .y = t, .factor = b->multiplier});
    s->x = *t;
    s->x_buffer = *buffer;
    TRY(exec_open(cx, "normed projection", t->dtype, t->rows, t->columns, t, buffer));
    TRY(exec_open(cx, "projection rstd", OTT_F32, norm_kept(post), t->rows, &s->rstd, &s->rstd_buffer));
    activation y = {.t = *t};
    return norm_forward(cx, post, &s->x, NULL, NULL, &y, &s->rstd);
}

static ott_status close_added(exec *cx, block_added *s) {
    TRY(plan_close(cx->plan, &s->x_buffer));
    return plan_close(cx->plan, &s->rstd_buffer);
}

/* Computes *own, the gradient of a projection before its post norm or multiplier, from g, the gradient after
   it. Without a norm or multiplier both gradients are the same, and *own is {0}. */
static ott_status backward_added(exec *cx, const block *b, const norm *post, const activation *g,
                                 const activation_specs *specs, block_added *s, activation *own) {
    *own = (activation){0};
    if (is_added_unchanged(b, post)) return OTT_OK;
    TRY(activation_open(cx, "projection gradient", g->t.dtype, g->t.rows, g->t.columns, specs, own));
    if (post->weight) {
        TRY(norm_backward(cx, post, &g->t, &s->x, &s->rstd, NULL, own));
        return close_added(cx, s);
    }
    TRY(op_multiply(cx, &(multiply_args){.x = &g->t, .y = &own->t, .factor = b->multiplier}));
    return activation_quantize(cx, own);
}

/* ---- forward, in the parts that recomputation also uses ---- */

/* Computes h = x + delta (h is x if delta is NULL) and y = norm(h) (if the layer has no norm, y is h). */
static ott_status norm_stream(exec *cx, const norm *n, const tensor *x, const tensor *delta, tensor *h,
                              const activation *y, const tensor *rstd) {
    if (n->weight) return norm_forward(cx, n, x, delta, delta ? h : NULL, y, rstd);
    if (delta) TRY(op_add(cx, &(add_args){.x = x, .delta = delta, .y = h}));
    return activation_quantize(cx, y);
}

/* Opens y, the input of the mixer or of the feed-forward. Without a norm, y is a view of h. */
static ott_status open_input(exec *cx, const norm *n, const char *what, const tensor *h,
                             const activation_specs *specs, activation *y, tensor *rstd,
                             plan_buffer *rstd_buffer) {
    plan_buffer none = PLAN_NONE;
    if (!n->weight) return activation_adopt(cx, what, *h, &none, specs, y);
    TRY(activation_open(cx, what, h->dtype, h->rows, h->columns, specs, y));
    return exec_open(cx, "norm rstd", OTT_F32, norm_kept(n), h->rows, rstd, rstd_buffer);
}

/* Computes n1 = norm(h1) and, with delta, h1 = x + delta. */
static ott_status norm_attention(exec *cx, const block *b, const tensor *x, const tensor *delta,
                                 block_saved *s) {
    TRY(open_input(cx, &b->attention_norm, "attention input", &s->h1, &b->attention_input, &s->n1, &s->rstd1,
                   &s->rstd1_buffer));
    return norm_stream(cx, &b->attention_norm, x, delta, &s->h1, &s->n1, &s->rstd1);
}

static ott_status norm_mlp(exec *cx, const block *b, const tensor *x, const tensor *delta, block_saved *s) {
    TRY(open_input(cx, &b->mlp_norm, "mlp input", &s->h2, &b->mlp_input, &s->n2, &s->rstd2,
                   &s->rstd2_buffer));
    if (!b->parallel_residual) return norm_stream(cx, &b->mlp_norm, x, delta, &s->h2, &s->n2, &s->rstd2);
    if (delta) TRY(op_add(cx, &(add_args){.x = x, .delta = delta, .y = &s->h2}));
    return norm_stream(cx, &b->mlp_norm, &s->h1, NULL, NULL, &s->n2, &s->rstd2);
}

/* Computes h2 = h1 + the mixer's projection and n2 = norm(h2). */
static ott_status finish_mixer(exec *cx, block *b, block_saved *s) {
    tensor projected;
    plan_buffer buffer;
    TRY(exec_open(cx, "attention projection", s->h1.dtype, s->h1.rows, s->h1.columns, &projected, &buffer));
    TRY(b->mixer->project(cx, block_mixer(b), saved_mixer(s), &projected));
    TRY(finish_added(cx, b, &b->attention_post_norm, &projected, &buffer, &s->attention_added));
    TRY(exec_open(cx, "residual after attention", s->h1.dtype, s->h1.rows, s->h1.columns, &s->h2,
                  &s->h2_buffer));
    TRY(norm_mlp(cx, b, &s->h1, &projected, s));
    return plan_close(cx->plan, &buffer);
}

ott_status block_enter(exec *cx, const block *b, const tensor *x, plan_buffer *x_buffer, const tensor *delta,
                       block_saved *s) {
    *s = (block_saved){0};
    if (delta) {
        TRY(exec_open(cx, "residual", x->dtype, x->rows, x->columns, &s->h1, &s->h1_buffer));
        return norm_attention(cx, b, x, delta, s);
    }
    s->h1 = *x;
    s->h1_buffer = *x_buffer;
    *x_buffer = PLAN_NONE;
    return norm_attention(cx, b, &s->h1, NULL, s);
}

/* Opens delta, the output of the feed-forward's down projection after its post norm or multiplier. */
static ott_status finish_mlp(exec *cx, block *b, block_saved *s, tensor *delta, plan_buffer *delta_buffer) {
    TRY(exec_open(cx, "mlp projection", s->h2.dtype, s->h2.rows, s->h2.columns, delta, delta_buffer));
    TRY(b->ffn->project(cx, block_ffn(b), saved_ffn(s), delta));
    return finish_added(cx, b, &b->mlp_post_norm, delta, delta_buffer, &s->mlp_added);
}

static ott_status run_ffn(exec *cx, block *b, block_saved *s) {
    TRY(b->ffn->forward(cx, block_ffn(b), &s->n2, saved_ffn(s)));
    return b->ffn->activate(cx, block_ffn(b), saved_ffn(s));
}

ott_status block_run(exec *cx, block *b, const sequence_metadata *at, block_saved *s, tensor *delta,
                     plan_buffer *delta_buffer) {
    TRY(b->mixer->forward(cx, block_mixer(b), at, &s->n1, saved_mixer(s)));
    TRY(finish_mixer(cx, b, s));
    TRY(run_ffn(cx, b, s));
    return finish_mlp(cx, b, s, delta, delta_buffer);
}

/* ---- tensors kept for backward ---- */

static ott_status drop_mixer(exec *cx, const block *b, block_saved *s) {
    TRY(b->mixer->discard(cx, saved_mixer(s)));
    TRY(plan_close(cx->plan, &s->rstd1_buffer));
    return activation_close(cx, &s->n1);
}

static ott_status keep_mixer(exec *cx, block *b, block_saved *s) {
    TRY(b->mixer->keep(cx, saved_mixer(s)));
    return activation_keep_for_backward(cx, &s->n1, &b->attention_input, false);
}

static ott_status keep_mlp(exec *cx, block *b, block_saved *s) {
    TRY(b->ffn->keep(cx, block_ffn(b), saved_ffn(s)));
    return activation_keep_for_backward(cx, &s->n2, &b->mlp_input, false);
}

/* Closes all tensors of a block except h1, h2 and the outputs of GEMMs and the mixer. */
static ott_status keep_products(exec *cx, const block *b, block_saved *s) {
    TRY(activation_close(cx, &s->n1));
    TRY(plan_close(cx->plan, &s->rstd1_buffer));
    TRY(b->mixer->keep(cx, saved_mixer(s)));
    TRY(activation_close(cx, &s->n2));
    TRY(plan_close(cx->plan, &s->rstd2_buffer));
    return b->ffn->keep_products(cx, saved_ffn(s));
}

/* Closes all tensors of `s` except h1. */
static ott_status drop_all(exec *cx, const block *b, block_saved *s) {
    TRY(drop_mixer(cx, b, s));
    TRY(b->ffn->discard(cx, saved_ffn(s)));
    TRY(plan_close(cx->plan, &s->rstd2_buffer));
    TRY(activation_close(cx, &s->n2));
    TRY(close_added(cx, &s->attention_added));
    TRY(close_added(cx, &s->mlp_added));
    return plan_close(cx->plan, &s->h2_buffer);
}

static ott_status discard_block(exec *cx, const block *b, block_saved *s) {
    TRY(drop_all(cx, b, s));
    return plan_close(cx->plan, &s->h1_buffer);
}

ott_status block_finalize(exec *cx, block *b, block_saved *s) {
    if (cx->phase == PHASE_EVALUATE) return discard_block(cx, b, s);
    switch (b->checkpointing) {
    case CHECKPOINT_NONE: TRY(keep_mixer(cx, b, s)); return keep_mlp(cx, b, s);
    case CHECKPOINT_SELECTIVE: TRY(drop_mixer(cx, b, s)); return keep_mlp(cx, b, s);
    case CHECKPOINT_OP: return keep_products(cx, b, s);
    case CHECKPOINT_FULL: return drop_all(cx, b, s);
    }
    return OTT_OK;
}

/* ---- recompute: each half of the block, right before its backward ---- */

/* Recomputes the input of the feed-forward's post norm. */
static ott_status restore_mlp_added(exec *cx, block *b, block_saved *s) {
    tensor delta;
    plan_buffer buffer;
    if (!b->mlp_post_norm.weight) return OTT_OK;
    TRY(finish_mlp(cx, b, s, &delta, &buffer));
    return plan_close(cx->plan, &buffer);
}

static ott_status restore_all(exec *cx, block *b, const sequence_metadata *at, block_saved *s) {
    TRY(norm_attention(cx, b, &s->h1, NULL, s));
    TRY(b->mixer->forward(cx, block_mixer(b), at, &s->n1, saved_mixer(s)));
    TRY(finish_mixer(cx, b, s));
    TRY(run_ffn(cx, b, s));
    TRY(restore_mlp_added(cx, b, s));
    TRY(keep_mixer(cx, b, s));
    return keep_mlp(cx, b, s);
}

static ott_status restore_mlp(exec *cx, block *b, const sequence_metadata *at, block_saved *s) {
    if (b->checkpointing == CHECKPOINT_FULL) return restore_all(cx, b, at, s);
    if (b->checkpointing != CHECKPOINT_OP) return OTT_OK;
    TRY(norm_mlp(cx, b, &s->h2, NULL, s));
    TRY(b->ffn->activate(cx, block_ffn(b), saved_ffn(s)));
    return keep_mlp(cx, b, s);
}

static ott_status restore_mixer(exec *cx, block *b, const sequence_metadata *at, block_saved *s) {
    if (b->checkpointing != CHECKPOINT_SELECTIVE && b->checkpointing != CHECKPOINT_OP) return OTT_OK;
    TRY(norm_attention(cx, b, &s->h1, NULL, s));
    if (b->checkpointing == CHECKPOINT_SELECTIVE)
        TRY(b->mixer->forward(cx, block_mixer(b), at, &s->n1, saved_mixer(s)));
    return keep_mixer(cx, b, s);
}

typedef ott_status (*restore_half)(exec *cx, block *b, const sequence_metadata *at, block_saved *s);

static ott_status recompute_block(exec *cx, block *b, const sequence_metadata *at, block_saved *s,
                                  restore_half restore) {
    cx->phase = PHASE_RECOMPUTE;
    ott_status status = restore(cx, b, at, s);
    cx->phase = PHASE_TRAIN;
    return status;
}

/* ---- backward ---- */

/* dx = dresidual + dn propagated through the norm of h. dn is the gradient of the norm's output. */
static ott_status backward_norm(exec *cx, const norm *n, const tensor *dn, const tensor *h,
                                const tensor *rstd, const tensor *dresidual, const activation *dx) {
    if (n->weight) return norm_backward(cx, n, dn, h, rstd, dresidual, dx);
    TRY(op_add(cx, &(add_args){.x = dresidual, .delta = dn, .y = &dx->t}));
    return activation_quantize(cx, dx);
}

/* For a parallel residual: *dh2 = g. s->skip_grad = g + the gradient dn2 propagated through mlp_norm. */
static ott_status backward_parallel(exec *cx, block *b, block_saved *s, const activation *g,
                                    const tensor *dn2, activation *dh2) {
    TRY(exec_open(cx, "gradient past attention", s->h1.dtype, s->h1.rows, s->h1.columns, &s->skip_grad,
                  &s->skip_grad_buffer));
    activation skip_grad = {.t = s->skip_grad};
    TRY(norm_backward(cx, &b->mlp_norm, dn2, &s->h1, &s->rstd2, &g->t, &skip_grad));
    TRY(op_convert(cx, &(convert_args){.x = &g->t, .y = &dh2->t}));
    return activation_quantize(cx, dh2);
}

/* Computes dh2 = g + the gradient through the feed-forward and the norm before it. */
static ott_status backward_mlp(exec *cx, block *b, block_saved *s, activation *g, activation *dh2) {
    tensor dn2;
    plan_buffer dn2_buffer;
    activation own;
    TRY(backward_added(cx, b, &b->mlp_post_norm, g, &b->grad_mlp, &s->mlp_added, &own));
    TRY(exec_open(cx, "mlp input gradient", s->h2.dtype, s->h2.rows, s->h2.columns, &dn2, &dn2_buffer));
    TRY(b->ffn->backward(cx, block_ffn(b), saved_ffn(s), &s->n2, own.t.columns ? &own : g, &dn2));
    TRY(activation_close(cx, &own));
    TRY(activation_close(cx, &s->n2));
    TRY(activation_open(cx, "residual gradient", s->h2.dtype, s->h2.rows, s->h2.columns, &b->grad_h2, dh2));
    if (b->parallel_residual)
        TRY(backward_parallel(cx, b, s, g, &dn2, dh2));
    else
        TRY(backward_norm(cx, &b->mlp_norm, &dn2, &s->h2, &s->rstd2, &g->t, dh2));
    TRY(plan_close(cx->plan, &dn2_buffer));
    TRY(activation_close(cx, g));
    TRY(plan_close(cx->plan, &s->h2_buffer));
    return plan_close(cx->plan, &s->rstd2_buffer);
}

static ott_status backward_mixer(exec *cx, block *b, const sequence_metadata *at, block_saved *s,
                                 activation *dh2, const activation_specs *dx_specs, activation *dx) {
    tensor dn1;
    plan_buffer dn1_buffer;
    activation own;
    TRY(backward_added(cx, b, &b->attention_post_norm, dh2, &b->grad_attention, &s->attention_added, &own));
    TRY(exec_open(cx, "attention input gradient", s->h1.dtype, s->h1.rows, s->h1.columns, &dn1, &dn1_buffer));
    TRY(b->mixer->backward(cx, block_mixer(b), at, saved_mixer(s), &s->n1, own.t.columns ? &own : dh2, &dn1));
    TRY(activation_close(cx, &own));
    TRY(activation_close(cx, &s->n1));
    TRY(activation_open(cx, "residual gradient", s->h1.dtype, s->h1.rows, s->h1.columns, dx_specs, dx));
    TRY(backward_norm(cx, &b->attention_norm, &dn1, &s->h1, &s->rstd1,
                      b->parallel_residual ? &s->skip_grad : &dh2->t, dx));
    TRY(plan_close(cx->plan, &s->skip_grad_buffer));
    TRY(plan_close(cx->plan, &dn1_buffer));
    TRY(activation_close(cx, dh2));
    TRY(plan_close(cx->plan, &s->h1_buffer));
    return plan_close(cx->plan, &s->rstd1_buffer);
}

ott_status block_backward(exec *cx, block *b, const sequence_metadata *at, block_saved *s, activation *g,
                          const activation_specs *dx_specs, activation *dx) {
    activation dh2;
    TRY(recompute_block(cx, b, at, s, restore_mlp));
    TRY(backward_mlp(cx, b, s, g, &dh2));
    TRY(recompute_block(cx, b, at, s, restore_mixer));
    return backward_mixer(cx, b, at, s, &dh2, dx_specs, dx);
}
