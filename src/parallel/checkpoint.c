/*
 * parallel/checkpoint: saving and loading. Tensors stream between device and file through one small buffer,
 * so that a checkpoint needs no memory worth planning.
 */
#define _GNU_SOURCE /* renameat2 */
#include "parallel/checkpoint.h"
#include "base/arena.h"
#include "base/file.h"
#include "io/safetensors.h"
#include "parallel/checkpoint_float8.h"
#include "parallel/checkpoint_folder.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 18 };

/* ---- what is in a file ---- */

/* The tensors of one file: as the file names them, and where they are on the device. */
typedef struct tensor_set {
    arena *memory;
    safetensors_tensor *declared;
    const tensor **values;
    int64_t count;
} tensor_set;

static ott_status set_open(tensor_set *set, mem *account, int64_t capacity) {
    void *memory;
    *set = (tensor_set){0};
    TRY(arena_open(account, MEM_OTHER, &set->memory));
    TRY(arena_take(set->memory, capacity * (int64_t)sizeof *set->declared, &memory));
    set->declared = memory;
    TRY(arena_take(set->memory, capacity * (int64_t)sizeof *set->values, &memory));
    set->values = memory;
    return OTT_OK;
}

static void set_close(tensor_set *set) {
    if (set->memory) arena_close(set->memory);
}

static ott_status set_add(tensor_set *set, const parameter *p, const char *suffix, const tensor *value) {
    safetensors_tensor *t = &set->declared[set->count];
    STATUS_REQUIRE(value->data && value->dtype == OTT_F32 && value->ld == value->columns);
    TRY(arena_printf(set->memory, &t->name, "%s%s", p->name, suffix));
    t->dtype = OTT_F32;
    t->rank = p->rank;
    t->shape[0] = p->rank == 2 ? p->rows : p->columns;
    t->shape[1] = p->columns;
    set->values[set->count++] = value;
    return OTT_OK;
}

static ott_status set_of_model(tensor_set *set, const model *m) {
    TRY(set_open(set, m->device->account, m->parameter_count));
    for (int i = 0; i < m->parameter_count; i++)
        TRY(set_add(set, &m->parameters[i], "", &m->parameters[i].value));
    return OTT_OK;
}

static ott_status set_of_optimizer(tensor_set *set, const model *m) {
    TRY(set_open(set, m->device->account, 2 * m->parameter_count));
    for (int i = 0; i < m->parameter_count; i++) {
        TRY(set_add(set, &m->parameters[i], ".exp_avg", &m->parameters[i].moment1));
        TRY(set_add(set, &m->parameters[i], ".exp_avg_sq", &m->parameters[i].moment2));
    }
    return OTT_OK;
}

/* ---- saving ---- */

typedef struct saver {
    mem *account;
    const model *m;
    const char *recipe_name; /* of the one in force */
    const char *folder;      /* of the checkpoints */
    str aside, final;        /* where this one is written, where it will be */
    str file;                /* path of the file at hand */
    void *buffer;            /* [BUFFER_BYTES] */
    checkpoint_state state;
} saver;

static ott_status name_file(saver *s, const char *name) {
    s->file.length = 0;
    str_printf(&s->file, "%s/%s", s->aside.text, name);
    return str_finish(&s->file);
}

static ott_status stream_out(saver *s, safetensors_writer *w, const tensor *t) {
    int64_t bytes = tensor_bytes(*t);
    for (int64_t at = 0, piece; at < bytes; at += piece) {
        piece = bytes - at < BUFFER_BYTES ? bytes - at : BUFFER_BYTES;
        TRY(device_copy_out(s->m->device, s->buffer, (const char *)t->data + at, piece));
        TRY(safetensors_writer_append(w, s->buffer, piece));
    }
    return OTT_OK;
}

static ott_status write_set(saver *s, const tensor_set *set) {
    safetensors_writer *w;
    TRY(safetensors_writer_open(s->account, s->file.text, set->declared, set->count, NULL, 0, &w));
    for (int64_t next; (next = safetensors_writer_next(w)) >= 0;) {
        ott_status status = stream_out(s, w, set->values[next]);
        if (status == OTT_OK) continue;
        safetensors_writer_abandon(w);
        return status;
    }
    return safetensors_writer_commit(w);
}

static ott_status write_tensors(saver *s, ott_status (*describe)(tensor_set *, const model *)) {
    tensor_set set;
    ott_status status = describe(&set, s->m);
    if (status == OTT_OK) status = write_set(s, &set);
    set_close(&set);
    return status;
}

static ott_status write_config(saver *s, const config *cfg) {
    str text = {.account = s->account};
    ott_status status = config_write_toml(cfg, &text);
    if (status == OTT_OK) status = str_finish(&text);
    if (status == OTT_OK) status = file_write_atomic(s->file.text, text.text, text.length);
    str_free(&text);
    return status;
}

static ott_status write_file(saver *s, const config *cfg, enum checkpoint_file_id id) {
    TRY(name_file(s, checkpoint_file_name(id)));
    switch (id) {
    case CHECKPOINT_MODEL: TRY(write_tensors(s, set_of_model)); break;
    case CHECKPOINT_OPTIMIZER: TRY(write_tensors(s, set_of_optimizer)); break;
    case CHECKPOINT_FLOAT8: TRY(checkpoint_float8_write(s->m, s->recipe_name, s->file.text)); break;
    case CHECKPOINT_CONFIG: TRY(write_config(s, cfg)); break;
    case CHECKPOINT_FILE_COUNT: break;
    }
    /* What lies on disk is what gets a checksum, not what was meant to. */
    return checkpoint_measure(s->file.text, s->buffer, BUFFER_BYTES, &s->state.files[id]);
}

static ott_status write_all(saver *s, const config *cfg) {
    TRY(file_remove_tree(s->aside.text));
    TRY(file_make_folder(s->aside.text));
    for (int id = 0; id < CHECKPOINT_FILE_COUNT; id++) TRY(write_file(s, cfg, (enum checkpoint_file_id)id));
    TRY(name_file(s, CHECKPOINT_STATE_NAME));
    TRY(checkpoint_state_write(s->account, s->file.text, &s->state));
    return file_sync_folder(s->aside.text);
}

/* ---- putting it in place ---- */

static ott_status sync_entries(const char *folder) {
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor >= 0 && (fsync(descriptor) == 0 || errno == EINVAL || errno == ENOTSUP)) {
        close(descriptor);
        return OTT_OK;
    }
    int reason = errno;
    if (descriptor >= 0) close(descriptor);
    return status_fail(OTT_ERR_IO, "%s: cannot sync the folder: %s", folder, strerror(reason));
}

/* Swaps in one go where the file system can; else there is a moment without the step, but never a half one.
   What is left of the old one if it cannot be removed is a leftover like any other. */
static ott_status replace_old(saver *s) {
    if (renameat2(AT_FDCWD, s->aside.text, AT_FDCWD, s->final.text, RENAME_EXCHANGE) == 0) {
        TRY(sync_entries(s->folder));
        (void)file_remove_tree(s->aside.text);
        return OTT_OK;
    }
    s->file.length = 0;
    str_printf(&s->file, "%s-old", s->aside.text);
    TRY(str_finish(&s->file));
    TRY(file_rename(s->final.text, s->file.text));
    TRY(file_rename(s->aside.text, s->final.text));
    (void)file_remove_tree(s->file.text);
    return OTT_OK;
}

static ott_status put_in_place(saver *s) {
    if (!file_exists(s->final.text)) return file_rename(s->aside.text, s->final.text);
    if (file_is_folder(s->final.text)) return replace_old(s);
    return status_fail(OTT_ERR_IO, "%s: a file has the checkpoint's name: move it away", s->final.text);
}

/* Removes what was written; the error that led here stays the one told. */
static ott_status give_up(saver *s, ott_status code) {
    str reason = {.account = s->account};
    bool is_disk = code == OTT_ERR_IO || code == OTT_ERR_NOT_FOUND;
    str_append(&reason, status_text());
    bool removed = file_remove_tree(s->aside.text) == OTT_OK;
    if (!reason.failed)
        status_fail(code, "cannot save the checkpoint of step %" PRId64 ": %s%s%s", s->state.run.step,
                    reason.text,
                    is_disk ? "; make room there or choose another folder with checkpoint.dir" : "",
                    removed ? "" : "; what was written aside could not be removed");
    str_free(&reason);
    return code;
}

/* ---- removing old ones ---- */

/* Renamed first: a removal that is cut short must not leave a half checkpoint under a checkpoint's name. */
static ott_status remove_step(saver *s, int64_t step) {
    str from = {.account = s->account}, to = {.account = s->account};
    str_printf(&from, "%s/step-%" PRId64, s->folder, step);
    str_printf(&to, "%s/step-%" PRId64 ".tmp-%ld", s->folder, step, (long)getpid());
    ott_status status = str_finish(from.failed ? &from : &to);
    if (status == OTT_OK) status = file_rename(from.text, to.text);
    if (status == OTT_OK) status = file_remove_tree(to.text);
    str_free(&from);
    str_free(&to);
    return status;
}

static ott_status purge(saver *s, int64_t keep) {
    step_list list;
    ott_status status = OTT_OK;
    if (keep == 0) return OTT_OK;
    TRY(checkpoint_list(s->account, s->folder, &list));
    int64_t surplus = list.count - keep;
    for (int64_t i = 0; status == OTT_OK && i < list.count && surplus > 0; i++) {
        if (list.steps[i] == s->state.run.step) continue;
        status = remove_step(s, list.steps[i]);
        surplus--;
    }
    mem_give(s->account, list.steps);
    return status_context(status, "%s is complete, but an older checkpoint cannot be removed", s->final.text);
}

/* Folders aside whose process is gone. Not being able to remove one is no reason to stop training. */
static ott_status remove_leftovers(saver *s) {
    file_list names;
    int64_t process;
    TRY(file_list_folder(s->account, s->folder, &names));
    for (int64_t i = 0; i < names.count; i++) {
        if (!checkpoint_is_aside(names.names[i], &process)) continue;
        bool ours = process == getpid(); /* of an earlier process of our number */
        if (!ours && (process > INT32_MAX || kill((pid_t)process, 0) == 0 || errno != ESRCH)) continue;
        s->file.length = 0;
        str_printf(&s->file, "%s/%s", s->folder, names.names[i]);
        if (!s->file.failed) (void)file_remove_tree(s->file.text);
    }
    file_list_free(&names);
    return str_finish(&s->file);
}

/* ---- the whole save ---- */

static ott_status saver_open(saver *s, const model *m, const run_state *run, const char *folder) {
    mem *account = m->device->account;
    *s = (saver){.account = account,
                 .m = m,
                 .folder = folder,
                 .aside.account = account,
                 .final.account = account,
                 .file.account = account,
                 .state.run = *run};
    checkpoint_state_describe(&m->options, &s->state);
    str_printf(&s->final, "%s/step-%" PRId64, folder, run->step);
    str_printf(&s->aside, "%s/step-%" PRId64 ".tmp-%ld", folder, run->step, (long)getpid());
    TRY(str_finish(&s->final));
    TRY(str_finish(&s->aside));
    return mem_take(account, MEM_OTHER, BUFFER_BYTES, "checkpoint buffer", &s->buffer);
}

static void saver_close(saver *s) {
    str_free(&s->aside);
    str_free(&s->final);
    str_free(&s->file);
    mem_give(s->account, s->buffer);
}

static ott_status save(saver *s, const config *cfg) {
    ott_status status = file_make_folder(s->folder);
    if (status == OTT_OK) status = remove_leftovers(s);
    if (status == OTT_OK) status = write_all(s, cfg);
    if (status == OTT_OK) status = put_in_place(s);
    return status == OTT_OK ? OTT_OK : give_up(s, status);
}

ott_status checkpoint_save(const model *m, const config *cfg, const char *recipe_name, const run_state *state,
                           const char *folder, int64_t keep, char **path) {
    saver s;
    ott_status status;
    if (path) *path = NULL;
    STATUS_REQUIRE(m->moment1 && m->moment2 && state->step >= 0 && keep >= 0);
    TRY_OUT(saver_open(&s, m, state, folder));
    s.recipe_name = recipe_name;
    TRY_OUT(save(&s, cfg));
    TRY_OUT(purge(&s, keep));
    if (path) TRY_OUT(mem_strdup(s.account, s.final.text, path));
out:
    saver_close(&s);
    return status;
}

/* ---- loading ---- */

static ott_status stream_in(model *m, const safetensors *f, const safetensors_entry *e, const tensor *t,
                            void *buffer) {
    for (int64_t at = 0, piece; at < e->bytes; at += piece) {
        piece = e->bytes - at < BUFFER_BYTES ? e->bytes - at : BUFFER_BYTES;
        TRY(safetensors_read(f, e, at, piece, buffer));
        TRY(device_copy_in(m->device, (char *)t->data + at, buffer, piece));
    }
    return OTT_OK;
}

static ott_status check_set(const safetensors *f, const tensor_set *set) {
    const safetensors_entry *e;
    if (safetensors_count(f) != set->count)
        return status_fail(OTT_ERR_SHAPE, "%s: has %" PRId64 " tensors, the model has %" PRId64,
                           safetensors_path(f), safetensors_count(f), set->count);
    for (int64_t i = 0; i < set->count; i++) {
        const safetensors_tensor *t = &set->declared[i];
        TRY(safetensors_expect(f, t->name, t->dtype, t->rank, t->shape, &e));
    }
    return OTT_OK;
}

static ott_status read_set(model *m, const safetensors *f, const tensor_set *set) {
    mem *account = m->device->account;
    ott_status status = OTT_OK;
    void *buffer;
    TRY(mem_take(account, MEM_OTHER, BUFFER_BYTES, "checkpoint buffer", &buffer));
    for (int64_t i = 0; status == OTT_OK && i < set->count; i++)
        status = stream_in(m, f, safetensors_find(f, set->declared[i].name), set->values[i], buffer);
    mem_give(account, buffer);
    return status;
}

/* One file of a checkpoint, opened, with what the model wants of it. */
typedef struct loader {
    safetensors *file;
    tensor_set set;
} loader;

static ott_status loader_open(loader *l, const model *m, const char *folder, enum checkpoint_file_id id) {
    mem *account = m->device->account;
    str path = {.account = account};
    str_printf(&path, "%s/%s", folder, checkpoint_file_name(id));
    ott_status status = id == CHECKPOINT_MODEL ? set_of_model(&l->set, m) : set_of_optimizer(&l->set, m);
    if (status == OTT_OK) status = str_finish(&path);
    if (status == OTT_OK) status = safetensors_open(account, path.text, &l->file);
    if (status == OTT_OK) status = check_set(l->file, &l->set);
    str_free(&path);
    return status;
}

static void loader_close(loader *l) {
    safetensors_close(l->file);
    set_close(&l->set);
}

/* Both files are looked at before the first byte of the model changes. */
static ott_status load_tensors(model *m, const char *path) {
    loader weights = {0}, moments = {0};
    ott_status status;
    TRY_OUT(loader_open(&weights, m, path, CHECKPOINT_MODEL));
    if (m->moment1) TRY_OUT(loader_open(&moments, m, path, CHECKPOINT_OPTIMIZER));
    TRY_OUT(read_set(m, weights.file, &weights.set));
    if (m->moment1) TRY_OUT(read_set(m, moments.file, &moments.set));
    model_weights_changed(m);
out:
    loader_close(&weights);
    loader_close(&moments);
    return status;
}

ott_status checkpoint_peek(mem *account, const char *path, run_state *state) {
    checkpoint_state s;
    ott_status status = checkpoint_verify(account, path, false, &s);
    if (status != OTT_OK) return checkpoint_advise(account, path, status);
    *state = s.run;
    return OTT_OK;
}

ott_status checkpoint_config(mem *account, const char *path, config **out) {
    str file = {.account = account};
    str_printf(&file, "%s/%s", path, checkpoint_file_name(CHECKPOINT_CONFIG));
    ott_status status = str_finish(&file);
    const char *arguments[] = {file.text};
    if (status == OTT_OK) status = config_parse(account, NULL, 1, arguments, out);
    str_free(&file);
    return status;
}

static ott_status load_float8(model *m, const logger *log, const char *folder, bool *fallen) {
    str path = {.account = m->device->account};
    str_printf(&path, "%s/%s", folder, checkpoint_file_name(CHECKPOINT_FLOAT8));
    ott_status status = str_finish(&path);
    if (status == OTT_OK) status = checkpoint_float8_read(m, log, path.text, fallen);
    str_free(&path);
    return status;
}

ott_status checkpoint_load(model *m, const logger *log, const char *path, run_state *state, bool *fallen) {
    mem *account = m->device->account;
    checkpoint_state s;
    ott_status status = checkpoint_verify(account, path, true, &s);
    if (status != OTT_OK) return checkpoint_advise(account, path, status);
    TRY(checkpoint_state_match(&s, &m->options, path));
    TRY(load_tensors(m, path));
    TRY(load_float8(m, log, path, fallen));
    *state = s.run;
    return OTT_OK;
}
