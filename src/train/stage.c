/* train/stage: runs the tasks of a pipeline stage and exchanges their messages. */
#include "train/stage.h"
#include <string.h>

/* A message that this stage receives. posted: its receive has been started. arrived: its data is here. */
typedef struct message {
    bool posted, arrived;
    tensor t;
    plan_buffer buffer;
    group_request request;
} message;

/* Position in another stage's sequence of sends: a task, and how many sends of this task precede it. */
typedef struct position {
    int64_t task;
    int sent;
} position;

/* A send that may still read from its buffer. */
typedef struct pending_send {
    group_request request;
    plan_buffer buffer;
} pending_send;

/* Copy of delayed scaling's input scales. */
typedef struct kept_scales {
    tensor t;
    plan_buffer buffer;
} kept_scales;

/* Data that forward keeps for the backward of a micro-batch, in addition to the tensors in the model_slot. */
typedef struct in_flight {
    activation grad; /* gradient of the loss with respect to the last layer's output */
    tensor table;    /* gradient of the embedding table of a tied head */
    plan_buffer table_buffer;
    kept_scales scales[PIPELINE_INTERLEAVED_CHUNKS]; /* scales that the forward of each chunk used */
} in_flight;

struct stage {
    model *m;
    const pipeline_stage *shape;
    group *ranks;
    int64_t micro_batches;
    bool tied; /* the output head is the embedding table, and the table is trained */
    model_slot **slots;
    int64_t slot_count;          /* maximum number of micro-batches in flight */
    in_flight *in_flight;        /* one element for each micro-batch */
    message *messages;           /* messages of each content, chunk and micro-batch */
    position *posted, *arrived;  /* [stages] per sender: next receive to start; to wait for */
    pending_send *pending_sends; /* for each content and receiving stage: a send that may be unfinished */
    int64_t sent[PIPELINE_CONTENTS];
};

/* Arguments of stage_train or stage_evaluate. grad_scale is NULL in an evaluation. */
typedef struct pass {
    stage *s;
    const batch *batches;
    const tensor *grad_scale, *losses;
} pass;

/* ---- open and close ---- */

/* Largest number of micro-batches in flight: from the forward to the backward of this stage's first chunk. */
static int64_t count_slots(const pipeline_stage *shape, int64_t micro_batches) {
    int64_t in_flight_now = 0, most = 0;
    for (int64_t i = 0; i < pipeline_task_count(shape, micro_batches); i++) {
        pipeline_task t = pipeline_task_at(shape, micro_batches, i);
        if (t.chunk == 0) in_flight_now += t.backward ? -1 : 1;
        if (in_flight_now > most) most = in_flight_now;
    }
    return most;
}

static ott_status open_array(const stage *s, int64_t count, size_t size, void *out) {
    return (mem_alloc_array)(s->m->device->account, MEM_OTHER, count, (int64_t)size, "stage of a pipeline",
                             out);
}

static int64_t message_count(const stage *s) {
    return (int64_t)PIPELINE_CONTENTS * s->shape->chunks * s->micro_batches;
}

static ott_status open_stage_parts(stage *s) {
    int stages = s->shape->stages;
    TRY(pipeline_check(s->shape, s->m->options.layers, s->micro_batches));
    int64_t slots = count_slots(s->shape, s->micro_batches);
    TRY(open_array(s, slots, sizeof(model_slot *), &s->slots));
    for (; s->slot_count < slots; s->slot_count++) TRY(model_slot_open(s->m, &s->slots[s->slot_count]));
    TRY(open_array(s, s->micro_batches, sizeof(in_flight), &s->in_flight));
    TRY(open_array(s, message_count(s), sizeof(message), &s->messages));
    TRY(open_array(s, stages, sizeof(position), &s->posted));
    TRY(open_array(s, stages, sizeof(position), &s->arrived));
    return open_array(s, (int64_t)PIPELINE_CONTENTS * stages, sizeof(pending_send), &s->pending_sends);
}

ott_status stage_open(model *m, int64_t micro_batches, stage **out) {
    stage *s;
    STATUS_REQUIRE(m->options.stage && m->options.stage_ranks && micro_batches > 0);
    TRY(mem_alloc(m->device->account, MEM_OTHER, sizeof(stage), "stage of a pipeline", &s));
    *s = (stage){
        .m = m, .shape = m->options.stage, .ranks = m->options.stage_ranks, .micro_batches = micro_batches};
    s->tied = m->options.tied && (!m->embedding.weight || !m->embedding.weight->frozen);
    m->store.micro_batches = true; /* first and last stage then sum table gradients in micro-batch order */
    ott_status status = open_stage_parts(s);
    if (status != OTT_OK) return stage_close(s), status;
    return *out = s, OTT_OK;
}

void stage_close(stage *s) {
    if (!s) return;
    mem *account = s->m->device->account;
    for (int64_t i = 0; i < s->slot_count; i++) model_slot_close(s->m->device, s->slots[i]);
    mem_free(account, s->slots);
    mem_free(account, s->in_flight);
    mem_free(account, s->messages);
    mem_free(account, s->posted);
    mem_free(account, s->arrived);
    mem_free(account, s->pending_sends);
    mem_free(account, s);
}

/* ---- receiving: stages receive in the order of sends, because transports match messages by order ---- */

static message *message_of(const stage *s, const pipeline_message *m) {
    int64_t place = (int64_t)m->content * s->shape->chunks + m->chunk;
    return &s->messages[place * s->micro_batches + m->micro_batch];
}

/* Returns the first message to this stage after position *c in the sends of stage `peer`, and advances *c. */
static pipeline_message next_from(const stage *s, int peer, position *c) {
    pipeline_stage from = *s->shape;
    pipeline_message sends[PIPELINE_MESSAGES];
    from.rank = peer;
    for (;; *c = (position){.task = c->task + 1}) {
        int count = pipeline_messages(&from, s->tied, pipeline_task_at(&from, s->micro_batches, c->task),
                                      true, sends);
        while (c->sent < count)
            if (sends[c->sent++].peer == s->shape->rank) return sends[c->sent - 1];
    }
}

static ott_status open_message(exec *cx, const pass *p, const pipeline_message *m, message *at) {
    const model *owner = p->s->m;
    int64_t rows;
    if (m->content == PIPELINE_TABLE) {
        const parameter_part *table = &owner->embedding.weight->local;
        return exec_open(cx, "gradient of a tied head", OTT_F32, table->rows, table->columns, &at->t,
                         &at->buffer);
    }
    TRY(model_stream_rows(owner, &p->batches[m->micro_batch], &rows));
    return exec_open(cx, m->content == PIPELINE_STREAM ? "received residual" : "received residual gradient",
                     owner->activation, rows, owner->options.dim, &at->t, &at->buffer);
}

static ott_status post_next(exec *cx, const pass *p, int peer) {
    stage *s = p->s;
    pipeline_message m = next_from(s, peer, &s->posted[peer]);
    message *at = message_of(s, &m);
    TRY(open_message(cx, p, &m, at));
    at->posted = true;
    return group_start(s->ranks, cx, &(collective){.kind = COLLECTIVE_RECEIVE, .output = at->t, .peer = peer},
                       &at->request);
}

static ott_status await_next(exec *cx, stage *s, int peer) {
    pipeline_message m = next_from(s, peer, &s->arrived[peer]);
    message *at = message_of(s, &m);
    at->arrived = true;
    return group_wait(cx, &at->request);
}

static ott_status post_needs(exec *cx, const pass *p, pipeline_task t) {
    pipeline_message needs[PIPELINE_MESSAGES];
    int count = pipeline_messages(p->s->shape, p->s->tied, t, false, needs);
    for (int i = 0; i < count; i++)
        while (!message_of(p->s, &needs[i])->posted) TRY(post_next(cx, p, needs[i].peer));
    return OTT_OK;
}

static ott_status await_needs(exec *cx, stage *s, pipeline_task t) {
    pipeline_message needs[PIPELINE_MESSAGES];
    int count = pipeline_messages(s->shape, s->tied, t, false, needs);
    for (int i = 0; i < count; i++)
        while (!message_of(s, &needs[i])->arrived) TRY(await_next(cx, s, needs[i].peer));
    return OTT_OK;
}

static message *received_message(const stage *s, pipeline_content content, pipeline_task t) {
    return message_of(
        s, &(pipeline_message){.content = content, .chunk = t.chunk, .micro_batch = t.micro_batch});
}

/* ---- sending ---- */

static ott_status finish_send(exec *cx, pending_send *d) {
    TRY(group_wait(cx, &d->request));
    return plan_close(cx->plan, &d->buffer);
}

static ott_status finish_all_sends(exec *cx, stage *s) {
    for (int i = 0; i < PIPELINE_CONTENTS * s->shape->stages; i++) TRY(finish_send(cx, &s->pending_sends[i]));
    return OTT_OK;
}

/* Starts a send. The send takes ownership of *buffer. */
static ott_status send_message(exec *cx, stage *s, const pipeline_message *m, const tensor *t,
                               plan_buffer *buffer) {
    int64_t place = s->sent[m->content]++ % pipeline_max_in_flight(s->shape, m->content);
    pending_send *d = &s->pending_sends[m->content * s->shape->stages + place];
    TRY(finish_send(cx, d));
    d->buffer = *buffer;
    *buffer = PLAN_NONE;
    return group_start(s->ranks, cx, &(collective){.kind = COLLECTIVE_SEND, .input = *t, .peer = m->peer},
                       &d->request);
}

/* Sends `made`, the output of task t (residual stream or its gradient), and a tied head's table gradient. */
static ott_status send_all(exec *cx, stage *s, pipeline_task t, const tensor *made, plan_buffer *buffer) {
    pipeline_message sends[PIPELINE_MESSAGES];
    in_flight *f = &s->in_flight[t.micro_batch];
    int count = pipeline_messages(s->shape, s->tied, t, true, sends);
    for (int i = 0; i < count; i++)
        TRY(sends[i].content == PIPELINE_TABLE ? send_message(cx, s, &sends[i], &f->table, &f->table_buffer)
                                               : send_message(cx, s, &sends[i], made, buffer));
    return OTT_OK;
}

/* ---- tasks ---- */

static model_slot *slot_of(const stage *s, pipeline_task t) {
    return s->slots[t.micro_batch % s->slot_count];
}

static layer_range layers_of(const stage *s, pipeline_task t) {
    return pipeline_layers(s->shape, s->m->options.layers, t.chunk);
}

/* Takes the gradient's buffer from the embedding table, so that the next micro-batch gets a new buffer. */
static void keep_table(stage *s, in_flight *f) {
    parameter *table = s->m->embedding.weight;
    f->table = table->grad;
    f->table_buffer = table->grad_buffer;
    table->grad_buffer = PLAN_NONE;
}

static ott_status forward(exec *cx, const pass *p, pipeline_task t) {
    stage *s = p->s;
    layer_range range = layers_of(s, t);
    in_flight *f = &s->in_flight[t.micro_batch];
    model_stream stream = {0};
    tensor out;
    plan_buffer out_buffer = PLAN_NONE;
    if (range.first > 0) {
        message *from = received_message(s, PIPELINE_STREAM, t);
        stream = (model_stream){.x = from->t, .x_buffer = from->buffer};
    }
    TRY(model_forward(cx, s->m, slot_of(s, t), &p->batches[t.micro_batch], range, &stream));
    if (p->grad_scale) plan_mark_saved(cx->plan);
    if (range.end < s->m->options.layers) {
        TRY(model_stream_materialize(cx, s->m, slot_of(s, t), range.end, &stream, &out, &out_buffer));
        return send_all(cx, s, t, &out, &out_buffer);
    }
    TRY(model_loss(cx, s->m, slot_of(s, t), &p->batches[t.micro_batch], p->grad_scale,
                   &p->losses[t.micro_batch], &f->grad));
    if (s->tied && p->grad_scale) keep_table(s, f);
    return OTT_OK;
}

/* *g = gradient of the output of the task's last layer, with its quantized copies. */
static ott_status take_gradient(exec *cx, stage *s, pipeline_task t, activation *g) {
    int64_t end = layers_of(s, t).end;
    message *from = received_message(s, PIPELINE_GRADIENT, t);
    *g = s->in_flight[t.micro_batch].grad;
    if (end == s->m->options.layers) /* quantized by the loss, maybe with an older scale */
        return s->m->delayed.block ? activation_quantize(cx, g) : OTT_OK;
    cx->part = PART_BACKWARD;
    TRY(activation_adopt(cx, "residual gradient", from->t, &from->buffer, &s->m->blocks[end - 1].grad_output,
                         g));
    return activation_quantize(cx, g);
}

static void take_table(stage *s, pipeline_task t) {
    message *from = received_message(s, PIPELINE_TABLE, t);
    s->m->embedding.weight->grad = from->t;
    s->m->embedding.weight->grad_buffer = from->buffer;
}

static ott_status backward(exec *cx, const pass *p, pipeline_task t) {
    stage *s = p->s;
    layer_range range = layers_of(s, t);
    activation g;
    TRY(take_gradient(cx, s, t, &g));
    if (range.first == 0 && s->tied) take_table(s, t);
    TRY(model_backward(cx, s->m, slot_of(s, t), &p->batches[t.micro_batch], range, &g));
    return send_all(cx, s, t, &g.t, &g.buffer);
}

/* ---- delayed scaling ---- */

/* Forward uses delayed scales of earlier micro-batches. Before the backward, which may recompute this
   forward, the stage runs later forwards. So forward keeps its scales, and backward restores them. */

static ott_status copy_scales(exec *cx, const tensor *from, const tensor *to) {
    return plan_recording(cx->plan) ? OTT_OK
                                    : device_copy(cx->device, to->data, from->data, tensor_bytes(*from));
}

static ott_status keep_scales(exec *cx, const tensor *now, kept_scales *k) {
    TRY(exec_open(cx, "scales of a micro-batch", OTT_F32, 1, now->columns, &k->t, &k->buffer));
    return copy_scales(cx, now, &k->t);
}

static ott_status put_back_scales(exec *cx, const tensor *now, kept_scales *k) {
    TRY(copy_scales(cx, &k->t, now));
    return plan_close(cx->plan, &k->buffer);
}

static ott_status backward_as_forward(exec *cx, const pass *p, pipeline_task t) {
    const tensor *now = &p->s->m->delayed.input_scales;
    kept_scales newest;
    if (now->columns == 0) return backward(cx, p, t);
    TRY(keep_scales(cx, now, &newest));
    TRY(put_back_scales(cx, now, &p->s->in_flight[t.micro_batch].scales[t.chunk]));
    TRY(backward(cx, p, t));
    return put_back_scales(cx, now, &newest);
}

static ott_status forward_and_keep(exec *cx, const pass *p, pipeline_task t) {
    const tensor *now = &p->s->m->delayed.input_scales;
    if (now->columns > 0) TRY(keep_scales(cx, now, &p->s->in_flight[t.micro_batch].scales[t.chunk]));
    return forward(cx, p, t);
}

/* ---- a step ---- */

static void reset_messages(stage *s) {
    int stages = s->shape->stages;
    memset(s->messages, 0, (size_t)message_count(s) * sizeof *s->messages);
    memset(s->posted, 0, (size_t)stages * sizeof *s->posted);
    memset(s->arrived, 0, (size_t)stages * sizeof *s->arrived);
    memset(s->pending_sends, 0, (size_t)stages * PIPELINE_CONTENTS * sizeof *s->pending_sends);
    memset(s->sent, 0, sizeof s->sent);
}

/* Sends a tied embedding table's gradient from the first stage to the last, which has its own copy. */
ott_status stage_share_gradients(exec *cx, stage *s) {
    parameter *table = s->m->embedding.weight;
    bool first = pipeline_is_first(s->shape), last = pipeline_is_last(s->shape);
    if (!s->tied || !(first || last)) return OTT_OK;
    table->grad.data = table->shard.rows_per_rank ? NULL : table->shard.grad.data;
    if (first)
        return group_run(
            s->ranks, cx,
            &(collective){.kind = COLLECTIVE_SEND, .input = table->shard.grad, .peer = s->ranks->size - 1});
    return group_run(s->ranks, cx, &(collective){.kind = COLLECTIVE_RECEIVE, .output = table->shard.grad});
}

static ott_status run_tasks(exec *cx, const pass *p) {
    stage *s = p->s;
    int64_t count = pipeline_task_count(s->shape, s->micro_batches);
    for (int64_t i = 0; i < count; i++) {
        pipeline_task t = pipeline_task_at(s->shape, s->micro_batches, i);
        TRY(post_needs(cx, p, t));
        if (i + 1 < count) TRY(post_needs(cx, p, pipeline_task_at(s->shape, s->micro_batches, i + 1)));
        TRY(await_needs(cx, s, t));
        cx->is_first_microbatch = t.micro_batch == 0;
        TRY(t.backward ? backward_as_forward(cx, p, t) : forward_and_keep(cx, p, t));
        if (!plan_recording(cx->plan)) TRY(model_update_scales(cx, p->s->m, cx->data_group));
    }
    return finish_all_sends(cx, s);
}

ott_status stage_train(exec *cx, stage *s, const batch *batches, const tensor *grad_scale,
                       const tensor *losses) {
    const pass p = {s, batches, grad_scale, losses};
    cx->phase = PHASE_TRAIN;
    reset_messages(s);
    ott_status status = run_tasks(cx, &p);
    if (status != OTT_OK) store_abandon(cx, &s->m->store, status);
    return status;
}

/* ---- evaluation ---- */

/* In evaluation, stages exchange only the residual stream, one message at a time. */
static ott_status receive_stream(exec *cx, const pass *p, pipeline_task t) {
    pipeline_message needs[PIPELINE_MESSAGES];
    if (pipeline_messages(p->s->shape, p->s->tied, t, false, needs) == 0) return OTT_OK;
    message *at = message_of(p->s, needs);
    TRY(open_message(cx, p, needs, at));
    return group_run(p->s->ranks, cx,
                     &(collective){.kind = COLLECTIVE_RECEIVE, .output = at->t, .peer = needs->peer});
}

ott_status stage_evaluate(exec *cx, stage *s, const batch *b, const tensor *losses) {
    const pass p = {s, b, NULL, losses};
    cx->phase = PHASE_EVALUATE;
    reset_messages(s);
    for (int chunk = 0; chunk < s->shape->chunks; chunk++) {
        pipeline_task t = {.chunk = chunk};
        TRY(receive_stream(cx, &p, t));
        cx->is_first_microbatch = true;
        TRY(forward(cx, &p, t));
    }
    return finish_all_sends(cx, s);
}
