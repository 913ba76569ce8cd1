/*
 * checkpoint/checkpoint: saving. Tensors stream from where they are to their file through one small buffer, so
 * that writing a checkpoint needs no memory worth planning.
 */
#include "checkpoint/checkpoint.h"
#include "base/file.h"
#include "base/staging.h"
#include "checkpoint/folder.h"
#include "checkpoint/run_history.h"
#include "checkpoint/run_sources.h"
#include "checkpoint/snapshot.h"
#include <inttypes.h>
#include <string.h>

enum { BUFFER_BYTES = 1 << 18 };

/* ---- saving ---- */

typedef struct saver {
    mem *account;
    const checkpoint_snapshot *from;
    const char *folder; /* of the checkpoints */
    str final;          /* where this one will be */
    staging staging;    /* where it is written */
    str file;           /* path of the file at hand */
    void *buffer;       /* [BUFFER_BYTES] */
    checkpoint_state state;
} saver;

static ott_status name_file(saver *s, const char *name) {
    s->file.length = 0;
    str_printf(&s->file, "%s/%s", s->staging.path.text, name);
    return str_finish(&s->file);
}

static ott_status stream_out(saver *s, safetensors_writer *w, const tensor_place *p) {
    if (p->on_host) return safetensors_writer_append(w, p->data, p->bytes);
    for (int64_t at = 0, piece; at < p->bytes; at += piece) {
        piece = p->bytes - at < BUFFER_BYTES ? p->bytes - at : BUFFER_BYTES;
        TRY(device_copy_out(s->from->device, s->buffer, (const char *)p->data + at, piece));
        TRY(safetensors_writer_append(w, s->buffer, piece));
    }
    return OTT_OK;
}

static ott_status write_set(saver *s, const tensor_set *set) {
    safetensors_writer *w;
    TRY(safetensors_writer_open(s->account, s->file.text, set->declared, set->count, &set->metadata,
                                set->metadata.key != NULL, &w));
    for (int64_t next; (next = safetensors_writer_next(w)) >= 0;) {
        ott_status status = stream_out(s, w, &set->places[next]);
        if (status == OTT_OK) continue;
        safetensors_writer_abandon(w);
        return status;
    }
    return safetensors_writer_commit(w);
}

static ott_status write_file(saver *s, enum checkpoint_file_id id) {
    const str *text = &s->from->config;
    TRY(name_file(s, checkpoint_file_name(id)));
    if (id == CHECKPOINT_CONFIG)
        TRY(file_write_atomic(s->file.text, text->text, text->length));
    else
        TRY(write_set(s, &s->from->sets[id]));
    /* What lies on disk is what gets a checksum, not what was meant to. */
    return checkpoint_measure(s->file.text, s->buffer, BUFFER_BYTES, NULL, &s->state.files[id]);
}

/* A file that training does not need. */
static ott_status write_extra(saver *s, const char *name, const char *text, int64_t bytes) {
    if (bytes == 0) return OTT_OK;
    TRY(name_file(s, name));
    return file_write_atomic(s->file.text, text, bytes);
}

static ott_status write_all(saver *s) {
    for (int id = 0; id < CHECKPOINT_FILE_COUNT; id++) TRY(write_file(s, (enum checkpoint_file_id)id));
    TRY(write_extra(s, RUN_HISTORY_NAME, s->from->history.text, s->from->history.length));
    if (s->from->sources)
        TRY(write_extra(s, RUN_SOURCES_NAME, s->from->sources, (int64_t)strlen(s->from->sources)));
    TRY(name_file(s, CHECKPOINT_STATE_NAME));
    return checkpoint_state_write(s->account, s->file.text, &s->state);
}

/* A checkpoint of another run that was put here keeps its contents, under another name. */
static ott_status spare_other(saver *s) {
    run_mark there;
    if (!*s->state.mark.run || !file_is_folder(s->final.text)) return OTT_OK;
    TRY(checkpoint_mark(s->account, s->final.text, &there));
    if (!*there.run || strcmp(there.run, s->state.mark.run) == 0) return OTT_OK;
    s->file.length = 0;
    str_printf(&s->file, "%s/run-%s-step-%" PRId64, s->folder, there.run, s->state.run.step);
    TRY(str_finish(&s->file));
    return file_rename(s->final.text, s->file.text);
}

/* ---- removing old ones ---- */

/* Renamed first: a removal that is cut short must not leave a half checkpoint under a checkpoint's name. */
static ott_status remove_step(saver *s, int64_t step) {
    char stale[STAGING_NAME_SIZE];
    s->file.length = 0;
    str_printf(&s->file, "%s/step-%" PRId64, s->folder, step);
    TRY(str_finish(&s->file));
    staging_name(s->file.text, stale);
    TRY(file_rename(s->file.text, stale));
    return file_remove_tree(stale);
}

static ott_status remove_old(saver *s, int64_t keep) {
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
    mem_free(s->account, list.steps);
    return status;
}

/* Not being able to is no reason to stop training: `left` says why, or stays NULL. */
static ott_status purge(saver *s, int64_t keep, char **left) {
    ott_status status = remove_old(s, keep);
    if (status == OTT_OK || status == OTT_ERR_MEMORY) return status;
    return mem_strdup(s->account, status_text(), left);
}

/* ---- the whole save ---- */

static ott_status saver_open(saver *s, const checkpoint_snapshot *from, const char *folder) {
    mem *account = from->account;
    int64_t step = from->state.run.step;
    *s = (saver){.account = account,
                 .from = from,
                 .folder = folder,
                 .final.account = account,
                 .file.account = account,
                 .state = from->state};
    str_printf(&s->final, "%s/step-%" PRId64, folder, step);
    TRY(str_finish(&s->final));
    return mem_alloc(account, MEM_OTHER, BUFFER_BYTES, "checkpoint buffer", &s->buffer);
}

static void saver_close(saver *s) {
    str_free(&s->final);
    str_free(&s->file);
    mem_free(s->account, s->buffer);
}

/* A checkpoint is of the run that the folder is of. */
static ott_status take_mark(saver *s) {
    run_record r;
    TRY(run_record_read(s->account, s->folder, &r));
    s->state.mark = r.mark;
    return OTT_OK;
}

static ott_status save(saver *s) {
    TRY(file_make_folder(s->folder));
    TRY(take_mark(s));
    staging_remove_stale_in(s->account, s->folder);
    TRY(staging_open(s->account, s->final.text, &s->staging));
    ott_status status = write_all(s);
    if (status == OTT_OK) status = spare_other(s);
    return staging_end(&s->staging, status);
}

static ott_status explain(const saver *s, ott_status code) {
    bool is_disk = code == OTT_ERR_IO || code == OTT_ERR_NOT_FOUND || code == OTT_ERR_ARGUMENT;
    return status_fail(code, "cannot save the checkpoint of step %" PRId64 ": %s%s", s->state.run.step,
                       status_text(),
                       is_disk ? "; make room there or choose another folder with checkpoint.dir" : "");
}

ott_status checkpoint_snapshot_write(const checkpoint_snapshot *from, const char *folder, int64_t keep,
                                     checkpoint_written *out) {
    saver s;
    ott_status status;
    *out = (checkpoint_written){.account = from->account};
    TRY_OUT(saver_open(&s, from, folder));
    TRY_OUT(mem_strdup(s.account, s.final.text, &out->path));
    status = save(&s);
    if (status != OTT_OK) TRY_OUT(explain(&s, status));
    TRY_OUT(purge(&s, keep, &out->left));
out:
    if (status != OTT_OK) checkpoint_written_free(out);
    saver_close(&s);
    return status;
}

void checkpoint_written_say(const checkpoint_written *w, const logger *log) {
    log_info(log, "Saved %s", w->path);
    if (w->left) log_warning(log, "An older checkpoint cannot be removed, and stays: %s", w->left);
}

void checkpoint_written_free(checkpoint_written *w) {
    if (!w->account) return; /* nothing was */
    mem_free(w->account, w->path);
    mem_free(w->account, w->left);
    *w = (checkpoint_written){0};
}

ott_status checkpoint_save(const model *m, const config *cfg, const char *recipe_name, const run_state *state,
                           const char *folder, int64_t keep, char **path) {
    checkpoint_snapshot snapshot;
    checkpoint_written written = {0};
    if (path) *path = NULL;
    STATUS_REQUIRE(m->options.optimizer && state->step >= 0 && keep >= 0);
    ott_status status = checkpoint_snapshot_take(m, cfg, recipe_name, state, &snapshot);
    if (status == OTT_OK) status = checkpoint_snapshot_write(&snapshot, folder, keep, &written);
    checkpoint_snapshot_close(&snapshot);
    if (path) {
        *path = written.path;
        written.path = NULL;
    }
    checkpoint_written_free(&written);
    return status;
}
