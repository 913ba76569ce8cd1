/* checkpoint/snapshot: takes and stages snapshots. */
#include "checkpoint/snapshot.h"
#include "checkpoint/float8.h"

static ott_status describe_sets(const model *m, const config *cfg, const char *recipe_name,
                                const run_state *run, checkpoint_snapshot *out) {
    bool all = ranks_size(&out->ranks) > 1;
    checkpoint_state_describe(&m->options, &out->state);
    out->excludes_base = m->options.base != NULL;
    out->state.base = m->base;
    TRY(tensor_set_of_model(&out->sets[CHECKPOINT_MODEL], m, out->excludes_base));
    /* With checkpoint.save_model_only, the last checkpoint has no optimizer state. */
    if (cfg->checkpoint.save_model_only && run->step >= cfg->train.max_steps)
        TRY(tensor_set_open(&out->sets[CHECKPOINT_OPTIMIZER], m->device->account, 1));
    else
        TRY(tensor_set_of_optimizer(&out->sets[CHECKPOINT_OPTIMIZER], m));
    TRY(checkpoint_float8_describe(m, recipe_name, all, &out->sets[CHECKPOINT_FLOAT8]));
    TRY(config_write_toml(cfg, &out->config));
    return str_finish(&out->config);
}

ott_status checkpoint_snapshot_take(const model *m, const config *cfg, const char *recipe_name,
                                    const run_state *run, group *ranks, checkpoint_snapshot *out) {
    mem *account = m->device->account;
    *out = (checkpoint_snapshot){.account = account,
                                 .ranks = {ranks, m->device},
                                 .config.account = account,
                                 .history.account = account,
                                 .state.run = *run};
    TRY(ranks_agree(&out->ranks, describe_sets(m, cfg, recipe_name, run, out)));
    /* Fails if a parameter, or its optimizer state, is on no rank. FP8 state may be missing. */
    for (int id = 0; id < CHECKPOINT_CONFIG; id++) {
        int64_t count = out->sets[id].count;
        TRY(tensor_set_agree(&out->sets[id], &out->ranks));
        STATUS_REQUIRE(id == CHECKPOINT_FLOAT8 || out->sets[id].count == count);
    }
    return OTT_OK;
}

static int64_t slice_bytes(const tensor_set *set, int64_t i) {
    return tensor_slice_elements(&set->slices[i]) * dtype_bytes(set->declared[i].dtype);
}

int64_t checkpoint_snapshot_bytes(const checkpoint_snapshot *s) {
    int64_t bytes = 0;
    for (int id = 0; id < CHECKPOINT_CONFIG; id++)
        for (int64_t i = 0; i < s->sets[id].count; i++)
            if (!s->sets[id].slices[i].on_host) bytes += slice_bytes(&s->sets[id], i);
    return bytes;
}

ott_status checkpoint_snapshot_stage(checkpoint_snapshot *s, void *memory) {
    char *to = memory;
    for (int id = 0; id < CHECKPOINT_CONFIG; id++)
        for (int64_t i = 0; i < s->sets[id].count; i++) {
            tensor_slice *p = &s->sets[id].slices[i];
            int64_t bytes = slice_bytes(&s->sets[id], i);
            if (p->on_host || bytes == 0) continue;
            TRY(device_copy_out(s->ranks.device, to, p->data, bytes));
            p->data = to;
            p->on_host = true;
            to += bytes;
        }
    return OTT_OK;
}

void checkpoint_snapshot_close(checkpoint_snapshot *s) {
    for (int id = 0; id < CHECKPOINT_CONFIG; id++) tensor_set_close(&s->sets[id]);
    if (s->account) str_free(&s->config);
    if (s->account) str_free(&s->history);
    *s = (checkpoint_snapshot){0};
}
