/* model/storage: formats and memory of a model's parameters. */
#include "model/storage.h"
#include "model/convert.h"
#include "tensor/rules/moment.h"

/* ---- frozen matrices ---- */

static granularity granularity_from(kind_frozen_granularity asked, granularity by_recipe) {
    switch (asked) {
    case FROZEN_RECIPE: break;
    case FROZEN_TENSOR: return GRANULARITY_TENSOR;
    case FROZEN_CHANNEL: return GRANULARITY_ROW;
    case FROZEN_BLOCK: return GRANULARITY_128X128;
    }
    return by_recipe;
}

/* Chooses how a module's frozen weight is stored in FP8. *cast: as the layer's recipe casts its weight.
   *kept: false if the weight stays in high precision. */
static ott_status choose_cast(const model *m, const model_module *e, cast_spec *cast, bool *kept) {
    convert_verdict v = {.recipe = recipe_find("rowwise")};
    *kept = e->kind == MODULE_LINEAR && e->layer != MODULES_OUTSIDE && e->role != ROLE_ROUTER;
    if (!*kept) return OTT_OK;
    if (m->options.frozen_convert) {
        convert_options o = *m->options.frozen_convert;
        o.recipe = o.kept;
        o.for_storage = true;
        TRY(convert_judge(&o, e, m->options.layers, o.kept->activation, &v));
    }
    *kept = !*v.reason;
    *cast = frozen_cast_for(&v.recipe->weight.rowwise);
    cast->grain = granularity_from(m->options.frozen_granularity, cast->grain);
    return OTT_OK;
}

static ott_status keep_frozen(const model *m, const model_module *e) {
    parameter *p = e->weight;
    bool kept;
    cast_spec cast;
    if (p->rank == 1 || !p->frozen || e->tied) return OTT_OK;
    p->shard.value.dtype = m->options.frozen;
    if (m->options.frozen != OTT_E4M3) return OTT_OK;
    p->shard.value.dtype = OTT_BF16;
    TRY(choose_cast(m, e, &cast, &kept));
    return kept ? frozen_open(p, &cast, e->linear != NULL, m->names) : OTT_OK;
}

ott_status storage_keep_frozen(const model *m) {
    if (m->options.frozen == OTT_E4M3 && m->trained_count == m->all_parameter_count)
        return status_fail(OTT_ERR_CONFIG,
                           "train.frozen_dtype = fp8 has no effect: no parameter is frozen; name parameters "
                           "in train.freeze, or leave out train.frozen_dtype");
    for (int i = 0; i < m->all_modules.count; i++) TRY(keep_frozen(m, &m->all_modules.items[i]));
    return OTT_OK;
}

static int64_t scale_bytes(const model *m, const parameter *p) {
    return p->codes ? backend_align(m->device->can, frozen_local_bytes(p)) : 0;
}

static ott_status allocate_scales(model *m) {
    int64_t bytes = 0;
    for (int i = 0; i < m->parameter_count; i++) bytes += scale_bytes(m, &m->parameters[i]);
    if (bytes == 0) return OTT_OK;
    TRY(device_allocate(m->device, MEM_PARAM, bytes, "scales of frozen weights", &m->frozen_scales));
    char *at = m->frozen_scales;
    for (int i = 0; i < m->parameter_count; i++) {
        parameter *p = &m->parameters[i];
        if (p->codes) p->codes->local = (float *)(void *)at;
        at += scale_bytes(m, p);
    }
    return OTT_OK;
}

/* ---- units: embeddings, each block, final norm and head; a stage without them has empty units ---- */

/* With expert parallelism, expert weights have their own store, because fewer ranks share them. */
static parameter_store *store_of(model *m, const parameter *p) {
    return m->options.expert_ranks && p->of_experts ? &m->experts : &m->store;
}

static store_unit *unit_of(model *m, const model_module *e) {
    int unit = e->layer != MODULES_OUTSIDE   ? model_block_unit(e->layer)
               : e->kind == MODULE_EMBEDDING ? MODEL_TABLE_UNIT
                                             : model_last_unit(m);
    return &store_of(m, e->weight)->units[unit];
}

/* Adds the parameters first[count] to unit `unit`, each parameter in its store. */
static ott_status give_unit(model *m, int unit, parameter *first, int count) {
    parameter_store *stores[] = {&m->store, &m->experts};
    for (int i = 0; i < 2 && count > 0; i++) {
        if (!stores[i]->units) continue;
        store_unit *u = &stores[i]->units[unit];
        TRY(arena_alloc(m->names, count * (int64_t)sizeof *u->parameters, &u->parameters));
        for (int k = 0; k < count; k++)
            if (store_of(m, &first[k]) == stores[i]) u->parameters[u->parameter_count++] = &first[k];
    }
    return OTT_OK;
}

static ott_status give_parameters(model *m) {
    parameter *last = m->final_norm.weight;
    TRY(give_unit(m, MODEL_TABLE_UNIT, m->embedding.weight,
                  (m->embedding.weight != NULL) + (m->position_embedding.weight != NULL)));
    m->store.units[MODEL_TABLE_UNIT].is_table = true;
    for (int64_t i = 0; i < m->options.layers; i++)
        TRY(give_unit(m, model_block_unit(i), m->blocks[i].parameters, m->blocks[i].parameter_count));
    return give_unit(m, model_last_unit(m), last,
                     last ? (int)(m->parameters + m->parameter_count - last) : 0);
}

static ott_status give_weights(model *m) {
    for (int pass = 0; pass < 2; pass++) /* pass 0 counts, pass 1 fills */
        for (int i = 0; i < m->modules.count; i++) {
            const model_module *e = &m->modules.items[i];
            if (e->kind != MODULE_LINEAR) continue;
            store_unit *u = unit_of(m, e);
            void *memory = u->weights;
            if (pass == 1 && !memory) {
                TRY(arena_alloc(m->names, u->weight_count * (int64_t)sizeof *u->weights, &memory));
                u->weights = memory;
                u->weight_count = 0;
            }
            if (pass == 1) u->weights[u->weight_count] = &e->linear->source;
            u->weight_count++;
        }
    return OTT_OK;
}

static ott_status open_units(const model *m, parameter_store *s) {
    s->unit_count = model_last_unit(m) + 1;
    return arena_alloc(m->names, s->unit_count * (int64_t)sizeof *s->units, &s->units);
}

/* ---- shards and their memory ---- */

static int64_t padded_bytes(const model *m, tensor t) {
    return backend_align(m->device->can, tensor_bytes(t));
}

/* Returns a tensor with the shape of p's shard and no data. Its format is `format`, or fp32 for a vector. */
static tensor shard_in(const parameter *p, ott_dtype format) {
    tensor t = p->shard.value;
    t.dtype = parameter_format(p, format);
    t.data = NULL;
    return t;
}

/* Returns the tensor, without data, of one FP8 state's scales. It has 0 rows if the state is not FP8. */
static tensor shard_group_scales(const model *m, const parameter *p) {
    const tensor *t = &p->shard.value;
    bool is_grouped = parameter_format(p, m->options.state) == OTT_E4M3;
    return tensor_matrix(NULL, OTT_F32, is_grouped ? t->rows : 0, moment_scale_count(t->columns));
}

static int slots_of(const model *m, const parameter *p) {
    return m->options.optimizer ? optimizer_slots(m->options.optimizer, p) : 0;
}

/* True if p's master is in host memory. Vectors stay on the device, where layers read them directly. */
static bool master_is_offloaded(const model *m, const parameter *p) {
    return m->options.offload == OFFLOAD_STATE && p->rank > 1 && !p->frozen;
}

/* Shards the parameters and adds up the bytes of this rank's shards. */
static ott_status divide_parameters(model *m) {
    for (int i = 0; i < m->parameter_count; i++) {
        parameter *p = &m->parameters[i];
        TRY(store_divide(store_of(m, p), m->names, p));
        *(master_is_offloaded(m, p) ? &m->master_bytes : &m->block_bytes) += padded_bytes(m, p->shard.value);
        if (p->frozen) continue;
        tensor grad = shard_in(p, m->options.gradient);
        m->trained_bytes += padded_bytes(m, grad);
        if (grad.dtype == OTT_F32) m->trained_f32_bytes += padded_bytes(m, grad);
        for (int k = 0; k < slots_of(m, p); k++)
            m->slot_bytes[k] +=
                padded_bytes(m, shard_in(p, m->options.state)) + padded_bytes(m, shard_group_scales(m, p));
    }
    return OTT_OK;
}

/* Returns `t` with data at memory + *at, if memory is not NULL. Adds the size of `t` to *at. */
static tensor next_in(const model *m, tensor t, void *memory, int64_t *at) {
    if (memory) t.data = (char *)memory + *at;
    *at += padded_bytes(m, t);
    return t;
}

static ott_status allocate_trained(model *m) {
    device *d = m->device;
    if (m->trained_count == 0)
        return status_fail(OTT_ERR_CONFIG, "train.freeze covers every parameter: nothing is left to train");
    TRY(device_allocate(d, MEM_GRAD, m->trained_bytes, "gradients", &m->grads));
    for (int i = 0; i < PARAMETER_SLOTS; i++)
        if (m->slot_bytes[i] > 0)
            TRY((m->options.offload == OFFLOAD_NONE ? device_allocate : device_allocate_mapped)(
                d, MEM_OPTIMIZER, m->slot_bytes[i], m->options.optimizer->slot[i], &m->slot[i]));
    return OTT_OK;
}

/* Assigns memory to gradients and state. fp32 gradients come before bf16 gradients. */
static void view_trained(model *m) {
    int64_t wide = 0, narrow = m->trained_f32_bytes, slot[PARAMETER_SLOTS] = {0};
    for (int i = 0; i < m->parameter_count; i++) {
        parameter *p = &m->parameters[i];
        ott_dtype gradient = parameter_format(p, m->options.gradient);
        if (p->frozen) continue;
        p->shard.grad = next_in(m, shard_in(p, gradient), m->grads, gradient == OTT_F32 ? &wide : &narrow);
        for (int k = 0; k < slots_of(m, p); k++) {
            p->shard.slot[k] = next_in(m, shard_in(p, m->options.state), m->slot[k], &slot[k]);
            p->shard.group_scales[k] = next_in(m, shard_group_scales(m, p), m->slot[k], &slot[k]);
        }
    }
}

static ott_status allocate_shards(model *m, model_use use) {
    int64_t offset = 0, master_offset = 0;
    TRY(device_allocate(m->device, MEM_PARAM, m->block_bytes, "parameters", &m->values));
    if (m->master_bytes)
        TRY(device_allocate_mapped(m->device, MEM_PARAM, m->master_bytes, "master weights", &m->masters));
    TRY(allocate_scales(m));
    if (use == MODEL_TRAINING) TRY(allocate_trained(m));
    for (int i = 0; i < m->parameter_count; i++) {
        parameter *p = &m->parameters[i];
        bool offloaded = master_is_offloaded(m, p);
        p->shard.value = next_in(m, shard_in(p, p->shard.value.dtype), offloaded ? m->masters : m->values,
                                 offloaded ? &master_offset : &offset);
    }
    view_trained(m);
    for (int i = 0; i < m->parameter_count; i++)
        if (!m->parameters[i].shard.rows_per_rank) parameter_use_shard(&m->parameters[i]);
    return OTT_OK;
}

ott_status storage_open(model *m, model_use use) {
    TRY(open_units(m, &m->store));
    if (m->options.expert_ranks) {
        m->store.expert_store = &m->experts;
        TRY(open_units(m, &m->experts));
        TRY(expert_ranks_open(&m->expert_ranks, m->names, m->options.expert_ranks, m->options.moe.experts));
    }
    TRY(give_parameters(m));
    TRY(give_weights(m));
    TRY(store_open(&m->experts, m->names));
    TRY(store_open(&m->store, m->names));
    TRY(divide_parameters(m));
    return allocate_shards(m, use);
}
