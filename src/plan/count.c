/* plan/count: counts and times the step that a dry run records. */
#include "plan/count.h"
#include "run/process_group.h"

static const struct {
    const char *name, *text;
} traffics[TRAFFIC_KINDS] = {
#define X(constant, name, text) {name, text},
    TRAFFIC_MAP(X)
#undef X
};

const char *count_traffic_name(traffic_kind k) {
    return traffics[k].name;
}

const char *count_traffic_text(traffic_kind k) {
    return traffics[k].text;
}

/* A rank computes and communicates at the same time. `compute` and `transport` are the seconds at which its
   computation and its communication end. An all-gather starts one block before its parameters are needed; the
   computation waits for it before the next gather. A reduce-scatter starts when its gradients are ready; the
   computation waits for it at the end of the pass. It waits immediately for other collectives. */
typedef struct clocks {
    double compute, transport;
    double waiting;       /* seconds of `compute` that were spent waiting */
    double gathered;      /* seconds at which the previous gather ended */
    collective_kind last; /* kind of the previous collective */
    bool together;        /* true: the next collective of kind `last` starts together with the previous one */
} clocks;

static void wait_until(clocks *c, double moment) {
    if (moment <= c->compute) return;
    c->waiting += moment - c->compute;
    c->compute = moment;
}

static void move_bytes(clocks *c, collective_kind kind, double seconds) {
    if (kind == COLLECTIVE_ALL_GATHER) wait_until(c, c->gathered);
    c->transport = (c->transport > c->compute ? c->transport : c->compute) + seconds;
    if (kind == COLLECTIVE_ALL_GATHER)
        c->gathered = c->transport;
    else if (kind != COLLECTIVE_REDUCE_SCATTER)
        wait_until(c, c->transport);
}

/* ---- operations ---- */

enum { MOST_WEIGHTS = 1 << 14 };

typedef struct counter {
    const machine *machine;
    const count_request *request;
    rank_count *out;
    process_group process_group;
    double times; /* how often a step runs the recorded micro-batches */
    clocks micro_batch, update;
    double once;                       /* seconds of quantizing weights and zeroing gradients */
    const void *weights[MOST_WEIGHTS]; /* keys of what was counted so far (was_counted) */
    int weight_count;
} counter;

static bool is_once_a_step(const exec *cx) {
    return cx->part == PART_REDUCTION || cx->part == PART_OPTIMIZER;
}

/* False for an evaluation's ops. Ops of a step's reduction and optimizer also have PHASE_EVALUATE. */
static bool is_of_step(const exec *cx) {
    return is_once_a_step(cx) || cx->phase != PHASE_EVALUATE;
}

static bool was_counted(counter *c, const void *weight) {
    for (int i = 0; i < c->weight_count; i++)
        if (c->weights[i] == weight) return true;
    if (c->weight_count < MOST_WEIGHTS) c->weights[c->weight_count++] = weight;
    return false;
}

/* True for a weight: it stays in memory between steps, while activations are buffers of the plan. */
static bool is_weight(const tensor *x) {
    return !plan_is_recorded(x->data);
}

/* If the op quantizes or converts a weight, returns a key (an address) for was_counted, else NULL. A dry run
   records such an op at each use of the weight, but a step runs it once. Casts of sharded weights do run at
   each use: NULL. */
static const void *made_weight(const counter *c, enum op_index op, const void *args) {
    const quantize_args *q = args;
    const convert_args *v = args;
    const amax_args *a = args;
    const cast_args *cast = args;
    const scale_args *s = args;
    bool shared = c->process_group.shard->size > 1;
    if (op == OP_INDEX_amax && is_weight(a->x))
        return (const char *)a->x->data +
               !cast_spec_is_fp8(&a->q->spec.rowwise); /* another address for rowwise than for columnwise */
    if (op == OP_INDEX_scale &&
        !plan_is_recorded(cast_spec_is_fp8(&s->q->spec.rowwise) ? s->q->rowwise.amax : s->q->columnwise.amax))
        return s->q;
    if (shared) return NULL;
    if (op == OP_INDEX_quantize && is_weight(q->x)) return q->q;
    if (op == OP_INDEX_cast && is_weight(cast->x)) return cast->q->rowwise.data;
    return op == OP_INDEX_convert && is_weight(v->x) ? v->y : NULL;
}

static void add_timed_work(count_part *p, const work *w, double seconds, double times) {
    p->calls += (int64_t)times;
    p->flops += times * w->flops;
    p->bytes += times * w->bytes;
    p->seconds += times * seconds;
}

/* Adds the seconds of computation since `before` to the forward or the backward of a micro-batch. */
static void note_elapsed(counter *c, const exec *cx, double before) {
    *(cx->part == PART_BACKWARD ? &c->out->backward : &c->out->forward) += c->micro_batch.compute - before;
}

static void add_work(counter *c, const exec *cx, op_kind kind, const work *w, bool once, bool weight) {
    double seconds = machine_seconds(c->machine, w), before = c->micro_batch.compute;
    add_timed_work(&c->out->kinds[kind], w, seconds, once ? 1 : c->times);
    if (weight)
        c->once += seconds;
    else
        (once ? &c->update : &c->micro_batch)->compute += seconds;
    c->micro_batch.together = false;
    note_elapsed(c, cx, before);
}

static void count_op(void *user, const exec *cx, enum op_index op, const void *args) {
    counter *c = user;
    const void *weight = made_weight(c, op, args);
    if (!is_of_step(cx) || (weight && was_counted(c, weight))) return;
    work w = work_of(cx, op, args);
    add_work(c, cx, op_kind_of_call(op, args), &w, weight || is_once_a_step(cx), weight != NULL);
}

/* ---- collectives ---- */

static mesh_dimension dimension_of(const counter *c, const group *g) {
    if (g == c->process_group.tensor) return MESH_TP;
    if (g == c->process_group.context) return MESH_CP;
    if (g == c->process_group.experts) return MESH_EP;
    return g == c->process_group.stages ? MESH_PP : MESH_DP_SHARD;
}

static traffic_kind traffic_of(mesh_dimension d, const exec *cx, const collective *call) {
    static const traffic_kind of_dimension[] = {[MESH_TP] = TRAFFIC_TENSOR,
                                                [MESH_CP] = TRAFFIC_CONTEXT,
                                                [MESH_EP] = TRAFFIC_EXPERTS,
                                                [MESH_PP] = TRAFFIC_STAGES};
    if (cx->part == PART_OPTIMIZER) return TRAFFIC_OTHER;
    if (d != MESH_DP_SHARD) return of_dimension[d];
    return call->kind == COLLECTIVE_ALL_GATHER       ? TRAFFIC_GATHER
           : call->kind == COLLECTIVE_REDUCE_SCATTER ? TRAFFIC_REDUCE
                                                     : TRAFFIC_OTHER;
}

static double received_bytes(const group *g, const collective *call) {
    double others = (double)(g->size - 1) / g->size;
    switch (call->kind) {
    case COLLECTIVE_ALL_TO_ALL:
    case COLLECTIVE_ALL_GATHER: return others * (double)tensor_bytes(call->output);
    case COLLECTIVE_REDUCE_SCATTER: return others * (double)tensor_bytes(call->input);
    case COLLECTIVE_ALL_REDUCE: return 2 * others * (double)tensor_bytes(call->input);
    case COLLECTIVE_BROADCAST: return (double)tensor_bytes(call->input);
    case COLLECTIVE_RECEIVE: return (double)tensor_bytes(call->output);
    case COLLECTIVE_SEND:
    case COLLECTIVE_BARRIER: return 0;
    }
    return 0;
}

static double collective_seconds(const machine *m, machine_group g, const collective *call, double bytes,
                                 bool together) {
    if (call->kind == COLLECTIVE_ALL_TO_ALL) return machine_exchange_seconds(m, g, bytes);
    if (call->kind == COLLECTIVE_SEND) return 0; /* the message is counted where it is received */
    if (call->kind == COLLECTIVE_RECEIVE) return machine_send_seconds(m, g, bytes);
    double delay = call->kind == COLLECTIVE_ALL_REDUCE ? machine_tree_delay(m, g) : machine_ring_delay(m, g);
    return machine_ring_seconds(m, g, bytes) + (together ? 0 : delay);
}

static void add_traffic(count_traffic *t, double bytes, double seconds, double times) {
    t->calls += (int64_t)times;
    t->bytes += times * bytes;
    t->seconds += times * seconds;
}

static void count_collective(void *user, const exec *cx, const group *g, const collective *call) {
    counter *c = user;
    /* the key of an all-reduce of weights' amaxes for was_counted: an address that no weight has */
    bool reduces_amaxes = call->kind == COLLECTIVE_ALL_REDUCE && call->reduce == REDUCE_MAX &&
                          !plan_is_recorded(call->input.data);
    const void *scales = reduces_amaxes ? (const char *)call->input.data + 1 : NULL;
    if (!is_of_step(cx) || (scales && was_counted(c, scales))) return;
    bool once = scales || is_once_a_step(cx);
    mesh_dimension along = dimension_of(c, g);
    traffic_kind kind = traffic_of(along, cx, call);
    clocks *clock = once ? &c->update : &c->micro_batch;
    double before = c->micro_batch.compute, bytes = received_bytes(g, call);
    clock->together = clock->together && clock->last == call->kind;
    double seconds = collective_seconds(c->machine, machine_group_along(c->request->mesh, along), call, bytes,
                                        clock->together);
    /* plan/stages times the messages between pipeline stages */
    if (kind != TRAFFIC_STAGES || once) {
        if (kind == TRAFFIC_GATHER || kind == TRAFFIC_REDUCE || once)
            move_bytes(clock, call->kind, seconds);
        else
            wait_until(clock, clock->compute + seconds);
    }
    clock->together = true;
    clock->last = call->kind;
    note_elapsed(c, cx, before);
    add_traffic(&c->out->traffic[kind], bytes, seconds, once ? 1 : c->times);
    if (call->kind == COLLECTIVE_RECEIVE && seconds > c->out->message) c->out->message = seconds;
    if (kind != TRAFFIC_GATHER) return;
    /* the copy of the gathered unit from the receive buffer to the tensors that layers read */
    const work w = {
        .op = OP_INDEX_convert, .format = WORK_BF16, .bytes = 2 * (double)tensor_bytes(call->output)};
    add_work(c, cx, OP_KIND_OTHER, &w, is_once_a_step(cx), false);
}

/* Adds the all-reduce of gradients over the ranks along dimension d, which all have the same shard. */
static void add_replica_traffic(counter *c, const model *m, mesh_dimension d) {
    machine_group g = machine_group_along(c->request->mesh, d);
    double copies = (double)g.ranks, bytes = 2 * (double)m->trained_bytes * (copies - 1) / copies;
    if (copies <= 1) return;
    double seconds = machine_ring_seconds(c->machine, g, bytes) + machine_ring_delay(c->machine, g);
    add_traffic(&c->out->traffic[TRAFFIC_COPIES], bytes, seconds, 1);
    move_bytes(&c->update, COLLECTIVE_ALL_REDUCE, seconds);
}

static ott_status count_model(void *user, trainer *t) {
    counter *c = user;
    rank_count *out = c->out;
    out->parameters = model_parameter_count(t->m);
    out->frozen = model_frozen_count(t->m);
    out->on_rank = model_shard_count(t->m);
    out->flops_per_token = model_flops_per_token(t->m, t->options.seq_len);
    work w = {.op = OP_INDEX_convert, .format = WORK_BF16, .bytes = (double)t->m->trained_bytes};
    double seconds = w.bytes / c->machine->rate.bandwidth;
    add_timed_work(&c->out->kinds[OP_KIND_OTHER], &w, seconds, 1);
    c->once += seconds;
    add_replica_traffic(c, t->m, MESH_DP_REPLICATE);
    add_replica_traffic(c, t->m, MESH_CP);
    return c->request->inspect ? c->request->inspect(c->request->user, t) : OTT_OK;
}

/* ---- a rank ---- */

ott_status count_open_rank(const count_request *r, int64_t stage_index, process_group *pg,
                           model_options *shape, memory_check *out) {
    int64_t first =
        stage_index * mesh_ranks(r->mesh) / r->mesh->size[MESH_PP]; /* pp is the outermost dimension */
    *shape = *r->shape;
    TRY(process_group_open_dry_run(r->account, r->mesh, first, pg));
    process_group_set_model(pg, r->cfg, shape);
    *out = (memory_check){.account = r->account,
                          .device = r->machine->like,
                          .cfg = r->cfg,
                          .asked = r->asked,
                          .shape = shape,
                          .group_bytes = r->machine->is_local ? process_group_bytes(r->mesh) : 0,
                          .is_other_machine = !r->machine->is_local};
    return OTT_OK;
}

static ott_status count_rank(counter *c, int64_t stage_index) {
    const count_request *r = c->request;
    rank_count *out = c->out;
    const dry_run_listener listener = {.op = count_op, .collective = count_collective, .user = c};
    double micro_batches = (double)r->cfg->train.grad_accum_steps, before;
    double recorded = r->mesh->size[MESH_PP] > 1 ? micro_batches : 1;
    model_options shape;
    memory_check a;
    TRY(count_open_rank(r, stage_index, &c->process_group, &shape, &a));
    c->times = micro_batches / recorded;
    a.listener = &listener;
    a.inspect = count_model;
    a.user = c;
    TRY(memory_check_measure(&a, &out->need));
    before = c->micro_batch.compute;
    wait_until(&c->micro_batch, c->micro_batch.transport); /* until the last reduction has ended */
    out->backward = (out->backward + (c->micro_batch.compute - before)) / recorded;
    out->forward /= recorded;
    out->waiting = c->micro_batch.waiting / recorded;
    out->once = c->update.compute + c->once;
    out->once_waiting = c->update.waiting;
    return OTT_OK;
}

ott_status count_run(const count_request *r, int64_t stage_index, rank_count *out) {
    counter *c;
    *out = (rank_count){0};
    TRY(mem_alloc(r->account, MEM_OTHER, sizeof(counter), "counts of a step", &c));
    *c = (counter){.machine = r->machine, .out = out, .request = r};
    ott_status status = count_rank(c, stage_index);
    process_group_close(&c->process_group);
    mem_free(r->account, c);
    return status;
}

double count_busy(const rank_count *c, int64_t micro_batches) {
    return (double)micro_batches * (c->forward + c->backward);
}

double count_step(const rank_count *c, int64_t micro_batches) {
    return count_busy(c, micro_batches) + c->once;
}
