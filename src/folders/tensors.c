/* folders/tensors: builds, checks and reads sets of tensors. */
#include "folders/tensors.h"
#include "fp8/cast.h"
#include "tensor/rules/moment.h"
#include <inttypes.h>
#include <string.h>

int64_t tensor_set_columns(const safetensors_tensor *t) {
    return t->rank > 0 ? t->shape[t->rank - 1] : 1;
}

int64_t tensor_slice_elements(const tensor_slice *p) {
    return p->data ? p->part.rows * p->part.columns : 0;
}

static bool is_state(ott_dtype d) {
    return d == OTT_F32 || d == OTT_BF16;
}

/* ---- building ---- */

ott_status tensor_set_open(tensor_set *set, mem *account, int64_t capacity) {
    *set = (tensor_set){.capacity = capacity};
    TRY(arena_open(account, MEM_OTHER, &set->memory));
    TRY(arena_alloc(set->memory, capacity * (int64_t)sizeof *set->declared, &set->declared));
    TRY(arena_alloc(set->memory, capacity * (int64_t)sizeof *set->slices, &set->slices));
    return arena_alloc(set->memory, capacity * (int64_t)sizeof *set->metadata, &set->metadata);
}

void tensor_set_close(tensor_set *set) {
    arena_close(set->memory);
    *set = (tensor_set){0};
}

ott_status tensor_set_add(tensor_set *set, const safetensors_tensor *declared, void *data, bool on_host) {
    int64_t elements = 1, columns = tensor_set_columns(declared);
    STATUS_REQUIRE(set->count < set->capacity && (is_state(declared->dtype) || declared->dtype == OTT_E4M3));
    for (int i = 0; i < declared->rank; i++) elements *= declared->shape[i];
    set->declared[set->count] = *declared;
    set->slices[set->count++] = (tensor_slice){
        .data = data,
        .part = {.rows = columns ? elements / columns : 0, .columns = columns},
        .on_host = on_host,
    };
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

/* Adds a tensor with p's shape: p, or optimizer state of p. `value` is this rank's shard of the tensor. */
static ott_status add_value(tensor_set *set, const char *name, const parameter *p, const tensor *value) {
    safetensors_tensor t = {.name = name, .dtype = value->dtype, .rank = p->rank};
    STATUS_REQUIRE(value->ld == value->columns);
    parameter_shape(p, t.shape);
    TRY(tensor_set_add(set, &t, value->data, false));
    set->slices[set->count - 1].part = parameter_shard_part(p);
    return OTT_OK;
}

/* Adds the scales of FP8 optimizer state. Groups of columns share a scale. Ranks never split a group. */
static ott_status add_group_scales(tensor_set *set, const char *slot, const parameter *p,
                                   const tensor *group_scales) {
    safetensors_tensor t = {.dtype = OTT_F32, .rank = p->rank};
    parameter_part part = parameter_shard_part(p);
    TRY(arena_printf(set->memory, &t.name, "%s_groups", slot));
    parameter_shape(p, t.shape);
    t.shape[t.rank - 1] = moment_scale_count(p->columns);
    TRY(tensor_set_add(set, &t, group_scales->data, false));
    part.column = moment_scale_count(part.column);
    part.columns = moment_scale_count(part.columns);
    set->slices[set->count - 1].part = part;
    return OTT_OK;
}

ott_status tensor_set_add_parameter(tensor_set *set, const char *name, const parameter *p) {
    const char *copy;
    TRY(arena_strdup(set->memory, name, &copy));
    TRY(add_value(set, copy, p, &p->shard.value));
    if (!p->codes) return OTT_OK;
    /* Every rank of the pipeline stage has all scales. */
    safetensors_tensor t = {
        .dtype = OTT_F32, .rank = 2, .shape = {p->codes->scale_rows, p->codes->scale_columns}};
    TRY(arena_printf(set->memory, &t.name, "%s_scale_inv", copy));
    return tensor_set_add(set, &t, p->codes->scale_inv, true);
}

ott_status tensor_set_add_slots(tensor_set *set, const char *name, const parameter *p,
                                const optimizer_rule *rule) {
    for (int j = 0; j < optimizer_slots(rule, p); j++) {
        const char *slot;
        TRY(arena_printf(set->memory, &slot, "%s.%s", name, rule->slot[j]));
        TRY(add_value(set, slot, p, &p->shard.slot[j]));
        if (p->shard.slot[j].dtype == OTT_E4M3)
            TRY(add_group_scales(set, slot, p, &p->shard.group_scales[j]));
    }
    return OTT_OK;
}

/* ---- agreement between ranks ---- */

/* The slice of a tensor that one rank has. */
typedef struct record {
    parameter_part part; /* has 0 elements if the rank has no slice */
    int64_t columns;     /* columns of the global tensor */
    int64_t number;
} record;

static bool has_elements(const record *r) {
    return r->part.rows * r->part.columns > 0;
}

/* True if this rank writes its slice of tensor i. Ranks with equal slices take turns: i selects one. */
static bool is_own_turn(const record *records, int size, int own, int64_t i) {
    int copies = 0, before = 0;
    for (int r = 0; r < size; r++) {
        if (memcmp(&records[r].part, &records[own].part, sizeof records[r].part) != 0) continue;
        copies++;
        before += r < own;
    }
    return has_elements(&records[own]) && i % copies == before;
}

/* Chooses the rank that writes tensor i. Returns false if no rank has the tensor. */
static bool decide_writer(tensor_set *set, int64_t i, const record *records, int size, int own) {
    int first = 0;
    while (first < size && !has_elements(&records[first])) first++;
    if (first == size) return false;
    set->declared[i].shape[set->declared[i].rank - 1] = records[first].columns;
    set->slices[i].number = records[first].number;
    if (!is_own_turn(records, size, own, i)) set->slices[i].data = NULL;
    return true;
}

typedef struct agreement {
    const checkpoint_ranks *ranks;
    tensor_set *set;
    int64_t most;        /* largest number of tensors in a message */
    record *own_records; /* this rank's records of `most` tensors */
    record *all;         /* all ranks' records of `most` tensors */
    record *records;     /* all ranks' records of one tensor */
    int64_t kept;
} agreement;

static ott_status agree_some(agreement *a, int64_t first, int64_t count) {
    int size = ranks_size(a->ranks), own = ranks_own_rank(a->ranks);
    for (int64_t i = 0; i < count; i++) {
        const tensor_slice *p = &a->set->slices[first + i];
        a->own_records[i] = (record){0};
        if (tensor_slice_elements(p) > 0)
            a->own_records[i] =
                (record){p->part, tensor_set_columns(&a->set->declared[first + i]), p->number};
    }
    TRY(ranks_gather(a->ranks, a->own_records, count * (int64_t)sizeof(record), a->all));
    for (int64_t i = 0; i < count; i++) {
        for (int r = 0; r < size; r++) a->records[r] = a->all[r * count + i];
        if (!decide_writer(a->set, first + i, a->records, size, own)) continue;
        a->set->declared[a->kept] = a->set->declared[first + i];
        a->set->slices[a->kept++] = a->set->slices[first + i];
    }
    return OTT_OK;
}

static ott_status agree_all(agreement *a) {
    int64_t total = a->set->count;
    /* The ranks compare their tensors by index, so all must list the same number of tensors. */
    int64_t *counts = (int64_t *)a->records;
    TRY(ranks_gather(a->ranks, &a->set->count, sizeof *counts, counts));
    for (int r = 1; r < ranks_size(a->ranks); r++)
        if (counts[r] != counts[0])
            return status_fail(OTT_ERR_RANK,
                               "rank %d has %" PRId64 " tensors in a checkpoint file, rank 0 has %" PRId64
                               ": the ranks do not run the same model",
                               r, counts[r], counts[0]);
    for (int64_t at = 0, some; at < total; at += some) {
        some = total - at < a->most ? total - at : a->most;
        TRY(agree_some(a, at, some));
    }
    a->set->count = a->kept;
    return OTT_OK;
}

enum { BUFFER_BYTES = 1 << 18 };

ott_status tensor_set_agree(tensor_set *set, const checkpoint_ranks *r) {
    int64_t size = ranks_size(r), most = BUFFER_BYTES / (int64_t)sizeof(record) / size;
    agreement a = {.ranks = r, .set = set, .most = most > 0 ? most : 1};
    if (size == 1) return OTT_OK;
    TRY(mem_alloc_array(r->device->account, MEM_OTHER, a.most + size * a.most + size, sizeof(record),
                        "tensor lists", &a.own_records));
    a.all = a.own_records + a.most;
    a.records = a.all + size * a.most;
    ott_status status = agree_all(&a);
    mem_free(r->device->account, a.own_records);
    return status;
}

/* ---- reading ---- */

const tensor_slice *tensor_set_find(const tensor_set *set, const char *name) {
    for (int64_t i = 0; i < set->count; i++)
        if (strcmp(set->declared[i].name, name) == 0) return &set->slices[i];
    return NULL;
}

bool tensor_is_state_of(const char *state, const char *owner) {
    size_t length = strlen(owner);
    return strncmp(state, owner, length) == 0 && state[length] == '.' && !strchr(state + length + 1, '.');
}

void tensor_set_drop_state(tensor_set *set, const char *owner) {
    int64_t kept = 0;
    for (int64_t i = 0; i < set->count; i++) {
        if (tensor_is_state_of(set->declared[i].name, owner)) continue;
        set->declared[kept] = set->declared[i];
        set->slices[kept++] = set->slices[i];
    }
    set->count = kept;
}

ott_status tensor_set_check_local(const tensor_set *set, const safetensors *f) {
    const safetensors_entry *e;
    for (int64_t i = 0; i < set->count; i++) {
        const safetensors_tensor *t = &set->declared[i];
        if (!set->slices[i].data) continue;
        e = safetensors_find(f, t->name);
        TRY(safetensors_expect(f, t->name,
                               /* other programs save adapters as fp16 */
                               e && (is_state(e->dtype) || e->dtype == OTT_F16) ? e->dtype : t->dtype,
                               t->rank, t->shape, &e));
    }
    return OTT_OK;
}

ott_status tensor_set_check(const tensor_set *set, const safetensors *f) {
    TRY(tensor_set_check_local(set, f));
    int64_t known = 0;
    for (int64_t i = 0; i < set->count; i++)
        known += set->slices[i].data || safetensors_find(f, set->declared[i].name);
    if (known == safetensors_count(f)) return OTT_OK;
    for (int64_t i = 0; i < safetensors_count(f); i++)
        if (!tensor_set_find(set, safetensors_at(f, i)->name))
            return status_fail(OTT_ERR_SHAPE, "%s: has a tensor %s that the model does not have",
                               safetensors_path(f), safetensors_at(f, i)->name);
    return OTT_OK;
}

const safetensors_tensor *tensor_set_converted(const tensor_set *set, const safetensors *f) {
    for (int64_t i = 0; i < set->count; i++) {
        const safetensors_tensor *t = &set->declared[i];
        if (set->slices[i].data && safetensors_find(f, t->name)->dtype != t->dtype) return t;
    }
    return NULL;
}

int64_t tensor_set_bytes(const tensor_set *set) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < set->count; i++)
        bytes += tensor_slice_elements(&set->slices[i]) * dtype_bytes(set->declared[i].dtype);
    return bytes;
}

/* Reads elements [at, at + count) of slice i, in the set's format. out: memory for `count` fp32 numbers. */
static ott_status read_piece(const tensor_set *set, int64_t i, const safetensors *f, int64_t at,
                             int64_t count, char *out) {
    const safetensors_entry *e = safetensors_find(f, set->declared[i].name);
    int64_t columns = tensor_set_columns(&set->declared[i]), size = dtype_bytes(e->dtype);
    parameter_run run;
    for (int64_t done = 0; done < count; done += run.count) {
        run = parameter_run_at(&set->slices[i].part, columns, at + done, count - done);
        TRY(safetensors_read(f, e, run.first * size, run.count * size, out + done * size));
    }
    cast_in_place(out, e->dtype, set->declared[i].dtype, count);
    return OTT_OK;
}

typedef struct reading {
    const safetensors *file;
    device *device;
    char *buffer; /* BUFFER_BYTES bytes */
    cancellation_progress *progress;
    int64_t *done;
} reading;

static ott_status read_set_tensor(const reading *r, const tensor_set *set, int64_t i) {
    enum { MOST = BUFFER_BYTES / sizeof(float) };
    const tensor_slice *to = &set->slices[i];
    int64_t total = tensor_slice_elements(to), size = dtype_bytes(set->declared[i].dtype);
    for (int64_t at = 0, count; at < total; at += count) {
        count = total - at < MOST ? total - at : MOST;
        char *out = (char *)to->data + at * size;
        TRY(read_piece(set, i, r->file, at, count, r->buffer));
        if (to->on_host)
            memcpy(out, r->buffer, (size_t)(count * size));
        else
            TRY(device_copy_in(r->device, out, r->buffer, count * size));
        TRY(cancellation_progress_update(r->progress, *r->done += count * size));
    }
    return OTT_OK;
}

ott_status tensor_set_read(const tensor_set *set, const safetensors *f, device *d,
                           cancellation_progress *progress, int64_t *done) {
    void *buffer;
    ott_status status = OTT_OK;
    TRY(mem_alloc(d->account, MEM_OTHER, BUFFER_BYTES, "checkpoint buffer", &buffer));
    const reading r = {f, d, buffer, progress, done};
    for (int64_t i = 0; status == OTT_OK && i < set->count; i++) status = read_set_tensor(&r, set, i);
    mem_free(d->account, buffer);
    return status;
}

/* True for the expert biases that load balancing changes without a gradient. */
static bool is_moved_bias(const model *m, const parameter *p) {
    for (int i = 0; i < m->all_modules.count; i++)
        if (m->all_modules.items[i].balances && m->all_modules.items[i].bias == p) return true;
    return false;
}

ott_status tensor_set_of_model(tensor_set *set, const model *m, bool without_base) {
    TRY(tensor_set_open(set, m->device->account, 2 * (int64_t)m->all_parameter_count)); /* codes and scales */
    for (int i = 0; i < m->all_parameter_count; i++) {
        const parameter *p = m->all_parameters[i];
        if (without_base && p->frozen && !is_moved_bias(m, p)) continue;
        TRY(tensor_set_add_parameter(set, p->name, p));
    }
    return OTT_OK;
}

ott_status tensor_set_of_optimizer(tensor_set *set, const model *m) {
    const optimizer_rule *rule = m->options.optimizer;
    int64_t loads = m->balance.loads.rows, number = 0;
    /* 2: codes and group scales of each slot */
    int64_t most = rule ? 2 * (int64_t)m->all_parameter_count * rule->slots + loads : 0;
    TRY(tensor_set_open(set, m->device->account, most));
    for (int i = 0; rule && i < m->all_parameter_count; i++)
        if (!m->all_parameters[i]->frozen)
            TRY(tensor_set_add_slots(set, m->all_parameters[i]->name, m->all_parameters[i], rule));
    for (int i = 0; rule && loads > 0 && i < m->all_modules.count; i++) {
        const model_module *e = &m->all_modules.items[i];
        if (!e->balances) continue;
        /* The token counts of a layer's experts. All ranks have the same counts. */
        tensor load = tensor_rows(m->balance.loads, number++, 1);
        safetensors_tensor t = {.dtype = OTT_F32, .rank = 1, .shape = {load.columns}};
        TRY(arena_printf(set->memory, &t.name, "%s.load", e->bias->name));
        TRY(tensor_set_add(set, &t, load.data, false));
    }
    return OTT_OK;
}
