/* checkpoint/float8: writes and reads the FP8 state of linear layers, through a small host buffer. */
#include "checkpoint/float8.h"
#include "fp8/history.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HISTORY ".amax_history"
#define SCALE   ".scale"
#define COUNTER ".below"

const char *const float8_tensor_names[TENSOR_COUNT] = {"input", "weight", "grad_output"};

/* Arguments for "%s%s%s": LAYER.TENSOR. A layer that the API saves alone has the name "". */
#define TENSOR_NAME(layer, which) (layer), *(layer) ? "." : "", float8_tensor_names[which]

/* ---- writing ---- */

/* Describes the FP8 state in `set`. all: also adds the names of state that only other ranks have. */
typedef struct describing {
    tensor_set *set;
    bool all;
} describing;

static ott_status add_state_tensor(const describing *to, const char *name, int64_t length, void *data,
                                   bool on_host) {
    const safetensors_tensor t = {.name = name, .dtype = OTT_F32, .rank = 1, .shape = {length}};
    return data || to->all ? tensor_set_add(to->set, &t, data, on_host) : OTT_OK;
}

static ott_status describe_state(const describing *to, const float8_layer *l, int which, ott_dtype format) {
    const delayed_state nothing = {0}, *s = l->linear ? &l->linear->delayed[which] : &nothing;
    const char *history, *scale;
    tensor_set *set = to->set;
    int64_t count = set->count;
    if (!s->seen.data || s->spec.format != format) s = &nothing;
    if (s == &nothing && !to->all) return OTT_OK;
    TRY(arena_printf(set->memory, &history, "%s%s%s.%s" HISTORY, TENSOR_NAME(l->name, which),
                     dtype_name(format)));
    TRY(arena_printf(set->memory, &scale, "%s%s%s.%s" SCALE, TENSOR_NAME(l->name, which),
                     dtype_name(format)));
    TRY(add_state_tensor(to, history, s->amax_history.columns, s->amax_history.data, false));
    if (set->count != count) { /* the metadata has the margin of the scale that the history gives */
        set->slices[count].number = s->spec.scale.margin;
        TRY(arena_printf(set->memory, &set->slices[count].note, "%s%s%s.margin",
                         TENSOR_NAME(l->name, which)));
    }
    return add_state_tensor(to, scale, 1, s->scale.data, false);
}

/* Copies the counter low_sqnr_count from the layer, and adds the copy to the tensor set. */
static ott_status describe_counter(const describing *to, const float8_layer *l) {
    bool has = l->linear && l->linear->low_sqnr_count != 0;
    const char *name;
    void *count = NULL;
    if (!has && !to->all) return OTT_OK;
    TRY(arena_printf(to->set->memory, &name, "%s" COUNTER, l->name));
    if (has) {
        TRY(arena_alloc(to->set->memory, sizeof(float), &count));
        *(float *)count = l->linear->low_sqnr_count;
    }
    return add_state_tensor(to, name, 1, count, true);
}

static const ott_dtype formats[] = {OTT_E4M3, OTT_E5M2};
enum { FORMATS = sizeof formats / sizeof *formats };

ott_status float8_describe(mem *account, const float8_layer *layers, int64_t count, bool all,
                           tensor_set *set) {
    const describing to = {set, all};
    TRY(tensor_set_open(set, account, count * (2 * TENSOR_COUNT * FORMATS + 1) + 1));
    for (int64_t i = 0; i < count; i++) {
        for (int t = 0; t < TENSOR_COUNT; t++)
            for (int j = 0; j < FORMATS; j++) TRY(describe_state(&to, &layers[i], t, formats[j]));
        TRY(describe_counter(&to, &layers[i]));
    }
    return OTT_OK;
}

/* ---- checking ---- */

/* Rejects shapes and values of FP8 state that training cannot produce. */
static ott_status check_entry(const safetensors *f, const safetensors_entry *e, const float *values) {
    bool is_history = str_ends_with(e->name, HISTORY), is_counter = str_ends_with(e->name, COUNTER);
    if (e->dtype != OTT_F32 || e->rank != 1 || e->shape[0] < 1 || (!is_history && e->shape[0] > 1))
        return status_fail(OTT_ERR_SHAPE, "%s: %s is not an fp32 tensor of shape [%s]", safetensors_path(f),
                           e->name, is_history ? "length" : "1");
    for (int64_t i = 0; i < e->shape[0]; i++) {
        float x = values[i];
        bool good = is_counter ? x == LINEAR_FELL_BACK || (x >= 0 && x == floorf(x))
                               : isfinite(x) && (is_history ? x >= 0 : x > 0);
        if (!good)
            return status_fail(OTT_ERR_FORMAT, "%s: %s[%" PRId64 "] is %g, which is not valid",
                               safetensors_path(f), e->name, i, (double)x);
    }
    return OTT_OK;
}

/* True if the tensor is FP8 state that this version knows. Other tensors of the file are ignored. */
static bool is_known(const safetensors_entry *e) {
    return str_ends_with(e->name, HISTORY) || str_ends_with(e->name, SCALE) ||
           str_ends_with(e->name, COUNTER);
}

static ott_status allocate_state_buffer(mem *account, const safetensors *f, float **out) {
    int64_t most = sizeof(float);
    for (int64_t i = 0; f && i < safetensors_count(f); i++)
        if (is_known(safetensors_at(f, i)) && safetensors_at(f, i)->bytes > most)
            most = safetensors_at(f, i)->bytes;
    return mem_alloc(account, MEM_OTHER, most, "FP8 state", out);
}

ott_status float8_check(mem *account, const safetensors *f) {
    float *buffer;
    ott_status status = OTT_OK;
    TRY(allocate_state_buffer(account, f, &buffer));
    for (int64_t i = 0; status == OTT_OK && i < safetensors_count(f); i++) {
        const safetensors_entry *e = safetensors_at(f, i);
        if (!is_known(e)) continue;
        status = safetensors_read(f, e, 0, e->bytes, buffer);
        if (status == OTT_OK) status = check_entry(f, e, buffer);
    }
    mem_free(account, buffer);
    return status;
}

static const safetensors_entry *find_float8_entry(const safetensors *f, str *name, const char *layer,
                                                  int which, ott_dtype format, const char *part) {
    name->length = 0;
    str_printf(name, "%s%s%s.%s%s", TENSOR_NAME(layer, which), dtype_name(format), part);
    return name->failed ? NULL : safetensors_find(f, name->text);
}

ott_status float8_find(mem *account, const safetensors *f, const char *layer, int which, float8_found *out) {
    enum { LARGEST = 1000 }; /* a margin beyond +-1000 becomes +-1000, which no layer has */
    str name = {.account = account};
    *out = (float8_found){0};
    if (!f) return OTT_OK;
    for (int i = 0; i < FORMATS && !out->history; i++) {
        out->history = find_float8_entry(f, &name, layer, which, formats[i], HISTORY);
        out->scale = find_float8_entry(f, &name, layer, which, formats[i], SCALE);
        out->format = formats[i];
        if (!out->scale) out->history = NULL;
    }
    name.length = 0;
    str_printf(&name, "%s%s%s.margin", TENSOR_NAME(layer, which));
    const char *value = name.failed ? NULL : safetensors_metadata(f, name.text);
    long margin = value ? strtol(value, NULL, 10) : 0;
    out->has_margin = value != NULL;
    out->margin = margin < -LARGEST ? -LARGEST : margin > LARGEST ? LARGEST : (int)margin;
    ott_status status = str_finish(&name);
    str_free(&name);
    return status;
}

/* ---- reading ---- */

typedef struct reading {
    device *device;
    const safetensors *f;
    float *buffer; /* memory for the longest entry of the file */
    float8_callback listener;
    void *user;
} reading;

static ott_status take_state(const reading *r, const float8_found *found, const delayed_state *s) {
    float scale;
    void *memory;
    TRY(safetensors_read(r->f, found->scale, 0, sizeof scale, &scale));
    TRY(safetensors_read(r->f, found->history, 0, found->history->bytes, r->buffer));
    TRY(mem_alloc(r->device->account, MEM_OTHER, tensor_bytes(s->amax_history), "amax history", &memory));
    history_resize(r->buffer, found->history->shape[0], memory, s->amax_history.columns);
    ott_status status =
        device_copy_in(r->device, s->amax_history.data, memory, tensor_bytes(s->amax_history));
    if (status == OTT_OK) status = device_copy_in(r->device, s->scale.data, &scale, sizeof scale);
    mem_free(r->device->account, memory);
    return status;
}

static ott_status read_layer_state(const reading *r, const float8_layer *l, int which) {
    const delayed_state *s = &l->linear->delayed[which];
    float8_found found;
    TRY(float8_find(r->device->account, r->f, l->name, which, &found));
    bool fits = s->seen.data && found.history && s->spec.format == found.format &&
                (!found.has_margin || s->spec.scale.margin == found.margin);
    if (s->seen.data) TRY(device_zero(r->device, s->seen.data, sizeof(float)));
    if (fits) {
        bool same = found.history->shape[0] == s->amax_history.columns;
        r->listener(r->user, l, which, same ? FLOAT8_TAKEN : FLOAT8_RESIZED);
        return take_state(r, &found, s);
    }
    if (found.history) r->listener(r->user, l, which, FLOAT8_DROPPED);
    if (!s->seen.data) return OTT_OK;
    r->listener(r->user, l, which, FLOAT8_FRESH);
    const float one = 1.0f;
    TRY(device_copy_in(r->device, s->scale.data, &one, sizeof one));
    return device_zero(r->device, s->amax_history.data, tensor_bytes(s->amax_history));
}

static ott_status read_counter(const reading *r, const float8_layer *l) {
    str name = {.account = r->device->account};
    str_printf(&name, "%s" COUNTER, l->name);
    ott_status status = str_finish(&name);
    const safetensors_entry *e = status == OTT_OK && r->f ? safetensors_find(r->f, name.text) : NULL;
    l->linear->low_sqnr_count = 0;
    if (e) status = safetensors_read(r->f, e, 0, sizeof(float), &l->linear->low_sqnr_count);
    str_free(&name);
    return status;
}

ott_status float8_read(device *d, const safetensors *f, const float8_layer *layers, int64_t count,
                       float8_callback listener, void *user) {
    reading r = {.device = d, .f = f, .listener = listener, .user = user};
    ott_status status = OTT_OK;
    TRY(allocate_state_buffer(d->account, f, &r.buffer));
    for (int64_t i = 0; status == OTT_OK && i < count; i++) {
        for (int t = 0; status == OTT_OK && t < TENSOR_COUNT; t++)
            status = read_layer_state(&r, &layers[i], t);
        if (status == OTT_OK) status = read_counter(&r, &layers[i]);
    }
    mem_free(d->account, r.buffer);
    return status;
}

/* ---- all linear layers of a model ---- */

/* Lists the linear layers of this rank or, if `all`, of all pipeline stages. */
static ott_status list_float8_layers(const model *m, bool all, float8_layer **out, int64_t *count) {
    TRY(mem_alloc_array(m->device->account, MEM_OTHER, m->all_modules.count, sizeof **out, "FP8 layers",
                        out));
    *count = 0;
    for (int i = 0; i < m->all_modules.count; i++) {
        const model_module *e = &m->all_modules.items[i];
        if (e->kind == MODULE_LINEAR && (e->linear || all))
            (*out)[(*count)++] = (float8_layer){e->name, e->linear};
    }
    return OTT_OK;
}

ott_status checkpoint_float8_describe(const model *m, const char *recipe_name, bool all, tensor_set *set) {
    float8_layer *layers;
    int64_t count;
    TRY(list_float8_layers(m, all, &layers, &count));
    ott_status status = float8_describe(m->device->account, layers, count, all, set);
    if (status == OTT_OK) status = tensor_set_note(set, "recipe", recipe_name);
    mem_free(m->device->account, layers);
    return status;
}

static void count_event(void *user, const float8_layer *layer, int which, float8_event event) {
    (void)layer, (void)which;
    ((int64_t *)user)[event]++;
}

ott_status checkpoint_float8_read(model *m, const logger *log, const safetensors *f, bool *fell_back) {
    float8_layer *layers;
    int64_t count, events[FLOAT8_DROPPED + 1] = {0}; /* events[e]: tensors for which event e was reported */
    const char *recipe_name = safetensors_metadata(f, "recipe");
    *fell_back = false;
    TRY(float8_check(m->device->account, f));
    TRY(list_float8_layers(m, false, &layers, &count));
    ott_status status = float8_read(m->device, f, layers, count, count_event, events);
    for (int64_t i = 0; i < count; i++)
        *fell_back |= layers[i].linear->low_sqnr_count == LINEAR_FELL_BACK && layers[i].linear->spec.fp8;
    mem_free(m->device->account, layers);
    if (status == OTT_OK && events[FLOAT8_FRESH] + events[FLOAT8_RESIZED] + events[FLOAT8_DROPPED] > 0)
        log_info(log,
                 "Float8 state of the checkpoint (recipe %s): %" PRId64 " amax histories loaded (%" PRId64
                 " resized), %" PRId64 " initialized, %" PRId64 " ignored",
                 recipe_name ? recipe_name : "unknown", events[FLOAT8_TAKEN] + events[FLOAT8_RESIZED],
                 events[FLOAT8_RESIZED], events[FLOAT8_FRESH], events[FLOAT8_DROPPED]);
    return status;
}
