/* plan/sweep: trying settings. */
#include "plan/sweep.h"
#include "base/str.h"
#include "config/table.h"
#include <stdio.h>
#include <string.h>

static void insert_row(sweep *s, const sweep_row *row) {
    int at = s->count;
    if (at == SWEEP_SHOWN && s->best[at - 1].tokens_per_second >= row->tokens_per_second) return;
    if (at == SWEEP_SHOWN) at--;
    for (; at > 0 && s->best[at - 1].tokens_per_second < row->tokens_per_second; at--)
        s->best[at] = s->best[at - 1];
    s->best[at] = *row;
    if (s->count < SWEEP_SHOWN) s->count++;
}

/* What does not go with the rest of the configuration is no candidate. */
static bool try_row(const estimate_request *base, const model_options *shape, sweep_row *row, sweep *s) {
    config cfg = *base->cfg;
    estimate e;
    estimate_request r = *base;
    cfg.train.activation_checkpointing = row->checkpointing;
    cfg.train.batch_size = row->batch_size;
    cfg.train.grad_accum_steps = row->grad_accum;
    r.cfg = &cfg;
    r.shape = shape;
    r.mesh = &row->mesh;
    r.look = NULL;
    s->tried++;
    if (estimate_run(&r, &e) != OTT_OK || e.lack > 0) return false;
    s->fitting++;
    row->bytes = e.need.total;
    row->step_seconds = e.step_seconds;
    row->tokens_per_second = e.tokens_per_second;
    row->mfu = e.mfu;
    insert_row(s, row);
    return true;
}

/* The step's sequences of a rank in micro-batches as large as fit, and half of that. */
static void try_batches(const estimate_request *base, const model_options *shape, sweep_row *row, sweep *s) {
    int64_t sequences = base->cfg->train.batch_size * base->cfg->train.grad_accum_steps;
    int fitting = 0;
    for (int64_t parts = 1; parts <= sequences && fitting < 2; parts++) {
        if (sequences % parts != 0) continue;
        row->batch_size = sequences / parts;
        row->grad_accum = parts;
        fitting += try_row(base, shape, row, s);
    }
}

static void try_checkpointing(const estimate_request *base, const model_options *shape, const mesh *m,
                              sweep *s) {
    static const config_checkpointing kinds[] = {CHECKPOINTING_NONE, CHECKPOINTING_SELECTIVE,
                                                 CHECKPOINTING_FULL};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        sweep_row row = {.mesh = *m, .checkpointing = kinds[i]};
        try_batches(base, shape, &row, s);
    }
}

static ott_status try_mesh(const estimate_request *base, const mesh *m, sweep *s) {
    model_options shape = *base->shape;
    shape.shard_ranks = NULL;
    if (m->size[MESH_DP_SHARD] > 1)
        TRY(dry_run_group_open(base->account, 0, (int)m->size[MESH_DP_SHARD], &shape.shard_ranks));
    try_checkpointing(base, &shape, m, s);
    group_close(shape.shard_ranks);
    return OTT_OK;
}

/* Ranks that read other rows hold shards of one copy of the model, or of several. */
ott_status sweep_run(const estimate_request *r, sweep *out) {
    int64_t readers = mesh_group_size(r->mesh, MESH_DATA);
    *out = (sweep){0};
    for (int64_t shards = 1; shards <= readers; shards++) {
        mesh m = *r->mesh;
        if (readers % shards != 0) continue;
        m.size[MESH_DP_SHARD] = shards;
        m.size[MESH_DP_REPLICATE] = readers / shards;
        TRY(try_mesh(r, &m, out));
    }
    return OTT_OK;
}

void sweep_show(const sweep_row *row, char text[256]) {
    const key_choice *words = table_find("train.activation_checkpointing")->choices;
    snprintf(
        text, 256,
        "--distributed.dp_shard=%lld --distributed.dp_replicate=%lld --train.activation_checkpointing=%s "
        "--train.batch_size=%lld --train.grad_accum_steps=%lld",
        (long long)row->mesh.size[MESH_DP_SHARD], (long long)row->mesh.size[MESH_DP_REPLICATE],
        words[row->checkpointing].text, (long long)row->batch_size, (long long)row->grad_accum);
}
