/* checkpoint/tensors: sets of tensors: making, checking and reading them. */
#include "checkpoint/tensors.h"
#include <string.h>

ott_status tensor_set_open(tensor_set *set, mem *account, int64_t capacity) {
    void *memory;
    *set = (tensor_set){.capacity = capacity};
    TRY(arena_open(account, MEM_OTHER, &set->memory));
    TRY(arena_alloc(set->memory, capacity * (int64_t)sizeof *set->declared, &memory));
    set->declared = memory;
    TRY(arena_alloc(set->memory, capacity * (int64_t)sizeof *set->places, &memory));
    set->places = memory;
    TRY(arena_alloc(set->memory, capacity * (int64_t)sizeof *set->metadata, &memory));
    set->metadata = memory;
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

ott_status tensor_set_note(tensor_set *set, const char *key, const char *value) {
    STATUS_REQUIRE(set->metadata_count < set->capacity);
    safetensors_pair *pair = &set->metadata[set->metadata_count];
    TRY(arena_strdup(set->memory, key, &pair->key));
    TRY(arena_strdup(set->memory, value, &pair->value));
    set->metadata_count++;
    return OTT_OK;
}

static ott_status add_value(tensor_set *set, const char *name, const parameter *p, const tensor *value) {
    safetensors_tensor t = {.name = name, .dtype = OTT_F32, .rank = p->rank};
    STATUS_REQUIRE(value->dtype == OTT_F32 && value->ld == value->columns);
    STATUS_REQUIRE(value->columns == p->columns || p->rows == 1);
    parameter_shape(p, t.shape);
    TRY(tensor_set_add(set, &t, value->data, false));
    tensor_place *place = &set->places[set->count - 1];
    place->first = parameter_shard_first(p) * (int64_t)sizeof(float);
    place->bytes = tensor_bytes(*value);
    return OTT_OK;
}

ott_status tensor_set_add_parameter(tensor_set *set, const char *name, const parameter *p) {
    const char *copy;
    TRY(arena_strdup(set->memory, name, &copy));
    return add_value(set, copy, p, &p->shard.value);
}

ott_status tensor_set_add_slots(tensor_set *set, const char *name, const parameter *p,
                                const optimizer_rule *rule) {
    for (int j = 0; j < rule->slots; j++) {
        const char *slot;
        TRY(arena_printf(set->memory, &slot, "%s.%s", name, rule->slot[j]));
        TRY(add_value(set, slot, p, &p->shard.slot[j]));
    }
    return OTT_OK;
}

/* ---- reading ---- */

static bool has_name(const tensor_set *set, const char *name) {
    for (int64_t i = 0; i < set->count; i++)
        if (strcmp(set->declared[i].name, name) == 0) return true;
    return false;
}

ott_status tensor_set_check(const tensor_set *set, const safetensors *f) {
    const safetensors_entry *e;
    for (int64_t i = 0; i < set->count; i++) {
        const safetensors_tensor *t = &set->declared[i];
        TRY(safetensors_expect(f, t->name, t->dtype, t->rank, t->shape, &e));
    }
    if (safetensors_count(f) == set->count) return OTT_OK;
    for (int64_t i = 0; i < safetensors_count(f); i++)
        if (!has_name(set, safetensors_at(f, i)->name))
            return status_fail(OTT_ERR_SHAPE, "%s: has a tensor %s, the module has none", safetensors_path(f),
                               safetensors_at(f, i)->name);
    return OTT_OK;
}

int64_t tensor_set_bytes(const tensor_set *set) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < set->count; i++) bytes += set->places[i].bytes;
    return bytes;
}

enum { BUFFER_BYTES = 1 << 18 };

static ott_status stream_in(const safetensors *f, const safetensors_entry *e, const tensor_place *to,
                            device *d, void *buffer, watched *progress, int64_t *done) {
    for (int64_t at = 0, piece; at < to->bytes; at += piece) {
        piece = to->bytes - at < BUFFER_BYTES ? to->bytes - at : BUFFER_BYTES;
        TRY(safetensors_read(f, e, to->first + at, piece, buffer));
        TRY(device_copy_in(d, (char *)to->data + at, buffer, piece));
        TRY(watch_done(progress, *done += piece));
    }
    return OTT_OK;
}

ott_status tensor_set_read(const tensor_set *set, const safetensors *f, device *d, watched *progress,
                           int64_t *done) {
    void *buffer;
    ott_status status = OTT_OK;
    TRY(mem_alloc(d->account, MEM_OTHER, BUFFER_BYTES, "checkpoint buffer", &buffer));
    for (int64_t i = 0; status == OTT_OK && i < set->count; i++)
        status = stream_in(f, safetensors_find(f, set->declared[i].name), &set->places[i], d, buffer,
                           progress, done);
    mem_free(d->account, buffer);
    return status;
}

/* ---- the sets of a model ---- */

ott_status tensor_set_of_model(tensor_set *set, const model *m) {
    TRY(tensor_set_open(set, m->device->account, m->parameter_count));
    for (int i = 0; i < m->parameter_count; i++)
        TRY(tensor_set_add_parameter(set, m->parameters[i].name, &m->parameters[i]));
    return OTT_OK;
}

ott_status tensor_set_of_optimizer(tensor_set *set, const model *m) {
    const optimizer_rule *rule = m->options.optimizer;
    TRY(tensor_set_open(set, m->device->account, (int64_t)rule->slots * m->parameter_count));
    for (int i = 0; i < m->parameter_count; i++)
        if (!m->parameters[i].frozen)
            TRY(tensor_set_add_slots(set, m->parameters[i].name, &m->parameters[i], rule));
    return OTT_OK;
}
