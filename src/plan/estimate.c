/* plan/estimate: combines the counts of a run's stages. */
#include "plan/estimate.h"
#include "plan/stages.h"

double estimate_peak(const machine *m, const config *cfg) {
    return m->rate.peak[m->is_local && cfg->train.mixed_precision == PRECISION_FP32 ? WORK_FP32 : WORK_BF16];
}

/* BETWEEN: stage 1, for all middle stages. None has more layers or more micro-batches in flight. */
enum { FIRST, BETWEEN, LAST, KINDS_OF_STAGE };

typedef struct stage_counts {
    int64_t stages;
    rank_count counts[KINDS_OF_STAGE];
} stage_counts;

static int stage_kind(const stage_counts *s, int64_t at) {
    return at == 0 ? FIRST : at == s->stages - 1 ? LAST : BETWEEN;
}

static int64_t stage_of(const stage_counts *s, int kind) {
    return kind == LAST ? s->stages - 1 : kind;
}

static bool has_stage_kind(const stage_counts *s, int kind) {
    return stage_kind(s, stage_of(s, kind)) == kind;
}

static void choose_stages(const stage_counts *s, estimate *e) {
    for (int kind = FIRST; kind < KINDS_OF_STAGE; kind++) {
        const rank_count *c = &s->counts[kind];
        if (!has_stage_kind(s, kind)) continue;
        if (kind == FIRST || c->need.total > e->need.total) {
            e->need = c->need;
            e->fullest = stage_of(s, kind);
        }
        if (kind == FIRST || count_step(c, e->micro_batches) > count_step(&e->rank, e->micro_batches)) {
            e->rank = *c;
            e->slowest = stage_of(s, kind);
        }
    }
}

/* *out = seconds of all micro-batches through all stages. */
static ott_status time_pipeline(const count_request *r, const stage_counts *s, int64_t micro_batches,
                                double *out) {
    config_pp_schedule schedule = r->cfg->distributed.pp_schedule;
    int chunks = schedule == PP_INTERLEAVED_1F1B ? PIPELINE_INTERLEAVED_CHUNKS : 1;
    const pipeline_stage shape = {schedule, (int)s->stages, 0, chunks};
    stage_times *times;
    TRY(mem_alloc_array(r->account, MEM_OTHER, s->stages, sizeof(stage_times), "times of stages", &times));
    for (int64_t i = 0; i < s->stages; i++) {
        const rank_count *c = &s->counts[stage_kind(s, i)];
        times[i] = (stage_times){c->forward / chunks, c->backward / chunks, c->message};
    }
    ott_status status = stages_run(r->account, &shape, micro_batches, times, out);
    mem_free(r->account, times);
    return status;
}

static ott_status sum_up(const count_request *r, const stage_counts *s, estimate *e) {
    const rank_count *c = &e->rank;
    double busy = count_busy(c, e->micro_batches), passes = busy;
    if (s->stages > 1) TRY(time_pipeline(r, s, e->micro_batches, &passes));
    e->bubble_seconds = passes > busy ? passes - busy : 0;
    e->waiting_seconds = (double)e->micro_batches * c->waiting + c->once_waiting;
    e->compute_seconds = count_step(c, e->micro_batches) - e->waiting_seconds;
    e->step_seconds = e->compute_seconds + e->waiting_seconds + e->bubble_seconds;
    int64_t readers = mesh_group_size(r->mesh, MESH_DATA);
    e->tokens = r->cfg->train.batch_size * r->cfg->train.seq_len * e->micro_batches * readers;
    e->tokens_per_second = (double)e->tokens / e->step_seconds;
    e->mfu =
        e->tokens_per_second * c->flops_per_token / ((double)e->ranks * estimate_peak(r->machine, r->cfg));
    return OTT_OK;
}

ott_status estimate_run(const count_request *r, estimate *out) {
    stage_counts s = {.stages = r->mesh->size[MESH_PP]};
    device_memory memory;
    *out = (estimate){.ranks = mesh_ranks(r->mesh), .micro_batches = r->cfg->train.grad_accum_steps};
    for (int kind = 0; kind < KINDS_OF_STAGE; kind++)
        if (has_stage_kind(&s, kind)) TRY(count_run(r, stage_of(&s, kind), &s.counts[kind]));
    choose_stages(&s, out);
    device_read_memory(r->machine->like, &memory);
    out->shortfall = memory.limit.left == INT64_MAX
                         ? -INT64_MAX
                         : out->need.total - device_taken(r->machine->like).now - memory.limit.left;
    return sum_up(r, &s, out);
}

ott_status estimate_advise(const count_request *r, const estimate *e, advice *out) {
    process_group pg = {0};
    model_options shape;
    memory_check check;
    int64_t need = e->need.total;
    ott_status status = count_open_rank(r, e->fullest, &pg, &shape, &check);
    if (status == OTT_OK) status = memory_check_compare_fp8(&check, need, &out->fp8);
    if (status == OTT_OK && e->shortfall > 0)
        status = memory_check_suggest(&check, need, need - e->shortfall, &out->suggestions);
    process_group_close(&pg);
    return status;
}
