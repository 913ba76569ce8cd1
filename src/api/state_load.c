/* api/state_load: loading a module's checkpoint. Every file is looked at in full before the module changes.
 */
#include "api/autocast.h"
#include "api/state.h"
#include "base/file.h"
#include "base/json_text.h"
#include "fp8/history.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct state_loader {
    mem *account;
    device *device;
    const logger *log;
    ott_module *m;
    ott_optimizer *o; /* NULL: not wanted */
    const char *folder;
    str path;
    json_t *root, *tensors, *float8;
    int64_t step, updates;
    safetensors *files[STATE_FILES];
    state_set sets[STATE_FILES]; /* of model and optimizer */
    void *buffer;
    arena *names;
} state_loader;

/* ---- module.json ---- */

static ott_status name_file(state_loader *l, const char *name) {
    l->path.length = 0;
    str_printf(&l->path, "%s/%s", l->folder, name);
    return str_finish(&l->path);
}

static ott_status fail_json(const state_loader *l, const char *what) {
    return status_fail(OTT_ERR_FORMAT, "%s: %s", l->path.text, what);
}

static ott_status parse_json(state_loader *l) {
    char *text;
    int64_t bytes;
    json_error_t error;
    TRY(name_file(l, STATE_JSON));
    if (file_is_folder(l->folder) && !file_exists(l->path.text))
        return status_fail(OTT_ERR_FORMAT, "%s: is no checkpoint of a module: it has no " STATE_JSON,
                           l->folder);
    TRY(file_read(l->account, l->path.text, STATE_LIMIT, &text, &bytes));
    ott_status status = json_text_parse(text, bytes, JSON_REJECT_DUPLICATES, &l->root, &error);
    mem_free(l->account, text);
    if (status != OTT_OK || l->root) return status_context(status, "%s", l->path.text);
    return status_fail(OTT_ERR_FORMAT, "%s: line %d: %s", l->path.text, error.line, error.text);
}

/* The checksum is that of everything else. */
static ott_status check_json(state_loader *l) {
    uint32_t crc;
    json_t *stated = json_object_get(l->root, "crc32c");
    if (!json_is_integer(stated)) return fail_json(l, "has no crc32c");
    json_int_t value = json_integer_value(stated);
    json_object_del(l->root, "crc32c");
    TRY(state_json_crc(l->root, &crc));
    return value == (json_int_t)crc ? OTT_OK : fail_json(l, "is damaged: its checksum is another");
}

static ott_status read_json(state_loader *l) {
    TRY(parse_json(l));
    TRY(check_json(l));
    const json_t *version = json_object_get(l->root, "version"), *step = json_object_get(l->root, "step"),
                 *updates = json_object_get(l->root, "updates");
    if (!json_is_integer(version) || json_integer_value(version) != STATE_VERSION)
        return fail_json(l, "is of another version of the format");
    l->tensors = json_object_get(l->root, "tensors");
    l->float8 = json_object_get(l->root, "float8");
    if (!json_is_integer(step) || !json_is_object(l->tensors) || !json_is_object(l->float8))
        return fail_json(l, "lacks a member, or has one of another type");
    l->step = json_integer_value(step);
    if (!l->o) return OTT_OK;
    if (!json_is_integer(updates)) return fail_json(l, "says that the state of no optimizer was saved");
    l->updates = json_integer_value(updates);
    return l->step >= 0 && l->updates >= 0 ? OTT_OK : fail_json(l, "has a negative counter");
}

/* ---- looking at the files ---- */

static ott_status check_crc(state_loader *l, state_file id, const safetensors_entry *e) {
    const json_t *stated = json_object_get(json_object_get(l->tensors, state_file_name(id)), e->name);
    const safetensors *f = l->files[id];
    uint32_t crc = 0;
    for (int64_t at = 0, piece; at < e->bytes; at += piece) {
        piece = e->bytes - at < STATE_BUFFER ? e->bytes - at : STATE_BUFFER;
        TRY(safetensors_read(f, e, at, piece, l->buffer));
        crc = file_crc32c(crc, l->buffer, piece);
    }
    if (!json_is_integer(stated))
        return status_fail(OTT_ERR_FORMAT, "%s: %s: " STATE_JSON " does not know it", safetensors_path(f),
                           e->name);
    if (json_integer_value(stated) == (json_int_t)crc) return OTT_OK;
    return status_fail(OTT_ERR_FORMAT,
                       "%s: %s: is damaged: its checksum is %08" PRIx32 ", what was written has %08" PRIx32,
                       safetensors_path(f), e->name, crc, (uint32_t)json_integer_value(stated));
}

static ott_status open_file(state_loader *l, state_file id) {
    const safetensors *f;
    const json_t *known = json_object_get(l->tensors, state_file_name(id));
    TRY(name_file(l, state_file_name(id)));
    TRY(safetensors_open(l->account, l->path.text, &l->files[id]));
    f = l->files[id];
    if (safetensors_count(f) != (int64_t)json_object_size(known))
        return status_fail(OTT_ERR_FORMAT, "%s: has %" PRId64 " tensors, %zu were written", l->path.text,
                           safetensors_count(f), json_object_size(known));
    for (int64_t i = 0; i < safetensors_count(f); i++) TRY(check_crc(l, id, safetensors_at(f, i)));
    return OTT_OK;
}

/* Names the tensor of the file that the module has not. */
static ott_status fail_surplus(const safetensors *f, const state_set *set) {
    for (int64_t i = 0; i < safetensors_count(f); i++) {
        bool known = false;
        for (int64_t j = 0; j < set->count && !known; j++)
            known = strcmp(set->declared[j].name, safetensors_at(f, i)->name) == 0;
        if (!known)
            return status_fail(OTT_ERR_SHAPE, "%s: has a tensor %s, the module has none", safetensors_path(f),
                               safetensors_at(f, i)->name);
    }
    return OTT_OK;
}

static ott_status match_file(state_loader *l, state_file id) {
    state_set *set = &l->sets[id];
    const safetensors_entry *e;
    TRY(open_file(l, id));
    TRY(state_set_open(set, id, l->m, l->o));
    for (int64_t i = 0; i < set->count; i++) {
        const safetensors_tensor *t = &set->declared[i];
        TRY(safetensors_expect(l->files[id], t->name, t->dtype, t->rank, t->shape, &e));
    }
    return fail_surplus(l->files[id], set);
}

static bool ends_with_part(const char *name) {
    return str_ends_with(name, ".amax_history") || str_ends_with(name, ".scale");
}

/* Scales multiply, magnitudes are what they say: nothing else may come out of a file. */
static ott_status check_float8_entry(state_loader *l, const safetensors *f, const safetensors_entry *e) {
    bool is_scale = str_ends_with(e->name, ".scale");
    float *values = l->buffer;
    if (e->dtype != OTT_F32 || e->rank != 1 || e->shape[0] < 1 || (is_scale && e->shape[0] != 1) ||
        e->bytes > STATE_BUFFER || !ends_with_part(e->name))
        return status_fail(OTT_ERR_SHAPE, "%s: %s: is not fp32[%s]", safetensors_path(f), e->name,
                           is_scale ? "1" : "history length");
    TRY(safetensors_read(f, e, 0, e->bytes, values));
    for (int64_t i = 0; i < e->shape[0]; i++)
        if (!isfinite(values[i]) || values[i] < 0 || (is_scale && values[i] == 0))
            return status_fail(OTT_ERR_FORMAT, "%s: %s: has the value %g", safetensors_path(f), e->name,
                               (double)values[i]);
    return OTT_OK;
}

static ott_status match_float8(state_loader *l) {
    if (!json_object_get(l->tensors, state_file_name(STATE_FLOAT8))) return OTT_OK;
    TRY(open_file(l, STATE_FLOAT8));
    const safetensors *f = l->files[STATE_FLOAT8];
    for (int64_t i = 0; i < safetensors_count(f); i++) TRY(check_float8_entry(l, f, safetensors_at(f, i)));
    return OTT_OK;
}

/* ---- parameters and moments ---- */

static ott_status stream_in(state_loader *l, const safetensors *f, const safetensors_entry *e,
                            const tensor *t) {
    for (int64_t at = 0, piece; at < e->bytes; at += piece) {
        piece = e->bytes - at < STATE_BUFFER ? e->bytes - at : STATE_BUFFER;
        TRY(safetensors_read(f, e, at, piece, l->buffer));
        TRY(device_copy_in(l->device, (char *)t->data + at, l->buffer, piece));
    }
    return OTT_OK;
}

static ott_status read_set(state_loader *l, state_file id) {
    const safetensors *f = l->files[id];
    const state_set *set = &l->sets[id];
    for (int64_t i = 0; i < set->count; i++)
        TRY(stream_in(l, f, safetensors_find(f, set->declared[i].name), &set->values[i]));
    return OTT_OK;
}

/* ---- delayed scaling ---- */

/* What the file has of one tensor of a layer; history NULL: nothing. */
typedef struct found_state {
    ott_dtype format;
    const safetensors_entry *history, *scale;
} found_state;

static ott_status find_state(state_loader *l, const char *fqn, int which, found_state *out) {
    static const ott_dtype formats[] = {OTT_E4M3, OTT_E5M2};
    const safetensors *f = l->files[STATE_FLOAT8];
    const char *name;
    *out = (found_state){0};
    for (int i = 0; f && i < 2 && !out->history; i++) {
        TRY(state_float8_name(l->names, fqn, which, formats[i], ".amax_history", &name));
        out->history = safetensors_find(f, name);
        TRY(state_float8_name(l->names, fqn, which, formats[i], ".scale", &name));
        out->scale = safetensors_find(f, name);
        out->format = formats[i];
    }
    if (!out->scale) out->history = NULL;
    return OTT_OK;
}

/* Which margin and recipe the file's state of a layer is of. */
static int stated_margin(const state_loader *l, const char *fqn, int which) {
    const json_t *margins = json_object_get(json_object_get(l->float8, fqn), "margin");
    return (int)json_integer_value(json_object_get(margins, autocast_tensor_names[which]));
}
static const char *stated_recipe(const state_loader *l, const char *fqn) {
    const char *name = json_string_value(json_object_get(json_object_get(l->float8, fqn), "recipe"));
    return name ? name : "unknown";
}

/* A layer that takes recipes from regions and has not met one yet waits with the file's state: a region with
   the same format and margin goes on from it. */
static ott_status make_waiting(const state_loader *l, linear_body *b, const char *fqn,
                               const found_state *found) {
    cast_spec specs[TENSOR_COUNT];
    delayed_want wanted[TENSOR_COUNT];
    for (int t = 0; t < TENSOR_COUNT; t++) {
        wanted[t] = (delayed_want){.state = &b->layer->delayed[t]};
        if (!found[t].history) continue;
        specs[t] = (cast_spec){.format = found[t].format,
                               .grain = GRANULARITY_TENSOR,
                               .scale.rule = SCALE_TE,
                               .scale.margin = stated_margin(l, fqn, t),
                               .policy = AMAX_DELAYED,
                               .history = (int)found[t].history->shape[0]};
        wanted[t].spec = &specs[t];
    }
    return delayed_store_set(&b->store, l->device, wanted, TENSOR_COUNT);
}

static ott_status start_anew(state_loader *l, const delayed_state *s) {
    const float one = 1.0f;
    TRY(device_copy_in(l->device, s->scale.data, &one, sizeof one));
    return device_zero(l->device, s->amax_history.data, tensor_bytes(s->amax_history));
}

static ott_status take_state(state_loader *l, const found_state *found, const delayed_state *s) {
    const safetensors *f = l->files[STATE_FLOAT8];
    float scale;
    void *memory;
    TRY(safetensors_read(f, found->scale, 0, sizeof scale, &scale));
    TRY(safetensors_read(f, found->history, 0, found->history->bytes, l->buffer));
    TRY(mem_alloc(l->account, MEM_OTHER, tensor_bytes(s->amax_history), "amax history", &memory));
    history_resize(l->buffer, found->history->shape[0], memory, s->amax_history.columns);
    ott_status status =
        device_copy_in(l->device, s->amax_history.data, memory, tensor_bytes(s->amax_history));
    if (status == OTT_OK) status = device_copy_in(l->device, s->scale.data, &scale, sizeof scale);
    mem_free(l->account, memory);
    return status;
}

static ott_status load_tensor(state_loader *l, ott_module *m, const char *fqn, int which,
                              const found_state *found) {
    const linear_body *b = m->body;
    const delayed_state *s = &b->layer->delayed[which];
    const char *shown = *fqn ? fqn : "the module itself", *name = autocast_tensor_names[which];
    bool fits = s->seen.data && found->history && s->spec.format == found->format &&
                s->spec.scale.margin == stated_margin(l, fqn, which);
    if (s->seen.data) TRY(device_zero(l->device, s->seen.data, sizeof(float)));
    if (fits) return take_state(l, found, s);
    if (found->history)
        log_info(l->log, "Float8 state of %s (%s, recipe %s) dropped: the module runs %s", shown, name,
                 stated_recipe(l, fqn), *b->fp8_recipe ? b->fp8_recipe : "no FP8 recipe");
    if (!s->seen.data) return OTT_OK;
    log_info(l->log, "Float8 state of %s (%s) starts anew: the checkpoint has none of recipe %s", shown, name,
             b->fp8_recipe);
    return start_anew(l, s);
}

static ott_status load_linear(void *user, ott_module *m) {
    state_loader *l = user;
    linear_body *b = m->body;
    found_state found[TENSOR_COUNT];
    bool any = false;
    const char *fqn = module_relative_name(l->m, m->name);
    for (int t = 0; t < TENSOR_COUNT; t++) {
        TRY(find_state(l, fqn, t, &found[t]));
        any |= found[t].history != NULL;
    }
    if (any && !b->converted && !b->was_fp8) {
        TRY(make_waiting(l, b, fqn, found));
        snprintf(b->fp8_recipe, sizeof b->fp8_recipe, "%s", stated_recipe(l, fqn));
    }
    for (int t = 0; t < TENSOR_COUNT; t++) TRY(load_tensor(l, m, fqn, t, &found[t]));
    return OTT_OK;
}

/* ---- the whole ---- */

static ott_status look(state_loader *l) {
    TRY(mem_alloc(l->account, MEM_OTHER, STATE_BUFFER, "checkpoint buffer", &l->buffer));
    TRY(arena_open(l->account, MEM_OTHER, &l->names));
    TRY(read_json(l));
    TRY(match_file(l, STATE_MODEL));
    if (l->o) TRY(match_file(l, STATE_OPTIMIZER));
    return match_float8(l);
}

static ott_status take_over(state_loader *l) {
    module_drop(l->m, "a checkpoint was loaded since");
    module_weights_changed(l->m);
    TRY(read_set(l, STATE_MODEL));
    if (l->o) TRY(read_set(l, STATE_OPTIMIZER));
    ott_status status = module_visit_linears(l->m, load_linear, l);
    TRY(module_connect(l->m)); /* states may have moved */
    if (l->o) l->o->updates = l->updates;
    l->m->handle.context->step = l->step;
    return status;
}

static void loader_close(state_loader *l) {
    for (int id = 0; id < STATE_FILES; id++) {
        safetensors_close(l->files[id]);
        state_set_close(&l->sets[id]);
    }
    json_decref(l->root);
    mem_free(l->account, l->buffer);
    if (l->names) arena_close(l->names);
    str_free(&l->path);
}

static ott_status load(const char *folder, ott_module *m, ott_optimizer *o) {
    ott_context *context = m->handle.context;
    state_loader l = {.account = context->account,
                      .device = context->device,
                      .log = &context->log,
                      .m = m,
                      .o = o,
                      .folder = folder,
                      .path.account = context->account};
    ott_status status = look(&l);
    if (status == OTT_OK) status = take_over(&l);
    loader_close(&l);
    return status;
}

ott_status ott_checkpoint_load(const char *folder, ott_module *module, ott_optimizer *optimizer) {
    TRY(api_require(folder, __func__, "folder"));
    API_HANDLE(module, MODULE);
    if (optimizer) TRY(optimizer_check(optimizer, __func__));
    if (optimizer && optimizer->module != module)
        return status_fail(OTT_ERR_ARGUMENT, "%s: optimizer is that of another module", __func__);
    return MODULE_INSIDE(module->handle.context, load(folder, module, optimizer));
}
