/* nn/attention/attention: forward and backward of attention whose q, k and v are projections of the input. */
#include "nn/attention/attention.h"

static bool is_fused(const attention *a) {
    return a->qkv.weight != NULL;
}

ott_status attention_connect(attention *a, activation_specs *input, activation_specs *grad_output) {
    activation_specs *specs = &a->core.input_specs;
    *specs = a->grad_qkv = a->grad_q = a->grad_k = a->grad_v = (activation_specs){0};
    if (is_fused(a)) {
        TRY(linear_connect(&a->qkv, specs, &a->grad_qkv));
    } else {
        TRY(linear_connect(&a->q, specs, &a->grad_q));
        TRY(linear_connect(&a->k, specs, &a->grad_k));
        TRY(linear_connect(&a->v, specs, &a->grad_v));
    }
    return attention_core_connect(&a->core, input, grad_output);
}

/* ---- forward ---- */

/* Views of q, k and v as columns of the fused projection's output, or of its gradient. */
static void split_qkv(const attention *a, const tensor *qkv, tensor *q, tensor *k, tensor *v) {
    int64_t query = attention_core_query_width(&a->core), key = attention_core_key_width(&a->core);
    *q = tensor_columns(*qkv, 0, query);
    *k = tensor_columns(*qkv, query, key);
    *v = tensor_columns(*qkv, query + key, key);
}

static ott_status project_fused(exec *cx, attention *a, const activation *x, attention_core_saved *s) {
    tensor qkv;
    TRY(exec_open(cx, "qkv", x->t.dtype, x->t.rows, a->qkv.out, &qkv, &s->qkv_buffer));
    split_qkv(a, &qkv, &s->q, &s->k, &s->v);
    return linear_forward(cx, &a->qkv, x, &qkv);
}

static ott_status project_separate(exec *cx, attention *a, const activation *x, attention_saved *saved) {
    ott_dtype act = x->t.dtype;
    int64_t tokens = x->t.rows;
    attention_core_saved *s = &saved->core;
    TRY(exec_open(cx, "q", act, tokens, a->q.out, &s->q, &s->q_buffer));
    TRY(exec_open(cx, "k", act, tokens, a->k.out, &s->k, &s->k_buffer));
    TRY(exec_open(cx, "v", act, tokens, a->v.out, &s->v, &s->v_buffer));
    TRY(linear_forward(cx, &a->q, x, &s->q));
    TRY(linear_forward(cx, &a->k, x, &s->k));
    TRY(linear_forward(cx, &a->v, x, &s->v));
    TRY(head_norm_forward(cx, &a->q_norm, &a->q.ranks, &s->q, &s->q_buffer, &saved->q_norm));
    return head_norm_forward(cx, &a->k_norm, &a->k.ranks, &s->k, &s->k_buffer, &saved->k_norm);
}

ott_status attention_forward(exec *cx, attention *a, const sequence_metadata *at, const activation *x,
                             attention_saved *s) {
    activation all;
    TRY(attention_core_gather(cx, &a->core, x, &all));
    TRY(is_fused(a) ? project_fused(cx, a, &all, &s->core) : project_separate(cx, a, &all, s));
    TRY(activation_close(cx, &all));
    return attention_core_forward(cx, &a->core, at, &s->core);
}

static ott_status close_norms(exec *cx, attention_saved *s) {
    TRY(head_norm_close(cx, &s->q_norm));
    return head_norm_close(cx, &s->k_norm);
}

ott_status attention_discard(exec *cx, attention_saved *s) {
    TRY(attention_core_close(cx, &s->core));
    return close_norms(cx, s);
}

/* ---- backward ---- */

static ott_status backward_fused(exec *cx, attention *a, const sequence_metadata *at, attention_core_saved *s,
                                 const activation *x, const tensor *dx) {
    tensor dq, dk, dv;
    activation g;
    TRY(activation_open(cx, "qkv gradient", x->t.dtype, x->t.rows, a->qkv.out, &a->grad_qkv, &g));
    split_qkv(a, &g.t, &dq, &dk, &dv);
    TRY(attention_core_backward(cx, &a->core, at, s, &dq, &dk, &dv));
    TRY(attention_core_close(cx, s));
    TRY(activation_quantize(cx, &g));
    return linear_backward(cx, &a->qkv, x, &g, dx, false);
}

/* Backward of one of the separate projections of q, k and v. */
typedef struct branch {
    const char *what;
    linear *projection;
    const activation_specs *specs; /* specs of the gradient of the projection's output */
    const norm *norm;              /* norm of q's or k's heads; NULL, or its weight is NULL: none */
    const head_norm_saved *saved;  /* the norm's input and statistics */
    tensor dy;                     /* gradient of the norm's output, from attention's backward */
    plan_buffer dy_buffer;
} branch;

static ott_status branch_open(exec *cx, branch *b, const activation *x) {
    return exec_open(cx, b->what, x->t.dtype, x->t.rows, b->projection->out, &b->dy, &b->dy_buffer);
}

/* Computes *g, the gradient of the projection's output, from dy. dy's buffer moves to *g or is closed. */
static ott_status branch_gradient(exec *cx, branch *b, activation *g) {
    if (!b->norm || !b->norm->weight) return activation_adopt(cx, b->what, b->dy, &b->dy_buffer, b->specs, g);
    TRY(activation_open(cx, b->what, b->dy.dtype, b->dy.rows, b->dy.columns, b->specs, g));
    TRY(head_norm_backward(cx, b->norm, &b->projection->ranks, b->saved, &b->dy, &g->t));
    return plan_close(cx->plan, &b->dy_buffer);
}

static ott_status branch_backward(exec *cx, branch *b, const activation *x, const tensor *dx,
                                  bool accumulate) {
    activation g;
    TRY(branch_gradient(cx, b, &g));
    TRY(activation_quantize(cx, &g));
    return linear_backward(cx, b->projection, x, &g, dx, accumulate);
}

static ott_status backward_separate(exec *cx, attention *a, const sequence_metadata *at, attention_saved *s,
                                    const activation *x, const tensor *dx) {
    branch q = {.what = "q gradient",
                .projection = &a->q,
                .specs = &a->grad_q,
                .norm = &a->q_norm,
                .saved = &s->q_norm};
    branch k = {.what = "k gradient",
                .projection = &a->k,
                .specs = &a->grad_k,
                .norm = &a->k_norm,
                .saved = &s->k_norm};
    branch v = {.what = "v gradient", .projection = &a->v, .specs = &a->grad_v};
    TRY(branch_open(cx, &q, x));
    TRY(branch_open(cx, &k, x));
    TRY(branch_open(cx, &v, x));
    TRY(attention_core_backward(cx, &a->core, at, &s->core, &q.dy, &k.dy, &v.dy));
    TRY(attention_core_close(cx, &s->core));
    TRY(branch_backward(cx, &q, x, dx, false));
    TRY(branch_backward(cx, &k, x, dx, true));
    TRY(branch_backward(cx, &v, x, dx, true));
    return close_norms(cx, s);
}

ott_status attention_backward(exec *cx, attention *a, const sequence_metadata *at, attention_saved *s,
                              const activation *x, const activation *g, const tensor *dx) {
    const tensor_ranks *ranks = &a->core.o.ranks;
    activation all;
    partial_sum sum; /* dx of all ranks' rows; the ranks sum it */
    TRY(attention_core_backward_project(cx, &a->core, &s->core, g));
    TRY(attention_core_gather(cx, &a->core, x, &all));
    TRY(tensor_partial_open(cx, ranks, OTT_F32, dx, &sum));
    TRY(is_fused(a) ? backward_fused(cx, a, at, &s->core, &all, &sum.t)
                    : backward_separate(cx, a, at, s, &all, &sum.t));
    TRY(tensor_partial_close(cx, ranks, dx, &sum));
    return activation_close(cx, &all);
}
