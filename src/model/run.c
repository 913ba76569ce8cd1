/* model/run: forward and backward passes, with gathers and gradient reductions around each layer. */
#include "model/run.h"
#include "fp8/cast.h"

struct model_slot {
    tensor h, rstd; /* input and statistics of the final norm */
    plan_buffer h_buffer, rstd_buffer;
    activation final; /* output of the final norm */
    block_saved blocks[];
};

ott_status model_slot_open(const model *m, model_slot **out) {
    int64_t bytes = (int64_t)sizeof(model_slot) + m->options.layers * (int64_t)sizeof(block_saved);
    return mem_alloc(m->device->account, MEM_OTHER, bytes, "slot of a micro-batch", out);
}

void model_slot_close(const device *d, model_slot *slot) {
    mem_free(d->account, slot);
}

/* ---- which uses (rowwise, columnwise) of a unit's weights a pass needs ---- */

enum { BOTH_USES = WEIGHT_ROWWISE | WEIGHT_COLUMNWISE };

/* True if weights stay gathered from forward to backward, like the head's: its backward follows at once. */
static bool is_kept_gathered(const exec *cx, const model *m, int unit) {
    if (cx->phase != PHASE_TRAIN || unit == MODEL_TABLE_UNIT) return false;
    if (unit == model_last_unit(m)) return true;
    if (m->store.options.regather_for_backward) return false;
    switch (m->store.options.reshard) {
    case STORE_RESHARD_DEFAULT: return unit == model_last_unit(m) - 1;
    case STORE_RESHARD_ALWAYS: return false;
    case STORE_RESHARD_NEVER: return true;
    }
    return false;
}

static int forward_uses(const exec *cx, const model *m, int unit) {
    return is_kept_gathered(cx, m, unit) ? BOTH_USES : WEIGHT_ROWWISE;
}

/* Backward reads weights columnwise. Recomputing GEMMs also reads them rowwise. */
static int backward_uses(const model *m, int64_t layer) {
    checkpointing c = m->blocks[layer].checkpointing;
    return c == CHECKPOINT_FULL || c == CHECKPOINT_SELECTIVE ? BOTH_USES : WEIGHT_COLUMNWISE;
}

static ott_status gather_forward(exec *cx, model *m, int unit) {
    return store_gather(cx, &m->store, unit, forward_uses(cx, m, unit));
}

/* Prefetches a unit's weights for forward. Does nothing for the block after this pass's last layer. */
static ott_status prefetch_forward(exec *cx, model *m, int unit, layer_range range) {
    if (unit == model_block_unit(range.end) && range.end < m->options.layers) return OTT_OK;
    return store_prefetch(cx, &m->store, unit, forward_uses(cx, m, unit));
}

static ott_status prefetch_backward(exec *cx, model *m, int64_t layer) {
    return store_prefetch(cx, &m->store, model_block_unit(layer), backward_uses(m, layer));
}

static ott_status release_forward(exec *cx, model *m, int unit) {
    return is_kept_gathered(cx, m, unit) ? OTT_OK : store_release(cx, &m->store, unit);
}

/* ---- forward ---- */

tensor model_own_tokens(const model *m, tensor of_all) {
    return context_ranks_own(m->options.context_ranks, of_all);
}

ott_status model_stream_rows(const model *m, const batch *b, int64_t *rows) {
    const group *context = m->options.context_ranks;
    const group *sequence = m->options.sequence_parallel ? m->options.tensor_ranks : NULL;
    int64_t tokens = b->count * b->length;
    int parts = (context ? context->size : 1) * (sequence ? sequence->size : 1);
    *rows = tokens / parts;
    if (tokens % parts == 0) return OTT_OK;
    return status_fail(
        OTT_ERR_CONFIG,
        "the %lld tokens of a micro-batch (train.batch_size x train.seq_len), or of a batch of evaluation "
        "(eval.batch_size x eval.seq_len), must be divisible by %d (distributed.cp; with "
        "distributed.sequence_parallel, times distributed.tp)",
        (long long)tokens, parts);
}

/* Multiplies the embedding's output, or its gradient, by the family's factor. */
static ott_status multiply_embedding(exec *cx, const model *m, const tensor *x) {
    float factor = m->options.embedding_multiplier;
    /* transformers rounds the factor sqrt(dim) to the format of the weights */
    if (m->options.family->scale_embeddings && m->activation == OTT_BF16)
        factor = cast_from_bf16(cast_to_bf16(factor));
    return factor == 0 || factor == 1 ? OTT_OK : op_multiply(cx, &(multiply_args){x, x, factor});
}

/* Adds the learned embedding of each token's position in its document. */
static ott_status add_positions(exec *cx, model *m, const batch *b, const tensor *x) {
    tensor position = model_own_tokens(m, b->at.position), y;
    plan_buffer buffer;
    if (!m->position_embedding.weight) return OTT_OK;
    TRY(exec_open(cx, "position embedding", x->dtype, x->rows, x->columns, &y, &buffer));
    TRY(embedding_forward(cx, &m->position_embedding, &position, &y));
    TRY(op_add(cx, &(add_args){.x = x, .delta = &y, .y = x}));
    return plan_close(cx->plan, &buffer);
}

static ott_status embed_tokens(exec *cx, model *m, const batch *b, layer_range range, model_stream *s) {
    tensor token = model_own_tokens(m, b->token);
    int64_t rows;
    *s = (model_stream){0};
    TRY(model_stream_rows(m, b, &rows));
    TRY(gather_forward(cx, m, MODEL_TABLE_UNIT));
    TRY(prefetch_forward(cx, m, model_block_unit(0), range));
    TRY(exec_open(cx, "embedding output", m->activation, rows, m->options.dim, &s->x, &s->x_buffer));
    TRY(embedding_forward(cx, &m->embedding, &token, &s->x));
    TRY(multiply_embedding(cx, m, &s->x));
    TRY(add_positions(cx, m, b, &s->x));
    return store_release(cx, &m->store, MODEL_TABLE_UNIT);
}

/* Closes buffers of block i - 1. Call it when block i (or the final norm) has read them. */
static ott_status release_previous(exec *cx, model *m, model_slot *slot, int64_t i, model_stream *s) {
    TRY(plan_close(cx->plan, &s->delta_buffer));
    return s->has_delta ? block_finalize(cx, &m->blocks[i - 1], &slot->blocks[i - 1]) : OTT_OK;
}

static ott_status forward_block(exec *cx, model *m, model_slot *slot, const batch *b, int64_t i,
                                layer_range range, model_stream *s) {
    block *k = &m->blocks[i];
    block_saved *saved = &slot->blocks[i];
    sequence_metadata at = b->at;
    at.cache = b->cache ? &b->cache[i] : NULL;
    TRY(gather_forward(cx, m, model_block_unit(i)));
    TRY(prefetch_forward(cx, m, model_block_unit(i + 1), range));
    TRY(block_enter(cx, k, &s->x, &s->x_buffer, s->has_delta ? &s->delta : NULL, saved));
    TRY(release_previous(cx, m, slot, i, s));
    TRY(block_run(cx, k, &at, saved, &s->delta, &s->delta_buffer));
    s->x = saved->h2;
    s->has_delta = true;
    return release_forward(cx, m, model_block_unit(i));
}

/* Runs the final norm. Its unit stays gathered for the head. */
static ott_status forward_final(exec *cx, model *m, model_slot *slot, model_stream *s) {
    int64_t rows = s->x.rows, dim = s->x.columns;
    TRY(gather_forward(cx, m, model_last_unit(m)));
    TRY(exec_open(cx, "final residual", s->x.dtype, rows, dim, &slot->h, &slot->h_buffer));
    TRY(exec_open(cx, "final norm rstd", OTT_F32, norm_kept(&m->final_norm), rows, &slot->rstd,
                  &slot->rstd_buffer));
    TRY(activation_open(cx, "final norm output", s->x.dtype, rows, dim, &m->final_specs, &slot->final));
    TRY(norm_forward(cx, &m->final_norm, &s->x, &s->delta, &slot->h, &slot->final, &slot->rstd));
    return release_previous(cx, m, slot, m->options.layers, s);
}

ott_status model_forward(exec *cx, model *m, model_slot *slot, const batch *b, layer_range range,
                         model_stream *stream) {
    cx->part = PART_FORWARD;
    cx->token = b->number.data ? &b->number : NULL;
    if (range.first == 0) TRY(embed_tokens(cx, m, b, range, stream));
    for (int64_t i = range.first; i < range.end; i++) TRY(forward_block(cx, m, slot, b, i, range, stream));
    return range.end == m->options.layers ? forward_final(cx, m, slot, stream) : OTT_OK;
}

ott_status model_stream_materialize(exec *cx, model *m, model_slot *slot, int64_t end, model_stream *s,
                                    tensor *out, plan_buffer *out_buffer) {
    TRY(exec_open(cx, "residual between ranges", s->x.dtype, s->x.rows, s->x.columns, out, out_buffer));
    TRY(op_add(cx, &(add_args){.x = &s->x, .delta = &s->delta, .y = out}));
    return release_previous(cx, m, slot, end, s);
}

/* ---- loss ---- */

static ott_status close_final(exec *cx, model *m, model_slot *slot) {
    TRY(activation_close(cx, &slot->final));
    TRY(plan_close(cx->plan, &slot->h_buffer));
    TRY(plan_close(cx->plan, &slot->rstd_buffer));
    return store_release(cx, &m->store, model_last_unit(m));
}

/* Opens the gradients of the head's parameters, and dfinal[T,D], the gradient of the final norm's output. */
static ott_status open_head_gradients(exec *cx, model *m, const model_slot *slot, tensor *dfinal,
                                      plan_buffer *buffer) {
    TRY(store_open_gradients(cx, &m->store, model_last_unit(m)));
    if (m->options.tied) TRY(store_open_gradients(cx, &m->store, MODEL_TABLE_UNIT));
    return exec_open(cx, "final norm gradient", m->activation, slot->h.rows, slot->h.columns, dfinal, buffer);
}

static ott_status close_head_gradients(exec *cx, model *m, model_slot *slot, const tensor *dfinal,
                                       plan_buffer *buffer, activation *g) {
    const activation_specs *specs = &m->blocks[m->options.layers - 1].grad_output;
    TRY(activation_open(cx, "residual gradient", m->activation, slot->h.rows, slot->h.columns, specs, g));
    TRY(norm_backward(cx, &m->final_norm, dfinal, &slot->h, &slot->rstd, NULL, g));
    TRY(plan_close(cx->plan, buffer));
    /* A tied head's gradient is reduced later, because the embedding's backward still adds to it. */
    return store_reduce_gradients(cx, &m->store, model_last_unit(m));
}

static ott_status loss_and_gradient(exec *cx, model *m, model_slot *slot, const loss_input *in,
                                    const tensor *grad_scale, const tensor *losses, activation *g) {
    tensor dfinal;
    plan_buffer buffer;
    TRY(open_head_gradients(cx, m, slot, &dfinal, &buffer));
    TRY(loss_forward(cx, &m->loss, &slot->final, in, grad_scale, losses, &dfinal));
    return close_head_gradients(cx, m, slot, &dfinal, &buffer, g);
}

ott_status model_loss(exec *cx, model *m, model_slot *slot, const batch *b, const tensor *grad_scale,
                      const tensor *losses, activation *grad) {
    const loss_input in = {.target = model_own_tokens(m, b->target),
                           .token = b->token,
                           .position = b->at.position,
                           .length = b->length};
    tensor own = model_own_tokens(m, *losses);
    if (grad_scale)
        TRY(loss_and_gradient(cx, m, slot, &in, grad_scale, &own, grad));
    else
        TRY(loss_forward(cx, &m->loss, &slot->final, &in, NULL, &own, NULL));
    return close_final(cx, m, slot);
}

ott_status model_head(exec *cx, model *m, model_slot *slot, const tensor *logits) {
    TRY(loss_logits(cx, &m->loss, &slot->final, logits));
    return cx->phase == PHASE_TRAIN ? OTT_OK : close_final(cx, m, slot);
}

ott_status model_head_backward(exec *cx, model *m, model_slot *slot, const tensor *dlogits,
                               plan_buffer *buffer, activation *grad) {
    tensor dfinal, logits;
    plan_buffer dfinal_buffer, logits_buffer = PLAN_NONE;
    activation g;
    TRY(open_head_gradients(cx, m, slot, &dfinal, &dfinal_buffer));
    TRY(activation_adopt(cx, "logits gradient", *dlogits, buffer, &m->loss.grad_specs, &g));
    if (m->loss.softcap != 0) {
        TRY(exec_open(cx, "logits again", g.t.dtype, g.t.rows, g.t.columns, &logits, &logits_buffer));
        TRY(loss_logits(cx, &m->loss, &slot->final, &logits));
    }
    TRY(loss_backward(cx, &m->loss, &slot->final, &logits, &g, &dfinal));
    TRY(plan_close(cx->plan, &logits_buffer));
    TRY(activation_close(cx, &g));
    TRY(close_head_gradients(cx, m, slot, &dfinal, &dfinal_buffer, grad));
    return close_final(cx, m, slot);
}

/* ---- backward ---- */

static ott_status backward_block(exec *cx, model *m, model_slot *slot, const batch *b, int64_t i,
                                 layer_range range, activation *g) {
    block *k = &m->blocks[i];
    const activation_specs *specs = i > 0 ? &m->blocks[i - 1].grad_output : NULL;
    activation dx;
    int unit = model_block_unit(i);
    TRY(store_gather(cx, &m->store, unit, backward_uses(m, i)));
    if (i > range.first) TRY(prefetch_backward(cx, m, i - 1));
    TRY(store_open_gradients(cx, &m->store, unit));
    TRY(block_backward(cx, k, &b->at, &slot->blocks[i], g, specs, &dx));
    *g = dx;
    TRY(store_reduce_gradients(cx, &m->store, unit));
    return store_release(cx, &m->store, unit);
}

static ott_status backward_embedding(exec *cx, model *m, const batch *b, activation *g) {
    tensor token = model_own_tokens(m, b->token);
    TRY(store_open_gradients(cx, &m->store, MODEL_TABLE_UNIT));
    if (m->position_embedding.weight) {
        tensor position = model_own_tokens(m, b->at.position);
        TRY(embedding_backward(cx, &m->position_embedding, &position, &g->t));
    }
    TRY(multiply_embedding(cx, m, &g->t));
    TRY(embedding_backward(cx, &m->embedding, &token, &g->t));
    TRY(store_reduce_gradients(cx, &m->store, MODEL_TABLE_UNIT));
    return activation_close(cx, g);
}

ott_status model_backward(exec *cx, model *m, model_slot *slot, const batch *b, layer_range range,
                          activation *grad) {
    cx->part = PART_BACKWARD;
    cx->token = b->number.data ? &b->number : NULL;
    for (int64_t i = range.end - 1; i >= range.first; i--)
        TRY(backward_block(cx, m, slot, b, i, range, grad));
    if (range.first == 0) TRY(backward_embedding(cx, m, b, grad));
    return store_finish_gradients(cx, &m->store);
}

/* ---- the full pass ---- */

ott_status model_run(exec *cx, model *m, model_slot *slot, const batch *b, const tensor *grad_scale,
                     const tensor *losses) {
    layer_range all = {0, m->options.layers};
    model_stream stream;
    activation grad;
    cx->phase = grad_scale ? PHASE_TRAIN : PHASE_EVALUATE;
    ott_status status = model_forward(cx, m, slot, b, all, &stream);
    if (status == OTT_OK && grad_scale) {
        plan_mark_saved(cx->plan);
        status = prefetch_backward(cx, m, m->options.layers - 1); /* the prefetch overlaps the loss */
    }
    if (status == OTT_OK) status = model_loss(cx, m, slot, b, grad_scale, losses, &grad);
    if (status == OTT_OK && grad_scale) status = model_backward(cx, m, slot, b, all, &grad);
    if (status != OTT_OK) store_abandon(cx, &m->store, status);
    return status;
}

ott_status model_logits(exec *cx, model *m, model_slot *slot, const batch *b, const tensor *logits) {
    model_stream stream;
    activation last;
    cx->phase = PHASE_EVALUATE;
    TRY(model_forward(cx, m, slot, b, (layer_range){0, m->options.layers}, &stream));
    TRY(activation_rows(&slot->final, b->count * b->length - 1, 1, &last));
    TRY(loss_logits(cx, &m->loss, &last, logits));
    return close_final(cx, m, slot);
}
