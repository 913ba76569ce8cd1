/* parallel/store: lists the tensors that each unit gathers, allocates scales and full gradients. */
#include "parallel/store.h"

ott_status store_open(parameter_store *s, arena *memory) {
    int ranks = store_ranks(s);
    if (ranks == 1) return OTT_OK;
    TRY(arena_alloc(memory, ranks * (int64_t)sizeof(int64_t), &s->reduction.rows));
    for (int i = 0; i < s->unit_count; i++) {
        store_unit *u = &s->units[i];
        TRY(arena_alloc(memory, ranks * (int64_t)sizeof(int64_t), &u->rows));
        int64_t most = u->parameter_count + WEIGHT_PARTS * (int64_t)u->weight_count;
        TRY(arena_alloc(memory, most * (int64_t)sizeof(weight_part), &u->parts));
    }
    return OTT_OK;
}

static void list_parts(const parameter_store *s, store_unit *u, ott_dtype table) {
    u->part_count = 0;
    for (int i = 0; i < u->parameter_count; i++) {
        parameter *p = u->parameters[i];
        bool is_weight = false;
        for (int k = 0; k < u->weight_count; k++) is_weight |= u->weights[k]->parameter == p;
        if (is_weight) continue;
        u->parts[u->part_count++] =
            (weight_part){.p = p,
                          .values = &p->value,
                          .format = u->is_table ? table : p->shard.value.dtype,
                          .uses = WEIGHT_ROWWISE | (u->is_table ? 0 : WEIGHT_COLUMNWISE)};
    }
    for (int i = 0; i < u->weight_count; i++)
        u->part_count +=
            weight_list_parts(u->weights[i], s->options.gather_masters, &u->parts[u->part_count]);
}

static void place_all_scales(parameter_store *s, weight_scales *memory) {
    for (int i = 0; i < s->unit_count; i++) {
        store_unit *u = &s->units[i];
        u->scale_first = memory->entries;
        for (int k = 0; k < u->weight_count; k++) weight_place_scales(u->weights[k], memory);
        u->scale_count = memory->entries - u->scale_first;
    }
}

static ott_status open_scales(parameter_store *s, device *d) {
    weight_scales sizes = {0};
    place_all_scales(s, &sizes);
    if (sizes.entries == 0) return OTT_OK;
    int64_t each = backend_align(d->can, dtype_count_bytes(OTT_F32, sizes.entries));
    TRY(device_allocate(d, MEM_WEIGHT, 2 * each + sizes.bytes, "scales of sharded weights", &s->scales));
    char *memory = s->scales;
    place_all_scales(s, &(weight_scales){.amax = s->scales,
                                         .scale = (float *)(void *)(memory + each),
                                         .scale_inv = memory + 2 * each});
    return OTT_OK;
}

static ott_status open_full_gradients(parameter_store *s, device *d) {
    s->full_count = 0;
    for (int i = 0; i < s->unit_count; i++) {
        store_unit *u = &s->units[i];
        u->full_first = s->full_count;
        for (int k = 0; k < u->parameter_count; k++) {
            const parameter *p = u->parameters[k];
            if (!p->frozen) s->full_count += p->local.rows * p->local.columns;
        }
    }
    if (!s->options.reduce_once || !s->micro_batches) return OTT_OK;
    return device_allocate(d, MEM_GRAD, s->full_count * (int64_t)sizeof(float), "gradients to reduce",
                           &s->full_gradients);
}

static void release_one(parameter_store *s, device *d) {
    device_release(d, s->scales);
    device_release(d, s->full_gradients);
    s->scales = s->full_gradients = NULL;
}

static ott_status set_one(parameter_store *s, device *d, ott_dtype table) {
    if (store_ranks(s) == 1) return OTT_OK;
    release_one(s, d);
    TRY(open_full_gradients(s, d));
    for (int i = 0; i < s->unit_count; i++) list_parts(s, &s->units[i], table);
    return open_scales(s, d);
}

ott_status store_set(parameter_store *s, device *d, ott_dtype table) {
    for (parameter_store *store = s; store; store = store->expert_store) {
        store->options = s->options;
        store->micro_batches = s->micro_batches;
        TRY(set_one(store, d, table));
    }
    return OTT_OK;
}

void store_close(parameter_store *s, device *d) {
    for (; s; s = s->expert_store) release_one(s, d);
}
