/* checkpoint/snapshot: taking and staging. */
#include "checkpoint/snapshot.h"
#include "checkpoint/float8.h"

/* What the last checkpoint of a run may do without. */
static ott_status describe_optimizer(const model *m, const config *cfg, const run_state *run,
                                     tensor_set *set) {
    bool last = run->step >= cfg->train.max_steps;
    if (last && cfg->checkpoint.save_model_only) return tensor_set_open(set, m->device->account, 1);
    return tensor_set_of_optimizer(set, m);
}

ott_status checkpoint_snapshot_take(const model *m, const config *cfg, const char *recipe_name,
                                    const run_state *run, checkpoint_snapshot *out) {
    mem *account = m->device->account;
    STATUS_REQUIRE(!m->store.ranks); /* a part is no checkpoint */
    *out = (checkpoint_snapshot){.account = account,
                                 .device = m->device,
                                 .config.account = account,
                                 .history.account = account,
                                 .state.run = *run};
    checkpoint_state_describe(&m->options, &out->state);
    TRY(tensor_set_of_model(&out->sets[CHECKPOINT_MODEL], m));
    TRY(describe_optimizer(m, cfg, run, &out->sets[CHECKPOINT_OPTIMIZER]));
    TRY(checkpoint_float8_describe(m, recipe_name, &out->sets[CHECKPOINT_FLOAT8]));
    TRY(config_write_toml(cfg, &out->config));
    return str_finish(&out->config);
}

int64_t checkpoint_snapshot_bytes(const checkpoint_snapshot *s) {
    int64_t bytes = 0;
    for (int id = 0; id < CHECKPOINT_CONFIG; id++)
        for (int64_t i = 0; i < s->sets[id].count; i++)
            if (!s->sets[id].places[i].on_host) bytes += s->sets[id].places[i].bytes;
    return bytes;
}

static ott_status stage_set(checkpoint_snapshot *s, tensor_set *set, char **to) {
    for (int64_t i = 0; i < set->count; i++) {
        tensor_place *p = &set->places[i];
        if (p->on_host) continue;
        TRY(device_copy_out(s->device, *to, p->data, p->bytes));
        *p = (tensor_place){.data = *to, .bytes = p->bytes, .on_host = true};
        *to += p->bytes;
    }
    return OTT_OK;
}

ott_status checkpoint_snapshot_stage(checkpoint_snapshot *s, void *memory) {
    char *to = memory;
    for (int id = 0; id < CHECKPOINT_CONFIG; id++) TRY(stage_set(s, &s->sets[id], &to));
    return OTT_OK;
}

void checkpoint_snapshot_close(checkpoint_snapshot *s) {
    for (int id = 0; id < CHECKPOINT_CONFIG; id++) tensor_set_close(&s->sets[id]);
    if (s->account) str_free(&s->config);
    if (s->account) str_free(&s->history);
    *s = (checkpoint_snapshot){0};
}
