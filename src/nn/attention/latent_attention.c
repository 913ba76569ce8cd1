/* nn/attention/latent_attention: forward and backward of multi-head latent attention. */
#include "nn/attention/latent_attention.h"

/* True if q also comes from a latent. */
static bool has_query_latent(const latent_attention *a) {
    return a->query.a.weight != NULL;
}

ott_status latent_attention_connect(latent_attention *a, activation_specs *input,
                                    activation_specs *grad_output) {
    activation_specs *specs = &a->core.input_specs;
    *specs = a->grad_q = (activation_specs){0};
    TRY(has_query_latent(a) ? latent_connect(&a->query, specs) : linear_connect(&a->q, specs, &a->grad_q));
    TRY(latent_connect(&a->key, specs));
    return attention_core_connect(&a->core, input, grad_output);
}

/* Columns of a q or k head before heads are padded to head_dim columns. */
static int64_t key_head(const latent_attention *a) {
    return latent_key_width(&a->shape);
}

static bool has_narrow_keys(const latent_attention *a) {
    return key_head(a) < a->core.head_dim;
}

/* ---- forward ---- */

/* Computes q. Its heads are padded to head_dim columns. */
static ott_status project_queries(exec *cx, latent_attention *a, const activation *x,
                                  latent_attention_saved *saved) {
    const int64_t heads = a->core.heads;
    attention_core_saved *s = &saved->core;
    tensor narrow;
    plan_buffer buffer = PLAN_NONE;
    TRY(exec_open(cx, "q", x->t.dtype, x->t.rows, attention_core_query_width(&a->core), &s->q, &s->q_buffer));
    narrow = s->q;
    if (has_narrow_keys(a))
        TRY(exec_open(cx, "narrow q", x->t.dtype, x->t.rows, heads * key_head(a), &narrow, &buffer));
    TRY(has_query_latent(a) ? latent_forward(cx, &a->query, x, &narrow, &saved->query)
                            : linear_forward(cx, &a->q, x, &narrow));
    if (has_narrow_keys(a)) TRY(attention_core_resize(cx, heads, key_head(a), &narrow, &s->q));
    return plan_close(cx->plan, &buffer);
}

/* Computes q, k and v with heads of head_dim columns, and rotates the rope columns of k. */
static ott_status project(exec *cx, latent_attention *a, const sequence_metadata *at, const activation *x,
                          latent_attention_saved *saved) {
    ott_dtype act = x->t.dtype;
    int64_t tokens = x->t.rows, width = attention_core_key_width(&a->core);
    attention_core_saved *s = &saved->core;
    tensor made;
    plan_buffer buffer;
    TRY(project_queries(cx, a, x, saved));
    TRY(exec_open(cx, "k and v from the latent", act, tokens, a->key.b.out, &made, &buffer));
    TRY(latent_forward(cx, &a->key, x, &made, &saved->key));
    tensor rotated = latent_extra_columns(&a->key, &saved->key);
    tensor position = context_ranks_own(a->core.context, at->position);
    TRY(rope_apply(cx, a->core.rope, &rotated, &position, false));
    TRY(exec_open(cx, "k", act, tokens, width, &s->k, &s->k_buffer));
    TRY(exec_open(cx, "v", act, tokens, width, &s->v, &s->v_buffer));
    TRY(latent_split(cx, &a->shape, a->core.heads, &made, &rotated, &s->k, &s->v));
    return plan_close(cx->plan, &buffer);
}

ott_status latent_attention_forward(exec *cx, latent_attention *a, const sequence_metadata *at,
                                    const activation *x, latent_attention_saved *s) {
    activation all;
    TRY(attention_core_gather(cx, &a->core, x, &all));
    TRY(project(cx, a, at, &all, s));
    TRY(activation_close(cx, &all));
    return attention_core_forward(cx, &a->core, at, &s->core);
}

ott_status latent_attention_discard(exec *cx, latent_attention_saved *s) {
    TRY(attention_core_close(cx, &s->core));
    TRY(latent_close(cx, &s->query));
    return latent_close(cx, &s->key);
}

/* ---- backward ---- */

/* Returns the dx to which this rank adds the gradient through the key latent; NULL: it must not add it. All
   ranks have the same gradient. So if the ranks sum their dx, only rank 0 adds it. */
static const tensor *added_once(const latent_attention *a, const tensor *dx) {
    const group *ranks = a->core.o.ranks.group;
    return !ranks || ranks->rank == 0 || has_query_latent(a) ? dx : NULL;
}

/* Backward of the projections. dq is the gradient before rotation. dk and dv have padded heads. */
static ott_status backward_paths(exec *cx, latent_attention *a, const sequence_metadata *at,
                                 latent_attention_saved *s, const activation *x, activation *dq,
                                 const tensor *dk, const tensor *dv, const tensor *dx) {
    const tensor_ranks ranks = latent_ranks(&a->key);
    activation made;
    tensor rotated, position = context_ranks_own(a->core.context, at->position);
    plan_buffer buffer;
    partial_sum sum;
    TRY(exec_open(cx, "rope column gradient", dk->dtype, dk->rows, a->shape.rope_dim, &rotated, &buffer));
    TRY(activation_open(cx, "gradient of k and v from the latent", dk->dtype, dk->rows, a->key.b.out,
                        &a->key.grad_b, &made));
    TRY(tensor_partial_open(cx, &ranks, OTT_F32, &rotated, &sum));
    TRY(latent_merge(cx, &a->shape, a->core.heads, dk, dv, &made.t, &sum.t));
    TRY(tensor_partial_close(cx, &ranks, &rotated, &sum));
    TRY(rope_apply(cx, a->core.rope, &rotated, &position, true));
    TRY(activation_quantize(cx, dq));
    TRY(has_query_latent(a) ? latent_backward(cx, &a->query, &s->query, x, dq, NULL, dx, false)
                            : linear_backward(cx, &a->q, x, dq, dx, false));
    TRY(activation_quantize(cx, &made));
    TRY(latent_backward(cx, &a->key, &s->key, x, &made, &rotated, added_once(a, dx), true));
    return plan_close(cx->plan, &buffer);
}

/* Like attention_core_backward, but the heads of dq are not padded to head_dim columns. */
static ott_status backward_heads(exec *cx, const latent_attention *a, const sequence_metadata *at,
                                 const attention_core_saved *s, const tensor *dq, const tensor *dk,
                                 const tensor *dv) {
    tensor wide;
    plan_buffer buffer;
    if (!has_narrow_keys(a)) return attention_core_backward(cx, &a->core, at, s, dq, dk, dv);
    TRY(exec_open(cx, "wide q gradient", dq->dtype, dq->rows, attention_core_query_width(&a->core), &wide,
                  &buffer));
    TRY(attention_core_backward(cx, &a->core, at, s, &wide, dk, dv));
    TRY(attention_core_resize(cx, a->core.heads, key_head(a), &wide, dq));
    return plan_close(cx->plan, &buffer);
}

/* dx has the rows of all tensor-parallel ranks. It is the full gradient if q comes from a latent. If not, the
   ranks must sum their dx. */
static ott_status backward_inputs(exec *cx, latent_attention *a, const sequence_metadata *at,
                                  latent_attention_saved *s, const activation *x, const tensor *dx) {
    const activation_specs *specs = has_query_latent(a) ? &a->query.grad_b : &a->grad_q;
    const int64_t rows = x->t.rows, width = attention_core_key_width(&a->core);
    ott_dtype act = x->t.dtype;
    activation dq;
    tensor dk, dv;
    plan_buffer dk_buffer, dv_buffer;
    TRY(activation_open(cx, "q gradient", act, rows, a->core.heads * key_head(a), specs, &dq));
    TRY(exec_open(cx, "k gradient", act, rows, width, &dk, &dk_buffer));
    TRY(exec_open(cx, "v gradient", act, rows, width, &dv, &dv_buffer));
    TRY(backward_heads(cx, a, at, &s->core, &dq.t, &dk, &dv));
    TRY(attention_core_close(cx, &s->core));
    TRY(backward_paths(cx, a, at, s, x, &dq, &dk, &dv, dx));
    TRY(plan_close(cx->plan, &dk_buffer));
    return plan_close(cx->plan, &dv_buffer);
}

/* Computes this rank's rows of dx. */
static ott_status backward_own(exec *cx, latent_attention *a, const sequence_metadata *at,
                               latent_attention_saved *s, const activation *x, const tensor *dx) {
    const tensor_ranks *ranks = &a->core.o.ranks;
    partial_sum sum;
    full_rows rows;
    if (has_query_latent(a)) {
        TRY(tensor_full_open(cx, ranks, dx, &rows));
        TRY(backward_inputs(cx, a, at, s, x, &rows.t));
        return tensor_full_close(cx, ranks, dx, &rows);
    }
    TRY(tensor_partial_open(cx, ranks, OTT_F32, dx, &sum));
    TRY(backward_inputs(cx, a, at, s, x, &sum.t));
    return tensor_partial_close(cx, ranks, dx, &sum);
}

ott_status latent_attention_backward(exec *cx, latent_attention *a, const sequence_metadata *at,
                                     latent_attention_saved *s, const activation *x, const activation *g,
                                     const tensor *dx) {
    activation all;
    TRY(attention_core_backward_project(cx, &a->core, &s->core, g));
    TRY(attention_core_gather(cx, &a->core, x, &all));
    TRY(backward_own(cx, a, at, s, &all, dx));
    return activation_close(cx, &all);
}
