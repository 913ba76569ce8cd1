/* model/pack: packing the linear layers' weights, and moving the parameters that stay into a block of their
 * own. */
#include "model/pack.h"

typedef struct packing {
    exec cx;
    const model *m;
} packing;

/* A packed layer's master is gone for everybody; a tied head's is the embedding's, which goes on reading it.
 */
static ott_status pack_linear(void *user, linear *l) {
    packing *p = user;
    TRY(linear_pack(&p->cx, l));
    if (l->weight != p->m->embedding.weight) l->weight->value.data = l->weight->shard.value.data = NULL;
    return OTT_OK;
}

/* Copies the parameters that are left to `store`, NULL: only counts. *bytes: what they take. */
static ott_status move_parameters(packing *p, void *store, int64_t *bytes) {
    *bytes = 0;
    for (int i = 0; i < p->m->parameter_count; i++) {
        parameter *q = &p->m->parameters[i];
        tensor moved = q->value;
        if (!moved.data) continue;
        int64_t at = *bytes;
        *bytes += backend_align(p->m->device->can, tensor_bytes(moved));
        if (!store) continue;
        moved.data = (char *)store + at;
        TRY(op_convert(&p->cx, &(convert_args){.x = &q->value, .y = &moved}));
        q->value = q->shard.value = moved;
    }
    return OTT_OK;
}

ott_status model_pack(model *m) {
    packing p = {.cx = {.device = m->device}, .m = m};
    int64_t bytes;
    void *store;
    m->packed = true;
    TRY(model_visit_linears(m, pack_linear, &p));
    TRY(move_parameters(&p, NULL, &bytes));
    TRY(device_allocate(m->device, MEM_PARAM, bytes, "parameters", &store));
    ott_status status = move_parameters(&p, store, &bytes);
    if (status == OTT_OK) status = device_synchronize(m->device);
    if (status != OTT_OK) {
        device_release(m->device, store);
        return status;
    }
    device_release(m->device, m->values);
    m->values = store;
    m->block_bytes = bytes;
    return OTT_OK;
}
