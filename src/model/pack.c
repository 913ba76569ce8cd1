/* model/pack: packs the linear layers' weights, and moves the other parameters to a smaller allocation. */
#include "model/pack.h"

typedef struct packing {
    exec cx;
    model *m;
} packing;

/* Packs a layer's weight. Then the master is not needed, except as the embedding that a tied head shares. */
static ott_status pack_linear(void *user, linear *l) {
    packing *p = user;
    TRY(linear_pack(&p->cx, l, &p->m->packed_weights));
    if (l->packed.t.data && l->weight != p->m->embedding.weight)
        l->weight->value.data = l->weight->shard.value.data = NULL;
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

static ott_status pack_linears(model *m) {
    packing p = {.cx = {.device = m->device}, .m = m};
    TRY(plan_create(m->device, &p.cx.plan));
    plan_immediate(p.cx.plan);
    ott_status status = model_visit_linears(m, pack_linear, &p);
    plan_destroy(p.cx.plan);
    return status;
}

ott_status model_pack(model *m) {
    int64_t bytes;
    void *store;
    m->packed = true;
    TRY(pack_linears(m));
    TRY(move_parameters(m, NULL, &bytes));
    TRY(device_allocate(m->device, MEM_PARAM, bytes, "parameters", &store));
    ott_status status = move_parameters(m, store, &bytes);
    if (status == OTT_OK) status = device_synchronize(m->device);
    if (status != OTT_OK) return device_release(m->device, store), status;
    device_release(m->device, m->values);
    m->values = store;
    m->block_bytes = bytes;
    return OTT_OK;
}
