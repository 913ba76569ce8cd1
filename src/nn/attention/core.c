/* nn/attention/core: the attention op, with rotation, a cache and context parallelism around it. */
#include "nn/attention/core.h"

ott_status attention_core_connect(attention_core *c, activation_specs *input, activation_specs *grad_output) {
    c->output_specs = c->grad_specs = (activation_specs){0};
    TRY(linear_connect(&c->o, &c->output_specs, &c->grad_specs));
    *input = tensor_ranks_own_specs(&c->o.ranks, &c->input_specs);
    *grad_output = tensor_ranks_own_specs(&c->o.ranks, &c->grad_specs);
    return OTT_OK;
}

ott_status attention_core_gather(exec *cx, const attention_core *c, const activation *x, activation *all) {
    return tensor_ranks_gather(cx, &c->o.ranks, "gathered attention input", &c->input_specs, x, all);
}

static float softmax_scale(const attention_core *c) {
    return c->scale != 0 ? c->scale : 1.0f / sqrtf((float)c->head_dim);
}

/* Rotates q and k (or only q, see rope_first) in place. */
static ott_status rotate(exec *cx, const attention_core *c, const sequence_metadata *at, const tensor *q,
                         const tensor *k, bool inverse) {
    if (!c->rope) return OTT_OK;
    TRY(rope_apply_within(cx, c->rope, q, c->head_dim, c->rope_first, &at->position, inverse));
    return c->rope_first == 0 ? rope_apply(cx, c->rope, k, &at->position, inverse) : OTT_OK;
}

/* ---- exchange with context-parallel ranks ---- */

/* The tensor whose heads context-parallel ranks exchange: q; k or v; the attention output. */
typedef enum head_kind { HEADS_OF_QUERIES, HEADS_OF_KEYS, HEADS_OF_OUTPUT } head_kind;

/* Columns of a head of the attention output that o reads. */
static int64_t value_width(const attention_core *c) {
    return c->o.in / c->heads;
}

static context_split split_of(const attention_core *c, head_kind kind) {
    int ranks = c->context->size;
    if (kind == HEADS_OF_KEYS) return context_split_keys(ranks, c->heads, c->kv_heads, c->head_dim);
    return context_split_queries(ranks, c->heads, kind == HEADS_OF_OUTPUT ? value_width(c) : c->head_dim);
}

/* Opens `heads`: some heads of all T tokens. x[T/C, columns] has all heads of this rank's T/C tokens. */
static ott_status open_exchanged(exec *cx, const attention_core *c, const char *what, const context_split *d,
                                 const tensor *x, tensor *heads, plan_buffer *buffer) {
    return exec_open(cx, what, x->dtype, x->rows * c->context->size,
                     context_split_columns(d, c->context->size, x->columns), heads, buffer);
}

/* *x has all heads (of q, k or v) of this rank's tokens. Replaces it by some heads of all tokens. */
static ott_status exchange_heads(exec *cx, const attention_core *c, const char *what, const context_split *d,
                                 tensor *x, plan_buffer *x_buffer) {
    tensor heads;
    plan_buffer buffer;
    TRY(open_exchanged(cx, c, what, d, x, &heads, &buffer));
    TRY(context_ranks_gather(cx, c->context, d, x, &heads));
    TRY(plan_close(cx->plan, x_buffer));
    *x = heads;
    return *x_buffer = buffer, OTT_OK;
}

static ott_status exchange_inputs(exec *cx, const attention_core *c, attention_core_saved *s) {
    if (!c->context) return OTT_OK;
    context_split queries = split_of(c, HEADS_OF_QUERIES), keys = split_of(c, HEADS_OF_KEYS);
    TRY(exchange_heads(cx, c, "q of all tokens", &queries, &s->q, &s->q_buffer));
    TRY(exchange_heads(cx, c, "k of all tokens", &keys, &s->k, &s->k_buffer));
    TRY(exchange_heads(cx, c, "v of all tokens", &keys, &s->v, &s->v_buffer));
    return plan_close(cx->plan, &s->qkv_buffer);
}

/* Opens `heads`: some heads of all tokens, for the exchange of x; x itself without context parallelism. */
static ott_status open_heads(exec *cx, const attention_core *c, head_kind kind, const tensor *x,
                             tensor *heads, plan_buffer *buffer) {
    *heads = *x;
    *buffer = PLAN_NONE;
    if (!c->context) return OTT_OK;
    context_split d = split_of(c, kind);
    return open_exchanged(cx, c, "heads of all tokens", &d, x, heads, buffer);
}

static ott_status scatter_heads(exec *cx, const attention_core *c, head_kind kind, tensor *heads,
                                plan_buffer *buffer, const tensor *x) {
    if (c->context) {
        context_split d = split_of(c, kind);
        TRY(context_ranks_scatter(cx, c->context, &d, heads, x));
    }
    return plan_close(cx->plan, buffer);
}

ott_status attention_core_resize(exec *cx, int64_t heads, int64_t count, const tensor *x, const tensor *y) {
    return op_join_heads(cx, &(join_heads_args){.x = x, .y = y, .heads = heads, .count = count});
}

static bool has_narrow_values(const attention_core *c) {
    return value_width(c) < c->head_dim;
}

/* Opens `heads`, shaped like the attention kernel's output. x: shaped like the input of projection o. */
static ott_status open_output(exec *cx, const attention_core *c, const tensor *x, tensor *heads,
                              plan_buffer *buffer) {
    int64_t ranks = c->context ? c->context->size : 1;
    if (!has_narrow_values(c)) return open_heads(cx, c, HEADS_OF_OUTPUT, x, heads, buffer);
    return exec_open(cx, "widened heads", x->dtype, x->rows * ranks, attention_core_query_width(c) / ranks,
                     heads, buffer);
}

static ott_status gather_output(exec *cx, const attention_core *c, const tensor *x, tensor *heads,
                                plan_buffer *buffer) {
    tensor narrow;
    plan_buffer narrow_buffer;
    TRY(open_heads(cx, c, HEADS_OF_OUTPUT, x, &narrow, &narrow_buffer));
    if (c->context) {
        context_split d = split_of(c, HEADS_OF_OUTPUT);
        TRY(context_ranks_gather(cx, c->context, &d, x, &narrow));
    }
    *heads = narrow;
    *buffer = narrow_buffer;
    if (!has_narrow_values(c)) return OTT_OK;
    TRY(open_output(cx, c, x, heads, buffer));
    TRY(attention_core_resize(cx, heads->columns / c->head_dim, value_width(c), &narrow, heads));
    return plan_close(cx->plan, &narrow_buffer);
}

static ott_status scatter_output(exec *cx, const attention_core *c, tensor *heads, plan_buffer *buffer,
                                 const tensor *x) {
    tensor narrow;
    plan_buffer narrow_buffer;
    if (!has_narrow_values(c)) return scatter_heads(cx, c, HEADS_OF_OUTPUT, heads, buffer, x);
    TRY(open_heads(cx, c, HEADS_OF_OUTPUT, x, &narrow, &narrow_buffer));
    TRY(attention_core_resize(cx, heads->columns / c->head_dim, value_width(c), heads, &narrow));
    TRY(plan_close(cx->plan, buffer));
    return scatter_heads(cx, c, HEADS_OF_OUTPUT, &narrow, &narrow_buffer, x);
}

/* ---- the cache of keys and values ---- */

int64_t attention_core_cache_bytes(attention_core *c, ott_dtype act, int64_t capacity) {
    return 2 * capacity * attention_core_key_width(c) * dtype_bytes(act);
}

/* Writes the new rows `own` to a half of the cache, after the rows of earlier tokens. *all: all rows so far.
   values: false: the first half, with keys; true: the second half, with values. */
static ott_status append_to_cache(exec *cx, const sequence_cache *cache, bool values, const tensor *own,
                                  tensor *all) {
    STATUS_REQUIRE(cache->past + own->rows <= cache->capacity);
    tensor both = tensor_matrix(cache->data, own->dtype, 2 * cache->capacity, own->columns);
    tensor half = tensor_rows(both, values * cache->capacity, cache->capacity);
    tensor place = tensor_rows(half, cache->past, own->rows);
    *all = tensor_rows(half, 0, cache->past + own->rows);
    return op_convert(cx, &(convert_args){.x = own, .y = &place});
}

/* *k, *v: the keys and values that the queries attend to. With a cache, the cached ones come first. */
static ott_status gather_keys(exec *cx, const sequence_metadata *at, const attention_core_saved *s, tensor *k,
                              tensor *v) {
    *k = s->k;
    *v = s->v;
    if (!at->cache) return OTT_OK;
    STATUS_REQUIRE(cx->phase == PHASE_EVALUATE);
    TRY(append_to_cache(cx, at->cache, false, &s->k, k));
    return append_to_cache(cx, at->cache, true, &s->v, v);
}

/* ---- forward ---- */

ott_status attention_core_forward(exec *cx, const attention_core *c, const sequence_metadata *at,
                                  attention_core_saved *s) {
    tensor k, v, o;
    plan_buffer o_buffer;
    TRY(exchange_inputs(cx, c, s));
    TRY(rotate(cx, c, at, &s->q, &s->k, false));
    int64_t ranks = c->context ? c->context->size : 1, tokens = s->q.rows;
    TRY(gather_keys(cx, at, s, &k, &v));
    TRY(exec_open(cx, "attention lse", OTT_F32, c->heads / ranks, tokens, &s->lse, &s->lse_buffer));
    TRY(activation_open(cx, "attention output", s->q.dtype, tokens / ranks, c->o.in, &c->output_specs,
                        &s->o));
    TRY(open_output(cx, c, &s->o.t, &o, &o_buffer));
    TRY(op_attention_forward(cx, &(attention_forward_args){.q = &s->q,
                                                           .k = &k,
                                                           .v = &v,
                                                           .cu_seqlens = &at->cu_seqlens,
                                                           .o = &o,
                                                           .lse = &s->lse,
                                                           .head_dim = c->head_dim,
                                                           .window = c->window,
                                                           .past = at->cache ? at->cache->past : 0,
                                                           .longest = at->longest,
                                                           .softmax_scale = softmax_scale(c),
                                                           .softcap = c->softcap}));
    TRY(scatter_output(cx, c, &o, &o_buffer, &s->o.t));
    return activation_quantize(cx, &s->o);
}

ott_status attention_core_project(exec *cx, attention_core *c, attention_core_saved *s, const tensor *y) {
    return linear_forward(cx, &c->o, &s->o, y);
}

ott_status attention_core_keep(exec *cx, attention_core_saved *s) {
    return activation_close_copies(cx, &s->o);
}

ott_status attention_core_close(exec *cx, attention_core_saved *s) {
    TRY(plan_close(cx->plan, &s->dout_buffer));
    TRY(plan_close(cx->plan, &s->qkv_buffer));
    TRY(plan_close(cx->plan, &s->q_buffer));
    TRY(plan_close(cx->plan, &s->k_buffer));
    TRY(plan_close(cx->plan, &s->v_buffer));
    TRY(plan_close(cx->plan, &s->lse_buffer));
    return activation_close(cx, &s->o);
}

/* ---- backward ---- */

/* Quantizes the attention output again, for the weight gradient of projection o. */
static ott_status requantize(exec *cx, const attention_core *c, attention_core_saved *s) {
    activation o;
    TRY(activation_adopt(cx, "attention output", s->o.t, &s->o.buffer, &c->output_specs, &o));
    s->o = o;
    return activation_quantize(cx, &s->o);
}

ott_status attention_core_backward_project(exec *cx, attention_core *c, attention_core_saved *s,
                                           const activation *g) {
    activation all;
    TRY(exec_open(cx, "attention output gradient", s->o.t.dtype, s->o.t.rows, c->o.in, &s->dout,
                  &s->dout_buffer));
    TRY(tensor_ranks_gather(cx, &c->o.ranks, "gathered output gradient", &c->grad_specs, g, &all));
    TRY(linear_grad_input(cx, &c->o, &all, &s->dout, false));
    if (!c->o.weight->frozen) TRY(requantize(cx, c, s));
    TRY(linear_grad_weight(cx, &c->o, &s->o, &all));
    TRY(activation_close_copies(cx, &s->o));
    return activation_close(cx, &all);
}

/* Computes dq and dk (before rotation) and dv from dout. */
static ott_status backward_heads(exec *cx, const attention_core *c, const sequence_metadata *at,
                                 const attention_core_saved *s, const tensor *o, const tensor *dout,
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
                                                             .head_dim = c->head_dim,
                                                             .window = c->window,
                                                             .longest = at->longest,
                                                             .softmax_scale = softmax_scale(c),
                                                             .softcap = c->softcap}));
    return rotate(cx, c, at, dq, dk, true);
}

/* With context parallelism, backward_heads gets all tokens of some heads. */
ott_status attention_core_backward(exec *cx, const attention_core *c, const sequence_metadata *at,
                                   const attention_core_saved *s, const tensor *dq, const tensor *dk,
                                   const tensor *dv) {
    const tensor *of_tokens[] = {&s->o.t, &s->dout, dq, dk, dv};
    enum { O, DOUT, DQ, DK, DV, COUNT };
    tensor t[COUNT];
    plan_buffer buffer[COUNT];
    const head_kind kind[] = {[DQ] = HEADS_OF_QUERIES, [DK] = HEADS_OF_KEYS, [DV] = HEADS_OF_KEYS};
    for (int i = O; i <= DOUT; i++) TRY(gather_output(cx, c, of_tokens[i], &t[i], &buffer[i]));
    for (int i = DQ; i < COUNT; i++) TRY(open_heads(cx, c, kind[i], of_tokens[i], &t[i], &buffer[i]));
    TRY(backward_heads(cx, c, at, s, &t[O], &t[DOUT], &t[DQ], &t[DK], &t[DV]));
    for (int i = DQ; i < COUNT; i++) TRY(scatter_heads(cx, c, kind[i], &t[i], &buffer[i], of_tokens[i]));
    TRY(plan_close(cx->plan, &buffer[DOUT]));
    return plan_close(cx->plan, &buffer[O]);
}
