/* parallel/checkpoint_float8: writing and reading the FP8 state. All of it is small: it goes through host
 * memory. */
#include "parallel/checkpoint_float8.h"
#include "base/arena.h"
#include "fp8/history.h"
#include "io/safetensors.h"
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
    arena *memory;
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
    const char *window, *scale, *format = dtype_name(s->spec.format);
    if (!s->seen.data) return OTT_OK;
    TRY(arena_printf(v->memory, &window, "%s.%s.%s.amax_history", l->name, tensor_words[which], format));
    TRY(arena_printf(v->memory, &scale, "%s.%s.%s.scale", l->name, tensor_words[which], format));
    TRY(add(v, window, s->window.columns, (entry){.device = &s->window, .is_history = true}));
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

static ott_status inventory_open(inventory *v, model *m, bool every_layer) {
    void *memory;
    *v = (inventory){.account = m->device->account, .device = m->device, .every_layer = every_layer};
    TRY(model_visit_linears(m, count_layer, v));
    TRY(arena_open(v->account, MEM_OTHER, &v->memory));
    TRY(arena_take(v->memory, v->capacity * (int64_t)sizeof *v->declared, &memory));
    v->declared = memory;
    TRY(arena_take(v->memory, v->capacity * (int64_t)sizeof *v->entries, &memory));
    v->entries = memory;
    return model_visit_linears(m, add_layer, v);
}

static void inventory_close(inventory *v) {
    if (v->memory) arena_close(v->memory);
}

static int64_t longest(const inventory *v, const safetensors *f) {
    int64_t most = 1;
    for (int64_t i = 0; i < v->count; i++)
        if (v->declared[i].shape[0] > most) most = v->declared[i].shape[0];
    for (int64_t i = 0; f && i < safetensors_count(f); i++)
        if (safetensors_at(f, i)->bytes / 4 > most) most = safetensors_at(f, i)->bytes / 4;
    return most;
}

/* ---- writing ---- */

static ott_status write_entry(const inventory *v, safetensors_writer *w, const entry *e, float *buffer) {
    if (!e->device) return safetensors_writer_append(w, &e->layer->below, sizeof(float));
    int64_t bytes = tensor_bytes(*e->device);
    TRY(device_copy_out(v->device, buffer, e->device->data, bytes));
    return safetensors_writer_append(w, buffer, bytes);
}

static ott_status write_all(const inventory *v, const char *recipe_name, const char *path, float *buffer) {
    safetensors_writer *w;
    const safetensors_pair metadata = {"recipe", recipe_name};
    TRY(safetensors_writer_open(v->account, path, v->declared, v->count, &metadata, 1, &w));
    for (int64_t next; (next = safetensors_writer_next(w)) >= 0;) {
        ott_status status = write_entry(v, w, &v->entries[next], buffer);
        if (status == OTT_OK) continue;
        safetensors_writer_abandon(w);
        return status;
    }
    return safetensors_writer_commit(w);
}

ott_status checkpoint_float8_write(const model *m, const char *recipe_name, const char *path) {
    inventory v;
    void *buffer = NULL;
    ott_status status;
    TRY_OUT(inventory_open(&v, (model *)m, false));
    TRY_OUT(mem_take_array(v.account, MEM_OTHER, longest(&v, NULL), sizeof(float), "FP8 state", &buffer));
    TRY_OUT(write_all(&v, recipe_name, path, buffer));
out:
    mem_give(v.account, buffer);
    inventory_close(&v);
    return status;
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
    safetensors *f = NULL;
    void *buffer = NULL;
    tally count = {0};
    ott_status status;
    *fallen = false;
    TRY_OUT(inventory_open(&v, m, true));
    TRY_OUT(safetensors_open(v.account, path, &f));
    int64_t most = longest(&v, f);
    TRY_OUT(mem_take_array(v.account, MEM_OTHER, 2 * most, sizeof(float), "FP8 state", &buffer));
    TRY_OUT(check_all(&v, f, buffer));
    TRY_OUT(load_all(&v, f, buffer, (float *)buffer + most, &count, fallen));
    TRY_OUT(delayed_forget(&m->delayed, v.device));
    say(&v, log, f, &count);
out:
    mem_give(v.account, buffer);
    safetensors_close(f);
    inventory_close(&v);
    return status;
}
