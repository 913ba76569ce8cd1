/* checkpoint/float8: describing and reading the FP8 state. All of it is small: it is read through
 * host memory. */
#include "checkpoint/float8.h"
#include "fp8/history.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char *const tensor_words[TENSOR_COUNT] = {"input", "weight", "grad_output"};

/* One entry of the file and what it stands for: a tensor on the device, or a layer's count. */
typedef struct entry {
    const tensor *device;
    linear *layer;
    bool is_history;
} entry;

/* What the model has to save, or wants to load. */
typedef struct inventory {
    mem *account;
    device *device;
    arena *memory; /* borrowed */
    safetensors_tensor *declared;
    entry *entries;
    int64_t count, capacity;
    bool every_layer; /* counts of 0 too */
} inventory;

static ott_status add(inventory *v, const char *name, int64_t length, entry e) {
    STATUS_REQUIRE(v->count < v->capacity);
    v->declared[v->count] =
        (safetensors_tensor){.name = name, .dtype = OTT_F32, .rank = 1, .shape = {length}};
    v->entries[v->count++] = e;
    return OTT_OK;
}

static ott_status add_state(inventory *v, linear *l, int which) {
    const delayed_state *s = &l->delayed[which];
    const char *amax_history, *scale, *format = dtype_name(s->spec.format);
    if (!s->seen.data) return OTT_OK;
    TRY(arena_printf(v->memory, &amax_history, "%s.%s.%s.amax_history", l->name, tensor_words[which],
                     format));
    TRY(arena_printf(v->memory, &scale, "%s.%s.%s.scale", l->name, tensor_words[which], format));
    TRY(add(v, amax_history, s->amax_history.columns,
            (entry){.device = &s->amax_history, .is_history = true}));
    return add(v, scale, 1, (entry){.device = &s->scale});
}

static ott_status add_layer(void *user, linear *l) {
    inventory *v = user;
    const char *name;
    for (int t = 0; t < TENSOR_COUNT; t++) TRY(add_state(v, l, t));
    if (l->below == 0 && !v->every_layer) return OTT_OK;
    TRY(arena_printf(v->memory, &name, "%s.below", l->name));
    return add(v, name, 1, (entry){.layer = l});
}

static ott_status count_layer(void *user, linear *l) {
    inventory *v = user;
    (void)l;
    v->capacity += 2 * TENSOR_COUNT + 1;
    return OTT_OK;
}

/* How many entries there may be. */
static ott_status inventory_size(inventory *v, model *m) {
    *v = (inventory){.account = m->device->account, .device = m->device};
    return model_visit_linears(m, count_layer, v);
}

static ott_status inventory_fill(inventory *v, model *m, arena *memory, bool every_layer) {
    void *place;
    v->memory = memory;
    v->every_layer = every_layer;
    TRY(arena_alloc(memory, v->capacity * (int64_t)sizeof *v->declared, &place));
    v->declared = place;
    TRY(arena_alloc(memory, v->capacity * (int64_t)sizeof *v->entries, &place));
    v->entries = place;
    return model_visit_linears(m, add_layer, v);
}

static int64_t longest(const inventory *v, const safetensors *f) {
    int64_t most = 1;
    for (int64_t i = 0; i < v->count; i++)
        if (v->declared[i].shape[0] > most) most = v->declared[i].shape[0];
    for (int64_t i = 0; i < safetensors_count(f); i++)
        if (safetensors_at(f, i)->bytes / 4 > most) most = safetensors_at(f, i)->bytes / 4;
    return most;
}

/* ---- describing ---- */

/* A layer's count is in no device memory: the set gets a copy of it. */
static ott_status add_to_set(tensor_set *set, const safetensors_tensor *declared, const entry *e) {
    void *count;
    if (e->device) return tensor_set_add(set, declared, e->device->data, false);
    TRY(arena_alloc(set->memory, sizeof(float), &count));
    *(float *)count = e->layer->below;
    return tensor_set_add(set, declared, count, true);
}

ott_status checkpoint_float8_describe(const model *m, const char *recipe_name, tensor_set *set) {
    inventory v;
    const char *name;
    TRY(inventory_size(&v, (model *)m));
    TRY(tensor_set_open(set, v.account, v.capacity));
    TRY(inventory_fill(&v, (model *)m, set->memory, false));
    for (int64_t i = 0; i < v.count; i++) TRY(add_to_set(set, &v.declared[i], &v.entries[i]));
    TRY(arena_strdup(set->memory, recipe_name, &name));
    set->metadata = (safetensors_pair){"recipe", name};
    return OTT_OK;
}

/* ---- reading ---- */

static ott_status check_entry(const safetensors *f, const safetensors_entry *e, const entry *want) {
    bool fits = e->dtype == OTT_F32 && e->rank == 1 && e->shape[0] >= 1;
    if (fits && (want->is_history || e->shape[0] == 1)) return OTT_OK;
    return status_fail(OTT_ERR_SHAPE, "%s: %s is not fp32[%s]", safetensors_path(f), e->name,
                       want->is_history ? "length" : "1");
}

/* Scales multiply, magnitudes and counts are what they say: nothing else may come out of a file. */
static ott_status check_values(const safetensors *f, const safetensors_entry *e, const entry *want,
                               const float *values) {
    for (int64_t i = 0; i < e->shape[0]; i++) {
        float x = values[i];
        bool good = want->layer ? x == LINEAR_FALLEN || (x >= 0 && x == floorf(x))
                                : isfinite(x) && (want->is_history ? x >= 0 : x > 0);
        if (!good)
            return status_fail(OTT_ERR_FORMAT, "%s: %s[%" PRId64 "] is %g", safetensors_path(f), e->name, i,
                               (double)x);
    }
    return OTT_OK;
}

static ott_status read_entry(const safetensors *f, const safetensors_entry *e, const entry *want,
                             float *buffer) {
    TRY(safetensors_read(f, e, 0, e->bytes, buffer));
    return check_values(f, e, want, buffer);
}

static ott_status check_all(const inventory *v, const safetensors *f, float *buffer) {
    for (int64_t i = 0; i < v->count; i++) {
        const safetensors_entry *e = safetensors_find(f, v->declared[i].name);
        if (!e) continue;
        TRY(check_entry(f, e, &v->entries[i]));
        TRY(read_entry(f, e, &v->entries[i], buffer));
    }
    return OTT_OK;
}

/* What a state that the file has not starts with. */
static ott_status start_anew(const inventory *v, const entry *want, float *buffer) {
    int64_t length = want->device->columns;
    for (int64_t i = 0; i < length; i++) buffer[i] = want->is_history ? 0.0f : 1.0f;
    return device_copy_in(v->device, want->device->data, buffer, tensor_bytes(*want->device));
}

typedef struct tally {
    int64_t loaded, fresh, resized, dropped;
} tally;

static ott_status load_state(const inventory *v, const safetensors *f, const safetensors_entry *e,
                             const entry *want, float *from, float *to, tally *count) {
    int64_t length = want->device->columns;
    TRY(read_entry(f, e, want, from));
    history_resize(from, e->shape[0], to, length);
    count->loaded += want->is_history;
    count->resized += e->shape[0] != length;
    return device_copy_in(v->device, want->device->data, to, tensor_bytes(*want->device));
}

static ott_status load_all(inventory *v, const safetensors *f, float *from, float *to, tally *count,
                           bool *fallen) {
    for (int64_t i = 0; i < v->count; i++) {
        const entry *want = &v->entries[i];
        const safetensors_entry *e = safetensors_find(f, v->declared[i].name);
        if (want->layer) {
            want->layer->below = 0;
            if (e) TRY(read_entry(f, e, want, &want->layer->below));
            *fallen |= want->layer->below == LINEAR_FALLEN && want->layer->spec.fp8;
        } else if (e) {
            TRY(load_state(v, f, e, want, from, to, count));
        } else {
            TRY(start_anew(v, want, to));
            count->fresh += want->is_history;
        }
    }
    return OTT_OK;
}

static bool is_wanted(const inventory *v, const char *name) {
    for (int64_t i = 0; i < v->count; i++)
        if (strcmp(v->declared[i].name, name) == 0) return true;
    return false;
}

static void say(const inventory *v, const logger *log, const safetensors *f, tally *count) {
    const char *recipe_name = safetensors_metadata(f, "recipe");
    for (int64_t i = 0; i < safetensors_count(f); i++) {
        const char *name = safetensors_at(f, i)->name;
        count->dropped += str_ends_with(name, ".amax_history") && !is_wanted(v, name);
    }
    if (count->fresh + count->resized + count->dropped == 0) return;
    log_info(log,
             "Float8 state of the checkpoint (recipe %s): %" PRId64 " amax histories taken over, %" PRId64
             " of them with another length, %" PRId64 " start anew, %" PRId64 " dropped",
             recipe_name ? recipe_name : "unknown", count->loaded, count->resized, count->fresh,
             count->dropped);
}

ott_status checkpoint_float8_read(model *m, const logger *log, const char *path, bool *fallen) {
    inventory v;
    arena *memory = NULL;
    safetensors *f = NULL;
    void *buffer = NULL;
    tally count = {0};
    ott_status status;
    *fallen = false;
    TRY(inventory_size(&v, m));
    TRY_OUT(arena_open(v.account, MEM_OTHER, &memory));
    TRY_OUT(inventory_fill(&v, m, memory, true));
    TRY_OUT(safetensors_open(v.account, path, &f));
    int64_t most = longest(&v, f);
    TRY_OUT(mem_alloc_array(v.account, MEM_OTHER, 2 * most, sizeof(float), "FP8 state", &buffer));
    TRY_OUT(check_all(&v, f, buffer));
    TRY_OUT(load_all(&v, f, buffer, (float *)buffer + most, &count, fallen));
    TRY_OUT(delayed_forget(&m->delayed, v.device));
    say(&v, log, f, &count);
out:
    mem_free(v.account, buffer);
    safetensors_close(f);
    arena_close(memory);
    return status;
}
