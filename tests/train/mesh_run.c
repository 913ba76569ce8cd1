/* mesh_run: opens the groups, runs the rank threads and assembles full tensors from the ranks' shards. */
#include "train/mesh_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backend/open.h"
#include "comm/links.h"
#include "comm/ranks.h"
#include "train/schedule.h"

/* ---- ranks ---- */

enum { DATA, SHARD, REPLICATE, STAGES, TENSOR, CONTEXT, EXPERTS, EXPERT_SHARD, GROUPS };

typedef struct rank_run {
    rig r;
    rig_options options;
    pipeline_stage stage;
    group *groups[GROUPS]; /* NULL: the group has one rank */
    mem *gpu_account;
    device *gpu; /* NULL: the rank is on the CPU */
    int64_t histories_every;
    void *histories; /* the amax histories, while the model has none */
    float *grads[2]; /* gradients of the first step and of the last step */
    step_result step[MESH_RUN_STEPS];
    evaluation evaluated;
} rank_run;

static void micro_batch_done(void *user, int64_t done, int64_t total) {
    rank_run *k = user;
    (void)total;
    if (k->histories) k->r.t->m->delayed.block = (done + 1) % k->histories_every == 0 ? k->histories : NULL;
}

/* Runs a training step. In most micro-batches the model has no amax histories, so that they roll only after
   every histories_every-th micro-batch. */
static ott_status step(rank_run *k, int i) {
    trainer *t = k->r.t;
    void *before = t->delayed_before;
    double rate = schedule_learning_rate(k->r.cfg, i, k->r.cfg->train.max_steps);
    bool detaches = k->histories_every > 1 && t->options.grad_accum > t->resident;
    k->histories = detaches ? t->m->delayed.block : NULL;
    if (detaches) t->m->delayed.block = t->delayed_before = NULL;
    ott_status status = trainer_step(t, rate, &k->step[i]);
    if (detaches) t->m->delayed.block = k->histories;
    t->delayed_before = before;
    return status;
}

static ott_status train(rank_run *k) {
    const model *m = k->r.t->m;
    for (int i = 0; i < 2; i++) k->grads[i] = malloc((size_t)m->trained_bytes + 1);
    for (int i = 0; i < MESH_RUN_STEPS; i++) {
        TRY(step(k, i));
        TRY(device_copy_out(k->r.device, k->grads[i > 0], m->grads, m->trained_bytes));
    }
    return trainer_evaluate(k->r.t, k->r.cfg->eval.steps, &k->evaluated);
}

static ott_status train_rank(void *rank) {
    rank_run *k = rank;
    ott_status status = train(k);
    for (int i = 0; i < GROUPS; i++)
        if (k->groups[i]) group_close(k->groups[i]);
    return status;
}

/* ---- opening ---- */

/* Opens the groups along a set of mesh dimensions. Opens none if each group would have one rank. */
static void open_groups(const mesh *m, mesh_set set, int which, int count, thread_groups *w,
                        rank_run *ranks) {
    group *opened[MESH_RUN_RANKS_MAX];
    int members[MESH_RUN_RANKS_MAX], size = (int)mesh_group_size(m, set);
    if (size == 1) return;
    for (int k = 0; k < count; k++) {
        if (mesh_group_rank(m, set, k) != 0) continue;
        mesh_group(m, set, k, members);
        ranks_group(w, members, size, opened);
    }
    for (int k = 0; k < count; k++) ranks[k].groups[which] = opened[k];
}

/* Replaces the rank's groups with groups that use links between GPUs. The old groups exchange the ids that
   GPUs need to open the links. */
static ott_status link_rank(void *rank) {
    rank_run *k = rank;
    for (int i = 0; i < GROUPS; i++) {
        group *control = k->groups[i];
        int ranks[MESH_RUN_RANKS_MAX];
        if (!control) continue;
        for (int r = 0; r < control->size; r++) ranks[r] = r;
        TRY(links_open(k->gpu_account,
                       &(links_options){.device = k->gpu,
                                        .control = control,
                                        .ranks = ranks,
                                        .count = control->size,
                                        .name = "of a mesh",
                                        .timeout = 60,
                                        .messages = i == STAGES},
                       &k->groups[i]));
    }
    return OTT_OK;
}

static void open_gpus(rank_run *ranks, int count) {
    for (int k = 0; k < count; k++) {
        FIXTURE_OK(mem_open(&ranks[k].gpu_account));
        FIXTURE_OK(test_device_open_gpu(ranks[k].gpu_account, k, &ranks[k].gpu));
    }
    ranks_run("links", count, ranks, sizeof *ranks, link_rank);
}

static void prepare_rank(rank_run *k, const fixture *f, const mesh_run_options *o) {
    rig_options own = {.device = k->gpu,
                       .precision = o->precision,
                       .more = o->more,
                       .data_group = k->groups[DATA],
                       .shard_group = k->groups[SHARD],
                       .replica_group = k->groups[REPLICATE],
                       .tensor_ranks = k->groups[TENSOR],
                       .sequence_parallel = o->layout.sequence_parallel,
                       .context_ranks = k->groups[CONTEXT],
                       .expert_ranks = k->groups[EXPERTS],
                       .expert_shard_ranks = k->groups[EXPERT_SHARD],
                       .stage_ranks = k->groups[STAGES]};
    if (own.stage_ranks) {
        bool interleaved = o->layout.schedule == PP_INTERLEAVED_1F1B;
        k->stage = (pipeline_stage){o->layout.schedule, own.stage_ranks->size, own.stage_ranks->rank,
                                    interleaved ? PIPELINE_INTERLEAVED_CHUNKS : 1};
        own.stage = &k->stage;
    }
    k->histories_every = o->histories_every;
    k->options = own;
    rig_prepare(&k->r, f, &own);
}

static ott_status open_rank(void *rank) {
    rank_run *k = rank;
    TRY(rig_make(&k->r, &k->options));
    k->r.t->micro_batch_done = micro_batch_done;
    k->r.t->micro_batch_user = k;
    return OTT_OK;
}

static int open_ranks(rank_run *ranks, thread_groups *w, const fixture *f, const mesh_run_options *o) {
    mesh m;
    int count = 1;
    for (int d = 0; d < MESH_DIMENSIONS; d++) {
        m.size[d] = o->layout.size[d] ? o->layout.size[d] : 1;
        count *= (int)m.size[d];
    }
    assert_in_range(count, 1, MESH_RUN_RANKS_MAX);
    open_groups(&m, MESH_DATA, DATA, count, w, ranks);
    open_groups(&m, MESH_SHARD, SHARD, count, w, ranks);
    open_groups(&m, MESH_SET(DP_REPLICATE), REPLICATE, count, w, ranks);
    open_groups(&m, MESH_SET(PP), STAGES, count, w, ranks);
    open_groups(&m, MESH_SET(TP), TENSOR, count, w, ranks);
    open_groups(&m, MESH_SET(CP), CONTEXT, count, w, ranks);
    open_groups(&m, MESH_SET(EP), EXPERTS, count, w, ranks);
    if (m.size[MESH_EP] > 1) open_groups(&m, MESH_SET(DP_SHARD), EXPERT_SHARD, count, w, ranks);
    if (o->gpus) open_gpus(ranks, count);
    for (int k = 0; k < count; k++) prepare_rank(&ranks[k], f, o);
    ranks_run("opening", count, ranks, sizeof *ranks, open_rank);
    return count;
}

/* ---- full tensors ---- */

/* initial value of all elements, to find elements that no rank writes; no computation gives these bits */
static const uint32_t unknown = 0xFFFFFFFFu;

static void add_tensor(outcome *o, const char *name, outcome_kind kind, int64_t count) {
    o->tensors = realloc(o->tensors, (size_t)(o->count + 1) * sizeof *o->tensors);
    outcome_tensor *t = &o->tensors[o->count++];
    *t = (outcome_tensor){.kind = kind, .count = count, .data = malloc((size_t)count * sizeof(float))};
    assert_in_range(snprintf(t->name, sizeof t->name, "%s", name), 1, sizeof t->name - 1);
    for (int64_t i = 0; i < count; i++) memcpy(&t->data[i], &unknown, sizeof unknown);
}

static outcome_tensor *find_tensor(const outcome *o, const char *name, outcome_kind kind) {
    for (int i = 0; i < o->count; i++)
        if (o->tensors[i].kind == kind && strcmp(o->tensors[i].name, name) == 0) return &o->tensors[i];
    fail_msg("no rank has a tensor %s", name);
    return NULL;
}

static void put(outcome_tensor *t, int64_t first, const float *x, int64_t count) {
    assert_true(first >= 0 && first + count <= t->count);
    for (int64_t i = 0; i < count; i++) {
        float *to = &t->data[first + i];
        if (memcmp(to, &unknown, sizeof unknown) != 0 && memcmp(to, &x[i], sizeof *x) != 0)
            fail_msg("ranks differ in %s: %.9g and %.9g", t->name, *to, x[i]);
        *to = x[i];
    }
}

static void put_shard(outcome *o, const parameter *p, outcome_kind kind, const float *x) {
    outcome_tensor *t = find_tensor(o, p->name, kind);
    const parameter_part part = parameter_shard_part(p);
    int64_t count = tensor_count(p->shard.value);
    for (int64_t at = 0; at < count;) {
        parameter_run run = parameter_run_at(&part, p->columns, at, count - at);
        put(t, run.first, x + at, run.count);
        at += run.count;
    }
}

/* Copies this rank's shard of a parameter's gradient to the full tensor in o. last: 0 for the first step's
   gradient, 1 for the last step's. */
static void put_gradient(outcome *o, const rank_run *k, const parameter *p, int last) {
    const tensor *grad = &p->shard.grad;
    int64_t offset = (const char *)grad->data - (const char *)k->r.t->m->grads, count = tensor_count(*grad);
    float *x = malloc((size_t)count * sizeof *x);
    memcpy(x, (const char *)k->grads[last] + offset, (size_t)tensor_bytes(*grad));
    cast_in_place(x, grad->dtype, OTT_F32, count);
    put_shard(o, p, last ? OUTCOME_LAST_GRADIENT : OUTCOME_GRADIENT, x);
    free(x);
}

/* Number of tensors of a parameter's optimizer state that are compared: at most two. */
static int compared_slots(const model *m, const parameter *p) {
    int slots = p->frozen ? 0 : optimizer_slots(m->options.optimizer, p);
    return slots < 2 ? slots : 2;
}

static void put_parameter(outcome *o, const rank_run *k, const parameter *p) {
    const model *m = k->r.t->m;
    const tensor *values[] = {&p->shard.value, &p->shard.slot[0], &p->shard.slot[1]};
    int64_t count = tensor_count(p->shard.value);
    if (count == 0) return;
    for (int i = 0; i < 2 && !p->frozen; i++) put_gradient(o, k, p, i);
    for (int i = 0; i < 1 + compared_slots(m, p); i++) {
        float *x = rig_copy_wide(&k->r, values[i]);
        put_shard(o, p, OUTCOME_VALUE + i, x);
        free(x);
    }
}

static void take_state(outcome *o, const rank_run *k, const char *name, outcome_kind kind, const tensor *t,
                       bool adds) {
    int64_t count = tensor_count(*t);
    if (!t->data || count == 0) return;
    float *x = rig_copy(&k->r, t->data, count);
    if (adds) add_tensor(o, name, kind, count);
    put(find_tensor(o, name, kind), 0, x, count);
    free(x);
}

/* Writes a layer's amax histories and scales to tensors of o. adds: creates the tensors (first rank). */
static void take_states(outcome *o, const rank_run *k, const linear *l, const char *layer, bool adds) {
    for (int i = 0; i < TENSOR_COUNT; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s, tensor %d", layer, i);
        take_state(o, k, name, OUTCOME_SCALE, &l->delayed[i].scale, adds);
        take_state(o, k, name, OUTCOME_HISTORY, &l->delayed[i].amax_history, adds);
    }
}

/* Stores the token counts of the experts of all stages. Every rank has the same counts. */
static void take_loads(outcome *o, const rank_run *k, bool adds) {
    take_state(o, k, "expert loads", OUTCOME_LOAD, &k->r.t->m->balance.loads, adds);
}

static bool has_layer(const rank_run *k, const char *name) {
    const module_list *modules = &k->r.t->m->modules;
    for (int i = 0; i < modules->count; i++)
        if (modules->items[i].kind == MODULE_LINEAR && strcmp(modules->items[i].name, name) == 0) return true;
    return false;
}

static void put_states(outcome *o, const rank_run *ranks, int rank) {
    const module_list *modules = &ranks[rank].r.t->m->modules;
    for (int i = 0; i < modules->count; i++) {
        if (modules->items[i].kind != MODULE_LINEAR) continue;
        bool adds = true;
        for (int k = 0; k < rank && adds; k++) adds = !has_layer(&ranks[k], modules->items[i].name);
        take_states(o, &ranks[rank], modules->items[i].linear, modules->items[i].name, adds);
    }
}

static void expect_agreement(const rank_run *a, const rank_run *b) {
    for (int i = 0; i < MESH_RUN_STEPS; i++)
        if (a->step[i].loss != b->step[i].loss || a->step[i].grad_norm != b->step[i].grad_norm)
            fail_msg("ranks disagree at step %d: losses %.9g and %.9g, norms %.9g and %.9g", i + 1,
                     a->step[i].loss, b->step[i].loss, a->step[i].grad_norm, b->step[i].grad_norm);
    assert_true(a->evaluated.loss == b->evaluated.loss);
}

static void put_together(outcome *o, const rank_run *ranks, int count) {
    const model *m = ranks[0].r.t->m;
    memcpy(o->step, ranks[0].step, sizeof o->step);
    o->evaluated = ranks[0].evaluated;
    o->traffic = m->store.traffic;
    o->planned = ranks[0].r.t->planned_bytes;
    o->peak = mem_read(ranks[0].r.account).peak;
    for (int i = 0; i < m->all_parameter_count; i++)
        for (int kind = OUTCOME_GRADIENT; kind <= OUTCOME_VALUE + compared_slots(m, m->all_parameters[i]);
             kind++)
            if (!m->all_parameters[i]->frozen || kind == OUTCOME_VALUE)
                add_tensor(o, m->all_parameters[i]->name, kind, parameter_count(m->all_parameters[i]));
    for (int k = 0; k < count; k++) {
        const model *own = ranks[k].r.t->m;
        expect_agreement(&ranks[0], &ranks[k]);
        for (int i = 0; i < own->parameter_count; i++) put_parameter(o, &ranks[k], &own->parameters[i]);
        put_states(o, ranks, k);
        take_loads(o, &ranks[k], k == 0);
    }
    for (int i = 0; i < o->count; i++)
        for (int64_t j = 0; j < o->tensors[i].count; j++)
            if (memcmp(&o->tensors[i].data[j], &unknown, sizeof unknown) == 0)
                fail_msg("no rank has element %lld of %s", (long long)j, o->tensors[i].name);
}

void mesh_run(const fixture *f, const mesh_run_options *o, outcome *out) {
    rank_run *ranks = calloc(MESH_RUN_RANKS_MAX, sizeof *ranks);
    thread_groups opened = {0};
    char name[MESH_DIMENSIONS * 24] = "";
    *out = (outcome){0};
    int count = open_ranks(ranks, &opened, f, o);
    for (int d = 0; d < MESH_DIMENSIONS; d++)
        snprintf(name + strlen(name), sizeof name - strlen(name), " %d", (int)o->layout.size[d]);
    ranks_run(name, count, ranks, sizeof *ranks, train_rank);
    put_together(out, ranks, count);
    for (int k = 0; k < count; k++) {
        for (int i = 0; i < 2; i++) free(ranks[k].grads[i]);
        rig_close(&ranks[k].r);
        mem_close(ranks[k].gpu_account);
    }
    if (opened.account) ranks_close(&opened);
    free(ranks);
}

void outcome_free(outcome *o) {
    for (int i = 0; i < o->count; i++) free(o->tensors[i].data);
    free(o->tensors);
    *o = (outcome){0};
}

/* ---- comparisons ---- */

static const char *const kind_names[OUTCOME_KINDS] = {
    "gradient", "last gradient", "value", "first moment", "second moment", "scale", "amax history", "load"};

/* True if two losses differ by rounding only. Several ranks add the losses of the micro-batches in another
   order than one rank does. */
static bool is_near(double a, double b) {
    return fabs(a - b) <= 1e-6 * fabs(a);
}

static bool same_steps(const outcome *a, const outcome *b, char what[160]) {
    for (int i = 0; i < MESH_RUN_STEPS; i++) {
        const step_result *x = &a->step[i], *y = &b->step[i];
        snprintf(what, 160, "step %d: losses %.9g and %.9g, norms %.9g and %.9g", i + 1, x->loss, y->loss,
                 x->grad_norm, y->grad_norm);
        if (x->loss != y->loss || x->grad_norm != y->grad_norm || x->labels != y->labels ||
            x->tokens != y->tokens || x->skipped != y->skipped)
            return false;
        snprintf(what, 160, "step %d: losses of routing %.9g and %.9g, of logits %.9g and %.9g, unevenness",
                 i + 1, x->balance.loss, y->balance.loss, x->balance.z_loss, y->balance.z_loss);
        if (!is_near(x->balance.loss, y->balance.loss) || !is_near(x->balance.z_loss, y->balance.z_loss) ||
            x->balance.unevenness != y->balance.unevenness)
            return false;
    }
    snprintf(what, 160, "an evaluation");
    return a->evaluated.loss == b->evaluated.loss && a->evaluated.labels == b->evaluated.labels;
}

bool outcome_equal(const outcome *a, const outcome *b, char what[160]) {
    if (!same_steps(a, b, what)) return false;
    snprintf(what, 160, "number of tensors");
    for (int i = 0; i < a->count && a->count == b->count; i++) {
        const outcome_tensor *x = &a->tensors[i], *y = find_tensor(b, x->name, x->kind);
        snprintf(what, 160, "%s of %s", kind_names[x->kind], x->name);
        if (x->count != y->count || memcmp(x->data, y->data, (size_t)x->count * sizeof *x->data) != 0)
            return false;
    }
    return a->count == b->count;
}

static double distance(const outcome_tensor *a, const outcome_tensor *b) {
    double apart = 0, size = 0;
    assert_int_equal(a->count, b->count);
    for (int64_t i = 0; i < a->count; i++) {
        double x = a->data[i], difference = x - b->data[i];
        apart += difference * difference;
        size += x * x;
    }
    return size > 0 ? sqrt(apart / size) : sqrt(apart);
}

double outcome_distance(const outcome *a, const outcome *b, outcome_kind kind) {
    double most = 0;
    for (int i = 0; i < a->count; i++) {
        const outcome_tensor *x = &a->tensors[i];
        if (x->kind != kind) continue;
        double d = distance(x, find_tensor(b, x->name, kind));
        if (!(d <= most)) most = d; /* a NaN counts as the largest distance */
    }
    return most;
}
