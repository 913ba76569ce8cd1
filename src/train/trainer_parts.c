/* train/trainer_parts: swaps averaged weights, and sums and gathers small values over ranks. */
#include "train/trainer_parts.h"

ott_status trainer_use_average(trainer *t, bool average) {
    const optimizer_rule *rule = t->m->options.optimizer;
    if (!rule->use_average || t->run.updates == 0) return OTT_OK;
    for (int i = 0; i < t->m->parameter_count; i++)
        if (!t->m->parameters[i].frozen)
            TRY(rule->use_average(&t->cx, &t->options.optimizer, &t->m->parameters[i], average));
    model_weights_changed(t->m);
    return OTT_OK;
}

ott_status trainer_sum_counts(trainer *t, group *g, int64_t *values, int64_t count) {
    t->host_exchange.group = g;
    return g->size == 1 ? OTT_OK : group_host_count(&t->host_exchange, values, count);
}

ott_status trainer_gather_values(trainer *t, group *g, float own, float *all) {
    tensor values = tensor_matrix(t->host_exchange.buffer, OTT_F32, g->size, 1),
           part = tensor_rows(values, g->rank, 1);
    TRY(device_copy_in(t->device, part.data, &own, sizeof own));
    TRY(group_run(g, &t->cx, &(collective){.kind = COLLECTIVE_ALL_GATHER, .input = part, .output = values}));
    return device_copy_out(t->device, all, values.data, g->size * (int64_t)sizeof *all);
}
