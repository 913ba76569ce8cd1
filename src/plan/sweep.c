/* plan/sweep: searches settings. */
#include "plan/sweep.h"
#include "config/table.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MOST_TRIED = 48, /* maximum number of estimates */
    MOST_CANDIDATES = 4096,
    BATCHES_TRIED = 4,  /* micro-batch sizes of a candidate, at most */
    BATCHES_FITTING = 2 /* stop a candidate after this many sizes fit */
};

typedef struct candidate {
    mesh mesh;
    config_checkpointing checkpointing;
    int64_t sequences; /* sequences of one rank in a step */
    double least;      /* lower bound of a step's seconds */
} candidate;

typedef struct search {
    const count_request *base;
    const estimate *asked;
    sweep *out;
    int64_t sequences;     /* sequences of all ranks in a step */
    double available;      /* bytes available to a rank */
    candidate *candidates; /* [MOST_CANDIDATES] candidates, the first `count` in use */
    int count;
} search;

/* ---- lower bounds ---- */

/* Bytes of a rank's shard of `parameters` elements. */
static double part_bytes(const mesh *m, int64_t parameters, ott_dtype format) {
    double parts = (double)(m->size[MESH_PP] * m->size[MESH_TP] * m->size[MESH_DP_SHARD]);
    return (double)dtype_bytes(format) * (double)parameters / parts;
}

static int64_t trained_parameters(const search *s) {
    return s->asked->rank.parameters - s->asked->rank.frozen;
}

/* Lower bound of the bytes of parameters, gradients and optimizer state. */
static double state_bytes(const search *s, const mesh *m) {
    const model_options *o = s->base->shape;
    int slots = o->optimizer->applied_slots ? o->optimizer->applied_slots : o->optimizer->slots;
    return part_bytes(m, s->asked->rank.frozen, o->frozen) + part_bytes(m, trained_parameters(s), o->master) +
           part_bytes(m, trained_parameters(s), o->gradient) +
           slots * part_bytes(m, trained_parameters(s), o->state);
}

static double step_product_seconds(const search *s, config_checkpointing kind) {
    const model_options *o = s->base->shape;
    const machine_rates *r = &s->base->machine->rate;
    double mixers = model_mixer_flops(o, s->base->cfg->train.seq_len);
    double rate = fmax(fmax(r->gemm[WORK_FP8], r->gemm[WORK_BF16]), r->gemm[WORK_FP32]);
    double flops = (double)s->asked->tokens * (s->asked->rank.flops_per_token - mixers);
    return flops * (kind == CHECKPOINTING_FULL ? 4.0 / 3 : 1) / rate / (double)s->asked->ranks;
}

/* Tensor parallelism gathers the residual stream 4 times per layer, at best in FP8 (1 byte per element), and
   reduce-scatters it 4 times, in bf16. */
static double tensor_seconds(const search *s, const candidate *c) {
    machine_group g = machine_group_along(&c->mesh, MESH_TP);
    double layers = (double)s->base->shape->layers / (double)c->mesh.size[MESH_PP];
    double tokens = (double)(c->sequences * s->base->cfg->train.seq_len) / (double)c->mesh.size[MESH_CP];
    double others = (double)(g.ranks - 1) / (double)g.ranks;
    return machine_ring_seconds(s->base->machine, g,
                                others * tokens * layers * (double)s->base->shape->dim * 4 * (1 + 2));
}

static double copies_seconds(const search *s, const candidate *c) {
    machine_group g = machine_group_along(&c->mesh, MESH_DP_REPLICATE);
    double others = (double)(g.ranks - 1) / (double)g.ranks;
    return machine_ring_seconds(s->base->machine, g,
                                others * 2 *
                                    part_bytes(&c->mesh, trained_parameters(s), s->base->shape->gradient));
}

/* Lower bound of a step's seconds, with the pipeline bubble. Interleaved chunks make the bubble shorter. */
static double least_seconds(const search *s, const candidate *c) {
    double busy = step_product_seconds(s, c->checkpointing) + tensor_seconds(s, c);
    int chunks =
        s->base->cfg->distributed.pp_schedule == PP_INTERLEAVED_1F1B ? PIPELINE_INTERLEAVED_CHUNKS : 1;
    double bubble = (double)(c->mesh.size[MESH_PP] - 1) / chunks / (double)c->sequences;
    return busy * (1 + bubble) + copies_seconds(s, c);
}

/* ---- candidates ---- */

static bool splits_evenly(int64_t ranks, int64_t length) {
    return length % ranks == 0;
}

/* True if the mesh can divide the model's heads, widths and layers, and tp and cp stay within a node. */
static bool suits_model(const search *s, const mesh *m) {
    const model_options *o = s->base->shape;
    int64_t tp = m->size[MESH_TP], heads = tp * m->size[MESH_CP];
    if ((double)heads > s->base->machine->rate.node && heads > 1) return false;
    return splits_evenly(heads, o->heads) && splits_evenly(tp, o->kv_heads) && splits_evenly(tp, o->hidden) &&
           splits_evenly(tp, o->vocab) && m->size[MESH_PP] <= o->layers;
}

static void add_candidates(search *s, const mesh *m) {
    static const config_checkpointing kinds[] = {CHECKPOINTING_NONE, CHECKPOINTING_SELECTIVE,
                                                 CHECKPOINTING_FULL};
    int64_t readers = mesh_group_size(m, MESH_DATA);
    if (!splits_evenly(readers, s->sequences) || state_bytes(s, m) > s->available) return;
    int64_t sequences = s->sequences / readers;
    if (m->size[MESH_PP] > sequences) return; /* stages would never work at the same time */
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && s->count < MOST_CANDIDATES; i++) {
        candidate c = {.mesh = *m, .checkpointing = kinds[i], .sequences = sequences};
        c.least = least_seconds(s, &c);
        s->candidates[s->count++] = c;
    }
}

/* Adds all meshes that split `left` ranks along dimension order[d] and the later dimensions of `order`. */
static void add_meshes(search *s, mesh *m, int d, int64_t left) {
    static const mesh_dimension order[] = {MESH_TP, MESH_CP, MESH_PP, MESH_DP_SHARD};
    if (d == sizeof order / sizeof *order) {
        m->size[MESH_DP_REPLICATE] = left;
        if (suits_model(s, m)) add_candidates(s, m);
        return;
    }
    for (int64_t size = 1; size <= left; size++) {
        if (!splits_evenly(size, left)) continue;
        m->size[order[d]] = size;
        add_meshes(s, m, d + 1, left / size);
    }
}

static int compare_results(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    return (x->least > y->least) - (x->least < y->least);
}

/* ---- estimates ---- */

static void insert_row(sweep *s, const sweep_row *row) {
    int at = s->count;
    if (at == SWEEP_SHOWN && s->best[at - 1].tokens_per_second >= row->tokens_per_second) return;
    if (at == SWEEP_SHOWN) at--;
    for (; at > 0 && s->best[at - 1].tokens_per_second < row->tokens_per_second; at--)
        s->best[at] = s->best[at - 1];
    s->best[at] = *row;
    if (s->count < SWEEP_SHOWN) s->count++;
}

/* Estimates a combination of settings, and lists it if it fits and is fast. False if it does not fit. */
static bool try_row(const search *s, sweep_row *row) {
    config cfg = *s->base->cfg;
    estimate e;
    count_request r = *s->base;
    cfg.train.activation_checkpointing = row->checkpointing;
    cfg.train.batch_size = row->batch_size;
    cfg.train.grad_accum_steps = row->grad_accum;
    r.cfg = &cfg;
    r.mesh = &row->mesh;
    s->out->tried++;
    if (estimate_run(&r, &e) != OTT_OK || e.shortfall > 0) return false;
    s->out->fitting++;
    row->bytes = e.need.total;
    row->step_seconds = e.step_seconds;
    row->tokens_per_second = e.tokens_per_second;
    row->mfu = e.mfu;
    insert_row(s->out, row);
    return true;
}

/* Tries ways to split a rank's sequences into micro-batches. A micro-batch has at most twice the requested
   tokens per rank. With a pipeline, there are at least as many micro-batches as stages. */
static void try_candidate(const search *s, const candidate *c) {
    const mesh *m = &c->mesh;
    int64_t largest = 2 * s->base->cfg->train.batch_size * m->size[MESH_TP] * m->size[MESH_CP];
    sweep_row row = {.mesh = *m, .checkpointing = c->checkpointing};
    row.fp8_tensor = s->base->cfg->train.mixed_precision == PRECISION_FP8 && m->size[MESH_TP] > 1;
    int fitting = 0, tried = 0;
    for (int64_t parts = m->size[MESH_PP]; parts <= c->sequences; parts++) {
        if (!splits_evenly(parts, c->sequences) || c->sequences / parts > largest) continue;
        if (fitting == BATCHES_FITTING || tried++ == BATCHES_TRIED) return;
        row.batch_size = c->sequences / parts;
        row.grad_accum = parts;
        fitting += try_row(s, &row);
    }
}

/* Tries candidates by ascending lower bound of their time. Stops when the rest cannot be among the best. */
static void try_all(search *s) {
    const sweep *found = s->out;
    for (int i = 0; i < s->count && found->tried < MOST_TRIED; i++) {
        bool full = found->count == SWEEP_SHOWN;
        if (full && s->candidates[i].least >= found->best[SWEEP_SHOWN - 1].step_seconds) return;
        try_candidate(s, &s->candidates[i]);
    }
}

ott_status sweep_run(const count_request *r, const estimate *asked, sweep *out) {
    const config *cfg = r->cfg;
    device_memory memory;
    mesh m = *r->mesh;
    void *candidates;
    *out = (sweep){0};
    device_read_memory(r->machine->like, &memory);
    TRY(mem_alloc_array(r->account, MEM_OTHER, MOST_CANDIDATES, sizeof(candidate), "meshes to try",
                        &candidates));
    search s = {.base = r,
                .asked = asked,
                .out = out,
                .candidates = candidates,
                .available = (double)memory.limit.left};
    s.sequences = cfg->train.batch_size * cfg->train.grad_accum_steps * mesh_group_size(&m, MESH_DATA);
    add_meshes(&s, &m, 0, mesh_ranks(r->mesh));
    qsort(s.candidates, (size_t)s.count, sizeof *s.candidates, compare_results);
    try_all(&s);
    mem_free(r->account, candidates);
    return OTT_OK;
}

void sweep_show(const sweep_row *row, char text[SWEEP_TEXT]) {
    const key_choice *words = table_find("train.activation_checkpointing")->choices;
    const int64_t *size = row->mesh.size;
    char others[96] = "";
    int length = 0;
    const struct {
        const char *name;
        int64_t size;
    } dimensions[] = {{"pp", size[MESH_PP]}, {"cp", size[MESH_CP]}, {"tp", size[MESH_TP]}};
    for (size_t i = 0; i < sizeof dimensions / sizeof *dimensions; i++)
        if (dimensions[i].size > 1)
            length += snprintf(others + length, sizeof others - (size_t)length, "--distributed.%s=%lld ",
                               dimensions[i].name, (long long)dimensions[i].size);
    snprintf(text, SWEEP_TEXT,
             "%s--distributed.dp_shard=%lld --distributed.dp_replicate=%lld %s"
             "--train.activation_checkpointing=%s --train.batch_size=%lld --train.grad_accum_steps=%lld",
             others, (long long)size[MESH_DP_SHARD], (long long)size[MESH_DP_REPLICATE],
             row->fp8_tensor ? "--float8.tensor_parallel=true " : "", words[row->checkpointing].text,
             (long long)row->batch_size, (long long)row->grad_accum);
}
