/* checkpoint/tensors: making the sets of a model's parameters and moments. */
#include "checkpoint/tensors.h"

ott_status tensor_set_open(tensor_set *set, mem *account, int64_t capacity) {
    void *memory;
    *set = (tensor_set){.capacity = capacity};
    TRY(arena_open(account, MEM_OTHER, &set->memory));
    TRY(arena_alloc(set->memory, capacity * (int64_t)sizeof *set->declared, &memory));
    set->declared = memory;
    TRY(arena_alloc(set->memory, capacity * (int64_t)sizeof *set->places, &memory));
    set->places = memory;
    return OTT_OK;
}

void tensor_set_close(tensor_set *set) {
    arena_close(set->memory);
    *set = (tensor_set){0};
}

ott_status tensor_set_add(tensor_set *set, const safetensors_tensor *declared, void *data, bool on_host) {
    int64_t bytes = sizeof(float);
    STATUS_REQUIRE(set->count < set->capacity && data && declared->dtype == OTT_F32);
    for (int i = 0; i < declared->rank; i++) bytes *= declared->shape[i];
    set->declared[set->count] = *declared;
    set->places[set->count++] = (tensor_place){.data = data, .bytes = bytes, .on_host = on_host};
    return OTT_OK;
}

/* slot: which of the optimizer's, NULL: the value itself. */
static ott_status add_parameter(tensor_set *set, const parameter *p, const char *slot, const tensor *value) {
    safetensors_tensor t = {.dtype = OTT_F32, .rank = p->rank};
    STATUS_REQUIRE(value->dtype == OTT_F32 && value->ld == value->columns);
    TRY(arena_printf(set->memory, &t.name, slot ? "%s.%s" : "%s", p->name, slot));
    t.shape[0] = p->rank == 2 ? p->rows : p->columns;
    if (p->rank == 2) t.shape[1] = p->columns;
    return tensor_set_add(set, &t, value->data, false);
}

ott_status tensor_set_of_model(tensor_set *set, const model *m) {
    TRY(tensor_set_open(set, m->device->account, m->parameter_count));
    for (int i = 0; i < m->parameter_count; i++)
        TRY(add_parameter(set, &m->parameters[i], NULL, &m->parameters[i].value));
    return OTT_OK;
}

ott_status tensor_set_of_optimizer(tensor_set *set, const model *m) {
    const optimizer_rule *rule = m->options.optimizer;
    TRY(tensor_set_open(set, m->device->account, (int64_t)rule->slots * m->parameter_count));
    for (int i = 0; i < m->parameter_count; i++) {
        const parameter *p = &m->parameters[i];
        for (int j = 0; !p->frozen && j < rule->slots; j++)
            TRY(add_parameter(set, p, rule->slot[j], &p->slot[j]));
    }
    return OTT_OK;
}
