/* api/state: what is in the files of a module's checkpoint, and saving them. */
#define _GNU_SOURCE /* renameat2 */
#include "api/state.h"
#include "api/autocast.h"
#include "base/file.h"
#include "base/staging.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const file_names[] = {
#define X(id, name) name,
    STATE_FILE_MAP(X)
#undef X
};

const char *state_file_name(state_file id) {
    return file_names[id];
}

/* ---- what is in a file ---- */

static ott_status add(state_set *set, const char *name, int rank, const tensor *value) {
    STATUS_REQUIRE(set->count < set->capacity);
    set->declared[set->count] = (safetensors_tensor){
        .name = name,
        .dtype = OTT_F32,
        .rank = rank,
        .shape = {rank == 2 ? value->rows : value->columns, rank == 2 ? value->columns : 0}};
    set->values[set->count++] = *value;
    return OTT_OK;
}

static ott_status add_parameters(state_set *set, ott_module *m) {
    const module_parameter *made;
    for (int i = 0; (made = module_parameter_at(m, i)); i++)
        TRY(add(set, module_relative_name(m, made->p.name), made->p.rank, &made->p.value));
    return OTT_OK;
}

static ott_status add_optimizer(state_set *set, ott_module *m, const ott_optimizer *o) {
    const char *text;
    for (int i = 0; o && i < o->count; i++) {
        const char *name = module_relative_name(m, module_parameter_at(m, i)->p.name);
        const parameter *p = &o->parameters[i];
        for (int j = 0; j < o->rule->slots; j++) {
            TRY(arena_printf(set->memory, &text, "%s.%s", name, o->rule->slot[j]));
            TRY(add(set, text, p->rank, &p->slot[j]));
        }
    }
    return OTT_OK;
}

ott_status state_float8_name(arena *memory, const char *fqn, int which, ott_dtype format, const char *part,
                             const char **out) {
    return arena_printf(memory, out, "%s%s%s.%s%s", fqn, *fqn ? "." : "", autocast_tensor_names[which],
                        dtype_name(format), part);
}

typedef struct float8_visit {
    state_set *set;
    ott_module *root;
} float8_visit;

static ott_status add_float8(void *user, ott_module *m) {
    const float8_visit *v = user;
    const char *name, *fqn = module_relative_name(v->root, m->name);
    for (int t = 0; t < TENSOR_COUNT; t++) {
        const delayed_state *s = &module_linear_body(m)->layer->delayed[t];
        if (!s->seen.data) continue;
        TRY(state_float8_name(v->set->memory, fqn, t, s->spec.format, ".amax_history", &name));
        TRY(add(v->set, name, 1, &s->amax_history));
        TRY(state_float8_name(v->set->memory, fqn, t, s->spec.format, ".scale", &name));
        TRY(add(v->set, name, 1, &s->scale));
    }
    return OTT_OK;
}

static ott_status count_states(void *user, ott_module *m) {
    (void)m;
    *(int64_t *)user += 2 * TENSOR_COUNT;
    return OTT_OK;
}

static ott_status set_reserve(state_set *set, ott_module *m) {
    void *memory;
    set->capacity = 2 * (int64_t)ott_module_parameter_count(m);
    TRY(module_visit_linears(m, count_states, &set->capacity));
    TRY(arena_open(m->handle.context->account, MEM_OTHER, &set->memory));
    TRY(arena_alloc(set->memory, set->capacity * (int64_t)sizeof *set->declared, &memory));
    set->declared = memory;
    TRY(arena_alloc(set->memory, set->capacity * (int64_t)sizeof *set->values, &memory));
    set->values = memory;
    TRY(arena_alloc(set->memory, set->capacity * (int64_t)sizeof *set->crc, &memory));
    set->crc = memory;
    return OTT_OK;
}

ott_status state_set_open(state_set *set, state_file id, ott_module *m, const ott_optimizer *o) {
    float8_visit v = {.set = set, .root = m};
    *set = (state_set){0};
    TRY(set_reserve(set, m));
    switch (id) {
    case STATE_MODEL: return add_parameters(set, m);
    case STATE_OPTIMIZER: return add_optimizer(set, m, o);
    case STATE_FLOAT8: return module_visit_linears(m, add_float8, &v);
    case STATE_FILES: break;
    }
    return OTT_OK;
}

void state_set_close(state_set *set) {
    if (set->memory) arena_close(set->memory);
    *set = (state_set){0};
}

/* ---- module.json ---- */

ott_status state_json_crc(const json_t *object, uint32_t *crc) {
    char *text = json_dumps(object, JSON_SORT_KEYS | JSON_COMPACT);
    if (!text) return status_fail(OTT_ERR_MEMORY, "out of memory: a checkpoint's description");
    *crc = file_crc32c(0, text, (int64_t)strlen(text));
    free(text);
    return OTT_OK;
}

static ott_status put(json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, value) == 0) return OTT_OK;
    return status_fail(OTT_ERR_MEMORY, "out of memory: a checkpoint's description");
}

static ott_status put_checksums(json_t *tensors, state_file id, const state_set *set) {
    json_t *object = json_object();
    TRY(put(tensors, state_file_name(id), object)); /* which owns it from here on */
    for (int64_t i = 0; i < set->count; i++)
        TRY(put(object, set->declared[i].name, json_integer(set->crc[i])));
    return OTT_OK;
}

typedef struct recipe_visit {
    json_t *object;
    ott_module *root;
} recipe_visit;

static ott_status put_recipe(void *user, ott_module *m) {
    const recipe_visit *v = user;
    const linear_body *b = m->body;
    json_t *entry, *margins;
    if (!*b->fp8_recipe) return OTT_OK;
    entry = json_object();
    TRY(put(v->object, module_relative_name(v->root, m->name), entry)); /* which owns it from here on */
    TRY(put(entry, "recipe", json_string(b->fp8_recipe)));
    margins = json_object();
    TRY(put(entry, "margin", margins));
    for (int t = 0; t < TENSOR_COUNT; t++)
        if (b->layer->delayed[t].seen.data)
            TRY(put(margins, autocast_tensor_names[t], json_integer(b->layer->delayed[t].spec.scale.margin)));
    return OTT_OK;
}

/* ---- saving ---- */

typedef struct saver {
    mem *account;
    device *device;
    ott_module *m;
    const ott_optimizer *o;
    const char *final;
    str aside, file;
    void *buffer;
    json_t *root, *tensors;
} saver;

static ott_status name_file(saver *s, const char *name) {
    s->file.length = 0;
    str_printf(&s->file, "%s/%s", s->aside.text, name);
    return str_finish(&s->file);
}

static ott_status stream_out(saver *s, safetensors_writer *w, const tensor *t, uint32_t *crc) {
    int64_t bytes = tensor_bytes(*t);
    for (int64_t at = 0, piece; at < bytes; at += piece) {
        piece = bytes - at < STATE_BUFFER ? bytes - at : STATE_BUFFER;
        TRY(device_copy_out(s->device, s->buffer, (const char *)t->data + at, piece));
        *crc = file_crc32c(*crc, s->buffer, piece);
        TRY(safetensors_writer_append(w, s->buffer, piece));
    }
    return OTT_OK;
}

static ott_status write_set(saver *s, state_set *set) {
    safetensors_writer *w;
    TRY(safetensors_writer_open(s->account, s->file.text, set->declared, set->count, NULL, 0, &w));
    for (int64_t next; (next = safetensors_writer_next(w)) >= 0;) {
        ott_status status = stream_out(s, w, &set->values[next], &set->crc[next]);
        if (status == OTT_OK) continue;
        safetensors_writer_abandon(w);
        return status;
    }
    return safetensors_writer_commit(w);
}

/* Files without tensors are not written. */
static ott_status write_file(saver *s, state_file id) {
    state_set set;
    ott_status status;
    TRY_OUT(state_set_open(&set, id, s->m, s->o));
    if (set.count == 0) goto out;
    TRY_OUT(name_file(s, state_file_name(id)));
    TRY_OUT(write_set(s, &set));
    TRY_OUT(put_checksums(s->tensors, id, &set));
out:
    state_set_close(&set);
    return status;
}

static ott_status describe(saver *s) {
    uint32_t crc;
    recipe_visit v = {.object = json_object(), .root = s->m};
    TRY(put(s->root, "float8", v.object));
    TRY(module_visit_linears(s->m, put_recipe, &v));
    TRY(put(s->root, "version", json_integer(STATE_VERSION)));
    TRY(put(s->root, "step", json_integer(s->m->handle.context->step)));
    TRY(put(s->root, "updates", s->o ? json_integer(s->o->updates) : json_null()));
    TRY(state_json_crc(s->root, &crc));
    return put(s->root, "crc32c", json_integer(crc));
}

static ott_status write_json(saver *s) {
    str text = {.account = s->account};
    char *dumped = NULL;
    ott_status status;
    TRY_OUT(describe(s));
    dumped = json_dumps(s->root, JSON_INDENT(2));
    if (!dumped) TRY_OUT(status_fail(OTT_ERR_MEMORY, "out of memory: a checkpoint's description"));
    str_printf(&text, "%s\n", dumped);
    TRY_OUT(str_finish(&text));
    TRY_OUT(name_file(s, STATE_JSON));
    TRY_OUT(file_write_atomic(s->file.text, text.text, text.length));
out:
    free(dumped);
    str_free(&text);
    return status;
}

static ott_status write_all(saver *s) {
    TRY(file_remove_tree(s->aside.text));
    TRY(file_make_folder(s->aside.text));
    s->root = json_object();
    s->tensors = json_object();
    TRY(put(s->root, "tensors", s->tensors));
    for (int id = 0; id < STATE_FILES; id++) TRY(write_file(s, (state_file)id));
    TRY(write_json(s));
    return file_sync_folder(s->aside.text);
}

/* An earlier checkpoint is swapped in one go where the file system can, and else moved away first. */
static ott_status put_in_place(saver *s) {
    if (!file_exists(s->final)) return file_rename(s->aside.text, s->final);
    if (renameat2(AT_FDCWD, s->aside.text, AT_FDCWD, s->final, RENAME_EXCHANGE) == 0)
        return file_remove_tree(s->aside.text);
    s->file.length = 0;
    str_printf(&s->file, "%s-old", s->aside.text);
    TRY(str_finish(&s->file));
    TRY(file_rename(s->final, s->file.text));
    TRY(file_rename(s->aside.text, s->final));
    return file_remove_tree(s->file.text);
}

/* Only what this function wrote may be replaced. */
static ott_status check_place(saver *s) {
    if (!file_exists(s->final)) return OTT_OK;
    s->file.length = 0;
    str_printf(&s->file, "%s/" STATE_JSON, s->final);
    TRY(str_finish(&s->file));
    if (file_is_folder(s->final) && file_exists(s->file.text)) return OTT_OK;
    return status_fail(OTT_ERR_IO,
                       "%s: is there and is no checkpoint of a module (no " STATE_JSON
                       "): move it away or give another name",
                       s->final);
}

/* Removes what was written aside; the error that led here stays the one told. */
static void give_up(saver *s, ott_status code) {
    str reason = {.account = s->account};
    str_append(&reason, status_text());
    (void)file_remove_tree(s->aside.text);
    if (!reason.failed) status_fail(code, "%s", reason.text ? reason.text : "");
    str_free(&reason);
}

static ott_status save(const char *folder, ott_module *m, const ott_optimizer *o) {
    mem *account = m->handle.context->account;
    saver s = {.account = account,
               .device = m->handle.context->device,
               .m = m,
               .o = o,
               .final = folder,
               .aside.account = account,
               .file.account = account};
    ott_status status;
    char aside[STAGING_NAME_SIZE];
    staging_name(folder, aside);
    str_append(&s.aside, aside);
    TRY_OUT(str_finish(&s.aside));
    TRY_OUT(mem_alloc(account, MEM_OTHER, STATE_BUFFER, "checkpoint buffer", &s.buffer));
    TRY_OUT(check_place(&s));
    staging_remove_stale(account, folder);
    status = write_all(&s);
    if (status == OTT_OK) status = put_in_place(&s);
    if (status != OTT_OK) give_up(&s, status);
out:
    json_decref(s.root);
    mem_free(account, s.buffer);
    str_free(&s.aside);
    str_free(&s.file);
    return status;
}

static ott_status check_folder(const char *folder, const char *function) {
    TRY(api_require(folder, function, "folder"));
    return *folder ? OTT_OK : status_fail(OTT_ERR_ARGUMENT, "%s: folder is empty", function);
}

ott_status ott_checkpoint_save(const char *folder, ott_module *module, ott_optimizer *optimizer) {
    TRY(check_folder(folder, __func__));
    API_HANDLE(module, MODULE);
    if (optimizer) TRY(optimizer_check(optimizer, __func__));
    if (optimizer && optimizer->module != module)
        return status_fail(OTT_ERR_ARGUMENT, "%s: optimizer is that of another module", __func__);
    return MODULE_INSIDE(module->handle.context, save(folder, module, optimizer));
}
