/* nn/attention/attention: forward and backward of self-attention. */
#include "nn/attention/attention.h"

static bool is_fused(const attention *a) {
    return a->qkv.weight != NULL;
}

static bool is_latent(const attention *a) {
    return a->latent.shape.key_rank > 0;
}

ott_status attention_connect(attention *a, activation_specs *input, activation_specs *grad_output) {
    a->input_specs = a->output_specs = a->grad_specs = (activation_specs){0};
    a->grad_qkv = a->grad_q = a->grad_k = a->grad_v = (activation_specs){0};
    if (is_latent(a)) {
        if (a->latent.query.a.weight)
            TRY(latent_connect(&a->latent.query, &a->input_specs));
        else
            TRY(linear_connect(&a->q, &a->input_specs, &a->grad_q));
        TRY(latent_connect(&a->latent.key, &a->input_specs));
    } else if (is_fused(a)) {
        TRY(linear_connect(&a->qkv, &a->input_specs, &a->grad_qkv));
    } else {
        TRY(linear_connect(&a->q, &a->input_specs, &a->grad_q));
        TRY(linear_connect(&a->k, &a->input_specs, &a->grad_k));
        TRY(linear_connect(&a->v, &a->input_specs, &a->grad_v));
    }
    TRY(linear_connect(&a->o, &a->output_specs, &a->grad_specs));
    *input = tensor_ranks_own_specs(&a->o.ranks, &a->input_specs);
    *grad_output = tensor_ranks_own_specs(&a->o.ranks, &a->grad_specs);
    return OTT_OK;
}

/* Columns of a q or k head before heads are padded to head_dim columns. */
static int64_t key_head(const attention *a) {
    return is_latent(a) ? latent_key_width(&a->latent.shape) : a->head_dim;
}

/* True if q and k heads are narrower than v heads. They are then padded with zeros to head_dim columns. */
static bool has_narrow_keys(const attention *a) {
    return key_head(a) < a->head_dim;
}

static int64_t query_width(const attention *a) {
    return a->heads * a->head_dim;
}

static int64_t key_width(const attention *a) {
    return a->kv_heads * a->head_dim;
}

/* Views of q, k and v as columns of the fused projection's output, or of its gradient. */
static void split(const attention *a, const tensor *qkv, tensor *q, tensor *k, tensor *v) {
    int64_t query = query_width(a), key = key_width(a);
    *q = tensor_columns(*qkv, 0, query);
    *k = tensor_columns(*qkv, query, key);
    *v = tensor_columns(*qkv, query + key, key);
}

static float softmax_scale(const attention *a) {
    return a->scale != 0 ? a->scale : 1.0f / sqrtf((float)a->head_dim);
}

/* Rotates q and k in place. With MLA it rotates only q; callers rotate the rope columns of k. */
static ott_status rotate(exec *cx, const attention *a, const sequence_metadata *at, const tensor *q,
                         const tensor *k, bool inverse) {
    if (!a->rope) return OTT_OK;
    if (is_latent(a))
        return rope_apply_within(cx, a->rope, q, a->head_dim, a->latent.shape.nope_dim, &at->position,
                                 inverse);
    TRY(rope_apply(cx, a->rope, q, &at->position, inverse));
    return rope_apply(cx, a->rope, k, &at->position, inverse);
}

/* ---- forward ---- */

static ott_status project_fused(exec *cx, attention *a, const activation *x, attention_saved *s) {
    tensor qkv;
    TRY(exec_open(cx, "qkv", x->t.dtype, x->t.rows, a->qkv.out, &qkv, &s->qkv_buffer));
    split(a, &qkv, &s->q, &s->k, &s->v);
    return linear_forward(cx, &a->qkv, x, &qkv);
}

static ott_status project_separate(exec *cx, attention *a, const activation *x, attention_saved *s) {
    ott_dtype act = x->t.dtype;
    int64_t tokens = x->t.rows;
    TRY(exec_open(cx, "q", act, tokens, a->q.out, &s->q, &s->q_buffer));
    TRY(exec_open(cx, "k", act, tokens, a->k.out, &s->k, &s->k_buffer));
    TRY(exec_open(cx, "v", act, tokens, a->v.out, &s->v, &s->v_buffer));
    TRY(linear_forward(cx, &a->q, x, &s->q));
    TRY(linear_forward(cx, &a->k, x, &s->k));
    TRY(linear_forward(cx, &a->v, x, &s->v));
    TRY(head_norm_forward(cx, &a->q_norm, &a->q.ranks, &s->q, &s->q_buffer, &s->q_norm));
    return head_norm_forward(cx, &a->k_norm, &a->k.ranks, &s->k, &s->k_buffer, &s->k_norm);
}

/* For MLA: computes q. Its heads are padded to head_dim columns. */
static ott_status project_queries(exec *cx, attention *a, const activation *x, attention_saved *s) {
    latent *l = &a->latent;
    tensor narrow;
    plan_buffer buffer = PLAN_NONE;
    TRY(exec_open(cx, "q", x->t.dtype, x->t.rows, query_width(a), &s->q, &s->q_buffer));
    narrow = s->q;
    if (has_narrow_keys(a))
        TRY(exec_open(cx, "narrow q", x->t.dtype, x->t.rows, a->heads * key_head(a), &narrow, &buffer));
    TRY(l->query.a.weight ? latent_forward(cx, &l->query, x, &narrow, &s->query_latent)
                          : linear_forward(cx, &a->q, x, &narrow));
    if (has_narrow_keys(a)) TRY(latent_resize(cx, a->heads, key_head(a), &narrow, &s->q));
    return plan_close(cx->plan, &buffer);
}

/* For MLA: computes q, k and v with heads of head_dim columns, and rotates the rope columns of k. */
static ott_status project_latent(exec *cx, attention *a, const sequence_metadata *at, const activation *x,
                                 attention_saved *s) {
    ott_dtype act = x->t.dtype;
    int64_t tokens = x->t.rows;
    latent *l = &a->latent;
    tensor made;
    plan_buffer buffer;
    TRY(project_queries(cx, a, x, s));
    TRY(exec_open(cx, "k and v from the latent", act, tokens, l->key.b.out, &made, &buffer));
    TRY(latent_forward(cx, &l->key, x, &made, &s->key_latent));
    tensor rotated = latent_extra_columns(&l->key, &s->key_latent);
    tensor position = context_ranks_own(a->context, at->position);
    TRY(rope_apply(cx, a->rope, &rotated, &position, false));
    TRY(exec_open(cx, "k", act, tokens, key_width(a), &s->k, &s->k_buffer));
    TRY(exec_open(cx, "v", act, tokens, key_width(a), &s->v, &s->v_buffer));
    TRY(latent_split(cx, &l->shape, a->heads, &made, &rotated, &s->k, &s->v));
    return plan_close(cx->plan, &buffer);
}

/* ---- exchange with context-parallel ranks ---- */

/* The tensor whose heads context-parallel ranks exchange: q; k or v; the attention output. */
typedef enum head_kind { HEADS_OF_QUERIES, HEADS_OF_KEYS, HEADS_OF_OUTPUT } head_kind;

static context_split split_of(const attention *a, head_kind kind) {
    int ranks = a->context->size;
    if (kind == HEADS_OF_KEYS) return context_split_keys(ranks, a->heads, a->kv_heads, a->head_dim);
    return context_split_queries(ranks, a->heads, kind == HEADS_OF_OUTPUT ? a->o.in / a->heads : a->head_dim);
}

/* Opens `heads`: some heads of all T tokens. x[T/C, columns] has all heads of this rank's T/C tokens. */
static ott_status open_exchanged(exec *cx, const attention *a, const char *what, const context_split *d,
                                 const tensor *x, tensor *heads, plan_buffer *buffer) {
    return exec_open(cx, what, x->dtype, x->rows * a->context->size,
                     context_split_columns(d, a->context->size, x->columns), heads, buffer);
}

/* *x has all heads (of q, k or v) of this rank's tokens. Replaces it by some heads of all tokens. */
static ott_status exchange_heads(exec *cx, const attention *a, const char *what, const context_split *d,
                                 tensor *x, plan_buffer *x_buffer) {
    tensor heads;
    plan_buffer buffer;
    TRY(open_exchanged(cx, a, what, d, x, &heads, &buffer));
    TRY(context_ranks_gather(cx, a->context, d, x, &heads));
    TRY(plan_close(cx->plan, x_buffer));
    *x = heads;
    return *x_buffer = buffer, OTT_OK;
}

static ott_status exchange_inputs(exec *cx, const attention *a, attention_saved *s) {
    if (!a->context) return OTT_OK;
    context_split queries = split_of(a, HEADS_OF_QUERIES), keys = split_of(a, HEADS_OF_KEYS);
    TRY(exchange_heads(cx, a, "q of all tokens", &queries, &s->q, &s->q_buffer));
    TRY(exchange_heads(cx, a, "k of all tokens", &keys, &s->k, &s->k_buffer));
    TRY(exchange_heads(cx, a, "v of all tokens", &keys, &s->v, &s->v_buffer));
    return plan_close(cx->plan, &s->qkv_buffer);
}

/* Opens `heads`: some heads of all tokens, for the exchange of x; x itself without context parallelism. */
static ott_status open_heads(exec *cx, const attention *a, head_kind kind, const tensor *x, tensor *heads,
                             plan_buffer *buffer) {
    *heads = *x;
    *buffer = PLAN_NONE;
    if (!a->context) return OTT_OK;
    context_split d = split_of(a, kind);
    return open_exchanged(cx, a, "heads of all tokens", &d, x, heads, buffer);
}

/* True if v heads are narrower than q and k heads. They are then padded with zeros to head_dim columns. */
static bool has_narrow_values(const attention *a) {
    return is_latent(a) && a->latent.shape.value < a->head_dim;
}

static ott_status scatter_heads(exec *cx, const attention *a, head_kind kind, tensor *heads,
                                plan_buffer *buffer, const tensor *x) {
    if (a->context) {
        context_split d = split_of(a, kind);
        TRY(context_ranks_scatter(cx, a->context, &d, heads, x));
    }
    return plan_close(cx->plan, buffer);
}

/* Opens `heads`, shaped like the attention kernel's output. x: shaped like the input of projection o. */
static ott_status open_output(exec *cx, const attention *a, const tensor *x, tensor *heads,
                              plan_buffer *buffer) {
    int64_t ranks = a->context ? a->context->size : 1;
    if (!has_narrow_values(a)) return open_heads(cx, a, HEADS_OF_OUTPUT, x, heads, buffer);
    return exec_open(cx, "widened heads", x->dtype, x->rows * ranks, query_width(a) / ranks, heads, buffer);
}

static ott_status gather_output(exec *cx, const attention *a, const tensor *x, tensor *heads,
                                plan_buffer *buffer) {
    tensor narrow;
    plan_buffer narrow_buffer;
    TRY(open_heads(cx, a, HEADS_OF_OUTPUT, x, &narrow, &narrow_buffer));
    if (a->context) {
        context_split d = split_of(a, HEADS_OF_OUTPUT);
        TRY(context_ranks_gather(cx, a->context, &d, x, &narrow));
    }
    *heads = narrow;
    *buffer = narrow_buffer;
    if (!has_narrow_values(a)) return OTT_OK;
    TRY(open_output(cx, a, x, heads, buffer));
    TRY(latent_resize(cx, heads->columns / a->head_dim, a->latent.shape.value, &narrow, heads));
    return plan_close(cx->plan, &narrow_buffer);
}

static ott_status scatter_output(exec *cx, const attention *a, tensor *heads, plan_buffer *buffer,
                                 const tensor *x) {
    tensor narrow;
    plan_buffer narrow_buffer;
    if (!has_narrow_values(a)) return scatter_heads(cx, a, HEADS_OF_OUTPUT, heads, buffer, x);
    TRY(open_heads(cx, a, HEADS_OF_OUTPUT, x, &narrow, &narrow_buffer));
    TRY(latent_resize(cx, heads->columns / a->head_dim, a->latent.shape.value, heads, &narrow));
    TRY(plan_close(cx->plan, buffer));
    return scatter_heads(cx, a, HEADS_OF_OUTPUT, &narrow, &narrow_buffer, x);
}

static ott_status gather_input(exec *cx, const attention *a, const activation *x, activation *all) {
    return tensor_ranks_gather(cx, &a->o.ranks, "gathered attention input", &a->input_specs, x, all);
}

static ott_status project_inputs(exec *cx, attention *a, const sequence_metadata *at, const activation *x,
                                 attention_saved *s) {
    activation all;
    TRY(gather_input(cx, a, x, &all));
    TRY(is_latent(a)  ? project_latent(cx, a, at, &all, s)
        : is_fused(a) ? project_fused(cx, a, &all, s)
                      : project_separate(cx, a, &all, s));
    TRY(activation_close(cx, &all));
    TRY(exchange_inputs(cx, a, s));
    return rotate(cx, a, at, &s->q, &s->k, false);
}

/* Writes the new rows `own` to the cache after its first `past` rows. *all: all rows written so far. */
static ott_status append_to_cache(exec *cx, const tensor *own, const tensor *cache, int64_t past,
                                  tensor *all) {
    STATUS_REQUIRE(past + own->rows <= cache->rows);
    tensor place = tensor_rows(*cache, past, own->rows);
    *all = tensor_rows(*cache, 0, past + own->rows);
    return op_convert(cx, &(convert_args){.x = own, .y = &place});
}

/* *k, *v: the keys and values that the queries attend to. With a cache, the cached ones come first. */
static ott_status gather_keys(exec *cx, const sequence_metadata *at, const attention_saved *s, tensor *k,
                              tensor *v) {
    const attention_cache *c = at->cache;
    *k = s->k;
    *v = s->v;
    if (!c) return OTT_OK;
    STATUS_REQUIRE(cx->phase == PHASE_EVALUATE);
    TRY(append_to_cache(cx, &s->k, &c->k, c->past, k));
    return append_to_cache(cx, &s->v, &c->v, c->past, v);
}

ott_status attention_forward(exec *cx, attention *a, const sequence_metadata *at, const activation *x,
                             attention_saved *s) {
    tensor k, v, o;
    plan_buffer o_buffer;
    TRY(project_inputs(cx, a, at, x, s));
    int64_t ranks = a->context ? a->context->size : 1, tokens = s->q.rows;
    TRY(gather_keys(cx, at, s, &k, &v));
    TRY(exec_open(cx, "attention lse", OTT_F32, a->heads / ranks, tokens, &s->lse, &s->lse_buffer));
    TRY(activation_open(cx, "attention output", x->t.dtype, tokens / ranks, a->o.in, &a->output_specs,
                        &s->o));
    TRY(open_output(cx, a, &s->o.t, &o, &o_buffer));
    TRY(op_attention_forward(cx, &(attention_forward_args){.q = &s->q,
                                                           .k = &k,
                                                           .v = &v,
                                                           .cu_seqlens = &at->cu_seqlens,
                                                           .o = &o,
                                                           .lse = &s->lse,
                                                           .head_dim = a->head_dim,
                                                           .window = a->window,
                                                           .past = at->cache ? at->cache->past : 0,
                                                           .softmax_scale = softmax_scale(a),
                                                           .softcap = a->softcap}));
    TRY(scatter_output(cx, a, &o, &o_buffer, &s->o.t));
    return activation_quantize(cx, &s->o);
}

ott_status attention_project(exec *cx, attention *a, const attention_saved *s, const tensor *y) {
    return linear_forward(cx, &a->o, &s->o, y);
}

ott_status attention_keep(exec *cx, attention_saved *s) {
    return activation_close_copies(cx, &s->o);
}

/* Quantizes the attention output again, for the weight gradient of projection o. */
static ott_status requantize(exec *cx, const attention *a, attention_saved *s) {
    activation o;
    TRY(activation_adopt(cx, "attention output", s->o.t, &s->o.buffer, &a->output_specs, &o));
    s->o = o;
    return activation_quantize(cx, &s->o);
}

static ott_status close_qkv(exec *cx, attention_saved *s) {
    TRY(plan_close(cx->plan, &s->qkv_buffer));
    TRY(plan_close(cx->plan, &s->q_buffer));
    TRY(plan_close(cx->plan, &s->k_buffer));
    TRY(plan_close(cx->plan, &s->v_buffer));
    return plan_close(cx->plan, &s->lse_buffer);
}

static ott_status close_norms(exec *cx, attention_saved *s) {
    TRY(head_norm_close(cx, &s->q_norm));
    return head_norm_close(cx, &s->k_norm);
}

ott_status attention_discard(exec *cx, attention_saved *s) {
    TRY(close_qkv(cx, s));
    TRY(close_norms(cx, s));
    TRY(latent_close(cx, &s->query_latent));
    TRY(latent_close(cx, &s->key_latent));
    return activation_close(cx, &s->o);
}

/* Computes dout, the gradient of attention's output, from g. Accumulates projection o's weight gradient. */
static ott_status backward_projection(exec *cx, attention *a, attention_saved *s, const activation *g,
                                      const tensor *dout) {
    TRY(linear_grad_input(cx, &a->o, g, dout, false));
    if (!a->o.weight->frozen) TRY(requantize(cx, a, s));
    TRY(linear_grad_weight(cx, &a->o, &s->o, g));
    return activation_close_copies(cx, &s->o);
}

/* Computes dq and dk (before rotation) and dv from dout. */
static ott_status backward_heads(exec *cx, attention *a, const sequence_metadata *at,
                                 const attention_saved *s, const tensor *o, const tensor *dout,
                                 const tensor *dq, const tensor *dk, const tensor *dv) {
    TRY(op_attention_backward(cx, &(attention_backward_args){.dout = dout,
                                                             .q = &s->q,
                                                             .k = &s->k,
                                                             .v = &s->v,
                                                             .o = o,
                                                             .lse = &s->lse,
                                                             .cu_seqlens = &at->cu_seqlens,
                                                             .dq = dq,
                                                             .dk = dk,
                                                             .dv = dv,
                                                             .head_dim = a->head_dim,
                                                             .window = a->window,
                                                             .softmax_scale = softmax_scale(a),
                                                             .softcap = a->softcap}));
    return rotate(cx, a, at, dq, dk, true);
}

/* Calls backward_heads. With context parallelism, it gets all tokens of some heads. */
static ott_status backward_core(exec *cx, attention *a, const sequence_metadata *at, const attention_saved *s,
                                const tensor *dout, const tensor *dq, const tensor *dk, const tensor *dv) {
    const tensor *of_tokens[] = {&s->o.t, dout, dq, dk, dv};
    enum { O, DOUT, DQ, DK, DV, COUNT };
    tensor t[COUNT];
    plan_buffer buffer[COUNT];
    const head_kind kind[] = {[DQ] = HEADS_OF_QUERIES, [DK] = HEADS_OF_KEYS, [DV] = HEADS_OF_KEYS};
    for (int i = O; i <= DOUT; i++) TRY(gather_output(cx, a, of_tokens[i], &t[i], &buffer[i]));
    for (int i = DQ; i < COUNT; i++) TRY(open_heads(cx, a, kind[i], of_tokens[i], &t[i], &buffer[i]));
    TRY(backward_heads(cx, a, at, s, &t[O], &t[DOUT], &t[DQ], &t[DK], &t[DV]));
    for (int i = DQ; i < COUNT; i++) TRY(scatter_heads(cx, a, kind[i], &t[i], &buffer[i], of_tokens[i]));
    TRY(plan_close(cx->plan, &buffer[DOUT]));
    return plan_close(cx->plan, &buffer[O]);
}

/* Closes the tensors that only backward_core reads. */
static ott_status close_core(exec *cx, attention_saved *s, plan_buffer *dout_buffer) {
    TRY(plan_close(cx->plan, dout_buffer));
    TRY(close_qkv(cx, s));
    return activation_close(cx, &s->o);
}

static ott_status backward_fused(exec *cx, attention *a, const sequence_metadata *at, attention_saved *s,
                                 const activation *x, const tensor *dout, plan_buffer *dout_buffer,
                                 const tensor *dx) {
    tensor dq, dk, dv;
    activation g;
    TRY(activation_open(cx, "qkv gradient", x->t.dtype, x->t.rows, a->qkv.out, &a->grad_qkv, &g));
    split(a, &g.t, &dq, &dk, &dv);
    TRY(backward_core(cx, a, at, s, dout, &dq, &dk, &dv));
    TRY(close_core(cx, s, dout_buffer));
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
                                    const activation *x, const tensor *dout, plan_buffer *dout_buffer,
                                    const tensor *dx) {
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
    TRY(backward_core(cx, a, at, s, dout, &q.dy, &k.dy, &v.dy));
    TRY(close_core(cx, s, dout_buffer));
    TRY(branch_backward(cx, &q, x, dx, false));
    TRY(branch_backward(cx, &k, x, dx, true));
    TRY(branch_backward(cx, &v, x, dx, true));
    return close_norms(cx, s);
}

/* True if q also comes from a latent. Then every rank computes the full dx, not a term of a sum. */
static bool projects_to_latents(const attention *a) {
    return a->latent.query.a.weight != NULL;
}

/* Returns the dx to which this rank adds the gradient through the key latent; NULL: it must not add it. All
   ranks have the same gradient. So if the ranks sum their dx, only rank 0 adds it. */
static const tensor *added_once(const attention *a, const tensor *dx) {
    const group *ranks = a->o.ranks.group;
    return !ranks || ranks->rank == 0 || projects_to_latents(a) ? dx : NULL;
}

/* For MLA: backward of the projections. dq is the gradient before rotation. dk and dv have padded heads. */
static ott_status backward_paths(exec *cx, attention *a, const sequence_metadata *at, attention_saved *s,
                                 const activation *x, activation *dq, const tensor *dk, const tensor *dv,
                                 const tensor *dx) {
    latent *l = &a->latent;
    const tensor_ranks ranks = latent_ranks(&l->key);
    activation made;
    tensor rotated, position = context_ranks_own(a->context, at->position);
    plan_buffer buffer;
    partial_sum sum;
    TRY(exec_open(cx, "rope column gradient", dk->dtype, dk->rows, l->shape.rope_dim, &rotated, &buffer));
    TRY(activation_open(cx, "gradient of k and v from the latent", dk->dtype, dk->rows, l->key.b.out,
                        &l->key.grad_b, &made));
    TRY(tensor_partial_open(cx, &ranks, OTT_F32, &rotated, &sum));
    TRY(latent_merge(cx, &l->shape, a->heads, dk, dv, &made.t, &sum.t));
    TRY(tensor_partial_close(cx, &ranks, &rotated, &sum));
    TRY(rope_apply(cx, a->rope, &rotated, &position, true));
    TRY(activation_quantize(cx, dq));
    TRY(l->query.a.weight ? latent_backward(cx, &l->query, &s->query_latent, x, dq, NULL, dx, false)
                          : linear_backward(cx, &a->q, x, dq, dx, false));
    TRY(activation_quantize(cx, &made));
    TRY(latent_backward(cx, &l->key, &s->key_latent, x, &made, &rotated, added_once(a, dx), true));
    return plan_close(cx->plan, &buffer);
}

/* For MLA: like backward_core, but the heads of dq are not padded to head_dim columns. */
static ott_status backward_core_latent(exec *cx, attention *a, const sequence_metadata *at,
                                       attention_saved *s, const tensor *dout, const tensor *dq,
                                       const tensor *dk, const tensor *dv) {
    tensor wide;
    plan_buffer buffer;
    if (!has_narrow_keys(a)) return backward_core(cx, a, at, s, dout, dq, dk, dv);
    TRY(exec_open(cx, "wide q gradient", dq->dtype, dq->rows, query_width(a), &wide, &buffer));
    TRY(backward_core(cx, a, at, s, dout, &wide, dk, dv));
    TRY(latent_resize(cx, a->heads, key_head(a), &wide, dq));
    return plan_close(cx->plan, &buffer);
}

static ott_status backward_latent(exec *cx, attention *a, const sequence_metadata *at, attention_saved *s,
                                  const activation *x, const tensor *dout, plan_buffer *dout_buffer,
                                  const tensor *dx) {
    const activation_specs *specs = a->latent.query.a.weight ? &a->latent.query.grad_b : &a->grad_q;
    ott_dtype act = x->t.dtype;
    activation dq;
    tensor dk, dv;
    plan_buffer dk_buffer, dv_buffer;
    TRY(activation_open(cx, "q gradient", act, x->t.rows, a->heads * key_head(a), specs, &dq));
    TRY(exec_open(cx, "k gradient", act, x->t.rows, key_width(a), &dk, &dk_buffer));
    TRY(exec_open(cx, "v gradient", act, x->t.rows, key_width(a), &dv, &dv_buffer));
    TRY(backward_core_latent(cx, a, at, s, dout, &dq.t, &dk, &dv));
    TRY(close_core(cx, s, dout_buffer));
    TRY(backward_paths(cx, a, at, s, x, &dq, &dk, &dv, dx));
    TRY(plan_close(cx->plan, &dk_buffer));
    return plan_close(cx->plan, &dv_buffer);
}

/* Backward of the projections of q, k and v. dx has the rows of all tensor-parallel ranks. It is the full
   gradient if projects_to_latents is true. If not, the ranks must sum their dx. */
static ott_status backward_inputs(exec *cx, attention *a, const sequence_metadata *at, attention_saved *s,
                                  const activation *x, const tensor *dout, plan_buffer *dout_buffer,
                                  const tensor *dx) {
    if (is_latent(a)) return backward_latent(cx, a, at, s, x, dout, dout_buffer, dx);
    if (is_fused(a)) return backward_fused(cx, a, at, s, x, dout, dout_buffer, dx);
    return backward_separate(cx, a, at, s, x, dout, dout_buffer, dx);
}

/* Computes this rank's rows of dx. */
static ott_status backward_own(exec *cx, attention *a, const sequence_metadata *at, attention_saved *s,
                               const activation *x, const tensor *dout, plan_buffer *dout_buffer,
                               const tensor *dx) {
    const tensor_ranks *ranks = &a->o.ranks;
    partial_sum sum;
    full_rows rows;
    if (projects_to_latents(a)) {
        TRY(tensor_full_open(cx, ranks, dx, &rows));
        TRY(backward_inputs(cx, a, at, s, x, dout, dout_buffer, &rows.t));
        return tensor_full_close(cx, ranks, dx, &rows);
    }
    TRY(tensor_partial_open(cx, ranks, OTT_F32, dx, &sum));
    TRY(backward_inputs(cx, a, at, s, x, dout, dout_buffer, &sum.t));
    return tensor_partial_close(cx, ranks, dx, &sum);
}

ott_status attention_backward(exec *cx, attention *a, const sequence_metadata *at, attention_saved *s,
                              const activation *x, const activation *g, const tensor *dx) {
    const tensor_ranks *ranks = &a->o.ranks;
    tensor dout;
    plan_buffer dout_buffer;
    activation all;
    TRY(exec_open(cx, "attention output gradient", s->o.t.dtype, s->o.t.rows, a->o.in, &dout, &dout_buffer));
    TRY(tensor_ranks_gather(cx, ranks, "gathered output gradient", &a->grad_specs, g, &all));
    TRY(backward_projection(cx, a, s, &all, &dout));
    TRY(activation_close(cx, &all));
    TRY(gather_input(cx, a, x, &all));
    TRY(backward_own(cx, a, at, s, &all, &dout, &dout_buffer, dx));
    return activation_close(cx, &all);
}
