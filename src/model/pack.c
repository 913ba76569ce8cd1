/* model/pack: packs the linear layers' weights, and moves the other parameters to a smaller allocation. */
#include "model/pack.h"

/* Packs the weights. Then a master is not needed, except as the embedding that a tied head shares. */
static ott_status pack_weights(exec *cx, model *m) {
    int at = 0;
    for (linear *l; (l = model_next_linear(m, &at));) {
        TRY(weight_pack(cx, &l->source, &m->packed_weights));
        if (l->source.kind == &weight_packed && l->weight != m->embedding.weight)
            l->weight->value.data = l->weight->shard.value.data = NULL;
    }
    return OTT_OK;
}

/* Moves the parameters whose values are still needed to `store` (unless NULL). *bytes: their total size. */
static ott_status move_parameters(model *m, void *store, int64_t *bytes) {
    *bytes = 0;
    for (int i = 0; i < m->parameter_count; i++) {
        parameter *q = &m->parameters[i];
        int64_t at = *bytes, own = tensor_bytes(q->value);
        if (!q->value.data) continue;
        *bytes += backend_align(m->device->can, own);
        if (!store) continue;
        TRY(device_copy(m->device, (char *)store + at, q->value.data, own));
        q->value.data = q->shard.value.data = (char *)store + at;
    }
    return OTT_OK;
}

ott_status model_pack(model *m) {
    int64_t bytes;
    void *store;
    exec cx = {.device = m->device};
    m->packed = true;
    TRY(plan_create(m->device, &cx.plan));
    plan_immediate(cx.plan);
    ott_status status = pack_weights(&cx, m);
    plan_destroy(cx.plan);
    if (status != OTT_OK) return status;
    TRY(move_parameters(m, NULL, &bytes));
    TRY(device_allocate(m->device, MEM_PARAM, bytes, "parameters", &store));
    status = move_parameters(m, store, &bytes);
    if (status == OTT_OK) status = device_synchronize(m->device);
    if (status != OTT_OK) return device_release(m->device, store), status;
    device_release(m->device, m->values);
    m->values = store;
    m->block_bytes = bytes;
    return OTT_OK;
}
