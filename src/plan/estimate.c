/* plan/estimate: counting and timing the step that a dry run records. */
#include "plan/estimate.h"
#include "train/world.h"
#include <string.h>

/* ---- two clocks ---- */

/* The device computes, and the transport moves bytes, each in order. A gather is heard of when it is started, which is when the
   layers before those that need it begin; the next gather finds it done. A reduction is started when its gradients are there,
   and nobody waits until the pass ends. What else ranks exchange both wait for. */
typedef struct clocks {
    double compute, transport;
    double waiting;       /* of compute */
    double gathered;      /* when the gather before will be done */
    collective_kind last; /* of the collectives that are started together */
    bool together;
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

/* ---- listening ---- */

enum { MOST_WEIGHTS = 4096 };

typedef struct counter {
    const machine *machine;
    estimate *out;
    clocks micro_batch, update;
    double once;                       /* seconds of what a step does once: weights made anew */
    const void *weights[MOST_WEIGHTS]; /* made anew, in the order they were seen */
    int weight_count;
    const estimate_request *request;
} counter;

/* Of the plans that a trainer records, evaluation's is no part of a step. The optimizer's update is recorded behind it. */
static bool is_of_step(const exec *cx) {
    return cx->part == PART_OPTIMIZER || cx->phase != PHASE_EVALUATE;
}

/* A recording makes a weight and its scales anew at each use, a step once: what is made names it. Of a weight that several ranks
   share each casts its rows at each use. NULL: the operation makes none. */
static const void *made_weight(const counter *c, enum op_index op, const void *args) {
    const quantize_args *q = args;
    const convert_args *v = args;
    const amax_args *a = args;
    bool shared = c->request->shape->shard_ranks != NULL;
    if (op == OP_INDEX_amax && a->x->dtype == OTT_F32)
        return (const char *)a->x->data + !cast_spec_is_fp8(&a->q->spec.rowwise); /* a use each */
    if (op == OP_INDEX_scale) return ((const scale_args *)args)->q;
    if (shared) return NULL;
    if (op == OP_INDEX_quantize && q->x->dtype == OTT_F32) return q->q;
    if (op == OP_INDEX_convert && v->x->dtype == OTT_F32) return v->y;
    return NULL;
}

/* The same of the ranks' meeting for the scales of a weight, or of many. */
static const void *made_scales(const counter *c, const group *g, const collective *call) {
    bool scales = call->kind == COLLECTIVE_ALL_REDUCE && call->reduce == REDUCE_MAX;
    return scales && g == c->request->shape->shard_ranks ? call->input.data : NULL;
}

static bool is_known(counter *c, const void *weight) {
    for (int i = 0; i < c->weight_count; i++)
        if (c->weights[i] == weight) return true;
    if (c->weight_count < MOST_WEIGHTS) c->weights[c->weight_count++] = weight;
    return false;
}

static void add_part(estimate_part *p, const work *w, double seconds, double times) {
    p->calls += (int64_t)times;
    p->flops += times * w->flops;
    p->bytes += times * w->bytes;
    p->seconds += times * seconds;
}

static void hear_op(void *user, const exec *cx, enum op_index op, const void *args) {
    counter *c = user;
    const void *weight = made_weight(c, op, args);
    if (!is_of_step(cx) || (weight && is_known(c, weight))) return;
    bool once = weight || cx->part == PART_OPTIMIZER;
    work w = work_of(cx, op, args);
    double seconds = machine_seconds(c->machine, &w);
    add_part(&c->out->kinds[op_kind_of_call(op, args)], &w, seconds,
             once ? 1 : (double)c->out->micro_batches);
    if (weight)
        c->once += seconds;
    else
        (once ? &c->update : &c->micro_batch)->compute += seconds;
    c->micro_batch.together = false;
}

/* Bytes that a rank receives. */
static double received(const group *g, const collective *call) {
    double others = (double)(g->size - 1) / g->size;
    switch (call->kind) {
    case COLLECTIVE_ALL_GATHER: return others * (double)tensor_bytes(call->output);
    case COLLECTIVE_REDUCE_SCATTER: return others * (double)tensor_bytes(call->input);
    case COLLECTIVE_ALL_REDUCE: return 2 * others * (double)tensor_bytes(call->input);
    case COLLECTIVE_BARRIER: return 0;
    default: return (double)tensor_bytes(call->output);
    }
}

static void hear_collective(void *user, const exec *cx, const group *g, const collective *call) {
    counter *c = user;
    estimate *e = c->out;
    const void *scales = made_scales(c, g, call);
    if (!is_of_step(cx) || (scales && is_known(c, scales))) return;
    bool once = scales || cx->part == PART_OPTIMIZER;
    clocks *clock = once ? &c->update : &c->micro_batch;
    clock->together = clock->together && clock->last == call->kind;
    double bytes = received(g, call), seconds = machine_ring_seconds(c->machine, g->size, bytes);
    if (!clock->together) seconds += machine_ring_delay(c->machine, g->size);
    move_bytes(clock, call->kind, seconds);
    clock->together = true;
    clock->last = call->kind;
    estimate_traffic *t = call->kind == COLLECTIVE_ALL_GATHER       ? &e->gather
                          : call->kind == COLLECTIVE_REDUCE_SCATTER ? &e->reduce
                                                                    : &e->other;
    double times = once ? 1 : (double)e->micro_batches;
    t->calls += (int64_t)times;
    t->bytes += times * bytes;
    t->seconds += times * seconds;
}

/* ---- the sum ---- */

static void add_zeroing(counter *c, const model *m) {
    work w = {.op = OP_INDEX_convert, .format = WORK_BF16, .bytes = (double)m->trained_bytes};
    double seconds = w.bytes / c->machine->rate.bandwidth;
    add_part(&c->out->kinds[OP_KIND_OTHER], &w, seconds, 1);
    c->once += seconds;
}

/* Gradients of this rank's part, in fp32, between the copies of the model that hold the same. */
static void add_replicas(counter *c, const model *m) {
    double copies = (double)c->request->mesh->size[MESH_DP_REPLICATE], bytes = (double)m->trained_bytes;
    if (copies <= 1) return;
    estimate_traffic *t = &c->out->replicas;
    t->calls = 1;
    t->bytes = 2 * bytes * (copies - 1) / copies;
    t->seconds = machine_across_seconds(c->machine, c->request->mesh, t->bytes);
    move_bytes(&c->update, COLLECTIVE_ALL_REDUCE, t->seconds);
}

static ott_status look(void *user, trainer *t) {
    counter *c = user;
    estimate *e = c->out;
    e->parameters = model_parameter_count(t->m);
    e->on_rank = model_shard_count(t->m);
    e->flops_per_token = model_flops_per_token(t->m, t->options.seq_len);
    add_zeroing(c, t->m);
    add_replicas(c, t->m);
    return c->request->look ? c->request->look(c->request->user, t) : OTT_OK;
}

double estimate_peak(const machine *m) {
    return m->rate.peak[m->here ? WORK_FP32 : WORK_BF16];
}

static void sum_up(counter *c, const config *cfg) {
    estimate *e = c->out;
    const machine *m = c->machine;
    double times = (double)e->micro_batches;
    wait_until(&c->micro_batch, c->micro_batch.transport); /* for the last gradients */
    e->waiting_seconds = times * c->micro_batch.waiting + c->update.waiting;
    e->step_seconds = times * c->micro_batch.compute + c->update.compute + c->once;
    e->compute_seconds = e->step_seconds - e->waiting_seconds;
    int64_t readers = mesh_group_size(c->request->mesh, MESH_DATA);
    e->tokens = cfg->train.batch_size * cfg->train.seq_len * e->micro_batches * readers;
    e->tokens_per_second = (double)e->tokens / e->step_seconds;
    e->mfu = e->tokens_per_second * e->flops_per_token / ((double)e->ranks * estimate_peak(m));
}

static int64_t find_lack(const machine *m, const admission_need *need) {
    device_memory memory;
    device_read_memory(m->like, &memory);
    if (memory.room.left == INT64_MAX) return -INT64_MAX;
    return need->total - device_taken(m->like).now - memory.room.left;
}

/* Of ranks that are not there nothing has been opened. A GPU's are not on the host. */
static void add_groups(const estimate_request *r, admission_need *need) {
    if (!r->machine->here) return;
    int64_t bytes = world_group_bytes(r->mesh);
    need->of[MEM_COMM] += bytes;
    need->total += bytes;
}

static ott_status run(counter *c, estimate *e) {
    const estimate_request *r = c->request;
    const dry_run_listener listener = {.op = hear_op, .collective = hear_collective, .user = c};
    *e = (estimate){.ranks = mesh_ranks(r->mesh), .micro_batches = r->cfg->train.grad_accum_steps};
    TRY(admission_measure(&(admission){.account = r->account,
                                       .device = r->machine->like,
                                       .cfg = r->cfg,
                                       .asked = r->asked,
                                       .shape = r->shape,
                                       .listener = &listener,
                                       .look = look,
                                       .user = c},
                          &e->need));
    add_groups(r, &e->need);
    e->lack = find_lack(r->machine, &e->need);
    sum_up(c, r->cfg);
    return OTT_OK;
}

ott_status estimate_run(const estimate_request *r, estimate *out) {
    void *memory;
    TRY(mem_alloc(r->account, MEM_OTHER, sizeof(counter), "counts of a step", &memory));
    counter *c = memory;
    *c = (counter){.machine = r->machine, .out = out, .request = r};
    ott_status status = run(c, out);
    mem_free(r->account, memory);
    return status;
}
